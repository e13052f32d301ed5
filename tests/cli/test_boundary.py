"""The boundary: failures of the machine are reported in one line."""

from __future__ import annotations

import errno
import os

import pytest
import typer

from crnr_cli.cli.boundary import boundary
from helpers.runner import Runner
from helpers.samples import make_images

FILES = "error: too many open files; allow more with `ulimit -n`, or use fewer cores with --jobs\n"
PROCESSES = "error: too many processes; allow more with `ulimit -u`, or use fewer cores with --jobs\n"
MEMORY = "error: not enough memory; use fewer or smaller images, or a machine with more memory\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EMFILE, "words"), FILES),
        (OSError(errno.ENFILE, "words", "/dev/null"), FILES),
        (OSError(errno.EAGAIN, "words"), PROCESSES),
        (RuntimeError("can't start new thread"), PROCESSES),
        (OSError(errno.ENOMEM, "words"), MEMORY),
        (MemoryError(), MEMORY),
    ],
    ids=repr,
)
def test_a_limit_of_the_machine(error: Exception, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, boundary():
        raise error
    assert ended.value.exit_code == 1
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("words"),
        OSError(errno.EINVAL, "words"),
        OSError(errno.EIO, "words", "a file"),
        BlockingIOError(errno.EAGAIN, "words", 0),  # of a stream
    ],
    ids=repr,
)
def test_anything_else_keeps_its_traceback(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, boundary():
        raise error
    assert raised.value is error


@pytest.mark.parametrize("files", [8, 12, 16])
def test_few_open_files(crnr: Runner, files: int) -> None:
    """How many are needed depends on the machine; there is never a traceback, and nothing is left behind."""
    resource = pytest.importorskip("resource")
    make_images(crnr.here / "gallery")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    outcome = crnr.process("build", "gallery", "-q", preexec_fn=limit, env=environment)
    if outcome.exit == 0:
        assert outcome.err == ""
    else:
        assert (outcome.exit, outcome.out) == (1, "")
        assert outcome.err.startswith("error: ")
        assert outcome.err.count("\n") == 1
        assert "too many open files" in outcome.err.lower()
        assert crnr.files() == {"gallery"}
