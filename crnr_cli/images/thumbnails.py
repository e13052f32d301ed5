"""Small versions of image files for pages and plots, decoded in separate processes like all images."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.images.regions import image_of
from crnr_cli.system.cores import available_cores

SIDE = 96  # maximum width and height in pixels


def read_thumbnails(
    paths: Sequence[str], max_pixels: int = MAX_PIXELS, longest: int = SIDE
) -> dict[str, Array]:
    """Return the images among these files as small RGB arrays; unreadable files are left out."""
    files = [path for path in dict.fromkeys(paths) if os.path.isfile(image_of(path))]  # noqa: PTH113
    decoders = DecoderPool(min(2, available_cores()))
    decoded = decoders.decode(files, PixelRequest(None, True, max_pixels, within=longest))
    return {
        path: _array(pixels)
        for path, pixels in zip(files, decoded, strict=True)
        if isinstance(pixels, Pixels)
    }


def shrink(image: Array, longest: int) -> Array:
    """Return the image with at most `longest` pixels a side."""
    if max(image.shape[:2]) <= longest:
        return image
    small = Image.fromarray(image)
    small.thumbnail((longest, longest))
    return np.asarray(small)


def data_uri(image: Array) -> str:
    """Return a data URI: PNG for images that were small already, so every pixel is exact; JPEG for others."""
    kind = "png" if max(image.shape[:2]) < SIDE // 2 else "jpeg"
    out = io.BytesIO()
    Image.fromarray(image).save(out, format=kind, quality=82)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def _array(pixels: Pixels) -> Array:
    shape = (pixels.height, pixels.width, pixels.bands)
    if not pixels.is_float:
        return np.frombuffer(pixels.data, np.uint8).reshape(shape)
    # More than 8 bits: stretched to the full range.
    values = np.frombuffer(pixels.data, np.float32).reshape(shape)
    low, high = float(values.min()), float(values.max())
    return ((values - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)
