"""The output of commands: messages on stderr, tables and JSON on stdout, progress bars."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import ProgressColumn, Task, TaskID
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.gallery.samples import LeftOut
    from crnr_cli.progress import Progress
    from crnr_cli.wording import Note

_MAX_SHOWN = 10  # lines of one kind, unless --verbose is given
_UNLIMITED = 10_000  # characters: wider than any table that people read
# Control characters are escaped: untrusted file names may contain them, and a terminal would obey them.
_ESCAPES = {code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0))}
# The same for a text of ours, which may have several lines.
_ESCAPES_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) != "\n"}
# The console whose progress bars are on the screen, if any: only it can print above them.
_with_bars: list[Console] = []


# Whether all lines are printed; None in commands that have no option --verbose.
_is_verbose: ContextVar[bool | None] = ContextVar("_is_verbose", default=None)


@contextmanager
def shown_lines(*, verbose: bool | None) -> Iterator[None]:
    """Print all lines of one kind until the block ends, or only the first ones."""
    before = _is_verbose.set(verbose)
    try:
        yield
    finally:
        _is_verbose.reset(before)


def _messages_console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def say(text: str, *, style: str | None = None) -> None:
    """Print one line to stderr. No markup: Rich would delete [ar] from /data/[ar]/x.png."""
    text = text.translate(_ESCAPES)
    if not sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
        return
    console = _with_bars[-1] if _with_bars else _messages_console()
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True, emoji=False)


def say_some(kind: str, names: Sequence[str], *, style: str | None = None) -> None:
    """Print one line per name, but at most _MAX_SHOWN without --verbose."""
    verbose = _is_verbose.get()
    for name in names if verbose else names[:_MAX_SHOWN]:
        say(f"{kind}: {name}", style=style)
    if len(names) > _MAX_SHOWN and not verbose:
        remedy = "" if verbose is None else "; --verbose prints all"
        say(f"... and {len(names) - _MAX_SHOWN} more{remedy}", style=style)


def say_left_out(left_out: Iterable[LeftOut]) -> None:
    """Print the inputs that failed, each with its reason."""
    from crnr_cli.sources.images import NO_BOX

    failed = [left for left in left_out if left.error.status != NO_BOX]
    say_some("failed", list(map(str, failed)), style="yellow")


def say_notes(notes: Iterable[Note]) -> None:
    """Print all notes, but at most _MAX_SHOWN of each kind without --verbose."""
    by_kind: dict[str, list[str]] = {}
    for note in notes:
        by_kind.setdefault(note.kind, []).append(note.text)
    for texts in by_kind.values():
        say_some("note", texts)


def say_page(path: Path | None, notes: Iterable[str] = ()) -> None:
    """Print the notes about an HTML page and its name, if one was written."""
    for note in notes:
        say(f"note: {note}", style="yellow")
    if path:
        say(f"wrote {path}")


def say_separators(table: Path | None) -> None:
    """Print a note if the columns of a CSV are not separated by commas."""
    for note in note_separators([table] if table else []):
        say(f"note: {note}")


def note_separators(tables: Iterable[Path]) -> list[str]:
    from crnr_cli.system.csv_file import note_separator_of

    return [note for table in tables for note in note_separator_of(table)]


class EarlyNotes:
    """Prints notes as soon as they are known, and remembers them, so that the end does not repeat them."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._shown: list[Note] = []

    def __call__(self, notes: Sequence[Note]) -> None:
        self._shown += notes
        if not self._quiet:
            say_notes(notes)

    def rest(self, notes: Iterable[Note]) -> list[Note]:
        return [note for note in notes if note not in self._shown]


def results_console() -> Console:
    """Return the console for results on stdout. In a pipe or a file, lines are not wrapped.

    It shows every string without markup and control characters, whatever table it is in. If the reader of a
    pipe goes away, boundary() handles it; Rich itself would exit with 1.
    """
    from rich.console import Console

    class ResultsConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

        def render_str(self, text: str, **options: Any) -> Text:
            options |= {"markup": False, "emoji": False}
            return super().render_str(text.translate(_ESCAPES_IN_LINES), **options)

    console = ResultsConsole(highlight=False)
    if not console.is_terminal:
        console.soft_wrap = True
    return console


def plain_text(text: str, style: str = "") -> Text:
    """Return a text with names for a table: no markup, no control characters."""
    from rich.text import Text

    return Text(text.translate(_ESCAPES), style)


def natural_width(console: Console, table: Table) -> int:
    """Return the width of a table if nothing limits it."""
    return console.measure(table, options=console.options.update(max_width=_UNLIMITED)).maximum


def print_full_width(console: Console, table: Table) -> None:
    """Print a table at its full width: a narrow terminal wraps the lines, but no number is cut off."""
    screen, console.width = console.width, max(console.width, natural_width(console, table))
    console.print(table)
    console.width = screen


def print_table(console: Console, table: Table) -> None:
    """Fit a table to the terminal; in a pipe or a file, print it at its full width."""
    if console.is_terminal:
        console.print(table)
    else:
        print_full_width(console, table)


def print_facts(console: Console, facts: Iterable[tuple[str, str, str]]) -> None:
    """Print names, values and remarks in columns; on a narrow terminal, remarks go below the values."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, pad_edge=False)
    narrow = Table(show_header=False, box=None, pad_edge=False)
    for name, value, remark in facts:
        table.add_row(*map(plain_text, (name, value, remark)))
        narrow.add_row(plain_text(name), Text.assemble(plain_text(value), "\n", plain_text(remark)))
    fits = not console.is_terminal or natural_width(console, table) <= console.width
    print_table(console, table if fits else narrow)


def print_json(record: Any) -> None:
    sys.stdout.writelines(_json_parts(record, "\n"))
    sys.stdout.write("\n")


def _json_parts(value: Any, line: str) -> Iterator[str]:
    """Yield JSON with one line per entry, but one line for a list of numbers, because a matrix has many."""
    if isinstance(value, dict) and value:
        opening, closing, entries = "{", "}", ((json.dumps(str(k)) + ": ", v) for k, v in value.items())
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (dict, list, tuple, str)) for v in value):
        opening, closing, entries = "[", "]", (("", v) for v in value)
    else:
        yield json.dumps(value)
        return
    yield opening
    for i, (name, entry) in enumerate(entries):
        yield f"{',' if i else ''}{line}  {name}"
        yield from _json_parts(entry, f"{line}  ")
    yield line + closing


def _may_appear(stream: TextIO) -> bool:
    """Return whether a user may see the stream now: on a terminal, or through a pipe to another program."""
    mode = os.fstat(stream.fileno()).st_mode
    return not stat.S_ISREG(mode) and (stream.isatty() or not stat.S_ISCHR(mode))


def _rate_column() -> ProgressColumn:
    """Return a column with the items per second, which is empty until the speed is known."""
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if not speed else f"{speed:.1f}/s" if speed < 10 else f"{speed:.0f}/s")

    return Rate()


@contextmanager
def shown_progress(quiet: bool, *, prints: bool = False) -> Iterator[Progress]:
    """Yield a progress callback: bars on stderr if it is a terminal, nothing otherwise.

    While the command `prints` its result, lines may appear on that terminal in the middle of a bar. In that
    case, bars are shown only if the result goes to a file.
    """
    if quiet or not sys.stderr.isatty() or (prints and _may_appear(sys.stdout)):
        from crnr_cli.progress import silent

        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    tasks: dict[str, TaskID] = {}
    with Bars(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _rate_column(),
        TimeRemainingColumn(),
        console=_messages_console(),
        transient=True,
    ) as bars:

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        _with_bars.append(bars.console)
        try:
            yield show
        finally:
            _with_bars.pop()


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a file as UTF-8; names that are not UTF-8 are written as the bytes that were read."""
    from crnr_cli.system.csv_file import write_rows
    from crnr_cli.system.files import replacing

    with replacing(path) as file:
        write_rows(lambda line: file.write(line.encode("utf-8", "surrogateescape")), chain([header], rows))


def print_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from crnr_cli.system.csv_file import write_rows

    write_rows(sys.stdout.write, chain([header], rows))


def format_share(value: float | None, interval: tuple[float, float] | None) -> str:
    return f"{format_number(value)}  (95% {interval[0]:.4f} to {interval[1]:.4f})" if interval else "n/a"


def format_number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"
