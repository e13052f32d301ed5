"""Columns of a gallery's file that are decoded when they are looked at: there may be a million entries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TypeVar, overload

import numpy as np

from crnr_cli.arrays import Array, Stamp

T = TypeVar("T")


class _Column(Sequence[T]):
    """Equal to any sequence of the same values; a part of it is a list."""

    def __init__(self, *arrays: Array) -> None:
        self._arrays = arrays

    @abstractmethod
    def _values(self, *arrays: Array) -> list[T]:
        """The entries that these parts of the arrays hold."""

    def __len__(self) -> int:
        return len(self._arrays[0])

    @overload
    def __getitem__(self, where: int) -> T: ...
    @overload
    def __getitem__(self, where: slice) -> list[T]: ...
    def __getitem__(self, where: int | slice) -> T | list[T]:
        if isinstance(where, slice):
            return self._values(*(array[where] for array in self._arrays))
        place = range(len(self))[where]  # IndexError if there is none
        return self[place : place + 1][0]

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
        self.stored = stored

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self.stored

    def _values(self, *arrays: Array) -> list[str]:
        return [value.decode("utf-8", "surrogateescape") for value in arrays[0].tolist()]


def to_bytes(texts: Sequence[str]) -> Array:
    """UTF-8 whatever the locale; names that are not UTF-8 are stored as the bytes that were read."""
    if isinstance(texts, Texts):
        return texts.stored
    return np.array([text.encode("utf-8", "surrogateescape") for text in texts], dtype=bytes)


class Stamps(_Column[Stamp]):
    """Of sizes and times of modification."""

    def __init__(self, sizes: Array, times: Array) -> None:
        if not sizes.ndim == times.ndim == 1 or len(sizes) != len(times):
            raise ValueError("its parts are of different sizes")
        super().__init__(sizes, times)

    def _values(self, *arrays: Array) -> list[Stamp]:
        return list(map(Stamp, *(array.tolist() for array in arrays)))
