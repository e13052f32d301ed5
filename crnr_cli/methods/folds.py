"""Cross-validation: samples labelled by the others, in stratified folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from crnr_cli import solvers
from crnr_cli.arrays import Array
from crnr_cli.methods import Method, NonNegative, Samples


def stratified_folds(class_index: Array, count: int, seed: int = 0) -> Array:
    """The fold of every sample, 0 to count - 1, each class spread evenly over them.

    The only sample of its class gets -1: without it there is nothing to recognise it by.
    """
    folds = np.full(len(class_index), -1)
    rng = np.random.default_rng(seed)
    dealt = 0
    for k in np.unique(class_index):
        members = rng.permutation(np.flatnonzero(class_index == k))
        if len(members) > 1:
            # Going on where the last class ended keeps the folds of one size.
            folds[members] = (dealt + np.arange(len(members))) % count
            dealt += len(members)
    return folds


@dataclass(frozen=True)
class Fold:
    """Samples to learn from, and queries held back from them. All rows are unit vectors."""

    samples: Samples
    queries: Array
    truth: Array  # class index of every query

    @classmethod
    def split(cls, vectors: Array, class_index: Array, held_back: Array) -> Fold:
        """From vectors sorted by class."""
        kept = ~held_back
        return cls(Samples.of(vectors[kept], class_index[kept]), vectors[held_back], class_index[held_back])

    def residuals(self, method: Method) -> Array:
        """(m, K)."""
        return method.residuals(self.samples, method.fit(self.samples), self.queries)

    def winners(self, method: Method, iterations: Sequence[int] = ()) -> Array:
        """(len(iterations), m): the class that wins each query after as many steps, all from one pass.

        A method without iterations answers once, (1, m).
        """
        if not isinstance(method, NonNegative):
            winners: Array = self.residuals(method).argmin(axis=1)
            return winners[np.newaxis]
        edges, lam, mu = self.samples.edges, method.class_weight, method.mu
        n, d = self.samples.vectors.shape
        if solvers.cheaper_form(edges, d, lam, max(iterations)) == "dense":
            factor: solvers.Factor = solvers.factorize_gram(
                self._gram, edges, lam, mu, str(self.queries.dtype)
            )
            queries, residuals = self._cross, partial(solvers.class_residuals_by_gram, self._gram, edges)
        else:
            factor = solvers.factorize_low_rank(self.samples.vectors.T, edges, lam, mu)
            queries, residuals = (
                self.queries.T,
                partial(solvers.class_residuals, self.samples.vectors.T, edges),
            )
        winners = np.empty((len(iterations), len(self.queries)), dtype=np.int64)
        batch = max(64, 2**23 // n)
        for start in range(0, queries.shape[1], batch):
            Y = np.ascontiguousarray(queries[:, start : start + batch])
            for step, (c, _) in enumerate(solvers.admm_steps(factor, Y), start=1):
                if step in iterations:
                    winners[iterations.index(step), start : start + batch] = residuals(c, Y).argmin(axis=0)
                if step == max(iterations):
                    break
        return winners

    @cached_property
    def _gram(self) -> Array:
        """X'X, computed once for all settings."""
        X = self.samples.vectors.astype(np.float64)
        return X @ X.T

    @cached_property
    def _cross(self) -> Array:
        """X'Y, likewise."""
        return self.samples.vectors @ self.queries.T
