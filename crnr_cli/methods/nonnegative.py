"""crnr and nrc: non-negative codes by a few iterations of ADMM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import ClassVar, Self

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import Samples, Split, State
from crnr_cli.methods.by_neighbors import LocalMethod
from crnr_cli.records import dataclass
from crnr_cli.solvers.admm import admm, admm_steps, class_residuals, class_residuals_by_gram
from crnr_cli.solvers.factors import (
    Factor,
    FactorForm,
    cheaper_form,
    factor_bytes,
    factor_of,
    factorize_dense,
    factorize_gram,
    factorize_low_rank,
    reorder_factor,
)
from crnr_cli.solvers.neighbors import Neighborhoods, factorize_local

FACTORS = ("auto", "dense", "low-rank")


@dataclass(frozen=True, kw_only=True)
class NonNegative(LocalMethod):
    """The base of crnr and nrc, which differ only in the weight of the class residuals."""

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
        self._require_above_0("mu")
        self._require_iterations(self.iterations)
        self._require_at_least_0("tol")
        self._require(
            isinstance(self.factor, str) and self.factor in FACTORS,
            f"factor must be {' or '.join(FACTORS)}, not {self.factor!r}",
        )

    def fit(self, samples: Samples) -> State:
        factorize = factorize_dense if self._form(samples) == "dense" else factorize_low_rank
        return dict(vars(factorize(samples.vectors.T, samples.edges, self.class_weight, self.mu)))

    def reorder(self, samples: Samples, state: State, classes: Array) -> State | None:
        factor = reorder_factor(factor_of(state), samples.edges, classes)
        return None if factor is None else dict(vars(factor))

    def fit_bytes(self, samples: Samples) -> int:
        return factor_bytes(
            self._form(samples), samples.edges, samples.vectors.shape[1], samples.vectors.itemsize
        )

    def _form(self, samples: Samples) -> FactorForm:
        if self.factor == "auto":
            d = samples.vectors.shape[1]
            return cheaper_form(samples.edges, d, self.class_weight, self.iterations)
        return "dense" if self.factor == "dense" else "low-rank"

    def variants(self, iterations: Sequence[int]) -> list[Self]:
        return [replace(self, iterations=count) for count in iterations]

    def residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        """Yield the residuals after each number of iterations, while ADMM runs once."""
        samples, edges = split.samples, split.samples.edges
        d = samples.vectors.shape[1]
        if cheaper_form(edges, d, self.class_weight, max(iterations)) == "dense":
            factor: Factor = factorize_gram(
                split.gram, edges, self.class_weight, self.mu, str(split.queries.dtype)
            )
            queries, residuals = split.cross, partial(class_residuals_by_gram, split.gram, edges)
        else:
            X = samples.vectors.T
            factor = factorize_low_rank(X, edges, self.class_weight, self.mu)
            queries, residuals = split.queries.T, partial(class_residuals, X, edges)
        for batch in split.batches:
            Y = np.ascontiguousarray(queries[:, batch])
            found = np.empty((len(iterations), Y.shape[1], samples.n_classes), Y.dtype)
            for step, (c, _) in enumerate(admm_steps(factor, Y), start=1):
                if step in iterations:
                    found[iterations.index(step)] = residuals(c, Y).T
                if step == max(iterations):
                    break
            yield found

    def local_codes(self, near: Neighborhoods) -> Array:
        factor = factorize_local(near, self.class_weight, self.mu)
        return admm(factor, near.cross, self.iterations, self.tol).c

    def local_codes_after(
        self, near: Neighborhoods, iterations: Sequence[int]
    ) -> Iterator[tuple[int, Array]]:
        steps = admm_steps(factorize_local(near, self.class_weight, self.mu), near.cross)
        for step, (c, _) in enumerate(islice(steps, max(iterations)), start=1):
            if step in iterations:
                yield iterations.index(step), c

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        return admm(factor_of(state), Y, self.iterations, self.tol).c.T


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
