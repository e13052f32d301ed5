"""The pixels themselves as raw values, and the size that images are resized to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.recipe.base import (
    PRECISE_SINCE,
    Extractor,
    ImagesSeen,
    Made,
    OpenExtractor,
    Section,
    Stored,
    describe_jpegs,
    is_one_color,
)
from crnr_cli.records import dataclass
from crnr_cli.wording import Note

_LARGEST_NATIVE = 64  # if all images have the same size, at most this, they keep it
_DEFAULT_SIZE = (32, 32)
# Measured by benchmarks/vectors.py, with the default settings.
ON_PHOTOGRAPHS = (
    "on 12 kinds of flowers with 12 examples each, pixels labelled 26% of the queries correctly, gradients "
    "69% and a network 97%"
)
Size = tuple[int, int]
_LARGE = (32, 32)  # the size that large images are resized to
_WEAK = (
    f"if these are photographs, pixels work poorly ({ON_PHOTOGRAPHS}): run "
    "`crnr model get efficientnet-lite0`, then use --extractor efficientnet-lite0, or at least gradients"
)


def working_size(
    chosen: Size | None, images: ImagesSeen, of_large: Size, weak: str
) -> tuple[Size, list[Note]]:
    """Return the chosen size, the common size of all images if it is small, or a default, with notes.

    `of_large` is the default if there are large images, and `weak` a note for large images in colour, which
    may be photographs.
    """
    if chosen is not None:
        return chosen, []
    sizes = images.sizes()
    if len(sizes) == 1 and max(next(iter(sizes))) <= _LARGEST_NATIVE:
        return next(iter(sizes)), []
    if not sizes:  # no image can be read, which is reported later
        return _DEFAULT_SIZE, []
    are_large = any(max(found) > _LARGEST_NATIVE for found in sizes)
    width, height = of_large if are_large else _DEFAULT_SIZE
    why = "differ in size" if len(sizes) > 1 else f"are larger than {_LARGEST_NATIVE}x{_LARGEST_NATIVE}"
    notes = [
        Note("size", f"images {why}: all are resized to {width}x{height}; choose another size with --size")
    ]
    if are_large and images.are_colored():
        notes.append(Note("weak vectors", weak))
    return (width, height), notes


@dataclass(frozen=True)
class RawPixels(Extractor):
    name: ClassVar[str] = "pixels"
    settings: ClassVar[tuple[str, ...]] = ("size", "color")
    newest_version: ClassVar[int] = PRECISE_SINCE

    size: tuple[int, int]  # width and height that images are resized to
    color: bool = False
    precise_jpegs: bool = True  # as in PixelRequest; False in galleries of crnr 0.2

    def __post_init__(self) -> None:
        if min(self.size) < 1:  # in an untrusted gallery
            raise ValueError(f"invalid image size {self.size[0]}x{self.size[1]}")

    @classmethod
    def create(cls, settings: Mapping[str, Any], images: ImagesSeen) -> Made:
        size, notes = working_size(settings.get("size"), images, _LARGE, _WEAK)
        return cls(size, settings.get("color", False)), notes

    @property
    def n_values(self) -> int:
        return self.size[0] * self.size[1] * (3 if self.color else 1)

    @property
    def sections(self) -> tuple[Section, ...]:
        return (Section(self.size[1], self.size[0], 3 if self.color else 1, is_centred=True),)

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        return PixelRequest(self.size, self.color, max_pixels, with_hash, precise_jpegs=self.precise_jpegs)

    def is_blank(self, pixels: Array) -> Array:
        return is_one_color(pixels, 1)  # 1, as all-red images are usable: their bands differ

    def open(self, jobs: int, provider: str = AUTO) -> OpenExtractor:
        return OpenExtractor(lambda pixels: pixels)

    @property
    def version_needed(self) -> int:
        return PRECISE_SINCE if self.precise_jpegs else self.since_version

    def to_stored(self) -> Stored:
        described = {"extractor": json.dumps(self._settings())} if self.precise_jpegs else {}
        return Stored({**described, "width": self.size[0], "height": self.size[1], "color": self.color})

    def _settings(self) -> dict[str, Any]:
        return {"name": self.name, "precise_jpegs": self.precise_jpegs}

    @classmethod
    def from_stored(cls, settings: Mapping[str, Any], stored: Stored) -> RawPixels:
        values = stored.attributes
        size = int(values["width"]), int(values["height"])
        return cls(size, bool(values["color"]), settings.get("precise_jpegs", False))

    def facts(self) -> dict[str, Any]:
        return {"size": list(self.size), "color": self.color, "extractor": self._settings()}

    def describe(self) -> str:
        colour = "colour" if self.color else "grey"
        return f"pixels, {self.size[0]}x{self.size[1]}, {colour}{describe_jpegs(self.precise_jpegs)}"
