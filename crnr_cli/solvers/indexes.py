"""Indexes find most of the nearest samples without comparing a query with all of them.

What an index finds are candidates, which are compared again in float64, as for the exact search. Some samples
of the gallery are asked for when it is made, as if they were not in it: searches look as far as these need to
get the label that the exact search gives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers.graph import Graph, graph_bytes, graph_without, hideable, made_graph
from crnr_cli.solvers.lists import Lists, list_bytes, made_lists
from crnr_cli.solvers.search import nearest
from crnr_cli.system.optional import require

INDEXES = ("exact", "ivf", "hnsw")
WANTED_AGREEMENT = 0.995  # share of the labels that are those of the exact search
WANTED_RECALL = 0.8  # share of the nearest samples; residuals and margins differ where some are missing
_MOST_ASKED = 1000  # samples that are asked for when it is made
_PER_ASKED = 20  # samples, of which one is asked for: the others are nearly the whole gallery
_SPARE = 16  # candidates beyond those that are asked for
_GATHERED = 2**23  # numbers of samples that are gathered at once, 64 MB in float64
_AT_ONCE = 128  # samples that are asked for at once
_LEAST_EFFORT = {"hnsw": 64, "ivf": 8}  # samples that a search of the graph keeps in view; lists
_MORE_EFFORT = 1.25  # times as much is tried next
_LEAST_GAIN = 0.1  # share of what is missing that more effort has to bring
_ROUNDING = 1e-9  # more than the rounding error of a product of unit vectors in float64

Arrays = dict[str, Array]
Labelled = Callable[[Array, Array], Array]  # the labels of samples (m,) by their neighbours (m, count)


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
        measured_by(arrays)
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


def made_index(kind: str, X: Array, count: int, labelled: Labelled, progress: Progress = silent) -> Arrays:
    """The arrays of an index over the columns of X, from which `count` neighbours will be asked."""
    require_for(kind)
    n = X.shape[1]
    progress("indexing", 0, n)
    made = (made_graph if kind == "hnsw" else made_lists)(X.T, progress)
    progress("indexing", n, n)
    trial = _Trial.of(kind, X, made, count, labelled, progress)
    chosen = effort = min(_LEAST_EFFORT[kind], trial.index.search.size)
    best = trial.measured(effort)
    # If twice the effort brings hardly more, looking further only takes time.
    while best.missing and effort < min(trial.index.search.size, 2 * chosen):
        effort = min(trial.index.search.size, 2 * chosen, math.ceil(_MORE_EFFORT * effort))
        found = trial.measured(effort)
        if found.missing <= (1 - _LEAST_GAIN) * best.missing:
            chosen, best = effort, found
    return made | _stored(chosen, best)


@dataclass(frozen=True)
class Measured:
    """How much of what the exact search finds an index found when it was made."""

    recall: float  # share of the nearest samples
    agreement: float  # share of the labels

    def describe(self) -> str:
        found, same = 100 * self.recall, 100 * self.agreement
        return f"{found:.1f} % of the nearest samples and {same:.1f} % of the labels"

    @property
    def missing(self) -> float:
        return max(0.0, WANTED_RECALL - self.recall) + max(0.0, WANTED_AGREEMENT - self.agreement)


def _stored(effort: int, measured: Measured) -> Arrays:
    return {
        "effort": np.array([effort], dtype=np.int64),
        "measured": np.array([measured.recall, measured.agreement]),
    }


def measured_by(arrays: Arrays) -> Measured:
    """What was measured when the index was made."""
    found = arrays["measured"]
    if found.shape != (2,) or found.dtype != np.float64 or not (found.min() >= 0 and found.max() <= 1):
        raise ValueError("what its index finds is not given as shares")
    return Measured(*found.tolist())


@dataclass(frozen=True)
class _Trial:
    """Samples that are asked for as if they were queries: they are not found, nor a step on the way."""

    index: Index
    X: Array
    asked: Array  # (m,)
    labelled: Labelled
    more: int  # samples to look for beyond `count`, as some may be among those that are asked for
    exact: Array  # (m, count): their neighbours
    labels: Array  # (m,): by these

    @classmethod
    def of(
        cls, kind: str, X: Array, made: Arrays, count: int, labelled: Labelled, progress: Progress
    ) -> _Trial:
        n = X.shape[1]
        suitable = hideable(made) if kind == "hnsw" else np.arange(n)
        m = min(_MOST_ASKED, max(1, n // _PER_ASKED), len(suitable))
        asked = suitable[np.linspace(0, len(suitable) - 1, m).astype(np.int64)]
        shown = graph_without(made, asked) if kind == "hnsw" else made
        index = Index(kind, X, shown | _stored(1, Measured(0.0, 0.0)))
        more = count // 4 + 8
        found: list[Array] = []
        for those in _batches(asked):
            progress("measuring the index", _AT_ONCE * len(found), m)
            found.append(_others(nearest(X, X[:, those], count + more), asked, count))
        progress("measuring the index", m, m)
        exact = np.concatenate([np.empty((0, min(n, count)), np.int64), *found])
        return cls(index, X, asked, labelled, 0 if kind == "hnsw" else more, exact, labelled(asked, exact))

    def measured(self, effort: int) -> Measured:
        """What the index finds with this effort. Copies of a sample are as good as the sample itself."""
        if not len(self.asked):
            return Measured(1.0, 1.0)
        count = self.exact.shape[1]
        found, hits = [], 0
        for those, exact in zip(_batches(self.asked), _batches(self.exact), strict=True):
            Y = self.X[:, those]
            found.append(_others(self.index.nearest(Y, count + self.more, effort), self.asked, count))
            limits = _products(self.X.T, Y.T, exact).min(axis=1, keepdims=True)
            hits += int(np.count_nonzero(_products(self.X.T, Y.T, found[-1]) >= limits - _ROUNDING))
        labels = self.labelled(self.asked, np.concatenate(found))
        return Measured(hits / self.exact.size, float(np.mean(labels == self.labels)))


def _batches(array: Array) -> Iterator[Array]:
    return (array[start : start + _AT_ONCE] for start in range(0, len(array), _AT_ONCE))


def _others(found: Array, asked: Array, count: int) -> Array:
    """(m, count): what was found, without samples that are asked for, as long as there are enough others."""
    order = np.argsort(np.isin(found, asked), axis=1, kind="stable")[:, :count]
    return np.take_along_axis(found, order, axis=1)
