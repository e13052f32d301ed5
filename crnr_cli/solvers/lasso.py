"""The l1 solver: ADMM for min ||y - X c||^2 + lam ||c||_1, all queries at once. Samples are columns.

H and c_1 belong to a factor with lam = 0 and this mu, and t = lam/mu. Again, a single array v = c + u is
enough for the splitting variable z = soft(v, t) and the scaled multiplier u = clip(v, -t, t):

    c_(k+1) = c_1 + H (z_k - u_k)        v_(k+1) = a c_(k+1) + (1 - a) z_k + u_k

where a is an over-relaxation between 1 and 2. mu and a only change the speed of convergence. z is the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.solvers.factors import Factor, FactorForm, cheaper_form, factorize_dense, factorize_low_rank
from crnr_cli.solvers.neighbors import LocalFactor, Neighborhoods, factorize_local

# Of mu/lam from 2 to 500 and a from 1 to 1.85, these needed the fewest iterations on faces and digits.
_MU_PER_LAM = 20.0
_RELAXATION = 1.8
_STEPS_BETWEEN_CHECKS = 20
# In units of eps. Below this, rounding errors of X'r exceed the gap: 1.2e-5 in float32, 2e-14 in float64.
_SMALLEST_GAP = 100.0


@dataclass(frozen=True)
class LassoCode:
    """The codes, and an upper bound on how far each query's objective is from its minimum."""

    c: Array  # (n, m)
    gap: Array  # (m,)
    tol: float  # the largest gap that counts as converged


@dataclass(frozen=True)
class _Ending:
    """When iterations end."""

    iterations: int
    tol: float


_Gap = Callable[[Array, Array], Array]  # of codes and the places of their queries


def factor_form(edges: Array, d: int) -> FactorForm:
    return cheaper_form(edges, d, lam=0.0, iterations=100)  # many, so that the cost per iteration decides


def factorize(X: Array, edges: Array, lam: float) -> Factor:
    dense = factor_form(edges, X.shape[0]) == "dense"
    return (factorize_dense if dense else factorize_low_rank)(X, edges, 0.0, _MU_PER_LAM * lam)


def code(factor: Factor, X: Array, Y: Array, lam: float, iterations: int, tol: float) -> LassoCode:
    """Code every column of Y until its duality gap is at most tol, or _SMALLEST_GAP if that is larger.

    A query that has converged is taken out of the batch, so that its code does not depend on the others.
    """
    ending = _Ending(iterations, max(tol, _SMALLEST_GAP * float(np.finfo(X.dtype).eps)))
    c1 = factor.first_code(Y)
    return _code_until(factor, c1, lambda z, rest: duality_gap(X, Y[:, rest], z, lam), ending)


def local_code(near: Neighborhoods, lam: float, iterations: int, tol: float) -> LassoCode:
    """Code every query by its own samples."""
    ending = _Ending(iterations, max(tol, _SMALLEST_GAP * float(np.finfo(np.float64).eps)))
    factor = factorize_local(near, 0.0, _MU_PER_LAM * lam)
    c1 = factor.first_code(near.cross)
    return _code_until(factor, c1, lambda z, rest: local_duality_gap(near.pick(rest), z, lam), ending)


def _code_until(factor: Factor | LocalFactor, c1: Array, gap_of: _Gap, ending: _Ending) -> LassoCode:
    codes, gaps = np.empty_like(c1), np.empty(c1.shape[1], c1.dtype)
    rest = np.arange(c1.shape[1])
    v = c1.copy()
    for k in range(1, ending.iterations + 1):
        v, z = _step(factor, c1, v, 1 / _MU_PER_LAM)
        if k % _STEPS_BETWEEN_CHECKS == 0 or k == ending.iterations:
            gap = gap_of(z, rest)
            done = (gap <= ending.tol) | (k == ending.iterations)
            codes[:, rest[done]], gaps[rest[done]] = z[:, done], gap[done]
            if done.all():
                break
            if done.any():
                rest, v, c1 = rest[~done], v[:, ~done], c1[:, ~done]
                factor = factor.pick(~done) if isinstance(factor, LocalFactor) else factor
    return LassoCode(codes, gaps, ending.tol)


def _step(factor: Factor | LocalFactor, c1: Array, v: Array, t: float) -> tuple[Array, Array]:
    """Return the next v, and the z that it was computed from; the memory of `v` is reused."""
    u = np.clip(v, -t, t)
    z = v - u
    c = np.empty_like(v)
    factor.product(np.subtract(z, u, out=v), out=c)
    c += c1
    c *= _RELAXATION
    u += c
    u -= np.multiply(z, _RELAXATION - 1, out=v)
    return u, z


def duality_gap(X: Array, Y: Array, c: Array, lam: float) -> Array:
    """Return for every query an upper bound on how much ||y - X c||^2 + lam ||c||_1 exceeds its minimum.

    The dual is max 2 w'y - ||w||^2 over all w with |X'w| <= lam/2; w is the best multiple of y - X c.
    """
    R = Y - X @ c
    rr, ry = (np.einsum("dm,dm->m", R, other) for other in (R, Y))
    return _gap(rr, ry, np.abs(X.T @ R).max(axis=0), c, lam)


def local_duality_gap(near: Neighborhoods, c: Array, lam: float) -> Array:
    """Return the same bound for queries by their own samples, from Gram matrices."""
    Gc = near.times(c)
    cb = np.einsum("km,km->m", c, near.cross)
    rr = np.maximum(near.lengths - 2 * cb + np.einsum("km,km->m", c, Gc), 0)
    return _gap(rr, near.lengths - cb, np.abs(near.cross - Gc).max(axis=0), c, lam)


def _gap(rr: Array, ry: Array, largest: Array, c: Array, lam: float) -> Array:
    """Return the gap from r'r, r'y and the largest |X'r|, for r = y - X c."""
    tiny = np.finfo(c.dtype).tiny
    limit = (lam / 2) / np.maximum(largest, tiny)
    s = np.clip(ry / np.maximum(rr, tiny), -limit, limit)
    gap: Array = rr + lam * np.abs(c).sum(axis=0) - s * (2 * ry - s * rr)
    return gap
