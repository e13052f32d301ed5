"""Signals that stop a program, and those that only some systems have.

Windows has SIGINT for Ctrl-C, SIGBREAK for Ctrl-Break, no timers, and no signal for a pipe without a reader.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

# What stops a program, and how we say that.
STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
if sys.platform == "win32":
    STOPS[signal.SIGBREAK] = "interrupted"
READER_GONE = 128 + 13  # the exit code of a program that SIGPIPE ends, on every system

Handler = Callable[[int, FrameType | None], None]


def die_of_broken_pipes() -> None:
    """`crnr --help | head` should die of SIGPIPE like any program."""
    if sys.platform != "win32":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


@contextmanager
def broken_pipes_as_errors() -> Iterator[None]:
    """If the reader of stdout goes away, raise an exception, so that open files are cleaned up."""
    if sys.platform == "win32":  # where it is one
        yield
        return
    previous = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, previous)


@contextmanager
def on_stop(handler: Handler) -> Iterator[None]:
    """Handle the signals that stop a program, except those that the parent process has set to be ignored."""
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
    """Ignore what a user's Ctrl-C sends to all processes: the parent handles it, and closes our stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "win32":
        signal.signal(signal.SIGBREAK, signal.SIG_IGN)


@contextmanager
def timer(stop: Callable[..., NoReturn]) -> Iterator[Callable[[int, float], None]]:
    """Yields a function that has `stop` called in the main thread, so many seconds after a signal.

    On Windows the signal comes once more, for which its handler has to call `stop`.
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
