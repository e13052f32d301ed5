"""What a method is: fit on unit vectors, residuals for a batch, state as plain arrays.

A method is a frozen dataclass whose fields are its parameters. Samples and queries are rows here, as
everywhere but in `solvers`; methods are the one place that transposes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from numbers import Integral
from typing import ClassVar

import numpy as np

from crnr_cli import solvers
from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError

State = dict[str, Array]

MOST_STEPS = 10**9  # more than anybody waits for


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
    signed: ClassVar[bool] = False  # residuals are minus scores, and can be below 0

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

    @classmethod
    def unavailable(cls) -> str | None:
        """Why the method cannot be fitted on this machine; None if it can."""
        return None

    def _require(self, holds: bool, rule: str) -> None:
        if not holds:
            raise UsageError(f"{self.name}: {rule}")

    def _require_above_0(self, *parameters: str) -> None:
        for name in parameters:
            value = getattr(self, name)
            self._require(np.isfinite(value) and value > 0, f"{name} must be above 0, not {value:g}")

    def _require_at_least_0(self, *parameters: str) -> None:
        for name in parameters:
            value = getattr(self, name)
            self._require(np.isfinite(value) and value >= 0, f"{name} must be 0 or more, not {value:g}")

    def _require_steps(self, iterations: int) -> None:
        self._require(
            isinstance(iterations, Integral) and 1 <= iterations <= MOST_STEPS,
            f"iterations must be a whole number from 1 to {MOST_STEPS}, not {iterations}",
        )


class CodingMethod(Method):
    """A method that writes the query as a mix of all samples and compares what each class leaves."""

    @abstractmethod
    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        """(m, n): the weight of every sample in every query."""

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        c = self.codes(samples, state, queries).T
        return self.decision(samples.vectors.T, samples.edges, c, Y).T

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        """(K, m), from codes (n, m) and queries (d, m); unless a method knows better, ||y - X_i c_i||."""
        return solvers.class_residuals(X, edges, c, Y)
