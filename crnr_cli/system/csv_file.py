"""Write a CSV, and read a CSV that a person or another program may have written."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, Protocol

from crnr_cli.errors import DataError
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import format_count

_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_QUOTED = re.compile(r'"[^"]*"')
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*", re.ASCII)

_NO_DECIMALS = re.compile(r"[+-]?\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}([.,]\d{3})+[.,]\d+\s*", re.ASCII)

_LONGEST_FIELD = 2**26  # characters: a set may have a million labels


class CsvRows(Protocol):
    """A reader of the csv module."""

    @property
    def line_num(self) -> int: ...
    @property
    def dialect(self) -> Any: ...
    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


def write_rows(write: Callable[[str], object], rows: Iterable[Iterable[Any]]) -> None:
    """Write rows as lines of a CSV, one at a time, so that a long table needs no memory."""
    csv.writer(_Lines(write), lineterminator=_END).writerows(rows)


# Some versions of Python quote only the characters that end lines; a name may have either.
_END = "\r\n"


def split_rows(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the rows of a CSV with their line ends; a field in quotes may have line ends."""
    row = b""
    for line in lines:
        row += line
        if row.count(b'"') % 2 == 0:
            yield row
            row = b""


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


def split_head(lines: Iterator[str], usual: str = ",") -> tuple[str, Iterator[str]]:
    """Return the separator of a table's columns, by the first line with text, and all its lines.

    Spreadsheets write semicolons where the comma is the decimal sign, and tabs as "text". The first line must
    have no other separators outside quotes; else the separator is the `usual` one.
    """
    head: list[str] = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    unquoted = _QUOTED.sub("", head[-1]) if head else ""
    found = [mark for mark in _MARKS if mark in unquoted]
    return found[0] if len(found) == 1 else usual, chain(head, lines)


def note_separator(name: object, separator: str) -> list[str]:
    """Return a note if the columns are not separated by commas."""
    return [] if separator == "," else [f"{name}: read with {_MARKS[separator]} between the columns"]


def note_separator_of(path: Path) -> list[str]:
    """Return a note if the columns of a readable CSV are not separated by commas."""
    if path.suffix.lower() != ".csv" or not os.path.isfile(path):  # noqa: PTH113, not a pipe, which blocks
        return []
    try:
        with path.open("rb") as binary, wrap_as_text(binary, path) as file:
            return note_separator(path, split_head(file)[0])
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def refuse_separators(first: Sequence[str], name: object, separator: str) -> None:
    """Refuse a table without the expected columns, if its first row has several separators."""
    for mark in (";", "\t"):
        if mark != separator and any(mark in cell for cell in first):
            marks = _MARKS[mark]
            if len(first) == 1:
                raise DataError(f"{name}: the columns are separated by {marks}; save the file with commas")
            raise DataError(
                f"{name}, line 1: has {_MARKS[separator]} and {marks}; put names that contain a comma into "
                f"quotes, so that only {marks} separate the columns"
            )


class DecimalSigns:
    """Reads numbers with a decimal comma, if the columns of their table have another separator.

    A table has one decimal sign: in a table with both, the comma or the point may separate thousands.
    """

    def __init__(self, name: object, separator: str) -> None:
        self._name, self._may_be_commas = name, separator != ","
        self._first: dict[str, int] = {}  # line, by sign

    @property
    def notes(self) -> list[str]:
        return [f"{self._name}: read with decimal commas"] if "," in self._first else []

    def to_points(self, cells: list[str], line: int) -> list[str]:
        """Return the numbers of a row with points; cells that are no numbers stay as they are."""
        if not self._may_be_commas:
            return cells
        whole = " ".join(cells)
        for sign in (",", "."):
            if sign in whole:
                self._first.setdefault(sign, line)
        if len(self._first) > 1:
            self._refuse_both()
        if "," not in whole:
            return cells
        return [cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in cells]

    def labels_to_points(self, labels: list[str]) -> list[str]:
        """Return labels with points, if all are numbers and no number of the table has a point."""
        are_numbers = all(is_decimal_comma(label) or _NO_DECIMALS.fullmatch(label) for label in labels)
        if not self._may_be_commas or "." in self._first or not are_numbers or "," not in "".join(labels):
            return labels
        self._first.setdefault(",", 1)
        return [label.replace(",", ".") for label in labels]

    def _refuse_both(self) -> NoReturn:
        (sign, first), (other, line) = sorted(self._first.items(), key=lambda item: item[1])
        signs = {",": "commas", ".": "points"}
        before = "" if first == line else f" in line {first}"
        raise DataError(
            f"{self._name}, line {line}: has numbers with {signs[other]}, but there are numbers with "
            f"{signs[sign]}{before}; save the table with decimal points and without signs between thousands"
        )


def is_decimal_comma(cell: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def has_number_signs(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma or signs between thousands, and not a label."""
    return is_decimal_comma(cell) or _THOUSANDS.fullmatch(cell) is not None


def require_utf_8(text: str, where: str, what: str) -> None:
    """Refuse text with bytes that are not UTF-8: spreadsheets may save a CSV in an older encoding."""
    if not text.isascii() and any("\udc80" <= one <= "\udcff" for one in text):
        raise DataError(
            f"{where}: {what} is not UTF-8; save the file as UTF-8, which spreadsheets call CSV UTF-8"
        )


class _Limit:
    """The limit of the csv module for a field, which the whole process has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_readers = self._usual = 0

    def raise_it(self) -> None:
        with self._lock:
            if not self._n_readers:
                self._usual = csv.field_size_limit()
                csv.field_size_limit(max(self._usual, _LONGEST_FIELD))
            self._n_readers += 1

    def restore(self) -> None:
        """Restore the usual limit if no other thread needs the higher one any more."""
        with self._lock:
            self._n_readers -= 1
            if not self._n_readers:
                csv.field_size_limit(self._usual)


_limit = _Limit()


@contextmanager
def long_fields() -> Iterator[None]:
    """Let the csv module read fields of any length that crnr writes: a set may name all classes.

    This is not for generators, which may stay unfinished: the limit holds for the whole process.
    """
    _limit.raise_it()
    try:
        yield
    finally:
        _limit.restore()


@contextmanager
def opened_csv(path: Path, usual: str = ",") -> Iterator[CsvRows]:
    """Open a CSV. An unreadable file or a bad row raises a DataError with the file and the line.

    Its columns have the only separator that is in the first line, else the `usual` one.
    """
    try:
        with path.open("rb") as binary, wrap_as_text(binary, path) as file:
            separator, lines = split_head(file, usual)
            reader = csv.reader(lines, strict=True, delimiter=separator)
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


def read_records(
    path: Path, columns: tuple[str, ...], remedy: str, optional: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], str, int]]:
    """Yield the fields of every row in these columns, the row's place for messages, and its line.

    `remedy` is for a file without one of these columns; other columns are ignored. Fields of `optional`
    columns follow; they are empty if the file has no such column.
    """
    with opened_csv(path) as reader:
        header = next(iter(reader), [])
        if missing := [column for column in columns if column not in header]:
            refuse_separators(header, path, reader.dialect.delimiter)
            raise DataError(f"{path}: no column {' or '.join(missing)}; {remedy}")
        if twice := [column for column in (*columns, *optional) if header.count(column) > 1]:
            raise DataError(f"{path}: has two columns {twice[0]}; remove one")
        places = [header.index(column) for column in columns]
        others = [header.index(column) if column in header else None for column in optional]
        for row in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(header):
                raise DataError(
                    f"{where}: {format_count(len(row), 'field')}, but the header has {len(header)}; "
                    "is the file truncated?"
                )
            fields = [row[place] for place in places]
            fields += ["" if place is None else row[place] for place in others]
            yield fields, where, reader.line_num
