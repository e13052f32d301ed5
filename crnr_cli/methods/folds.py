"""Cross-validation in stratified folds: each sample is labelled by the samples of the other folds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import Method, Samples, Split


def stratified_folds(class_index: Array, count: int, seed: int = 0) -> Array:
    """The fold of every sample, 0 to count - 1, with each class spread evenly over them.

    The only sample of a class gets -1: if it were held out, its class would be missing.
    """
    folds = np.full(len(class_index), -1)
    rng = np.random.default_rng(seed)
    dealt = 0
    for k in np.unique(class_index):
        members = rng.permutation(np.flatnonzero(class_index == k))
        if len(members) > 1:
            # Continue where the last class ended, so that all folds have about the same size.
            folds[members] = (dealt + np.arange(len(members))) % count
            dealt += len(members)
    return folds


@dataclass(frozen=True)
class Fold(Split):
    """A split with the true classes of its queries."""

    truth: Array  # class index of every query

    @classmethod
    def of(cls, vectors: Array, class_index: Array, held_out: Array) -> Fold:
        """From vectors sorted by class, and a mask of the queries."""
        kept = ~held_out
        return cls(Samples.of(vectors[kept], class_index[kept]), vectors[held_out], class_index[held_out])

    def residuals(self, method: Method) -> Array:
        """(m, K), with the method fitted to the samples."""
        return method.residuals(self.samples, method.fit(self.samples), self.queries)
