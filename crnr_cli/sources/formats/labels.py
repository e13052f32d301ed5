"""Labels of any type in a feature file, as text."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.system import memory

_BYTES_PER_TEXT = 200  # in a list that is being converted
_FEW = 10_000  # a list of this length takes hardly any memory


def read_labels(path: Path, array: Any, first_class: int) -> list[str]:
    """Return one label per sample. In a matrix of zeros and ones, the one marks the class of a sample."""
    values = read_at_once(path, array)
    if values.ndim == 2 and min(values.shape) > 1:
        values = _classes(path, values) + first_class
    return read_texts(path, values)


def read_texts(path: Path, array: Any) -> list[str]:
    """Return labels or names of any type, as text."""
    values = read_at_once(path, array).ravel()
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(f"{path}: the label of row {int(np.isnan(values).argmax())} is not a number (NaN)")
    if values.dtype.kind == "U":
        _refuse_other_than_unicode(path, values)
    items = values.tolist()
    if values.dtype.kind not in "fiubU" and not all(isinstance(value, bytes | str) for value in items):
        raise DataError(f"{path}: labels must be numbers or text, not {values.dtype}")
    if values.dtype.kind in "iub":  # there may be millions
        return list(map(str, items))
    found = [label_text(value) for value in items]
    if values.dtype.kind != "S":  # bytes can always be written again
        _refuse_unwritable(path, found)
    return found


def _refuse_unwritable(path: Path, found: list[str]) -> None:
    for row, text in enumerate(found):
        if not text.isascii():
            try:
                text.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError as e:
                raise DataError(f"{path}: row {row} has a label or name that is not text") from e


def label_text(label: float | str | bytes) -> str:
    """Return a label as text, whatever its type: 7, 7.0, b'7' and '7' are the same label."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "surrogateescape")
    is_integer = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return str(int(label) if is_integer else label)


def require_room(path: Path, count: int, bytes_each: int, what: str) -> None:
    """Raise an error if a list does not fit into memory: a small file can contain very many rows."""
    if count > _FEW:
        memory.require_memory(
            count * bytes_each, f"{path}: a list of {count} {what}", "divide the file into several"
        )


def read_at_once(path: Path, array: Any) -> Array:
    """Return all values of a small dataset."""
    count = math.prod(array.shape)
    require_room(path, count, array.dtype.itemsize + _BYTES_PER_TEXT, "labels or names")
    try:
        return np.asarray(array)
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: cannot read the labels or names ({e})") from e


def _refuse_other_than_unicode(path: Path, values: Array) -> None:
    """Raise DataError for invalid characters: NumPy fails on numbers beyond Unicode in its text."""
    length = values.dtype.itemsize // 4
    numbers = values.astype(values.dtype.newbyteorder("=")).view(np.uint32) if length else np.empty(0)
    too_large = np.flatnonzero(numbers > sys.maxunicode)
    if len(too_large):
        raise DataError(f"{path}: row {too_large[0] // length} has a label or name that is not text")


def _classes(path: Path, values: Array) -> Array:
    """Return each sample's class, from 0, by a matrix of classes x samples or samples x classes."""
    wrong = f"{path}: labels of shape {values.shape} are not one label per example"
    remedy = "save one number or text per example, or choose another array with --labels-key"
    if values.dtype.kind not in "fiub" or not np.isin(values, (0, 1)).all():
        raise DataError(f"{wrong}, nor a single 1 per example; {remedy}")
    fitting = _class_axes(values)
    if len(fitting) != 1:
        why = "a single 1 in every row and column" if fitting else "no or several ones for some examples"
        raise DataError(f"{wrong}, and have {why}; {remedy}")
    classes: Array = values.argmax(axis=fitting[0])
    return classes


def class_axis(values: Array) -> int | None:
    """Return the axis of the classes in a matrix with a single 1 per sample; None for other matrices."""
    if not np.isin(values, (0, 1)).all():
        return None
    fitting = _class_axes(values)
    return fitting[0] if len(fitting) == 1 else None


def _class_axes(values: Array) -> list[int]:
    return [axis for axis in (0, 1) if (values.sum(axis=axis) == 1).all()]
