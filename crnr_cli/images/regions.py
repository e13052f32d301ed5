"""Regions of images: boxes, their names, and the pixels that they cover.

A region is named after its image, as in `photo.jpg#0.1,0.25,0.5,0.3`: x, y, width and height as shares of the
upright image, with decimal points, or in pixels, without. A file that really has such a name wins. Decoder
processes import this module, so it loads nothing heavy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crnr_cli.errors import SampleError

BAD_BOX = "bad_box"
MARGIN = 0.1  # of the width and height of a box, added on each side
DECIMALS = 4  # of a share: less than a pixel of most images
_LARGEST = 10**9  # pixels
_SHARE, _PIXELS = r"\d{1,9}\.\d{1,4}", r"\d{1,9}"
_NAME = rf"(?P<path>.+)#(?P<box>{_SHARE}(?:,{_SHARE}){{3}}|{_PIXELS}(?:,{_PIXELS}){{3}})"
Edges = tuple[int, int, int, int]  # left, top, right and bottom in pixels, as Pillow has them


class Box(NamedTuple):
    """A rectangle of an upright image, in pixels or as shares of the image's width and height."""

    x: float
    y: float
    width: float
    height: float
    in_pixels: bool = False

    def __str__(self) -> str:
        return ",".join(map(self._spell, self[:4]))

    def _spell(self, value: float) -> str:
        if not abs(value) <= _LARGEST:  # also NaN
            return f"{value:g}"
        if self.in_pixels:
            return str(round(value))
        whole, _, decimals = f"{value:.{DECIMALS}f}".partition(".")
        return f"{whole}.{decimals.rstrip('0') or '0'}"

    def check(self) -> None:
        """Raise SampleError if this is no box in any image."""
        if not all(abs(value) <= _LARGEST for value in self[:4]):
            raise SampleError(BAD_BOX, "the box has a number that is infinite, too large or no number")
        if self.width <= 0 or self.height <= 0:
            raise SampleError(BAD_BOX, "the box is empty")

    def clip(self) -> Box:
        """Return the part that can be in an image, as precise as its name; SampleError for other boxes.

        The size of the image is unknown, so a box in pixels may still end beyond it.
        """
        self.check()
        x0, y0 = max(self.x, 0.0), max(self.y, 0.0)
        x1, y1 = self.x + self.width, self.y + self.height
        if not self.in_pixels:
            x1, y1 = min(x1, 1.0), min(y1, 1.0)
        if x1 <= x0 or y1 <= y0:
            raise SampleError(BAD_BOX, "the box is outside of the image")
        digits, least = (None, 1) if self.in_pixels else (DECIMALS, 10**-DECIMALS)
        width, height = (max(round(length, digits), least) for length in (x1 - x0, y1 - y0))
        return Box(round(x0, digits), round(y0, digits), width, height, self.in_pixels)

    def edges(self, width: int, height: int, margin: float) -> Edges:
        """Return the pixels of the box and its margin in an image of this size, within the image."""
        self.check()
        across, down = (1, 1) if self.in_pixels else (width, height)
        left, right = _span(self.x * across, self.width * across, width, margin)
        top, bottom = _span(self.y * down, self.height * down, height, margin)
        return left, top, right, bottom


def _span(start: float, length: float, side: int, margin: float) -> tuple[int, int]:
    """Return the first pixel of a box along one side of the image, and the pixel after its last."""
    if start >= side or start + length <= 0:
        raise SampleError(BAD_BOX, "the box is outside of the image")
    extra = margin * length
    first = min(max(0, round(start - extra)), side - 1)
    return first, max(first + 1, min(side, round(start + length + extra)))


class Region(NamedTuple):
    path: str  # of the image
    box: Box

    @property
    def name(self) -> str:
        return f"{self.path}#{self.box}"


def parse_region(name: str) -> Region | None:
    """Return the region of this name; None if it is not the name of a region."""
    found = re.fullmatch(_NAME, name, re.ASCII | re.DOTALL) if "#" in name else None
    if found is None:
        return None
    x, y, width, height = map(float, found["box"].split(","))
    return Region(found["path"], Box(x, y, width, height, in_pixels="." not in found["box"]))


def find_region(name: str) -> Region | None:
    """Return the region of this name; None for other names, and if a file really has this name."""
    region = parse_region(name)
    return None if region is None or os.path.lexists(name) else region


def image_of(name: str) -> str:
    """Return the file that an item is in: its path, or the path of the region's image."""
    region = find_region(name)
    return name if region is None else region.path


def group_regions(names: Sequence[str]) -> Iterator[tuple[str, list[Box]]]:
    """Yield each path with no boxes, and each image of consecutive regions with all their boxes."""
    last: tuple[str, list[Box]] | None = None
    for name in names:
        region = find_region(name)
        if region and last and region.path == last[0]:
            last[1].append(region.box)
            continue
        if last:
            yield last
        last = (region.path, [region.box]) if region else None
        if region is None:
            yield name, []
    if last:
        yield last


def end_of_image(names: Sequence[str], start: int, stop: int, latest: int) -> int:
    """Return a place near `stop` where no image has regions on both sides, so that it is decoded once.

    An image with more regions than fit between `start` and `latest` is divided.
    """
    if stop >= len(names) or not _is_same_image(names[stop - 1], names[stop]):
        return stop
    end = stop
    while end < min(latest, len(names)) and _is_same_image(names[end - 1], names[end]):
        end += 1
    if end == len(names) or not _is_same_image(names[end - 1], names[end]):
        return end
    while stop > start and _is_same_image(names[stop - 1], names[stop]):
        stop -= 1
    return stop if stop > start else end


def _is_same_image(one: str, other: str) -> bool:
    before = one.rpartition("#")[0]
    return bool(before) and before == other.rpartition("#")[0]


def hash_region(sha256: str, box: Box) -> str:
    """Return the content hash of a region, by the hash of its file."""
    import hashlib  # slow to import, and queries never need it

    return hashlib.sha256(f"{sha256}#{box}".encode()).hexdigest()


def hash_image(name: str) -> str:
    """Return the content hash of an image file or a region of one; OSError if the file is unreadable."""
    from crnr_cli.system.files import sha256_of

    region = find_region(name)
    return sha256_of(name) if region is None else hash_region(sha256_of(region.path), region.box)
