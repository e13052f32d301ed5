"""crnr and nrc: non-negative codes by a few iterations of ADMM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import ClassVar

import numpy as np

from crnr_cli import solvers
from crnr_cli.arrays import Array, FewClasses
from crnr_cli.methods.base import Method, Samples, Split, State
from crnr_cli.methods.local import LocalCoding

FACTORS = ("auto", "dense", "low-rank")


@dataclass(frozen=True, kw_only=True)
class NonNegative(LocalCoding):
    """What crnr and nrc have in common: everything except the weight of the class residuals."""

    tunable: ClassVar[tuple[str, ...]] = ("mu", "iterations", "neighbors")
    mu: float = 0.1
    iterations: int = 5
    tol: float = 0.0
    factor: str = "auto"

    @property
    def class_weight(self) -> float:
        """The paper's lam."""
        return 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_above_0("mu")
        self._require_iterations(self.iterations)
        self._require_at_least_0("tol")
        self._require(
            isinstance(self.factor, str) and self.factor in FACTORS,
            f"factor must be {' or '.join(FACTORS)}, not {self.factor!r}",
        )

    def fit_all(self, samples: Samples) -> State:
        factorize = solvers.factorize_dense if self._form(samples) == "dense" else solvers.factorize_low_rank
        return dict(vars(factorize(samples.vectors.T, samples.edges, self.class_weight, self.mu)))

    def fit_all_bytes(self, samples: Samples) -> int:
        return solvers.factor_bytes(
            self._form(samples), samples.edges, samples.vectors.shape[1], samples.vectors.itemsize
        )

    def _form(self, samples: Samples) -> solvers.FactorForm:
        if self.factor == "auto":
            d = samples.vectors.shape[1]
            return solvers.cheaper_form(samples.edges, d, self.class_weight, self.iterations)
        return "dense" if self.factor == "dense" else "low-rank"

    def variants(self, iterations: Sequence[int]) -> list[Method]:
        return [replace(self, iterations=count) for count in iterations]

    def residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        """The residuals after each number of iterations, taken while ADMM runs once."""
        if self.neighbors:
            yield from self._local_residuals_after(split, iterations)
            return
        samples, edges = split.samples, split.samples.edges
        d = samples.vectors.shape[1]
        if solvers.cheaper_form(edges, d, self.class_weight, max(iterations)) == "dense":
            factor: solvers.Factor = solvers.factorize_gram(
                split.gram, edges, self.class_weight, self.mu, str(split.queries.dtype)
            )
            queries, residuals = split.cross, partial(solvers.class_residuals_by_gram, split.gram, edges)
        else:
            X = samples.vectors.T
            factor = solvers.factorize_low_rank(X, edges, self.class_weight, self.mu)
            queries, residuals = split.queries.T, partial(solvers.class_residuals, X, edges)
        for batch in split.batches:
            Y = np.ascontiguousarray(queries[:, batch])
            found = np.empty((len(iterations), Y.shape[1], samples.n_classes), Y.dtype)
            for step, (c, _) in enumerate(solvers.admm_steps(factor, Y), start=1):
                if step in iterations:
                    found[iterations.index(step)] = residuals(c, Y).T
                if step == max(iterations):
                    break
            yield found

    def _local_residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        n_classes = split.samples.n_classes
        for batch in split.batches:
            queries = split.queries[batch]
            found = np.empty((len(iterations), len(queries), n_classes), queries.dtype)
            places = split.nearest(self.neighbors)[batch]
            for part, _, near in self.neighborhoods(split.samples, queries, places=places):
                factor = solvers.factorize_local(near, self.class_weight, self.mu)
                steps = solvers.admm_steps(factor, near.cross)
                for step, (c, _) in enumerate(islice(steps, max(iterations)), start=1):
                    if step in iterations:
                        values = self.local_decision(near, c).T.astype(queries.dtype)
                        few = FewClasses.of(near.classes, values, self.without_neighbor, n_classes)
                        found[iterations.index(step), part] = few.dense()
            yield found

    def local_codes(self, near: solvers.Neighborhoods) -> Array:
        factor = solvers.factorize_local(near, self.class_weight, self.mu)
        return solvers.admm(factor, near.cross, self.iterations, self.tol).c

    def codes_by_all(self, samples: Samples, state: State, queries: Array) -> Array:
        return self.code(state, queries).c.T

    def code(self, state: State, queries: Array) -> solvers.Code:
        """The code, and how the iterations ended."""
        return solvers.admm(
            solvers.factor_of(state), np.ascontiguousarray(queries.T), self.iterations, self.tol
        )


@dataclass(frozen=True, kw_only=True)
class Crnr(NonNegative):
    """Class-specific residual constraint non-negative representation."""

    name: ClassVar[str] = "crnr"
    tunable: ClassVar[tuple[str, ...]] = ("lam", "mu", "iterations", "neighbors")
    lam: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_at_least_0("lam")

    @property
    def class_weight(self) -> float:
        return self.lam


@dataclass(frozen=True, kw_only=True)
class Nrc(NonNegative):
    """Non-negative representation: crnr with lam = 0."""

    name: ClassVar[str] = "nrc"
