"""PCA: samples are projected on the first principal components of the gallery."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.recipe.base import Step, Stored
from crnr_cli.wording import counted


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

    def fit(self, values: Array) -> Pca:
        return replace(self, axes=principal_axes(values, self.count))

    def fit_to_blocks(self, blocks: Iterable[Array]) -> Pca:
        return replace(self, axes=principal_axes_of_blocks(blocks, self.count))

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        return n_samples * n_inputs * (itemsize + 8) + 3 * 8 * min(n_samples, n_inputs) ** 2

    def n_outputs(self, n_inputs: int) -> int:
        if self.axes is not None and self.axes.shape != (n_inputs, self.count):
            raise ValueError(
                f"its principal axes have the shape {self.axes.shape} for {counted(n_inputs, 'input')}"
            )
        return self.count

    @cached_property
    def _single_axes(self) -> Array:
        assert self.axes is not None
        return self.axes.astype(np.float32)

    def apply(self, values: Array, dtype: str) -> Array:
        """The projection is computed in the type of the vectors, like everything after it."""
        axes = self.axes if dtype == "float64" else self._single_axes
        projected: Array = (values.astype(dtype) @ axes).astype(np.float64)
        return projected

    def stored(self) -> Stored:
        assert self.axes is not None
        return Stored(arrays={"pca": self.axes})

    @classmethod
    def restored(cls, stored: Stored) -> Pca | None:
        axes = stored.arrays.get("pca")
        return None if axes is None else cls(int(axes.shape[1]), axes)

    def describe(self) -> str:
        return counted(self.count, "principal component")


def principal_axes(values: Array, count: int) -> Array:
    """(n_inputs, count): the first eigenvectors of the covariance of the centred samples.

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
            raise DataError(f"--pca {count}: the samples span fewer dimensions; choose fewer components")
        axes = (values.T @ weights) / np.sqrt(variances)
    return np.ascontiguousarray(axes[:, ::-1])


def principal_axes_of_blocks(blocks: Iterable[Array], count: int) -> Array:
    """(n_inputs, count), of blocks of rows in float64: from their covariance, which one pass gives.

    The mean is not known before the end. That of the first block is near enough to it that nothing is lost
    by cancellation.
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
        raise DataError(f"--pca {count}: some samples are too large to be compared with others; scale them")
    mean = total / n
    _, axes = _leading_eigenvectors(squares - n * np.outer(mean, mean), count)
    return np.ascontiguousarray(axes[:, ::-1])


def _require_count(count: int, n: int, n_inputs: int) -> None:
    largest = min(n - 1, n_inputs)
    if not 1 <= count <= largest:
        raise UsageError(
            f"--pca {count}: choose 1 to {counted(largest, 'principal component')} for "
            f"{counted(n, 'sample')} of {counted(n_inputs, 'number')}"
        )


def _leading_eigenvectors(symmetric: Array, count: int) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors, the largest last."""
    n = len(symmetric)
    if 4 * count > n:  # computing all of them is faster
        variances, axes = np.linalg.eigh(symmetric)
        return variances[n - count :], axes[:, n - count :]
    from scipy.linalg import eigh  # slow to import, and queries never need it

    variances, axes = eigh(symmetric, subset_by_index=[n - count, n - 1])
    return variances, axes
