"""nn: the nearest neighbour."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import Method, Samples, State
from crnr_cli.records import dataclass

_ROUNDING = 1e-14  # more than the rounding error of a product of unit vectors
_SAMPLES_AT_ONCE = 4096  # converted to float64 together


@dataclass(frozen=True, kw_only=True)
class Nn(Method):
    """Nearest neighbour: the residual is ||y - x||^2 / 2 of the nearest sample of each class.

    For unit vectors this is 1 - cosine, but the cosine would lose small differences in rounding. The products
    are in float64, so the difference of stored vectors is nearly exact.
    """

    name: ClassVar[str] = "nn"

    def fit(self, samples: Samples) -> State:
        return {}

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        n, Y = len(samples.vectors), queries.astype(np.float64)
        distances = np.empty((len(Y), n))
        for start in range(0, n, _SAMPLES_AT_ONCE):
            X = samples.vectors[start : start + _SAMPLES_AT_ONCE].astype(np.float64)
            part = distances[:, start : start + len(X)]
            np.matmul(-Y, X.T, out=part)
            part += _half_squares(X)
        distances += _half_squares(Y)[:, np.newaxis]
        nearest = np.minimum.reduceat(distances, samples.edges[:-1], axis=1)
        nearest[nearest < _ROUNDING] = 0  # so that copies of a query are equally near, whatever their class
        return nearest.astype(queries.dtype)


def _half_squares(rows: Array) -> Array:
    """Return ||x||^2 / 2 of every row: not exactly 1/2, because stored unit vectors are rounded."""
    halves: Array = np.einsum("nd,nd->n", rows, rows) / 2
    return halves
