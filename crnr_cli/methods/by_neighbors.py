"""Coding each query by its nearest samples alone: only the search grows with the gallery."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np

from crnr_cli.arrays import Array, FewClasses
from crnr_cli.errors import GalleryError, UsageError, why_missing
from crnr_cli.methods.base import CodingMethod, Samples, Split, State
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers import indexes
from crnr_cli.solvers.neighbors import Neighborhoods, find_nearest, local_residuals, search_bytes
from crnr_cli.system import memory
from crnr_cli.wording import format_count

_TRIED = 100  # samples, of which one is classified to find out whether the parameters make sense
_GATHERED = 2**20  # numbers of samples, or of Gram matrices, that are held at once: 8 MB in float64
_BATCH = 256  # queries per batch: every batch reads all samples once
_RESIDUALS = 2**26  # of a batch, of parts, with very many classes
_OF_INDEX = "index_"  # how the names of its arrays begin
_MOST = 2000  # neighbours; the Gram matrix of one query has their square


class LocalMethod(CodingMethod):
    """A method that codes a query by all samples or, within `Neighbors`, by a few samples of its own."""

    supports_neighbors: ClassVar[bool] = True

    @abstractmethod
    def local_codes(self, near: Neighborhoods) -> Array:
        """(k, m): the weights of the neighbours of every query."""

    def local_codes_after(
        self, near: Neighborhoods, iterations: Sequence[int]
    ) -> Iterator[tuple[int, Array]]:
        """The number of each of the `variants`, in any order, and its `local_codes`, in one pass."""
        yield 0, self.local_codes(near)

    def local_decision(self, near: Neighborhoods, codes: Array) -> Array:
        """(k, m), of the class of every neighbour, from the codes; by default, ||y - X_i c_i||."""
        return local_residuals(near, codes)


def residual_without_neighbor(method: LocalMethod) -> float:
    """Return the residual of a class without a neighbour; this is the only place that chooses it.

    The class represents nothing, as one whose neighbours have no weight.
    """
    weightless = Neighborhoods(np.ones((1, 1, 1)), np.zeros((1, 1)), np.zeros((1, 1), np.int64))
    return float(method.local_decision(weightless, np.zeros((1, 1)))[0, 0])


def check_search(name: str, neighbors: object, index: object) -> None:
    """Raise UsageError if a method of this name cannot have these parameters of the search."""
    if not isinstance(neighbors, Integral) or not 0 <= int(neighbors) <= _MOST:
        raise UsageError(
            f"method {name}: neighbors must be a whole number from 0 (all examples) to {_MOST}, "
            f"not {neighbors!r}"
        )
    if not isinstance(index, str) or index not in indexes.INDEXES:
        raise UsageError(f"method {name}: index must be {' or '.join(indexes.INDEXES)}, not {index!r}")
    if index != "exact" and not neighbors:
        raise UsageError(f"--index {index} needs --neighbors K, the number of nearest examples to use")


@dataclass(frozen=True, kw_only=True)
class Neighbors(CodingMethod):
    """Another method, by the nearest samples of each query alone."""

    since_version: ClassVar[int] = 4
    method: LocalMethod
    neighbors: int
    index: str = "exact"  # how the neighbours are found

    def __post_init__(self) -> None:
        check_search(self.name, self.neighbors, self.index)
        if not self.neighbors:
            raise ValueError("0 neighbors are all samples: use the method itself")

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.method.name

    @property
    def signed(self) -> bool:  # type: ignore[override]
        return self.method.signed

    @property
    def tunable(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.method.tunable

    @property
    def parameters(self) -> dict[str, Any]:
        return self.method.parameters | {"neighbors": self.neighbors, "index": self.index}

    def to_stored(self) -> dict[str, object]:
        index = {} if self.index == "exact" else {"index": self.index}
        return {"neighbors": self.neighbors, **index, **self.method.to_stored()}

    def with_parameters(self, **changes: object) -> Self:
        """Return the same with other values of some of the parameters of the method within."""
        return replace(self, method=self.method.with_parameters(**changes))

    @property
    def needs_few_samples(self) -> bool:
        return True

    def smoke_test_samples(self, samples: Samples) -> Samples:
        return samples.first(_TRIED) if self.index == "exact" else samples

    def why_unavailable(self) -> str | None:
        return None if self.index == "exact" else why_missing("faiss", f"--index {self.index}", "faiss")

    def fit(self, samples: Samples) -> State:
        return {}

    def fit_bytes(self, samples: Samples) -> int:
        return 0

    def batch_size(self, samples: Samples) -> int:
        """More than with codes by all samples: a query needs little memory, unless it has dense residuals."""
        return max(32, min(_BATCH, _RESIDUALS // self._residuals_each(samples) // 32 * 32))

    def batch_bytes(self, samples: Samples, size: int) -> int:
        most = min(self.neighbors, len(samples.vectors))
        gathered = max(_GATHERED, most * max(most, int(samples.vectors.shape[1])))
        residuals = 3 * 8 * size * self._residuals_each(samples)
        return search_bytes(len(samples.vectors), size) + 6 * 8 * gathered + residuals

    def _residuals_each(self, samples: Samples) -> int:
        """Per query: those of few classes, but of all if they are the mean over parts."""
        return min(self.neighbors, samples.n_classes) if samples.parts is None else samples.n_classes

    def make_index(self, samples: Samples, progress: Progress = silent) -> State:
        """What finds neighbours faster, as arrays beside what `fit` makes; none for exact search.

        It is made for a gallery as a whole. Samples of which some are held out, to tune, compare, audit or
        calibrate, are searched exactly: an index of them would take longer to make than it saves.
        """
        if self.index == "exact":
            return {}
        n, d = samples.vectors.shape
        memory.require_memory(
            indexes.index_bytes(self.index, n, d),
            f"making --index {self.index} of {format_count(n, 'example')} with vectors of length {d}",
            "use --index exact, --pca or fewer examples",
        )

        def label_by_neighbors(probes: Array, places: Array) -> Array:
            return self._labels(samples, samples.vectors[probes], places)

        made = indexes.build_index(
            self.index, samples.vectors.T, self.neighbors, label_by_neighbors, progress
        )
        return {_OF_INDEX + key: array for key, array in made.items()}

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        codes = np.zeros((len(queries), len(samples.vectors)), queries.dtype)
        places = self._nearest(samples, state, queries)
        for batch, near in _neighborhoods(samples, queries, places):
            local = self.method.local_codes(near).T.astype(queries.dtype)
            np.put_along_axis(codes[batch], places[batch], local, axis=1)
        return codes

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        return self.method.decision(X, edges, c, Y)

    def residuals(self, samples: Samples, state: State, queries: Array) -> FewClasses:
        """Those of the classes that have a neighbour, which are few however many classes there are."""
        places = self._nearest(samples, state, queries)
        found, classes = np.empty(places.shape, queries.dtype), np.empty(places.shape, np.int64)
        for batch, near in _neighborhoods(samples, queries, places):
            found[batch] = self.method.local_decision(near, self.method.local_codes(near)).T
            classes[batch] = near.classes
        return FewClasses.of(classes, found, residual_without_neighbor(self.method), samples.n_classes)

    def variants(self, iterations: Sequence[int]) -> list[Self]:
        return [replace(self, method=variant) for variant in self.method.variants(iterations)]

    def residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        """The residuals of all variants; the neighbours are searched once, and factorized once."""
        samples, others = split.samples, residual_without_neighbor(self.method)
        n_variants = len(self.method.variants(iterations))
        for batch in split.batches:
            queries, places = split.queries[batch], split.find_nearest(self.neighbors)[batch]
            found = np.empty((n_variants, len(queries), samples.n_classes), queries.dtype)
            for part, near in _neighborhoods(samples, queries, places):
                for variant, codes in self.method.local_codes_after(near, iterations):
                    values = self.method.local_decision(near, codes).T.astype(queries.dtype)
                    few = FewClasses.of(near.classes, values, others, samples.n_classes)
                    found[variant, part] = few.to_dense()
            yield found

    def _labels(self, samples: Samples, queries: Array, places: Array) -> Array:
        """(m,): the class with the smallest residual, by these neighbours."""
        labels = np.empty(len(queries), np.int64)
        for batch, near in _neighborhoods(samples, queries, places):
            best = self.method.local_decision(near, self.method.local_codes(near)).argmin(axis=0)
            labels[batch] = np.take_along_axis(near.classes, best[:, np.newaxis], axis=1)[:, 0]
        return labels

    def _nearest(self, samples: Samples, state: State, queries: Array) -> Array:
        """(m, k): the places of the neighbours among the samples."""
        X, Y = samples.vectors.T, queries.T
        arrays = _of_index(state)
        if self.index == "exact" or not arrays:
            return find_nearest(X, Y, self.neighbors)
        index = samples.prepared.compute_once(arrays["effort"], lambda: indexes.Index(self.index, X, arrays))
        return index.find_nearest(Y, self.neighbors)


def _neighborhoods(samples: Samples, queries: Array, places: Array) -> Iterator[tuple[slice, Neighborhoods]]:
    """Yield the neighbours of a few queries after the other, by their places, and which queries these are."""
    X, Y = samples.vectors.T, queries.T
    step = max(1, _GATHERED // (places.shape[1] * max(places.shape[1], queries.shape[1])))
    classes = samples.class_index
    for start in range(0, len(queries), step):
        batch = slice(start, start + step)
        near = Neighborhoods.of(X, Y[:, batch], places[batch], classes)
        if not np.isfinite(near.gram).all():
            raise GalleryError("the gallery has vectors that are not finite; build the gallery again")
        yield batch, near


def _of_index(state: State) -> State:
    return {key.removeprefix(_OF_INDEX): array for key, array in state.items() if key.startswith(_OF_INDEX)}


def worst_index_measurement(state: State) -> indexes.Measured | None:
    """What the index finds, of several parts the least; None if the search is exact."""
    found = [
        indexes.index_measurement({"measured": array})
        for key, array in state.items()
        if key.partition(".")[0] == f"{_OF_INDEX}measured"
    ]
    if not found:
        return None
    return indexes.Measured(min(one.recall for one in found), min(one.agreement for one in found))
