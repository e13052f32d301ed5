"""Output: full disks, invalid paths, closed streams; and runs that stop at a failure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.faults import CLASSIFY, Case, labelled
from helpers.runner import Outcome, Runner, read_rows, without_root
from helpers.samples import make_features, make_images


def limited(size: int) -> dict[str, Any]:
    """Options of a process whose files may not grow beyond `size`, as with a quota."""
    resource = pytest.importorskip("resource")
    return {
        "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        # To measure coverage there would need files too.
        "env": {name: value for name, value in os.environ.items() if not name.startswith("COV")},
    }


@pytest.mark.fault(33, "A full disk, or a quota")
def test_full_disk(case: Case) -> None:
    """crnr exits with 1, the old output is intact, and the temporary file is removed; or it is kept if
    `classify --resume` can continue it.
    """
    make_features(case.here / "gallery.npz", per_class=50, dimension=64)
    case.build("gallery.npz")
    whole = Path("gallery.h5").read_bytes()
    case.run(
        "build gallery.npz -q",
        exit=1,
        **limited(20_000),
        err=["error: gallery.h5: cannot write (File too large); the old file, if any, is intact"],
    )
    assert Path("gallery.h5").read_bytes() == whole
    assert case.files() == {"gallery.npz", "gallery.h5"}
    Path("out.csv").write_text("old")
    case.run(
        "classify gallery.npz -o out.csv",
        exit=1,
        **limited(4_000),
        err=[
            "error: out.csv: cannot write (File too large); finished batches are kept: continue with --resume"
        ],
    )
    assert Path("out.csv").read_text() == "old"
    assert case.files() == {
        "gallery.npz",
        "gallery.h5",
        "out.csv",
        "out.csv.crnr-part",
        "out.csv.crnr-journal",
    }
    case.run(
        "classify gallery.npz -o out.csv --resume",
        exit=0,
        err=["note: 0 of 150 queries were done by the earlier run", labelled(150, 150)],
    )
    assert case.files() == {"gallery.npz", "gallery.h5", "out.csv"}


@pytest.mark.fault(
    34, "An output that is a folder, in a missing or read-only folder, among the queries, or an input"
)
@pytest.mark.usefixtures("queries")
def test_output_in_a_bad_place(case: Case) -> None:
    """It is refused before any image is decoded."""
    Path("folder").mkdir()
    for output, message in {
        "folder": "is a folder; give a file name",
        "missing/out.csv": "the folder missing does not exist; create it first",
        "queries/out.csv": "is inside queries, which is an input; write it elsewhere",
        "gallery.h5": "is an input of this run; write to another file",
    }.items():
        case.run(f"classify queries -o {output}", exit=1, err=[f"error: {output}: {message}"])
    case.run("build gallery -o folder", exit=1, err=["error: folder: is a folder; give a file name"])
    Path("folder").chmod(0o555)
    case.run(
        "classify queries -o folder/out.csv",
        exit=1,
        **without_root(),
        err=["error: folder/out.csv: no permission to write; choose another place"],
    )
    assert case.files() == {"gallery", "queries", "gallery.h5", "folder"}
    assert os.listdir("folder") == []  # noqa: PTH208
    assert os.listdir("queries") == ["good.png"]  # noqa: PTH208


@pytest.mark.fault(38, "stdout is a pipe to `head`, is `/dev/full`, or is closed")
def test_stdout_that_takes_nothing(case: Case) -> None:
    """When `head` ends, crnr ends silently with exit code 141. In the other cases, it prints an error and
    exits with 1.
    """
    make_features(
        case.here / "gallery.npz", per_class=100, dimension=12, classes=[f"class {i}" for i in range(12)]
    )
    case.build("gallery.npz")
    process = case.start("classify", "gallery.npz")
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"path,truth,")
    process.stdout.close()
    err = process.stderr.read().decode() if process.stderr else ""
    case.check(Outcome(process.wait(60), "", err), "crnr classify gallery.npz | head -1", exit=141)
    if process.stderr:
        process.stderr.close()
    for command in ("classify gallery.npz", "evaluate gallery.npz", "info --json"):
        with Path("/dev/full").open("wb") as full:
            case.run(
                command,
                exit=1,
                stdout=full,
                shown=f"crnr {command} > /dev/full",
                err=["error: cannot write to stdout (No space left on device)"],
            )
    case.run(
        "classify gallery.npz",
        exit=1,
        stdout=None,
        preexec_fn=lambda: os.close(1),
        shown="crnr classify gallery.npz >&-",
        err=["error: cannot write to stdout (Bad file descriptor)"],
    )
    assert case.files() == {"gallery.npz", "gallery.h5"}


CONTINUE = (
    "finished batches are kept: continue with --resume, without --strict or with a higher --max-failure-rate"
)


def test_strict_stops_at_the_first_failure(crnr: Runner, queries: Path) -> None:
    (queries / "empty.png").write_bytes(b"")
    (queries / "README").write_text("not meant to be an image")
    outcome = crnr(*CLASSIFY.split(), "--strict")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: queries/empty.png: empty_file; stopped: 1 of 3 queries has no answer, "
        f"and no failure is allowed (--strict); {CONTINUE}\n"
    )
    assert crnr.files() == {"gallery", "queries", "gallery.h5", "out.csv.crnr-part", "out.csv.crnr-journal"}
    assert crnr("classify", "queries", "--strict").err == (
        "error: queries/empty.png: empty_file; stopped: 1 of 3 queries has no answer, "
        "and no failure is allowed (--strict)\n"
    )
    assert crnr(*CLASSIFY.split(), "--max-failure-rate", "0.2").exit == 1
    assert crnr(*CLASSIFY.split(), "--max-failure-rate", "0.4", "--resume").exit == 3
    assert crnr.files() == {"gallery", "queries", "gallery.h5", "out.csv"}


def test_a_strict_run_that_is_resumed_stops_again_unless_more_may_fail(crnr: Runner, queries: Path) -> None:
    command = [*CLASSIFY.split(), "--batch-size", 1]
    (queries / "0.png").write_bytes(b"")
    assert crnr(*command, "--strict").exit == 1
    outcome = crnr(*command, "--strict", "--resume")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        f"error: stopped: 1 of 2 queries has no answer, and no failure is allowed (--strict); {CONTINUE}\n"
    )
    outcome = crnr(*command, "--resume")
    assert outcome.exit == 3
    assert outcome.err.startswith("note: 1 of 2 queries were done by the earlier run\n")
    assert [row["status"] for row in read_rows(Path("out.csv"))] == ["empty_file", "ok"]


def test_strict_build_stops_too(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    (crnr.here / "gallery" / "ant" / "empty.png").write_bytes(b"")
    outcome = crnr("build", "gallery", "--strict")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == (
        "error: gallery/ant/empty.png: the file is empty; stopped: 1 of 13 examples has to be skipped, "
        "and no failure is allowed (--strict)\n"
    )
    assert crnr.files() == {"gallery"}
    assert crnr("build", "gallery", "--allow-skipped").exit == 0
