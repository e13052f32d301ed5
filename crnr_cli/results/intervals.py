"""95 % confidence intervals of macro recall and macro F1.

They cover the scores that the classifier would have on very many queries, with the class shares of these
queries and the same probability of every confusion. That is not the mean of the scores of test sets of this
size: with few queries per class, macro F1 is on average smaller than in the limit, by more than its standard
deviation if there are many classes. (Macro precision has no interval: it leaves out classes that no query was
labelled as, and chance decides which classes these are.)

Variance and bias come from a Taylor expansion of the score in the counts of right and wrong answers (the
delta method: Takahashi et al., Applied Intelligence 52, 2022, here with the number of queries per class taken
as given). The counts are first smoothed, because a class whose two queries are both right is not known to be
perfect. The interval is Wilson's for a share, with the number of queries that gives a share this variance.
`benchmarks/intervals.py` measures how often such intervals contain the true score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.results.scores import Interval, Scores, wilson_interval

_PRIOR = 0.5  # weight of the smoothing, in queries per class


@dataclass(frozen=True)
class MacroIntervals:
    """None where the score itself is None."""

    recall: Interval | None
    f1: Interval | None


class _Expansion(NamedTuple):
    """A score of every class, and its derivatives by its right answers (h) and its false labels (f)."""

    value: Array
    dh: Array
    df: Array
    dhh: Array
    dff: Array


@dataclass(frozen=True)
class _Counts:
    """Smoothed counts: every class is mixed with a class that has the mean accuracy and uniform errors."""

    support: Array  # (K,), as observed
    own: Array  # (K,): the weight of a class's own answers in the mixture
    pooled: float  # the accuracy of the other part
    rows: Array  # the observed cells of the confusion matrix: truth, label, count
    columns: Array
    counts: Array

    @classmethod
    def of(cls, scores: Scores) -> _Counts:
        support = np.array([score.support for score in scores.classes], dtype=float)
        rows, columns, counts = scores.cells.T
        pooled = (scores.correct + 0.5) / (scores.n + 1)
        return cls(support, support / (support + _PRIOR), pooled, rows, columns, counts.astype(float))

    @property
    def others(self) -> float:
        """The probability of each wrong label in the other part."""
        return (1 - self.pooled) / max(1, len(self.support) - 1)

    @property
    def correction(self) -> Array:
        """The factor, (K,), that corrects variances: they are too small in a sample, less so in a mixture."""
        return 1 / (1 - self.support / np.square(self.support + _PRIOR))

    def hits(self) -> Array:
        right = self.rows == self.columns
        hits = np.bincount(self.rows[right], self.counts[right], len(self.support))
        mixed: Array = self.own * hits + (1 - self.own) * self.pooled * self.support
        return mixed

    def false_labels(self) -> Array:
        wrong = self.rows != self.columns
        own = self.own[self.rows[wrong]] * self.counts[wrong]
        spread = (1 - self.own) * self.support * self.others
        mixed: Array = np.bincount(self.columns[wrong], own, len(self.support)) + spread.sum() - spread
        return mixed

    def variance(self, dh: Array, df: Array) -> float:
        """Return the variance of the sum over queries of `dh` of right answers and `df` of wrong labels."""
        effect = np.where(self.rows == self.columns, dh[self.columns], df[self.columns])
        means = []
        for power in (1, 2):
            seen = np.bincount(self.rows, self.counts * effect**power, len(self.support))
            observed = np.divide(seen, self.support, out=np.zeros(len(seen)), where=self.support > 0)
            wrong = (df**power).sum() - df**power
            means.append(
                self.own * observed + (1 - self.own) * (self.pooled * dh**power + self.others * wrong)
            )
        spread = np.maximum(0.0, means[1] - np.square(means[0]))
        return float((self.support * spread * self.correction).sum())


def macro_intervals(scores: Scores) -> MacroIntervals:
    """Return the intervals; each lies within 0 and 1, and contains its score."""
    if not scores.n:
        return MacroIntervals(None, None)
    counts = _Counts.of(scores)
    everywhere = np.ones(len(counts.support), dtype=bool)
    macro = scores.macro
    return MacroIntervals(
        _interval(macro.recall, counts, _recall, counts.support > 0, scores.n),
        _interval(macro.f1, counts, _f1, everywhere, scores.n),
    )


def _interval(
    value: float | None,
    counts: _Counts,
    expand: Callable[[Array, Array, Array], _Expansion],
    defined: Array,
    n: int,
) -> Interval | None:
    """Return the interval of a score, which is the mean over the classes in `defined`."""
    if value is None:
        return None
    hits, false_labels = counts.hits(), counts.false_labels()
    # Classes for which the score is undefined have no part in it, whatever the expansion gives for them.
    with np.errstate(divide="ignore", invalid="ignore"):
        expanded = expand(counts.support, hits, false_labels)
        means = _Expansion(*(np.where(defined, part, 0) / defined.sum() for part in expanded))
        rates = np.where(counts.support > 0, hits / counts.support, 0)
    variance = counts.variance(means.dh, means.df)
    of_hits = hits * (1 - rates) * counts.correction
    bias = float((means.dhh * of_hits + means.dff * false_labels).sum()) / 2
    centre = min(1.0, max(0.0, value - bias))
    smooth = float(means.value.sum())
    effective = smooth * (1 - smooth) / variance if variance > 0 and 0 < smooth < 1 else n
    low, high = wilson_interval(centre * effective, effective)
    return min(low, value), max(high, value)


def _recall(support: Array, h: Array, f: Array) -> _Expansion:
    zero = np.zeros_like(h)
    return _Expansion(h / support, 1 / support, zero, zero, zero)


def _f1(support: Array, h: Array, f: Array) -> _Expansion:
    d = support + h + f
    return _Expansion(
        2 * h / d, 2 * (support + f) / d**2, -2 * h / d**2, -4 * (support + f) / d**3, 4 * h / d**3
    )
