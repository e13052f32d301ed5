"""Steps of a recipe: fitted to the gallery, stored in its file, and applied to every batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.records import dataclass
from crnr_cli.wording import Note

PRECISE_SINCE = 5  # the first version of the gallery format with `precise_jpegs`


@dataclass(frozen=True)
class Stored:
    """The part of a gallery file that describes a recipe: plain values and arrays, by name."""

    attributes: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    folder: Path | None = None  # the folder of the gallery file that was read

    def __or__(self, other: Stored) -> Stored:
        return Stored(self.attributes | other.attributes, self.arrays | other.arrays, self.folder)


class Block(NamedTuple):
    """Some samples of the gallery."""

    values: Array  # (m, d)
    class_index: Array  # (m,): the class of each, as a number


class RecipePart(ABC):
    """A part of a recipe, which a gallery file stores; a frozen dataclass."""

    since_version: ClassVar[int] = 1  # the first version of the gallery format with this part
    newest_version: ClassVar[int] = 1  # the version with its newest setting, if later

    @property
    def version_needed(self) -> int:
        """The first version of the gallery format with this part and its settings."""
        return self.since_version

    @abstractmethod
    def to_stored(self) -> Stored: ...

    @abstractmethod
    def describe(self) -> str:
        """Return a short description to print."""


class Step(RecipePart):
    """One step between the raw values of a sample and its unit vector.

    A step has one setting, the value of the command-line option of the same name.
    `STEPS` in recipe.py lists all of them.
    """

    name: ClassVar[str]  # of the step, the option, and the entry in the gallery file
    off: ClassVar[Any]  # the setting for not using the step
    tried: ClassVar[tuple[Any, ...]]  # the settings that `tune` tries by default, the preferred one first
    learns: ClassVar[bool] = False  # whether fitting it depends on the gallery
    is_refitted: ClassVar[bool] = False  # whether it is fitted again when the gallery changes
    keeps_places: ClassVar[bool] = True  # whether every value still belongs to one place in the image

    @classmethod
    @abstractmethod
    def of(cls, setting: Any) -> Self:
        """Return the step with this setting, not yet fitted."""

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Any:
        """Return a setting from text, for `tune`; ValueError if it is invalid."""

    @property
    @abstractmethod
    def setting(self) -> Any: ...

    def for_extractor(self, extractor: Extractor | None) -> Self:
        """Return the step for the raw values of this extractor; UsageError if it cannot be used for them."""
        return self

    @property
    def part_edges(self) -> Array | None:
        """Where each part of the values begins, and their number, if this step divides them into parts.

        Each part then has unit length, and is compared with the same part of the samples.
        """
        return None

    @property
    def is_fitted(self) -> bool:
        """Always true, except for a step that has not been decided or fitted to the gallery yet."""
        return True

    def decide(self, lowest: float) -> Self:
        """Return the step with an automatic setting decided, by the lowest raw value of the gallery."""
        return self

    def fit(self, values: Array, class_index: Array) -> Self:
        """Fit to the gallery's values after the previous steps, in float64; they may be overwritten."""
        return self

    def fit_to_blocks(self, blocks: Iterable[Block]) -> Self:
        """Return the fitted step, like `fit`, from blocks of rows that need not fit into memory together."""
        return self

    def fit_bytes(self, n_samples: int, n_inputs: int, itemsize: int) -> int:
        """Estimate how much memory `fit` needs at its peak."""
        return 0

    def n_outputs(self, n_inputs: int) -> int:
        """Return the values per sample after this step; ValueError if it does not accept `n_inputs`."""
        return n_inputs

    @abstractmethod
    def apply(self, values: Array, dtype: str) -> Array:
        """Return the values of a batch after this step, in float64; products are computed in `dtype`."""

    @classmethod
    @abstractmethod
    def from_stored(cls, stored: Stored) -> Self | None:
        """Return the step as stored in a gallery file; None if its recipe does not have this step."""


class Section(NamedTuple):
    """Raw values of an image, in rows and columns of places with `depth` values each, row by row."""

    rows: int
    columns: int
    depth: int
    is_centred: bool = False  # whether only differences within a part matter, as in pixels
    name: str = ""  # of values that belong to the image as a whole, and are not divided


class ImagesSeen(Protocol):
    """Facts about the images of a new gallery that an extractor may need; reading them may take some time."""

    @property
    def jobs(self) -> int: ...

    @property
    def provider(self) -> str: ...

    def sizes(self) -> set[tuple[int, int]]:
        """Return the widths and heights of all readable images."""

    def are_colored(self) -> bool:
        """Return whether most of the images are in colour."""


class OpenExtractor(NamedTuple):
    """An extractor that is ready to be applied."""

    extract: Callable[[Array], Array]  # from pixels (m, width * height * bands) to raw values (m, n_values)
    provider: str | None = None  # what its model runs on; None if it has no model


class Extractor(RecipePart):
    """The first part of a recipe for images: it turns pixels into the raw values of a sample.

    `EXTRACTORS` in recipe.py lists all extractors.
    """

    name: ClassVar[str]
    settings: ClassVar[tuple[str, ...]]  # the names of the options that it takes
    is_slow: ClassVar[bool] = False  # whether it takes longer than the comparison with the gallery
    default_power: ClassVar[float] = 1.0  # of the raw values, if none of them is negative

    @classmethod
    @abstractmethod
    def create(cls, settings: Mapping[str, Any], images: ImagesSeen) -> Made:
        """Return the extractor with these settings; the others are derived from the images."""

    def for_tiles(self, rows: int, columns: int, settings: Mapping[str, Any]) -> Extractor:
        """Return the extractor with the settings not given adapted to tiles; 1 x 1 means whole images."""
        return self

    def alternatives(self, settings: Mapping[str, Any]) -> list[Extractor]:
        """Return the same extractor with other values of the settings not given, for `tune` to try."""
        return []

    @property
    def sections(self) -> tuple[Section, ...]:
        """How the raw values are arranged in the image; empty if they have no places."""
        return ()

    @property
    @abstractmethod
    def n_values(self) -> int:
        """Raw values per image."""

    @abstractmethod
    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        """Return which pixels the decoders should return."""

    @abstractmethod
    def is_blank(self, pixels: Array) -> Array:
        """Return (m,): which images are all of one colour, and so have nothing to compare."""

    @abstractmethod
    def open(self, jobs: int, provider: str = AUTO) -> OpenExtractor:
        """Load and check the model, if there is one, so that a missing model is reported before any work.

        `provider` is the hardware that the model runs on.
        """

    def max_batch(self, provider: str) -> int | None:
        """Return the maximum number of images per batch, or None without a limit."""
        return None

    def moved_to(self, model: Path) -> Extractor | None:
        """Return the same extractor with its model at another path; None if it has no model."""
        return None

    def is_same(self, other: Extractor) -> bool:
        """Return whether both make the same values of an image, wherever their models are."""
        return self == other

    @classmethod
    @abstractmethod
    def from_stored(cls, settings: Mapping[str, Any], stored: Stored) -> Extractor:
        """Return the extractor with the settings of the attribute `extractor` in a gallery file."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the plain values that `crnr info` shows: size, color and extractor."""

    def tunable_settings(self) -> dict[str, Any]:
        """Return the options that `tune` varies, by name."""
        return {"extractor": self.name}


Made = tuple[Extractor, list[Note]]


def describe_jpegs(precise: bool) -> str:
    """Return an ending for `describe`, which is empty for new galleries."""
    return "" if precise else ", large JPEGs decoded as by crnr 0.2"


def is_one_color(pixels: Array, bands: int) -> Array:
    """Return (m,): whether all pixels of an image are the same; False if values are not finite."""
    if not len(pixels) or pixels.shape[1] <= bands:
        return np.zeros(len(pixels), dtype=bool)
    per_pixel = pixels.reshape(len(pixels), -1, bands)
    first = per_pixel[:, :1]
    # Nearly all images differ in a few places already, which avoids the comparison of all pixels.
    n_pixels = per_pixel.shape[1]
    few = per_pixel[:, :: max(1, n_pixels // 16)]
    same: Array = (few == first).all(axis=(1, 2))
    suspects = np.flatnonzero(same)
    same[suspects] = (per_pixel[suspects] == first[suspects]).all(axis=(1, 2))
    if pixels.dtype.kind == "f":
        same &= np.isfinite(first).all(axis=(1, 2))
    return same
