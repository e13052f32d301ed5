"""Measure whether probabilities are right: of the answers with 80 %, four in five should be correct.

The expected calibration error is the mean, over all answers, of the distance between the mean probability and
the share of right answers in the bin of the answer. Bins hold about the same number of answers: an answer is
in bin floor(B r / n) if r of n answers have a smaller probability, so that equal ones share a bin. There are
B = 15 bins, or fewer if they would hold fewer than 20 answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.results.decision import BROADER, UNKNOWN, Prediction
from crnr_cli.results.scores import Interval, guess_probability, wilson_interval

_BINS = 15
_PER_BIN = 20  # at least
_RESAMPLES = 1000
_MOST_DRAWN = 20_000_000  # rows in all resamples together; with more rows, there are fewer resamples
_FEWEST_RESAMPLES = 100


@dataclass(frozen=True)
class Bin:
    count: int
    low: float  # the smallest probability in it
    high: float
    probability: float  # mean
    accuracy: float
    interval: Interval  # of the accuracy


@dataclass(frozen=True)
class Reliability:
    n: int  # answers with a probability and a true class
    error: float  # expected calibration error
    interval: Interval  # 95 %
    mean_probability: float
    accuracy: float
    bins: list[Bin]


@dataclass(frozen=True)
class SetScores:
    n: int  # rows with a set and a true class
    covered: int  # whose set contains the true class
    mean_size: float
    empty: int

    @property
    def coverage(self) -> float:
        return self.covered / self.n

    @property
    def interval(self) -> Interval:
        return wilson_interval(self.covered, self.n)


def best_guess(row: Prediction) -> str | None:
    """Return the best class: the label unless the query is rejected or has a broader answer."""
    return row.runner_up if row.label == UNKNOWN or row.status == BROADER else row.label


def measure_reliability(rows: Sequence[Prediction]) -> Reliability | None:
    """Return the reliability; None if no row has both a probability and a true class."""
    known = [row for row in rows if row.truth and guess_probability(row) is not None and best_guess(row)]
    if not known:
        return None
    probability = np.array(list(map(guess_probability, known)), dtype=np.float64)
    right = np.array([best_guess(row) == row.truth for row in known])
    bin_of = bin_indexes(probability)
    error, interval = calibration_error(probability, right, bin_of)
    return Reliability(
        n=len(known),
        error=error,
        interval=interval,
        mean_probability=float(probability.mean()),
        accuracy=float(right.mean()),
        bins=[_bin(probability[bin_of == i], right[bin_of == i]) for i in np.unique(bin_of)],
    )


def _bin(probability: Array, right: Array) -> Bin:
    n, n_right = len(right), int(right.sum())
    low, high = float(probability.min()), float(probability.max())
    return Bin(n, low, high, float(probability.mean()), n_right / n, wilson_interval(n_right, n))


def bin_indexes(probability: Array) -> Array:
    """Return (n,): the bin of every answer; some bins may be empty."""
    n = len(probability)
    count = max(1, min(_BINS, n // _PER_BIN))
    smaller = np.searchsorted(np.sort(probability), probability, side="left")
    return np.asarray(count * smaller // n)


def calibration_error(probability: Array, right: Array, bin_of: Array) -> tuple[float, Interval]:
    """Return the error and its 95 % interval, by the basic bootstrap.

    Chance alone makes the distances in the bins larger than they really are, and in a resample once more by
    about as much. The basic bootstrap, which mirrors the resampled errors at the observed one, corrects that.
    It is too narrow near 0. So the lower end is, in addition, at most the observed error minus one that is
    seldom exceeded (in 2.5 % of draws) if the probabilities are exactly right.
    """
    n, count = len(probability), int(bin_of.max()) + 1

    def error(bin_of: Array, excess: Array) -> float:
        return float(np.abs(np.bincount(bin_of, excess, count)).sum() / n)

    excess = probability - right
    value = error(bin_of, excess)
    rng = np.random.default_rng(0)
    resamples = max(_FEWEST_RESAMPLES, min(_RESAMPLES, _MOST_DRAWN // n))
    drawn, by_chance = np.empty((2, resamples))
    for i in range(resamples):
        rows = rng.integers(n, size=n)
        drawn[i] = error(bin_of[rows], excess[rows])
        by_chance[i] = error(bin_of, probability - (rng.random(n) < probability))
    smallest, largest = np.quantile(drawn, [0.025, 0.975]).tolist()
    low = min(2 * value - largest, value - float(np.quantile(by_chance, 0.975)))
    high = max(2 * value - smallest, value)
    return value, (max(0.0, low), min(1.0, high))


def score_sets(rows: Sequence[Prediction]) -> SetScores | None:
    """Return the scores of label sets; None if no row has both a set and a true class."""
    known = [(row.truth, row.set) for row in rows if row.truth and row.set is not None]
    if not known:
        return None
    return SetScores(
        n=len(known),
        covered=sum(truth in labels for truth, labels in known),
        mean_size=sum(len(labels) for _, labels in known) / len(known),
        empty=sum(not labels for _, labels in known),
    )
