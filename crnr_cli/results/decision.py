"""From residuals to decisions: the best classes, the margin between them, and rejection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from crnr_cli.arrays import (
    Array,
    Batch,
    FewClasses,
    Values,
    as_float64,
    map_values,
    row_minima,
    row_sums,
    take_columns,
    to_dense,
)
from crnr_cli.records import dataclass
from crnr_cli.results.probability import Thresholds, round_probabilities

OK = "ok"
REJECTED = "rejected"
BROADER = "broader"  # the label is an ancestor of classes, which `results.taxa` chooses
UNKNOWN = "unknown"  # the label of a rejected query; a class of this name is refused


class Nearest(NamedTuple):
    """A query that is similar to a sample of the gallery."""

    cosine: float
    query: str
    sample: int  # the nearest one


@dataclass(frozen=True)
class Answers:
    """The residuals of the classes for a batch of queries, and everything for the decision."""

    batch: Batch  # without values: the names of the queries, and why some failed
    residuals: Values  # (m, K), for the queries without an error
    truths: list[str | None]  # the true class of each query, or None
    min_separation: float = 0.0  # a query whose best class is less separate is rejected
    signed: bool = False  # residuals are negated scores, and can be below 0
    copies: list[str] = field(default_factory=list)  # queries that are also in the gallery, if looked for
    similar: list[Nearest] = field(default_factory=list)  # similar to a sample, if looked for; no copies
    sureness: Thresholds | None = None  # None if the gallery holds no probabilities

    @cached_property
    def probabilities(self) -> Values | None:
        """(m, K): the probabilities, for the queries without an error."""
        if self.sureness is None:
            return None
        return self.sureness.certainty.probabilities(self.residuals, self.signed)


class Prediction(NamedTuple):
    """One row of the CSV, without the residuals of the classes."""

    path: str
    truth: str | None
    label: str | None  # None if it failed
    residual: float | None
    runner_up: str | None
    margin: float | None
    status: str
    separation: float | None = None  # --reject compares this with its threshold
    probability: float | None = None  # that the label is right or, if it is unknown, the best class
    set: tuple[str, ...] | None = None  # the plausible labels, the best first
    date: str | None = None  # when the photograph was taken, if that was requested and is known
    rank: str | None = None  # the level of the label in a table of broader classes
    class_probability: float | None = None  # that the best class is right, if broader ones can be answers
    event: str | None = None  # the number of its event; this and the next are only read, from finished rows
    event_label: str | None = None


def make_predictions(answers: Answers, classes: Sequence[str]) -> list[Prediction]:
    """Return the winning class of each query, and the margin. Ties go to the first class in name order."""
    batch, truths = answers.batch, answers.truths
    found: list[Any] = [None] * len(batch.names)
    order = best_classes(answers.residuals, 2)
    best, second = take_columns(answers.residuals, order).T
    rows = batch.rows.tolist()
    separations = separation(answers.residuals, answers.signed)
    unsure, sureness = _apply_thresholds(answers, order[:, 0], classes)
    decided = zip(
        rows,
        order.tolist(),
        best.tolist(),
        margins(best, second, answers.signed).tolist(),
        separations.tolist(),
        (unsure | is_too_close(separations, answers.min_separation)).tolist(),
        sureness,
        strict=True,
    )
    for query, (first, next_best), residual, margin, separated, rejected, sure in decided:
        # For a rejected query, runner_up is the best class.
        label, runner_up = (UNKNOWN, classes[first]) if rejected else (classes[first], classes[next_best])
        status = REJECTED if rejected else OK
        found[query] = Prediction(
            batch.names[query], truths[query], label, residual, runner_up, margin, status, separated, *sure
        )
    for query, error in batch.failures():
        found[query] = Prediction(batch.names[query], truths[query], None, None, None, None, error.status)
    if batch.dates:
        found = [row._replace(date=date or None) for row, date in zip(found, batch.dates, strict=True)]
    broader = answers.sureness.broader if answers.sureness else None
    return broader.apply(found, answers) if broader else found


def best_classes(residuals: Values, count: int) -> Array:
    """Return (m, count): the classes with the smallest residuals, in this order; ties in name order."""
    if isinstance(residuals, FewClasses):
        return residuals.smallest(count)
    m, n_classes = residuals.shape
    if 8 * count > n_classes:
        return np.argsort(residuals, axis=1, kind="stable")[:, :count]
    rows, rest = np.arange(m), residuals.copy()  # for a few of many classes, this is faster than sorting
    order = np.empty((m, count), np.intp)
    for i in range(count):
        rest.argmin(axis=1, out=order[:, i])
        rest[rows, order[:, i]] = np.inf
    return order


def margins(best: Array, second: Array, signed: bool = False) -> Array:
    """Return 1 - best/second: 0 is a tie, 1 a perfect match.

    If residuals are negated scores, a ratio is meaningless, and the margin is 1 - exp(best - second): again
    0 for a tie, and closer to 1 the farther the two are apart. For softmax with three or more classes, this
    is 1 minus the ratio of the two probabilities.
    """
    best, second = best.astype(np.float64), second.astype(np.float64)
    if signed:
        return np.asarray(-np.expm1(best - second))
    return 1 - np.divide(best, second, out=np.ones_like(best), where=second != 0)


def is_too_close(separations: Array, limit: float) -> Array:
    """Return (m,): whether the best class is less separate than the limit."""
    # In the precision of the CSV, so that the decision can be repeated from the printed figures.
    return np.asarray(separations < separations.dtype.type(limit))


def _apply_thresholds(
    answers: Answers, best: Array, classes: Sequence[str]
) -> tuple[Array, list[tuple[Any, ...]]]:
    """Return (m,): which queries are too uncertain; and every query's probability and label set."""
    sureness, found = answers.sureness, answers.probabilities
    if sureness is None or found is None:
        return np.zeros(len(best), dtype=bool), [(None, None)] * len(best)
    # As written, so that the decision can be repeated from the printed figures.
    of_best = round_probabilities(take_columns(found, best[:, np.newaxis])[:, 0])
    sets: list[tuple[str, ...] | None] = [None] * len(best)
    if sureness.least_in_set is not None:
        for i in range(len(best)):
            row = slice(i, i + 1)
            members, residuals = _members(sureness, found[row], answers.residuals[row])
            order = members[np.argsort(residuals, kind="stable")]
            sets[i] = tuple(classes[k] for k in order.tolist())
    return of_best < sureness.min_probability, list(zip(of_best.tolist(), sets, strict=True))


def _members(sureness: Thresholds, found: Values, residuals: Values) -> tuple[Array, Array]:
    """Return the classes in the set of one row, in name order, and their residuals."""
    if isinstance(found, FewClasses) and not sureness.in_sets(found.others)[0]:
        members = found.classes[0][sureness.in_sets(found.values[0])]
    else:
        members = np.flatnonzero(sureness.in_sets(to_dense(found)[0]))
    return members, take_columns(residuals, members[np.newaxis])[0]


def separation(residuals: Values, signed: bool = False) -> Array:
    """Return (m,): the separation of the best class, in the precision of the residuals."""
    # Rounding can make a tie negative, and then a threshold of 0 would reject it.
    return np.maximum(standout(residuals, signed), 0).astype(residuals.dtype)


def standout(residuals: Values, signed: bool = False) -> Array:
    """Return (m,): the margin between the best class and the mean of the others."""
    residuals = map_values(as_float64, residuals)
    best = row_minima(residuals)
    others = (row_sums(residuals) - best) / max(1, residuals.shape[1] - 1)
    return margins(best, others, signed)
