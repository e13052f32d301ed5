"""Runs that are interrupted, killed, resumed, or started twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crnr_cli.jobs import classify as classify_job
from helpers.faults import Case, labelled
from helpers.runner import ended

# crnr with batches of one, which says on stderr when it has begun the third, and waits there.
PAUSING = """
import sys, time
from crnr_cli.jobs import classify as job
job.batch_size = lambda n_samples: 1
answer = job.answer
def pausing(*args, **kwargs):
    for number, answers in enumerate(answer(*args, **kwargs)):
        if number == 2:
            print("begun", file=sys.stderr, flush=True)
            time.sleep({seconds})
        yield answers
job.answer = pausing
from crnr_cli.cli import main
main()
"""


def start_pausing(case: Case, seconds: float, *args: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSING.format(seconds=seconds), *args],
        cwd=case.here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"begun\n"
    return process


RESUME = "classify gallery.npz -o out.csv --resume"


def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_job, "batch_size", lambda n_samples: 1)


@pytest.mark.fault(35, "SIGINT or SIGTERM in the middle")
@pytest.mark.usefixtures("features_gallery")
def test_interrupted(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current batch is finished if it can be in 2 s; exit 130 or 143; `--resume` goes on from there."""
    small_batches(monkeypatch)
    case("classify", "gallery.npz", "-o", "clean.csv")
    for number, words in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        process = start_pausing(case, 0.2, "classify", "gallery.npz", "-o", "out.csv")
        process.send_signal(number)
        case.check(
            ended(process),
            "crnr classify gallery.npz -o out.csv",
            exit=128 + number,
            err=[f"{words}; the same command with --resume goes on from there"],
        )
        assert case.files() == {
            "gallery.npz",
            "gallery.h5",
            "clean.csv",
            "out.csv.part",
            "out.csv.part.journal",
        }
        case.run(RESUME, exit=0, err=["note: 3 of 15 inputs were answered before", labelled(15, 15)])
        assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
        Path("out.csv").unlink()


@pytest.mark.fault(36, "SIGKILL or a power loss")
@pytest.mark.usefixtures("features_gallery")
def test_killed(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old file is whole or the new one is; `classify --resume` gives the bytes of a run in one go."""
    small_batches(monkeypatch)
    case("classify", "gallery.npz", "-o", "clean.csv")
    Path("out.csv").write_text("old")
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    process.kill()
    case.check(ended(process), "crnr classify gallery.npz -o out.csv", exit=-signal.SIGKILL)
    assert Path("out.csv").read_text() == "old"
    with Path("out.csv.part").open("ab") as part:
        part.write(b"gallery.npz#2,ant,a")  # a torn line, as a power loss leaves it
    case.run(RESUME, exit=0, err=["note: 2 of 15 inputs were answered before", labelled(15, 15)])
    assert Path("out.csv").read_bytes() == Path("clean.csv").read_bytes()
    assert case.files() == {"gallery.npz", "gallery.h5", "clean.csv", "out.csv"}


@pytest.mark.fault(37, "Two runs, one output")
@pytest.mark.usefixtures("features_gallery")
def test_two_at_once(case: Case) -> None:
    """The second refuses, and says why."""
    Path("out.csv").write_text("old")
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    busy = "error: out.csv: another crnr is writing it; wait for it or name another file"
    case.run("classify gallery.npz -o out.csv", exit=1, err=[busy])
    case.run("build gallery.npz -o out.csv", exit=1, err=[busy])
    assert Path("out.csv").read_text() == "old"
    assert len(Path("out.csv.part").read_bytes().splitlines()) == 3  # of the first run, untouched
    process.kill()
    ended(process)
    case.run("classify gallery.npz -o out.csv", exit=0, err=[labelled(15, 15)])
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv"}


@pytest.mark.fault(40, "Resume with another gallery, other options or another list of inputs")
@pytest.mark.usefixtures("features_gallery")
def test_another_resume(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, with what differs; the unfinished run is kept."""
    small_batches(monkeypatch)
    process = start_pausing(case, 60, "classify", "gallery.npz", "-o", "out.csv")
    process.kill()
    ended(process)
    left = {path.name: path.read_bytes() for path in case.here.glob("out*")}
    refused = "error: out.csv: the unfinished run was another one: "
    remedy = "; give it the same again, or leave out --resume to start anew"
    case.run(f"{RESUME} --max-pixels 5", exit=1, err=[f"{refused}--max-pixels was 89478485 and is 5{remedy}"])
    case.build("gallery.npz --lam 0.5 -o other.h5")
    case.run(f"{RESUME} -g other.h5", exit=1, err=[f"{refused}gallery differs{remedy}"])
    case.run(
        f"{RESUME} gallery.npz",
        exit=1,
        err=[f"{refused}number of inputs was 15 and is 30, list of inputs differs{remedy}"],
    )
    assert {path.name: path.read_bytes() for path in case.here.glob("out*")} == left
