"""Raw pixels as the extractor: the pixels of a picture are its raw values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from crnr_cli.arrays import Array
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.recipe.base import Extractor, Made, OpenExtractor, PicturesSeen, Section, Stored, is_one_color
from crnr_cli.recipe.provider_names import AUTO
from crnr_cli.recipe.working_size import ON_PHOTOGRAPHS, working_size

_LARGE = (32, 32)  # the size that large pictures are resized to
_WEAK = (
    f"raw pixels work poorly on photographs ({ON_PHOTOGRAPHS}); "
    "if these are photographs, use a network with --extractor MODEL.onnx, or at least gradients"
)


@dataclass(frozen=True)
class RawPixels(Extractor):
    name: ClassVar[str] = "pixels"
    settings: ClassVar[tuple[str, ...]] = ("size", "color")

    size: tuple[int, int]  # width and height that pictures are resized to
    color: bool = False

    def __post_init__(self) -> None:
        if min(self.size) < 1:  # in an untrusted gallery
            raise ValueError(f"invalid picture size {self.size[0]}x{self.size[1]}")

    @classmethod
    def made(cls, settings: Mapping[str, Any], pictures: PicturesSeen) -> Made:
        size, notes = working_size(settings.get("size"), pictures, _LARGE, _WEAK)
        return cls(size, settings.get("color", False)), notes

    @property
    def n_values(self) -> int:
        return self.size[0] * self.size[1] * (3 if self.color else 1)

    @property
    def sections(self) -> tuple[Section, ...]:
        return (Section(self.size[1], self.size[0], 3 if self.color else 1, is_centred=True),)

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        return PixelRequest(self.size, self.color, max_pixels, with_hash)

    def is_blank(self, pixels: Array) -> Array:
        return is_one_color(pixels, 1)  # 1, as all-red pictures are usable: their bands differ

    def open(self, jobs: int, provider: str = AUTO) -> OpenExtractor:
        return OpenExtractor(lambda pixels: pixels)

    def stored(self) -> Stored:
        return Stored({"width": self.size[0], "height": self.size[1], "color": self.color})

    @classmethod
    def restored(cls, settings: Mapping[str, Any], stored: Stored) -> RawPixels:
        values = stored.attributes
        return cls((int(values["width"]), int(values["height"])), bool(values["color"]))

    def facts(self) -> dict[str, Any]:
        return {"size": list(self.size), "color": self.color, "extractor": {"name": self.name}}

    def describe(self) -> str:
        return f"pixels, {self.size[0]}x{self.size[1]}, {'colour' if self.color else 'grey'}"
