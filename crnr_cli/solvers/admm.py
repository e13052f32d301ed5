"""Coding by ADMM, and the residuals of the classes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.solvers.factors import Factor
from crnr_cli.solvers.neighbors import LocalFactor

RESIDUAL_BYTES = 2**20  # of classes processed together: as much as fits into the cache of a core


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
    """Yield (c_t, v_t) for t = 1, 2, ...; the next step overwrites both arrays."""
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


def class_residuals(X: Array, edges: Array, c: Array, Y: Array) -> Array:
    """Return (K x m): r_i = ||y - X_i c_i|| for every class and query."""
    (d, m), K = Y.shape, len(edges) - 1
    at_once = min(K, max(1, RESIDUAL_BYTES // max(1, Y.nbytes)))
    r, space = np.empty((K, m), Y.dtype), np.empty((at_once, d, m), Y.dtype)
    sizes = np.diff(edges).tolist()
    for first, last in _runs_of_equal_size(sizes, at_once):
        samples, k, size = slice(edges[first], edges[last]), last - first, sizes[first]
        R = space[:k]
        np.matmul(X[:, samples].reshape(d, k, size).transpose(1, 0, 2), c[samples].reshape(k, size, m), out=R)
        R -= Y
        np.einsum("kdm,kdm->km", R, R, out=r[first:last])
    return np.sqrt(r, out=r)


def _runs_of_equal_size(sizes: list[int], longest: int) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive classes of equal size, to be processed together: (first, last + 1)."""
    first = 0
    for i in range(1, len(sizes) + 1):
        if i == len(sizes) or i - first == longest or sizes[i] != sizes[first]:
            yield first, i
            first = i


def class_residuals_by_gram(G: Array, edges: Array, c: Array, XtY: Array) -> Array:
    """Return the same residuals of unit queries from X'X and X'Y.

    r_i^2 = 1 - 2 c_i'X_i'y + c_i'G_i c_i.
    """
    r = np.empty((len(edges) - 1, c.shape[1]), c.dtype)
    for i, (start, stop) in enumerate(pairwise(edges.tolist())):
        ci = c[start:stop]
        GC = G[start:stop, start:stop].astype(c.dtype) @ ci
        GC -= 2 * XtY[start:stop]
        np.einsum("nm,nm->m", GC, ci, out=r[i])
    r += 1
    return np.sqrt(np.maximum(r, 0, out=r), out=r)


def class_bases(X: Array, edges: Array) -> tuple[Array, Array]:
    """Return orthonormal columns that span each class, and the edges between the classes.

    Directions that may be rounding errors are left out: those with singular values up to the largest times
    eps times the longer side of X_i, as in numpy.linalg.matrix_rank.
    """
    from scipy.linalg import svd

    d = X.shape[0]
    bases: list[Array] = []
    for start, stop in pairwise(edges.tolist()):
        U, s, _ = svd(X[:, start:stop].astype(np.float64), full_matrices=False)
        smallest = s[0] * max(d, stop - start) * np.finfo(X.dtype).eps
        bases.append(U[:, s > smallest].astype(X.dtype))
    return np.concatenate(bases, axis=1), np.cumsum([0, *(U.shape[1] for U in bases)])


def subspace_residuals(bases: Array, edges: Array, Y: Array) -> Array:
    """Return (K x m): ||y - U_i U_i'y|| for every class and query."""
    r = np.zeros((len(edges) - 1, Y.shape[1]), Y.dtype)
    for i, (start, stop) in enumerate(pairwise(edges.tolist())):
        if stop - start < len(Y):  # the residual of a class that spans the full space is exactly 0
            U = bases[:, start:stop]
            R = U @ (U.T @ Y)
            R -= Y
            np.einsum("dm,dm->m", R, R, out=r[i])
    return np.sqrt(r, out=r)
