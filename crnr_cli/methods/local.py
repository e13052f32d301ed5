"""Coding each query by its nearest samples alone: only the search grows with the gallery."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np

from crnr_cli import solvers
from crnr_cli.arrays import Array, FewClasses, Values
from crnr_cli.errors import GalleryError
from crnr_cli.methods.base import CodingMethod, Samples, State
from crnr_cli.progress import Progress, silent
from crnr_cli.system import memory
from crnr_cli.system.optional import missing
from crnr_cli.wording import counted

_TRIED = 100  # samples, of which one is classified to find out whether the parameters make sense
_GATHERED = 2**20  # numbers of samples, or of Gram matrices, that are held at once: 8 MB in float64
_BATCH = 256  # queries per batch: every batch reads all samples once
_RESIDUALS = 2**26  # of a batch, of parts, with very many classes
_OF_INDEX = "index_"  # how the names of its arrays begin
_MOST = 2000  # neighbours; the Gram matrix of one query has their square


@dataclass(frozen=True, kw_only=True)
class LocalCoding(CodingMethod):
    """A method that can code a query by all samples, or by its `neighbors` nearest ones alone."""

    newest_version: ClassVar[int] = 4
    without_neighbor: ClassVar[float] = 1.0  # the residual of a class without a neighbour: all of y is left
    neighbors: int = 0  # 0: all samples
    index: str = "exact"  # how the neighbours are found

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        ours = ("neighbors", "index")
        return (*(name for name in super().parameter_names() if name not in ours), *ours)

    @property
    def needs_few_samples(self) -> bool:
        return self.neighbors > 0

    def tried_on(self, samples: Samples) -> Samples:
        return samples.first(_TRIED) if self.neighbors and self.index == "exact" else samples

    @property
    def since_version(self) -> int:
        return self.newest_version if self.neighbors else 1

    def stored(self) -> dict[str, object]:
        """Without neighbours, the file is one that earlier versions read."""
        unused = {"neighbors": not self.neighbors, "index": self.index == "exact"}
        return {key: value for key, value in super().stored().items() if not unused.get(key)}

    def __post_init__(self) -> None:
        self._require(
            isinstance(self.neighbors, Integral) and 0 <= self.neighbors <= _MOST,
            f"neighbors must be a whole number from 0, for all samples, to {_MOST}, not {self.neighbors!r}",
        )
        self._require(
            isinstance(self.index, str) and self.index in solvers.INDEXES,
            f"index must be {' or '.join(solvers.INDEXES)}, not {self.index!r}",
        )
        self._require(
            self.index == "exact" or self.neighbors > 0,
            f"index {self.index} finds nearest samples, so that it needs their number; "
            "give it with --neighbors",
        )

    @abstractmethod
    def fit_all(self, samples: Samples) -> State:
        """What is needed to code queries by all samples."""

    @abstractmethod
    def fit_all_bytes(self, samples: Samples) -> int:
        """About how much memory `fit_all` needs at its peak."""

    @abstractmethod
    def codes_by_all(self, samples: Samples, state: State, queries: Array) -> Array:
        """(m, n)."""

    @abstractmethod
    def local_codes(self, near: solvers.Neighborhoods) -> Array:
        """(k, m): the weights of the neighbours of every query."""

    def local_decision(self, near: solvers.Neighborhoods, codes: Array) -> Array:
        """(k, m), of the class of every neighbour, from the codes; by default, ||y - X_i c_i||."""
        return solvers.local_residuals(near, codes)

    def fit(self, samples: Samples) -> State:
        return {} if self.neighbors else self.fit_all(samples)

    def fit_bytes(self, samples: Samples) -> int:
        return 0 if self.neighbors else self.fit_all_bytes(samples)

    def batch_size(self, samples: Samples) -> int:
        """More than with codes by all samples: a query needs little memory, unless it has dense residuals."""
        if not self.neighbors:
            return super().batch_size(samples)
        return max(32, min(_BATCH, _RESIDUALS // self._residuals_each(samples) // 32 * 32))

    def batch_bytes(self, samples: Samples, size: int) -> int:
        if not self.neighbors:
            return super().batch_bytes(samples, size)
        most = min(self.neighbors, len(samples.vectors))
        gathered = max(_GATHERED, most * max(most, int(samples.vectors.shape[1])))
        residuals = 3 * 8 * size * self._residuals_each(samples)
        return solvers.search_bytes(len(samples.vectors), size) + 6 * 8 * gathered + residuals

    def _residuals_each(self, samples: Samples) -> int:
        """Per query: those of few classes, but of all if they are the mean over parts."""
        return min(self.neighbors, samples.n_classes) if samples.parts is None else samples.n_classes

    def unavailable(self) -> str | None:
        return None if self.index == "exact" else missing("faiss", f"--index {self.index}", "faiss")

    def make_index(self, samples: Samples, progress: Progress = silent) -> State:
        """What finds neighbours faster, as arrays beside what `fit` makes; none for exact search.

        It is made for a gallery as a whole. Samples of which some are held out, to tune, compare, audit or
        calibrate, are searched exactly: an index of them would take longer to make than it saves.
        """
        if self.index == "exact":
            return {}
        n, d = samples.vectors.shape
        memory.require(
            solvers.index_bytes(self.index, n, d),
            f"making the index {self.index} of {counted(n, 'sample')} of dimension {d}",
            "use --index exact, --pca or fewer samples",
        )

        def labelled(asked: Array, places: Array) -> Array:
            return self._labels(samples, samples.vectors[asked], places)

        made = solvers.made_index(self.index, samples.vectors.T, self.neighbors, labelled, progress)
        return {_OF_INDEX + key: array for key, array in made.items()}

    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        if not self.neighbors:
            return self.codes_by_all(samples, state, queries)
        codes = np.zeros((len(queries), len(samples.vectors)), queries.dtype)
        for batch, places, near in self.neighborhoods(samples, queries, state):
            np.put_along_axis(codes[batch], places, self.local_codes(near).T.astype(queries.dtype), axis=1)
        return codes

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        if not self.neighbors:
            return super().residuals(samples, state, queries)
        return self.local_residuals(samples, state, queries).dense()

    def compact_residuals(self, samples: Samples, state: State, queries: Array) -> Values:
        if not self.neighbors:
            return super().compact_residuals(samples, state, queries)
        return self.local_residuals(samples, state, queries)

    def local_residuals(self, samples: Samples, state: State, queries: Array) -> FewClasses:
        """Those of the classes that have a neighbour, which are few however many classes there are."""
        shape = (len(queries), min(self.neighbors, len(samples.vectors)))
        found, classes = np.empty(shape, queries.dtype), np.empty(shape, np.int64)
        for batch, _, near in self.neighborhoods(samples, queries, state):
            found[batch] = self.local_decision(near, self.local_codes(near)).T
            classes[batch] = near.classes
        return FewClasses.of(classes, found, self.without_neighbor, samples.n_classes)

    def _labels(self, samples: Samples, queries: Array, places: Array) -> Array:
        """(m,): the class with the smallest residual, by these neighbours."""
        labels = np.empty(len(queries), np.int64)
        for batch, _, near in self.neighborhoods(samples, queries, places=places):
            best = self.local_decision(near, self.local_codes(near)).argmin(axis=0)
            labels[batch] = np.take_along_axis(near.classes, best[:, np.newaxis], axis=1)[:, 0]
        return labels

    def neighborhoods(
        self,
        samples: Samples,
        queries: Array,
        state: State | None = None,
        places: Array | None = None,
    ) -> Iterator[tuple[slice, Array, solvers.Neighborhoods]]:
        """The neighbours of a few queries after the other, and their places among the samples.

        They are looked for, unless their places are known.
        """
        X, Y = samples.vectors.T, queries.T
        if places is None:
            places = self._nearest(samples, queries, state or {})
        step = max(1, _GATHERED // (places.shape[1] * max(places.shape[1], queries.shape[1])))
        classes = samples.class_index
        for start in range(0, len(queries), step):
            batch = slice(start, start + step)
            near = solvers.Neighborhoods.of(X, Y[:, batch], places[batch], classes)
            if not np.isfinite(near.gram).all():
                raise GalleryError("the gallery has vectors that are not finite; build it again")
            yield batch, places[batch], near

    def _nearest(self, samples: Samples, queries: Array, state: State) -> Array:
        X, Y = samples.vectors.T, queries.T
        arrays = _of_index(state)
        if self.index == "exact" or not arrays:
            return solvers.nearest(X, Y, self.neighbors)
        index = samples.prepared.once(arrays["effort"], lambda: solvers.Index(self.index, X, arrays))
        return index.nearest(Y, self.neighbors)


def _of_index(state: State) -> State:
    return {key.removeprefix(_OF_INDEX): array for key, array in state.items() if key.startswith(_OF_INDEX)}


def measured_by(state: State) -> solvers.Measured | None:
    """What the index finds, of several parts the least; None if the search is exact."""
    found = [
        solvers.measured_by({"measured": array})
        for key, array in state.items()
        if key.partition(".")[0] == f"{_OF_INDEX}measured"
    ]
    if not found:
        return None
    return solvers.Measured(min(one.recall for one in found), min(one.agreement for one in found))
