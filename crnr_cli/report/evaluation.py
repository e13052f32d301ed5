"""Scores become what a page shows of them: cards, the cells of the matrix, classes and mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.report.names import as_text
from crnr_cli.results.decision import UNKNOWN, Prediction
from crnr_cli.results.scores import Scores, most_confused

MISTAKES = 2000  # listed in the page, at most
PICTURES = 60  # embedded, at most
WORST = 24  # shown by themselves
PAIRS = 12


@dataclass(frozen=True)
class Card:
    name: str
    share: float | None
    interval: tuple[float, float] | None
    note: str


def matrix_cells(scores: Scores) -> list[dict[str, Any]]:
    """The cells that are not empty; `strength` (0 to 1) is their depth of colour."""
    floor = 0.25 if len(scores.classes) <= 30 else 0.45  # small cells need more of it
    support = scores.confusion.sum(axis=1)
    cells = []
    for i, j in np.argwhere(scores.confusion > 0).tolist():
        count = int(scores.confusion[i, j])
        share = count / int(support[i])
        # The root, and a floor: a single mistake among hundreds must still be seen.
        cells.append(
            {"row": i, "column": j, "count": count, "strength": round(floor + (1 - floor) * share**0.5, 3)}
        )
    return cells


def mistake_records(
    mistakes: Sequence[Prediction], names: Sequence[str], uris: Mapping[str, str], folder: str
) -> list[dict[str, Any]]:
    """What the page's script knows of each mistake; classes by their place in `names`."""
    place = {name: i for i, name in enumerate(names)}
    return [
        {
            "path": as_text(row.path.removeprefix(folder)),
            "truth": place[row.truth or ""],
            "label": place[row.label or ""],
            "margin": row.margin,
            "picture": uris.get(row.path),
        }
        for row in mistakes[:MISTAKES]
    ]


def pictured(mistakes: Sequence[Prediction]) -> list[str]:
    """The paths whose pictures are worth their place: the worst, then one of each kind of mistake."""
    first: dict[tuple[str | None, str | None], str] = {}
    for row in mistakes:
        first.setdefault((row.truth, row.label), row.path)
    paths = [row.path for row in mistakes[:WORST]] + list(first.values()) + [row.path for row in mistakes]
    return list(dict.fromkeys(paths))[:PICTURES]


def pairs(scores: Scores) -> list[dict[str, Any]]:
    place = {score.name: i for i, score in enumerate(scores.classes)}
    return [
        {"row": place[truth], "column": place[label], "truth": truth, "label": label, "count": count}
        for truth, label, count in most_confused(scores)[:PAIRS]
    ]


def histogram(rows: Sequence[Prediction], bins: int = 20) -> list[dict[str, Any]] | None:
    """How many answers were right and wrong at each margin, from 0, or less where another program says so."""
    known = [row for row in rows if row.truth and row.label not in (None, UNKNOWN) and row.margin is not None]
    if not known:
        return None
    margins: Array = np.array([row.margin for row in known])
    right = np.array([row.truth == row.label for row in known])
    edges = np.linspace(min(0.0, float(margins.min())), max(float(margins.max()), 1e-9), bins + 1)
    of_right, of_wrong = (np.histogram(margins[part], edges)[0].tolist() for part in (right, ~right))
    most = max(a + b for a, b in zip(of_right, of_wrong, strict=True))
    return [
        {
            "low": float(edges[i]),
            "high": float(edges[i + 1]),
            "right": of_right[i],
            "wrong": of_wrong[i],
            "right_height": of_right[i] / most,
            "wrong_height": of_wrong[i] / most,
        }
        for i in range(bins)
    ]
