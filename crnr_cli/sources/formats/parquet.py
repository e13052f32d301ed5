"""Reader of Parquet: columns of numbers, or a column with a list of numbers in each row."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Arrays, FormatReader, Refused
from crnr_cli.sources.formats.columns import Columns, find_names
from crnr_cli.sources.formats.labels import require_room
from crnr_cli.system.parquet import Column, ParquetFile, ParquetNumbers

_BYTES_PER_TEXT = 200
_INDEX_NAME = "__index_level_0__"  # of the row numbers, as pandas writes them


def read_parquet(path: Path, wanted: Collection[str]) -> Arrays:
    """Return every column by name if one has lists of numbers; else all numbers as `features`."""
    file = ParquetFile(path)
    columns = Columns(path, [column.name for column in file.columns])
    columns.refuse_predictions()
    if any(column.kind == "numbers" for column in file.columns):
        return _by_column(file)
    if _INDEX_NAME in columns.names:
        columns.ignore(columns.names.index(_INDEX_NAME))
    of_text: dict[int, str | None] = {i: None for i, one in enumerate(file.columns) if one.kind == "text"}
    columns.assign(wanted, lambda: of_text)
    if columns.undecided:
        columns.settle({i: _values(file, columns.names[i]) for i in columns.undecided})
    numbers = [file.columns[i] for i in columns.numbers()]
    for column in (*numbers, *(file.columns[i] for i in columns.texts.values())):
        if column.kind != "number" and (column in numbers or column.kind != "text"):
            raise DataError(
                f"{path}: column {column.name} is of type {column.type}, and not of numbers; if it has the "
                "labels, name it with --labels-key, else remove it"
            )
    arrays = Arrays({"features": ParquetNumbers(file, numbers)})
    arrays |= {name: ParquetColumn(file, file.columns[i]) for name, i in columns.texts.items()}
    arrays.notes = tuple(columns.notes)
    return arrays


def _by_column(file: ParquetFile) -> Arrays:
    names = [column.name for column in file.columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise DataError(f"{file.path}: several columns are called {twice}; rename them")
    arrays = Arrays()
    for name, column in zip(names, file.columns, strict=True):
        if column.kind == "numbers":
            arrays[name] = ParquetNumbers(file, [column])
        elif column.kind in ("number", "text"):
            arrays[name] = ParquetColumn(file, column)
        else:
            arrays[name] = Refused(f"is of type {column.type}, but must be numbers or text")
    texts, numbers = ([one.name for one in file.columns if one.kind == kind] for kind in ("text", "number"))
    files, ids = find_names(texts, numbers, partial(_values, file))
    arrays.names, arrays.ids = tuple(files), tuple(ids)
    return arrays


def _values(file: ParquetFile, name: str) -> list[Any]:
    """Return a column of labels or names, if it fits into memory."""
    require_room(file.path, file.n_rows, _BYTES_PER_TEXT, "labels or names")
    return file.values(name)


@dataclass(frozen=True)
class ParquetColumn:
    """A column of labels or names, which is read at once."""

    file: ParquetFile
    column: Column

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.file.n_rows,)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.column.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        values = self.file.values(self.column.name)
        missing = next((row for row, value in enumerate(values) if value is None), None)
        if missing is not None:
            raise DataError(f"{self.file.path}: row {missing} has no value in the column {self.column.name}")
        if self.column.kind == "number":
            return np.array(values, dtype=self.column.dtype)
        found = np.empty(len(values), dtype=object)
        found[:] = values
        return found


READER = FormatReader(read_parquet, word="column")
