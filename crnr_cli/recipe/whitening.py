"""Whitening within classes: the step that learns in which directions samples of one class differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.recipe.base import Block, Step, Stored
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count

_SMALLEST_RHO = 0.01  # below that, rounding errors decide
_NO_EFFECT = 1e-7  # a direction that whitening shrinks by less than this share is left as it is


@dataclass(frozen=True)
class Whiten(Step):
    """Shrinks the directions in which samples of the same class differ, without subtracting a mean.

    With E, the unit vectors minus the means of their classes, it multiplies by the inverse square root of
    S = (1 - rho) E'E / (n - K) + rho tau I, where tau is the mean variance, up to a factor. Only directions
    in the span of E change: x + V((g - 1) V'x).
    """

    name: ClassVar[str] = "whiten"
    off: ClassVar[Any] = 0.0
    tried: ClassVar[tuple[Any, ...]] = (0.0,)
    learns: ClassVar[bool] = True
    is_refitted: ClassVar[bool] = True
    keeps_places: ClassVar[bool] = False
    since_version: ClassVar[int] = 5
    rho: float
    axes: Array | None = field(default=None, compare=False)  # (n_inputs, r): V, once it is fitted
    gains: Array | None = field(default=None, compare=False)  # (r,): g

    def __post_init__(self) -> None:
        if self.rho != self.off and not _SMALLEST_RHO <= self.rho <= 1:
            raise UsageError(
                f"--whiten {self.rho:g}: give a number from {_SMALLEST_RHO} to 1, or 0 for no whitening"
            )

    @classmethod
    def of(cls, setting: Any) -> Whiten:
        return cls(float(setting))

    @classmethod
    def parse(cls, text: str) -> float:
        return float(text)

    @property
    def setting(self) -> float:
        return self.rho

    @property
    def is_fitted(self) -> bool:
        return self.rho == self.off or self.axes is not None

    def fit(self, values: Array, class_index: Array) -> Whiten:
        """Return the step, or the step that is not used if no class has two different samples."""
        values /= _norms(values)
        _, numbers = np.unique(class_index, return_inverse=True)
        n_classes = int(numbers.max()) + 1
        sums = np.zeros((n_classes, values.shape[1]))
        np.add.at(sums, numbers, values)
        values -= (sums / np.bincount(numbers)[:, None])[numbers]
        n, n_inputs = values.shape
        if n_inputs <= n:
            return self._of_scatter(values.T @ values, n - n_classes)
        squares, weights = np.linalg.eigh(values @ values.T)
        keep, gains = self._choose(squares, n - n_classes, n_inputs)
        return self._with(values.T @ (weights[:, keep] / np.sqrt(squares[keep])), gains)

    def fit_to_blocks(self, blocks: Iterable[Block]) -> Whiten:
        """Return the step from the products of the values and the sums of the classes, in one pass."""
        n = 0
        sums: dict[int, Array] = {}
        counts: Counter[int] = Counter()
        products: Array = np.zeros(())
        for values, class_index in blocks:
            unit = values / _norms(values)
            n += len(unit)
            products = products + unit.T @ unit
            numbers, starts, sizes = np.unique(np.sort(class_index), return_index=True, return_counts=True)
            found = np.add.reduceat(unit[np.argsort(class_index, kind="stable")], starts)
            for number, size, total in zip(numbers.tolist(), sizes.tolist(), found, strict=True):
                counts[number] += size
                sums[number] = sums.get(number, 0) + total
        scaled = np.stack([total / np.sqrt(counts[number]) for number, total in sums.items()])
        return self._of_scatter(products - scaled.T @ scaled, n - len(sums))

    def _of_scatter(self, scatter: Array, freedom: int) -> Whiten:
        squares, axes = np.linalg.eigh(scatter)
        keep, gains = self._choose(squares, freedom, len(scatter))
        return self._with(axes[:, keep], gains)

    def _choose(self, squares: Array, freedom: int, n_inputs: int) -> tuple[Array, Array]:
        """Return a mask of the directions that shrink, from their squared singular values, and the gains."""
        total = squares.clip(min=0).sum()
        if not freedom or total <= len(squares) * np.finfo(float).eps:  # of unit vectors
            return np.zeros(len(squares), dtype=bool), np.empty(0)
        floor = self.rho * total / (freedom * n_inputs)
        spread = (1 - self.rho) * squares.clip(min=0) / freedom
        keep = spread > _NO_EFFECT * floor
        return keep, np.sqrt(floor / (spread[keep] + floor))

    def _with(self, axes: Array, gains: Array) -> Whiten:
        """Return the fitted step; single precision is enough, as any axes give a valid step."""
        if not len(gains):
            return Whiten(self.off)
        return replace(self, axes=np.ascontiguousarray(axes, np.float32), gains=gains)

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        return n_samples * n_inputs * (itemsize + 16) + 3 * 8 * min(n_samples, n_inputs) ** 2

    def n_outputs(self, n_inputs: int) -> int:
        if self.axes is not None and len(self.axes) != n_inputs:
            rows, features = format_count(len(self.axes), "row"), format_count(n_inputs, "feature")
            raise ValueError(f"the whitening has {rows} for {features}")
        return n_inputs

    def apply(self, values: Array, dtype: str) -> Array:
        """Return the values with shrunken directions; products are computed in the type of the vectors."""
        assert self.gains is not None
        return self._stretch(values, self.gains, dtype)

    def undo(self, values: Array, dtype: str) -> Array:
        """Return the values before this step, up to their length."""
        assert self.gains is not None
        return self._stretch(values, 1 / self.gains, dtype)

    def _stretch(self, values: Array, factors: Array, dtype: str) -> Array:
        assert self.axes is not None
        axes = self.axes.astype(dtype, copy=False)
        changes = ((values.astype(dtype) @ axes) * (factors - 1).astype(dtype)) @ axes.T
        stretched: Array = values + changes.astype(np.float64)
        return stretched

    def to_stored(self) -> Stored:
        assert self.axes is not None
        assert self.gains is not None
        return Stored({"whiten": self.rho}, {"whiten": self.axes, "whiten_gains": self.gains})

    @classmethod
    def from_stored(cls, stored: Stored) -> Whiten | None:
        if "whiten" not in stored.attributes:
            return None
        axes, gains = stored.arrays["whiten"], stored.arrays["whiten_gains"]
        if axes.ndim != 2 or gains.shape != axes.shape[1:] or {axes.dtype.kind, gains.dtype.kind} != {"f"}:
            raise ValueError("the arrays of the whitening do not match")
        if not (np.isfinite(axes).all() and (gains > 0).all() and (gains <= 1).all()):
            raise ValueError("the whitening has invalid numbers")
        return cls(float(stored.attributes["whiten"]), axes=axes, gains=gains)

    def describe(self) -> str:
        return f"whitened within classes ({self.rho:g})"


def _norms(values: Array) -> Array:
    """Return (m, 1): the lengths of rows, 1 for rows of zeros."""
    lengths = np.sqrt(np.einsum("md,md->m", values, values))[:, None]
    return np.where(lengths > 0, lengths, 1)
