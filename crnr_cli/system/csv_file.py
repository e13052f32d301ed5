"""Write a CSV, and read a CSV that a person or another program may have written."""

from __future__ import annotations

import codecs
import csv
import io
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from crnr_cli.errors import DataError
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import format_count


class CsvRows(Protocol):
    """A reader of the csv module."""

    @property
    def line_num(self) -> int: ...
    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


def write_rows(write: Callable[[str], object], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows as lines of a CSV, one at a time, so that a long table needs no memory."""
    csv.writer(_Lines(write), lineterminator=_END).writerows(rows)


# Some versions of Python quote only the characters that end lines; a name may have either.
_END = "\r\n"


class _Lines:
    """Ends lines as other programs on Linux do."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def write(self, line: str) -> None:
        self._write(line.removesuffix(_END) + "\n")


def refuse_utf_16(start: bytes, name: object) -> None:
    """Refuse what spreadsheets save as Unicode text, by its first bytes: every other byte would be NUL."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{name}: is UTF-16 text; save it as UTF-8, which spreadsheets call CSV UTF-8")


def wrap_as_text(file: io.BufferedReader, name: object) -> io.TextIOWrapper:
    """Read as UTF-8 with an optional mark at the beginning; other bytes are kept, as in file names."""
    refuse_utf_16(file.peek(2), name)
    return io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")


def refuse_separators(first: Sequence[str], name: object, separators: str = ";\t") -> None:
    """Refuse a table whose first row has one field, because its columns have another separator."""
    if found := [mark for mark in separators if len(first) == 1 and mark in first[0]]:
        marks = {";": "semicolons", "\t": "tabs"}[found[0]]
        raise DataError(f"{name}: the columns are separated by {marks}; save the file with commas")


def require_utf_8(text: str, where: str, what: str) -> None:
    """Refuse text with bytes that are not UTF-8: spreadsheets may save a CSV in an older encoding."""
    if not text.isascii() and any("\udc80" <= one <= "\udcff" for one in text):
        raise DataError(
            f"{where}: {what} is not UTF-8; save the file as UTF-8, which spreadsheets call CSV UTF-8"
        )


@contextmanager
def opened_csv(path: Path, delimiter: str = ",") -> Iterator[CsvRows]:
    """Open a CSV. An unreadable file or a bad row raises a DataError with the file and the line."""
    try:
        with path.open("rb") as binary, wrap_as_text(binary, path) as file:
            reader = csv.reader(file, strict=True, delimiter=delimiter)
            try:
                yield reader
            except (csv.Error, ValueError, IndexError) as e:
                raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def require_file(path: Path, remedy: str) -> None:
    """Raise an error if the file is missing or not a regular file: reading a pipe would block.

    The file is also protected from being overwritten by an output.
    """
    found = stat_or_none(path)
    if found is None:
        raise DataError(f"{path}: no such file; {remedy}")
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: is not a file; {remedy}")
    refuse_inputs([path])


def read_records(path: Path, columns: tuple[str, ...], remedy: str) -> Iterator[tuple[list[str], str, int]]:
    """Yield the fields of every row in these columns, the row's place for messages, and its line.

    `remedy` is for a file without one of these columns; other columns are ignored.
    """
    with opened_csv(path) as reader:
        header = next(iter(reader), [])
        if missing := [column for column in columns if column not in header]:
            refuse_separators(header, path)
            raise DataError(f"{path}: no column {' or '.join(missing)}; {remedy}")
        if twice := [column for column in columns if header.count(column) > 1]:
            raise DataError(f"{path}: has two columns {twice[0]}; remove one")
        places = [header.index(column) for column in columns]
        for row in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(header):
                raise DataError(
                    f"{where}: {format_count(len(row), 'field')}, but the header has {len(header)}; "
                    "is the file truncated?"
                )
            yield [row[place] for place in places], where, reader.line_num
