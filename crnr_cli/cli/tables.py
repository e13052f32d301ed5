"""How commands format numbers, and how they write tables as CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a file as UTF-8; names that are not UTF-8 are written as the bytes that were read."""
    from crnr_cli.system.csv_file import write_rows
    from crnr_cli.system.files import replacing

    with replacing(path) as file:
        write_rows(lambda line: file.write(line.encode("utf-8", "surrogateescape")), chain([header], rows))


def print_csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from crnr_cli.system.csv_file import write_rows

    write_rows(sys.stdout.write, chain([header], rows))


def share(value: float | None, interval: tuple[float, float] | None) -> str:
    return f"{number(value)}  (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else "n/a"


def number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"
