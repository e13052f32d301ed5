"""The iterations of ADMM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.solvers.factors import Factor
from crnr_cli.solvers.local import LocalFactor


@dataclass(frozen=True)
class Code:
    """The codes of the queries, and how their iterations ended."""

    c: Array  # (n, m), the result of the linear solve, from which the residuals are computed
    v: Array  # (n, m), the state
    steps: Array  # (m,), iterations taken
    converged: Array  # (m,), whether tol was reached

    @property
    def z(self) -> Array:
        """(n, m), the non-negative counterpart of c; computed only on request, to save memory."""
        return np.maximum(self.v, 0)


def admm_steps(factor: Factor | LocalFactor, Y: Array) -> Iterator[tuple[Array, Array]]:
    """(c_t, v_t) for t = 1, 2, ...; the next step overwrites both arrays."""
    c1 = factor.first_code(Y)
    v = c1.copy()
    yield c1, v
    c, abs_v = np.empty_like(c1), np.empty_like(c1)
    while True:
        factor.product(np.abs(v, out=abs_v), out=c)
        c += c1
        np.minimum(v, 0, out=v)
        v += c
        yield c, v


def admm(factor: Factor | LocalFactor, Y: Array, iterations: int, tol: float = 0.0) -> Code:
    """Code every column of Y.

    With tol, a query has converged when the norms of z - c and of the last changes of z and c are all below
    tol. It keeps its code from then on, so that the code does not depend on the rest of the batch.
    """
    if tol > 0:
        return _admm_until(factor, Y, iterations, tol)
    c, v = next(islice(admm_steps(factor, Y), iterations - 1, None))
    m = Y.shape[1]
    return Code(c, v, np.full(m, iterations), np.zeros(m, dtype=bool))


def _admm_until(factor: Factor | LocalFactor, Y: Array, iterations: int, tol: float) -> Code:
    m = Y.shape[1]
    final_c = final_v = last_c = last_z = np.zeros_like(factor.first_code(Y))
    steps, converged = np.full(m, iterations), np.zeros(m, dtype=bool)
    for t, (c, v) in enumerate(islice(admm_steps(factor, Y), iterations), start=1):
        z = np.maximum(v, 0)
        final_c, final_v = np.where(converged, final_c, c), np.where(converged, final_v, v)
        gaps = [np.linalg.norm(gap, axis=0) for gap in (z - c, z - last_z, c - last_c)]
        arrived = ~converged & (np.max(gaps, axis=0) < tol)
        steps[arrived] = t
        converged |= arrived
        if converged.all():
            break
        last_c, last_z = c.copy(), z
    return Code(final_c, final_v, steps, converged)
