"""The nearest samples of each query, and codes by these alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass

INDEXES = ("exact", "ivf", "hnsw")  # how neighbours can be found
_BLOCK = 8192  # samples compared with all queries of a batch at once
_BATCH = 512  # queries compared at once: with a block, the products take 16 MB
_MERGED = 2**18  # products of a block that are merged at once with the largest so far: they take 20 MB
# Candidates beyond the wanted neighbours; only large groups of equally near samples need more.
_SPARE = 16


def find_nearest(X: Array, Y: Array, count: int) -> Array:
    """Return (m, count): the places of the columns of X with the largest products with each column of Y.

    The nearest comes first; of equally near columns, the first in X. All columns have at most unit length.
    """
    X, Y = X.T, np.ascontiguousarray(Y.T)  # rows, as they are stored
    count = min(count, len(X))
    parts = [_nearest(X, Y[start : start + _BATCH], count) for start in range(0, len(Y), _BATCH)]
    return np.concatenate(parts) if parts else np.empty((0, count), dtype=np.int64)


def search_bytes(n: int, m: int) -> int:
    """Estimate the memory of a search for m queries among n samples: the products of two blocks."""
    return 2 * (8 + 1) * min(n, _BLOCK) * min(m, _BATCH)


def _nearest(X: Array, Y: Array, count: int) -> Array:
    found = np.empty((len(Y), count), dtype=np.int64)
    if count + _SPARE >= len(X):
        everything = np.arange(len(X))
        for row, y in enumerate(Y):
            found[row] = _rank_rows(X, y, everything)[1][:count]
        return found
    places, excluded = _candidates(X, Y, count + _SPARE)
    farthest = np.empty(len(Y))  # the product of the last neighbour
    for row, y in enumerate(Y):
        products, ranked = _rank_rows(X, y, places[row])
        found[row], farthest[row] = ranked[:count], products[count - 1]
    bound = farthest - rounding_of_products(X)
    open_rows = np.flatnonzero(excluded >= bound)  # an excluded sample may be as near
    for row in open_rows.tolist():
        # An all-zero query, such as a blank tile of an image, is equally near to all samples.
        found[row] = _find_among_equals(X, Y[row], bound[row], count) if Y[row].any() else range(count)
    return found


def rounding_of_products(X: Array) -> float:
    """Return a bound on how much the products of a block differ from products in float64."""
    return float(4 * np.sqrt(X.shape[1] + 16) * np.finfo(X.dtype).eps)


def _rank_rows(X: Array, y: Array, places: Array) -> tuple[Array, Array]:
    """Return the products with these rows of X in float64, the largest first, and the rows' places."""
    # Not a matrix product, whose last bits depend on the number of rows.
    products = np.einsum("cd,d->c", X[places].astype(np.float64), y.astype(np.float64))
    order = np.lexsort((places, -products))
    return products[order], places[order]


def product_blocks(X: Array, columns: Array, size: int) -> Iterator[tuple[int, Array]]:
    """Yield the products of `size` rows of X at a time with all columns, and where each block begins.

    The caller may change a block; the next one overwrites it.
    """
    buffer = np.empty((min(size, len(X)), columns.shape[1]), dtype=np.result_type(X, columns))
    for start in range(0, len(X), size):
        block = X[start : start + size]
        yield start, np.matmul(block, columns, out=buffer[: len(block)])


def _blocks(X: Array, Y: Array, size: int) -> Iterator[tuple[int, Array]]:
    """Yield (at most size, m): the products of one block of samples at a time with all queries."""
    return product_blocks(X, np.ascontiguousarray(Y.T), size)  # this order is the fastest for BLAS


def _candidates(X: Array, Y: Array, count: int) -> tuple[Array, Array]:
    """Return (m, count): the rows of X with the largest products, unordered, and the smallest product
    (m,).
    """
    size = max(_BLOCK, count)
    best, places = np.empty((len(Y), count), X.dtype), np.empty((len(Y), count), np.int64)
    larger = np.empty((min(size, len(X)), len(Y)), dtype=bool)
    for start, products in _blocks(X, Y, size):
        if start == 0:
            first = np.ascontiguousarray(products.T)
            places[:] = np.argpartition(first, -count, axis=1)[:, -count:]
            best[:] = np.take_along_axis(first, places, axis=1)
            continue
        # After a few blocks, hardly any product exceeds the smallest kept one.
        here = np.greater(products, best.min(axis=1), out=larger[: len(products)])
        if not (n_larger := int(np.count_nonzero(here))):
            continue
        # In samples sorted by class, most products of a block may be larger: they are merged in parts.
        step = max(1, len(Y) * _MERGED // n_larger)
        for query in range(0, len(Y), step):
            these = slice(query, query + step)
            _merge(products[:, these], here[:, these], start, best[these], places[these])
    return places, best.min(axis=1)


def _merge(products: Array, larger: Array, start: int, best: Array, places: Array) -> None:
    """Replace the smallest kept products, and their places, by larger ones of the block at `start`."""
    count = best.shape[1]
    samples, queries = np.divmod(np.flatnonzero(larger), larger.shape[1])
    if not len(queries):
        return
    order = np.argsort(queries, kind="stable")
    samples, queries = samples[order], queries[order]
    changed, counts = np.unique(queries, return_counts=True)
    firsts = np.repeat(np.cumsum(counts) - counts, counts)
    where = np.repeat(np.arange(len(changed)), counts), count + np.arange(len(queries)) - firsts
    values = np.full((len(changed), count + int(counts.max())), -np.inf, dtype=best.dtype)
    those = np.zeros(values.shape, dtype=np.int64)
    values[:, :count], those[:, :count] = best[changed], places[changed]
    values[where], those[where] = products[samples, queries], start + samples
    kept = np.argpartition(values, -count, axis=1)[:, -count:]
    best[changed] = np.take_along_axis(values, kept, axis=1)
    places[changed] = np.take_along_axis(those, kept, axis=1)


def _find_among_equals(X: Array, y: Array, bound: float, count: int) -> Array:
    """Return the nearest samples of one query for which more are equally near than candidates are kept.

    The products of all nearest samples in their blocks reach the bound.
    """
    found, places = np.empty(0), np.empty(0, dtype=np.int64)
    for start, products in _blocks(X, y[np.newaxis], _BLOCK):
        here, there = _rank_rows(X, y, start + np.flatnonzero(products[:, 0] >= bound))
        found, places = np.concatenate([found, here]), np.concatenate([places, there])
        order = np.lexsort((places, -found))[:count]
        found, places = found[order], places[order]
    return places


@dataclass(frozen=True)
class Neighborhoods:
    """The samples near m queries, k for each query."""

    gram: Array  # (m, k, k)
    cross: Array  # (k, m): the products of the samples and the query
    classes: Array  # (m, k): the class of each sample
    lengths: Array  # (m,): the length of each query: 1, or 0 for a query of zeros

    @classmethod
    def of(cls, X: Array, Y: Array, places: Array, classes: Array) -> Neighborhoods:
        """Return the neighbourhoods of queries Y (d, m), from the places (m, k) of columns of X (d, n)."""
        rows = X.T[places].astype(np.float64)
        gram = rows @ rows.transpose(0, 2, 1)
        cross = np.einsum("mkd,dm->km", rows, Y.astype(np.float64))
        lengths: Array = np.any(Y, axis=0).astype(np.float64)
        return cls(gram, cross, classes[places], lengths)

    def pick(self, chosen: Array) -> Neighborhoods:
        """Return the neighbourhoods of the selected queries."""
        return Neighborhoods(
            self.gram[chosen], self.cross[:, chosen], self.classes[chosen], self.lengths[chosen]
        )

    def times(self, c: Array) -> Array:
        """Return (k, m): X'X c."""
        return _products(self.gram, c)

    @property
    def same_class(self) -> Array:
        """(m, k, k): whether two samples of a query have the same class."""
        same: Array = self.classes[:, :, np.newaxis] == self.classes[:, np.newaxis, :]
        return same


@dataclass(frozen=True)
class LocalFactor:
    """H and M of every query, as in a dense factor from its Gram matrix; queries are given as X'y."""

    H: Array  # (m, k, k)
    M: Array  # (m, k, k)

    def first_code(self, Y: Array) -> Array:
        return _products(self.M, Y)

    def product(self, A: Array, out: Array) -> None:
        """Set out = H A."""
        out[:] = _products(self.H, A)

    def pick(self, chosen: Array) -> LocalFactor:
        """Return the factors of the selected queries."""
        return LocalFactor(self.H[chosen], self.M[chosen])


def factorize_local(near: Neighborhoods, lam: float, mu: float) -> LocalFactor:
    """Return one factor per query, each as `factorize_gram` computes it."""
    Q = near.gram * (1 + lam * near.same_class)
    diagonal = np.arange(Q.shape[1])
    Q[:, diagonal, diagonal] += mu / 2
    P = np.linalg.inv(Q)
    return LocalFactor((mu / 2) * P, (1 + lam) * P)


def local_residuals(near: Neighborhoods, c: Array) -> Array:
    """Return (k, m): ||y - X_i c_i|| for the class of every neighbour."""
    same = near.same_class
    parts = c * (_products(np.where(same, near.gram, 0), c) - 2 * near.cross)
    squares = near.lengths + _products(same.astype(np.float64), parts)
    found: Array = np.sqrt(np.maximum(squares, 0))
    return found


def local_norms(near: Neighborhoods, c: Array) -> Array:
    """Return (k, m): ||c_i|| for the class of every neighbour."""
    norms: Array = np.sqrt(_products(near.same_class.astype(np.float64), c * c))
    return norms


def _products(matrices: Array, columns: Array) -> Array:
    """Return (k, m): the product of every matrix (m, k, k) with its column (k, m)."""
    rows = np.ascontiguousarray(columns.T)
    product: Array = np.matmul(matrices, rows[:, :, np.newaxis])[:, :, 0]
    return product.T
