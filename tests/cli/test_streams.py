"""Streams that are closed, in a process of its own, as cron and careless scripts leave them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.shell import Shell, make_features


@pytest.fixture
def built(shell: Shell) -> Shell:
    make_features(shell.here / "gallery.npz")
    assert shell.crnr("build", "gallery.npz", "-q").exit == 0
    return shell


@pytest.mark.parametrize(
    ("command", "what"), [("classify", "list of files"), ("evaluate", "predictions CSV")]
)
def test_a_list_from_closed_stdin(built: Shell, command: str, what: str) -> None:
    outcome = built.process(command, "-", preexec_fn=lambda: os.close(0))
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == f"error: -: stdin is closed; give it a {what}\n"


def test_closed_stderr_changes_nothing(built: Shell) -> None:
    outcome = built.process("classify", "gallery.npz", preexec_fn=lambda: os.close(2))
    assert (outcome.exit, outcome.err) == (0, "")
    assert outcome.out == built.process("classify", "gallery.npz").out


def test_closed_stdout_does_not_matter_if_nothing_goes_there(built: Shell) -> None:
    outcome = built.process("classify", "gallery.npz", "-o", "out.csv", preexec_fn=lambda: os.close(1))
    assert (outcome.exit, outcome.err) == (0, "15 of 15 inputs labelled: out.csv\n")
    assert (built.here / "out.csv").exists()


def test_the_file_that_stdout_goes_to_is_not_replaced(built: Shell) -> None:
    csv = built.process("classify", "gallery.npz").out
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with (built.here / "all.txt").open("wb") as file:
            file.write(b"first\n")
            file.flush()
            outcome = built.process("classify", "gallery.npz", "-q", "-o", name, stdout=file)
            file.write(b"last\n")
        assert (outcome.exit, outcome.err) == (0, "")
        assert (built.here / "all.txt").read_text() == f"first\n{csv}last\n"


def test_a_report_is_not_written_over_an_open_file(built: Shell) -> None:
    with (built.here / "all.txt").open("wb") as file:
        file.write(b"first\n")
        file.flush()
        outcome = built.process("evaluate", "gallery.npz", "--errors", "/dev/stdout", stdout=file)
    assert outcome.exit == 1
    assert outcome.err == (
        "error: /dev/stdout: stands for a file that is open already; name the file itself\n"
    )
    assert (built.here / "all.txt").read_text() == "first\n"


@pytest.mark.parametrize("name", ["/dev/null", "pipe"])
def test_a_gallery_needs_a_regular_file(built: Shell, name: str) -> None:
    os.mkfifo(built.here / "pipe")
    outcome = built.process("build", "gallery.npz", "-o", name)
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == f"error: {name}: not a regular file, which a gallery has to be\n"


def test_a_terminal_shows_progress(built: Shell) -> None:
    """Bars are for eyes: on a terminal, not in a log."""
    import pty

    controller, terminal = pty.openpty()
    process = built.start("classify", "gallery.npz", "-o", "out.csv", stderr=terminal)
    os.close(terminal)
    shown = b""
    while True:
        try:
            piece = os.read(controller, 4096)
        except OSError:  # the other end is closed
            break
        shown += piece
    process.communicate()
    os.close(controller)
    assert process.returncode == 0
    assert b"classifying" in shown
    assert b"15 of 15 inputs labelled: out.csv" in shown
    assert Path("out.csv").exists()
