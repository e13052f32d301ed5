"""build --cache: it changes nothing in the gallery, but nothing is read twice."""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest
from PIL import Image

from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs.build import BuildOptions, build
from helpers.extracting import NETWORK, same
from helpers.onnx_models import projection_model
from helpers.runner import Outcome, Runner
from helpers.samples import draw_image, make_features, make_images


@pytest.fixture
def here(crnr: Runner) -> Runner:
    make_images(crnr.here / "photos")
    projection_model(Path("model.onnx"))
    return crnr


@pytest.mark.parametrize(
    "how",
    [
        NETWORK,
        (),
        ("--extractor", "pixels", "--pca", "4"),
        (*NETWORK, "--power", "0.5", "--pca", "4"),
        ("--size", "24x24", "--parts", "4x4"),
    ],
)
def test_the_gallery_is_the_same(here: Runner, how: tuple[str, ...]) -> None:
    """With the same messages and exit code, also if some files cannot be used."""
    Image.new("L", (8, 8), 9).save("photos/ant/blank.png")
    Path("photos/bee/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    Path("photos/README").write_text("not an image")
    Path("photos/dog").mkdir()
    draw_image(0, 9).save("photos/of no class.png")
    plain = here("build", "photos", "-o", "plain.h5", *how)
    assert plain.exit == 3
    for _ in range(2):
        cached = here("build", "photos", "-o", "cached.h5", "--cache", "cache.h5", *how)
        assert (cached.exit, cached.out) == (3, "")
        assert same("plain.h5", "cached.h5")
        told = [line for line in cached.err.splitlines() if not line.startswith("note: replaced")]
        assert sorted(told[:-1]) == sorted(plain.err.splitlines()[:-1])
    assert here("build", "cache.h5", "-o", "third.h5", "-q", *how[4 if how[:4] == NETWORK else 2 :]).exit == 3


def test_the_second_time_nothing_is_decoded(here: Runner, decoded: list[str]) -> None:
    build = ("build", "photos", *NETWORK, "--cache", "cache.h5", "-q")
    assert here(*build) == Outcome(0, "", "")
    assert len(decoded) == 12
    before = Path("cache.h5").stat().st_mtime_ns
    decoded.clear()
    assert here(*build, "--pca", "3") == Outcome(0, "", "")
    assert decoded == []
    assert Path("cache.h5").stat().st_mtime_ns == before
    draw_image(0, 60).save("photos/ant/new.png")
    Path("photos/bee/0.png").unlink()
    draw_image(2, 61).save("photos/cow/0.png")
    assert here(*build) == Outcome(0, "", "")
    assert decoded == ["photos/ant/new.png", "photos/cow/0.png"]
    with h5py.File("cache.h5") as file:  # which keeps what another gallery may need
        assert b"photos/bee/0.png" in file["paths"][()].tolist()
    assert here("build", "photos", *NETWORK, "-o", "plain.h5", "-q") == Outcome(0, "", "")
    assert here("info", "gallery.h5", "--json").out.count('"n_samples": 12') == 1
    assert here("verify", "gallery.h5", "--source", "photos").exit == 0
    names = ("samples/names", "samples/sha256", "samples/mtime_ns", "samples/class")
    with h5py.File("gallery.h5") as one, h5py.File("plain.h5") as other:
        for name in names:
            assert one[name][()].tolist() == other[name][()].tolist()


def test_build_shares_one_cache_between_sources(here: Runner, decoded: list[str]) -> None:
    assert here("build", "photos", *NETWORK, "--cache", "cache.h5", "-q") == Outcome(0, "", "")
    decoded.clear()
    part = ("build", "-", *NETWORK, "-q", "-o")
    stdin = "photos/cow/1.png\nphotos/ant/2.png\nphotos/ant/1.png\n"
    assert here(*part, "some.h5", "--cache", "cache.h5", stdin=stdin) == Outcome(0, "", "")
    assert decoded == []
    assert here(*part, "plain.h5", stdin=stdin) == Outcome(0, "", "")
    assert same("some.h5", "plain.h5")


def test_a_cache_of_another_extractor(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--cache", "cache.h5", "-q") == Outcome(0, "", "")
    before = Path("cache.h5").read_bytes()
    outcome = here("build", "photos", "-o", "new.h5", "--extractor", "pixels", "--cache", "cache.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith(
        "error: cache.h5: its features come from another extractor than this gallery needs: 8 features of "
        "model.onnx, "
    )
    assert outcome.err.endswith(
        " instead of pixels, 8x8, grey; name another file with --cache, or remove this one\n"
    )
    assert Path("cache.h5").read_bytes() == before
    assert here.files() == {"photos", "model.onnx", "cache.h5", "gallery.h5"}
    projection_model(Path("model.onnx"), seed=3)
    outcome = here("build", "photos", "-o", "new.h5", *NETWORK, "--cache", "cache.h5")
    assert (outcome.exit, outcome.out) == (1, "")
    assert ", but with another model or other settings; name another file" in outcome.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "exit", "message"),
    [
        ("build table.npz --cache c.h5", 2, "--cache only applies to images; leave it out for feature files"),
        (
            "build photos --update --cache c.h5",
            2,
            "--update already reads only new files; leave out --cache or --update",
        ),
        ("build photos --cache mine.h5", 1, "mine.h5: not written by `crnr extract`; give another file"),
    ],
)
def test_build_refuses_unsuitable_caches(here: Runner, command: str, exit: int, message: str) -> None:
    make_features(Path("table.npz"))
    with h5py.File("mine.h5", "w") as file:
        file["features"] = [[1.0, 2.0]]
    before = here.files()
    assert here(*command.split()) == Outcome(exit, "", f"error: {message}\n")
    assert here.files() == before


def test_a_stopped_build_keeps_extracted_values(here: Runner) -> None:
    class Stop(Exception):  # noqa: N818, it is a wish and not an error
        pass

    def stopping(step: str, done: int, total: int) -> None:
        if step == "extracting" and done:
            raise Stop

    options = BuildOptions(Reading(jobs=1, batch_size=5), cache=Path("cache.h5"))
    with pytest.raises(Stop):
        build(["photos"], Path("gallery.h5"), options, stopping)
    assert not Path("gallery.h5").exists()
    assert not Path("cache.h5").exists()
    report = build(["photos"], Path("gallery.h5"), options)
    assert "cache.h5: continuing after 5 of 12 rows" in [note.text for note in report.notes]
    assert here("build", "photos", "-o", "plain.h5", "-q") == Outcome(0, "", "")
    assert same("gallery.h5", "plain.h5")
