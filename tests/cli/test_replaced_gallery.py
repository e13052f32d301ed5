"""A gallery that is replaced: it is announced, and what is lost with it is reported."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from unittest.mock import Mock

import pytest

from crnr_cli.cli import gallery_report
from helpers.runner import Outcome, Runner, quoted
from helpers.samples import make_features, make_images

MADE = datetime(2026, 2, 3, 4, 5)


@pytest.fixture
def tuned(crnr: Runner) -> Runner:
    """gallery.h5 with other settings than the default, and samples that were added."""
    make_features(crnr.here / "first.npz")
    make_features(crnr.here / "more.npz", per_class=1, seed=1)
    assert crnr("build", "first.npz", "--lam", "0.1", "--iterations", "7", "-q") == Outcome(0, "", "")
    assert crnr("add", "gallery.h5", "more.npz", "-q") == Outcome(0, "", "")
    os.utime("gallery.h5", (MADE.timestamp(),) * 2)
    return crnr


REPLACES = "note: replaced gallery.h5 of 2026-02-03 04:05"
LOST = [
    "note: 3 examples of the previous gallery were dropped, such as more.npz#0; to add files again, use "
    "`crnr add gallery.h5 FILES --class NAME` or `crnr add gallery.h5 --corrections FILE`",
    "note: the previous gallery had other settings: iterations 7, lam 0.1; next time use "
    "`crnr build first.npz --update` to keep them",
]


@pytest.mark.parametrize("command", ["build first.npz", "tune first.npz --budget 0 --folds 2 -o gallery.h5"])
def test_a_gallery_that_is_replaced(tuned: Runner, command: str) -> None:
    outcome = tuned(*command.split())
    assert outcome.exit == 0
    lines = outcome.err.splitlines()
    assert lines[0] == f"{REPLACES} (3 classes, 18 examples)"
    assert LOST[0] in lines
    assert [line for line in lines if "other settings" in line] == LOST[1:] or command.startswith("tune")


@pytest.mark.parametrize("error", [ValueError, OverflowError, OSError])
def test_a_replaced_gallery_with_a_date_that_no_calendar_has(
    tuned: Runner, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of the year 11476 on a disk of Linux; on Windows, any time before 1970."""
    monkeypatch.setattr(gallery_report, "datetime", Mock(**{"fromtimestamp.side_effect": error}))
    outcome = tuned("build", "first.npz")
    assert outcome.exit == 0
    assert outcome.err.startswith("note: replaced gallery.h5 of an unknown date (3 classes, 18 examples)\n")


def test_build_notes_a_replaced_gallery_with_another_method(tuned: Runner) -> None:
    assert tuned("build", "first.npz", "more.npz", "--method", "crc", "-o", "my gallery.h5", "-q").exit == 0
    err = tuned("build", "first.npz", "more.npz", "-o", "my gallery.h5").err
    assert err.splitlines()[-1] == (
        "note: the previous gallery had other settings: method crc; next time use "
        f"`crnr build first.npz more.npz --update -o {quoted('my gallery.h5')}` to keep them"
    )


def test_build_notes_a_replaced_gallery_with_another_extractor(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "--cell", "4", "-q").exit == 0
    assert crnr("build", "gallery").err.splitlines()[-1] == (
        "note: the previous gallery had other settings: extractor gradients, 8x8, cells of 4, 8 directions; "
        "next time use `crnr build gallery --update` to keep them"
    )


@pytest.mark.parametrize("options", ["--method crc", "--extractor pixels", "--cell 4", "--lam 0.5"])
def test_settings_that_the_user_gave_are_not_noted(crnr: Runner, options: str) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    assert "settings" not in crnr("build", "gallery", *options.split()).err


def test_build_notes_that_the_replaced_gallery_was_calibrated(tuned: Runner) -> None:
    note = "note: the previous gallery was calibrated; add --calibrate to calibrate this one"
    for options, is_noted in ((["--calibrate"], False), (["--calibrate"], False), ([], True), ([], False)):
        assert (note in tuned("build", "first.npz", *options).err.splitlines()) is is_noted


def test_examples_that_moved_are_not_dropped(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    Path("gallery/ant/0.png").rename("gallery/bee/moved.png")
    Path("gallery/ant/1.png").unlink()
    lines = crnr("build", "gallery").err.splitlines()
    assert "note: 1 example was moved, such as gallery/ant/0.png, now gallery/bee/moved.png" in lines
    assert lines[-1].startswith(
        "note: 1 example of the previous gallery was dropped, such as gallery/ant/1.png; "
    )


def test_nothing_is_lost(tuned: Runner) -> None:
    lines = tuned("build", "first.npz", "more.npz", "--lam", "0.1", "--iterations", "7").err.splitlines()
    assert len(lines) == 2
    assert lines[0] == f"{REPLACES} (3 classes, 18 examples)"
    assert lines[1].startswith("gallery.h5: 3 classes, 18 examples, ")


def test_a_source_that_cannot_be_read_replaces_nothing(tuned: Runner) -> None:
    before = Path("gallery.h5").read_bytes()
    assert tuned("build", "missing.npz") == Outcome(1, "", "error: missing.npz: no such file or folder\n")
    assert Path("gallery.h5").read_bytes() == before


def test_build_quiet_prints_no_note_on_a_replaced_gallery(tuned: Runner) -> None:
    assert tuned("build", "first.npz", "-q") == Outcome(0, "", "")


def test_a_gallery_that_is_updated_is_not_replaced(tuned: Runner) -> None:
    outcome = tuned("build", "first.npz", "more.npz", "--update")
    assert outcome.exit == 0
    assert "replaced" not in outcome.err


@pytest.mark.parametrize("content", [b"", b"damaged", "cut"], ids=repr)
def test_a_file_that_is_no_gallery(tuned: Runner, content: bytes | str) -> None:
    path = tuned.here / "gallery.h5"
    whole = path.read_bytes()
    path.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    os.utime(path, (MADE.timestamp(),) * 2)
    outcome = tuned("build", "first.npz")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[0] == f"{REPLACES}, which was not a readable gallery"


def test_the_variable_is_for_reading(tuned: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who sets it for classify must not lose that gallery."""
    Path("gallery.h5").rename("precious.h5")
    before = Path("precious.h5").read_bytes()
    monkeypatch.setenv("CRNR_GALLERY", "precious.h5")
    outcome = tuned("build", "first.npz")
    assert outcome.exit == 0
    assert outcome.err.splitlines()[-1] == (
        "note: CRNR_GALLERY is precious.h5, so other commands use that gallery unless they are given another"
    )
    assert Path("precious.h5").read_bytes() == before
    assert tuned.files() == {"precious.h5", "gallery.h5", "first.npz", "more.npz"}
    assert '"samples": 18' in tuned("info", "--json").out or "18" in tuned("info").out
    assert "CRNR_GALLERY" not in tuned("build", "first.npz", "-o", "precious.h5").err
