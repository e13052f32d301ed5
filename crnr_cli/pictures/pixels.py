"""What is asked of a decoder and what it gives: plain values, so that neither side loads the other.

They are named tuples: there may be millions, and a decoder starts without what dataclasses load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from crnr_cli.recipe.network_settings import Extraction


MAX_PIXELS = 89_478_485  # a picture may have, unless the user says otherwise; so it is in Pillow


class Form(NamedTuple):
    """What pixels to make of a picture: its own size if `size` is None."""

    size: tuple[int, int] | None  # width, height
    color: bool = False
    max_pixels: int = MAX_PIXELS
    with_hash: bool = False
    header_only: bool = False  # width and height as seen, and no pixels
    crop: float = 0.0  # largest central part of the shape of `size`, times this; 0 is the whole picture
    filter: str = "bilinear"  # what Pillow calls it, for the resize
    eight_bit: bool = False  # bring pictures of more bits to bytes of 0 to 255
    extraction: Extraction | None = None  # what is made of the pixels; nothing to a decoder


class Pixels(NamedTuple):
    """Row by row, `bands` numbers a pixel; bytes, or float32 for pictures of more than 8 bits."""

    width: int
    height: int
    bands: int
    is_float: bool
    sha256: str  # of the file; empty unless asked for
    data: bytes
