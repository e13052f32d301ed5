"""Build: long lists of skipped files, and a run that is stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.runner import Runner
from helpers.samples import make_pictures


def test_many_left_out_are_cut(crnr: Runner) -> None:
    make_pictures(crnr.here / "g")
    for i in range(13):
        Path(f"g/ant/empty{i:02}.png").write_bytes(b"")
    outcome = crnr("build", "g")
    assert outcome.exit == 3
    assert outcome.err.count("left out: ") == 10
    assert "... and 3 more\n" in outcome.err


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_a_build_that_is_stopped_leaves_nothing(crnr: Runner, stop: str) -> None:
    import signal

    make_pictures(crnr.here / "g")
    Path("gallery.h5").write_text("old")
    from crnr_cli.jobs import build

    def stopped(*args: object) -> None:
        signal.raise_signal(signal.Signals[stop])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "make_gallery", stopped)
        outcome = crnr("build", "g", "-q")
    number = signal.Signals[stop].value
    words = {"SIGINT": "interrupted\n", "SIGTERM": "terminated\n"}[stop]
    assert (outcome.exit, outcome.out, outcome.err) == (128 + number, "", words)
    assert Path("gallery.h5").read_text() == "old"
    assert crnr.files() == {"g", "gallery.h5"}
