"""Picture files become small pictures inside a page, decoded by the processes that decode all pictures."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence

import numpy as np
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.pictures.pixels import MAX_PIXELS, Form, Pixels
from crnr_cli.pictures.pool import decode
from crnr_cli.system.cores import available_cores

SIDE = 96  # at most, in pixels
STEP = 8  # sides are multiples of this, so that few decoders are started


def thumbnails(paths: Sequence[str], max_pixels: int = MAX_PIXELS) -> dict[str, Array]:
    """The pictures among these files as small RGB arrays; what is no readable picture has none."""
    files = [path for path in dict.fromkeys(paths) if os.path.isfile(path)]  # noqa: PTH113 - it never raises
    jobs = min(2, available_cores())
    headers = decode(files, Form(None, max_pixels=max_pixels, header_only=True), jobs)
    by_size: dict[tuple[int, int], list[str]] = {}
    for path, header in zip(files, headers, strict=True):
        if isinstance(header, Pixels):
            by_size.setdefault(_small(header.width, header.height), []).append(path)
    found: dict[str, Array] = {}
    for size, group in by_size.items():
        for path, answer in zip(group, decode(group, Form(size, True, max_pixels), jobs), strict=True):
            if isinstance(answer, Pixels):
                found[path] = _array(answer)
    return found


def data_uri(picture: Array) -> str:
    """PNG for small pictures, where every pixel shows; JPEG for those made small, where size counts."""
    kind = "png" if max(picture.shape[:2]) < SIDE // 2 else "jpeg"
    out = io.BytesIO()
    Image.fromarray(picture).save(out, format=kind, quality=82)
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def _small(width: int, height: int) -> tuple[int, int]:
    if max(width, height) <= SIDE:
        return width, height
    scale = SIDE / max(width, height)
    return tuple(max(STEP, round(side * scale / STEP) * STEP) for side in (width, height))  # type: ignore[return-value]


def _array(pixels: Pixels) -> Array:
    shape = (pixels.height, pixels.width, pixels.bands)
    if not pixels.is_float:
        return np.frombuffer(pixels.data, np.uint8).reshape(shape)
    values = np.frombuffer(pixels.data, np.float32).reshape(shape)  # more than 8 bits: stretched to be seen
    low, high = float(values.min()), float(values.max())
    return ((values - low) * (255 / max(high - low, 1e-30))).astype(np.uint8)
