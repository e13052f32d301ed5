"""Which arrays of a file are the features and the labels, and which axis of the features has the samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.sources.axes import MAX_AXES, Cells, sample_axis, shown, table_of
from crnr_cli.sources.base import Keys
from crnr_cli.sources.labels import read_labels
from crnr_cli.sources.plausible import guessed_labels, guessed_pair
from crnr_cli.sources.readers import Reader, Refused
from crnr_cli.wording import counted

_FEATURES, _LABELS = "features", "labels"
_ORDINALS = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class Chosen:
    arrays: Mapping[str, Any]  # all of the file
    features: str  # their name
    values: Any  # (n, d): an array, or a dataset that is read by slices
    axis: int  # that the samples have in the file
    labels_from: str | None  # their name
    labels: list[str] | None
    notes: tuple[str, ...]  # what was assumed
    beside: tuple[Path, ...]  # further files that were read


def chosen(path: Path, reader: Reader, keys: Keys) -> Chosen:
    """As the user says, else the arrays `features` and `labels`, else the only ones that are plausible."""
    features = _FEATURES if keys.features is None else keys.features
    labels = _LABELS if keys.labels is None else keys.labels
    wanted = {features, labels, "paths"}
    arrays = reader.read(path, wanted)
    notes = [*getattr(arrays, "notes", ())]
    beside = getattr(arrays, "beside", ())
    if keys.features is None and features not in arrays and arrays:
        features, labels = guessed_pair(path, reader, arrays, keys.labels)
        notes.append(_taken(path, arrays, features, labels))
    elif keys.labels is None and labels not in arrays and features in arrays:
        found = guessed_labels(reader, arrays, features)
        if found is not None:
            labels = found
            notes.append(f"{path}: the labels are {labels}; --labels-key names others")
    if not {features, labels} <= wanted:
        arrays = reader.read(path, {features, labels, "paths"})
    values = _features(path, arrays, features)
    texts = None
    if keys.labels is not None or labels in arrays:
        stored = arrays[_key(path, arrays, "labels", labels)]
        # Checked before they are read, except in .mat, where text may be a matrix of characters.
        if not reader.either_axis and not {math.prod(stored.shape), *stored.shape} & {*values.shape}:
            raise _mismatch(path, len(values), math.prod(stored.shape))
        texts = read_labels(path, stored, reader.first_class)
    n_labels = None if texts is None else len(texts)
    axis = sample_axis(path, values, keys.samples, n_labels, either=reader.either_axis)
    table = table_of(values, axis)
    if n_labels not in (None, len(table)):
        raise _mismatch(path, len(table), n_labels or 0)
    if keys.samples is None and (axis > 0 or len(values.shape) > 2):
        notes += _axis_note(path, features, values, axis, reader)
    found_labels = None if texts is None else labels
    return Chosen(arrays, features, table, axis, found_labels, texts, tuple(notes), beside)


def _features(path: Path, arrays: Mapping[str, Any], name: str) -> Any:
    values = arrays[_key(path, arrays, _FEATURES, name)]
    if not 2 <= len(values.shape) <= MAX_AXES or values.dtype.kind not in "fiub" or 0 in values.shape[1:]:
        raise DataError(
            f"{path}: features must be a table of numbers with one row per sample, or a stack of "
            f"pictures, but are {values.dtype} of shape {values.shape}; "
            "name another dataset with --features-key"
        )
    return values


def _mismatch(path: Path, rows: int, labels: int) -> DataError:
    return DataError(f"{path}: {counted(rows, 'row')} of features but {counted(labels, 'label')}")


def _taken(path: Path, arrays: Mapping[str, Any], features: str, labels: str) -> str:
    options = "--features-key and --labels-key name others"
    what = f"{features} ({shown(arrays[features].shape)})"
    if labels not in arrays:
        return f"{path}: the features are {what}, without labels; {options}"
    return f"{path}: the features are {what}, the labels are {labels}; {options}"


def _axis_note(path: Path, name: str, values: Any, axis: int, reader: Reader) -> list[str]:
    """What was assumed about the axes; in .mat files, samples are often the columns of a table."""
    if isinstance(values, Cells) or (reader.either_axis and len(values.shape) == 2):
        return []
    where = "last" if axis == len(values.shape) - 1 else _ORDINALS[axis]
    samples = counted(values.shape[axis], "sample")
    numbers = counted(math.prod(values.shape) // max(1, values.shape[axis]), "number")
    return [
        f"{path}: {name} ({shown(values.shape)}) has {samples} along its {where} axis, of {numbers} each; "
        "--samples chooses another axis"
    ]


def _key(path: Path, arrays: Mapping[str, Any], what: str, key: str) -> str:
    if key in arrays:
        if isinstance(arrays[key], Refused):
            raise DataError(f"{path}: dataset {key} {arrays[key].why}")
        return key
    found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    raise DataError(f"{path}: no dataset {key}; found {found}; name one with --{what}-key")
