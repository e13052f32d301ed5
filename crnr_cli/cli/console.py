"""What commands share on the terminal: words on stderr, progress bars, and the one error boundary."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from crnr_cli.errors import CrnrError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.progress import Progress

SKIPPED = 3  # done, but some inputs were skipped
GATE_MISSED = 4
READER_GONE = 128 + signal.SIGPIPE
GRACE = 1.5  # seconds that a batch may still take after a signal

# Control characters, for people: a stranger's name may hold them, and a terminal obeys.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0))}
_STOPS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _Stopped(BaseException):
    """SIGINT or SIGTERM, as an exception: what is open is closed and cleaned up on the way out."""

    def __init__(self, number: int, remedy: str = "") -> None:
        self.exit_code = 128 + number
        self.words = _STOPS[signal.Signals(number)] + remedy


def say(words: str, *, style: str | None = None) -> None:
    """A line on stderr. No markup: Rich would delete [ar] from /data/[ar]/x.png."""
    words = words.translate(_ESCAPES)
    if not sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")
        return
    from rich.console import Console

    Console(stderr=True, highlight=False).print(words, style=style, markup=False, soft_wrap=True, emoji=False)


def results_console() -> Console:
    """For tables on stdout. A reader that goes away is for the boundary; Rich alone would exit with 1."""
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return ResultsConsole(highlight=False)


def plain(words: str, style: str = "") -> Text:
    """Words with names in them, for a table: no markup, no control characters."""
    from rich.text import Text

    return Text(words.translate(_ESCAPES), style)


def print_whole(console: Console, table: Table) -> None:
    """Print a table as wide as it is: a narrow screen may wrap its lines, but no figure is cut."""
    needed = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    screen, console.width = console.width, max(console.width, needed)
    console.print(table)
    console.width = screen


def print_json(record: Any) -> None:
    sys.stdout.write(json.dumps(record, indent=2) + "\n")


@contextmanager
def boundary() -> Iterator[None]:
    """Errors a user can mend become one line and an exit code; anything else keeps its traceback."""
    try:
        with _broken_pipe_as_error(), _on_stop(_raise_stopped):
            yield
            sys.stdout.flush()
    except CrnrError as e:
        say(f"error: {e}", style="red")
        raise typer.Exit(e.exit_code) from e
    except BrokenPipeError as e:
        _abandon_stdout()
        raise typer.Exit(READER_GONE) from e
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF) or e.filename is not None:
            raise
        _abandon_stdout()
        say(f"error: cannot write to stdout ({os.strerror(e.errno)})", style="red")
        raise typer.Exit(1) from e
    except _Stopped as e:
        say(e.words)
        raise typer.Exit(e.exit_code) from e


@contextmanager
def finishing_batches(progress: Progress, remedy: str) -> Iterator[Progress]:
    """A signal stops the work when the next progress is told, that is after a batch, or else after GRACE."""
    noted: list[_Stopped] = []

    def stop(*_: object) -> NoReturn:
        raise noted[0]

    def note(number: int, _frame: FrameType | None) -> None:
        if noted:  # the second one: somebody is in a hurry
            stop()
        noted.append(_Stopped(number, remedy))
        signal.setitimer(signal.ITIMER_REAL, GRACE)

    def tell(step: str, done: int, total: int) -> None:
        progress(step, done, total)
        if noted:
            stop()

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        with _on_stop(note):
            yield tell
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """A progress callback: bars on stderr if it is a terminal, nothing otherwise."""
    if quiet or not sys.stderr.isatty():
        from crnr_cli.progress import silent

        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    tasks: dict[str, TaskID] = {}
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done)

        yield show


def tell_left_out(named: Sequence[tuple[str, str]]) -> None:
    """Name the inputs that were left out, with the reason of each."""
    tell_some("left out", [f"{name}: {reason}" for name, reason in named], style="yellow")


def tell_some(kind: str, names: Sequence[str], *, most: int = 10, style: str | None = None) -> None:
    """Names on lines of their own; the first few if they are many."""
    for name in names[:most]:
        say(f"{kind}: {name}", style=style)
    if len(names) > most:
        say(f"... and {len(names) - most} more", style=style)


@contextmanager
def _on_stop(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that stop a program, but for those that whoever started us wants ignored."""
    previous = {number: signal.getsignal(number) for number in _STOPS}
    for number, before in previous.items():
        if before != signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def _broken_pipe_as_error() -> Iterator[None]:
    """A reader that goes away is told by an exception, and what is open is closed and cleaned up."""
    previous = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, previous)


def _raise_stopped(number: int, _frame: FrameType | None) -> NoReturn:
    raise _Stopped(number)


def _abandon_stdout() -> None:
    """Nobody can read what is still buffered; without this Python would try, and complain, at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
