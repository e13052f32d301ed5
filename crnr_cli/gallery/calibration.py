"""When to reject a query: a threshold learnt from samples that are held out of the gallery.

The criterion is 1 minus the ratio of the best class's residual to the mean of the others: how far the best
class stands out. A query of no class is represented about equally badly by all of them. (The margin compares
the best class with the second best only: it separates two similar classes, but does not detect such a query.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Samples
from crnr_cli.methods.folds import Fold, stratified_folds
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import standout
from crnr_cli.wording import counted

_FOLDS = 20  # many, so that each gallery is nearly complete: with 5, up to half too many were rejected
_ENOUGH = 1000  # held-out samples, to know the rate to about one percent


@dataclass(frozen=True)
class Calibration:
    """How far the best class stood out for samples that were held out of the gallery and classified by it."""

    standouts: Array  # ascending
    origin: str  # how they were obtained, as text

    def min_standout(self, rate: float) -> float:
        """A threshold: queries of the gallery's classes are below it with a probability of at most `rate`.

        A new value is below the k-th smallest of n with a probability of k / (n + 1), whatever the
        distribution. The result is 0, which rejects nothing, if even k = 1 exceeds the rate.
        """
        n = len(self.standouts)
        k = min(n, math.floor(rate * (n + 1) + 1e-9))
        return float(self.standouts[k - 1]) if k else 0.0

    def rule(self, rate: float) -> str:
        limit = self.min_standout(rate)
        return f"the best class stands out by less than {limit:.4g}, as for {100 * rate:g} % of {self.origin}"


def calibrate(samples: Samples, method: Method, progress: Progress = silent) -> Calibration:
    """Hold out a part of every class and classify it by the rest, until there are enough values."""
    class_index = samples.class_index
    count = max(_FOLDS, -(-len(class_index) // _ENOUGH))
    fold_of = stratified_folds(class_index, count)
    found: list[Array] = []
    enough = min(_ENOUGH, len(class_index))
    progress("calibrating", 0, enough)
    for fold in range(count):
        held_out = fold_of == fold
        if held_out.any():
            residuals = Fold.of(samples.vectors, class_index, held_out).residuals(method)
            found.append(standout(residuals, method.signed))
            progress("calibrating", min(enough, sum(map(len, found))), enough)
        if sum(map(len, found)) >= _ENOUGH:
            break
    if not found:
        raise DataError("every class has only one sample: rejecting queries needs at least two in some class")
    standouts = np.sort(np.concatenate(found))
    origin = (
        f"{counted(len(standouts), 'gallery sample')}, "
        f"classified with 1/{count} of the gallery left out at a time"
    )
    return Calibration(standouts, origin)
