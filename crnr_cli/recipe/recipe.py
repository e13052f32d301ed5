"""How a sample becomes a unit vector: fitted on the gallery, stored in it, applied to queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import SampleError, UsageError
from crnr_cli.pictures.pixels import Form
from crnr_cli.recipe.network_settings import Extraction


@dataclass(frozen=True)
class Recipe:
    kind: Literal["pictures", "features"]
    n_inputs: int  # numbers a sample before PCA
    size: tuple[int, int] | None = None  # width and height that pictures are brought to
    color: bool = False
    pca: Array | None = None  # (n_inputs, d): the axes that samples are projected on
    power: float = 1.0  # absolute values are raised to this, before PCA
    extraction: Extraction | None = None  # by which pictures become their n_inputs numbers; None: pixels

    def __post_init__(self) -> None:
        if not (np.isfinite(self.power) and self.power > 0):
            raise UsageError(f"power must be above 0, not {self.power:g}")

    @property
    def n_outputs(self) -> int:
        return self.n_inputs if self.pca is None else int(self.pca.shape[1])

    @cached_property
    def _single_axes(self) -> Array | None:
        return None if self.pca is None else self.pca.astype(np.float32)

    def form(self, max_pixels: int, *, with_hash: bool = False) -> Form:
        """What the decoder is asked for."""
        if (how := self.extraction) is None:
            return Form(self.size, self.color, max_pixels, with_hash)
        return Form(
            how.size,
            how.bands == 3,
            max_pixels,
            with_hash,
            crop=how.crop,
            filter=how.filter,
            eight_bit=True,
            extraction=how,
        )

    def unit_vectors(self, raw: Array, dtype: str) -> tuple[Array, list[SampleError | None]]:
        """(m, d) unit rows, and for every row why it has none; such a row is all zero."""
        if not len(raw):  # a batch with no readable picture has no width either
            return np.empty((0, self.n_outputs), dtype), []
        errors: list[SampleError | None] = [None] * len(raw)
        low, high = raw.min(axis=1).astype(np.float64), raw.max(axis=1).astype(np.float64)
        finite = np.isfinite(low) & np.isfinite(high)  # NaN is the least and the largest of its row
        for row in np.flatnonzero(~finite):
            errors[row] = SampleError("non_finite", "holds NaN or infinity")
        # Scaled before the norm, so that values of 1e200 or 1e-200 neither overflow nor vanish.
        largest = np.where(finite, np.maximum(np.abs(low), np.abs(high)), 0)
        blank = largest == 0
        if self.kind == "pictures" and self.n_inputs > 1:
            blank |= low == high
        with np.errstate(invalid="ignore"):  # a signalling NaN; its row has its error
            values = np.divide(raw, np.where(largest > 0, largest, 1)[:, None], dtype=np.float64)
        values[~finite] = 0
        values = _raised(values, self.power)
        if self.pca is not None:  # multiplied in the type of the vectors, as all that follows
            axes = self.pca if dtype == "float64" else self._single_axes
            values = (values.astype(dtype) @ axes).astype(np.float64)
        norms = np.sqrt(np.einsum("md,md->m", values, values))
        blank |= norms == 0
        for row in np.flatnonzero(blank & finite):
            errors[row] = SampleError("zero_norm", "nothing to compare: all values are zero or one colour")
        vectors = np.empty(values.shape, dtype)
        np.divide(values, np.where(norms > 0, norms, 1)[:, None], out=vectors, casting="same_kind")
        vectors[blank] = 0
        return vectors, errors


def _raised(values: Array, power: float) -> Array:
    """Absolute values to the power, signs kept. A power below 1 lets small features count for more."""
    if power == 1:
        return values
    raised: Array = np.copysign(np.abs(values) ** power, values)
    return raised
