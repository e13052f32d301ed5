"""Small images and features, made on the spot and always the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()  # lets Pillow save HEIC too

CLASSES = ("ant", "bee", "cow")

# How an upright image is stored for each orientation of the EXIF and TIFF standards.
TURNS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def draw_image(class_number: int, sample: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    """Noise on the pattern of a class: classes are easy to tell apart."""
    width, height = size
    random = np.random.default_rng([class_number, sample])
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    pattern = [x, y, x * y, (1 - x) * y][class_number % 4]
    return Image.fromarray((200 * pattern + 20 + 30 * random.random((height, width))).astype(np.uint8))


def noise(seed: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    """Return a grey image of noise, the same for the same seed."""
    values = np.random.default_rng(seed).integers(1, 256, (size[1], size[0]), dtype=np.uint8)
    return Image.fromarray(values)


def save_turned(upright: Image.Image, path: Path, orientation: int, **options: Any) -> None:
    """Save an image turned, with the orientation tag of a camera that was held another way."""
    turn = TURNS[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    (upright if turn is None else upright.transpose(turn)).save(path, exif=exif.tobytes(), **options)


def make_images(
    folder: Path,
    classes: Sequence[str] = CLASSES,
    per_class: int = 4,
    first: int = 0,
    size: tuple[int, int] = (8, 8),
) -> None:
    """folder/class/0.png and so on; `first` tells sets of samples apart."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for sample in range(first, first + per_class):
            draw_image(number, sample, size).save(folder / name / f"{sample}.png")


def make_features(
    path: Path, per_class: int = 5, dimension: int = 6, seed: int = 0, classes: Sequence[str] = CLASSES
) -> None:
    """An npz of features with labels: one direction per class, with noise."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.array(classes), per_class)
    centres = np.eye(max(dimension, len(classes)))[: len(classes), :dimension]
    features = np.repeat(centres, per_class, axis=0) + 0.3 * random.random((len(labels), dimension))
    np.savez(path, features=features.astype(np.float32), labels=labels)
