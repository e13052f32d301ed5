"""The interface of methods: fitted to unit vectors, they compute the residuals of batches of queries.

A method is a frozen dataclass whose fields are its parameters; its state is a dict of plain arrays. Samples
and queries are rows here, as everywhere except in `solvers`; only methods transpose them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from functools import cached_property
from numbers import Integral, Real
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from crnr_cli.arrays import Array, Values, to_dense
from crnr_cli.errors import DataError, UsageError
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.solvers.admm import class_residuals
from crnr_cli.solvers.factors import concatenate_spans
from crnr_cli.solvers.neighbors import find_nearest
from crnr_cli.system import memory
from crnr_cli.wording import format_count

Made = TypeVar("Made")
State = dict[str, Array]
# The parameters of `Neighbors`, as shown for a method that codes queries by all samples.
ALL_SAMPLES: Mapping[str, Any] = {"neighbors": 0, "index": "exact"}
_ARRAYS_PER_BATCH = 5  # n x m arrays in memory at the same time while a batch is coded
_SEARCHED = 200  # neighbours to search for if several numbers of neighbours may be tried
_LARGEST = 1e12  # value of any parameter: beyond it, only rounding errors are left
_MAX_ITERATIONS = 10**6  # far more than any method needs, and few enough to end


class ProcessCache:
    """A cache that belongs to samples, but is neither stored, copied nor sent to another process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._source: object = None
        self._made: Any = None
        self._of_parts: dict[int, ProcessCache] = {}

    def compute_once(self, source: object, make: Callable[[], Made]) -> Made:
        """Return what `make` returned on the first call for this very object."""
        with self._lock:  # several batches may need it at the same time
            if self._source is not source:
                self._made, self._source = make(), source
            made: Made = self._made
            return made

    def of_part(self, number: int) -> ProcessCache:
        """Return the cache for one part, by its number."""
        with self._lock:
            return self._of_parts.setdefault(number, ProcessCache())

    def __reduce__(self) -> tuple[type[ProcessCache], tuple[()]]:
        return ProcessCache, ()


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Samples:
    """The gallery's unit vectors, sorted by class."""

    vectors: Array  # (n, d): unit rows or, with parts, rows of unit parts
    edges: Array  # (K + 1,): class i is rows edges[i] to edges[i + 1]
    parts: Array | None = None  # (P + 1,): part p is columns parts[p] to parts[p + 1]; None without parts
    prepared: ProcessCache = field(default_factory=ProcessCache, repr=False)

    @classmethod
    def of(cls, vectors: Array, class_index: Array, parts: Array | None = None) -> Samples:
        """Return samples from vectors that are sorted by class index."""
        if np.any(np.diff(class_index) < 0):
            raise ValueError("samples must be sorted by class")
        return cls(vectors, np.concatenate([[0], np.cumsum(np.bincount(class_index))]), parts)

    @property
    def n_parts(self) -> int:
        return 1 if self.parts is None else len(self.parts) - 1

    def part(self, number: int) -> Samples:
        """Return one part of all samples, as samples without parts."""
        vectors = self.part_of(self.vectors, number)
        return Samples(vectors, self.edges, prepared=self.prepared.of_part(number))

    def class_span(self, number: int) -> slice:
        """Return the rows of a class."""
        return slice(int(self.edges[number]), int(self.edges[number + 1]))

    def part_of(self, rows: Array, number: int) -> Array:
        """Return the columns of one part, from vectors laid out like the samples."""
        return rows if self.parts is None else rows[:, self.parts[number] : self.parts[number + 1]]

    def first(self, count: int) -> Samples:
        """Return the first samples; later classes are empty."""
        return Samples(self.vectors[:count], np.minimum(self.edges, count), self.parts)

    @property
    def n_classes(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def class_index(self) -> Array:
        """(n,): the class of every sample."""
        return np.repeat(np.arange(self.n_classes), np.diff(self.edges))

    def rows_of_classes(self, classes: Array) -> Array:
        """Return the rows of these classes, one class after the other."""
        return concatenate_spans(self.edges, classes)

    def vectors_by(self, is_kept: Array) -> Array:
        """Return (n, d): all vectors as they are in a gallery of the samples of this mask alone."""
        return self.vectors


@dataclass(frozen=True, eq=False)
class RefittedSamples(Samples):
    """Samples whose vectors depend on the classes of the others, so held-out samples must not take part."""

    refit: Callable[[Array], Array] = field(kw_only=True)  # from a mask to all vectors

    def vectors_by(self, is_kept: Array) -> Array:
        return self.refit(is_kept)


def batch_size(n_samples: int) -> int:
    """Return the queries per batch: about 16 MB per n x m array, and products large enough to be fast.

    Products are fastest in multiples of the tiles that BLAS cuts them into. The size must not depend on the
    number of cores, because the last bits of a residual may depend on the batch.
    """
    return max(128, min(256, 2**22 // n_samples // 32 * 32))


@dataclass(frozen=True, eq=False)
class Split:
    """Samples to fit a method to, and queries to test it with. All rows are unit vectors."""

    samples: Samples
    queries: Array
    _nearest: ProcessCache = field(default_factory=ProcessCache, init=False, repr=False)

    @property
    def parts(self) -> list[Split]:
        """A split for each part of the vectors; only this one if there are no parts."""
        # Not cached: a split that refers to itself would stay in memory until Python looks for cycles.
        return [self] if self.samples.parts is None else self._parts

    @cached_property
    def _parts(self) -> list[Split]:
        return [
            Split(self.samples.part(number), np.ascontiguousarray(self.samples.part_of(self.queries, number)))
            for number in range(self.samples.n_parts)
        ]

    @property
    def batches(self) -> Iterator[slice]:
        """Slices of the queries whose codes take about the same memory, however many samples there are."""
        size = max(64, 2**23 // len(self.samples.vectors))
        return (slice(start, start + size) for start in range(0, len(self.queries), size))

    @cached_property
    def gram(self) -> Array:
        """X'X, computed once for all settings of a method."""
        X = self.samples.vectors.astype(np.float64)
        return X @ X.T

    @cached_property
    def cross(self) -> Array:
        """X'Y, computed once for all settings of a method."""
        return self.samples.vectors @ self.queries.T

    def find_nearest(self, count: int) -> Array:
        """Return (m, count): the places of each query's nearest samples, searched once for all settings.

        Threads that try settings at the same time wait for one search.
        """
        most = max(count, _SEARCHED)
        found = self._nearest.of_part(most).compute_once(
            self.samples, lambda: find_nearest(self.samples.vectors.T, self.queries.T, most)
        )
        return found[:, :count]


class Method(ABC):
    """The base of all methods. Subclasses are frozen dataclasses of their parameters."""

    name: ClassVar[str]
    signed: ClassVar[bool] = False  # residuals are negated scores, and can be below 0
    tunable: ClassVar[tuple[str, ...]] = ()  # the parameters that `tune` varies
    since_version: ClassVar[int] = 1  # the first version of the gallery format that has this method
    supports_neighbors: ClassVar[bool] = False  # `Neighbors` can wrap it

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as shown to users."""
        return self.to_stored() | dict(ALL_SAMPLES if self.supports_neighbors else {})

    def to_stored(self) -> dict[str, object]:
        """Return the parameters as stored in a gallery file."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def with_parameters(self, **changes: object) -> Self:
        """Return the same method with other values of some of the parameters that it stores."""
        return replace(self, **changes)  # type: ignore[type-var]

    @property
    def needs_few_samples(self) -> bool:
        """Whether a query needs so few samples that the others can stay in the file."""
        return False

    def smoke_test_samples(self, samples: Samples) -> Samples:
        """Return enough samples to test whether the method works at all."""
        return samples

    @abstractmethod
    def fit(self, samples: Samples) -> State:
        """Return everything that `residuals` needs besides the samples, as plain arrays."""

    def reorder(self, samples: Samples, state: State, classes: Array) -> State | None:
        """Return the state for the same samples with the classes in another order, by their numbers.

        None if only `fit` can make it.
        """
        return None if state else {}

    @abstractmethod
    def residuals(self, samples: Samples, state: State, queries: Array) -> Values:
        """Return (m, K): the residual of each class for each unit query; the smallest wins.

        If all but a few classes have the same residual, a method may return these few.
        """

    def residuals_after(self, split: Split, iterations: Sequence[int]) -> Iterator[Array]:
        """Yield (variants, batch, K): the residuals of all variants in one pass, batch by batch."""
        state = self.fit(split.samples)
        for batch in split.batches:
            yield to_dense(self.residuals(split.samples, state, split.queries[batch]))[np.newaxis]

    def variants(self, iterations: Sequence[int]) -> list[Self]:
        """Return the methods that one pass of `residuals_after` covers: this one, unless it iterates."""
        return [self]

    def batch_size(self, samples: Samples) -> int:
        """Return the default number of queries per batch; it must not depend on the machine."""
        return batch_size(len(samples.vectors))

    def batch_bytes(self, samples: Samples, size: int) -> int:
        """Estimate the peak memory for the residuals of a batch; by default, for its codes."""
        return _ARRAYS_PER_BATCH * size * len(samples.vectors) * samples.vectors.itemsize

    def fit_bytes(self, samples: Samples) -> int:
        """Estimate the peak memory of `fit`: a few float64 arrays as large as the samples."""
        return 3 * 8 * samples.vectors.size

    def make_indexes(self, samples: Samples, progress: Progress = silent) -> list[State]:
        """Return the arrays of a search index for every part, which are stored too; empty by default."""
        return [{} for _ in range(samples.n_parts)]

    def why_unavailable(self) -> str | None:
        """Return why the method cannot be fitted on this machine; None if it can."""
        return None

    def _require(self, is_valid: bool, rule: str) -> None:
        if not is_valid:
            raise UsageError(f"method {self.name}: {rule}")

    def _require_above_0(self, *parameters: str) -> None:
        for name in parameters:
            self._require(self._number(name) > 0, f"{name} must be above 0, not {getattr(self, name):g}")

    def _require_at_least_0(self, *parameters: str) -> None:
        for name in parameters:
            self._require(self._number(name) >= 0, f"{name} must be 0 or more, not {getattr(self, name):g}")

    def _number(self, name: str) -> float:
        value = getattr(self, name)
        try:
            number = float(value) if isinstance(value, Real) else math.nan
        except OverflowError:
            number = math.inf
        self._require(math.isfinite(number), f"{name} must be a finite number, not {value!r}")
        self._require(number <= _LARGEST, f"{name} must be at most {_LARGEST:g}, not {number:g}")
        return number

    def _require_iterations(self, iterations: int) -> None:
        self._require(
            isinstance(iterations, Integral) and 1 <= iterations <= _MAX_ITERATIONS,
            f"iterations must be a whole number from 1 to {_MAX_ITERATIONS}, not {iterations!r}",
        )


class CodingMethod(Method):
    """A method that represents a query as a combination of all samples, and compares the class residuals."""

    @abstractmethod
    def codes(self, samples: Samples, state: State, queries: Array) -> Array:
        """Return (m, n): the weights of all samples for every query."""

    def residuals(self, samples: Samples, state: State, queries: Array) -> Values:
        return self.residuals_of(samples, self.codes(samples, state, queries), queries)

    def residuals_of(self, samples: Samples, codes: Array, queries: Array) -> Array:
        """Return (m, K): the residuals, from the codes of the queries."""
        Y = np.ascontiguousarray(queries.T)
        return self.decision(samples.vectors.T, samples.edges, codes.T, Y).T

    def decision(self, X: Array, edges: Array, c: Array, Y: Array) -> Array:
        """Return (K, m): the residuals, from codes (n, m) and queries (d, m); by default, ||y - X_i c_i||."""
        return class_residuals(X, edges, c, Y)


def fit_method(method: Method, samples: Samples) -> State:
    """Return the state of a method.

    DataError if there is too little memory, or if the parameters are too extreme.
    """
    n, d = samples.vectors.shape
    memory.require_memory(
        fit_bytes(method, samples),
        f"fitting method {method.name} to {format_count(n, 'example')} with vectors of length {d}",
        f"use {'--neighbors, ' if method.supports_neighbors else ''}--pca or fewer examples",
    )
    try:
        with np.errstate(all="ignore"):  # overflow leads to infinite residuals, which are found later
            if samples.parts is None:
                return method.fit(samples)
            return {
                f"{key}.{number}": array
                for number in range(samples.n_parts)
                for key, array in method.fit(samples.part(number)).items()
            }
    except np.linalg.LinAlgError as e:
        given = ", ".join(f"{name} {value}" for name, value in method.parameters.items())
        raise DataError(
            f"method {method.name} cannot be fitted to these examples with {given}: "
            "the matrix to invert is singular; choose less extreme parameters"
        ) from e


def reorder_state(method: Method, samples: Samples, state: State, classes: Array) -> State | None:
    """Return the state of `fit_method` for another order of the classes; None if only a fit can make it."""
    if np.array_equal(classes, np.arange(samples.n_classes)):
        return state
    if samples.parts is None:
        return method.reorder(samples, state, classes)
    reordered: State = {}
    for number, of_part in enumerate(states_of_parts(state, samples.n_parts)):
        found = method.reorder(samples.part(number), of_part, classes)
        if found is None:
            return None
        reordered |= {f"{key}.{number}": array for key, array in found.items()}
    return reordered


def make_indexes(method: Method, samples: Samples, progress: Progress = silent) -> State:
    """Return the search index, one for every part; empty if the method has none."""
    made = method.make_indexes(samples, progress)
    if samples.parts is None:
        return made[0]
    return {f"{key}.{number}": array for number, of_part in enumerate(made) for key, array in of_part.items()}


def fit_bytes(method: Method, samples: Samples) -> int:
    """Estimate how much memory `fit_method` needs at its peak."""
    if samples.parts is None:
        return method.fit_bytes(samples)
    return sum(method.fit_bytes(samples.part(number)) for number in range(samples.n_parts))


def states_of_parts(state: State, n_parts: int) -> list[State]:
    """Split the state of all parts into one state per part."""
    states: list[State] = [{} for _ in range(n_parts)]
    for key, array in state.items():
        name, _, number = key.rpartition(".")
        states[int(number)][name] = array
    return states


def residuals(method: Method, samples: Samples, state: State, queries: Array) -> Values:
    """Return (m, K): the residual of each class for each query; the smallest wins.

    With parts, this is the mean over the parts, which is dense.
    """
    if samples.parts is None:
        return method.residuals(samples, state, queries)
    total: Array = sum(part_residuals(method, samples, state, queries))  # type: ignore[assignment]
    total /= samples.n_parts
    return total


def part_residuals(method: Method, samples: Samples, state: State, queries: Array) -> Iterator[Array]:
    """Yield (m, K): the residuals of one part at a time."""
    for number, of_part in enumerate(states_of_parts(state, samples.n_parts)):
        rows = samples.part_of(queries, number)
        found = to_dense(method.residuals(samples.part(number), of_part, rows))
        found[are_blank(rows)] = 0
        yield found


def residuals_in_batches(method: Method, split: Split, state: State) -> Iterator[Values]:
    """Yield the residuals of all queries batch by batch, so memory does not grow with their number."""
    step = method.batch_size(split.samples)
    for start in range(0, len(split.queries), step):
        yield residuals(method, split.samples, state, split.queries[start : start + step])


def winners_after(method: Method, split: Split, iterations: Sequence[int]) -> Array:
    """Return (variants, m): the class that wins each query, for all variants of a method in one pass."""
    passes = (method.residuals_after(part, iterations) for part in split.parts)
    winners: list[Array] = []
    for batch, of_parts in zip(split.batches, zip(*passes, strict=True), strict=True):
        for part, found in zip(split.parts, of_parts, strict=True):
            found[:, are_blank(part.queries[batch])] = 0
        winners.append(sum(of_parts).argmin(axis=2))
    return np.concatenate(winners, axis=1)


def are_blank(rows: Array) -> Array:
    """Return (m,): which queries are blank in this part, and so cannot support any class."""
    blank: Array = np.logical_not(np.any(rows, axis=1))
    return blank
