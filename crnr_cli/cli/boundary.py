"""How a command ends: errors become one line and an exit code; signals and warnings are handled."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import typer

from crnr_cli.cli.console import say
from crnr_cli.errors import CrnrError, NotConverged
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.signals import (
    READER_GONE,
    STOPS,
    abandon_stdout,
    broken_pipes_as_errors,
    is_broken_pipe,
    on_stop,
    timer,
)

if TYPE_CHECKING:
    from crnr_cli.progress import Progress

SKIPPED = 3  # done, but some inputs were skipped
GATE_MISSED = 4
_GRACE = 1.5  # seconds that the current batch has to finish after a signal

_STEPS_IN_BATCHES = (
    "classifying",
    "extracting",
    "sorting",
    "splitting",
    "tagging",
)  # whose finished batches are kept

_STDOUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EBADF)


class _Stopped(BaseException):
    """SIGINT or SIGTERM as an exception, so that open files are closed and cleaned up on the way out."""

    def __init__(self, number: int, remedy: str = "") -> None:
        self.exit_code = 128 + number
        self.message = STOPS[signal.Signals(number)] + remedy


@contextmanager
def boundary(*, quiet: bool = False) -> Iterator[None]:
    """Turn errors that a user can fix into one line and an exit code; other errors keep their traceback."""
    try:
        with broken_pipes_as_errors(), on_stop(_raise_stopped), _counted_warnings(quiet):
            yield
            sys.stdout.flush()
    except CrnrError as e:
        say(f"error: {e}", style="red")
        raise typer.Exit(e.exit_code) from e
    except (OSError, MemoryError, RuntimeError) as e:
        if isinstance(e, OSError) and is_broken_pipe(e):
            abandon_stdout()
            raise typer.Exit(READER_GONE) from e
        if (reason := _describe_limit(e)) is None:
            if not isinstance(e, OSError) or e.errno not in _STDOUT_ERRORS or e.filename is not None:
                raise
            abandon_stdout()
            reason = f"cannot write to stdout ({os.strerror(e.errno)})"
        say(f"error: {reason}", style="red")
        raise typer.Exit(1) from e
    except _Stopped as e:
        say(e.message)
        raise typer.Exit(e.exit_code) from e


def _describe_limit(error: OSError | MemoryError | RuntimeError) -> str | None:
    """Return which limit of the machine was reached, and the remedy; None if the error has another reason."""
    code = getattr(error, "errno", None)
    if code in (errno.EMFILE, errno.ENFILE):
        return "too many open files; allow more with `ulimit -n`, or use fewer cores with --jobs"
    if isinstance(error, MemoryError) or code == errno.ENOMEM:
        return "not enough memory; use fewer or smaller images, or a machine with more memory"
    # A stream that is not ready is another matter: in that case, the bytes written so far are known.
    no_process = code == errno.EAGAIN and not hasattr(error, "characters_written")
    if no_process or str(error) == "can't start new thread":  # Python's own message
        return "too many processes; allow more with `ulimit -u`, or use fewer cores with --jobs"
    return None


@contextmanager
def noting_unchanged(path: Path) -> Iterator[None]:
    """After a signal, print that the file to replace is unchanged, if it exists and is."""
    before = stat_or_none(path)
    try:
        yield
    except _Stopped as e:
        now = stat_or_none(path)
        if before and now and (before.st_ino, before.st_mtime_ns) == (now.st_ino, now.st_mtime_ns):
            e.message += f"; {path} is unchanged"
        raise


@contextmanager
def finishing_batches(progress: Progress, remedy: str) -> Iterator[Progress]:
    """Stop after a signal when the next batch is reported as finished, or after _GRACE seconds."""
    received: list[_Stopped] = []

    def stop(*_: object) -> NoReturn:
        raise received[0]

    def receive(number: int, _frame: FrameType | None) -> None:
        if received:  # at the second signal, stop at once
            stop()
        received.append(_Stopped(number, remedy))
        start_timer(number, _GRACE)

    def report(step: str, done: int, total: int) -> None:
        progress(step, done, total)
        if received and step in _STEPS_IN_BATCHES:
            stop()

    with timer(stop) as start_timer, on_stop(receive):
        yield report


@contextmanager
def _counted_warnings(quiet: bool) -> Iterator[None]:
    """Print one line at the end for all queries that did not converge, in any thread or batch."""
    found: Counter[str] = Counter()
    with warnings.catch_warnings():
        show = warnings.showwarning

        def count(message: Warning | str, *where: object, **more: object) -> None:
            if isinstance(message, NotConverged):
                found[message.advice] += message.count
            else:
                show(message, *where, **more)  # type: ignore[arg-type]

        warnings.simplefilter("always", NotConverged)
        warnings.showwarning = count
        try:
            yield
        finally:
            for advice, n in () if quiet else found.items():
                say(f"warning: {NotConverged(n, advice)}", style="yellow")


def _raise_stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)
