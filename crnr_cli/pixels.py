"""What is asked of a decoder and what it gives: plain values, so that neither side loads the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from crnr_cli.extraction import Extraction


@dataclass(frozen=True)
class Form:
    """What pixels to make of a picture: its own size if `size` is None."""

    size: tuple[int, int] | None  # width, height
    color: bool = False
    max_pixels: int = 89_478_485
    with_hash: bool = False
    header_only: bool = False  # width and height as seen, and no pixels
    crop: float = 0.0  # largest central part of the shape of `size`, times this; 0 is the whole picture
    filter: str = "bilinear"  # what Pillow calls it, for the resize
    eight_bit: bool = False  # bring pictures of more bits to bytes of 0 to 255
    extraction: Extraction | None = None  # what is made of the pixels; nothing to a decoder


class Pixels(NamedTuple):  # quicker to make than a dataclass, and there may be millions
    """Row by row, `bands` numbers a pixel; bytes, or float32 for pictures of more than 8 bits."""

    width: int
    height: int
    bands: int
    is_float: bool
    sha256: str  # of the file; empty unless asked for
    data: bytes
