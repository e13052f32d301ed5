"""Raw pixels as the extractor: the pixels of a picture are its raw values, without a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crnr_cli.arrays import Array
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.recipe.base import Extractor, Stored, is_one_color


@dataclass(frozen=True)
class RawPixels(Extractor):
    size: tuple[int, int]  # width and height that pictures are resized to
    color: bool = False

    def __post_init__(self) -> None:
        if min(self.size) < 1:  # in an untrusted gallery
            raise ValueError(f"invalid picture size {self.size[0]}x{self.size[1]}")

    @property
    def n_values(self) -> int:
        return self.size[0] * self.size[1] * (3 if self.color else 1)

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        return PixelRequest(self.size, self.color, max_pixels, with_hash)

    def is_blank(self, pixels: Array) -> Array:
        return is_one_color(pixels, 1)  # 1, as all-red pictures are usable: their bands differ

    def opened(self, jobs: int) -> Callable[[Array], Array]:
        return lambda pixels: pixels

    def stored(self) -> Stored:
        return Stored({"width": self.size[0], "height": self.size[1], "color": self.color})

    @classmethod
    def restored(cls, stored: Stored) -> RawPixels | None:
        values = stored.attributes
        return cls((int(values["width"]), int(values["height"])), bool(values["color"]))

    def facts(self) -> dict[str, Any]:
        return {"size": list(self.size), "color": self.color, "extractor": None}

    def describe(self) -> str:
        return f"pixels, {self.size[0]}x{self.size[1]}, {'colour' if self.color else 'grey'}"
