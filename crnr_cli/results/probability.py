"""Calibrated probabilities of the classes, and label sets.

The probability of a class is proportional to its residual to the power of -s: a softmax of the negated
logarithms of the residuals, with a temperature of 1/s. For methods whose residuals are negated scores, it is
a softmax of the scores. The sharpness s makes the true classes of samples held out of the gallery most
probable. Logarithms suit all methods: on training data, a softmax of the residuals or of their squares was
about as good for crnr, but far worse for methods whose residuals have a wide range, such as crc.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crnr_cli.arrays import Array, Values, as_float64, map_values, row_minima, row_sums, take_columns
from crnr_cli.records import dataclass

if TYPE_CHECKING:
    from crnr_cli.results.taxa import BroaderClasses

DECIMALS = 4  # of written probabilities: more than a calibration by 1000 samples supports

_SHARPNESS = (1e-3, 1e5)  # least and most; between them, the order of the classes never changes
_PRECISION = 1e-7  # relative, to which the sharpness is found
_DIGITS = 6  # of the sharpness, so the last bits of the residuals do not matter


@dataclass(frozen=True)
class Calibrated:
    """The sharpness that turns residuals into probabilities."""

    sharpness: float
    of_truth: Array  # (n,): the probabilities of the true classes of held-out samples, ascending

    def can_exclude(self, level: float) -> bool:
        """Return whether there were enough held-out samples to exclude any label at this level."""
        return math.floor((1 - level) * (len(self.of_truth) + 1) + 1e-9) > 0

    def probabilities(self, residuals: Values, signed: bool = False) -> Values:
        """Return (m, K): each row sums to 1, and a smaller residual is a greater probability."""
        return _softmax(_distances(residuals, signed), self.sharpness)

    def least_probability(self, level: float) -> float:
        """Return the limit below which labels are excluded: so is the true one with probability 1 - level.

        This is split conformal prediction: a new value is below the k-th smallest of n with a probability of
        at most k / (n + 1), whatever the distribution. The result is 0, which excludes no label, if even k =
        1 is too many, and infinite, which excludes all, if not even k = n is enough.
        """
        n = len(self.of_truth)
        k = math.floor((1 - level) * (n + 1) + 1e-9)
        if k > n:
            return math.inf
        return float(self.of_truth[k - 1]) if k else 0.0


@dataclass(frozen=True)
class Thresholds:
    """The probabilities and sets to report for answers, and when a query is rejected."""

    certainty: Calibrated
    min_probability: float = 0.0  # a query whose best class is less probable is rejected
    least_in_set: float | None = None  # labels that are less probable are excluded; None: no label sets
    broader: BroaderClasses | None = None  # which answer instead of a rejection, if they are probable enough

    def in_sets(self, probabilities: Array) -> Array:
        """Return which labels are plausible; there may be none."""
        return np.asarray(probabilities >= (self.least_in_set or 0.0))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the CSV after the fixed ones."""
        of_sets = () if self.least_in_set is None else ("set",)
        return ("probability", *of_sets, *(("rank", "class_probability") if self.broader else ()))


def fit_probabilities(held_out: Sequence[tuple[Values, Array]], signed: bool = False) -> Calibrated:
    """Return the calibration from batches of held-out residuals (m, K) and true classes (m,).

    The negative log-likelihood of the true classes is minimised. As in Platt scaling, each target is 1 / (n +
    2) short of 1: a gallery that gets all of n samples right may still be wrong about the next.
    """
    batches = [(_distances(residuals, signed), truth) for residuals, truth in held_out]
    n = sum(len(truth) for _, truth in batches)
    n_others = max(1, batches[0][0].shape[1] - 1)
    doubt = 1 / (n + 2)
    wanted = 0.0
    for distances, truth in batches:
        of_truth = _column_per_row(distances, truth)
        others = (row_sums(distances) - of_truth) / n_others
        wanted += float(((1 - doubt) * of_truth + doubt * others).sum())

    def is_too_sharp(sharpness: float) -> bool:
        """Return whether the derivative is positive: the likelihood is convex in the sharpness."""
        return wanted >= sum(_expected_distance(distances, sharpness) for distances, _ in batches)

    low, high = _SHARPNESS
    while high > low * (1 + _PRECISION):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_too_sharp(middle) else (middle, high)
    sharpness = float(f"{high:.{_DIGITS}g}")
    found = [_column_per_row(_softmax(distances, sharpness), truth) for distances, truth in batches]
    return Calibrated(sharpness, np.sort(np.concatenate(found)))


def round_probabilities(probabilities: Array) -> Array:
    """Return probabilities as written."""
    return probabilities.round(DECIMALS)


def logarithms(residuals: Array) -> Array:
    """Return the logarithms; a residual of 0, of a copy, becomes the smallest positive number."""
    return np.asarray(np.log(np.maximum(as_float64(residuals), np.finfo(np.float64).tiny)))


def _distances(residuals: Values, signed: bool) -> Values:
    """Return (m, K): how much worse every class is than the best one."""
    values = map_values(as_float64 if signed else logarithms, residuals)
    best = row_minima(values)[:, np.newaxis]
    return map_values(lambda value: value - best, values)


def _softmax(distances: Values, sharpness: float) -> Values:
    weights = map_values(lambda distance: np.exp(-sharpness * distance), distances)
    sums = row_sums(weights)[:, np.newaxis]
    return map_values(lambda weight: weight / sums, weights)


def _expected_distance(distances: Values, sharpness: float) -> float:
    """Return the sum over all rows of the mean distance, weighted by the probabilities."""
    sums = row_sums(map_values(lambda distance: np.exp(-sharpness * distance), distances))[:, np.newaxis]
    products = map_values(lambda distance: np.exp(-sharpness * distance) / sums * distance, distances)
    return float(products.sum() if isinstance(products, np.ndarray) else row_sums(products).sum())


def _column_per_row(values: Values, columns: Array) -> Array:
    """Return (m,): one class's number from each row."""
    return take_columns(values, columns[:, np.newaxis])[:, 0]
