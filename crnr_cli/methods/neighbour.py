"""nn: the nearest neighbour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.methods.base import Method, Samples, State


@dataclass(frozen=True, kw_only=True)
class Nn(Method):
    """Nearest neighbour: the residual is 1 - cosine of the nearest sample of each class."""

    name: ClassVar[str] = "nn"

    def fit(self, samples: Samples) -> State:
        return {}

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        best = np.maximum.reduceat(queries @ samples.vectors.T, samples.edges[:-1], axis=1)
        # Because of rounding, the cosine of two equal vectors can be above 1.
        distances: Array = np.maximum(1 - best, 0)
        return distances
