"""How commands format numbers, and how they write tables as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from crnr_cli.system.files import replacing

    with (
        replacing(path) as part,
        part.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def share(value: float | None, interval: tuple[float, float] | None) -> str:
    return f"{number(value)}  (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else "n/a"


def number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4f}"
