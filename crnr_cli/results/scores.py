"""Accuracy, precision, recall, F1 and the confusion matrix, from the true classes and the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array

_Z95 = 1.959963984540054  # a normal variable is within this many standard deviations in 95 % of cases


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class. Precision is None if no query has the label, recall if none has the truth."""

    name: str
    support: int  # queries whose true class this is
    precision: float | None
    recall: float | None
    f1: float


@dataclass(frozen=True)
class Average:
    """The mean over the classes for which a score is defined; None if there are none."""

    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Scores:
    n: int
    correct: int
    macro: Average
    weighted: Average
    classes: list[ClassScore]  # every class that is the truth or the label of a query, in name order
    confusion: Array  # (K, K) counts: rows are truth, columns are labels

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return wilson(self.correct, self.n) if self.n else None


def score(truths: Sequence[str], labels: Sequence[str]) -> Scores:
    names = sorted({*truths, *labels})
    position = {name: i for i, name in enumerate(names)}
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, ([position[t] for t in truths], [position[p] for p in labels]), 1)
    hits, support, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall = _ratio(hits, predicted), _ratio(hits, support)
    f1 = _ratio(2 * hits, predicted + support)
    return Scores(
        n=len(truths),
        correct=int(hits.sum()),
        macro=_average(precision, recall, f1, np.ones(len(names))),
        weighted=_average(precision, recall, f1, support.astype(float)),
        classes=[
            ClassScore(name, int(support[i]), _defined(precision[i]), _defined(recall[i]), float(f1[i]))
            for i, name in enumerate(names)
        ],
        confusion=confusion,
    )


def wilson(successes: float, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion, which is always within 0 and 1."""
    share, z2 = successes / n, _Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def macro_intervals(scores: Scores, draws: int = 1000) -> tuple[tuple[float, float], tuple[float, float]]:
    """95 % intervals of macro recall and macro F1, by bootstrap over the queries."""
    rows, columns = np.nonzero(scores.confusion)
    counts = scores.confusion[rows, columns]
    drawn = np.random.default_rng(0).multinomial(scores.n, counts / scores.n, size=draws)
    k = len(scores.classes)
    hits, support, predicted = np.zeros((draws, k)), np.zeros((draws, k)), np.zeros((draws, k))
    for cell, (i, j) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        support[:, i] += drawn[:, cell]
        predicted[:, j] += drawn[:, cell]
        if i == j:
            hits[:, i] = drawn[:, cell]
    recall = _mean_of_defined(hits, support)
    f1 = _mean_of_defined(2 * hits, support + predicted)
    (r_low, r_high), (f_low, f_high) = (np.quantile(v, [0.025, 0.975]).tolist() for v in (recall, f1))
    return (r_low, r_high), (f_low, f_high)


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p value of McNemar's exact test, from the queries that only one of two methods got right.

    It is the probability of a split at least this uneven if both methods were equally good.
    """
    from scipy.special import bdtr  # slow to import, and only comparisons need it

    n = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), n, 0.5)))


def most_confused(scores: Scores) -> list[tuple[str, str, int]]:
    """(truth, label, count) of every kind of mistake, the most frequent first."""
    wrong = scores.confusion - np.diag(scores.confusion.diagonal())
    pairs = [
        (scores.classes[i].name, scores.classes[j].name, int(wrong[i, j])) for i, j in np.argwhere(wrong > 0)
    ]
    return sorted(pairs, key=lambda pair: -pair[2])


def _ratio(part: Array, whole: Array) -> Array:
    ratio: Array = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return ratio


def _mean_of_defined(part: Array, whole: Array) -> Array:
    """The mean of part/whole along each row, where it is defined."""
    ratio = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    mean: Array = ratio.sum(axis=1) / (whole > 0).sum(axis=1)
    return mean


def _average(precision: Array, recall: Array, f1: Array, weights: Array) -> Average:
    return Average(*(_weighted_mean(values, weights) for values in (precision, recall, f1)))


def _weighted_mean(values: Array, weights: Array) -> float | None:
    defined = ~np.isnan(values)
    total = weights[defined].sum()
    return float(values[defined] @ weights[defined] / total) if total > 0 else None


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
