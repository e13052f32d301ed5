"""Indexes that find the nearest samples faster than a search through all of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.solvers.graph import Graph, build_graph, graph_bytes, graph_without, hideable
from crnr_cli.solvers.neighbors import find_nearest
from crnr_cli.system.extras import require_packages

_PER_ROOT = 4  # lists per root of the number of samples
_PER_CENTER = 40  # samples per centre in k-means
_ROUNDS = 10  # of k-means
_FEW = 32  # so few lists can all be searched
_SEED = 20_240_101
_LISTED_AT_ONCE = 2**14  # samples that are put on lists at once
_PRODUCTS = 2**22  # products kept at the same time while lists are searched
Arrays = dict[str, Array]
WANTED_AGREEMENT = 0.995  # share of the labels that the exact search gives too
WANTED_RECALL = 0.8  # share of the nearest samples; residuals and margins differ where some are missing
_MAX_PROBES = 1000  # samples held out to measure the index
_HOLD_OUT_EVERY = 20  # samples per probe at least: the others are nearly the whole gallery
_SPARE = 16  # candidates beyond the wanted neighbours
_GATHERED = 2**23  # values of samples gathered at once, 64 MB in float64
_PROBED_AT_ONCE = 128  # probes searched at once
_LEAST_WIDTH = {"hnsw": 64, "ivf": 8}  # candidates that a search of the graph keeps; lists that are searched
_NEXT_WIDTH = 1.25  # factor from one search width to the next
_LEAST_GAIN = 0.1  # share of the missing results that a larger search width has to find
_ROUNDING = 1e-9  # more than the rounding error of a product of unit vectors in float64
# Returns the labels (m,) of samples (m,) by their neighbours, (m, count) in every tile.
LabelByNeighbors = Callable[[Array, Sequence[Array]], Array]


def list_bytes(n: int, d: int) -> int:
    """Estimate how much memory `build_lists` needs at its peak."""
    return 4 * d * (_PER_CENTER + 2) * _n_lists(n) + 32 * n


def _n_lists(n: int) -> int:
    return max(1, min(n // _PER_CENTER, round(_PER_ROOT * math.sqrt(n))))


def build_lists(X: Array, progress: Progress) -> Arrays:
    """Return lists of the rows of X, the same for any number of cores.

    The last bits of products depend on the cores, so one core computes the centres.
    """
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
        # With other limits, faiss would warn of too few points, or leave some out.
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
    for start in range(0, n, _LISTED_AT_ONCE):
        progress("indexing", n * (_ROUNDS * len(sample) + start) // work, n)
        block = np.ascontiguousarray(X[start : start + _LISTED_AT_ONCE], dtype=np.float32)
        list_of[start : start + _LISTED_AT_ONCE] = means.assign(block)[1]
    members = np.argsort(list_of, kind="stable").astype(np.int32)
    edges = np.concatenate([[0], np.cumsum(np.bincount(list_of, minlength=count))])
    return {"centers": centers, "edges": edges.astype(np.int64), "members": members}


class Lists:
    """Lists of the rows of X, ready to be searched. Invalid lists raise ValueError."""

    def __init__(self, X: Array, arrays: Arrays) -> None:
        centers, edges, members = arrays["centers"], arrays["edges"], arrays["members"]
        n, d = X.shape
        if centers.dtype != np.float32 or centers.ndim != 2 or centers.shape[1] != d or not len(centers):
            raise ValueError("the centres of the index do not match the examples")
        if not np.isfinite(centers).all():
            raise ValueError("a centre of the index is not a number")
        if edges.dtype != np.int64 or edges.shape != (len(centers) + 1,) or members.dtype != np.int32:
            raise ValueError("the index has arrays of another type or size")
        if edges[0] != 0 or edges[-1] != n or np.any(np.diff(edges) < 0) or members.shape != (n,):
            raise ValueError("the lists of the index do not match the examples")
        if members.min() < 0 or not np.all(np.bincount(members, minlength=n) == 1):
            raise ValueError("an example is not on exactly one list of the index")
        self._X, self._edges, self._members = X, edges, members
        self._centers = centers.astype(np.float64)

    @property
    def size(self) -> int:
        """The largest search width: a search of more lists is slower than a look at all samples."""
        return min(len(self._centers), max(_FEW, len(self._centers) // 32))

    def find_candidates(self, Y: Array, count: int, search_width: int) -> Array:
        """Return (m, count): near rows of X for each row of Y, unordered, padded with -1."""
        # In float64, so that any batch chooses the same lists.
        near = Y.astype(np.float64) @ self._centers.T
        chosen = np.argpartition(-near, search_width - 1, axis=1)[:, :search_width]
        found: Array = np.full((len(Y), count), -1, dtype=np.int64)
        for batch in self._batches(chosen):
            self._search(Y[batch], chosen[batch], found[batch])
        return found

    def _batches(self, chosen: Array) -> Iterator[slice]:
        """Yield slices of the queries whose products fit into memory together."""
        ends = np.cumsum(np.diff(self._edges)[chosen].sum(axis=1))
        start = 0
        while start < len(chosen):
            before = ends[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _PRODUCTS, side="right")))
            yield slice(start, stop)
            start = stop

    def _search(self, Y: Array, chosen: Array, found: Array) -> None:
        lengths = np.diff(self._edges)[chosen]  # (m, search_width)
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


class _Search(Protocol):
    @property
    def size(self) -> int:
        """The largest search width that makes sense."""

    def find_candidates(self, Y: Array, count: int, search_width: int) -> Array:
        """Return (m, count): near samples for each row of Y, unordered, padded with -1."""


class Index:
    """An index over the columns of X, from its arrays. Invalid arrays raise ValueError."""

    def __init__(self, kind: str, X: Array, arrays: Arrays) -> None:
        if kind == "hnsw":
            require_index_package(kind)
        self._X = X.T
        self.search: _Search = Graph(self._X, arrays) if kind == "hnsw" else Lists(self._X, arrays)
        search_width = arrays["effort"]  # its name in gallery files
        if (
            search_width.shape != (1,)
            or search_width.dtype != np.int64
            or not 1 <= search_width[0] <= self.search.size
        ):
            raise ValueError("the search width of the index is out of range")
        index_measurement(arrays)
        self._search_width = int(search_width[0])

    def find_nearest(self, Y: Array, count: int, search_width: int | None = None) -> Array:
        """Return (m, count): the places of the nearest columns of X, as far as the index finds them.

        The nearest comes first; of equally near columns, the first in X. A query for which the index finds
        too few is compared with all samples.
        """
        n = len(self._X)
        if count >= n:
            return find_nearest(self._X.T, Y, count)
        rows = np.ascontiguousarray(Y.T)
        candidates = self.search.find_candidates(
            rows, min(n, count + _SPARE), search_width or self._search_width
        )
        found = np.empty((len(rows), count), dtype=np.int64)
        enough = np.count_nonzero(candidates >= 0, axis=1) >= count
        found[enough] = _rank_candidates(self._X, rows[enough], candidates[enough], count)
        if not enough.all():
            found[~enough] = find_nearest(self._X.T, Y[:, ~enough], count)
        return found


def _rank_candidates(X: Array, Y: Array, candidates: Array, count: int) -> Array:
    """Return (m, count): the nearest rows of X among the candidates of each row of Y."""
    found = np.empty((len(Y), count), dtype=np.int64)
    step = max(1, _GATHERED // (candidates.shape[1] * X.shape[1]))
    for start in range(0, len(Y), step):
        those = slice(start, start + step)
        places = candidates[those]
        products = np.where(places < 0, -np.inf, _products(X, Y[those], places))
        order = np.lexsort((places, -products), axis=1)[:, :count]
        found[those] = np.take_along_axis(places, order, axis=1)
    return found


def _products(X: Array, Y: Array, places: Array) -> Array:
    """Return (m, k): the products of each row of Y with its own rows of X, in float64."""
    products: Array = np.einsum("mcd,md->mc", X[places].astype(np.float64), Y.astype(np.float64))
    return products


def require_index_package(kind: str) -> None:
    """Raise an error, before any work, if the package of this index is not installed."""
    require_packages("faiss", f"--index {kind}", "faiss")


def index_bytes(kind: str, n: int, d: int) -> int:
    """Estimate how much memory the index of one tile needs at its peak."""
    return (graph_bytes if kind == "hnsw" else list_bytes)(n, d)


def build_indexes(
    kind: str, tiles: Sequence[Array], count: int, labelled: LabelByNeighbors, progress: Progress = silent
) -> list[Arrays]:
    """Return the arrays of an index over the columns of every tile, to be searched for `count` neighbours.

    All are searched equally far: as far as whole queries need to get the labels of the exact search.
    """
    require_index_package(kind)
    made = []
    for number, X in enumerate(tiles):
        n = X.shape[1]

        def of_all(step: str, done: int, total: int, before: int = number * n) -> None:
            progress(step, before + done, len(tiles) * total)

        of_all("indexing", 0, n)
        made.append((build_graph if kind == "hnsw" else build_lists)(X.T, of_all))
        of_all("indexing", n, n)
    trial = _Trial.of(kind, tiles, made, count, labelled, progress)
    chosen = search_width = min(_LEAST_WIDTH[kind], trial.most)
    best = trial.measure(search_width)
    # If twice the search width finds hardly more, a wider search only takes time.
    while best.missing and search_width < min(trial.most, 2 * chosen):
        search_width = min(trial.most, 2 * chosen, math.ceil(_NEXT_WIDTH * search_width))
        found = trial.measure(search_width)
        if found.missing <= (1 - _LEAST_GAIN) * best.missing:
            chosen, best = search_width, found
    return [
        of_tile | _to_arrays(min(chosen, index.search.size), best)
        for of_tile, index in zip(made, trial.indexes, strict=True)
    ]


@dataclass(frozen=True)
class Measured:
    """The recall and agreement of an index, compared with the exact search on held-out samples."""

    recall: float  # share of the nearest samples
    agreement: float  # share of the labels

    def describe(self) -> str:
        found, same = 100 * self.recall, 100 * self.agreement
        return f"{found:.1f}% of the nearest examples and {same:.1f}% of the labels"

    @property
    def missing(self) -> float:
        return max(0.0, WANTED_RECALL - self.recall) + max(0.0, WANTED_AGREEMENT - self.agreement)


def _to_arrays(search_width: int, measured: Measured) -> Arrays:
    return {
        "effort": np.array([search_width], dtype=np.int64),
        "measured": np.array([measured.recall, measured.agreement]),
    }


def index_measurement(arrays: Arrays) -> Measured:
    """Return the recall and agreement that were measured when the index was made."""
    found = arrays["measured"]
    if found.shape != (2,) or found.dtype != np.float64 or not (found.min() >= 0 and found.max() <= 1):
        raise ValueError("the measured quality of the index is not given as shares")
    return Measured(*found.tolist())


@dataclass(frozen=True)
class _Trial:
    """Held-out samples, the probes, as queries that measure the indexes; no search finds or passes one."""

    indexes: list[Index]  # one for every tile
    tiles: Sequence[Array]
    probes: Array  # (m,)
    labelled: LabelByNeighbors
    count: int  # neighbours of each probe
    more: int  # samples to search for beyond `count`, because some may be probes
    farthest: Array  # (tiles, m): the product with the last of the exact neighbours
    labels: Array  # (m,): the labels by the exact neighbours

    @classmethod
    def of(
        cls,
        kind: str,
        tiles: Sequence[Array],
        made: Sequence[Arrays],
        count: int,
        labelled: LabelByNeighbors,
        progress: Progress,
    ) -> _Trial:
        n = tiles[0].shape[1]
        hidden = [hideable(of_tile) if kind == "hnsw" else np.arange(0) for of_tile in made]
        # As many tiles of a probe as possible are hidden from the search.
        times = np.bincount(np.concatenate(hidden), minlength=n)
        suitable = np.flatnonzero(times == times.max()) if kind == "ivf" or times.any() else np.arange(0)
        m = min(_MAX_PROBES, max(1, n // _HOLD_OUT_EVERY), len(suitable))
        probes = suitable[np.linspace(0, len(suitable) - 1, m).astype(np.int64)]
        # A sample that is blank in all tiles is equally like all classes.
        probes = probes[np.any([X[:, probes].any(axis=0) for X in tiles], axis=0)]
        m = len(probes)
        indexes = []
        for X, of_tile, those in zip(tiles, made, hidden, strict=True):
            shown = graph_without(of_tile, np.intersect1d(those, probes)) if kind == "hnsw" else of_tile
            indexes.append(Index(kind, X, shown | _to_arrays(1, Measured(0.0, 0.0))))
        are_hidden = bool(times.max() == len(tiles))
        more = count // 4 + 8
        farthest, labels = np.empty((len(tiles), m)), np.empty(m, np.int64)
        for batch in _batches(m):
            progress("measuring the index", batch.start, m)
            exact = []
            for number, X in enumerate(tiles):
                Y = X[:, probes[batch]]
                exact.append(_drop_probes(find_nearest(X, Y, count + more), probes, count))
                farthest[number, batch] = _products(X.T, Y.T, exact[-1]).min(axis=1)
            labels[batch] = labelled(probes[batch], exact)
        progress("measuring the index", m, m)
        return cls(indexes, tiles, probes, labelled, count, 0 if are_hidden else more, farthest, labels)

    @property
    def most(self) -> int:
        """The largest search width that makes sense in any tile."""
        return max(index.search.size for index in self.indexes)

    def measure(self, search_width: int) -> Measured:
        """Return what the indexes find with this search width.

        Copies of a sample count as the sample itself. A blank tile has no neighbours and adds to no label.
        """
        hits = total = agreed = 0
        for batch in _batches(len(self.probes)):
            those, found = self.probes[batch], []
            for X, index, farthest in zip(self.tiles, self.indexes, self.farthest, strict=True):
                Y = X[:, those]
                width = min(search_width, index.search.size)
                places = index.find_nearest(Y, self.count + self.more, width)
                found.append(_drop_probes(places, self.probes, self.count))
                is_hit = _products(X.T, Y.T, found[-1]) >= farthest[batch, np.newaxis] - _ROUNDING
                is_hit = is_hit[Y.any(axis=0)]
                hits, total = hits + int(np.count_nonzero(is_hit)), total + is_hit.size
            agreed += int(np.count_nonzero(self.labelled(those, found) == self.labels[batch]))
        return Measured(
            hits / total if total else 1.0, agreed / len(self.probes) if len(self.probes) else 1.0
        )


def _batches(m: int) -> Iterator[slice]:
    return (slice(start, min(m, start + _PROBED_AT_ONCE)) for start in range(0, m, _PROBED_AT_ONCE))


def _drop_probes(found: Array, probes: Array, count: int) -> Array:
    """Return (m, count): the results without the probes, as long as there are enough others."""
    order = np.argsort(np.isin(found, probes), axis=1, kind="stable")[:, :count]
    return np.take_along_axis(found, order, axis=1)
