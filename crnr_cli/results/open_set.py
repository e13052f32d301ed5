"""How well outsiders, inputs that belong to no class, are distinguished from the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.results.decision import UNKNOWN, Prediction
from crnr_cli.results.scores import Interval, wilson


@dataclass(frozen=True)
class OpenSet:
    outsiders: int  # inputs that are known to belong to no class, and could be read
    rejected: int  # of these
    failed: int  # outsiders that could not be read, and are neither answered nor rejected
    answers: int  # inputs that are labelled as a class, outsiders among them
    correct: int  # of these
    auroc: float | None  # of `separation`; None if rows have none, or there is nothing to compare with
    auroc_of_probability: float | None

    @property
    def share(self) -> float | None:
        """Of the outsiders that were rejected."""
        return self.rejected / self.outsiders if self.outsiders else None

    @property
    def interval(self) -> Interval | None:
        return wilson(self.rejected, self.outsiders) if self.outsiders else None

    @property
    def accuracy(self) -> float | None:
        """The share of the answers that are right; an answer to an outsider is wrong."""
        return self.correct / self.answers if self.answers else None

    @property
    def accuracy_interval(self) -> Interval | None:
        return wilson(self.correct, self.answers) if self.answers else None


def is_outsider(row: Prediction) -> bool:
    return row.truth == UNKNOWN


def open_set(rows: Sequence[Prediction]) -> OpenSet | None:
    """None if no row is of an outsider."""
    outsiders = [row for row in rows if is_outsider(row)]
    if not outsiders:
        return None
    readable = [row for row in outsiders if row.label]
    labelled = [row for row in rows if row.truth and row.label and row.label != UNKNOWN]
    others = [row for row in rows if row.truth and not is_outsider(row)]
    return OpenSet(
        outsiders=len(readable),
        rejected=sum(row.label == UNKNOWN for row in readable),
        failed=len(outsiders) - len(readable),
        answers=len(labelled),
        correct=sum(row.label == row.truth for row in labelled),
        auroc=auroc(_known(row.separation for row in others), _known(row.separation for row in outsiders)),
        auroc_of_probability=auroc(
            _known(row.probability for row in others), _known(row.probability for row in outsiders)
        ),
    )


def auroc(others: Array, outsiders: Array) -> float | None:
    """The probability that an outsider has a smaller value than another input; a tie counts as half."""
    if not len(others) or not len(outsiders):
        return None
    ordered = np.sort(others)
    not_larger = np.searchsorted(ordered, outsiders, side="right")
    smaller = np.searchsorted(ordered, outsiders)
    pairs = len(others) * len(outsiders)
    return float((2 * pairs - (not_larger + smaller).sum()) / (2 * pairs))


def _known(values: Iterable[float | None]) -> Array:
    return np.array([value for value in values if value is not None])
