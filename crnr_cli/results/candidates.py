"""The best classes of the rows of a predictions CSV, by the residuals that it has."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Container
from pathlib import Path

from crnr_cli.system.csv_file import opened_csv

_RESIDUAL = "residual:"
_RANKED = re.compile(r"label_[1-9][0-9]*")


def read_candidates(path: Path, wanted: Container[int], count: int) -> tuple[dict[int, list[str]], list[str]]:
    """Of the wanted rows, counted from 0: the classes with the smallest residuals, the smallest first.

    And all classes that the header names.
    """
    with opened_csv(path) as reader:
        header = next(iter(reader), [])
        ranked = [i for i, name in enumerate(header) if _RANKED.fullmatch(name)][:count]
        by_class = [
            (i, name.removeprefix(_RESIDUAL)) for i, name in enumerate(header) if name.startswith(_RESIDUAL)
        ]
        found: dict[int, list[str]] = {}
        for number, row in enumerate(filter(None, reader)):
            if number in wanted:
                found[number] = [row[i] for i in ranked if row[i]] if ranked else _best(row, by_class, count)
        return found, [name for _, name in by_class]


def _best(row: list[str], by_class: list[tuple[int, str]], count: int) -> list[str]:
    residuals = ((float(row[i]), name) for i, name in by_class if row[i])
    return [name for _, name in heapq.nsmallest(count, (r for r in residuals if math.isfinite(r[0])))]
