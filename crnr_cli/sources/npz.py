"""Reader of npz files, which are not trusted: the headers of arrays are checked before any is read."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.readers import BEST_RATIO, Reader


def read_npz(path: Path, wanted: Collection[str]) -> dict[str, NpzArray]:
    """All arrays of a file by name; only their headers are read now."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            return {
                m.filename.removesuffix(".npy"): NpzArray(path, m, *_declared(archive, m)) for m in members
            }
    except Exception as e:  # a damaged or malicious file may raise anything
        raise DataError(f"{path}: not a readable npz file ({e})") from e


class NpzArray:
    """An array that is read when its values are needed. Arrays of objects are never read."""

    def __init__(
        self, path: Path, member: zipfile.ZipInfo, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> None:
        self._path, self._member = path, member
        self.shape, self.dtype = shape, dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        return self._values

    def __getitem__(self, where: slice) -> Array:
        return self._values[where]

    @cached_property
    def _values(self) -> Array:
        if self.dtype.hasobject:
            raise DataError(
                f"{self._path}: {self._member.filename} contains Python objects, which are never loaded; "
                "save it as numbers or text, as with .astype(str)"
            )
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(self._member) as file:
                values: Array = np.lib.format.read_array(file, allow_pickle=False)
                return values
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as e:
            raise DataError(f"{self._path}: cannot read {self._member.filename} ({e})") from e


def _declared(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type from the header, after checking that the file can contain that much."""
    with archive.open(member) as file:
        source = cast(BinaryIO, file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(source)]
        shape, _, dtype = read_header(source)
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or (not dtype.hasobject and size != member.file_size - source.tell()):
            raise ValueError(f"{member.filename} does not hold what it declares, shape {shape}")
    if member.file_size > member.compress_size * BEST_RATIO + 1024:
        raise ValueError(f"{member.filename} declares more data than it can contain")
    return shape, dtype


READER = Reader(read_npz)
