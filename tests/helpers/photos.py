"""Photographs for networks, and what a network must be given for them, by Pillow and NumPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from crnr_cli.choices import ExtractorOptions
from crnr_cli.gallery.samples import Reading, read_raw
from crnr_cli.sources.opening import open_source


def photo(seed: int, size: tuple[int, int] = (480, 320)) -> Image.Image:
    """Smooth colours, so that all ways to resize them agree."""
    corners = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize(size, Image.Resampling.BICUBIC)


def make_photos(folder: Path) -> Path:
    """photos/{a,b}/{0,1}.png"""
    for i, name in enumerate("ab"):
        (folder / "photos" / name).mkdir(parents=True)
        for k in range(2):
            photo(10 * i + k).save(folder / "photos" / name / f"{k}.png")
    return folder


def opened_photos(folder: Path) -> list[Image.Image]:
    return [Image.open(path) for path in sorted((folder / "photos").rglob("*.png"))]


def features(folder: Path, model: Path, **said: Any) -> Any:
    reading = Reading(extractor=ExtractorOptions("network", {"model": model, **said}), jobs=1)
    return read_raw(open_source([str(folder / "photos")], reading), reading).values


def by_pillow(
    image: Image.Image, resize: int, crop: int | None, filter: Image.Resampling, mean: Any, std: Any
) -> Any:
    """(height, width, 3), as transformers does it: shorter side, centre, scale; squeezed without a crop."""
    if crop is None:
        resized = image.resize((resize, resize), filter)
    else:
        shorter = min(image.size)
        resized = image.resize(tuple(int(side * resize / shorter) for side in image.size), filter)
        left, top = (resized.width - crop) // 2, (resized.height - crop) // 2
        resized = resized.crop((left, top, left + crop, top + crop))
    return (np.asarray(resized, np.float64) / 255 - mean) / std
