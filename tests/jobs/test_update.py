"""Add, remove, build --update and verify."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from crnr_cli.arrays import Array, Batch, to_dense
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.recipe.steps import Pca
from crnr_cli.sources.images import Images
from crnr_cli.sources.tables import Features
from helpers.patches import watch_decoders
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import draw_image, make_features, make_images
from helpers.templates import Templates


def png() -> bytes:
    draw_image(0, 0).save(buffer := io.BytesIO(), "png")
    return buffer.getvalue()


PNG = png()


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> None:
    """A gallery of three classes in gallery.h5, made from the folder gallery."""
    templates.copy(build_gallery, crnr.here)


def axes_of(gallery: FittedGallery) -> Array:
    (pca,) = gallery.recipe.steps
    assert isinstance(pca, Pca)
    assert pca.axes is not None
    return pca.axes


def residuals(gallery: FittedGallery) -> np.ndarray:
    """Return the residuals of new queries."""
    values = np.random.default_rng(5).random((20, gallery.recipe.n_inputs))
    vectors, _ = gallery.recipe.unit_vectors(values, gallery.dtype)
    return to_dense(gallery.residuals(vectors))


def assert_equal(one: str, other: str) -> None:
    """Compare classes, samples and answers."""
    a, b = load_gallery(Path(one)), load_gallery(Path(other))
    assert a.classes == b.classes
    assert dict(zip(a.names, a.hashes, strict=True)) == dict(zip(b.names, b.hashes, strict=True))
    np.testing.assert_allclose(residuals(a), residuals(b), atol=1e-5)


@pytest.mark.usefixtures("built")
def test_add_equals_a_build_of_everything(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", ["ant", "dog"], first=20)
    for path in ("gallery/ant/0.png", "gallery/bee/0.png"):
        Path(path).rename(path + ".hidden")  # the old images are not needed
    names = [f"gallery/{name}/{i}.png" for name in ("ant", "dog") for i in range(20, 24)]
    outcome = crnr("add", "gallery.h5", "-", stdin="\n".join(names).encode())
    assert (outcome.exit, outcome.out) == (0, "")
    lines = outcome.err.splitlines()
    assert lines[:10] == [
        "note: class dog is new: 4 examples, such as gallery/dog/20.png",
        *(f"added: {name}" for name in names),
        "8 added, 0 changed, 0 removed, 12 unchanged",
    ]
    assert lines[10].startswith("gallery.h5: 4 classes, 20 examples, vectors of length 128, method crnr; ")
    for path in ("gallery/ant/0.png", "gallery/bee/0.png"):
        Path(path + ".hidden").rename(path)
    crnr("build", "gallery", "-o", "fresh.h5")
    assert_equal("gallery.h5", "fresh.h5")


@pytest.mark.usefixtures("built")
def test_a_calibrated_gallery_is_calibrated_again_with_the_new_samples(crnr: Runner) -> None:
    crnr("build", "gallery", "--calibrate", "-q")
    make_images(crnr.here / "gallery", first=20)
    assert crnr("add", "gallery.h5", "gallery", "-q").exit == 0
    added = load_gallery(Path("gallery.h5"))
    assert added.calibration is not None
    assert added.calibration.origin == ("24 examples, classified with 1/20 of the gallery held out at a time")
    expected = calibrate(added.samples, added.method, added.hashes).standouts
    np.testing.assert_array_equal(added.calibration.standouts, expected)


@pytest.mark.usefixtures("built")
def test_add_takes_the_place_of_a_sample_of_that_name(crnr: Runner) -> None:
    draw_image(1, 77).save("gallery/bee/0.png")
    outcome = crnr("add", "gallery.h5", "gallery", "--json")
    assert outcome.exit == 0
    assert json.loads(outcome.out)["changes"] == {
        "added": [],
        "changed": ["gallery/bee/0.png"],
        "removed": [],
        "unchanged": 11,
    }
    crnr("build", "gallery", "-o", "fresh.h5")
    assert_equal("gallery.h5", "fresh.h5")


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a method is fitted to a gallery, or if the gallery is calibrated."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("fitted")

    monkeypatch.setattr("crnr_cli.gallery.fit.fit_method", refuse)
    monkeypatch.setattr("crnr_cli.gallery.gallery.calibrate", refuse)


@pytest.mark.usefixtures("built", "no_fit")
@pytest.mark.parametrize(
    "command", [("add", "gallery.h5", "gallery"), ("build", "gallery", "--update")], ids=["add", "update"]
)
def test_a_command_that_changes_nothing_writes_nothing(crnr: Runner, command: tuple[str, ...]) -> None:
    before, status = Path("gallery.h5").read_bytes(), Path("gallery.h5").stat()
    outcome = crnr(*command)
    assert (outcome.exit, outcome.out) == (0, "")
    lines = outcome.err.splitlines()
    assert lines[0] == "0 added, 0 changed, 0 removed, 12 unchanged"
    assert lines[1].startswith("gallery.h5: 3 classes, 12 examples, vectors of length 128, method crnr; ")
    assert lines[1].endswith(f" s, {len(before) / 1e3:.1f} kB")
    after = Path("gallery.h5").stat()
    assert (after.st_ino, after.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)
    assert Path("gallery.h5").read_bytes() == before
    assert crnr.files() == {"gallery", "gallery.h5"}


@pytest.mark.usefixtures("built", "no_fit")
def test_update_stores_new_times_of_unchanged_files_without_a_fit(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the files need not be read at every update."""
    os.utime("gallery/bee/2.png", (1, 1))
    state = {key: array.copy() for key, array in load_gallery(Path("gallery.h5")).state.items()}
    outcome = crnr("build", "gallery", "--update")
    assert "0 added, 0 changed, 0 removed, 12 unchanged\n" in outcome.err
    gallery = load_gallery(Path("gallery.h5"))
    assert gallery.stamps[gallery.names.index("gallery/bee/2.png")].mtime_ns == 10**9
    for key, array in gallery.state.items():
        np.testing.assert_array_equal(array, state[key])
    monkeypatch.setattr(Images, "read_batches", None)  # nothing is to be read
    assert crnr("build", "gallery", "--update", "-q").exit == 0


def test_add_appends_rows_of_feature_files(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz", classes=("x", "y"))
    make_features(crnr.here / "b.npz", classes=("y", "z"), seed=1)
    crnr("build", "a.npz", "--dtype", "float64")
    assert crnr("add", "gallery.h5", "b.npz", "-q").exit == 0
    assert load_gallery(Path("gallery.h5")).dtype == "float64"
    crnr("build", "a.npz", "b.npz", "--dtype", "float64", "-o", "fresh.h5")
    assert_equal("gallery.h5", "fresh.h5")


@pytest.mark.parametrize("again", ["./gallery/bee/0.png", "gallery/../gallery/bee/0.png"])
@pytest.mark.usefixtures("built")
def test_a_changed_file_that_is_named_in_another_way_keeps_its_name(crnr: Runner, again: str) -> None:
    before = load_gallery(Path("gallery.h5")).names
    draw_image(1, 77).save("gallery/bee/0.png")
    changes = json.loads(crnr("add", "gallery.h5", again, "--json", "-q").out)["changes"]
    assert changes == {"added": [], "changed": ["gallery/bee/0.png"], "removed": [], "unchanged": 11}
    assert sorted(load_gallery(Path("gallery.h5")).names) == sorted(before)


def test_add_keeps_the_axes_of_pca_and_prints_a_note(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz", classes=("x", "y"))
    make_features(crnr.here / "b.npz", classes=("y", "z"), seed=1)
    crnr("build", "a.npz", "--pca", "3")
    axes = axes_of(load_gallery(Path("gallery.h5")))
    outcome = crnr("add", "gallery.h5", "b.npz")
    assert outcome.exit == 0
    assert "note: 3 principal components: still fitted to the old examples; " in outcome.err
    gallery = load_gallery(Path("gallery.h5"))
    np.testing.assert_array_equal(axes_of(gallery), axes)
    with np.load("b.npz") as new:
        projected = new["features"].astype(float) @ axes
    expected = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    where = [gallery.names.index(f"b.npz#{i}") for i in range(10)]
    np.testing.assert_allclose(gallery.samples.vectors[where], expected, atol=1e-6)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("command", [["add", "gallery.h5"], ["build", "--update"]])
def test_another_kind_of_source_is_refused(crnr: Runner, command: list[str]) -> None:
    make_features(crnr.here / "rows.npz")
    before = Path("gallery.h5").read_bytes()
    outcome = crnr(*command, "rows.npz")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: rows.npz: contains features, but gallery.h5 was built from images; give images, or a gallery "
        "that was built from features\n"
    )
    assert Path("gallery.h5").read_bytes() == before
    assert crnr.files() == {"gallery", "gallery.h5", "rows.npz"}


@pytest.mark.usefixtures("built")
def test_add_names_failed_files(crnr: Runner) -> None:
    make_images(crnr.here / "new", ["dog"], first=30)
    Path("new/dog/empty.png").write_bytes(b"")
    Path("new/eel").mkdir()
    outcome = crnr("add", "gallery.h5", "new")
    assert (outcome.exit, outcome.out) == (3, "")
    assert outcome.err.startswith(
        "failed: new/dog/empty.png: the file is empty\n"
        "note: class eel: left out, because the folder is empty\n"
        "note: class dog is new: 4 examples, such as new/dog/30.png\nadded: "
    )
    assert crnr("add", "gallery.h5", "new", "--strict").exit == 1
    assert crnr("add", "gallery.h5", "new", "--allow-skipped").exit == 0
    Path("junk/ant").mkdir(parents=True)
    Path("junk/ant/empty.png").write_bytes(b"")
    outcome = crnr("add", "gallery.h5", "junk")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: no usable images or rows of features: junk/ant/empty.png: the file is empty\n"
    )


@pytest.mark.usefixtures("built")
def test_add_refuses_a_class_that_looks_like_another(crnr: Runner) -> None:
    make_images(crnr.here / "new", ["ANT"])
    outcome = crnr("add", "gallery.h5", "new")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == "error: classes 'ANT' and 'ant' differ only in case or Unicode form; rename one\n"


def test_the_same_content_in_two_classes_is_reported(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    Path("gallery/bee/x.png").write_bytes(Path("gallery/ant/1.png").read_bytes())
    outcome = crnr("build", "gallery")
    note = "note: the same content in two classes: gallery/ant/1.png (ant) and gallery/bee/x.png (bee)"
    assert (outcome.exit, outcome.err.splitlines()[0]) == (0, note)
    Path("new/cow").mkdir(parents=True)
    Path("new/cow/y.png").write_bytes(Path("gallery/ant/1.png").read_bytes())
    outcome = crnr("add", "gallery.h5", "new")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[:2] == [
        note,
        "note: the same content in two classes: gallery/ant/1.png (ant) and new/cow/y.png (cow)",
    ]


def test_many_notes_of_a_kind_are_cut(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", ["ant"], per_class=13)
    (crnr.here / "gallery" / "bee").symlink_to("ant")
    outcome = crnr("build", "gallery")
    assert outcome.err.count("the same content in two classes") == 10
    assert "... and 3 more; --verbose prints all\n" in outcome.err
    for i in range(12):
        Path("gallery", f"class {i}").mkdir()
        Path("gallery", f"class {i}", "0.png").write_text("no image")
    outcome = crnr("build", "gallery")
    assert outcome.err.count("none of its files can be used") == 10
    assert "... and 2 more; --verbose prints all\n" in outcome.err


@pytest.mark.usefixtures("built")
def test_remove_equals_a_build_of_the_rest(crnr: Runner) -> None:
    outcome = crnr("remove", "gallery.h5", "--class", "cow", "--example", "gallery/bee/2.png")
    assert (outcome.exit, outcome.out) == (0, "")
    lines = outcome.err.splitlines()
    assert lines[0] == "removed: gallery/bee/2.png"
    assert lines[5] == "0 added, 0 changed, 5 removed, 7 unchanged"
    for path in ("gallery/bee/2.png", *(f"gallery/cow/{i}.png" for i in range(4))):
        Path(path).unlink()
    Path("gallery/cow").rmdir()
    crnr("build", "gallery", "-o", "fresh.h5")
    assert_equal("gallery.h5", "fresh.h5")
    assert crnr("build", "gallery", "--update", "--restore", "-q").exit == 0  # forgets the removed examples
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "choose what to remove with --class NAME, --example NAME or --marked-in FILE"),
        (["--class", "dog"], 1, "gallery.h5: has no class dog; there are ant, bee, cow"),
        (
            ["--example", "x"],
            1,
            "gallery.h5: has no example x; there are "
            + ", ".join([f"gallery/{c}/{i}.png" for c in ("ant", "bee", "cow") for i in range(4)][:10])
            + ", ...",
        ),
        (
            ["--sample", "bee/3.png"],
            1,
            "gallery.h5: has no example bee/3.png; give the full name: gallery/bee/3.png",
        ),
        (
            ["--class", "ant", "--class", "bee", "--class", "cow"],
            1,
            "gallery.h5: no examples would remain; delete the file instead",
        ),
    ],
)
def test_remove_refuses_invalid_arguments(crnr: Runner, args: list[str], code: int, words: str) -> None:
    before = Path("gallery.h5").read_bytes()
    outcome = crnr("remove", "gallery.h5", *args)
    assert (outcome.exit, outcome.out, outcome.err) == (code, "", f"error: {words}\n")
    assert Path("gallery.h5").read_bytes() == before
    assert crnr.files() == {"gallery", "gallery.h5"}


@pytest.mark.usefixtures("built")
def test_build_update_reads_only_possibly_changed_files(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    batches = Images.read_batches

    def watched(source: Images, *arguments: Any) -> Generator[Batch]:
        read.extend(source.names())
        return batches(source, *arguments)

    monkeypatch.setattr(Images, "read_batches", watched)
    Path("gallery/README").write_text("about these images")
    Path("gallery/ant/1.png").unlink()
    draw_image(1, 50).save("gallery/bee/1.png")
    draw_image(2, 51).save("gallery/cow/new.png")
    os.utime("gallery/cow/2.png", (1, 1))
    outcome = crnr("build", "gallery", "--update")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines()[:-1] == [
        "failed: gallery/README: not an image in a supported format",
        "added: gallery/cow/new.png",
        "changed: gallery/bee/1.png",
        "removed: gallery/ant/1.png",
        "1 added, 1 changed, 1 removed, 10 unchanged",
    ]
    assert read == ["gallery/README", "gallery/bee/1.png", "gallery/cow/2.png", "gallery/cow/new.png"]
    crnr("build", "gallery", "-o", "fresh.h5")
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()
    read.clear()
    assert crnr("build", "gallery", "--update", "-q").exit == 0
    assert read == ["gallery/README"]
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()


def test_update_of_features(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    make_features(crnr.here / "a.npz", classes=("x", "y"))
    make_features(crnr.here / "b.npz", classes=("y", "z"), seed=1)
    crnr("build", "a.npz", "b.npz")
    make_features(crnr.here / "b.npz", classes=("y", "z"), seed=2, per_class=3)
    outcome = crnr("build", "a.npz", "b.npz", "--update")
    assert (outcome.exit, outcome.out) == (0, "")
    assert "0 added, 6 changed, 4 removed, 10 unchanged\n" in outcome.err
    crnr("build", "a.npz", "b.npz", "-o", "fresh.h5")
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()
    monkeypatch.setattr(Features, "read_batches", None)  # nothing is to be read
    assert crnr("build", "a.npz", "b.npz", "--update", "-q").exit == 0


def test_the_first_update_is_a_build(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    outcome = crnr("build", "gallery", "--update", "--lam", "0.5")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.startswith("gallery.h5: 3 classes, 12 examples")


def test_build_update_keeps_the_settings(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    crnr("build", "gallery", "--lam", "0.5", "--size", "6x5")
    draw_image(1, 50).save("gallery/bee/1.png")
    outcome = crnr("build", "gallery", "--update", "--size", "4", "--method", "nrc")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == (
        "error: --update keeps the settings of the gallery; leave out --size, --method or --update\n"
    )
    assert crnr("build", "gallery", "--update", "-q").exit == 0
    crnr("build", "gallery", "--lam", "0.5", "--size", "6x5", "-o", "fresh.h5")
    assert Path("gallery.h5").read_bytes() == Path("fresh.h5").read_bytes()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("content", [b"", b"no image", PNG[:40]])
def test_build_update_keeps_unreadable_samples(crnr: Runner, content: bytes) -> None:
    before = load_gallery(Path("gallery.h5"))
    Path("gallery/bee/1.png").write_bytes(content)
    outcome = crnr("build", "gallery", "--update")
    assert (outcome.exit, outcome.out) == (3, "")
    assert outcome.err.startswith("failed: gallery/bee/1.png: ")
    assert "note: 1 example kept as before, because the files cannot be read now\n" in outcome.err
    assert "0 added, 0 changed, 0 removed, 12 unchanged\n" in outcome.err
    after = load_gallery(Path("gallery.h5"))
    assert after.names == before.names
    np.testing.assert_array_equal(after.samples.vectors, before.samples.vectors)
    assert crnr("verify", "--source", "gallery").exit == 1  # the file is not what the gallery has


@pytest.mark.usefixtures("built")
def test_build_update_removes_examples_whose_files_are_gone_or_useless(crnr: Runner) -> None:
    """To wait brings none of these files back; a file that only cannot be read is kept."""
    for name in ("ant/0.png", "bee/0.png", "cow/0.png", "cow/1.png"):
        Path("gallery", name).unlink()
    Path("gallery/ant/0.png").symlink_to("nowhere.png")
    os.mkfifo("gallery/bee/0.png")
    Image.new("L", (8, 8), 90).save("gallery/cow/0.png")  # without any structure
    Path("gallery/cow/1.png").write_bytes(PNG[:40])
    outcome = crnr("build", "gallery", "--update")
    assert (outcome.exit, outcome.out) == (3, "")
    assert [line for line in outcome.err.splitlines() if not line.startswith("failed: ")][:-1] == [
        "note: 1 example kept as before, because the files cannot be read now",
        *(f"removed: gallery/{name}/0.png" for name in ("ant", "bee", "cow")),
        "0 added, 0 changed, 3 removed, 9 unchanged",
    ]


@pytest.mark.usefixtures("built")
def test_update_keeps_a_class_whose_folder_is_closed_for_a_moment(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_gallery(Path("gallery.h5"))
    scan = os.scandir

    def closed(folder: str) -> Any:
        if folder == "gallery/bee":
            raise PermissionError(13, "Permission denied")
        return scan(folder)

    monkeypatch.setattr(os, "scandir", closed)
    outcome = crnr("build", "gallery", "--update")
    assert (outcome.exit, outcome.out) == (3, "")
    assert "failed: gallery/bee: Permission denied\n" in outcome.err
    assert "note: 4 examples kept as before, because the files cannot be read now\n" in outcome.err
    after = load_gallery(Path("gallery.h5"))
    assert (after.names, after.classes) == (before.names, before.classes)
    monkeypatch.undo()
    assert crnr("build", "gallery", "--update", "-q").exit == 0


@pytest.mark.usefixtures("built")
def test_the_share_of_failures_is_of_the_whole_source(crnr: Runner) -> None:
    """What has not changed counts too: otherwise one broken image would stop every update."""
    Path("gallery/bee/broken.png").write_text("no image")
    for command in (["build", "-o", "other.h5"], ["build", "--update"]):
        assert crnr(*command, "gallery", "--max-failure-rate", "0.1", "-q").exit == 3
    outcome = crnr("build", "--update", "gallery", "--max-failure-rate", "0.05", "-q")
    assert (outcome.exit, outcome.out) == (1, "")
    assert "1 of 13 examples has to be skipped, and at most 5.00% is allowed" in outcome.err


@pytest.mark.usefixtures("built")
def test_add_does_not_read_unchanged_files(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    decoders = watch_decoders(monkeypatch.setattr)
    outcome = crnr("add", "gallery.h5", "gallery")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.startswith("0 added, 0 changed, 0 removed, 12 unchanged\n")
    assert not decoders
    draw_image(1, 30).save("gallery/ant/new.png")
    outcome = crnr("add", "gallery.h5", "gallery")
    assert outcome.err.startswith("added: gallery/ant/new.png\n1 added, 0 changed, 0 removed, 12 unchanged\n")
    assert decoders


@pytest.mark.usefixtures("built")
def test_update_follows_a_folder_that_was_renamed(crnr: Runner) -> None:
    Path("gallery").rename("renamed")
    draw_image(1, 30).save("renamed/ant/new.png")
    assert crnr("verify", "--source", "renamed", "-q").exit == 0
    assert crnr("build", "renamed", "--update", "-q").exit == 0
    crnr("build", "renamed", "-o", "fresh.h5")
    assert_equal("gallery.h5", "fresh.h5")


@pytest.mark.usefixtures("built")
def test_removing_all_but_one_sample_per_class_ends_the_calibration(crnr: Runner) -> None:
    crnr("build", "gallery", "--calibrate", "-q")
    rest = [f"gallery/{name}/{i}.png" for name in ("ant", "bee", "cow") for i in (1, 2, 3)]
    outcome = crnr("remove", "gallery.h5", *(word for name in rest for word in ("--example", name)))
    assert (outcome.exit, outcome.out) == (0, ""), outcome.err
    assert "note: the calibration is removed: every class has only one example" in outcome.err
    gallery = load_gallery(Path("gallery.h5"))
    assert (len(gallery.names), gallery.calibration) == (3, None)


@pytest.mark.usefixtures("built")
def test_update_from_another_folder_is_refused(crnr: Runner) -> None:
    """It would replace all samples."""
    before = Path("gallery.h5").read_bytes()
    make_images(crnr.here / "other", first=40)
    outcome = crnr("build", "other", "--update")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: gallery.h5: none of its 12 examples, such as gallery/ant/0.png, is in the source; "
        "name the sources that it was built from, or build without --update to replace it\n"
    )
    assert Path("gallery.h5").read_bytes() == before


@pytest.mark.usefixtures("built")
def test_samples_that_are_in_the_gallery_twice_are_reported(crnr: Runner) -> None:
    outcome = crnr("add", "gallery.h5", str(crnr.here / "gallery"))
    assert outcome.exit == 0
    assert (
        f"note: 12 of 12 added examples are now in the gallery twice: {crnr.here}/gallery/ant/0.png is the "
        "same as gallery/ant/0.png; `crnr remove --example` removes one\n"
    ) in outcome.err


@pytest.mark.parametrize("command", [("build", "dup.npz", "--update"), ("add", "gallery.h5", "dup.npz")])
def test_samples_that_share_a_name_are_not_lost(crnr: Runner, command: tuple[str, ...]) -> None:
    """Two crops of an image, for one."""
    values = np.random.default_rng(0).random((8, 6))
    paths = [f"img{i // 2}.png" for i in range(8)]
    np.savez("dup.npz", features=values, labels=["a"] * 4 + ["b"] * 4, paths=paths)
    assert crnr("build", "dup.npz").exit == 0
    before = Path("gallery.h5").read_bytes()
    outcome = crnr(*command)
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: two different examples are called img0.png; give them different names, or build the "
        "gallery again from all its sources\n"
    )
    assert Path("gallery.h5").read_bytes() == before


@pytest.mark.usefixtures("built")
def test_a_file_that_is_listed_twice_is_added_once(crnr: Runner) -> None:
    make_images(crnr.here / "new", ["emu"], first=30)
    assert crnr("add", "gallery.h5", "new", "new", "-q").exit == 0
    assert len(load_gallery(Path("gallery.h5")).names) == 16


def test_a_class_of_which_nothing_can_be_used_is_named(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    for name in ("yak", "zebra"):
        Path("gallery", name).mkdir()
        Path("gallery", name, "0.png").write_text("no image")
    lost = "note: class {}: left out, because none of its files can be used\n"
    built = crnr("build", "gallery")
    assert (built.exit, lost.format("yak") in built.err, lost.format("zebra") in built.err) == (3, True, True)
    Path("gallery/yak").rename("new_yak")
    Path("new").mkdir()
    Path("new_yak").rename("new/yak")
    draw_image(2, 60).save("new/0.png")
    Path("new/emu").mkdir()
    draw_image(2, 61).save("new/emu/0.png")
    added = crnr("add", "gallery.h5", "new")
    assert (added.exit, lost.format("yak") in added.err, lost.format("emu") in added.err) == (3, True, False)
    for path in Path("gallery/ant").iterdir():
        path.unlink()
    updated = crnr("build", "gallery", "--update")
    assert updated.exit == 3
    assert (
        "note: class ant: no examples remain, removed\nnote: class emu: no examples remain, removed\n"
        in updated.err
    )


def test_features_in_columns_are_added_and_verified(crnr: Runner) -> None:
    values = np.random.default_rng(0).random((5, 12))
    labels = np.array(["a", "b", "c"] * 4)
    np.savez("all.npz", features=values, labels=labels)
    np.savez("more.npz", features=values + 1, labels=labels)
    columns = ("--samples-axis", "columns")
    assert crnr("build", "all.npz", *columns).exit == 0
    assert crnr("verify", "--source", "all.npz", *columns).exit == 0
    assert crnr("add", "gallery.h5", "more.npz", *columns).exit == 0
    assert len(load_gallery(Path("gallery.h5")).names) == 24


@pytest.mark.usefixtures("built")
def test_add_refuses_an_image_in_a_folder_of_no_class(crnr: Runner) -> None:
    Path("new").mkdir()
    draw_image(1, 60).save("new/1.png")
    before = Path("gallery.h5").read_bytes()
    assert crnr("add", "gallery.h5", "gallery/ant/0.png", "new/1.png") == Outcome(
        1,
        "",
        "error: new/1.png: its folder is not named after a class of gallery.h5; "
        "name the class with --class NAME\n",
    )
    assert Path("gallery.h5").read_bytes() == before
    assert crnr("add", "gallery.h5", "new/1.png", "--class", "new", "-q").exit == 0
    assert crnr("remove", "gallery.h5", "--class", "ant", "-q").exit == 0
    assert crnr("add", "gallery.h5", "gallery/ant/0.png", "-q").exit == 0  # a class of the source


@pytest.mark.usefixtures("built")
def test_verify_reports_an_intact_gallery(crnr: Runner) -> None:
    outcome = crnr("verify", "gallery.h5")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err == "gallery.h5: OK, 12 examples, valid checksum\n"
    Path("gallery").rename("moved")
    outcome = crnr("verify", "gallery.h5", "--source", "moved")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err == "gallery.h5: OK, 12 examples, valid checksum, all the same as in the sources\n"
    Path("moved").rename("gallery")
    draw_image(1, 50).save("gallery/bee/1.png")
    Path("gallery/ant/3.png").unlink()
    draw_image(2, 51).save("gallery/cow/new.png")
    Path("gallery/cow/gone.png").symlink_to("nowhere")
    outcome = crnr("verify", "gallery.h5", "--source", "gallery", "--json")
    assert outcome.exit == 1
    assert json.loads(outcome.out) == {
        "gallery": "gallery.h5",
        "n_samples": 12,
        "changed": ["gallery/bee/1.png"],
        "missing": ["gallery/ant/3.png"],
        "unknown": ["gallery/cow/new.png"],
        "removed": [],
        "holds": False,
    }
    assert outcome.err == (
        "changed: gallery/bee/1.png\nmissing: gallery/ant/3.png\nnot in the gallery: gallery/cow/new.png\n"
        "error: gallery.h5: 1 of 12 examples has changed and 1 is missing in gallery; "
        "if the gallery has no other sources, update it with `crnr build gallery --update`, which also "
        "removes the missing examples\n"
    )
    assert crnr("build", "gallery", "--update", "-q", "--allow-skipped").exit == 0
    outcome = crnr("verify", "gallery.h5", "--source", "gallery", "-q")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "")


def test_verify_features_and_a_damaged_gallery(crnr: Runner) -> None:
    make_features(crnr.here / "a.npz")
    crnr("build", "a.npz")
    assert crnr("verify", "--source", "a.npz").exit == 0
    with h5py.File("gallery.h5", "r+") as file:
        file["samples/vectors"][0, 0] += 0.25
    outcome = crnr("verify", "--source", "a.npz")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith("error: gallery.h5: ")


@pytest.mark.usefixtures("built")
def test_a_second_writer_is_refused(crnr: Runner) -> None:
    from crnr_cli.system.files import claimed

    busy = "error: gallery.h5: another crnr is writing it; wait, or choose another file\n"
    with claimed(Path("gallery.h5")):
        for command in (["add", "gallery.h5", "gallery"], ["remove", "gallery.h5", "--class", "ant"]):
            outcome = crnr(*command)
            assert (outcome.exit, outcome.out, outcome.err) == (1, "", busy)


@pytest.mark.usefixtures("built")
def test_a_gallery_of_bad_images_only_costs_rows(crnr: Runner) -> None:
    """A batch without one good image, with PCA and without."""
    Path("queries").mkdir()
    Path("queries/a.png").write_bytes(b"")
    crnr("build", "gallery", "--pca", "3", "-o", "pca.h5")
    for gallery in ("gallery.h5", "pca.h5"):
        outcome = crnr("classify", "queries", "-g", gallery, "-o", "out.csv")
        assert (outcome.exit, outcome.out) == (3, "")
        assert [row["status"] for row in read_rows(Path("out.csv"))] == ["empty_file"]


def test_deep_and_flat_images_mix(crnr: Runner) -> None:
    """8 and 16 bits in one gallery: each is brought to its own unit vector."""
    make_images(crnr.here / "gallery")
    values = np.asarray(draw_image(0, 2)).astype(np.uint16) * 257
    Image.fromarray(values).save("gallery/ant/deep.png")
    assert crnr("build", "gallery", "--size", "8").exit == 0  # their own: resizing rounds flat ones to bytes
    gallery = load_gallery(Path("gallery.h5"))
    deep, flat = (gallery.names.index(f"gallery/ant/{name}.png") for name in ("deep", "2"))
    np.testing.assert_allclose(
        gallery.samples.vectors[deep], gallery.samples.vectors[flat], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize(
    "arguments",
    [("more",), ("more", "--class", "ham"), ("--corrections", "corrections.csv"), ("gallery",)],
    ids=["folders", "class", "corrections", "nothing new"],
)
def test_add_dry_run_prints_the_changes_that_add_makes(
    crnr: Runner, built: None, arguments: tuple[str, ...]
) -> None:
    make_images(crnr.here / "more", first=20, per_class=1)
    draw_image(1, 40).save("more/new.png")
    Path("more/ant/broken.png").write_bytes(PNG[:40])
    Path("corrections.csv").write_text(
        "path,label,corrected,when\nmore/ant/20.png,ant,bee,\nmore/new.png,bee,bee,\n"
    )
    draw_image(0, 50).save("gallery/ant/1.png")
    before = Path("gallery.h5").read_bytes()
    planned = crnr("add", "gallery.h5", *arguments, "--dry-run")
    record = json.loads(crnr("add", "gallery.h5", *arguments, "--dry-run", "--json", "-q").out)
    assert Path("gallery.h5").read_bytes() == before
    made = crnr("add", "gallery.h5", *arguments)
    assert (Path("gallery.h5").read_bytes() == before) is False
    rows = [row.split(",") for row in planned.out.splitlines()]
    assert rows == [["sample", "change"], *([row["sample"], row["change"]] for row in record["planned"])]
    lines = made.err.splitlines()
    changes = [line for line in lines if line.startswith(("added: ", "changed: ", "removed: "))]
    assert [f"{change}: {name}" for name, change in rows[1:]] == changes
    others = [line for line in lines[:-1] if line not in changes]
    assert planned.err.splitlines() == [*others, "gallery.h5: not changed by a dry run"]
    assert planned.exit == made.exit
    failed = [f"failed: {left['name']}: {left['reason']}" for left in record["left_out"]]
    assert failed == [line for line in lines if line.startswith("failed: ")]
    assert [f"note: {note}" for note in record["notes"]] == [
        line for line in lines if line.startswith("note: ")
    ]
