"""src: sparse codes."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import NotConverged
from crnr_cli.methods.base import Samples, State
from crnr_cli.methods.by_neighbors import LocalMethod
from crnr_cli.records import dataclass
from crnr_cli.solvers import lasso
from crnr_cli.solvers.factors import factor_bytes, factor_of, reorder_factor
from crnr_cli.solvers.neighbors import Neighborhoods
from crnr_cli.wording import format_count


@dataclass(frozen=True, kw_only=True)
class Src(LocalMethod):
    """Sparse representation: the minimiser of ||y - X c||^2 + lam ||c||_1.

    Iterations end when the duality gap, and so the distance from the minimum, is at most tol (or the smallest
    gap that the type of the gallery can resolve, see `lasso`), or after `iterations`.
    """

    name: ClassVar[str] = "src"
    lam: float = 1e-3
    tol: float = 1e-6
    iterations: int = 2000

    def __post_init__(self) -> None:
        self._require_above_0("lam", "tol")
        self._require_iterations(self.iterations)

    def fit(self, samples: Samples) -> State:
        return dict(vars(lasso.factorize(samples.vectors.T, samples.edges, self.lam)))

    def reorder(self, samples: Samples, state: State, classes: Array) -> State | None:
        factor = reorder_factor(factor_of(state), samples.edges, classes)
        return None if factor is None else dict(vars(factor))

    def fit_bytes(self, samples: Samples) -> int:
        d, itemsize = samples.vectors.shape[1], samples.vectors.itemsize
        return factor_bytes(lasso.factor_form(samples.edges, d), samples.edges, d, itemsize)

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        Y = np.ascontiguousarray(queries.T)
        factor = factor_of(state)
        code = lasso.code(factor, samples.vectors.T, Y, self.lam, self.iterations, self.tol)
        self._warn_unconverged(code)
        return code.c.T

    def local_codes(self, near: Neighborhoods) -> Array:
        code = lasso.local_code(near, self.lam, self.iterations, self.tol)
        self._warn_unconverged(code)
        return code.c

    def _warn_unconverged(self, code: lasso.LassoCode) -> None:
        if unconverged := int((code.gap > code.tol).sum()):
            advice = (
                f"method src stopped after {format_count(self.iterations, 'iteration')}; "
                "build with a higher --iterations or --tol"
            )
            warnings.warn(NotConverged(unconverged, advice), stacklevel=3)
