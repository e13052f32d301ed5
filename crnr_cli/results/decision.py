"""Residuals become decisions: the best classes, the margin between them, and when none is good enough."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import SampleError

OK = "ok"


REJECTED = "rejected"


UNKNOWN = "unknown"  # the label of a query that is none of the classes; no class may be called so


@dataclass(frozen=True)
class Answers:
    """A batch of queries with their answers. `residuals` has a row for each query without an error."""

    paths: list[str]
    truths: list[str | None]
    errors: list[SampleError | None]
    residuals: Array  # (m, K)
    least_standout: float = 0.0  # a query whose best class stands out less is rejected
    signed: bool = False  # residuals are minus scores, and can be below 0


class Prediction(NamedTuple):
    """One row of the CSV, but for the residuals of the classes."""

    path: str
    truth: str | None
    label: str | None  # None where there is no answer
    residual: float | None
    runner_up: str | None
    margin: float | None
    status: str


def predictions(answers: Answers, classes: Sequence[str]) -> Iterator[Prediction]:
    """Who won each query, and by how much. Ties go to the first class in name order."""
    rows = np.arange(len(answers.residuals))
    order = best_classes(answers.residuals, 2)
    best, second = answers.residuals[rows, order[:, 0]], answers.residuals[rows, order[:, 1]]
    winners = zip(order.tolist(), best.tolist(), margins(best, second, answers.signed).tolist(), strict=True)
    rejected = iter(_rejected(answers))
    for path, truth, error in zip(answers.paths, answers.truths, answers.errors, strict=True):
        if error is not None:
            yield Prediction(path, truth, None, None, None, None, error.status)
        else:
            (first, next_best), residual, margin = next(winners)
            if next(rejected):
                # The best guess stands in for the runner-up.
                yield Prediction(path, truth, UNKNOWN, residual, classes[first], margin, REJECTED)
                continue
            yield Prediction(path, truth, classes[first], residual, classes[next_best], margin, OK)


def best_classes(residuals: Array, count: int) -> Array:
    """(m, count): the classes with the least residuals, the least first; of equal ones the first by name."""
    m, n_classes = residuals.shape
    if 8 * count > n_classes:
        return np.argsort(residuals, axis=1, kind="stable")[:, :count]
    rows, rest = np.arange(m), residuals.copy()  # few of many: quicker than to sort all
    order = np.empty((m, count), np.intp)
    for i in range(count):
        rest.argmin(axis=1, out=order[:, i])
        rest[rows, order[:, i]] = np.inf
    return order


def margins(best: Array, second: Array, signed: bool = False) -> Array:
    """1 - best/second: 0 is a tie, 1 a perfect match.

    Where residuals are minus scores, a ratio says nothing, and the margin is 1 - exp(best - second): again 0
    for a tie and towards 1 the farther the two are apart. For softmax with three classes or more that is
    1 less the ratio of the two probabilities.
    """
    best, second = best.astype(np.float64), second.astype(np.float64)
    if signed:
        return np.asarray(-np.expm1(best - second))
    return 1 - np.divide(best, second, out=np.ones_like(best), where=second != 0)


def _rejected(answers: Answers) -> list[bool]:
    if answers.least_standout <= 0:
        return [False] * len(answers.residuals)
    return (standout(answers.residuals, answers.signed) < answers.least_standout).tolist()  # type: ignore[no-any-return]


def standout(residuals: Array, signed: bool = False) -> Array:
    """The margin to the mean of the other classes, (m,): how far the best one stands out from the rest."""
    residuals = residuals.astype(np.float64)
    best = residuals.min(axis=1, initial=np.inf)
    others = (residuals.sum(axis=1) - best) / max(1, residuals.shape[1] - 1)
    return margins(best, others, signed)
