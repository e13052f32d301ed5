"""Indexes find most of the nearest samples without comparing a query with all of them.

What an index finds are candidates, which are compared again in float64, as for the exact search. How much of
the exact neighbours it finds is measured on samples of the gallery when it is made, and searches look as far
as is needed for nearly all of them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers.graph import Graph, graph_bytes, made_graph
from crnr_cli.solvers.lists import Lists, list_bytes, made_lists
from crnr_cli.solvers.search import nearest
from crnr_cli.system.optional import require

INDEXES = ("exact", "ivf", "hnsw")
WANTED_RECALL = 0.99
RECALL_SAMPLES = 1000  # whose neighbours are looked for to measure the recall
_SPARE = 16  # candidates beyond those that are asked for
_GATHERED = 2**23  # numbers of samples that are gathered at once, 64 MB in float64
_ASKED = 128  # queries that are asked at once to measure the recall
_LEAST_EFFORT = {"hnsw": 64, "ivf": 8}  # samples that a search of the graph keeps in view; lists
_LEAST_GAIN = 0.002  # of recall, that twice the effort has to bring
_ROUNDING = 1e-9  # more than the rounding error of a product of unit vectors in float64

Arrays = dict[str, Array]


class _Search(Protocol):
    @property
    def size(self) -> int:
        """The largest effort that makes sense."""

    def candidates(self, Y: Array, count: int, effort: int) -> Array:
        """(m, count): near samples for each row of Y, in no order; -1 where there is none."""


class Index:
    """An index over the columns of X, from its arrays. ValueError if they are not valid."""

    def __init__(self, kind: str, X: Array, arrays: Arrays) -> None:
        if kind == "hnsw":
            require_for(kind)
        self._X = X.T
        self.search: _Search = Graph(self._X, arrays) if kind == "hnsw" else Lists(self._X, arrays)
        effort = arrays["effort"]
        if effort.shape != (1,) or effort.dtype != np.int64 or not 1 <= effort[0] <= self.search.size:
            raise ValueError("the effort of its index is out of range")
        recall_of(arrays)
        self._effort = int(effort[0])

    def nearest(self, Y: Array, count: int, effort: int | None = None) -> Array:
        """(m, count): the places of the nearest columns of X, as far as the index finds them.

        The nearest comes first; of equally near ones, the first in X. A query for which the index finds too
        few is compared with all samples.
        """
        n = len(self._X)
        if count >= n:
            return nearest(self._X.T, Y, count)
        rows = np.ascontiguousarray(Y.T)
        candidates = self.search.candidates(rows, min(n, count + _SPARE), effort or self._effort)
        found = np.empty((len(rows), count), dtype=np.int64)
        enough = np.count_nonzero(candidates >= 0, axis=1) >= count
        found[enough] = _ranked(self._X, rows[enough], candidates[enough], count)
        if not enough.all():
            found[~enough] = nearest(self._X.T, Y[:, ~enough], count)
        return found


def _ranked(X: Array, Y: Array, candidates: Array, count: int) -> Array:
    """(m, count): the nearest rows of X among the candidates of each row of Y."""
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
    """(m, k): of each row of Y with its own rows of X, in float64."""
    products: Array = np.einsum("mcd,md->mc", X[places].astype(np.float64), Y.astype(np.float64))
    return products


def require_for(kind: str) -> None:
    """Refuse, before any work, an index whose package is not installed."""
    require("faiss", f"the index {kind}", "faiss")


def index_bytes(kind: str, n: int, d: int) -> int:
    """About how much memory `made_index` needs at its peak."""
    return (graph_bytes if kind == "hnsw" else list_bytes)(n, d)


def made_index(kind: str, X: Array, count: int, progress: Progress = silent) -> Arrays:
    """The arrays of an index over the columns of X, from which `count` neighbours will be asked."""
    require_for(kind)
    n = X.shape[1]
    progress("indexing", 0, n)
    made = (made_graph if kind == "hnsw" else made_lists)(X.T, progress)
    progress("indexing", n, n)
    index = Index(kind, X, made | _measured(1, 0.0))
    effort = min(_LEAST_EFFORT[kind], index.search.size)
    asked = np.unique(np.linspace(0, n - 1, RECALL_SAMPLES).astype(np.int64))
    limits = _limits(X, asked, count, progress)
    recall = _recall(index, X, asked, limits, count, effort)
    while recall < WANTED_RECALL and 2 * effort <= index.search.size:
        more = _recall(index, X, asked, limits, count, 2 * effort)
        if more < recall + _LEAST_GAIN:  # what is missing cannot be reached: looking further only takes time
            break
        effort, recall = 2 * effort, more
    return made | _measured(effort, recall)


def _measured(effort: int, recall: float) -> Arrays:
    return {"effort": np.array([effort], dtype=np.int64), "recall": np.array([recall])}


def recall_of(arrays: Arrays) -> float:
    """The share of the nearest samples that the index found when it was made."""
    recall = arrays["recall"]
    if recall.shape != (1,) or recall.dtype != np.float64 or not 0 <= recall[0] <= 1:
        raise ValueError("the recall of its index is not a share")
    return float(recall[0])


def _limits(X: Array, asked: Array, count: int, progress: Progress) -> Array:
    """The product of each of these samples with its last neighbour, by exact search; not with itself."""
    limits: list[Array] = []
    for start in range(0, len(asked), _ASKED):
        progress("measuring recall", start, len(asked))
        those = asked[start : start + _ASKED]
        limits.append(_others(X, those, nearest(X, X[:, those], count + 1)).min(axis=1, initial=np.inf))
    progress("measuring recall", len(asked), len(asked))
    return np.concatenate(limits)


def _recall(index: Index, X: Array, asked: Array, limits: Array, count: int, effort: int) -> float:
    """The share of what the index finds that is as near as the exact neighbours: copies are as good."""
    hits, total = 0, 0
    for start in range(0, len(asked), _ASKED):
        those = asked[start : start + _ASKED]
        products = _others(X, those, index.nearest(X[:, those], count + 1, effort))
        is_near = products >= limits[start : start + _ASKED, np.newaxis] - _ROUNDING
        hits += int(np.count_nonzero(is_near))
        total += products.size
    return hits / max(1, total)


def _others(X: Array, asked: Array, found: Array) -> Array:
    """(m, k - 1): the products of samples with those found for them, without the samples themselves.

    If a sample was not found, which is in no order after its copies, the last one is left out instead.
    """
    is_own = found == asked[:, np.newaxis]
    is_own[~is_own.any(axis=1), -1] = True
    others = found[~is_own].reshape(len(found), found.shape[1] - 1)
    return _products(X.T, X.T[asked], others)
