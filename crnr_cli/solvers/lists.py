"""The nearest samples by lists (IVF): a query is compared with the samples of the nearest lists alone.

Every sample is on the list of its nearest centre. faiss finds the centres; the search needs NumPy alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.progress import Progress

_PER_ROOT = 4  # lists per root of the number of samples
_PER_CENTER = 40  # samples that a centre is computed from
_ROUNDS = 10  # of k-means
_FEW = 32  # lists, of which all can be searched
_SEED = 20_240_101
_AT_ONCE = 2**14  # samples that are put on lists at once
_PRODUCTS = 2**22  # that are kept at the same time while lists are searched

Arrays = dict[str, Array]


def list_bytes(n: int, d: int) -> int:
    """About how much memory `made_lists` needs at its peak."""
    return 4 * d * (_PER_CENTER + 2) * _n_lists(n) + 32 * n


def _n_lists(n: int) -> int:
    return max(1, min(n // _PER_CENTER, round(_PER_ROOT * math.sqrt(n))))


def made_lists(X: Array, progress: Progress) -> Arrays:
    """Lists of the rows of X, the same for any number of cores: the last bits of products depend on them."""
    import faiss

    faiss.omp_set_num_threads(1)
    n, d = X.shape
    count = _n_lists(n)
    chosen = np.unique(np.linspace(0, n - 1, min(n, count * _PER_CENTER)).astype(np.int64))
    sample = np.ascontiguousarray(X[chosen], dtype=np.float32)
    centers = None
    work = n + _ROUNDS * len(sample)
    for turn in range(_ROUNDS):
        progress("indexing", n * turn * len(sample) // work, n)
        # With other limits, faiss would warn of few points on its own, or leave some out.
        means = faiss.Kmeans(
            d,
            count,
            niter=1,
            spherical=True,
            seed=_SEED,
            min_points_per_centroid=1,
            max_points_per_centroid=len(sample),
        )
        means.train(sample, init_centroids=centers)
        centers = means.centroids
    assert centers is not None
    list_of = np.empty(n, dtype=np.int64)
    for start in range(0, n, _AT_ONCE):
        progress("indexing", n * (_ROUNDS * len(sample) + start) // work, n)
        block = np.ascontiguousarray(X[start : start + _AT_ONCE], dtype=np.float32)
        list_of[start : start + _AT_ONCE] = means.assign(block)[1]
    members = np.argsort(list_of, kind="stable").astype(np.int32)
    edges = np.concatenate([[0], np.cumsum(np.bincount(list_of, minlength=count))])
    return {"centers": centers, "edges": edges.astype(np.int64), "members": members}


class Lists:
    """Lists of the rows of X, ready to be searched. ValueError if they are not valid ones."""

    def __init__(self, X: Array, arrays: Arrays) -> None:
        centers, edges, members = arrays["centers"], arrays["edges"], arrays["members"]
        n, d = X.shape
        if centers.dtype != np.float32 or centers.ndim != 2 or centers.shape[1] != d or not len(centers):
            raise ValueError("the centres of its index do not match its samples")
        if not np.isfinite(centers).all():
            raise ValueError("a centre of its index is not a number")
        if edges.dtype != np.int64 or edges.shape != (len(centers) + 1,) or members.dtype != np.int32:
            raise ValueError("its index has arrays of another type or size")
        if edges[0] != 0 or edges[-1] != n or np.any(np.diff(edges) < 0) or members.shape != (n,):
            raise ValueError("the lists of its index do not match its samples")
        if members.min() < 0 or not np.all(np.bincount(members, minlength=n) == 1):
            raise ValueError("a sample is not on exactly one list of its index")
        self._X, self._edges, self._members = X, edges, members
        self._centers = centers.astype(np.float64)

    @property
    def size(self) -> int:
        """The largest effort: beyond a small part of the lists, comparing with all samples is faster."""
        return min(len(self._centers), max(_FEW, len(self._centers) // 32))

    def candidates(self, Y: Array, count: int, effort: int) -> Array:
        """(m, count): near rows of X for each row of Y, in no order; -1 where there is none."""
        # In float64, so that the same lists are chosen in any batch.
        near = Y.astype(np.float64) @ self._centers.T
        chosen = np.argpartition(-near, effort - 1, axis=1)[:, :effort]
        found: Array = np.full((len(Y), count), -1, dtype=np.int64)
        for batch in self._batches(chosen):
            self._search(Y[batch], chosen[batch], found[batch])
        return found

    def _batches(self, chosen: Array) -> Iterator[slice]:
        """Queries whose products fit into memory together."""
        ends = np.cumsum(np.diff(self._edges)[chosen].sum(axis=1))
        start = 0
        while start < len(chosen):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _PRODUCTS, side="right")))
            yield slice(start, stop)
            start = stop

    def _search(self, Y: Array, chosen: Array, found: Array) -> None:
        lengths = np.diff(self._edges)[chosen]  # (m, effort)
        firsts = np.cumsum(lengths).reshape(lengths.shape) - lengths  # where the products of a list begin
        products = np.empty(int(lengths.sum()), dtype=np.result_type(self._X, Y))
        places = np.empty(products.size, dtype=np.int64)
        order = np.argsort(chosen, axis=None, kind="stable")
        lists, ends = np.unique(chosen.reshape(-1)[order], return_index=True)
        for number, pairs in zip(lists, np.split(order, ends[1:]), strict=True):
            members = self._members[self._edges[number] : self._edges[number + 1]]
            queries = pairs // chosen.shape[1]
            where = firsts.reshape(-1)[pairs][:, np.newaxis] + np.arange(len(members))
            products[where] = Y[queries] @ self._X[members].T
            places[where] = members
        of_query = np.append(firsts[:, 0], products.size)
        for row, (start, stop) in enumerate(pairwise(of_query)):
            best = places[start:stop]
            if len(best) > found.shape[1]:
                best = best[np.argpartition(-products[start:stop], found.shape[1] - 1)[: found.shape[1]]]
            found[row, : len(best)] = best
