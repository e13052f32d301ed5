"""Streams that are closed, in a process of its own, as cron and careless scripts leave them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path

import pytest

from helpers.runner import Runner, ended
from helpers.samples import make_features, make_images


@pytest.fixture
def built(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    assert crnr("build", "gallery.npz", "-q").exit == 0


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("command", "what"), [("classify", "list of files"), ("evaluate", "predictions file")]
)
def test_a_list_from_closed_stdin(crnr: Runner, command: str, what: str) -> None:
    outcome = crnr.process(command, "-", preexec_fn=lambda: os.close(0))
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == f"error: -: stdin is closed; give it a {what}\n"


@pytest.mark.usefixtures("built")
def test_closed_stderr_changes_nothing(crnr: Runner) -> None:
    outcome = crnr.process("classify", "gallery.npz", preexec_fn=lambda: os.close(2))
    assert (outcome.exit, outcome.err) == (0, "")
    assert outcome.out == crnr.process("classify", "gallery.npz").out


@pytest.mark.usefixtures("built")
def test_closed_stdout_does_not_matter_if_nothing_goes_there(crnr: Runner) -> None:
    outcome = crnr.process("classify", "gallery.npz", "-o", "out.csv", preexec_fn=lambda: os.close(1))
    assert (outcome.exit, outcome.err) == (0, "labelled 15 of 15 queries: out.csv\n")
    assert (crnr.here / "out.csv").exists()


@pytest.mark.usefixtures("built")
def test_the_file_that_stdout_goes_to_is_not_replaced(crnr: Runner) -> None:
    csv = crnr.process("classify", "gallery.npz").out
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        with (crnr.here / "all.txt").open("wb") as file:
            file.write(b"first\n")
            file.flush()
            outcome = crnr.process("classify", "gallery.npz", "-q", "-o", name, stdout=file)
            file.write(b"last\n")
        assert (outcome.exit, outcome.err) == (0, "")
        assert (crnr.here / "all.txt").read_text() == f"first\n{csv}last\n"


@pytest.mark.usefixtures("built")
def test_a_report_is_not_written_over_an_open_file(crnr: Runner) -> None:
    with (crnr.here / "all.txt").open("wb") as file:
        file.write(b"first\n")
        file.flush()
        outcome = crnr.process("evaluate", "gallery.npz", "--errors", "/dev/stdout", stdout=file)
    assert outcome.exit == 1
    assert outcome.err == ("error: /dev/stdout: is a file descriptor; give the name of the file instead\n")
    assert (crnr.here / "all.txt").read_text() == "first\n"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("name", ["/dev/null", "pipe"])
def test_a_gallery_needs_a_regular_file(crnr: Runner, name: str) -> None:
    os.mkfifo(crnr.here / "pipe")
    outcome = crnr.process("build", "gallery.npz", "-o", name)
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == f"error: {name}: not a regular file; this output can only be written to one\n"


def on_a_terminal(crnr: Runner, *arguments: object) -> bytes:
    """Return what a command that ends well writes to a terminal as its stderr."""
    import pty

    controller, terminal = pty.openpty()
    process = crnr.start(*arguments, stderr=terminal)
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
    return shown


@pytest.mark.usefixtures("built")
def test_a_terminal_shows_progress(crnr: Runner) -> None:
    """Bars are for eyes: on a terminal, not in a log."""
    shown = on_a_terminal(crnr, "classify", "gallery.npz", "-o", "out.csv")
    assert b"classifying" in shown
    assert b"labelled 15 of 15 queries: out.csv" in shown
    assert Path("out.csv").exists()


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("stdout", "options", "has_bar"),
    [
        ("pipe", "", False),  # as in `crnr classify ... | head`
        ("terminal", "", False),
        ("file", "", True),
        ("/dev/null", "", True),
        ("pipe", "-o out.csv", True),
        ("terminal", "-o out.csv", True),
    ],
)
def test_no_line_of_another_program_appears_in_a_bar(
    crnr: Runner, stdout: str, options: str, has_bar: bool
) -> None:
    controller, terminal = os.openpty()
    places: dict[str, int] = {"pipe": subprocess.PIPE, "terminal": terminal}
    with open("/dev/null" if stdout == "/dev/null" else "file", "wb") as file:  # noqa: PTH123
        place = places.get(stdout, file.fileno())
        arguments = ["classify", "gallery.npz", *options.split()]
        process = crnr.start(*arguments, stdout=place, stderr=terminal, env=os.environ | {"TERM": "xterm"})
    os.close(terminal)
    shown = b""
    with contextlib.suppress(OSError):  # the end, on Linux
        while part := os.read(controller, 65536):
            shown += part
    os.close(controller)
    assert ended(process).exit == 0
    assert b"labelled 15 of 15 queries" in shown
    assert (b"classifying" in shown) == has_bar


def test_notes_are_not_on_the_line_of_a_bar(crnr: Runner) -> None:
    """They are printed while bars are shown, which have to make room."""
    make_images(crnr.here / "large", size=(70, 70))
    shown = on_a_terminal(crnr, "build", "large")
    assert b"measuring" in shown
    without_codes = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", shown)
    before, _, _ = without_codes.partition(b"note: ")
    assert before[-1:] in (b"\r", b"\n")
