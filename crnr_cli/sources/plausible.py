"""Which arrays of a file could be features and labels, by their names, shapes and types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.errors import DataError
from crnr_cli.sources.axes import MAX_AXES, Cells, shown
from crnr_cli.sources.labels import class_axis
from crnr_cli.sources.readers import Reader, Refused

# What labels are usually called, in any case.
_LABEL_NAMES = ("labels", "label", "y", "gnd", "target", "targets", "class", "classes")
_MATLAB_NUMBERS = ("double", "single", "logical", "int", "uint")
_SHOWN = 5  # possibilities in a message
_MOST_ONES = 2**24  # numbers of a matrix that is read to find out whether it has one 1 per sample


@dataclass(frozen=True)
class Found:
    """One array of a file, and what it could be."""

    name: str
    shape: tuple[int, ...]
    type: str
    could_be: tuple[str, ...]  # of "features" and "labels"
    n_labels: int | None  # if it could be labels
    why_not: str | None = None  # why it must not be read


def listed(path: Path, reader: Reader, arrays: Mapping[str, Any]) -> list[Found]:
    """All arrays; a matrix that has one 1 per sample is looked into, as only its values tell."""
    matrices = {name for name, array in arrays.items() if _may_be_ones(array, arrays)}
    cells = {name for name, array in arrays.items() if _type(array) == "cell"}
    known = dict(arrays)
    if unread := {name for name in matrices | cells if not hasattr(arrays[name], "dtype")}:
        known |= _read(path, reader, unread)
    found = [_found(name, array, is_matrix=name in matrices) for name, array in known.items()]
    # As in the file: cells become the rows of a table when they are read.
    return [replace(one, shape=tuple(arrays[one.name].shape)) if one.shape else one for one in found]


def guessed_pair(
    path: Path, reader: Reader, arrays: Mapping[str, Any], labels_key: str | None
) -> tuple[str, str]:
    """The only features, and the only labels that fit them; without any, the labels are called `labels`."""
    found = listed(path, reader, arrays)
    features = [one for one in found if "features" in one.could_be]
    labels = [one for one in found if "labels" in one.could_be]
    if labels_key is not None:
        labels = [one for one in labels if one.name == labels_key]
    pairs = [(f, l) for f in features for l in labels if fits(f, l)]
    named = [(f, l) for f, l in pairs if l.name.lower() in _LABEL_NAMES]
    pairs = named if len(named) == 1 else pairs
    if len(pairs) == 1:
        return pairs[0][0].name, pairs[0][1].name
    if not pairs and len(features) == 1:
        return features[0].name, labels_key or "labels"
    raise DataError(f"{path}: no dataset features; {_choice(found, features, pairs)}")


def guessed_labels(reader: Reader, arrays: Mapping[str, Any], features: str) -> str | None:
    """The only array that is called like labels and fits the samples of the features."""
    values = arrays[features]
    shape = () if isinstance(values, Refused) else values.shape
    sizes = shape if reader.either_axis else shape[:1]
    found = [
        name
        for name, array in arrays.items()
        if name.lower() in _LABEL_NAMES and _found(name, array, is_matrix=False).n_labels in sizes
    ]
    return found[0] if len(found) == 1 else None


def fits(features: Found, labels: Found) -> bool:
    return features.name != labels.name and labels.n_labels in features.shape


def _choice(found: Sequence[Found], features: Sequence[Found], pairs: Sequence[tuple[Found, Found]]) -> str:
    could_be = [f"{f.name} with the labels {l.name}" for f, l in pairs]
    could_be = could_be or [f"{f.name} ({shown(f.shape)})" for f in features]
    if could_be:
        return f"it could be {', or '.join(could_be[:_SHOWN])}; choose with --features-key and --labels-key"
    names = ", ".join(f"{one.name} {one.shape or 'refused'}" for one in found)
    return f"found {names}, none of which is a table of numbers"


def _found(name: str, array: Any, *, is_matrix: bool) -> Found:
    if isinstance(array, Refused):
        return Found(name, (), "-", (), None, array.why)
    shape, kind = tuple(map(int, array.shape)), _type(array)
    if isinstance(array, Cells):
        return Found(name, shape, f"cells of {kind}", ("features",), None)
    is_text = _is_text(array)
    long_axes = sum(size > 1 for size in shape)
    if is_text or (_is_number(array) and 1 <= len(shape) <= 2 and long_axes <= 1):
        count = shape[0] if kind == "char" and shape else math.prod(shape)
        return Found(name, shape, kind, ("labels",) if count else (), count or None)
    if not _is_number(array) or not 2 <= len(shape) <= MAX_AXES or 0 in shape:
        return Found(name, shape, kind, (), None)
    axis = _class_axis(array) if is_matrix else None
    if axis is not None:
        return Found(name, shape, kind, ("labels",), shape[1 - axis])
    return Found(name, shape, kind, ("features",), None)


def _class_axis(array: Any) -> int | None:
    values = np.asarray(array)
    return class_axis(values) if values.ndim == 2 else None


def _may_be_ones(array: Any, arrays: Mapping[str, Any]) -> bool:
    """Whether an array is a small matrix, and not the only one that could be features."""
    if isinstance(array, Refused) or not _is_number(array) or len(array.shape) != 2:
        return False
    others = [one.shape for one in arrays.values() if one is not array and not isinstance(one, Refused)]
    small = min(array.shape) > 1 and math.prod(array.shape) <= _MOST_ONES
    return small and any({*array.shape} & {*shape} for shape in others)


def _read(path: Path, reader: Reader, names: set[str]) -> dict[str, Any]:
    """One by one, as some of them may not be readable."""
    found: dict[str, Any] = {}
    for name in sorted(names):
        try:
            found[name] = reader.read(path, {name})[name]
        except DataError:
            found[name] = Refused("cannot be read")
    return found


def _type(array: Any) -> str:
    dtype = getattr(array, "dtype", None)
    return str(getattr(array, "kind", "-")) if dtype is None else "text" if _is_text(array) else str(dtype)


def _is_text(array: Any) -> bool:
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return getattr(array, "kind", "") in ("char", "cell")
    return bool(dtype.kind in "SUO")


def _is_number(array: Any) -> bool:
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return str(getattr(array, "kind", "")).startswith(_MATLAB_NUMBERS)
    return bool(dtype.kind in "fiub")
