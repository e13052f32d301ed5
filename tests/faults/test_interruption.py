"""Runs that are interrupted, killed, resumed, or started twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from helpers.faults import Case, labelled
from helpers.pausing import send, start_pausing
from helpers.runner import ended, helper_command

START = "classify gallery.npz -o out.csv --batch-size 1"
RESUME = f"{START} --resume"
EXTRACT = "extract gallery.npz -o features.h5"


@pytest.mark.fault(35, "SIGINT or SIGTERM during a run")
@pytest.mark.usefixtures("features_gallery")
def test_interrupted(case: Case) -> None:
    """The current batch is finished if that takes less than 2 s, and crnr exits with 130 or 143. The same
    command with `--resume` continues the run.
    """
    case("classify", "gallery.npz", "-o", "clean.csv", "--batch-size", 1)
    for number, words in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        process = start_pausing(case, START, "signal")
        send(process, number)
        case.check(
            ended(process),
            f"crnr {START}",
            exit=128 + number,
            err=[f"{words}; the same command with --resume continues from there"],
        )
        assert case.files() == {
            "gallery.npz",
            "gallery.h5",
            "clean.csv",
            "out.csv.crnr-part",
            "out.csv.crnr-journal",
        }
        case.run(RESUME, exit=0, err=["note: 3 of 15 queries were done by the earlier run", labelled(15, 15)])
        assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
        Path("out.csv").unlink()


@pytest.mark.fault(36, "SIGKILL or a power loss")
@pytest.mark.usefixtures("features_gallery")
def test_killed(case: Case) -> None:
    """Either the old or the new file is there, complete. After `classify --resume`, or the same `extract`
    again, the output has the same bytes as after a run that was not interrupted.
    """
    case("classify", "gallery.npz", "-o", "clean.csv", "--batch-size", 1)
    Path("out.csv").write_text("old")
    process = start_pausing(case, START)
    process.kill()
    case.check(ended(process), f"crnr {START}", exit=-signal.SIGKILL)
    assert Path("out.csv").read_text() == "old"
    with Path("out.csv.crnr-part").open("ab") as part:
        part.write(b"gallery.npz#2,ant,a")  # an incomplete line, as after a power loss
    case.run(RESUME, exit=0, err=["note: 2 of 15 queries were done by the earlier run", labelled(15, 15)])
    assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
    assert case.files() == {"gallery.npz", "gallery.h5", "clean.csv", "out.csv"}
    assert case("extract", "gallery.npz", "-o", "clean.h5", "-q").exit == 0
    process = case.start("after", *EXTRACT.split(), program=helper_command("helpers.killed"))
    case.check(ended(process), f"crnr {EXTRACT}", exit=-signal.SIGKILL)
    assert not Path("features.h5").exists()
    case.run(
        EXTRACT,
        exit=0,
        err=[
            "note: features.h5: continuing after 15 of 15 rows",
            "features.h5: 15 rows, 3 classes, 6 features",
        ],
    )
    assert Path("features.h5").read_bytes() == Path("clean.h5").read_bytes()


@pytest.mark.fault(37, "Two runs with the same output at the same time")
@pytest.mark.usefixtures("features_gallery")
def test_two_at_once(case: Case) -> None:
    """The second run is refused with an error."""
    Path("out.csv").write_text("old")
    process = start_pausing(case, START)
    busy = "error: out.csv: another crnr is writing it; wait, or choose another file"
    case.run(START, exit=1, err=[busy])
    assert Path("out.csv").read_text() == "old"
    assert len(Path("out.csv.crnr-part").read_bytes().splitlines()) == 3  # of the first run, untouched
    process.kill()
    ended(process)
    case.run(START, exit=0, err=[labelled(15, 15)])
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv"}


@pytest.mark.fault(40, "`--resume` with another gallery, other options or other inputs")
@pytest.mark.usefixtures("features_gallery")
def test_another_resume(case: Case) -> None:
    """It is refused, and the error lists the differences; the unfinished run is kept."""
    process = start_pausing(case, START)
    process.kill()
    ended(process)
    Path("out.csv.crnr-lock").unlink()  # as the next run does
    left = {path.name: path.read_bytes() for path in case.here.glob("out*")}
    refused = "error: out.csv: the unfinished run was a different one: "
    remedy = "; use the same queries and options, or leave out --resume to start again"
    case.run(
        f"{RESUME} --max-pixels 5", exit=1, err=[f"{refused}--max-pixels was 89478485 and is now 5{remedy}"]
    )
    case.build("gallery.npz --lam 0.5 -o other.h5")
    case.run(f"{RESUME} -g other.h5", exit=1, err=[f"{refused}gallery differs{remedy}"])
    case.run(
        f"{RESUME} gallery.npz",
        exit=1,
        err=[f"{refused}number of inputs was 15 and is now 30, list of inputs differs{remedy}"],
    )
    assert {path.name: path.read_bytes() for path in case.here.glob("out*")} == left
