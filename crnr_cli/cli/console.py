"""What commands share on the terminal: words on stderr, progress bars, and the one error boundary."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from crnr_cli.errors import CrnrError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from crnr_cli.jobs.progress import Progress

SKIPPED = 3  # done, but some inputs were skipped
GATE_MISSED = 4
INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM
READER_GONE = 128 + signal.SIGPIPE


class _Terminated(BaseException):
    """SIGTERM, as an exception: what is open is closed and cleaned up on the way out."""


def say(words: str, *, style: str | None = None) -> None:
    """A line on stderr. No markup: Rich would delete [ar] from /data/[ar]/x.png."""
    if not sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")
        return
    from rich.console import Console

    Console(stderr=True, highlight=False).print(words, style=style, markup=False, soft_wrap=True, emoji=False)


def print_json(record: Any) -> None:
    sys.stdout.write(json.dumps(record, indent=2) + "\n")


@contextmanager
def boundary() -> Iterator[None]:
    """Errors a user can mend become one line and an exit code; anything else keeps its traceback."""
    previous = signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
        sys.stdout.flush()
    except CrnrError as e:
        say(f"error: {e}", style="red")
        raise typer.Exit(e.exit_code) from e
    except BrokenPipeError as e:
        _abandon_stdout()
        raise typer.Exit(READER_GONE) from e
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EIO) or e.filename is not None:
            raise
        _abandon_stdout()
        say(f"error: cannot write to stdout ({os.strerror(e.errno)})", style="red")
        raise typer.Exit(1) from e
    except KeyboardInterrupt as e:
        say("interrupted")
        raise typer.Exit(INTERRUPTED) from e
    except _Terminated as e:
        say("terminated")
        raise typer.Exit(TERMINATED) from e
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """A progress callback: bars on stderr if it is a terminal, nothing otherwise."""
    if quiet or not sys.stderr.isatty():
        from crnr_cli.jobs.progress import silent

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


def tell_left_out(named: Sequence[tuple[str, str]], most: int = 10) -> None:
    """Name the inputs that were left out, with the reason of each; the first few if they are many."""
    for name, reason in named[:most]:
        say(f"left out: {name}: {reason}", style="yellow")
    if len(named) > most:
        say(f"... and {len(named) - most} more", style="yellow")


def _raise_terminated(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _abandon_stdout() -> None:
    """Nobody can read what is still buffered; without this Python would try, and complain, at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
