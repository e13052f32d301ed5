"""One column of numbers of a predictions CSV."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from crnr_cli.errors import DataError


def read_numbers(path: Path, column: str, remedy: str) -> list[float | None]:
    """Of every row; None where there is no number. The remedy is for a CSV without this column."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if column not in header:
                raise DataError(f"{path}: no column {column}; {remedy}")
            where = header.index(column)
            return [_number(row[where]) for row in reader if row]
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (csv.Error, ValueError, IndexError) as e:
        raise DataError(f"{path}, line {reader.line_num}: not readable as CSV ({e})") from e


def _number(text: str) -> float | None:
    value = float(text) if text else math.nan
    return value if math.isfinite(value) else None
