"""Tables of samples, whose columns may be decoded when they are looked at: there may be a million entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any, Self, TypeVar, overload

import numpy as np

from crnr_cli.arrays import Array, Stamp, take_rows

T = TypeVar("T")


class _Column(Sequence[T]):
    """Equal to any sequence of the same values; a part of it is a list."""

    def __init__(self, *arrays: Array) -> None:
        self.arrays = arrays

    @abstractmethod
    def _values(self, *arrays: Array) -> list[T]:
        """The entries that these parts of the arrays hold."""

    def __len__(self) -> int:
        return len(self.arrays[0])

    @overload
    def __getitem__(self, where: int) -> T: ...
    @overload
    def __getitem__(self, where: slice) -> list[T]: ...
    def __getitem__(self, where: int | slice) -> T | list[T]:
        if isinstance(where, slice):
            return self._values(*(array[where] for array in self.arrays))
        place = range(len(self))[where]  # IndexError if there is none
        return self[place : place + 1][0]

    def take(self, rows: Array) -> Self:
        """Return some of the entries, which are not decoded for it."""
        taken = copy(self)
        taken.arrays = tuple(array[rows] for array in self.arrays)
        return taken

    def __iter__(self) -> Iterator[T]:
        step = 10_000  # few enough to need no memory
        for start in range(0, len(self), step):
            yield from self[start : start + step]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Texts(_Column[str]):
    """Names as they are stored: UTF-8, or the bytes that the file system uses."""

    def __init__(self, stored: Array) -> None:
        if stored.ndim != 1 or stored.dtype.kind != "S":
            raise ValueError("its names are not text")
        super().__init__(stored)

    @property
    def stored(self) -> Array:
        return self.arrays[0]

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self.stored

    def _values(self, *arrays: Array) -> list[str]:
        return [value.decode("utf-8", "surrogateescape") for value in arrays[0].tolist()]


def to_bytes(texts: Sequence[str]) -> Array:
    """Return UTF-8 whatever the locale; names that are not UTF-8 are stored as the bytes that were read."""
    if isinstance(texts, Texts):
        return _trim(texts.stored)
    return np.array([text.encode("utf-8", "surrogateescape") for text in texts], dtype=bytes)


def _trim(stored: Array) -> Array:
    """Return texts that are as wide as the longest: the longest of a file may have been removed."""
    table = np.ascontiguousarray(stored).view(np.uint8).reshape(len(stored), stored.dtype.itemsize)
    width = max(np.flatnonzero(table.any(axis=0)).tolist(), default=0) + 1
    return stored if width == stored.dtype.itemsize else stored.astype(f"S{width}")


class Stamps(_Column[Stamp]):
    """Sizes and times of modification."""

    def __init__(self, sizes: Array, times: Array) -> None:
        if not sizes.ndim == times.ndim == 1 or len(sizes) != len(times):
            raise ValueError("its parts are of different sizes")
        super().__init__(sizes, times)

    def _values(self, *arrays: Array) -> list[Stamp]:
        return list(map(Stamp, *(array.tolist() for array in arrays)))


def to_numbers(stamps: Sequence[Stamp]) -> tuple[Array, Array]:
    """Return the sizes and the times as a gallery stores them."""
    if isinstance(stamps, Stamps) and all(array.dtype == np.int64 for array in stamps.arrays):
        sizes, times = stamps.arrays
        return sizes, times
    sizes = np.array([stamp.size for stamp in stamps], dtype=np.int64)
    times = np.array([stamp.mtime_ns for stamp in stamps], dtype=np.int64)
    return sizes, times


class Labels(_Column[str]):
    """The classes of samples, stored as their numbers."""

    def __init__(self, classes: Sequence[str], class_index: Array) -> None:
        super().__init__(class_index)
        self._classes = classes

    def _values(self, *arrays: Array) -> list[str]:
        return [self._classes[number] for number in arrays[0].tolist()]


@dataclass(frozen=True)
class Table:
    """The base of tables whose fields are columns: lists, or columns that are decoded when looked at.

    Each has one entry per row. All but the first may be empty, if nothing is known.
    """

    def __post_init__(self) -> None:
        if any(len(column) not in (0, len(self)) for column in self._columns().values()):
            raise ValueError("its parts are of different sizes")

    def __len__(self) -> int:
        return len(next(iter(self._columns().values())))

    def _columns(self) -> dict[str, Sequence[Any]]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def take(self, rows: Sequence[int] | Array) -> Self:
        """Return these rows, in this order."""
        numbers = np.asarray(rows, dtype=np.int64)
        if np.array_equal(numbers, np.arange(len(self))):
            return self
        return replace(self, **{name: _take(column, numbers) for name, column in self._columns().items()})

    @classmethod
    def concatenate(cls, tables: Sequence[Self]) -> Self:
        """Return the rows of all tables; there may be none."""
        columns = [table._columns() for table in tables]
        return cls(
            **{name: _join([each[name] for each in columns]) for name in (columns[0] if columns else ())}
        )

    def __add__(self, other: Self) -> Self:
        return self.concatenate([self, other])


def _take(column: Sequence[T], rows: Array) -> Sequence[T]:
    if isinstance(column, _Column):
        return column.take(rows) if len(column) else column
    return take_rows(column, rows) if column else []


def _join(columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
    """Join columns; what follows a column that is stored as bytes or numbers is stored like it."""
    if isinstance(columns[0], Texts):
        return Texts(np.concatenate([to_bytes(column) for column in columns]))
    if isinstance(columns[0], Stamps):
        return Stamps(*map(np.concatenate, zip(*map(to_numbers, columns), strict=True)))
    return list(chain.from_iterable(columns))


@dataclass(frozen=True)
class SampleTable(Table):
    """What is known about labelled samples, besides their values."""

    names: Sequence[str] = field(default_factory=list)  # paths, or file#row
    labels: Sequence[str] = field(default_factory=list)
    hashes: Sequence[str] = field(default_factory=list)  # SHA-256 of each sample's content
    stamps: Sequence[Stamp] = field(default_factory=list)  # of the samples' files

    def with_stamps(self) -> SampleTable:
        """Return a table that has stamps: if they are unknown, they are zero."""
        return self if self.stamps else replace(self, stamps=[Stamp()] * len(self))
