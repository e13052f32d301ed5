"""How commands format numbers, and how they write tables as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from crnr_cli.system.files import replacing

    with replacing(path) as file:
        writer = csv.writer(_Encoded(file), lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def print_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Row by row, so that a long table needs no memory."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)


class _Encoded:
    """Text is written as UTF-8; names that are not UTF-8 are written as the bytes that were read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(text.encode("utf-8", "surrogateescape"))


def share(value: float | None, interval: tuple[float, float] | None) -> str:
    return f"{number(value)}  (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else "n/a"


def number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"
