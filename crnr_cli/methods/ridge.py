"""crc, procrc, nsc and croc: codes and subspaces in closed form."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import CodingMethod, Method, Samples, State
from crnr_cli.methods.by_neighbors import LocalMethod
from crnr_cli.records import dataclass
from crnr_cli.solvers.admm import class_bases, class_residuals, subspace_residuals
from crnr_cli.solvers.factors import concatenate_spans, factor_bytes, projection, projection_form
from crnr_cli.solvers.neighbors import Neighborhoods, factorize_local, local_norms, local_residuals

_SMALL_WEIGHT = 0.03  # share of the weight of the whole code that a class without weight is given


def projection_bytes(samples: Samples) -> int:
    """Return the memory for `projection`: a float64 factor, and a few arrays as large as the samples."""
    edges, d = samples.edges, samples.vectors.shape[1]
    return factor_bytes(projection_form(edges, d), edges, d, 8) + 2 * 8 * samples.vectors.size


def project(state: State, queries: Array) -> Array:
    """Return codes: the product of a fixed matrix (n x d) and the query."""
    c: Array = queries @ state["projection"].T
    return c


def _reorder_projection(samples: Samples, state: State, classes: Array) -> State:
    return {"projection": state["projection"][samples.rows_of_classes(classes)]}


@dataclass(frozen=True, kw_only=True)
class Crc(LocalMethod):
    """Collaborative representation: ridge regression on the samples; the smallest r_i / ||c_i|| wins."""

    name: ClassVar[str] = "crc"
    lam: float = 1e-3

    def __post_init__(self) -> None:
        self._require_above_0("lam")

    def fit(self, samples: Samples) -> State:
        return {"projection": projection(samples.vectors.T, samples.edges, 0.0, self.lam)}

    def reorder(self, samples: Samples, state: State, classes: Array) -> State:
        return _reorder_projection(samples, state, classes)

    def fit_bytes(self, samples: Samples) -> int:
        return projection_bytes(samples)

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        return project(state, queries)

    def local_codes(self, near: Neighborhoods) -> Array:
        return factorize_local(near, 0.0, 2 * self.lam).first_code(near.cross)

    def local_decision(self, near: Neighborhoods, codes: Array) -> tuple[Array, Array]:
        return _per_weight(local_residuals(near, codes), local_norms(near, codes), codes, near.lengths)

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        norms = np.sqrt(np.add.reduceat(c * c, edges[:-1], axis=0))
        lengths = np.linalg.norm(Y, axis=0)
        return _per_weight(class_residuals(X, edges, c, Y), norms, c, lengths)[0]


def _per_weight(residuals: Array, norms: Array, c: Array, lengths: Array) -> tuple[Array, Array]:
    """Return r_i / ||c_i||; and (m,): the residual of a class without weight, whose ratio would be infinite.

    All of the query is left over, for a small share of the weight of the whole code; the smallest ratio is
    added, so that the class never wins. A residual without measure would outweigh all other classes in the
    separation, and all other tiles of an image.
    """
    whole = np.linalg.norm(c, axis=0)
    has_weight = norms > np.finfo(norms.dtype).eps * whole
    ratios = residuals / np.where(has_weight, norms, 1)
    smallest = np.where(has_weight, ratios, np.inf).min(axis=0)
    without = lengths / (_SMALL_WEIGHT * np.where(whole == 0, 1, whole))
    without += np.where(np.isposinf(smallest), 0, smallest)
    return np.where(has_weight, ratios, without), without


@dataclass(frozen=True, kw_only=True)
class Procrc(CodingMethod):
    """Probabilistic collaborative representation; the class whose X_i c_i is nearest to X c wins.

    The sum over the classes of (X - X_i')'(X - X_i'), where X_i' is X with the other classes set to zero,
    contains every product of two samples K - 2 times, and once more if both are of one class. The matrix to
    invert is therefore, up to the factor s = 1 + gamma (K - 2),
    X'X + (gamma/s) blockdiag(X_i'X_i) + (lam/s) I.
    """

    name: ClassVar[str] = "procrc"
    lam: float = 1e-3
    gamma: float = 1e-3

    def __post_init__(self) -> None:
        self._require_above_0("lam")
        self._require_at_least_0("gamma")

    def fit(self, samples: Samples) -> State:
        gamma = self.gamma if samples.n_classes > 1 else 0.0  # with one class the sum is empty
        scale = 1 + gamma * (samples.n_classes - 2)
        T = projection(samples.vectors.T, samples.edges, gamma / scale, self.lam / scale)
        return {"projection": T / scale}

    def reorder(self, samples: Samples, state: State, classes: Array) -> State:
        return _reorder_projection(samples, state, classes)

    def fit_bytes(self, samples: Samples) -> int:
        return projection_bytes(samples)

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        return project(state, queries)

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        return class_residuals(X, edges, c, X @ c)


@dataclass(frozen=True, kw_only=True)
class Nsc(Method):
    """Nearest subspace: least squares on each class alone; the smallest residual wins."""

    name: ClassVar[str] = "nsc"

    def fit(self, samples: Samples) -> State:
        bases, edges = class_bases(samples.vectors.T, samples.edges)
        return {"bases": bases.T, "basis_edges": edges}

    def reorder(self, samples: Samples, state: State, classes: Array) -> State:
        edges = state["basis_edges"]
        return {
            "bases": state["bases"][concatenate_spans(edges, classes)],
            "basis_edges": np.cumsum([0, *np.diff(edges)[classes]]),
        }

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        return subspace_residuals(state["bases"].T, state["basis_edges"], Y).T


@dataclass(frozen=True, kw_only=True)
class Croc(Method):
    """Collaborative representation optimized classifier: r_i of nsc plus `weight` times r_i of crc's code."""

    name: ClassVar[str] = "croc"
    lam: float = 1e-3
    weight: float = 0.1

    def __post_init__(self) -> None:
        self._require_above_0("lam")
        self._require_at_least_0("weight")

    def fit_bytes(self, samples: Samples) -> int:
        return projection_bytes(samples)

    def fit(self, samples: Samples) -> State:
        return Nsc().fit(samples) | Crc(lam=self.lam).fit(samples)

    def reorder(self, samples: Samples, state: State, classes: Array) -> State:
        return Nsc().reorder(samples, state, classes) | _reorder_projection(samples, state, classes)

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        shared = class_residuals(samples.vectors.T, samples.edges, state["projection"] @ Y, Y)
        alone: Array = Nsc().residuals(samples, state, queries)
        return alone + self.weight * shared.T
