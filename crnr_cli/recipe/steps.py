"""The steps between raw values and unit vectors: power, PCA and parts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO
from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe.base import Block, Extractor, Section, Step, Stored
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

_LARGEST = 100  # beyond that, all values but the largest vanish
_GRID = r"([1-9][0-9]{0,2})x([1-9][0-9]{0,2})"
_BLANK = 1e-6  # a part whose values differ by less than this share of the largest is blank


@dataclass(frozen=True)
class Power(Step):
    """Raises values to a power; a power below 1 gives small features more weight.

    An automatic power is decided once, when the gallery is built: it is the default of the extractor if no
    value is negative, because no other values have been measured, and 1 otherwise.
    """

    name: ClassVar[str] = "power"
    off: ClassVar[Any] = 1.0
    tried: ClassVar[tuple[Any, ...]] = (None, 1.0, 0.7, 0.5)
    power: float | None  # None: automatic
    default: float = 1.0  # for values that are not negative, if it is automatic

    def __post_init__(self) -> None:
        if self.power is not None and not 0 < self.power <= _LARGEST:
            raise UsageError(f"power must be above 0 and at most {_LARGEST}, not {self.power:g}")

    @classmethod
    def of(cls, setting: Any) -> Power:
        return cls(None if setting is None else float(setting))

    @classmethod
    def parse(cls, text: str) -> float | None:
        return None if text == AUTO else float(text)

    @property
    def setting(self) -> float | None:
        return self.power

    def for_extractor(self, extractor: Extractor | None) -> Power:
        if self.power is not None:
            return self
        default = extractor.default_power if extractor else self.off
        return Power(self.off) if default == self.off else replace(self, default=default)

    @property
    def is_fitted(self) -> bool:
        return self.power is not None

    def decide(self, lowest: float) -> Power:
        if self.power is not None:
            return self
        return Power(self.default if lowest >= 0 else self.off)

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        return n_samples * n_inputs * itemsize if self.power is None else 0  # the raw values

    def apply(self, values: Array, dtype: str) -> Array:
        assert self.power is not None
        raised: Array = np.copysign(np.abs(values) ** self.power, values)
        return raised

    def to_stored(self) -> Stored:
        return Stored({"power": self.power})

    @classmethod
    def from_stored(cls, stored: Stored) -> Power | None:
        power = float(stored.attributes.get("power", cls.off))
        return None if power == cls.off else cls(power)

    def describe(self) -> str:
        return f"features to the power {self.power:g}"


@dataclass(frozen=True)
class Pca(Step):
    """Projects samples without subtracting the mean, as the authors of the method do."""

    name: ClassVar[str] = "pca"
    off: ClassVar[Any] = None
    tried: ClassVar[tuple[Any, ...]] = (None,)
    learns: ClassVar[bool] = True
    keeps_places: ClassVar[bool] = False
    count: int
    axes: Array | None = field(default=None, compare=False)  # (n_inputs, count) once it is fitted

    @classmethod
    def of(cls, setting: Any) -> Pca:
        return cls(int(setting))

    @classmethod
    def parse(cls, text: str) -> int | None:
        count = float(text)  # 100.0 is allowed too
        if count < 0 or count != int(count):
            raise ValueError(f"{text} is not a whole number of at least 0")
        return int(count) or None

    @property
    def setting(self) -> int:
        return self.count

    @property
    def is_fitted(self) -> bool:
        return self.axes is not None

    def fit(self, values: Array, class_index: Array) -> Pca:
        return replace(self, axes=principal_axes(values, self.count))

    def fit_to_blocks(self, blocks: Iterable[Block]) -> Pca:
        return replace(self, axes=principal_axes_of_blocks((block.values for block in blocks), self.count))

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        return n_samples * n_inputs * (itemsize + 8) + 3 * 8 * min(n_samples, n_inputs) ** 2

    def n_outputs(self, n_inputs: int) -> int:
        if self.axes is not None and self.axes.shape != (n_inputs, self.count):
            raise ValueError(
                f"the principal axes have the shape {self.axes.shape} for {format_count(n_inputs, 'feature')}"
            )
        return self.count

    @cached_property
    def _single_axes(self) -> Array:
        assert self.axes is not None
        return self.axes.astype(np.float32)

    def apply(self, values: Array, dtype: str) -> Array:
        """Return the projection, computed in the type of the vectors, like everything after it."""
        axes = self.axes if dtype == "float64" else self._single_axes
        projected: Array = (values.astype(dtype) @ axes).astype(np.float64)
        return projected

    def to_stored(self) -> Stored:
        assert self.axes is not None
        return Stored(arrays={"pca": self.axes})

    @classmethod
    def from_stored(cls, stored: Stored) -> Pca | None:
        axes = stored.arrays.get("pca")
        return None if axes is None else cls(int(axes.shape[1]), axes)

    def describe(self) -> str:
        return format_count(self.count, "principal component")


def principal_axes(values: Array, count: int) -> Array:
    """Return (n_inputs, count): the first eigenvectors of the covariance of the centred samples.

    `values` are float64, and are overwritten.
    """
    n, n_inputs = values.shape
    _require_count(count, n, n_inputs)
    values -= values.mean(axis=0)
    if n_inputs <= n:
        _, axes = _leading_eigenvectors(values.T @ values, count)
    else:
        # The same axes from the smaller matrix: if G u = s u for G = A A', then A'u is an axis of A'A.
        variances, weights = _leading_eigenvectors(values @ values.T, count)
        if variances[0] <= n * np.finfo(float).eps * variances[-1]:
            raise DataError(f"--pca {count}: the examples span fewer dimensions; choose fewer components")
        axes = (values.T @ weights) / np.sqrt(variances)
    return np.ascontiguousarray(axes[:, ::-1])


def principal_axes_of_blocks(blocks: Iterable[Array], count: int) -> Array:
    """Return (n_inputs, count): the axes of blocks of rows in float64, from the covariance in one pass.

    The mean is not known before the end. The mean of the first block is near enough that cancellation loses
    nothing.
    """
    n, shift, total, squares = 0, np.empty(0), np.empty(0), np.empty(0)
    for block in blocks:
        if not n:
            shift = block.mean(axis=0)
            total, squares = np.zeros(len(shift)), np.zeros((len(shift), len(shift)))
        n += len(block)
        centred = block - shift
        total += centred.sum(axis=0)
        squares += centred.T @ centred
    _require_count(count, n, len(shift))
    if not np.isfinite(squares).all():
        raise DataError(f"--pca {count}: some features are too large; scale them")
    mean = total / n
    _, axes = _leading_eigenvectors(squares - n * np.outer(mean, mean), count)
    return np.ascontiguousarray(axes[:, ::-1])


def _require_count(count: int, n: int, n_inputs: int) -> None:
    largest = min(n - 1, n_inputs)
    if not 1 <= count <= largest:
        raise UsageError(
            f"--pca {count}: choose 1 to {format_count(largest, 'principal component')} for "
            f"{format_count(n, 'example')} with {format_count(n_inputs, 'feature')} each"
        )


def _leading_eigenvectors(symmetric: Array, count: int) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors, the largest last."""
    n = len(symmetric)
    if 4 * count > n:  # computing all of them is faster
        variances, axes = np.linalg.eigh(symmetric)
        return variances[n - count :], axes[:, n - count :]
    from scipy.linalg import eigh  # slow to import, and queries never need it

    variances, axes = eigh(symmetric, subset_by_index=[n - count, n - 1])
    return variances, axes


class Tile(NamedTuple):
    """One part of an image: its box, in shares of the height and the width."""

    top: float
    bottom: float
    left: float
    right: float
    name: str = ""  # of a part that is not a tile, but belongs to the image as a whole


@dataclass(frozen=True)
class Parts(Step):
    """Divides values into parts, centres parts of pixels, and scales each part to unit length."""

    name: ClassVar[str] = "parts"
    off: ClassVar[Any] = None
    tried: ClassVar[tuple[Any, ...]] = (None,)
    since_version: ClassVar[int] = 2
    rows: int
    columns: int
    sections: tuple[Section, ...] = field(default=(), compare=False)  # of the raw values, once they are known

    def __post_init__(self) -> None:
        if min(self.rows, self.columns) < 1:
            raise UsageError(f"--parts {self.setting}: there must be at least one row and one column")

    @classmethod
    def of(cls, setting: Any) -> Parts:
        found = re.fullmatch(_GRID, str(setting))
        if not found:
            raise UsageError(f"--parts {setting!r}: write the rows and columns of tiles, such as 4x4")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def parse(cls, text: str) -> str | None:
        if text == "0":
            return None
        if not re.fullmatch(_GRID, text):
            raise ValueError(f"{text} is neither 0 nor rows and columns of tiles, such as 4x4")
        return text

    @property
    def setting(self) -> str:
        return f"{self.rows}x{self.columns}"

    def for_extractor(self, extractor: Extractor | None) -> Parts:
        if extractor is None:
            raise UsageError("--parts only applies to images; leave it out for features")
        if not extractor.sections:
            raise UsageError(
                "--parts does not apply to networks, whose features have no place in the image; leave it out"
            )
        rows, columns = extractor.sections[0][:2]
        if self.rows > rows or self.columns > columns:
            raise UsageError(
                f"--parts {self.setting}: choose at most {rows}x{columns} for {extractor.describe()}"
            )
        return replace(self, sections=extractor.sections)

    @cached_property
    def tiles(self) -> list[Tile]:
        """The parts, in their order."""
        rows, columns, *_ = self.sections[0]
        down, right = _cuts(rows, self.rows) / rows, _cuts(columns, self.columns) / columns
        tiles = [
            Tile(float(down[i]), float(down[i + 1]), float(right[j]), float(right[j + 1]))
            for i in range(self.rows)
            for j in range(self.columns)
        ]
        return tiles + [Tile(0.0, 1.0, 0.0, 1.0, section.name) for section in self.sections[1:]]

    @cached_property
    def _order(self) -> Array:
        """The order of the raw values, one part after the other."""
        rows, columns, depth, *_ = self.sections[0]
        places = np.arange(rows * columns * depth).reshape(rows, columns, depth)
        down, right = _cuts(rows, self.rows), _cuts(columns, self.columns)
        parts = [
            places[down[i] : down[i + 1], right[j] : right[j + 1]].ravel()
            for i in range(self.rows)
            for j in range(self.columns)
        ]
        return np.concatenate([*parts, np.arange(places.size, self.part_edges[-1])])

    @cached_property
    def part_edges(self) -> Array:
        """The edges of the parts, from the sizes alone: an untrusted gallery may declare too many values."""
        rows, columns, depth, *_ = self.sections[0]
        sizes = np.outer(np.diff(_cuts(rows, self.rows)), np.diff(_cuts(columns, self.columns))) * depth
        others = [section.rows * section.columns * section.depth for section in self.sections[1:]]
        return np.cumsum([0, *sizes.ravel().tolist(), *others])

    def n_outputs(self, n_inputs: int) -> int:
        if self.part_edges[-1] != n_inputs:
            raise ValueError("the tiles do not fit the features")
        return n_inputs

    def apply(self, values: Array, dtype: str) -> Array:
        values = values[:, self._order]
        edges, sizes = self.part_edges[:-1], np.diff(self.part_edges)
        if not len(values):
            return values
        if self.sections[0].is_centred:
            means = np.add.reduceat(values, edges, axis=1) / sizes
            spread = np.maximum.reduceat(values, edges, axis=1) - np.minimum.reduceat(values, edges, axis=1)
            values -= np.repeat(means, sizes, axis=1)
            # In a part of equal values, only rounding errors are left.
            values *= np.repeat(spread > _BLANK * np.abs(means), sizes, axis=1)
        norms = np.sqrt(np.add.reduceat(values * values, edges, axis=1))
        values /= np.repeat(np.where(norms > 0, norms, 1), sizes, axis=1)
        return values

    def to_stored(self) -> Stored:
        return Stored({"parts": self.setting})

    @classmethod
    def from_stored(cls, stored: Stored) -> Parts | None:
        setting = stored.attributes.get("parts")
        return None if setting is None else cls.of(setting)

    def describe(self) -> str:
        return f"{self.setting} tiles"


def grid_of(steps: Iterable[Step]) -> tuple[int, int]:
    """Return the rows and columns of tiles that these steps divide images into; 1 and 1 for whole images."""
    return next(((step.rows, step.columns) for step in steps if isinstance(step, Parts)), (1, 1))


def _cuts(places: int, parts: int) -> Array:
    """Return where each part begins, and the number of places: parts of about the same size."""
    return np.round(np.linspace(0, places, parts + 1)).astype(int)
