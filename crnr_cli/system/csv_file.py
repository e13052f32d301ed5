"""Open a CSV that a person or another program may have written."""

from __future__ import annotations

import csv
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from crnr_cli.errors import DataError
from crnr_cli.system.names import existing
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import counted


class Rows(Protocol):
    """A reader of the csv module."""

    @property
    def line_num(self) -> int: ...
    def __iter__(self) -> Iterator[list[str]]: ...
    def __next__(self) -> list[str]: ...


@contextmanager
def opened_csv(path: Path, delimiter: str = ",") -> Iterator[Rows]:
    """What cannot be read is a DataError that names the file and the line; so is a bad row."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True, delimiter=delimiter)
            try:
                yield reader
            except (csv.Error, ValueError, IndexError) as e:
                raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def require_file(path: Path, remedy: str) -> None:
    """Refuse what is missing, and what is not a file: a pipe would make us wait. Nothing may overwrite it."""
    found = existing(path)
    if found is None:
        raise DataError(f"{path}: no such file; {remedy}")
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: is not a file; {remedy}")
    refuse_inputs([path])


def records(path: Path, columns: tuple[str, ...], remedy: str) -> Iterator[tuple[list[str], str, int]]:
    """The fields of every row in these columns, the place of the row for messages, and its line.

    The remedy is for a file without one of these columns; it may have others.
    """
    with opened_csv(path) as reader:
        header = next(iter(reader), [])
        if missing := [column for column in columns if column not in header]:
            raise DataError(f"{path}: no column {' or '.join(missing)}; {remedy}")
        if twice := [column for column in columns if header.count(column) > 1]:
            raise DataError(f"{path}: has two columns {twice[0]}; remove one")
        places = [header.index(column) for column in columns]
        for row in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(header):
                raise DataError(
                    f"{where}: {counted(len(row), 'field')}, but the header has {len(header)}; "
                    "is the file truncated?"
                )
            yield [row[place] for place in places], where, reader.line_num
