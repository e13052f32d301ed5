"""What is asked of a decoder and what it gives: plain values, so that neither side loads the other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """What pixels to make of a picture: its own size if `size` is None."""

    size: tuple[int, int] | None  # width, height
    color: bool = False
    max_pixels: int = 89_478_485
    with_hash: bool = False
    header_only: bool = False  # width and height as seen, and no pixels


@dataclass(frozen=True)
class Pixels:
    """Row by row, `bands` numbers a pixel; bytes, or float32 for pictures of more than 8 bits."""

    width: int
    height: int
    bands: int
    is_float: bool
    sha256: str  # of the file; empty unless asked for
    data: bytes
