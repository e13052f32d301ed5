"""Labels from a table: a CSV with a path and a label per row, instead of one folder per class."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.system.csv_file import (
    note_separator,
    opened_csv,
    refuse_separators,
    require_file,
    require_utf_8,
)
from crnr_cli.system.names import class_key, normalize_path
from crnr_cli.wording import format_count

_PATH, _LABEL = "path", "label"  # the names of the columns by default


@dataclass(frozen=True)
class LabelOptions:
    """The table of labels and its columns, as the user chose them."""

    path: Path
    path_column: str | None = None
    label_column: str | None = None
    root: Path | None = None  # the folder of relative paths; None: the folder of the table

    def read(self, option: str = "--label-column") -> Labels:
        """Return the labels; the `option` that named their column is for messages."""
        require_file(self.path, "give a label table with --labels")
        found: dict[str, LabelRow] = {}
        with opened_csv(self.path, "\t" if self._is_tsv else ",") as reader:
            header = next(iter(reader), [])
            separator = reader.dialect.delimiter
            where = [self._column(header, separator, self.path_column, _PATH, "--path-column")]
            where.append(self._column(header, separator, self.label_column, _LABEL, option))
            for row in filter(None, reader):
                if len(row) <= max(where):
                    raise DataError(f"{self._line(reader.line_num)}: the row is too short; is it complete?")
                if separator == ";" and len(row) != len(header):
                    fields = format_count(len(row), "field")
                    raise DataError(
                        f"{self._line(reader.line_num)}: {fields} between semicolons, but the first "
                        f"line has {len(header)}; put fields with a semicolon into quotes"
                    )
                self._add(found, row[where[0]], row[where[1]], reader.line_num)
        return Labels(self.path, found, note_separator(self.path, separator if not self._is_tsv else ","))

    @property
    def _is_tsv(self) -> bool:
        return self.path.suffix == ".tsv"

    def _column(self, header: list[str], separator: str, chosen: str | None, usual: str, option: str) -> int:
        name = usual if chosen is None else chosen
        if name not in header:
            refuse_separators(header, self.path, separator)
            shown = ", ".join(header) or "none"
            remedy = f"choose the right one with {option}"
            if chosen is None and any("/" in field or Path(field).suffix for field in header):  # a row
                remedy = "the first line must name the columns, such as path,label"
            raise DataError(f"{self.path}: no column {name}, only {shown}; {remedy}")
        return header.index(name)

    def _add(self, found: dict[str, LabelRow], path: str, label: str, line: int) -> None:
        if not path:
            raise DataError(f"{self._line(line)}: the path is empty")
        if "\0" in path:
            raise DataError(f"{self._line(line)}: the path contains NUL")
        require_utf_8(label, self._line(line), "the label")
        place = normalize_path(self._place(path))
        other = found.setdefault(place, LabelRow(path, label, line))
        if class_key(other.label) != class_key(label):
            raise DataError(
                f"{self._line(line)}: {path} has the label {label!r} here, and {other.label!r} in line "
                f"{other.line}"
            )

    def place_of(self, row: LabelRow) -> str:
        """Return the path of a row's file, relative to the current folder like the table."""
        return str(Path(self._place(row.path)))

    def _place(self, path: str) -> str:
        root = self.path.parent if self.root is None else self.root
        return os.path.join(root, path)  # noqa: PTH118, as there may be millions

    def _line(self, number: int) -> str:
        return f"{self.path}, line {number}"


@dataclass(frozen=True, slots=True)
class LabelRow:
    path: str  # as in the table
    label: str  # empty if it has none
    line: int


@dataclass(frozen=True)
class Labels:
    table: Path
    by_place: Mapping[str, LabelRow]
    notes: Sequence[str] = ()

    def label_of(self, path: str) -> str | None:
        """Return the label; None if the table does not have the file, or no label for it."""
        found = self.by_place.get(normalize_path(path))
        return (found.label or None) if found else None

    def missing(self, paths: set[str]) -> list[str]:
        """Return the paths of the table that are not among these places."""
        return [row.path for place, row in self.by_place.items() if place not in paths]
