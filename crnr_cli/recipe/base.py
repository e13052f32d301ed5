"""Steps of a recipe: fitted to the gallery, stored in its file, and applied to every batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.pictures.pixels import PixelRequest


@dataclass(frozen=True)
class Stored:
    """The part of a gallery file that describes a recipe: plain values and arrays, by name."""

    attributes: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    folder: Path | None = None  # the folder of the gallery file that was read

    def __or__(self, other: Stored) -> Stored:
        return Stored(self.attributes | other.attributes, self.arrays | other.arrays, self.folder)


class Part(ABC):
    """A part of a recipe, which a gallery file stores; a frozen dataclass."""

    since_version: ClassVar[int] = 1  # the first version of the gallery format with this part

    @abstractmethod
    def stored(self) -> Stored: ...

    @abstractmethod
    def describe(self) -> str:
        """A short description to print."""


class Step(Part):
    """One step between the raw values of a sample and its unit vector.

    A step has one setting, the value of the command-line option of the same name. `registry` lists all steps.
    """

    name: ClassVar[str]  # of the step, the option, and the entry in the gallery file
    off: ClassVar[Any]  # the setting for not using the step
    tried: ClassVar[tuple[Any, ...]]  # the settings that `tune` tries by default, the preferred one first
    learns: ClassVar[bool] = False  # whether fitting it depends on the gallery

    @classmethod
    @abstractmethod
    def of(cls, setting: Any) -> Self:
        """The step with this setting, not yet fitted."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Any:
        """A setting from text, for `tune`; ValueError if it is invalid."""

    @property
    @abstractmethod
    def setting(self) -> Any: ...

    @property
    def is_fitted(self) -> bool:
        """Always true, except for a step that learns from the gallery and has not been fitted yet."""
        return True

    def fit(self, values: Array) -> Self:
        """Fit to the gallery's values after the previous steps, in float64; they may be overwritten."""
        return self

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        """About how much memory `fit` needs at its peak."""
        return 0

    def n_outputs(self, n_inputs: int) -> int:
        """Numbers per sample after this step; ValueError if it does not accept `n_inputs`."""
        return n_inputs

    @abstractmethod
    def apply(self, values: Array, dtype: str) -> Array:
        """The values of a batch after this step, in float64; products are computed in `dtype`."""

    @classmethod
    @abstractmethod
    def restored(cls, stored: Stored) -> Self | None:
        """The step as stored in a gallery file; None if its recipe does not have this step."""


class Extractor(Part):
    """The first part of a recipe for pictures: it turns pixels into the raw values of a sample.

    It runs while pictures are read, as it may use all cores itself.
    """

    max_batch: ClassVar[int | None] = None  # maximum number of pictures per batch, if it is limited

    @property
    @abstractmethod
    def n_values(self) -> int:
        """Raw values per picture."""

    @abstractmethod
    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        """Which pixels the decoders should return."""

    @abstractmethod
    def is_blank(self, pixels: Array) -> Array:
        """(m,): which pictures are all of one colour, and so have nothing to compare."""

    @abstractmethod
    def opened(self, jobs: int) -> Callable[[Array], Array]:
        """A function from pixels (m, width * height * bands) to raw values (m, n_values).

        A model is loaded and checked now, so that a missing one is reported before any work.
        """

    def moved_to(self, model: Path) -> Extractor | None:
        """The same extractor with its model at another path; None if it has no model."""
        return None

    @classmethod
    @abstractmethod
    def restored(cls, stored: Stored) -> Extractor | None: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `crnr info` shows: size, color and extractor, as plain values."""


def is_one_color(pixels: Array, bands: int) -> Array:
    """(m,): whether all pixels of a picture are the same; False if values are not finite."""
    if not len(pixels) or pixels.shape[1] <= bands:
        return np.zeros(len(pixels), dtype=bool)
    first = pixels[:, :bands]
    per_pixel = pixels.reshape(len(pixels), -1, bands)
    same: Array = (per_pixel == first[:, None, :]).all(axis=(1, 2))
    if pixels.dtype.kind == "f":
        same &= np.isfinite(first).all(axis=1)
    return same
