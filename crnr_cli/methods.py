"""The registry of methods: name -> fit on unit vectors, residuals for a batch, state as plain arrays.

A method is a frozen dataclass whose fields are its parameters. Samples and queries are rows here, as
everywhere but in `solvers`; this is the one place that transposes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from crnr_cli import solvers
from crnr_cli.errors import UsageError
from crnr_cli.solvers import Array

State = dict[str, Array]


@dataclass(frozen=True)
class Samples:
    """The gallery's unit vectors, sorted by class."""

    vectors: Array  # (n, d), unit rows
    edges: Array  # (K + 1,): class i is rows edges[i] to edges[i + 1]

    @classmethod
    def of(cls, vectors: Array, class_index: Array) -> Samples:
        """From vectors whose class index never falls from one row to the next."""
        if np.any(np.diff(class_index) < 0):
            raise ValueError("samples must be sorted by class")
        return cls(vectors, np.concatenate([[0], np.cumsum(np.bincount(class_index))]))

    @property
    def n_classes(self) -> int:
        return len(self.edges) - 1


class Method(ABC):
    """What every method can do. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]

    @abstractmethod
    def fit(self, samples: Samples) -> State:
        """All that `residuals` needs beside the samples, as plain arrays."""

    @abstractmethod
    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        """(m, K): how far each unit query is from each class; the least wins."""

    def fit_bytes(self, samples: Samples) -> int:
        """About how much memory `fit` takes at its peak: some arrays in float64 as large as the samples'."""
        return 3 * 8 * samples.vectors.size

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise UsageError(f"{self.name}: {rule}")


class CodingMethod(Method):
    """A method that writes the query as a mix of all samples and compares what each class leaves."""

    @abstractmethod
    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        """(m, n): the weight of every sample in every query."""

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        c = self.codes(samples, state, queries).T
        return solvers.class_residuals(samples.vectors.T, samples.edges, c, Y).T


@dataclass(frozen=True, kw_only=True)
class NonNegative(CodingMethod):
    """What crnr and nrc share: all but the weight of the classes' own residuals."""

    mu: float = 0.1
    iterations: int = 5
    tol: float = 0.0
    factor: str = "auto"

    @property
    def class_weight(self) -> float:
        """The paper's lam."""
        return 0.0

    def __post_init__(self) -> None:
        self._require(np.isfinite(self.mu) and self.mu > 0, f"mu must be above 0, not {self.mu:g}")
        self._require(self.iterations >= 1, f"iterations must be 1 or more, not {self.iterations}")
        self._require(np.isfinite(self.tol) and self.tol >= 0, f"tol must be 0 or more, not {self.tol:g}")
        self._require(
            self.factor in ("auto", "dense", "low-rank"),
            f"factor must be auto, dense or low-rank, not {self.factor}",
        )

    def fit(self, samples: Samples) -> State:
        factorize = solvers.factorize_dense if self._form(samples) == "dense" else solvers.factorize_low_rank
        return dict(vars(factorize(samples.vectors.T, samples.edges, self.class_weight, self.mu)))

    def fit_bytes(self, samples: Samples) -> int:
        return solvers.factor_bytes(
            self._form(samples), samples.edges, samples.vectors.shape[1], samples.vectors.itemsize
        )

    def _form(self, samples: Samples) -> solvers.FactorForm:
        if self.factor == "auto":
            d = samples.vectors.shape[1]
            return solvers.cheaper_form(samples.edges, d, self.class_weight, self.iterations)
        return "dense" if self.factor == "dense" else "low-rank"

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        return self.code(state, queries).c.T

    def code(self, state: State, queries: Array) -> solvers.Code:
        """c, z and how the iterations ended."""
        factor = solvers.DenseFactor(**state) if "H" in state else solvers.LowRankFactor(**state)
        return solvers.admm(factor, np.ascontiguousarray(queries.T), self.iterations, self.tol)


@dataclass(frozen=True, kw_only=True)
class Crnr(NonNegative):
    """Class-specific residual constraint non-negative representation."""

    name: ClassVar[str] = "crnr"
    lam: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(np.isfinite(self.lam) and self.lam >= 0, f"lam must be 0 or more, not {self.lam:g}")

    @property
    def class_weight(self) -> float:
        return self.lam


@dataclass(frozen=True, kw_only=True)
class Nrc(NonNegative):
    """Non-negative representation: crnr with lam = 0."""

    name: ClassVar[str] = "nrc"


METHODS: dict[str, type[Method]] = {method.name: method for method in (Crnr, Nrc)}


def make_method(name: str, parameters: Mapping[str, object]) -> Method:
    """The method of this name with these parameters, the rest at their defaults."""
    if name not in METHODS:
        raise UsageError(f"no method is called {name}; there are {', '.join(METHODS)}")
    method = METHODS[name]
    known = method.parameter_names()
    for parameter in parameters:
        if parameter not in known:
            raise UsageError(f"{name} has no parameter {parameter}; it has {', '.join(known) or 'none'}")
    return method(**parameters)
