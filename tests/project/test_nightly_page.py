"""The cron job of the page on nightly runs, on simulated nights."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helpers.pages import code_blocks
from helpers.paths import DOCS
from helpers.runner import Outcome, Runner, ended
from helpers.samples import draw_image, make_images

PAGE = DOCS / "how-to" / "nightly.md"
MONDAY, TUESDAY = 1, 2


@pytest.fixture
def job(crnr: Runner) -> Runner:
    """nightly.sh as on the page, a gallery, and an inbox."""
    (script,) = (block for block in code_blocks(PAGE, "bash") if block.startswith("#!"))
    Path("nightly.sh").write_text(script)
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "inbox", first=10, per_class=1)
    assert crnr("build", "gallery", "-q").exit == 0
    Path("bin").mkdir()
    Path("bin/date").write_text("#!/bin/sh\necho $DAY\n")
    Path("bin/date").chmod(0o755)
    return crnr


def run_night(job: Runner, day: int) -> Outcome:
    programs = f"{job.here}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "DAY": str(day)}
    return ended(job.start(program=("bash", f"{job.here}/nightly.sh"), env=environment, cwd="/"))


def sorted_files() -> set[str]:
    return {path.relative_to("sorted").as_posix() for path in Path("sorted").rglob("*.png")}


@pytest.mark.slow
def test_the_cron_job_prints_only_problems(job: Runner) -> None:
    nothing = Outcome(0, "", "")
    assert run_night(job, TUESDAY) == nothing
    assert sorted_files() == {"ant/10.png", "bee/10.png", "cow/10.png"}
    assert not Path("review.html").exists()
    draw_image(1, 20).save("inbox/new.png")  # a new file, and one that changes
    draw_image(0, 21).save("inbox/cow/10.png")
    assert run_night(job, MONDAY) == nothing
    assert {"bee/new.png", "ant/10 (2).png"} <= sorted_files()
    assert Path("review.html").exists()
    before = Path("out.csv").stat().st_mtime_ns, sorted_files()
    assert run_night(job, TUESDAY) == nothing  # a quiet night
    assert (Path("out.csv").stat().st_mtime_ns, sorted_files()) == before
    Path("inbox/new.png").unlink()
    assert run_night(job, TUESDAY) == nothing
    assert b"new.png" not in Path("out.csv").read_bytes()
    Path("inbox/half.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    failed = run_night(job, TUESDAY)
    assert (failed.exit, failed.err) == (0, "")
    assert failed.out.startswith("some files failed: crnr classify inbox/ -o out.csv --update --prune\n")
    assert "failed: inbox/half.png: " in failed.out
    Path("gallery.h5").unlink()
    stopped = run_night(job, TUESDAY)
    assert (stopped.exit, stopped.err) == (1, "")
    assert stopped.out.startswith("stopped: crnr classify inbox/ -o out.csv --update --prune\nerror: ")
    assert Path("nightly.log").read_text().count("(exit code ") == 2 + 3 + 2 + 2 + 2 + 1


@pytest.mark.slow
def test_the_cron_job_accepts_an_empty_inbox(job: Runner) -> None:
    for path in Path("inbox").rglob("*.png"):
        path.unlink()
    assert run_night(job, MONDAY) == Outcome(0, "", "")
