"""Small versions of picture files for pages and plots, decoded in separate processes like all pictures."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.pictures.pixels import MAX_PIXELS, PixelRequest, Pixels
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.system.cores import available_cores

SIDE = 96  # maximum width and height in pixels
_STEP = 8  # sides are multiples of this, so that few decoders have to be started


def thumbnails(paths: Sequence[str], max_pixels: int = MAX_PIXELS, longest: int = SIDE) -> dict[str, Array]:
    """The pictures among these files as small RGB arrays; unreadable files are missing from the result."""
    files = [path for path in dict.fromkeys(paths) if os.path.isfile(path)]  # noqa: PTH113 - it never raises
    decoders = DecoderPool(min(2, available_cores()))
    headers = decoders.decode(files, PixelRequest(None, max_pixels=max_pixels, header_only=True))
    by_size: dict[tuple[int, int], list[str]] = {}
    for path, header in zip(files, headers, strict=True):
        if isinstance(header, Pixels):
            by_size.setdefault(_small(header.width, header.height, longest), []).append(path)
    found: dict[str, Array] = {}
    for size, group in by_size.items():
        decoded = decoders.decode(group, PixelRequest(size, True, max_pixels))
        for path, pixels in zip(group, decoded, strict=True):
            if isinstance(pixels, Pixels):
                found[path] = _array(pixels)
    return found


def data_uri(picture: Array) -> str:
    """PNG for pictures that were small already, so that every pixel is exact; JPEG for reduced ones."""
    kind = "png" if max(picture.shape[:2]) < SIDE // 2 else "jpeg"
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format=kind, quality=82)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def _small(width: int, height: int, longest: int) -> tuple[int, int]:
    if max(width, height) <= longest:
        return width, height
    scale = longest / max(width, height)
    return tuple(max(_STEP, round(side * scale / _STEP) * _STEP) for side in (width, height))  # type: ignore[return-value]


def _array(pixels: Pixels) -> Array:
    shape = (pixels.height, pixels.width, pixels.bands)
    if not pixels.is_float:
        return np.frombuffer(pixels.data, np.uint8).reshape(shape)
    # More than 8 bits: stretched to the full range.
    values = np.frombuffer(pixels.data, np.float32).reshape(shape)
    low, high = float(values.min()), float(values.max())
    return ((values - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)
