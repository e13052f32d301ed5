"""Find the axis of the samples in an array, and turn the array into a table with one row per sample."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

MAX_AXES = 4  # samples, height, width and channels of images


@dataclass(frozen=True)
class _View(ABC):
    """An array, or a dataset that is read by slices, with its axes seen in another way."""

    values: Any

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True)
class Transposed(_View):
    """All axes in reverse order."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[::-1])

    def __getitem__(self, where: slice | tuple[slice, ...]) -> Array:
        """Return the values of a slice of the first axis, or of one slice per axis."""
        index = (..., where) if isinstance(where, slice) else where[::-1]
        part: Array = self.values[index]
        return part.T

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype=dtype)


@dataclass(frozen=True)
class Stack(_View):
    """Samples along any axis, such as images, as a table with one row per sample.

    The remaining axes keep their order, so the pixels of a row are in the order of an image file.
    """

    axis: int

    @property
    def shape(self) -> tuple[int, int]:
        n = self.values.shape[self.axis]
        return n, math.prod(self.values.shape) // n if n else 0

    def __getitem__(self, rows: slice) -> Array:
        index = [slice(None)] * len(self.values.shape)
        index[self.axis] = rows
        part = np.moveaxis(np.asarray(self.values[tuple(index)]), self.axis, 0)
        return part.reshape(len(part), -1)


@dataclass(frozen=True)
class Cells(_View):
    """The cells of a MATLAB cell array as the rows of a table: cells are always samples."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    def __getitem__(self, rows: slice) -> Array:
        part: Array = self.values[rows]
        return part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.values, dtype=dtype)


def table_of(values: Any, axis: int) -> Any:
    """Return the samples along an axis as the rows of a table, which is read by slices."""
    if len(values.shape) > 2:
        return Stack(values, axis)
    if axis == 0:
        return values
    return values.values if isinstance(values, Transposed) else Transposed(values)


def sample_axis(path: Path, values: Any, chosen: str | None, n_labels: int | None, *, either: bool) -> int:
    """Return the axis of the samples: the user's choice, else the axis that fits the labels.

    Unless `either` is set, prefer the first axis if its length fits or if there are no labels.
    """
    if isinstance(values, Cells):
        return 0
    last = len(values.shape) - 1
    if chosen is not None:
        return last if chosen == "columns" else 0
    fitting = [axis for axis, size in enumerate(values.shape) if size == n_labels]
    if not either and (n_labels is None or not fitting or 0 in fitting):
        return 0
    if len(fitting) == 1:
        return fitting[0]
    table = f"{path}: features of {_describe_shape(values.shape)}"
    remedy = "choose with --samples-axis rows or columns"
    if last > 1:
        remedy += " (the first axis or the last)"
    if n_labels is None:
        raise DataError(f"{table} and no labels; {remedy}")
    if fitting:
        raise DataError(f"{table} with {format_count(n_labels, 'label')}; {remedy}")
    raise DataError(
        f"{table} but {format_count(n_labels, 'label')}; choose the right labels with --labels-key"
    )


def format_shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _describe_shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 2:
        return f"{format_count(shape[0], 'row')} and {format_count(shape[1], 'column')}"
    return format_shape(shape)
