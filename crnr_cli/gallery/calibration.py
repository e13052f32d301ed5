"""When to say "none of these": a threshold learnt from samples that are left out of the gallery.

The criterion is 1 minus the ratio of the best class's residual to the mean of the others: how far the best
class stands out. A query of no class is explained about equally badly by all of them. (The margin compares
with the second best only; it separates two similar classes, but does not reveal a stranger.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Samples
from crnr_cli.methods.folds import Fold, stratified_folds
from crnr_cli.results.decision import standout

FOLDS = 20  # many, so that the answering gallery is nearly whole: with 5, up to half too many were rejected
ENOUGH = 1000  # left-out samples: then the rate is known to about one percent


@dataclass(frozen=True)
class Calibration:
    """How far the best class stood out for samples that were classified without themselves in the gallery."""

    standouts: Array  # ascending
    origin: str  # how they were obtained, for people

    def least_standout(self, rate: float) -> float:
        """Queries of the gallery's classes fall below it with a chance of at most `rate`.

        The k-th smallest of n values has a share of k / (n + 1) of new ones below it, whatever their
        distribution; 0, which rejects nothing, if even the smallest has too large a share.
        """
        n = len(self.standouts)
        k = min(n, math.floor(rate * (n + 1) + 1e-9))
        return float(self.standouts[k - 1]) if k else 0.0

    def rule(self, rate: float) -> str:
        least = self.least_standout(rate)
        return f"the best class stands out by less than {least:.4g}, as do {100 * rate:g} % of {self.origin}"


def calibrate(samples: Samples, method: Method) -> Calibration:
    """Leave out a part of every class and classify it by the rest, until there are enough answers."""
    class_index = samples.class_index
    count = max(FOLDS, -(-len(class_index) // ENOUGH))
    fold_of = stratified_folds(class_index, count)
    found: list[Array] = []
    for fold in range(count):
        held_back = fold_of == fold
        if held_back.any():
            residuals = Fold.split(samples.vectors, class_index, held_back).residuals(method)
            found.append(standout(residuals, method.signed))
        if sum(map(len, found)) >= ENOUGH:
            break
    if not found:
        raise DataError("every class has only one sample: none can be left out to learn when to reject")
    answered = np.sort(np.concatenate(found))
    origin = f"{len(answered)} gallery samples, classified with 1/{count} of the gallery left out at a time"
    return Calibration(answered, origin)
