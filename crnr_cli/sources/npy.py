"""Reader of npy files: the features are in one file, and their labels in another one beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.sources.npz import npy_header
from crnr_cli.sources.readers import Arrays, Reader
from crnr_cli.system.outputs import refuse_inputs

_FEATURES, _LABELS = "features", "labels"


def read_npy(path: Path, wanted: Collection[str]) -> Arrays:
    """The array of the file as `features`; that of the file beside it as `labels`, or by its wanted name."""
    arrays = Arrays({_FEATURES: _declared(path)})
    beside: dict[str, Path] = {}
    if _LABELS in wanted and (found := _labels_of(path)):
        beside[_LABELS] = found
        arrays.notes = (f"{path}: its labels are those of {found.name}",)
    for name in sorted({*wanted} - {_FEATURES, _LABELS, "paths"}):
        if "/" not in name and "\0" not in name:
            file = path.with_name(f"{name.removesuffix('.npy')}.npy")
            beside |= {name: file} if _is_file(file) else {}
    refuse_inputs(beside.values())
    arrays |= {name: _declared(file) for name, file in beside.items()}
    arrays.beside = tuple(beside.values())
    return arrays


def _labels_of(path: Path) -> Path | None:
    """X_features.npy has its labels in X_labels.npy, X.npy in X_labels.npy or X-labels.npy.

    A file labels.npy is also that of a file of any name if both are the only ones in their folder.
    """
    stem = path.name[: -len(path.suffix)]
    names = [f"{stem}_{_LABELS}.npy", f"{stem}-{_LABELS}.npy"]
    if stem.endswith(_FEATURES):
        names.append(f"{stem.removesuffix(_FEATURES)}{_LABELS}.npy")
    found = [file for name in names if _is_file(file := path.with_name(name))]
    if len(found) > 1:
        raise DataError(
            f"{path}: its labels may be in {' or '.join(file.name for file in found)}; "
            "name the right one with --labels-key"
        )
    if found:
        return found[0]
    labels = path.with_name(f"{_LABELS}.npy")
    if stem == _LABELS or not _is_file(labels):
        return None
    try:
        others = {file.name for file in path.parent.iterdir() if file.suffix.lower() == ".npy"}
    except OSError:  # a folder that may not be listed
        return None
    return labels if others == {path.name, labels.name} else None


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113, which raises if access is denied


@dataclass(frozen=True)
class NpyArray:
    """An array that is mapped into memory, so that only what is used is read. Objects are never read."""

    path: Path
    stamp: Stamp  # of the file that was checked
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool  # stored column by column, as MATLAB and Fortran do
    header_bytes: int

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[()], dtype=dtype)

    def __getitem__(self, where: Any) -> Array:
        if self.dtype.hasobject:
            raise DataError(
                f"{self.path}: contains Python objects, which are never loaded; "
                "save it as numbers or text, as with .astype(str)"
            )
        # Whoever reads mapped memory that its file no longer has is killed.
        if Stamp.of(self.path.stat()) != self.stamp:
            raise DataError(f"{self.path}: was changed while it was being read; run the command again")
        order: Any = "F" if self.by_columns else "C"
        if not math.prod(self.shape) * self.dtype.itemsize:  # which cannot be mapped
            return np.asarray(np.empty(self.shape, self.dtype, order)[where])
        mapped = np.memmap(self.path, self.dtype, "r", self.header_bytes, self.shape, order)
        return np.array(mapped[where])  # a copy, so that the file does not stay mapped


def _declared(path: Path) -> NpyArray:
    """Shape and type from the header, after checking that the file contains that much."""
    try:
        with path.open("rb") as file:
            stamp = Stamp.of(path.stat())
            return NpyArray(path, stamp, *npy_header(file, stamp.size, path.name))
    except Exception as e:  # a damaged or malicious file may raise anything
        raise DataError(f"{path}: not a readable npy file ({e})") from e


READER = Reader(read_npy, word="file")
