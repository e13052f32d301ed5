"""Arrays, and the batch that carries them from a source to the CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from crnr_cli.errors import SampleError
from crnr_cli.records import dataclass

Array = npt.NDArray[Any]
T = TypeVar("T")
_LATEST = 2**63 - 1  # ns since 1970


def take_rows(column: Sequence[T], rows: Sequence[int] | Array) -> list[T]:
    """Return these entries of a column, in this order."""
    numbers: Sequence[int] = rows.tolist() if isinstance(rows, np.ndarray) else rows
    return [column[row] for row in numbers]


def find_largest(values: Sequence[Array], count: int, first: int = 0) -> list[int]:
    """Return the places of the `count` largest values, from `first`; of equals, the first comes first.

    Further arrays of values decide between places that are equal in those before.
    """
    order = np.lexsort([-one for one in reversed(values)])[:count]
    places: list[int] = (order + first).tolist()
    return places


def as_float64(values: Array) -> Array:
    return values.astype(np.float64)


class Stamp(NamedTuple):
    """Size and mtime of a file: if both are equal, it counts as unchanged. Zero if unknown.

    A date before 1677 or after 2262 does not fit into the 64 bits of galleries and records, so it counts as
    the first or the last date that fits. On NTFS, a file without a date is of 1601.
    """

    size: int = 0
    mtime_ns: int = 0

    @classmethod
    def of(cls, result: os.stat_result) -> Stamp:
        return cls(result.st_size, max(-_LATEST, min(result.st_mtime_ns, _LATEST)))


@dataclass(frozen=True)
class Batch:
    """Consecutive samples of a listing, on their way from a source to the CSV.

    `values` has one row per sample without an error: pixels or features as read, then raw values, and then
    unit vectors. `rows` maps these rows to samples.
    """

    names: list[str]
    errors: list[SampleError | None]  # why a sample has no values
    values: Array
    end: int  # number of samples in the listing up to the end of this batch
    candidates: list[tuple[str, ...]] = field(default_factory=list)  # possible classes, the best first
    hashes: list[str] = field(default_factory=list)  # SHA-256 of each file; empty strings unless requested
    stamps: list[Stamp] = field(default_factory=list)  # of each sample's file
    # For each image, the factor that brings its values to the range of 8 bits; empty if all are 1.
    scales: list[float] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)  # when each photograph was taken; empty unless requested

    @cached_property
    def rows(self) -> Array:
        """The index of the sample that each row of `values` belongs to."""
        return np.flatnonzero([error is None for error in self.errors])

    def failures(self) -> list[tuple[int, SampleError]]:
        """Return the samples with an error, by their index."""
        if len(self.rows) == len(self.names):
            return []
        return [(sample, error) for sample, error in enumerate(self.errors) if error]

    def with_values(self, values: Array, faults: Sequence[SampleError | None] = ()) -> Batch:
        """Return the same samples with new values. `faults` has, per row, the reason to drop it, or None."""
        if not any(faults):
            return replace(self, values=values)
        errors = list(self.errors)
        for sample, fault in zip(self.rows.tolist(), faults, strict=True):
            errors[sample] = fault
        return replace(self, errors=errors, values=values[[fault is None for fault in faults]])

    def without_values(self) -> Batch:
        """Return the names, errors, end and dates, so that values need not be kept or sent any more."""
        values = np.empty((len(self.rows), 0))
        return Batch(self.names, self.errors, values, self.end, dates=self.dates)


@dataclass(frozen=True)
class FewClasses:
    """(m, K) numbers of which all but a few in every row are the same, as a table of these few.

    With a million classes and neighbours in fifty, all other classes have one residual.
    """

    classes: Array  # (m, t), ascending in every row: the classes with a number of their own
    values: Array  # (m, t): their numbers
    others: Array  # (m,): the number of all other classes
    n_classes: int

    @classmethod
    def of(cls, classes: Array, values: Array, others: Array | float, n_classes: int) -> FewClasses:
        """Return the table from (m, k) classes, which may be repeated with the same number.

        All rows get the same number of classes, whatever the queries of a batch are: rows with fewer are
        filled up with classes that have the number of the others.
        """
        m, k = classes.shape
        t = min(k, n_classes)
        of_others: Array = np.broadcast_to(others, m).astype(values.dtype)
        order = np.argsort(classes, axis=1, kind="stable")
        given = np.take_along_axis(classes, order, axis=1)
        is_last = np.ones((m, k), dtype=bool)
        is_last[:, :-1] = given[:, 1:] != given[:, :-1]
        is_free = _not_in(given, t)
        missing = t - is_last.sum(axis=1, keepdims=True)
        is_filler = is_free & (np.cumsum(is_free, axis=1) <= missing)
        # Unwanted classes sort behind all others, and are cut off.
        fillers = np.where(is_filler, np.arange(t), n_classes)
        merged = np.concatenate([np.where(is_last, given, n_classes), fillers], axis=1)
        filled = np.broadcast_to(of_others[:, np.newaxis], (m, t))
        numbers = np.concatenate([np.take_along_axis(values, order, axis=1), filled], axis=1)
        kept = np.argsort(merged, axis=1, kind="stable")[:, :t]
        return cls(
            np.take_along_axis(merged, kept, axis=1),
            np.take_along_axis(numbers, kept, axis=1),
            of_others,
            n_classes,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.values), self.n_classes

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | Array) -> FewClasses:
        """Return some of the rows."""
        return replace(self, classes=self.classes[rows], values=self.values[rows], others=self.others[rows])

    @property
    def n_others(self) -> int:
        return self.n_classes - int(self.values.shape[1])

    def to_dense(self) -> Array:
        """Return all numbers, (m, K)."""
        full = np.repeat(self.others[:, np.newaxis], self.n_classes, axis=1)
        np.put_along_axis(full, self.classes, self.values, axis=1)
        return full

    def take_columns(self, columns: Array) -> Array:
        """Return (m, c): the numbers of these classes, (m, c)."""
        found = np.repeat(self.others[:, np.newaxis], columns.shape[1], axis=1)
        for i, wanted in enumerate(columns.T):
            rows, places = np.nonzero(self.classes == wanted[:, np.newaxis])
            found[rows, i] = self.values[rows, places]
        return found

    def smallest(self, count: int) -> Array:
        """Return (m, count): the classes with the smallest numbers, in this order; ties in name order."""
        m, t = self.values.shape
        spare = min(count, self.n_others)
        is_free = _not_in(self.classes, min(self.n_classes, t + count))
        free = np.argsort(~is_free, axis=1, kind="stable")[:, :spare]
        columns = np.concatenate([self.classes, free], axis=1)
        others = np.broadcast_to(self.others[:, np.newaxis], (m, spare))
        order = np.lexsort((columns, np.concatenate([self.values, others], axis=1)), axis=1)
        return np.take_along_axis(columns, order[:, :count], axis=1)


def _not_in(classes: Array, count: int) -> Array:
    """Return (m, count): which of the first classes are not in a row of (m, k) classes."""
    is_free = np.ones((len(classes), count), dtype=bool)
    rows, places = np.nonzero(classes < count)
    is_free[rows, classes[rows, places]] = False
    return is_free


Values = Array | FewClasses  # (m, K): one number per query and class


@overload
def map_values(work: Callable[[Array], Array], values: Array) -> Array: ...
@overload
def map_values(work: Callable[[Array], Array], values: FewClasses) -> FewClasses: ...
def map_values(work: Callable[[Array], Array], values: Values) -> Values:
    """Return the values after `work`, which treats every number alone or by its row."""
    if isinstance(values, FewClasses):
        others = work(values.others[:, np.newaxis])[:, 0]
        return replace(values, values=work(values.values), others=others)
    return work(values)


def row_minima(values: Values) -> Array:
    """Return (m,): the smallest number of each row."""
    if isinstance(values, FewClasses):
        smallest: Array = values.values.min(axis=1, initial=np.inf)
        return np.minimum(smallest, values.others) if values.n_others else smallest
    found: Array = values.min(axis=1, initial=np.inf)
    return found


def row_sums(values: Values) -> Array:
    """Return (m,): the sum of each row."""
    if isinstance(values, FewClasses):
        total: Array = values.values.sum(axis=1) + values.n_others * values.others
        return total
    found: Array = values.sum(axis=1)
    return found


def take_columns(values: Values, columns: Array) -> Array:
    """Return (m, c): the numbers of these classes, (m, c)."""
    if isinstance(values, FewClasses):
        return values.take_columns(columns)
    return np.take_along_axis(values, columns, axis=1)


def to_dense(values: Values) -> Array:
    """Return all numbers, (m, K)."""
    return values.to_dense() if isinstance(values, FewClasses) else values


def stack(parts: Sequence[Values]) -> Values:
    """Return the rows of all parts, which must be of one kind."""
    few = [part for part in parts if isinstance(part, FewClasses)]
    if not few:
        return np.concatenate([part for part in parts if not isinstance(part, FewClasses)])
    return FewClasses(
        np.concatenate([part.classes for part in few]),
        np.concatenate([part.values for part in few]),
        np.concatenate([part.others for part in few]),
        few[0].n_classes,
    )
