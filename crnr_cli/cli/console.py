"""What commands print: words on stderr, tables and records on stdout, progress bars."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.gallery.samples import LeftOut, Note
    from crnr_cli.progress import Progress

MAX_SHOWN = 10  # lines of one kind
_UNLIMITED = 10_000  # columns: wider than any table that people read

# Control characters, for people: a stranger's file name may hold them, and a terminal obeys.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0))}


def say(words: str, *, style: str | None = None) -> None:
    """Print one line to stderr. No markup: Rich would delete [ar] from /data/[ar]/x.png."""
    words = words.translate(_ESCAPES)
    if not sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")
        return
    from rich.console import Console

    Console(stderr=True, highlight=False).print(words, style=style, markup=False, soft_wrap=True, emoji=False)


def say_some(kind: str, names: Sequence[str], *, style: str | None = None) -> None:
    """One line per name; only the first if there are many."""
    for name in names[:MAX_SHOWN]:
        say(f"{kind}: {name}", style=style)
    if len(names) > MAX_SHOWN:
        say(f"... and {len(names) - MAX_SHOWN} more", style=style)


def say_left_out(left_out: Iterable[LeftOut]) -> None:
    """The inputs that were left out, each with its reason."""
    say_some("left out", [f"{left.name}: {left.error}" for left in left_out], style="yellow")


def say_notes(notes: Iterable[Note]) -> None:
    """All notes, but only the first of each kind."""
    by_kind: dict[str, list[str]] = {}
    for note in notes:
        by_kind.setdefault(note.kind, []).append(note.text)
    for texts in by_kind.values():
        say_some("note", texts)


def results_console() -> Console:
    """For results on stdout. In a pipe or a file nothing is wrapped, so that programs can read it.

    A reader that goes away is handled by the boundary; Rich alone would exit with 1.
    """
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = ResultsConsole(highlight=False)
    if not console.is_terminal:
        console.soft_wrap = True
    return console


def plain(words: str, style: str = "") -> Text:
    """Words with names in them, for a table: no markup, no control characters."""
    from rich.text import Text

    return Text(words.translate(_ESCAPES), style)


def natural_width(console: Console, table: Table) -> int:
    """How wide a table is if there is room for all of it."""
    return console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum


def print_whole(console: Console, table: Table) -> None:
    """Print a table at its full width: a narrow screen may wrap its lines, but no figure is cut."""
    screen, console.width = console.width, max(console.width, natural_width(console, table))
    console.print(table)
    console.width = screen


def print_table(console: Console, table: Table) -> None:
    """Fit a table to the screen; in a pipe or a file, print it at its full width."""
    if console.is_terminal:
        console.print(table)
    else:
        print_whole(console, table)


def print_json(record: Any) -> None:
    sys.stdout.write(json.dumps(record, indent=2) + "\n")


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
