"""Readers of .npy and .npz files."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Collection
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import BEST_RATIO, Arrays, FormatReader
from crnr_cli.system import memory
from crnr_cli.system.outputs import refuse_inputs

_FEATURES, _LABELS = "features", "labels"
_READ_WHOLE = 2**26  # bytes; larger arrays are read by rows, because a small file can contain very large ones


def read_npy(path: Path, wanted: Collection[str]) -> Arrays:
    """Return the array of the file as `features`, and a labels file next to it as `labels`."""
    arrays = Arrays({_FEATURES: _declare_file(path)})
    beside: dict[str, Path] = {}
    if _LABELS in wanted and (found := _labels_of(path)):
        beside[_LABELS] = found
        arrays.notes = (f"{path}: using the labels in {found.name}",)
    for name in sorted({*wanted} - {_FEATURES, _LABELS, "paths"}):
        if "/" not in name and "\0" not in name:
            file = path.with_name(f"{name.removesuffix('.npy')}.npy")
            beside |= {name: file} if _is_file(file) else {}
    refuse_inputs(beside.values())
    arrays |= {name: _declare_file(file) for name, file in beside.items()}
    arrays.beside = tuple(beside.values())
    return arrays


def _labels_of(path: Path) -> Path | None:
    """Return the labels file: X_labels.npy for X_features.npy, X_labels.npy or X-labels.npy for X.npy.

    labels.npy also belongs to a file of any name if both are the only files in their folder.
    """
    stem = path.name[: -len(path.suffix)]
    names = [f"{stem}_{_LABELS}.npy", f"{stem}-{_LABELS}.npy"]
    if stem.endswith(_FEATURES):
        names.append(f"{stem.removesuffix(_FEATURES)}{_LABELS}.npy")
    found = [file for name in names if _is_file(file := path.with_name(name))]
    if len(found) > 1:
        raise DataError(
            f"{path}: its labels may be in {' or '.join(file.name for file in found)}; "
            "choose the right one with --labels-key"
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
    """An array that is mapped into memory, so only the used part is read. Objects are never read."""

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
                f"{self.path}: contains Python objects, which crnr never loads; "
                "save it as numbers or text, as with .astype(str)"
            )
        # Reading mapped memory beyond the end of a truncated file would kill the process.
        if Stamp.of(self.path.stat()) != self.stamp:
            raise DataError(f"{self.path}: was changed while it was being read; run the command again")
        order: Any = "F" if self.by_columns else "C"
        if not math.prod(self.shape) * self.dtype.itemsize:  # it cannot be mapped
            return np.asarray(np.empty(self.shape, self.dtype, order)[where])
        mapped = np.memmap(self.path, self.dtype, "r", self.header_bytes, self.shape, order)
        return np.array(mapped[where])  # a copy, so the file does not stay mapped


def _declare_file(path: Path) -> NpyArray:
    """Return shape and type from the header, after checking that the file contains all values."""
    try:
        with path.open("rb") as file:
            stamp = Stamp.of(path.stat())
            return NpyArray(path, stamp, *npy_header(file, stamp.size, path.name))
    except Exception as e:  # a damaged or malicious file may raise anything
        raise DataError(f"{path}: not a readable npy file ({e}); save it again with numpy.save") from e


NPY_READER = FormatReader(read_npy, word="file")


def read_npz(path: Path, wanted: Collection[str]) -> dict[str, NpzArray]:
    """Return all arrays of a file by name; only their headers are read now."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            return {m.filename.removesuffix(".npy"): _declare_member(path, archive, m) for m in members}
    except Exception as e:  # a damaged or malicious file may raise anything
        raise DataError(f"{path}: not a readable npz file ({e}); save it again with numpy.savez") from e


@dataclass
class NpzArray:
    """An array that is read when its values are needed. Arrays of objects are never read."""

    path: Path
    member: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool  # stored column by column, as MATLAB and Fortran do
    header_bytes: int
    _stream: IO[bytes] | None = field(default=None, init=False)  # of the large array that is being read
    _row: int = field(default=0, init=False)  # position of the stream

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self._values

    def __getitem__(self, where: Any) -> Array:
        """Return rows; they are best read in order, because the file has to be decompressed up to them."""
        is_large = math.prod(self.shape) * self.dtype.itemsize > _READ_WHOLE
        if is_large and not self.by_columns and isinstance(where, slice):
            start, stop, _ = where.indices(len(self))
            return self._stream_rows(start, stop)
        values: Array = self._values[where]
        return values

    @cached_property
    def _values(self) -> Array:
        self._refuse_objects()
        size = math.prod(self.shape) * self.dtype.itemsize
        memory.require_memory(
            # In the other order of axes, the caller that needs rows copies it once more.
            2 * size if self.by_columns else size,
            f"{self.path}: {self._name}",
            "save it in the order of NumPy, as numpy.ascontiguousarray does, or save fewer rows per file",
        )
        try:
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as file:
                values: Array = np.lib.format.read_array(file, allow_pickle=False)
                return values
        except Exception as e:  # the modules for compressed data raise errors of many kinds
            raise self._failure(e) from e

    def _stream_rows(self, start: int, stop: int) -> Array:
        self._refuse_objects()
        bytes_per_row = math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            if self._stream is None or start < self._row:
                self._close()
                with zipfile.ZipFile(self.path) as archive:
                    self._stream = archive.open(self.member)  # keeps the file open
                self._stream.read(self.header_bytes)
            self._skip((start - self._row) * bytes_per_row)
            data = self._stream.read((stop - start) * bytes_per_row)
            self._row = stop
            if stop == len(self):
                data += self._stream.read(1)  # this is the end, and now the checksum is verified
                self._close()
            rows = np.frombuffer(data, self.dtype)
            return rows.reshape(stop - start, *self.shape[1:])
        except Exception as e:  # the modules for compressed data raise errors of many kinds
            self._close()
            raise self._failure(e) from e

    def _skip(self, size: int) -> None:
        assert self._stream is not None
        while size > 0:
            size -= len(self._stream.read(min(size, 2**20))) or size

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._row = None, 0

    @property
    def _name(self) -> str:
        return self.member.filename

    def _refuse_objects(self) -> None:
        if self.dtype.hasobject:
            raise DataError(
                f"{self.path}: {self._name} contains Python objects, which crnr never loads; "
                "save it as numbers or text, as with .astype(str)"
            )

    def _failure(self, error: Exception) -> DataError:
        return DataError(f"{self.path}: cannot read {self._name} ({error}); save the file again")


def _declare_member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NpzArray:
    """Return shape and type from the header, after checking that the file can contain all values."""
    with archive.open(member) as file:
        header = npy_header(cast(BinaryIO, file), member.file_size, member.filename)
    if member.file_size > member.compress_size * BEST_RATIO + 1024:
        raise ValueError(f"{member.filename} declares more data than it can contain")
    return NpzArray(path, member, *header)


def npy_header(file: BinaryIO, size: int, name: str) -> tuple[tuple[int, ...], np.dtype[Any], bool, int]:
    """Return the header of NumPy's format: shape, type, whether columns come first, where values begin."""
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[np.lib.format.read_magic(file)]
    shape, by_columns, dtype = read_header(file)
    header_bytes = file.tell()
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or (not dtype.hasobject and declared != size - header_bytes):
        raise ValueError(f"{name} does not hold what it declares, shape {shape}")
    return tuple(map(int, shape)), dtype, bool(by_columns), header_bytes


NPZ_READER = FormatReader(read_npz)
