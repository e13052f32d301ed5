"""Requests to a decoder and its replies, for both sides of the pipe.

These are named tuples, which are fast to create, and to import when a decoder starts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from crnr_cli.images.regions import MARGIN

MAX_PIXELS = 89_478_485  # the default limit per image, the same as in Pillow
TOO_MUCH_MEMORY = "needs more memory than a decoder is allowed to use"
BASE_BYTES = 2**29  # of memory, for Python and Pillow themselves
_BYTES_PER_PIXEL = 24  # four copies in RGBA (as read, upright, on white, converted), and some spare


class PixelRequest(NamedTuple):
    """How to convert an image; it keeps its own size if `size` is None."""

    size: tuple[int, int] | None  # width, height
    color: bool = False
    max_pixels: int = MAX_PIXELS
    with_hash: bool = False
    header_only: bool = False  # only width and height, after the orientation is applied
    crop: float = 0.0  # scale of the centred box, with the aspect ratio of `size`, to cut out; 0 = no crop
    filter: str = "bilinear"  # Pillow's name for the resampling filter
    eight_bit: bool = False  # convert images of more than 8 bits to bytes from 0 to 255
    within: int = 0  # without `size`: the largest width and height, to which larger images are reduced
    precise_jpegs: bool = (
        False  # whether JPEGs at a reduced scale have to resemble the full image more closely
    )
    margin: float = MARGIN  # around the box of a region
    with_date: bool = False

    @property
    def bands(self) -> int:
        return 3 if self.color else 1

    @property
    def most_memory(self) -> int:
        """The memory limit of a decoder: a malicious image cannot use up the machine's memory."""
        return BASE_BYTES + _BYTES_PER_PIXEL * self.max_pixels


class Pixels(NamedTuple):
    """Pixels row by row, `bands` values each: bytes, or float32 for images of more than 8 bits."""

    width: int
    height: int
    bands: int
    is_float: bool
    sha256: str  # of the file; empty unless requested
    data: bytes
    date: str = ""  # when the photograph was taken, in ISO 8601; empty if unknown, or unless requested


def scale_to_bytes(largest: float) -> float:
    """Return the factor that brings an image of more than 8 bits to 0 to 255, by its largest value.

    Files do not record the range of their values: it is assumed to end at 1, 255 or 65535, or at the largest.
    """
    if not math.isfinite(largest):
        return 1.0
    full = next((end for end in (1.0, 255.0, 65535.0) if largest <= end), largest)
    return 255.0 / full
