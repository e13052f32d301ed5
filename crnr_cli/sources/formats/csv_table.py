"""Reader of CSV: a sample per line and a feature per column, with or without a header."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, NotANumberError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Arrays, FormatReader
from crnr_cli.sources.formats.columns import Columns
from crnr_cli.sources.formats.labels import require_room
from crnr_cli.system import memory
from crnr_cli.system.csv_file import (
    DecimalSigns,
    has_number_signs,
    is_decimal_comma,
    note_separator,
    refuse_separators,
    refuse_utf_16,
    split_head,
)
from crnr_cli.wording import format_count

_INDEX_NAMES = ("", "Unnamed: 0")  # of a first column of row numbers, as pandas and R write it
_OF_PREDICTIONS = {
    "truth",
    "residual",
    "runner_up",
    "margin",
    "status",
}  # columns that `crnr classify` writes
_LONGEST_LINE = 2**25  # bytes
_BLOCK = 2**20  # bytes
_BYTES_PER_TEXT = 200
_SHOWN = 30  # characters of a cell in a message
_WHOLE = re.compile(r"-?\d+\.0")  # a label that pandas read as a number


def read_csv(path: Path, wanted: Collection[str]) -> Arrays:
    """Return all numbers as `features`, the columns of labels and paths, and wanted columns by name."""
    try:
        with path.open("rb") as file:
            rows, size = _limits(file)
            lines = _Lines(path, file)
            separator, all_lines = split_head(iter(lines))
            reader = csv.reader(all_lines, strict=True, delimiter=separator)
            try:
                table = _Table.of(path, reader, separator, wanted)
                return table.read(reader, lines, min(rows, size // len(table.columns.names) + 1))
            except csv.Error as e:
                raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def has_features(path: Path) -> bool:
    """Return whether a CSV holds features, by its first two rows, and not predictions or anything else."""
    if not os.path.isfile(path):  # noqa: PTH113, and what is read from a pipe is gone
        return False
    try:
        with path.open("rb") as file:
            separator, lines = split_head(iter(_Lines(path, file)))
            reader = csv.reader(lines, strict=True, delimiter=separator)
            first, second = next(filter(None, reader), []), next(filter(None, reader), [])
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (csv.Error, DataError):
        return False
    if not _is_header(first):
        return any(map(_is_meant_as_number, first))
    return not _OF_PREDICTIONS & {*first} and any(map(_is_meant_as_number, second))


class _Lines:
    """The lines of a file as text; a line that is too long raises an error."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self.has_underscore = False  # in the lines since this was reset

    def __iter__(self) -> Iterator[str]:
        number = 0
        while line := self._file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise DataError(
                    f"{self._path}, line {number}: longer than {_LONGEST_LINE} bytes; "
                    "is it a table of numbers?"
                )
            if number == 1:
                refuse_utf_16(line, self._path)
            self.has_underscore |= b"_" in line
            text = line.decode("utf-8", "surrogateescape")
            yield text.removeprefix("\ufeff") if number == 1 else text


@dataclass(frozen=True)
class _Table:
    path: Path
    columns: Columns  # named by the header; without a header, numbered from 1
    head: list[list[str]]  # rows of numbers that have been read
    signs: DecimalSigns

    @classmethod
    def of(cls, path: Path, reader: Iterator[list[str]], separator: str, wanted: Collection[str]) -> _Table:
        """Return the table described by the first rows."""
        first = next(filter(None, reader), None)
        if first is None:
            raise DataError(f"{path}: is empty")
        signs = DecimalSigns(path, separator)
        if len(first) == 1:
            refuse_separators(first, path, separator)
        if _is_header(first):
            second = next(filter(None, reader), None)
            table = cls(path, Columns(path, first), [] if second is None else [second], signs)
            if first[0] in _INDEX_NAMES and len(first) > 1:
                table.columns.ignore(0)
        else:
            _refuse_decimal_commas(path, first)
            table = cls(path, Columns(path, [str(i + 1) for i in range(len(first))]), [first], signs)
        table.columns.notes += note_separator(path, separator)
        table.columns.refuse_predictions()
        table.columns.assign(wanted, table._columns_of_text)
        return table

    def _columns_of_text(self) -> dict[int, str | None]:
        cells = enumerate(self.head[0][: len(self.columns.names)] if self.head else ())
        return {i: cell for i, cell in cells if cell.strip() and not _is_meant_as_number(cell)}

    def read(self, reader: Iterator[list[str]], lines: _Lines, most_rows: int) -> Arrays:
        """Return all rows, at most `most_rows`."""
        numbers, width = self.columns.numbers(), len(self.columns.names)
        labels = {i for name, i in self.columns.texts.items() if name != "paths"}
        texts: dict[int, list[str]] = {i: [] for i in (*self.columns.texts.values(), *self.columns.undecided)}
        first_empty: dict[int, int] = {}  # line, by column
        memory.require_memory(
            8 * most_rows * len(numbers), f"{self.path}: reading the numbers", "divide the file into several"
        )
        require_room(self.path, most_rows * len(texts), _BYTES_PER_TEXT, "labels or names")
        values = np.empty((most_rows, len(numbers)))
        count = 0
        for row in chain(self.head, filter(None, reader)):
            line = getattr(reader, "line_num")  # noqa: B009, which csv's types do not have
            if len(row) != width or count == most_rows:
                self._refuse_width(row, line)
            cells = self.signs.to_points([row[i] for i in numbers] if len(numbers) < width else row, line)
            try:
                if lines.has_underscore and any("_" in cell for cell in cells):  # float reads 1_0 as 10
                    raise ValueError("an underscore")
                values[count] = list(map(float, cells))
            except ValueError:
                values[count] = [self._number(cell, line, i) for cell, i in zip(cells, numbers, strict=True)]
            for column, found in texts.items():
                found.append(row[column])
                if not row[column] and first_empty.setdefault(column, line) and column in labels:
                    self._refuse_empty(line)
            count += 1
            lines.has_underscore = False
        if self.columns.undecided:
            self.columns.settle(texts)
            if line := first_empty.get(self.columns.texts.get("labels", -1)):
                self._refuse_empty(line)
        arrays = Arrays({"features": values[:count]})
        for i in {i for name, i in self.columns.texts.items() if name != "paths"}:
            texts[i] = self.signs.labels_to_points(texts[i])
        arrays |= {name: _as_array(name, texts[i]) for name, i in self.columns.texts.items()}
        arrays.notes = (*self.columns.notes, *self.signs.notes)
        return arrays

    def _refuse_width(self, row: list[str], line: int) -> NoReturn:
        width = len(self.columns.names)
        if len(row) == 1 < width and any(mark in row[0] for mark in ";\t"):
            refuse_separators([*self.columns.names[:1], *row], self.path, ",")
        raise DataError(
            f"{self.path}, line {line}: {format_count(len(row), 'column')}, but there are "
            f"{width} before; is the file complete?"
        )

    def _number(self, cell: str, line: int, column: int) -> float:
        """Return the number in a cell; an empty cell is a missing value, as pandas writes it."""
        if not cell.strip():
            return math.nan
        if _is_number(cell):
            return float(cell)
        shown = cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "..."
        found = self.columns.names[column]
        name = "" if found == str(column + 1) else f" ({found})"
        if is_decimal_comma(cell):
            raise DataError(
                f"{self.path}, line {line}, column {column + 1}{name}: {shown!r} has a decimal comma; write "
                "points or separate the columns by semicolons; if it is a label, choose the column with "
                "--labels-key"
            )
        raise NotANumberError(
            f"{self.path}, line {line}, column {column + 1}{name}: {shown!r} is not a number; if the column "
            "contains the labels, choose it with --labels-key, else correct or remove it"
        )

    def _refuse_empty(self, line: int) -> NoReturn:
        raise DataError(f"{self.path}, line {line}: the label is empty")


def _limits(file: BinaryIO) -> tuple[int, int]:
    """Return the file's maximum number of rows and its size; a row has at least a byte per column."""
    lines = size = 0
    while block := file.read(_BLOCK):
        lines += block.count(b"\n")
        size += len(block)
    file.seek(0)
    return lines + 1, size


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _is_meant_as_number(cell: str) -> bool:
    return _is_number(cell) or has_number_signs(cell)


def _refuse_decimal_commas(path: Path, first: Sequence[str]) -> None:
    """Refuse a table without a header that has decimal commas between semicolons."""
    fields = ",".join(first).split(";")
    if len(fields) > 1 and any(map(is_decimal_comma, fields)):
        raise DataError(
            f"{path}, line 1: has semicolons and decimal commas, but no header; put the names of the columns "
            "into the first line, with semicolons between them"
        )


def _is_header(row: Sequence[str]) -> bool:
    """Return whether the first row is a header. pandas writes 0, 1, 2, ... for an array without names."""
    numbers = [cell for cell in row if _is_meant_as_number(cell)]
    if not numbers:
        return True
    return numbers == [str(i) for i in range(len(numbers))] and len(numbers) > (len(row) == len(numbers)) + 1


def _as_array(name: str, texts: list[str]) -> Array:
    if name != "paths" and all(map(_WHOLE.fullmatch, texts)):
        texts = [text[:-2] for text in texts]
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found


READER = FormatReader(read_csv, word="column")
