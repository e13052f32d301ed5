"""Reader of HDF5 files, which are not trusted: datasets are checked before any is read."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.readers import BEST_RATIO, Reader, Refused
from crnr_cli.system.child import python_command
from crnr_cli.wording import counted

_MAX_DEPTH = 8
_MAX_ITEMS = 10_000
_MAX_CHUNK = 2**29  # bytes in a compressed chunk after decompression, which is always of the full chunk
# Deflate, shuffle, Fletcher's checksum and LZF. For any other filter, HDF5 would load a plugin library.
_FILTERS = {1, 2, 3, 32000}
SECONDS_TO_START = 4.0
_TEXTS_PER_SECOND = 100_000  # the minimum, for the timeout


def read_hdf5(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    return open_datasets(path)


def open_datasets(path: Path, *, references: bool = False) -> dict[str, Any]:
    """All datasets of a file by name, not yet read. A dataset that is not plain data is a `Refused`.

    With `references`, datasets that refer to others in the file are accepted: MATLAB stores cells that way.
    """
    try:
        file = h5py.File(path, "r", locking=False)
        if scalar_attribute(file, "format") == b"crnr-gallery":
            raise DataError(
                f"{path}: is a gallery, not a feature file; give it to classify or explain with --gallery"
            )
        found: dict[str, Any] = {}
        _collect(file, "", 0, found, references)
        return {name: _guarded(path, name, item) for name, item in found.items()}
    except DataError:
        raise
    except Exception as e:  # HDF5 may raise anything on a damaged or malicious file
        raise DataError(f"{path}: not a readable HDF5 file ({e})") from e


def scalar_attribute(item: Any, name: str) -> Any:
    """An attribute if it is a single plain value, else None; nothing larger is ever read."""
    if name not in item.attrs:
        return None
    declared = item.attrs.get_id(name)
    if declared.shape != () or declared.dtype.kind not in "fiubS" or declared.dtype.hasobject:
        return None
    value: Any = item.attrs[name]
    return value


class VariableText:
    """A dataset of variable-length text, read by a child process, as HDF5 may hang or crash on it."""

    dtype = np.dtype(object)

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        self._path, self._name, self.shape = path, name, shape

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        command = python_command("crnr_cli.sources.hdf5_text_process", str(self._path), self._name)
        seconds = SECONDS_TO_START + math.prod(self.shape) / _TEXTS_PER_SECOND
        # More threads would only reserve memory, of which the process has little.
        one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command,
                env=one_thread,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=True,
            )
            return np.array(json.loads(done.stdout), dtype=object)
        except (subprocess.SubprocessError, ValueError) as e:
            raise DataError(
                f"{self._path}: the text in {self._name} cannot be read; write it again, with a fixed length"
            ) from e


def _guarded(path: Path, name: str, item: Any) -> Any:
    if isinstance(item, Refused):
        return item
    text = h5py.check_string_dtype(item.dtype)
    is_variable = text is not None and text.length is None
    return VariableText(path, name, item.shape) if is_variable else item


def _collect(group: Any, prefix: str, depth: int, found: dict[str, Any], references: bool) -> None:
    for name in group:
        where = prefix + name
        if len(found) >= _MAX_ITEMS:
            raise ValueError(f"more than {_MAX_ITEMS} datasets")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            found[where] = Refused("is a link; copy the data into the file")
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            if depth == _MAX_DEPTH:
                raise ValueError(f"more than {_MAX_DEPTH} levels of groups")
            _collect(item, where + "/", depth + 1, found, references)
        elif isinstance(item, h5py.Dataset):
            why = why_not(item, references)
            found[where] = Refused(why) if why else item


def why_not(dataset: Any, references: bool = False) -> str | None:
    """Why a dataset must not be read, according to its declarations; None if it can be."""
    plan = dataset.id.get_create_plist()
    layout = plan.get_layout()
    if layout == h5py.h5d.VIRTUAL or plan.get_external_count():
        return "refers to other files; copy the data into one file"
    text = h5py.check_string_dtype(dataset.dtype)
    is_reference = references and h5py.check_ref_dtype(dataset.dtype) is h5py.Reference
    if dataset.dtype.kind not in "fiubcS" and text is None and not is_reference:
        return f"is of type {dataset.dtype}, but must be numbers or text"
    filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
    if not filters <= _FILTERS:
        return "uses an unsupported compression; store it with gzip, or uncompressed"
    if dataset.shape is None:
        return "is empty"
    declared = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    if declared > stored * (BEST_RATIO if filters else 1):
        return f"declares {counted(declared, 'byte')} and holds {stored}; write the complete file again"
    if filters and math.prod(dataset.chunks) * dataset.dtype.itemsize > _MAX_CHUNK:
        return f"is compressed in chunks of more than {_MAX_CHUNK} bytes; write it with smaller chunks"
    return None


READER = Reader(read_hdf5)
