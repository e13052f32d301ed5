"""Coding each query by its own few samples: a small Gram matrix per query, many of them at once.

Everything is in float64, as it starts from Gram matrices: a residual near 0 would be lost in float32. The
queries of a batch do not influence each other, not even in the last bit. As everywhere in `solvers`, codes
have one column per query; k is the number of samples of each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array


@dataclass(frozen=True)
class Neighborhoods:
    """Of m queries, each with its own k samples."""

    gram: Array  # (m, k, k)
    cross: Array  # (k, m): the products of the samples and the query
    classes: Array  # (m, k): the class of each sample

    @classmethod
    def of(cls, X: Array, Y: Array, places: Array, classes: Array) -> Neighborhoods:
        """For queries Y (d, m) and columns of X (d, n), by their places (m, k)."""
        rows = X.T[places].astype(np.float64)
        gram = rows @ rows.transpose(0, 2, 1)
        return cls(gram, np.einsum("mkd,dm->km", rows, Y.astype(np.float64)), classes[places])

    def only(self, chosen: Array) -> Neighborhoods:
        """Those of some of the queries."""
        return Neighborhoods(self.gram[chosen], self.cross[:, chosen], self.classes[chosen])

    def times(self, c: Array) -> Array:
        """(k, m): X'X c."""
        return _products(self.gram, c)

    @property
    def same_class(self) -> Array:
        """(m, k, k)."""
        same: Array = self.classes[:, :, np.newaxis] == self.classes[:, np.newaxis, :]
        return same


@dataclass(frozen=True)
class LocalFactor:
    """H and M of every query, as those of a dense factor by its Gram matrix; queries are given as X'y."""

    H: Array  # (m, k, k)
    M: Array  # (m, k, k)

    def first_code(self, Y: Array) -> Array:
        return _products(self.M, Y)

    def product(self, A: Array, out: Array) -> None:
        """out = H A."""
        out[:] = _products(self.H, A)

    def only(self, chosen: Array) -> LocalFactor:
        """That of some of the queries."""
        return LocalFactor(self.H[chosen], self.M[chosen])


def factorize_local(near: Neighborhoods, lam: float, mu: float) -> LocalFactor:
    """As `factorize_gram`, for every query by itself."""
    Q = near.gram * (1 + lam * near.same_class)
    diagonal = np.arange(Q.shape[1])
    Q[:, diagonal, diagonal] += mu / 2
    P = np.linalg.inv(Q)
    return LocalFactor((mu / 2) * P, (1 + lam) * P)


def local_residuals(near: Neighborhoods, c: Array) -> Array:
    """(k, m): ||y - X_i c_i|| for unit queries and the class of every neighbour."""
    same = near.same_class
    parts = c * (_products(np.where(same, near.gram, 0), c) - 2 * near.cross)
    squares = 1 + _products(same.astype(np.float64), parts)
    found: Array = np.sqrt(np.maximum(squares, 0))
    return found


def local_norms(near: Neighborhoods, c: Array) -> Array:
    """(k, m): ||c_i|| for the class of every neighbour."""
    norms: Array = np.sqrt(_products(near.same_class.astype(np.float64), c * c))
    return norms


def _products(matrices: Array, columns: Array) -> Array:
    """(k, m): the product of every matrix (m, k, k) with its column (k, m)."""
    rows = np.ascontiguousarray(columns.T)
    product: Array = np.matmul(matrices, rows[:, :, np.newaxis])[:, :, 0]
    return product.T
