"""Gradients as the extractor: oriented gradients and, for images in colour, colour histograms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.choices import AUTO, BLOCK_NORMS
from crnr_cli.errors import UsageError
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
from crnr_cli.recipe.oriented import OrientedGradients
from crnr_cli.recipe.pixels import ON_PHOTOGRAPHS, working_size
from crnr_cli.records import dataclass

BINS = 8
_CELLS = 8  # along the shorter side, by default
_SMALLEST_CELL = 3  # cells of 2 pixels were worse on digits of 16 x 16: see benchmarks/README.md
_SMALLEST_IN_TILES = 2  # cells of 1 pixel make four times as many values, and digits worse
_PHOTOGRAPHS = (64, 64)  # the working size of large images
_LARGEST_BINS = 64
_LONGEST_SIDE = 2048  # of the working size: an untrusted gallery must not need gigabytes per image
_WEAK = (
    f"if these are photographs, a network is far better than gradients ({ON_PHOTOGRAPHS}): run "
    "`crnr model get efficientnet-lite0`, then add --extractor efficientnet-lite0"
)
_LEVELS = 4  # of red, of green and of blue
N_COLORS = 4 * _LEVELS**3
_PIXELS_AT_ONCE = 2**15  # so that the arrays of a few images stay in the cache of a core
_CHROMA = 24  # difference of two bands, of 255, from which a pixel has a colour
_COLORED_SHARE = 0.02  # of the pixels, from which an image is in colour
# How bright red, green and blue appear, in thousandths: whole numbers, so that equal colours of an image
# have exactly equal brightness.
_BRIGHTNESS = np.array([299, 587, 114], np.float32)


@dataclass(frozen=True)
class Gradients(Extractor):
    name: ClassVar[str] = "gradients"
    settings: ClassVar[tuple[str, ...]] = ("size", "color", "cell", "bins", "block_norm")
    since_version: ClassVar[int] = 2
    newest_version: ClassVar[int] = PRECISE_SINCE

    size: tuple[int, int]  # the working size: width and height that images are resized to
    color: bool
    cell: int  # side in pixels
    bins: int = BINS  # directions
    block_norm: str = BLOCK_NORMS[0]
    precise_jpegs: bool = True  # as in PixelRequest; False in galleries of crnr 0.2

    def __post_init__(self) -> None:
        """Check all settings, which come from the user or from an untrusted gallery."""
        if not all(1 <= side <= _LONGEST_SIDE for side in self.size):
            raise UsageError(
                f"gradients: invalid image size {self.size[0]}x{self.size[1]}; choose at most "
                f"{_LONGEST_SIDE} pixels per side"
            )
        if self.cell < 1:
            raise UsageError(f"gradients: cell must be 1 pixel or more, not {self.cell}")
        if not 2 <= self.bins <= _LARGEST_BINS or self.bins % 2:
            raise UsageError(
                f"gradients: bins must be an even number from 2 to {_LARGEST_BINS}, not {self.bins}"
            )
        if self.block_norm not in BLOCK_NORMS:
            raise UsageError(
                f"gradients: block_norm must be {' or '.join(BLOCK_NORMS)}, not {self.block_norm}"
            )

    @classmethod
    def create(cls, settings: Mapping[str, Any], images: ImagesSeen) -> Made:
        size, notes = working_size(settings.get("size"), images, _PHOTOGRAPHS, _WEAK)
        color = settings["color"] if "color" in settings else images.are_colored()
        cell = settings.get("cell") or _default_cell(size, 1, 1)
        return cls(
            size, color, cell, settings.get("bins", BINS), settings.get("block_norm", BLOCK_NORMS[0])
        ), notes

    def for_tiles(self, rows: int, columns: int, settings: Mapping[str, Any]) -> Gradients:
        return self if "cell" in settings else replace(self, cell=_default_cell(self.size, rows, columns))

    def alternatives(self, settings: Mapping[str, Any]) -> list[Extractor]:
        if "cell" in settings:
            return []
        larger, smaller = -(-3 * self.cell // 2), max(_SMALLEST_IN_TILES, -(-self.cell // 2))
        return [replace(self, cell=cell) for cell in (larger, smaller) if cell != self.cell]

    @property
    def _oriented(self) -> OrientedGradients:
        return OrientedGradients(*self.size, self.cell, self.bins, self.block_norm)

    @property
    def n_values(self) -> int:
        return self._oriented.n_values + (N_COLORS if self.color else 0)

    @property
    def sections(self) -> tuple[Section, ...]:
        oriented = self._oriented
        places = Section(*oriented.blocks, oriented.n_per_block)
        return (places, Section(1, 1, N_COLORS, name="colour")) if self.color else (places,)

    def request(self, max_pixels: int, *, with_hash: bool = False) -> PixelRequest:
        return PixelRequest(
            self.size,
            self.color,
            max_pixels,
            with_hash,
            eight_bit=self.color,
            precise_jpegs=self.precise_jpegs,
        )

    def is_blank(self, pixels: Array) -> Array:
        return is_one_color(pixels, 3 if self.color else 1)

    def open(self, jobs: int, provider: str = AUTO) -> OpenExtractor:
        oriented = self._oriented
        if not self.color:
            return OpenExtractor(oriented.values)

        def both(pixels: Array) -> Array:
            """Return gradients and colours, each of unit length, so that they count the same."""
            parts = oriented.values(brightness(pixels)), histograms(pixels, *self.size)
            return np.concatenate([_unit(part) for part in parts], axis=1)

        return OpenExtractor(both)

    @property
    def version_needed(self) -> int:
        return PRECISE_SINCE if self.precise_jpegs else self.since_version

    def to_stored(self) -> Stored:
        settings = {"name": self.name, **asdict(self)}
        if not self.precise_jpegs:  # older versions do not know it
            del settings["precise_jpegs"]
        described = {"extractor": json.dumps(settings)}
        return Stored({**described, "width": self.size[0], "height": self.size[1], "color": self.color})

    @classmethod
    def from_stored(cls, settings: Mapping[str, Any], stored: Stored) -> Gradients:
        precise = settings.get("precise_jpegs", False)
        if {*settings, "precise_jpegs"} != {f.name for f in fields(cls)}:
            raise ValueError("the description of the extractor is incomplete")
        size, color, cell, bins = (settings[name] for name in ("size", "color", "cell", "bins"))
        numbers = [*size, cell, bins] if isinstance(size, list) else []
        are_whole = len(numbers) == 4 and all(type(number) is int for number in numbers)
        if not are_whole or not isinstance(color, bool):
            raise ValueError("the description of the extractor is invalid")
        return cls((size[0], size[1]), color, cell, bins, settings["block_norm"], precise)

    def facts(self) -> dict[str, Any]:
        names = ("name", "cell", "bins", "block_norm", "precise_jpegs")
        described = {name: getattr(self, name) for name in names}
        return {"size": list(self.size), "color": self.color, "extractor": described}

    def tunable_settings(self) -> dict[str, Any]:
        return {"extractor": self.name, "cell": self.cell}

    def describe(self) -> str:
        colour = ", colour" if self.color else ""
        norm = "" if self.block_norm == BLOCK_NORMS[0] else f", block norm {self.block_norm}"
        return (
            f"gradients, {self.size[0]}x{self.size[1]}, cells of {self.cell}, {self.bins} directions"
            f"{norm}{colour}{describe_jpegs(self.precise_jpegs)}"
        )


def _default_cell(size: tuple[int, int], rows: int, columns: int) -> int:
    """Return the side of a cell: an eighth of the image's shorter side, or about a quarter of a tile's.

    Cells and their blocks reach into the neighbouring tiles. If they were as large as in whole images, what
    covers a tile would spoil its neighbours too. Tiles of half an image have the cells of whole images.
    """
    shorter, tile = min(size), min(size[1] / rows, size[0] / columns)
    of_image = max(_SMALLEST_CELL, shorter / _CELLS)
    return max(_SMALLEST_IN_TILES, round(of_image * min(1.0, 2 * tile / shorter)))


def _unit(rows: Array) -> Array:
    """Scale the rows to unit length, in place; a row of zeros stays as it is."""
    norms = np.sqrt(np.einsum("md,md->m", rows, rows))[:, np.newaxis]
    np.divide(rows, norms, out=rows, where=norms > 0)
    return rows


def brightness(pixels: Array) -> Array:
    """Return (m, pixels): the brightness, from the bytes of colour images (m, pixels * 3)."""
    grey: Array = _split_pixels(pixels).astype(np.float32) @ _BRIGHTNESS
    return grey


def are_colored(pixels: Array) -> Array:
    """Return (m,): which images, (m, pixels * 3), have more than greys and the noise of a camera."""
    bands = _split_pixels(pixels).astype(np.float32)
    chroma = bands.max(axis=2) - bands.min(axis=2)
    colored: Array = (chroma > _CHROMA).mean(axis=1) >= _COLORED_SHARE
    return colored


def histograms(pixels: Array, width: int, height: int) -> Array:
    """Return (m, N_COLORS): the square root of the frequencies of the colours, quarter by quarter.

    A pixel counts for the nearest levels of every band, linearly interpolated, so that a small change of
    colour is a small change of the histogram.
    """
    out = np.empty((len(pixels), 4, _LEVELS**2, _LEVELS), np.float32)
    step = max(1, _PIXELS_AT_ONCE // (width * height))
    middle, centre = (height + 1) // 2, (width + 1) // 2
    for start in range(0, len(pixels), step):
        images = pixels[start : start + step].reshape(-1, height, width, 3)
        quarters = [
            images[:, rows, columns]
            for rows in (slice(middle), slice(middle, None))
            for columns in (slice(centre), slice(centre, None))
        ]
        for number, quarter in enumerate(quarters):
            # An estimator may get bytes as other numbers.
            values = quarter.astype(np.uint8, copy=False)
            weights = _weights()[values.reshape(len(quarter), quarter.shape[1] * quarter.shape[2], 3)]
            red, green, blue = (weights[:, :, band] for band in range(3))
            both = red[..., :, np.newaxis] * green[..., np.newaxis, :]
            both = both.reshape(*both.shape[:2], _LEVELS**2)
            np.matmul(both.transpose(0, 2, 1), blue, out=out[start : start + step, number])
    np.sqrt(out, out=out)
    return out.reshape(len(pixels), N_COLORS)


def _split_pixels(pixels: Array) -> Array:
    return pixels.reshape(len(pixels), pixels.shape[1] // 3, 3)


@cache
def _weights() -> Array:
    """Return (256, levels): the weight of a byte for each level; levels are evenly spaced from 0 to 255."""
    places = np.arange(256) * ((_LEVELS - 1) / 255)
    weights: Array = np.maximum(0, 1 - np.abs(places[:, np.newaxis] - np.arange(_LEVELS)))
    return weights.astype(np.float32)
