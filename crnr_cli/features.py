"""One file of features, HDF5 or npz: its rows are samples, with labels and names where it has them."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli.errors import DataError
from crnr_cli.files import Stamp
from crnr_cli.solvers import Array

SUFFIXES = {".h5", ".hdf5", ".npz"}


@dataclass(frozen=True)
class Keys:
    """Which dataset of a file is what."""

    features: str | None = None
    labels: str | None = None


@dataclass(frozen=True)
class FeatureFile:
    path: Path
    stamp: Stamp
    values: Any  # (n, d): an array, or an open HDF5 dataset that is read by slices
    labels: list[str] | None
    names: list[str]

    @classmethod
    def open(cls, path: Path, keys: Keys) -> FeatureFile:
        stamp = Stamp.of(path.stat())  # before it is read: if it changes meanwhile, the stamp is old
        arrays = _read_hdf5(path) if path.suffix.lower() in (".h5", ".hdf5") else _read_npz(path)
        values = arrays[_key(path, arrays, "features", keys.features)]
        if len(values.shape) != 2 or values.dtype.kind not in "fiub":
            raise DataError(
                f"{path}: features must be a table of numbers, one row a sample; "
                f"found {values.dtype} of shape {values.shape}"
            )
        labels = None
        if keys.labels is not None or "labels" in arrays:
            labels = _texts(path, arrays[_key(path, arrays, "labels", keys.labels)])
            if len(labels) != len(values):
                raise DataError(f"{path}: {len(values)} rows of features but {len(labels)} labels")
        names = [f"{path}#{row}" for row in range(len(values))]
        if "paths" in arrays and len(arrays["paths"]) == len(values):
            names = _texts(path, arrays["paths"])
        return cls(path, stamp, values, labels, names)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_features(self) -> int:
        return int(self.values.shape[1])

    def rows(self, start: int, stop: int) -> Array:
        """Rows as numbers of the machine's own byte order."""
        values = np.asarray(self.values[start:stop])
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def _key(path: Path, arrays: dict[str, Any], what: str, given: str | None) -> str:
    key = given if given is not None else what
    if key in arrays:
        return key
    found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
    raise DataError(f"{path}: no dataset {key}; found {found}; name one with --{what}-key")


def _read_hdf5(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}

    def keep(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.is_virtual or item.external:
                raise DataError(
                    f"{path}: dataset {name} points into other files; copy the data into one file"
                )
            arrays[name] = item

    try:
        file = h5py.File(path, "r", locking=False)
    except OSError as e:
        raise DataError(f"{path}: not a readable HDF5 file ({e})") from e
    if file.attrs.get("format") == b"crnr-gallery":
        raise DataError(f"{path}: is a gallery, not features; name it with --gallery")
    file.visititems(keep)
    return arrays


def _read_npz(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            for name in archive.files:
                try:
                    arrays[name] = archive[name]
                except ValueError:  # pickled objects: listed, never loaded
                    arrays[name] = np.empty(0, dtype=object)
        return arrays
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        raise DataError(f"{path}: not a readable npz file ({e})") from e


def _texts(path: Path, array: Any) -> list[str]:
    """Labels or names of any type as text: 7, 7.0, b'7' and '7' are one label."""
    values = np.asarray(array).ravel()
    if values.dtype.kind == "f" and np.all(values == np.floor(values)):
        values = values.astype(np.int64)
    if values.dtype.kind in "iubU":
        return [str(value) for value in values.tolist()]
    if values.dtype.kind == "f":
        return [repr(value) for value in values.tolist()]
    if values.dtype.kind in "SO" and all(isinstance(value, bytes | str) for value in values.tolist()):
        return [
            value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
            for value in values.tolist()
        ]
    raise DataError(f"{path}: labels must be numbers or text, not {values.dtype}")
