"""Extraction: what identifies a run, what it counts, and what the next run takes over."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from crnr_cli import __version__
from crnr_cli.errors import DataError
from crnr_cli.gallery.extraction import Extraction, ExtractReport, _identity, claimed_features, extract_to
from crnr_cli.gallery.features_file import open_extracted_file
from crnr_cli.gallery.samples import Reading
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.opening import open_source
from helpers.extracting import same, values
from helpers.runner import Runner
from helpers.samples import draw_image, make_features, make_images

PIXELS = Recipe.for_images(RawPixels((4, 4), False))


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


def stop_at(wanted: int) -> Progress:
    def progress(step: str, done: int, total: int) -> None:
        if step == "extracting" and done == wanted:
            raise Stop

    return progress


def work_on(name: str, path: str = "f.h5", *, update: bool = False, **reading: Any) -> Extraction:
    chosen = Reading(jobs=1, **reading)
    source = open_source([name], chosen)
    recipe = PIXELS if source.kind == "pictures" else Recipe.of(source.n_features or 0)
    old = open_extracted_file(Path(path)) if update else None
    return Extraction(Path(path), source, recipe, chosen, Here(DecoderPool(1)), old)


def run(work: Extraction, progress: Progress = silent) -> ExtractReport:
    with claimed_features(work.path) as claim:
        return extract_to(claim, work, progress)


def test_everything_that_the_file_depends_on_identifies_a_run(crnr: Runner) -> None:
    make_features(crnr.here / "x.npz")
    work = work_on("x.npz")
    plain = _identity(work, 7)
    assert (plain["crnr"], plain["number of inputs"], plain["batch"]) == (__version__, 15, 7)
    assert (plain["--provider"], plain["file before"]) == (None, None)
    changes: dict[str, dict[str, Any]] = {
        "--max-pixels": {"max_pixels": 9},
        "--features-key": {"keys": Keys(features="f")},
        "--labels-key": {"keys": Keys(labels="f")},
        "--samples-axis": {"keys": Keys(samples="rows")},
    }
    for name, change in changes.items():
        other = _identity(replace(work, reading=replace(work.reading, **change)), 7)
        assert {key for key in plain if plain[key] != other[key]} == {name}
    other = _identity(replace(work, recipe=PIXELS), 7)
    assert {key for key in plain if plain[key] != other[key]} == {"extractor"}
    assert _identity(replace(work, reading=replace(work.reading, provider="cpu")), 7) == plain
    run(work)
    before = _identity(work_on("x.npz", update=True), 7)
    found = Path("f.h5").stat()
    assert before["file before"] == f"{found.st_size} {found.st_mtime_ns}"


def test_a_stopped_extraction_continues_with_the_same_bytes(crnr: Runner) -> None:
    make_features(crnr.here / "x.npz")
    assert run(work_on("x.npz", "clean.h5", batch_size=4)).notes == []
    seen: list[tuple[str, int, int]] = []
    told: list[str] = []
    for done in (4, 8, 12):
        with pytest.raises(Stop):
            run(work_on("x.npz", batch_size=4), stop_at(done))
        assert not Path("f.h5").exists()
        work = work_on("x.npz", batch_size=4, on_notes=lambda notes: told.extend(note.text for note in notes))
        seen.clear()
        told.clear()
        report = run(work, lambda *step: seen.append(step))
        text = f"f.h5: continuing after {done} of 15 rows"
        assert [(note.kind, note.text) for note in report.notes] == [("continued", text)]
        assert told == [text]
        assert seen[0] == ("extracting", done, 15)
        assert seen[-1] == ("extracting", 15, 15)
        assert same("f.h5", "clean.h5")
        Path("f.h5").unlink()
    with pytest.raises(Stop):
        run(work_on("x.npz", batch_size=4), stop_at(4))
    (note,) = run(work_on("x.npz", batch_size=5)).notes
    assert (note.kind, note.text) == (
        "started again",
        "f.h5: starting over, because the unfinished run was a different one: batch was 4 and is now 5",
    )
    assert same("f.h5", "clean.h5")


def test_an_extraction_stopped_before_its_first_batch_leaves_nothing(crnr: Runner) -> None:
    make_features(crnr.here / "x.npz")
    before = crnr.files()
    with pytest.raises(Stop):
        run(work_on("x.npz"), stop_at(0))
    assert crnr.files() == before


def test_an_update_counts_added_changed_and_missing_images(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=2)
    first = run(work_on("photos"))
    assert (first.n_samples, first.n_classes, first.added, first.changed, first.gone) == (6, 3, 6, 0, 0)
    assert first.file_bytes == Path("f.h5").stat().st_size
    before = values("f.h5")
    draw_image(0, 30).save("photos/ant/0.png")
    draw_image(0, 31).save("photos/ant/new.png")
    Path("photos/dog").mkdir()
    draw_image(1, 32).save("photos/dog/0.png")
    Path("photos/bee/1.png").unlink()
    Path("photos/cow/broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    second = run(work_on("photos", update=True))
    assert (second.n_samples, second.n_classes, second.added, second.changed, second.gone) == (8, 4, 2, 1, 1)
    assert [left.name for left in second.left_out] == ["photos/cow/broken.png"]
    after = values("f.h5")
    assert {name for name in before if after[name] != before[name]} == {"photos/ant/0.png"}
    run(work_on("photos", "clean.h5"))
    clean = values("clean.h5")
    assert {name: after[name] for name in clean} == clean
    assert after.keys() - clean.keys() == {"photos/bee/1.png"}


def test_an_update_without_changes_keeps_the_file(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=2)
    run(work_on("photos"))
    os.utime("f.h5", ns=(1, 1))
    report = run(work_on("photos", update=True))
    assert (report.n_samples, report.added, report.changed, report.gone) == (6, 0, 0, 0)
    assert Path("f.h5").stat().st_mtime_ns == 1
    assert crnr.files() == {"photos", "f.h5"}
    Path("photos/cow").rename("photos/dog")
    report = run(work_on("photos", update=True))
    assert (report.n_classes, report.added, report.gone) == (4, 2, 2)


@pytest.mark.parametrize(
    ("dtype", "stored"), [("float64", "<f8"), (">f4", "<f4"), ("int16", "<i2"), ("bool", "|u1")]
)
def test_features_keep_their_type(crnr: Runner, dtype: str, stored: str) -> None:
    with h5py.File("x.h5", "w") as file:
        file["features"], file["labels"] = np.eye(3, 4).astype(dtype), [1, 2, 3]
    run(work_on("x.h5"))
    with h5py.File("f.h5") as file:
        assert file["features"].dtype.str == stored
        assert file["features"][()].tolist() == np.eye(3, 4).tolist()


def test_values_that_are_not_finite_leave_nothing_behind(crnr: Runner) -> None:
    np.savez("x.npz", features=[[1.0, np.nan], [1, 2]], labels=["a", "b"])
    with pytest.raises(DataError, match=r"^NaN or infinity in 1 row; correct or remove x\.npz#0$"):
        run(work_on("x.npz"))
    assert crnr.files() == {"x.npz"}


def test_too_many_failures_stop_an_extraction(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=3)
    Path("photos/ant/0.png").write_bytes(b"")
    Path("photos/README").write_text("unrelated")
    assert run(work_on("photos", max_failure_rate=0.1)).skipped == 1
    Path("f.h5").unlink()
    with pytest.raises(DataError) as refused:
        run(work_on("photos", max_failure_rate=0.09))
    assert "stopped: 1 of 10 examples has to be skipped, and at most 9.00% is allowed" in str(refused.value)


def test_failures_of_an_earlier_run_count(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=2)
    Path("photos/ant/0.png").write_bytes(b"")
    with pytest.raises(Stop):
        run(work_on("photos", batch_size=3), stop_at(3))
    with pytest.raises(DataError) as refused:
        run(work_on("photos", batch_size=3, max_failure_rate=0.0))
    assert "stopped: 1 of 6 examples has to be skipped, and no failure is allowed (--strict)" in str(
        refused.value
    )


def test_an_update_follows_the_folders_of_unchanged_images(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=1)
    run(work_on("photos/ant"))
    with h5py.File("f.h5") as file:
        assert "labels" not in file
    report = run(work_on("photos", update=True))
    assert (report.added, report.changed) == (2, 0)
    with h5py.File("f.h5") as file:
        assert file["labels"][()].tolist() == [b"ant", b"bee", b"cow"]
