"""The residual of each class: the part of a query that the class does not represent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from crnr_cli.arrays import Array

RESIDUAL_BYTES = 2**20  # of classes that are processed together: as much as fits into the cache of a core


def class_residuals(X: Array, edges: Array, c: Array, Y: Array) -> Array:
    """r_i = ||y - X_i c_i|| for every class and query, (K x m)."""
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
    """Runs of consecutive classes of equal size, to be processed together: (first, last + 1)."""
    first = 0
    for i in range(1, len(sizes) + 1):
        if i == len(sizes) or i - first == longest or sizes[i] != sizes[first]:
            yield first, i
            first = i


def class_residuals_by_gram(G: Array, edges: Array, c: Array, XtY: Array) -> Array:
    """The same residuals from G = X'X and X'Y, for unit queries: r_i^2 = 1 - 2 c_i'X_i'y + c_i'G_i c_i."""
    r = np.empty((len(edges) - 1, c.shape[1]), c.dtype)
    for i, (start, stop) in enumerate(pairwise(edges.tolist())):
        ci = c[start:stop]
        GC = G[start:stop, start:stop].astype(c.dtype) @ ci
        GC -= 2 * XtY[start:stop]
        np.einsum("nm,nm->m", GC, ci, out=r[i])
    r += 1
    return np.sqrt(np.maximum(r, 0, out=r), out=r)


def class_bases(X: Array, edges: Array) -> tuple[Array, Array]:
    """Orthonormal columns that span each class, and the edges between the classes.

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
    """||y - U_i U_i'y|| for every class and query, (K x m)."""
    r = np.zeros((len(edges) - 1, Y.shape[1]), Y.dtype)
    for i, (start, stop) in enumerate(pairwise(edges.tolist())):
        if stop - start < len(Y):  # the residual of a class that spans the full space is exactly 0
            U = bases[:, start:stop]
            R = U @ (U.T @ Y)
            R -= Y
            np.einsum("dm,dm->m", R, R, out=r[i])
    return np.sqrt(r, out=r)
