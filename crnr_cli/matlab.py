"""MATLAB files: variables by name, in MATLAB's shape. Only numbers and text are ever made of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from crnr_cli.errors import DataError
from crnr_cli.solvers import Array

_NUMBERS = {
    *("double", "single", "logical"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TEXT = {"char", "cell"}
_MOST_DEFLATED = 1032  # zlib packs at most this many bytes into one


@dataclass(frozen=True)
class Unread:
    """A variable that nobody asked for: listed, never loaded."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Turned:
    """A table with its columns as rows: an array, or a dataset that is read by slices."""

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[::-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        turned: Array = self.values[..., rows].T
        return turned

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[:], dtype=dtype)


def read_matlab(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """All variables of a file up to v7; those `wanted` as arrays, the rest only listed."""
    try:
        listed = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
    except Exception as e:  # the parser fails on a broken file with any exception; its words go to the user
        raise DataError(f"{path}: not a readable .mat file ({e})") from e
    most = _MOST_DEFLATED * path.stat().st_size
    for name in wanted & listed.keys():
        shape, kind = listed[name]
        _refuse_odd(path, name, kind)
        if np.prod([float(side) for side in shape]) > most:
            raise DataError(f"{path}: {name} declares more data than the file holds")
    try:
        loaded = loadmat(str(path), variable_names=list(wanted & listed.keys()))
    except Exception as e:
        raise DataError(f"{path}: not a readable .mat file ({e})") from e
    return {
        name: _plain(path, name, loaded[name]) if name in loaded else Unread(shape)
        for name, (shape, _) in listed.items()
    }


def from_hdf5(path: Path, datasets: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """The variables of a v7.3 file, which is HDF5 with every array turned."""
    return {
        name: _from_dataset(path, name, dataset) if name in wanted else Unread(dataset.shape[::-1])
        for name, dataset in datasets.items()
        if not name.startswith("#")  # where MATLAB keeps what cells and objects point to
    }


def _from_dataset(path: Path, name: str, dataset: Any) -> Any:
    kind = _class_of(dataset)
    _refuse_odd(path, name, kind)
    if "MATLAB_empty" in dataset.attrs:
        raise DataError(f"{path}: {name} is empty")
    if kind == "char":
        return _joined(dataset)
    if kind == "cell":
        cells = [dataset.file[reference] for reference in np.ravel(dataset[()])]
        if any(_class_of(cell) != "char" for cell in cells):
            raise DataError(f"{path}: {name} is a cell array of more than text")
        return np.array(["".join(_joined(cell)) if _holds(cell) else "" for cell in cells])
    return Turned(dataset)


def _class_of(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"double") if isinstance(item, h5py.Dataset) else b"struct"
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)


def _holds(cell: Any) -> bool:
    return "MATLAB_empty" not in cell.attrs


def _joined(characters: Any) -> Array:
    """The rows of a MATLAB matrix of characters; in HDF5 they are columns of UTF-16 units."""
    units = np.atleast_2d(characters[()]).T.astype("<u2")
    return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in units])


def _refuse_odd(path: Path, name: str, kind: str) -> None:
    if kind not in _NUMBERS | _TEXT:
        remedy = f"full({name})" if kind == "sparse" else "it as a plain matrix"
        raise DataError(f"{path}: {name} is of the MATLAB class {kind}, not numbers or text; save {remedy}")


def _plain(path: Path, name: str, array: Array) -> Array:
    """Cells of text as text; matrices of characters are an array of their rows already."""
    if array.dtype.kind == "U":
        return np.array([text.rstrip() for text in array.ravel().tolist()])
    if array.dtype != object:
        return array
    texts = [cell for cell in array.ravel() if isinstance(cell, np.ndarray) and cell.dtype.kind == "U"]
    if len(texts) < array.size or any(text.size > 1 for text in texts):
        raise DataError(f"{path}: {name} is a cell array of more than text")
    return np.array(["".join(text.ravel().tolist()) for text in texts])
