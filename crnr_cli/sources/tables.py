"""One file of features, HDF5, npz or mat: samples as rows, with labels and names where it has them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.sources.base import Keys
from crnr_cli.sources.hdf5 import Refused, open_datasets
from crnr_cli.sources.matlab import from_hdf5, read_matlab, turned
from crnr_cli.sources.npz import open_arrays

SUFFIXES = {".h5", ".hdf5", ".npz", ".mat"}


@dataclass(frozen=True)
class FeatureFile:
    path: Path
    stamp: Stamp
    values: Any  # (n, d): an array, or an open HDF5 dataset that is read by slices
    labels: list[str] | None
    names: list[str]

    @classmethod
    def open(cls, path: Path, keys: Keys) -> FeatureFile:
        try:
            stamp = Stamp.of(path.stat())  # before it is read: if it changes meanwhile, the stamp is old
        except OSError as e:
            raise DataError(f"{path}: cannot read it ({e.strerror})") from e
        arrays = _read(path, keys)
        values = arrays[_key(path, arrays, "features", keys.features)]
        if len(values.shape) != 2 or values.dtype.kind not in "fiub" or not values.shape[1]:
            raise DataError(
                f"{path}: features must be a table of numbers, one row a sample; "
                f"found {values.dtype} of shape {values.shape}"
            )
        labels = None
        if keys.labels is not None or "labels" in arrays:
            stored = arrays[_key(path, arrays, "labels", keys.labels)]
            count = math.prod(stored.shape)
            # Before they are read. In .mat, text may be a table of characters, which counts otherwise.
            if path.suffix.lower() != ".mat" and count not in values.shape:
                raise DataError(f"{path}: {len(values)} rows of features but {count} labels")
            labels = _texts(path, stored)
        if _sample_axis(path, values.shape, labels, keys.samples) == "columns":
            values = turned(values)
        if labels is not None and len(labels) != len(values):
            raise DataError(f"{path}: {len(values)} rows of features but {len(labels)} labels")
        names = [f"{path}#{row}" for row in range(len(values))]
        if "paths" in arrays and arrays["paths"].shape == (len(values),):
            names = _texts(path, arrays["paths"])
        return cls(path, stamp, values, labels, names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_features(self) -> int:
        return int(self.values.shape[1])

    def rows(self, start: int, stop: int) -> Array:
        """Rows as numbers of the machine's own byte order."""
        try:
            values = np.asarray(self.values[start:stop])
            now = Stamp.of(self.path.stat())
        except OSError as e:
            raise DataError(f"{self.path}: cannot read rows {start} to {stop} ({e})") from e
        if now != self.stamp:  # HDF5 gives zeros for what is cut off
            raise DataError(f"{self.path}: has changed since this run began to read it; run it again")
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def _read(path: Path, keys: Keys) -> dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return dict(open_arrays(path))
    if suffix != ".mat":
        return open_datasets(path)
    wanted = {keys.features or "features", keys.labels or "labels", "paths"}
    if h5py.is_hdf5(path):  # MATLAB's v7.3
        return from_hdf5(path, open_datasets(path, references=True), wanted)
    return read_matlab(path, wanted)


def _sample_axis(path: Path, shape: tuple[int, ...], labels: list[str] | None, given: str | None) -> str:
    """Whether the samples are "rows" or "columns". MATLAB has both habits; the number of labels tells."""
    if given is not None:
        return given
    if path.suffix.lower() != ".mat":
        return "rows"
    table = f"{path}: features of {shape[0]} rows and {shape[1]} columns"
    if labels is None:
        raise DataError(f"{table} and no labels; say which are the samples with --samples rows|columns")
    fitting = [axis for axis, count in zip(("rows", "columns"), shape, strict=True) if count == len(labels)]
    if len(fitting) == 2:
        raise DataError(
            f"{table} with {len(labels)} labels; say which are the samples with --samples rows|columns"
        )
    if not fitting:
        raise DataError(
            f"{table} but {len(labels)} labels; name the labels that belong to them with --labels-key"
        )
    return fitting[0]


def _key(path: Path, arrays: dict[str, Any], what: str, given: str | None) -> str:
    key = given if given is not None else what
    if key in arrays:
        if isinstance(arrays[key], Refused):
            raise DataError(f"{path}: dataset {key} {arrays[key].why}")
        return key
    found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    raise DataError(f"{path}: no dataset {key}; found {found}; name one with --{what}-key")


def _texts(path: Path, array: Any) -> list[str]:
    """Labels or names of any type."""
    try:
        values = np.asarray(array).ravel()
    except (OSError, ValueError) as e:
        raise DataError(f"{path}: cannot read its labels or names ({e})") from e
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise DataError(f"{path}: the label of row {int(np.isnan(values).argmax())} is not a number (NaN)")
    items = values.tolist()
    if values.dtype.kind not in "fiubU" and not all(isinstance(value, bytes | str) for value in items):
        raise DataError(f"{path}: labels must be numbers or text, not {values.dtype}")
    texts = [label_text(value) for value in items]
    for text in set(texts):
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as e:
            raise DataError(f"{path}: row {texts.index(text)} has a label or name that is no text") from e
    return texts


def label_text(label: float | str | bytes) -> str:
    """As text, whatever its type: 7, 7.0, b'7' and '7' are one label."""
    if isinstance(label, bytes):
        return label.decode("utf-8", "surrogateescape")
    whole = isinstance(label, float) and label.is_integer() and abs(label) < 2**53
    return str(int(label) if whole else label)
