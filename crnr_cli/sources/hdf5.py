"""The datasets of an HDF5 file that a stranger may have made, looked at before any is read or followed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError

_MAX_DEPTH = 8
_MAX_ITEMS = 10_000
_MAX_CHUNK = 2**29  # bytes that a compressed piece may swell to, as it is always unpacked whole
_BEST_RATIO = 1032  # deflate cannot do better, and nothing else that we accept does
# Deflate, shuffle, Fletcher's checksum and LZF. Others would load a library from wherever HDF5 looks for one.
_FILTERS = {1, 2, 3, 32000}
SECONDS_TO_START = 4.0
TEXTS_A_SECOND = 100_000  # at the very least
_READ_TEXT = (sys.executable, "-P", "-m", "crnr_cli.sources.hdf5_text_process")


def open_datasets(path: Path, *, references: bool = False) -> dict[str, Any]:
    """All datasets of a file by name, unread. One that is not plain data is there as a `Refused`.

    With `references`, datasets that point to others of the file are plain too: MATLAB keeps its cells so.
    """
    try:
        file = h5py.File(path, "r", locking=False)
        if scalar_attribute(file, "format") == b"crnr-gallery":
            raise DataError(
                f"{path}: is a gallery, not features; classify, evaluate and explain take it by --gallery"
            )
        found: dict[str, Any] = {}
        _collect(file, "", 0, found, references)
        return {name: _guarded(path, name, item) for name, item in found.items()}
    except DataError:
        raise
    except Exception as e:  # HDF5 may fail with any exception on a file that is damaged or made to hurt
        raise DataError(f"{path}: not a readable HDF5 file ({e})") from e


def scalar_attribute(item: Any, name: str) -> Any:
    """An attribute that is one plain value, or None; nothing larger is ever read."""
    if name not in item.attrs:
        return None
    about = item.attrs.get_id(name)
    if about.shape != () or about.dtype.kind not in "fiubS" or about.dtype.hasobject:
        return None
    value: Any = item.attrs[name]
    return value


class VariableText:
    """A dataset of text of variable length, read by a process that may hang or crash in our place."""

    dtype = np.dtype(object)

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        self._path, self._name, self.shape = path, name, shape

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        command = [*_READ_TEXT, str(self._path), self._name]
        seconds = SECONDS_TO_START + math.prod(self.shape) / TEXTS_A_SECOND
        # More threads than one would only reserve memory, of which the process has little.
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
    text = h5py.check_string_dtype(item.dtype)
    is_variable = isinstance(item, h5py.Dataset) and text is not None and text.length is None
    return VariableText(path, name, item.shape) if is_variable else item


class Refused:
    """In the place of a dataset that must not be read."""

    shape = "refused"
    dtype = np.dtype(object)

    def __init__(self, why: str) -> None:
        self.why = why


def _collect(group: Any, prefix: str, depth: int, found: dict[str, Any], references: bool) -> None:
    for name in group:
        where = prefix + name
        if len(found) >= _MAX_ITEMS:
            raise ValueError(f"more than {_MAX_ITEMS} datasets")
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            found[where] = Refused("is a link to elsewhere; copy the data into the file")
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            if depth == _MAX_DEPTH:
                raise ValueError(f"groups deeper than {_MAX_DEPTH}")
            _collect(item, where + "/", depth + 1, found, references)
        elif isinstance(item, h5py.Dataset):
            why = why_not(item, references)
            found[where] = Refused(why) if why else item


def why_not(dataset: Any, references: bool = False) -> str | None:
    """What is wrong with a dataset, from what it declares alone."""
    plan = dataset.id.get_create_plist()
    layout = plan.get_layout()
    if layout == h5py.h5d.VIRTUAL or plan.get_external_count():
        return "points into other files; copy the data into one file"
    text = h5py.check_string_dtype(dataset.dtype)
    is_reference = references and h5py.check_ref_dtype(dataset.dtype) is h5py.Reference
    if dataset.dtype.kind not in "fiubcS" and text is None and not is_reference:
        return f"is of type {dataset.dtype}, and not of numbers or text"
    filters = {plan.get_filter(i)[0] for i in range(plan.get_nfilters())}
    if not filters <= _FILTERS:
        return "is compressed in a way that is not known here; store it with gzip or plain"
    if dataset.shape is None:
        return "is empty"
    declared = math.prod(dataset.shape) * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    if declared > stored * (_BEST_RATIO if filters else 1):
        return f"declares {declared} bytes and holds {stored}; write it again in full"
    if filters and math.prod(dataset.chunks) * dataset.dtype.itemsize > _MAX_CHUNK:
        return f"is compressed in pieces of more than {_MAX_CHUNK} bytes; write it with smaller chunks"
    return None
