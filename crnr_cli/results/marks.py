"""Read which samples of a CSV a person marked for removal."""

from __future__ import annotations

import csv
import stat
from collections.abc import Iterator
from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.system.names import existing
from crnr_cli.wording import counted

PATH, MARK = "path", "remove"
_YES = {"x", "yes", "y", "1", "true"}
_NO = {"", "no", "n", "0", "false"}


def marked_samples(path: Path) -> list[str]:
    """The names in the column `path` of all rows that are marked in the column `remove`, each once."""
    marked = list(dict.fromkeys(name for name, mark in _rows(path) if mark in _YES))
    if not marked:
        raise DataError(f"{path}: no row is marked; write x into the column {MARK} of the samples to remove")
    return marked


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the mark of every row."""
    if (found := existing(path)) is None:
        raise DataError(f"{path}: no such file")
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path}: is not a file; give the CSV that `crnr audit --csv` wrote")
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            header: list[str] = next(reader, [])
            if missing := [column for column in (PATH, MARK) if column not in header]:
                raise DataError(
                    f"{path}: no column {' or '.join(missing)}; was it written by `crnr audit --csv`?"
                )
            for row in filter(None, reader):
                yield _checked(row, header, f"{path}, line {reader.line_num}")
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (csv.Error, UnicodeError) as e:
        raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e


def _checked(row: list[str], header: list[str], where: str) -> tuple[str, str]:
    if len(row) != len(header):
        raise DataError(
            f"{where}: {counted(len(row), 'field')}, but the header has {len(header)}; is the file truncated?"
        )
    mark = row[header.index(MARK)].strip().lower()
    if mark not in _YES | _NO:
        raise DataError(f"{where}: the column {MARK} contains {mark!r}; write x, or leave it empty")
    return row[header.index(PATH)], mark
