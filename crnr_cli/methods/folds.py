"""Cross-validation: samples labelled by the others, in stratified folds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import Method, Samples, Trial


def stratified_folds(class_index: Array, count: int, seed: int = 0) -> Array:
    """The fold of every sample, 0 to count - 1, with each class spread evenly over them.

    The only sample of a class gets -1: without it there is nothing to recognise it by.
    """
    folds = np.full(len(class_index), -1)
    rng = np.random.default_rng(seed)
    dealt = 0
    for k in np.unique(class_index):
        members = rng.permutation(np.flatnonzero(class_index == k))
        if len(members) > 1:
            # Continuing where the last class ended keeps the folds equally large.
            folds[members] = (dealt + np.arange(len(members))) % count
            dealt += len(members)
    return folds


@dataclass(frozen=True)
class Fold(Trial):
    """A trial whose answers are known."""

    truth: Array  # class index of every query

    @classmethod
    def split(cls, vectors: Array, class_index: Array, held_back: Array) -> Fold:
        """From vectors sorted by class."""
        kept = ~held_back
        return cls(Samples.of(vectors[kept], class_index[kept]), vectors[held_back], class_index[held_back])

    def residuals(self, method: Method) -> Array:
        """(m, K)."""
        return method.residuals(self.samples, method.fit(self.samples), self.queries)
