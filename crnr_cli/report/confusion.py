"""The confusion matrix of a page: which classes are in it, its cells, and what is confused most often."""

from __future__ import annotations

from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.results.scores import Scores, most_confused

MANY_CLASSES = 1000  # with more, the matrix has only those that are confused most often
_IN_MATRIX = 50  # if there are many
_PAIRS = 12  # listed beside the matrix


def matrix_classes(scores: Scores) -> Array:
    """The classes in the matrix, ascending: all of them or, if they are many, those confused most often."""
    n_classes = len(scores.classes)
    if n_classes <= MANY_CLASSES:
        return np.arange(n_classes)
    wrong = scores.cells[scores.cells[:, 0] != scores.cells[:, 1]]
    listed = wrong[np.argsort(-wrong[:, 2], kind="stable")][:_PAIRS]
    # Of equally frequent mistakes, those of classes that have most of them in all.
    mistakes = np.bincount(wrong[:, :2].ravel(), np.repeat(wrong[:, 2], 2), n_classes)
    order = np.lexsort((-mistakes[wrong[:, :2]].sum(axis=1), -wrong[:, 2]))[:_IN_MATRIX]
    chosen = dict.fromkeys([*listed[:, :2].ravel().tolist(), *wrong[order, :2].ravel().tolist()])
    return np.sort(np.array(list(chosen)[:_IN_MATRIX], dtype=np.int64))


def matrix_cells(scores: Scores, in_matrix: Array) -> list[dict[str, Any]]:
    """The non-empty cells; `strength` (0 to 1) is the opacity of their colour."""
    floor = 0.25 if len(in_matrix) <= 30 else 0.45  # small cells need a stronger colour
    queries = answered(scores)[in_matrix]
    placed = scores.cells.copy()
    placed[:, :2] = _places(scores, in_matrix)[placed[:, :2]]
    cells = []
    for i, j, count in placed[(placed[:, :2] >= 0).all(axis=1)].tolist():
        share = count / queries[i]
        # The square root and the floor keep a single mistake among hundreds visible.
        cells.append(
            {"row": i, "column": j, "count": count, "strength": round(floor + (1 - floor) * share**0.5, 3)}
        )
    return cells


def pairs(scores: Scores, in_matrix: Array) -> list[dict[str, Any]]:
    place = {scores.classes[k].name: i for i, k in enumerate(in_matrix.tolist())}
    return [
        {"row": place[truth], "column": place[label], "truth": truth, "label": label, "count": count}
        for truth, label, count in most_confused(scores)[:_PAIRS]
    ]


def answered(scores: Scores) -> Array:
    """(K,): the number of queries of each true class."""
    return np.bincount(scores.cells[:, 0], scores.cells[:, 2], len(scores.classes)).astype(np.int64)


def _places(scores: Scores, in_matrix: Array) -> Array:
    """(K,): the place of every class in the matrix; -1 if it is not there."""
    places = np.full(len(scores.classes), -1)
    places[in_matrix] = np.arange(len(in_matrix))
    return places


def layout(k: int) -> dict[str, Any]:
    """The layout of the matrix: with many classes, counts and then names are left out."""
    density = "few" if k <= 14 else "several" if k <= 26 else "many" if k <= 50 else "crowded"
    return {
        "density": density,
        "name_size": 13 if k <= 14 else 12 if k <= 26 else 10,
        "gap": 0.06 if k <= 30 else 0.1,
        "matrix_width": f"{max(20, min(48, 5 + 4 * k))}rem",
    }
