"""Classify: resuming a stopped run, signals, and outputs that are not files."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from crnr_cli.errors import UsageError
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs import classify as job
from crnr_cli.jobs.classify import ClassifyReport
from helpers.pausing import send, start_pausing
from helpers.runner import Outcome, Runner, ended
from helpers.samples import make_features, make_images


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


def classify(source: str, *, resume: bool = False, stop_at: int | None = None) -> ClassifyReport:
    def progress(step: str, done: int, total: int) -> None:
        if done == stop_at:
            raise Stop

    options = QueryOptions(jobs=1, batch_size=4)
    return job.classify([source], Path("gallery.h5"), Path("out.csv"), options, progress, resume=resume)


@pytest.mark.parametrize("kind", ["pictures", "features"])
def test_classify_resumed_gives_the_bytes_of_a_run_in_one_go(crnr: Runner, kind: str) -> None:
    if kind == "pictures":
        gallery, queries = "gallery", "queries"
        make_images(crnr.here / gallery)
        make_images(crnr.here / queries, first=10)
        (crnr.here / queries / "bee" / "10.png").write_bytes(b"")
    else:
        gallery, queries = "gallery.npz", "queries.npz"
        make_features(crnr.here / gallery)
        make_features(crnr.here / queries, per_class=4, seed=1)
    crnr("build", gallery)
    whole = classify(queries)
    clean = Path("out.csv").read_bytes()
    for stop_at in (4, 8, 12):
        Path("out.csv").unlink()
        with pytest.raises(Stop):
            classify(queries, stop_at=stop_at)
        assert not Path("out.csv").exists()
        report = classify(queries, resume=True)
        assert Path("out.csv").read_bytes() == clean
        assert (report.resumed_after, report.statuses) == (stop_at, whole.statuses)
        assert report.skipped == whole.skipped == (kind == "pictures")


def test_resume_wants_a_file(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz")
    outcome = crnr("classify", "gallery.npz", "--resume")
    assert (outcome.exit, outcome.out) == (2, "")
    assert outcome.err == "error: --resume needs an output file; name it with --output\n"
    with pytest.raises(UsageError):
        job.classify(["gallery.npz"], Path("gallery.h5"), Path("/dev/null"), QueryOptions(), resume=True)


def test_a_device_is_written_to_directly(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz")
    outcome = crnr("classify", "gallery.npz", "-o", "/dev/null")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "labelled 15 of 15 queries: /dev/null\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")]
)
@pytest.mark.parametrize(("until", "batches"), [("signal", 3), ("never", 2)])
def test_a_signal_lets_the_batch_finish_if_it_can(
    crnr: Runner, number: signal.Signals, words: str, until: str, batches: int
) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz")
    process = start_pausing(crnr, "classify gallery.npz -o out.csv --batch-size 1", until)
    send(process, number)
    words += "; the same command with --resume continues from there\n"
    assert ended(process) == Outcome(128 + number, "", words)
    assert not (crnr.here / "out.csv").exists()
    assert (crnr.here / "out.csv.crnr-part").read_bytes().count(b"\n") == 1 + batches
    assert len((crnr.here / "out.csv.crnr-journal").read_bytes().splitlines()) == 1 + batches


def test_a_second_signal_stops_at_once(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    crnr("build", "gallery.npz")
    process = start_pausing(crnr, "classify gallery.npz -o out.csv --batch-size 1")
    send(process, signal.SIGINT)  # two signals at once may arrive as one
    process.send_signal(signal.SIGINT)
    assert ended(process).exit == 130


def test_an_ignored_signal_stays_ignored(crnr: Runner) -> None:
    """A shell's background job has SIGINT ignored: Ctrl-C is for the job in front."""
    make_features(crnr.here / "gallery.npz")
    process = crnr.start(
        "build", "gallery.npz", preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    )
    while process.returncode is None:  # wherever it is
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    assert ended(process).exit == 0
    assert (crnr.here / "gallery.h5").exists()
