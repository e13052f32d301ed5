"""Coding each query by its nearest samples alone: only the search grows with the gallery."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from crnr_cli.arrays import Array, FewClasses
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.methods.base import CodingMethod, Samples, Split, State
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.solvers.neighbors import INDEXES, Neighborhoods, find_nearest, local_residuals, search_bytes
from crnr_cli.system import memory
from crnr_cli.system.extras import why_missing
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.solvers.indexes import Measured

_TRIED = 100  # samples, of which one is classified to find out whether the parameters make sense
_GATHERED = 2**20  # values of samples, or of Gram matrices, that are held at once: 8 MB in float64
_BATCH = 256  # queries per batch: every batch reads all samples once
_RESIDUALS = 2**26  # per batch, with parts and very many classes
_OF_INDEX = "index_"  # prefix of the names of its arrays
_MOST = 2000  # neighbours; the Gram matrix of one query has their square


class LocalMethod(CodingMethod):
    """A method that codes a query by all samples or, within `Neighbors`, by a few samples of its own."""

    supports_neighbors: ClassVar[bool] = True

    @abstractmethod
    def local_codes(self, near: Neighborhoods) -> Array:
        """Return (k, m): the weights of the neighbours of every query."""

    def local_codes_after(
        self, near: Neighborhoods, iterations: Sequence[int]
    ) -> Iterator[tuple[int, Array]]:
        """Yield the number of each of the `variants`, in any order, and its `local_codes`, in one pass."""
        yield 0, self.local_codes(near)

    def local_decision(self, near: Neighborhoods, codes: Array) -> tuple[Array, Array]:
        """Return (k, m): the residual of each neighbour's class from the codes; and (m,): of all others.

        By default, they are ||y - X_i c_i|| and ||y||. A class without a neighbour is like a class whose
        neighbours have no weight: all of the query is left over.
        """
        return local_residuals(near, codes), near.lengths


def check_search(name: str, neighbors: object, index: object) -> None:
    """Raise UsageError if the method cannot have these search parameters."""
    if not isinstance(neighbors, Integral) or not 0 <= int(neighbors) <= _MOST:
        raise UsageError(
            f"method {name}: neighbors must be a whole number from 0 (all examples) to {_MOST}, "
            f"not {neighbors!r}"
        )
    if not isinstance(index, str) or index not in INDEXES:
        raise UsageError(f"method {name}: index must be {' or '.join(INDEXES)}, not {index!r}")
    if index != "exact" and not neighbors:
        raise UsageError(f"--index {index} needs --neighbors K, the number of nearest examples to use")


@dataclass(frozen=True, kw_only=True)
class Neighbors(CodingMethod):
    """Another method, which codes each query by its nearest samples alone."""

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
        """Return the same wrapper with other values of some parameters of the wrapped method."""
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
        """Return a larger batch size than for codes by all samples, because a query needs less memory.

        Dense residuals need more memory per query, and so smaller batches.
        """
        return max(32, min(_BATCH, _RESIDUALS // self._n_residuals(samples) // 32 * 32))

    def batch_bytes(self, samples: Samples, size: int) -> int:
        most = min(self.neighbors, len(samples.vectors))
        gathered = max(_GATHERED, most * max(most, int(samples.vectors.shape[1])))
        residuals = 3 * 8 * size * self._n_residuals(samples)
        return search_bytes(len(samples.vectors), size) + 6 * 8 * gathered + residuals

    def _n_residuals(self, samples: Samples) -> int:
        """Return the residuals per query: at most one per neighbour, or one per class with parts."""
        return min(self.neighbors, samples.n_classes) if samples.parts is None else samples.n_classes

    def make_indexes(self, samples: Samples, progress: Progress = silent) -> list[State]:
        """Return the arrays of an index of the neighbours in every part; empty for exact search.

        The index covers the whole gallery. When samples are held out, to tune, compare, audit or calibrate,
        the search is exact: making an index would take longer than it saves.
        """
        if self.index == "exact":
            return super().make_indexes(samples, progress)
        from crnr_cli.solvers import indexes  # here, because few runs need it

        parts = [samples.part(number) for number in range(samples.n_parts)]
        n, d = samples.vectors.shape
        memory.require_memory(
            sum(indexes.index_bytes(self.index, *part.vectors.shape) for part in parts),
            f"making --index {self.index} of {format_count(n, 'example')} with vectors of length {d}",
            "use --index exact, --pca or fewer examples",
        )
        step = self.batch_size(samples)

        def label_by_neighbors(probes: Array, places: Sequence[Array]) -> Array:
            batches = (slice(start, start + step) for start in range(0, len(probes), step))
            found = [self._labels(parts, probes[batch], [of[batch] for of in places]) for batch in batches]
            return np.concatenate(found)

        made = indexes.build_indexes(
            self.index, [part.vectors.T for part in parts], self.neighbors, label_by_neighbors, progress
        )
        return [{_OF_INDEX + key: array for key, array in arrays.items()} for arrays in made]

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        codes = np.zeros((len(queries), len(samples.vectors)), queries.dtype)
        places = self._nearest(samples, state, queries)
        for batch, near in _neighborhoods(samples, queries, places):
            np.put_along_axis(codes[batch], places[batch], self.method.local_codes(near).T, axis=1)
        return codes

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        return self.method.decision(X, edges, c, Y)

    def residuals(self, samples: Samples, state: State, queries: Array) -> FewClasses:
        """Return the residuals of the classes with a neighbour: few, however many classes there are."""
        return self._residuals_by(samples, queries, self._nearest(samples, state, queries))

    def _residuals_by(self, samples: Samples, queries: Array, places: Array) -> FewClasses:
        """Return the residuals by these neighbours."""
        found, classes = np.empty(places.shape, queries.dtype), np.empty(places.shape, np.int64)
        others = np.empty(len(queries), queries.dtype)
        for batch, near in _neighborhoods(samples, queries, places):
            values, others[batch] = self.method.local_decision(near, self.method.local_codes(near))
            found[batch], classes[batch] = values.T, near.classes
        return FewClasses.of(classes, found, others, samples.n_classes)

    def variants(self, iterations: Sequence[int]) -> list[Self]:
        return [replace(self, method=variant) for variant in self.method.variants(iterations)]

    def residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        """Yield the residuals of all variants; the neighbours are searched once, and factorized once."""
        samples = split.samples
        n_variants = len(self.method.variants(iterations))
        for batch in split.batches:
            queries, places = split.queries[batch], split.find_nearest(self.neighbors)[batch]
            found = np.empty((n_variants, len(queries), samples.n_classes), queries.dtype)
            for part, near in _neighborhoods(samples, queries, places):
                for variant, codes in self.method.local_codes_after(near, iterations):
                    values, others = self.method.local_decision(near, codes)
                    few = FewClasses.of(near.classes, values.T, others, samples.n_classes)
                    found[variant, part] = few.to_dense()
            yield found

    def _labels(self, parts: Sequence[Samples], probes: Array, places: Sequence[Array]) -> Array:
        """Return (m,): the label of each probe by these neighbours, (m, k) in every part."""
        found = [
            self._residuals_by(part, part.vectors[probes], of_part)
            for part, of_part in zip(parts, places, strict=True)
        ]
        if len(found) == 1:
            return found[0].smallest(1)[:, 0]
        labels: Array = np.argmin(sum(few.to_dense() for few in found), axis=1)
        return labels

    def _nearest(self, samples: Samples, state: State, queries: Array) -> Array:
        """Return (m, k): the places of the neighbours among the samples."""
        X, Y = samples.vectors.T, queries.T
        arrays = _index_arrays(state)
        if self.index == "exact" or not arrays:
            return find_nearest(X, Y, self.neighbors)
        from crnr_cli.solvers import indexes  # here, because few runs need it

        index = samples.prepared.compute_once(arrays["effort"], lambda: indexes.Index(self.index, X, arrays))
        return index.find_nearest(Y, self.neighbors)


def _neighborhoods(samples: Samples, queries: Array, places: Array) -> Iterator[tuple[slice, Neighborhoods]]:
    """Yield slices of a few queries, and the neighbours of these queries by their places."""
    X, Y = samples.vectors.T, queries.T
    step = max(1, _GATHERED // (places.shape[1] * max(places.shape[1], queries.shape[1])))
    classes = samples.class_index
    for start in range(0, len(queries), step):
        batch = slice(start, start + step)
        near = Neighborhoods.of(X, Y[:, batch], places[batch], classes)
        if not np.isfinite(near.gram).all():
            raise GalleryError("the gallery has vectors that are not finite; build the gallery again")
        yield batch, near


def _index_arrays(state: State) -> State:
    return {key.removeprefix(_OF_INDEX): array for key, array in state.items() if key.startswith(_OF_INDEX)}


def worst_index_measurement(state: State) -> Measured | None:
    """Return the recall and agreement of the index; None if the search is exact.

    An earlier crnr measured every part separately, and the least of all parts counts.
    """
    stored = [array for key, array in state.items() if key.partition(".")[0] == f"{_OF_INDEX}measured"]
    if not stored:
        return None
    from crnr_cli.solvers.indexes import Measured, index_measurement  # here, because few runs need it

    found = [index_measurement({"measured": array}) for array in stored]
    return Measured(min(one.recall for one in found), min(one.agreement for one in found))
