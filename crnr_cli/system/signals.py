"""Signals that end a command, and the standard streams."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# The signals that stop a program, and their descriptions for messages.
STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
READER_GONE = 128 + 13  # the exit code of a program killed by SIGPIPE, on every system
Handler = Callable[[int, FrameType | None], None]


if sys.platform == "win32":
    STOPS[signal.SIGBREAK] = "interrupted"


def die_of_broken_pipes() -> None:
    """Let SIGPIPE kill the program, as in `crnr --help | head`."""
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def broken_pipes_as_errors() -> Iterator[None]:
    """Raise an exception if the reader of stdout goes away, so that open files are cleaned up."""
    if sys.platform == "win32":  # which raises an exception anyway
        yield
        return
    previous = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, previous)


@contextmanager
def on_stop(handler: Handler) -> Iterator[None]:
    """Handle the signals that stop a program, except those that the parent process ignores."""
    previous = {number: signal.getsignal(number) for number in STOPS}
    for number, before in previous.items():
        if before != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


def leave_to_parent() -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes: the parent handles it, and closes our stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.SIG_IGN)


@contextmanager
def timer(stop: Callable[..., NoReturn]) -> Iterator[Callable[[int, float], None]]:
    """Yield a function that makes the main thread call `stop` some seconds after a signal.

    On Windows the signal comes once more, and its handler has to call `stop`.
    """
    if sys.platform == "win32":
        import _thread
        import threading

        started: list[threading.Timer] = []

        def start(number: int, seconds: float) -> None:
            started.append(threading.Timer(seconds, _thread.interrupt_main, (number,)))
            started[-1].daemon = True
            started[-1].start()

        try:
            yield start
        finally:
            for one in started:
                one.cancel()
        return
    previous = signal.signal(signal.SIGALRM, stop)
    try:
        yield lambda _, seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def set_up_streams() -> None:
    """Write the same bytes in cron as in a terminal, whatever the locale and even if a stream is closed.

    On stdout, names that are not UTF-8 are written as the bytes that were read; on stderr they are escaped.
    Windows would otherwise use a code page, and end lines with two characters.
    """
    # Opened read-only, so that the first write fails with EBADF and is reported.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


def abandon_stdout() -> None:
    """Discard buffered output without a reader; otherwise Python would fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_broken_pipe(error: OSError) -> bool:
    """Return whether the reader of a pipe is gone. Windows reports EINVAL, as subprocess expects too."""
    is_windows_word = sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or is_windows_word


@contextmanager
def ignoring_broken_pipes() -> Iterator[None]:
    """Ignore broken pipes to a process that may be dead already."""
    try:
        yield
    except OSError as e:
        if not is_broken_pipe(e):
            raise
