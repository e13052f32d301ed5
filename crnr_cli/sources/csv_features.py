"""Reader of CSV: a sample per line and a feature per column, with or without a header."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.labels import require_room
from crnr_cli.sources.readers import Arrays, Reader
from crnr_cli.system import memory
from crnr_cli.wording import counted

LABEL_NAMES = ("label", "labels", "class", "target")
_PATH_NAMES = ("path", "paths")
_INDEX_NAMES = ("", "Unnamed: 0")  # of a first column with the numbers of the rows, as pandas and R write it
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
_SHOWN = 30  # characters of a cell, or names of columns, in a message
_WHOLE = re.compile(r"-?\d+\.0")  # a label that pandas has read as a number


def read_csv(path: Path, wanted: Collection[str]) -> Arrays:
    """All numbers as `features`, the columns of labels and paths as such, and wanted ones by their names."""
    try:
        with path.open("rb") as file:
            rows, width = _limits(file)
            lines = _Lines(path, file)
            reader = csv.reader(lines, strict=True)
            try:
                columns = _Columns.of(path, reader, wanted)
                return columns.read(reader, lines, min(rows, width // len(columns.names) + 1))
            except csv.Error as e:
                raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def has_features(path: Path) -> bool:
    """Whether a CSV is one of features, and not of predictions or of anything else, by its first two rows."""
    if not os.path.isfile(path):  # noqa: PTH113, and what is read from a pipe is gone
        return False
    try:
        with path.open("rb") as file:
            reader = csv.reader(_Lines(path, file), strict=True)
            first, second = next(filter(None, reader), []), next(filter(None, reader), [])
    except (OSError, csv.Error, DataError):
        return False
    if not _is_header(first):
        return any(map(_is_number, first))
    return not _OF_PREDICTIONS & {*first} and any(map(_is_number, second))


class _Lines:
    """The lines of a file as text, none of which may be too long."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self.has_underscore = False  # one of the lines since this was reset

    def __iter__(self) -> Iterator[str]:
        number = 0
        while line := self._file.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise DataError(
                    f"{self._path}, line {number}: longer than {_LONGEST_LINE} bytes; "
                    "is it a table of numbers?"
                )
            self.has_underscore |= b"_" in line
            text = line.decode("utf-8", "surrogateescape")
            yield text.removeprefix("\ufeff") if number == 1 else text


@dataclass
class _Columns:
    """What the columns of a file are, by its first rows."""

    path: Path
    names: list[str]  # from the header; without one, they are numbered from 1
    head: list[list[str]]  # rows of numbers that have been read
    texts: dict[str, int] = field(default_factory=dict)  # by the name of the dataset
    ignored: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path, reader: Iterator[list[str]], wanted: Collection[str]) -> _Columns:
        first = next(filter(None, reader), None)
        if first is None:
            raise DataError(f"{path}: is empty")
        _refuse_other_separators(path, first)
        if {"truth", "label"} <= {*first}:
            raise DataError(
                f"{path}: has predictions, as `crnr classify` writes them, and no features; give it to "
                "evaluate or sort"
            )
        if _is_header(first):
            second = next(filter(None, reader), None)
            columns = cls(path, first, [] if second is None else [second])
            if first[0] in _INDEX_NAMES and len(first) > 1:
                columns.ignored.add(0)
                columns.notes.append(f"{path}: its first column numbers the rows and is left out")
        else:
            columns = cls(path, [str(i + 1) for i in range(len(first))], [first])
        columns._find_texts({*wanted} - {"features", "labels", "paths"}, is_named="labels" not in wanted)
        return columns

    def _find_texts(self, wanted: Collection[str], *, is_named: bool) -> None:
        """Which columns have labels and paths; with `is_named`, the labels are one of the `wanted`."""
        for name in wanted:
            if name not in self.names:
                raise DataError(f"{self.path}: no column {name}; found {self._shown_names()}")
            self.texts[name] = self._only(name)
        for name in _PATH_NAMES:
            if name in self.names and name not in self.texts:
                self.texts["paths"] = self._only(name)
        taken = {*self.texts.values(), *self.ignored}
        named = [i for i, name in enumerate(self.names) if name.strip().lower() in LABEL_NAMES]
        found = [i for i in named if i not in taken]
        if is_named:
            self.ignored |= {*found}
            for i in found:
                self.notes.append(f"{self.path}: column {self.names[i]} is left out, as it may be labels too")
            return
        if not found and self.head:
            texts = [i for i, cell in enumerate(self.head[0]) if cell.strip() and not _is_number(cell)]
            found = [i for i in texts if i not in taken]
            if len(found) == 1 and found[0] < len(self.names):
                name = self.names[found[0]]
                self.notes.append(f"{self.path}: column {name} has the labels, as it has no numbers")
        if len(found) > 1:
            names = " and ".join(self.names[i] for i in found[:_SHOWN] if i < len(self.names))
            raise DataError(
                f"{self.path}: the columns {names} could each be the labels; name one with --labels-key, "
                "and remove columns that are neither numbers nor labels"
            )
        if found:
            self.texts["labels"] = found[0]

    def _only(self, name: str) -> int:
        if self.names.count(name) > 1:
            raise DataError(f"{self.path}: {self.names.count(name)} columns are called {name}; rename them")
        return self.names.index(name)

    def read(self, reader: Iterator[list[str]], lines: _Lines, most_rows: int) -> Arrays:
        """All rows, of which there are at most so many."""
        others = {*self.texts.values()} | self.ignored
        numbers = [i for i in range(len(self.names)) if i not in others]
        if not numbers:
            raise DataError(
                f"{self.path}: has no columns of numbers; a table with the labels of pictures is given "
                "with --labels"
            )
        memory.require(
            8 * most_rows * len(numbers), f"{self.path}: its numbers", "divide the file into several"
        )
        require_room(self.path, most_rows * len(self.texts), _BYTES_PER_TEXT, "labels or names")
        values = np.empty((most_rows, len(numbers)))
        texts: dict[str, list[str]] = {name: [] for name in self.texts}
        count = 0
        for row in chain(self.head, filter(None, reader)):
            line = getattr(reader, "line_num")  # noqa: B009, which csv's types do not have
            if len(row) != len(self.names) or count == most_rows:
                raise DataError(
                    f"{self.path}, line {line}: {counted(len(row), 'column')}, but there are "
                    f"{len(self.names)} before; is the file complete?"
                )
            cells = [row[i] for i in numbers] if others else row
            try:
                if lines.has_underscore and any("_" in cell for cell in cells):  # float takes 1_0 for 10
                    raise ValueError("an underscore")
                values[count] = list(map(float, cells))
            except ValueError:
                values[count] = [self._number(row[i], line, i) for i in numbers]
            for name, column in self.texts.items():
                texts[name].append(self._text(name, row[column], line))
            count += 1
            lines.has_underscore = False
        arrays = Arrays({"features": values[:count]})
        arrays |= {name: _as_array(name, found) for name, found in texts.items()}
        arrays.notes = tuple(self.notes)
        return arrays

    def _number(self, cell: str, line: int, column: int) -> float:
        """An empty cell is a missing value, which pandas writes that way."""
        if not cell.strip():
            return math.nan
        if _is_number(cell):
            return float(cell)
        shown = cell if len(cell) <= _SHOWN else cell[:_SHOWN] + "..."
        name = "" if self.names[column] == str(column + 1) else f" ({self.names[column]})"
        raise DataError(
            f"{self.path}, line {line}, column {column + 1}{name}: {shown!r} is not a number; if the column "
            "has the labels, name it with --labels-key, else correct or remove it"
        )

    def _text(self, name: str, cell: str, line: int) -> str:
        if not cell and name != "paths":
            raise DataError(f"{self.path}, line {line}: the label is empty")
        return cell

    def _shown_names(self) -> str:
        more = ", ..." if len(self.names) > _SHOWN else ""
        return ", ".join(self.names[:_SHOWN]) + more


def _limits(file: BinaryIO) -> tuple[int, int]:
    """The most rows that a file can have, and its size; a row takes a byte for each of its columns."""
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


def _is_header(row: Sequence[str]) -> bool:
    """Whether the first row has names. Those of pandas are 0, 1, 2, ... if an array had no names."""
    numbers = [cell for cell in row if _is_number(cell)]
    if not numbers:
        return True
    return numbers == [str(i) for i in range(len(numbers))] and len(numbers) > (len(row) == len(numbers)) + 1


def _refuse_other_separators(path: Path, first: Sequence[str]) -> None:
    found = next((mark for mark in (";", "\t") if len(first) == 1 and mark in first[0]), None)
    if found:
        name = {";": "semicolons", "\t": "tabs"}[found]
        raise DataError(f"{path}: its columns are separated by {name}; save it with commas")


def _as_array(name: str, texts: list[str]) -> Array:
    if name != "paths" and all(map(_WHOLE.fullmatch, texts)):
        texts = [text[:-2] for text in texts]
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found


READER = Reader(read_csv, word="column")
