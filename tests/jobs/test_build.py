"""Build: long lists of skipped files, and a run that is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from crnr_cli.gallery.samples import Note, Reading
from crnr_cli.jobs.build import BuildOptions, build
from helpers.runner import Runner
from helpers.samples import make_features, make_images


def test_many_left_out_are_cut(crnr: Runner) -> None:
    make_images(crnr.here / "g")
    for i in range(13):
        Path(f"g/ant/empty{i:02}.png").write_bytes(b"")
    outcome = crnr("build", "g")
    assert outcome.exit == 3
    assert outcome.err.count("failed: ") == 10
    assert "... and 3 more; --verbose prints all\n" in outcome.err


@pytest.mark.parametrize(
    "command",
    ["build more", "add gallery.h5 more", "extract more -o f.h5", "classify more -o out.csv"],
)
def test_verbose_prints_all_failed_files(crnr: Runner, command: str) -> None:
    make_images(crnr.here / "g")
    make_images(crnr.here / "more", first=9, per_class=1)
    empty = [f"more/ant/empty{i:02}.png" for i in range(23)]
    for path in empty:
        Path(path).write_bytes(b"")
    assert crnr("build", "g", "-q").exit == 0
    cut = crnr(*command.split())
    assert cut.exit == 3
    assert sum(line.startswith("failed: ") for line in cut.err.splitlines()) == 10
    assert "; --verbose prints all" in cut.err
    outcome = crnr(*command.split(), "--verbose")
    named = [line.split(": ")[1] for line in outcome.err.splitlines() if line.startswith("failed: ")]
    assert named == empty
    assert "--verbose" not in outcome.err
    refused = crnr(*command.split(), "--verbose", "-q")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == "error: --quiet and --verbose contradict each other; give one of them\n"


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_a_build_that_is_stopped_leaves_nothing(crnr: Runner, stop: str) -> None:
    import signal

    make_images(crnr.here / "g")
    Path("gallery.h5").write_text("old")
    from crnr_cli.jobs import build

    def stopped(*args: object) -> None:
        signal.raise_signal(signal.Signals[stop])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "make_gallery", stopped)
        outcome = crnr("build", "g", "-q")
    number = signal.Signals[stop].value
    words = {"SIGINT": "interrupted", "SIGTERM": "terminated"}[stop]
    expected = f"{words}; gallery.h5 is unchanged\n"
    assert (outcome.exit, outcome.out, outcome.err) == (128 + number, "", expected)
    assert Path("gallery.h5").read_text() == "old"
    assert crnr.files() == {"g", "gallery.h5"}


class Recorder:
    """What a job reports while it runs, in order."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int, int]] = []
        self.notes: list[str] = []
        self.notes_after = 0  # reports of progress in reading before the first note

    def progress(self, step: str, done: int, total: int) -> None:
        self.steps.append((step, done, total))

    def on_notes(self, notes: Sequence[Note]) -> None:
        self.notes += [note.kind for note in notes]
        self.notes_after = sum(step == "reading" for step, _, _ in self.steps)

    def of(self, step: str) -> list[tuple[int, int]]:
        return [(done, total) for name, done, total in self.steps if name == step]


def test_notes_on_how_samples_are_read_come_before_they_are_read(tmp_path: Path) -> None:
    make_images(tmp_path / "gallery", size=(70, 70))
    seen = Recorder()
    reading = Reading(on_notes=seen.on_notes)
    report = build([str(tmp_path / "gallery")], tmp_path / "g.h5", BuildOptions(reading), seen.progress)
    assert seen.notes == ["size"]
    assert seen.notes_after == 0
    assert seen.of("reading")[-1] == (12, 12)
    assert [note.kind for note in report.notes] == seen.notes  # for JSON


def test_calibrating_reports_its_progress(tmp_path: Path) -> None:
    make_features(tmp_path / "gallery.npz", per_class=10)
    seen = Recorder()
    options = BuildOptions(calibrate=True)
    build([str(tmp_path / "gallery.npz")], tmp_path / "g.h5", options, seen.progress)
    assert seen.of("fitting") == [(0, 1), (1, 1)]
    counts = [done for done, _ in seen.of("calibrating")]
    assert (counts[0], counts[-1], len(counts)) == (0, 30, 21)  # of 20 parts
    assert counts == sorted(set(counts))
    assert seen.steps.index(("fitting", 1, 1)) < seen.steps.index(("calibrating", 0, 30))


def test_notes_are_printed_once(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", size=(70, 70))
    for line in ("build gallery", "tune gallery --budget 0", "compare gallery --methods nn --draws 1"):
        outcome = crnr(*line.split())
        assert outcome.exit == 0
        lines = outcome.err.splitlines()
        assert lines[0] == (
            "note: images are larger than 64x64: all are resized to 64x64; choose another size with --size"
        )
        assert sum(text.startswith("note: ") for text in lines if "budget" not in text) == 1
        assert "note" not in crnr(*line.split(), "-q").err
