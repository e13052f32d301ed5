"""Choose the arrays of a file that are the features and the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Arrays, FormatReader, Keys, Refused
from crnr_cli.sources.formats.axes import MAX_AXES, Cells, format_shape, sample_axis, table_of
from crnr_cli.sources.formats.labels import class_axis, read_labels
from crnr_cli.wording import format_count

# The usual names of labels, in any case.
_LABEL_NAMES = ("labels", "label", "y", "gnd", "target", "targets", "class", "classes")
_MATLAB_NUMBERS = ("double", "single", "logical", "int", "uint")
_SHOWN = 5  # possibilities in a message
_MOST_ONES = 2**24  # values of a matrix that is read to test whether it has one 1 per sample
_FEATURES, _LABELS = "features", "labels"
_ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class FoundArray:
    """One array of a file, and its possible roles."""

    name: str
    shape: tuple[int, ...]
    type: str
    could_be: tuple[str, ...]  # of "features", "labels" and "names"
    n_labels: int | None  # if it could be labels
    why_not: str | None = None  # why it must not be read


def list_arrays(path: Path, reader: FormatReader, arrays: Mapping[str, Any]) -> list[FoundArray]:
    """Return all arrays; a possible matrix of one 1 per sample is read, because only its values decide."""
    matrices = {name for name, array in arrays.items() if _may_be_ones(array, arrays)}
    cells = {name for name, array in arrays.items() if _type(array) == "cell"}
    known = dict(arrays)
    if unread := {name for name in matrices | cells if not hasattr(arrays[name], "dtype")}:
        known |= _read(path, reader, unread)
    found = [_describe_array(name, array, is_matrix=name in matrices) for name, array in known.items()]
    others = dict.fromkeys(getattr(arrays, "ids", ()), ()) | dict.fromkeys(
        _arrays_of_names(arrays), ("names",)
    )
    found = [
        replace(one, could_be=others[one.name]) if one.name in others and "labels" in one.could_be else one
        for one in found
    ]
    # As in the file: cells become rows of a table when they are read.
    return [replace(one, shape=tuple(arrays[one.name].shape)) if one.shape else one for one in found]


def _arrays_of_names(arrays: Mapping[str, Any]) -> tuple[str, ...]:
    names: tuple[str, ...] = getattr(arrays, "names", Arrays.names)
    return tuple(name for name in names if name in arrays)


def guess_pair(
    path: Path, reader: FormatReader, arrays: Mapping[str, Any], labels_key: str | None
) -> tuple[str, str]:
    """Return the only features, and the only labels that fit; without any, the labels are `labels`."""
    found = list_arrays(path, reader, arrays)
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
    raise DataError(f"{path}: no array called 'features'; {_choice(found, features, pairs)}")


def guess_labels(reader: FormatReader, arrays: Mapping[str, Any], features: str) -> str | None:
    """Return the only array with the usual name of labels that fits the samples of the features."""
    values = arrays[features]
    shape = () if isinstance(values, Refused) else values.shape
    sizes = shape if reader.either_axis else shape[:1]
    found = [
        name
        for name, array in arrays.items()
        if name.lower() in _LABEL_NAMES and _describe_array(name, array, is_matrix=False).n_labels in sizes
    ]
    return found[0] if len(found) == 1 else None


def fits(features: FoundArray, labels: FoundArray) -> bool:
    return features.name != labels.name and labels.n_labels in features.shape


def _choice(
    found: Sequence[FoundArray],
    features: Sequence[FoundArray],
    pairs: Sequence[tuple[FoundArray, FoundArray]],
) -> str:
    """Return how to choose among the arrays that could be features, and their labels."""
    if pairs:
        of_features, of_labels = ([one.name for one in ones] for ones in zip(*pairs, strict=True))
        return f"choose with --features-key ({_one_of(of_features)}) and --labels-key ({_one_of(of_labels)})"
    if features:
        return f"choose with --features-key ({_one_of([one.name for one in features])}) and --labels-key"
    names = ", ".join(
        f"'{one.name}' ({format_shape(one.shape) if one.shape else one.why_not})" for one in found
    )
    return f"found {names}, but no table of numbers with one row per example"


def _one_of(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(f"'{name}'" for name in names))
    return " or ".join(unique[:_SHOWN]) + (", ..." if len(unique) > _SHOWN else "")


def _describe_array(name: str, array: Any, *, is_matrix: bool) -> FoundArray:
    if isinstance(array, Refused):
        return FoundArray(name, (), "-", (), None, array.why)
    shape, kind = tuple(map(int, array.shape)), _type(array)
    if isinstance(array, Cells):
        return FoundArray(name, shape, f"cells of {kind}", ("features",), None)
    is_text = _is_text(array)
    long_axes = sum(size > 1 for size in shape)
    if is_text or (_is_number(array) and 1 <= len(shape) <= 2 and long_axes <= 1):
        count = shape[0] if kind == "char" and shape else math.prod(shape)
        return FoundArray(name, shape, kind, ("labels",) if count else (), count or None)
    if not _is_number(array) or not 2 <= len(shape) <= MAX_AXES or 0 in shape:
        return FoundArray(name, shape, kind, (), None)
    axis = _class_axis(array) if is_matrix else None
    if axis is not None:
        return FoundArray(name, shape, kind, ("labels",), shape[1 - axis])
    return FoundArray(name, shape, kind, ("features",), None)


def _class_axis(array: Any) -> int | None:
    values = np.asarray(array)
    return class_axis(values) if values.ndim == 2 else None


def _may_be_ones(array: Any, arrays: Mapping[str, Any]) -> bool:
    """Return whether an array is a small matrix, and not the only one that could be features."""
    if isinstance(array, Refused) or not _is_number(array) or len(array.shape) != 2:
        return False
    others = [one.shape for one in arrays.values() if one is not array and not isinstance(one, Refused)]
    small = min(array.shape) > 1 and math.prod(array.shape) <= _MOST_ONES
    return small and any({*array.shape} & {*shape} for shape in others)


def _read(path: Path, reader: FormatReader, names: set[str]) -> dict[str, Any]:
    """Return the arrays, each read separately because some may not be readable."""
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


@dataclass(frozen=True)
class Chosen:
    arrays: Mapping[str, Any]  # all of the file
    features: str  # the name of the features
    values: Any  # (n, d): an array, or a dataset that is read by slices
    axis: int  # the axis of the samples in the file
    labels_from: str | None  # the name of the labels
    labels: list[str] | None
    names_from: str | None  # the name of the names
    notes: tuple[str, ...]  # the assumptions
    beside: tuple[Path, ...]  # further files that were read


def choose_arrays(path: Path, reader: FormatReader, keys: Keys) -> Chosen:
    """Return the user's choice, else the arrays `features` and `labels`, else the only plausible ones."""
    features = _FEATURES if keys.features is None else keys.features
    labels = _LABELS if keys.labels is None else keys.labels
    wanted = {features, labels, "paths"}
    arrays = reader.read(path, wanted)
    notes = [*getattr(arrays, "notes", ())]
    beside = getattr(arrays, "beside", ())
    if keys.features is None and features not in arrays and arrays:
        features, labels = guess_pair(path, reader, arrays, keys.labels)
        notes.append(_taken_note(path, arrays, features, labels))
    elif keys.labels is None and labels not in arrays and features in arrays:
        found = guess_labels(reader, arrays, features)
        if found is not None:
            labels = found
            notes.append(f"{path}: using the labels '{labels}'; choose others with --labels-key")
    if not {features, labels} <= wanted:
        arrays = reader.read(path, {features, labels, "paths"})
    values = _features(path, reader, arrays, features)
    texts = None
    if keys.labels is not None or labels in arrays:
        stored = arrays[_key(path, arrays, "labels", labels)]
        # Checked before they are read, except in .mat, where text may be a matrix of characters.
        if not reader.either_axis and not {math.prod(stored.shape), *stored.shape} & {*values.shape}:
            raise _mismatch_error(path, features, len(values), labels, math.prod(stored.shape), beside)
        texts = read_labels(path, stored, reader.first_class)
    n_labels = None if texts is None else len(texts)
    axis = sample_axis(path, values, keys.samples, n_labels, either=reader.either_axis)
    table = table_of(values, axis)
    if n_labels not in (None, len(table)):
        raise _mismatch_error(path, features, len(table), labels, n_labels or 0, beside)
    if keys.samples is None and (axis > 0 or len(values.shape) > 2):
        notes += _axis_note(path, features, values, axis, reader)
    found_labels = None if texts is None else labels
    names = [
        name for name in _arrays_of_names(arrays) if name != labels and _has_one_per_row(arrays[name], table)
    ]
    return Chosen(
        arrays, features, table, axis, found_labels, texts, next(iter(names), None), tuple(notes), beside
    )


def _has_one_per_row(array: Any, table: Any) -> bool:
    return bool(array.shape == (len(table),))


def _features(path: Path, reader: FormatReader, arrays: Mapping[str, Any], name: str) -> Any:
    values = arrays[_key(path, arrays, _FEATURES, name)]
    is_alone = reader.word == "file"  # the file has no other array to choose
    if getattr(values, "dtype", None) is not None and values.dtype.hasobject:
        what = f"{path}:" if is_alone else f"{path}: '{name}'"
        raise DataError(
            f"{what} contains Python objects, which crnr never loads; save a numeric array instead"
        )
    if not 2 <= len(values.shape) <= MAX_AXES or values.dtype.kind not in "fiub" or 0 in values.shape[1:]:
        kind = "text" if values.dtype.kind in "SU" else values.dtype
        remedy = "give another file" if is_alone else "choose another array with --features-key"
        raise DataError(
            f"{path}: features must be a table of numbers with one row per example, or a stack of images, "
            f"but '{name}' is {kind} of shape {values.shape}; {remedy}"
        )
    return values


def _mismatch_error(
    path: Path, features: str, rows: int, labels: str, n_labels: int, beside: Sequence[Path]
) -> DataError:
    if beside:  # an .npy file has one array, and its labels are in another file
        return DataError(
            f"{path}: {format_count(rows, 'row')}, but {format_count(n_labels, 'label')} in {beside[0]}; "
            "choose the right file with --labels-key"
        )
    return DataError(
        f"{path}: '{features}' has {format_count(rows, 'row')} but '{labels}' has {n_labels}; choose "
        "matching arrays with --features-key and --labels-key"
    )


def _taken_note(path: Path, arrays: Mapping[str, Any], features: str, labels: str) -> str:
    options = "choose others with --features-key and --labels-key"
    what = f"'{features}' ({format_shape(arrays[features].shape)})"
    if labels not in arrays:
        return f"{path}: using the features {what}, without labels; {options}"
    return f"{path}: using the features {what} and the labels '{labels}'; {options}"


def _axis_note(path: Path, name: str, values: Any, axis: int, reader: FormatReader) -> list[str]:
    """Return a note on the assumed axes; in .mat files, samples are often the columns of a table."""
    if isinstance(values, Cells) or (reader.either_axis and len(values.shape) == 2):
        return []
    where = "last" if axis == len(values.shape) - 1 else _ORDINALS[axis]
    examples = format_count(values.shape[axis], "example")
    numbers = format_count(math.prod(values.shape) // max(1, values.shape[axis]), "feature")
    return [
        f"{path}: '{name}' ({format_shape(values.shape)}) has {examples} along its {where} axis, with "
        f"{numbers} each; choose another axis with --samples-axis"
    ]


def _key(path: Path, arrays: Mapping[str, Any], what: str, key: str) -> str:
    if key in arrays:
        if isinstance(arrays[key], Refused):
            raise DataError(f"{path}: the array '{key}' {arrays[key].why}")
        return key
    found = ", ".join(f"'{name}' {array.shape}" for name, array in arrays.items()) or "none"
    raise DataError(f"{path}: no array called '{key}'; choose with --{what}-key, found: {found}")
