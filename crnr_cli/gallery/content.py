"""What lies in a gallery file: arrays and attributes, checked before any of them is used."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array
from crnr_cli.errors import CrnrError, GalleryError
from crnr_cli.recipe.registry import NEWEST_VERSION
from crnr_cli.sources.extracted import FORMAT as FEATURES
from crnr_cli.sources.hdf5 import scalar_attribute
from crnr_cli.system import memory

FORMAT = "crnr-gallery"

_MAX_DEPTH = 2
_MAX_GROUPS = 100


@dataclass(frozen=True)
class Content:
    """A file's arrays and attributes by path; the checksum covers all of them."""

    arrays: dict[str, Array]
    attributes: dict[str, dict[str, Any]]

    def sha256(self) -> str:
        digest = hashlib.sha256()
        for path, values in sorted(self.attributes.items()):
            for key, value in sorted(values.items()):
                if (path, key) != ("/", "sha256"):
                    _update(digest.update, f"{path}@{key}", np.asarray(value))
        for path, array in sorted(self.arrays.items()):
            _update(digest.update, path, array)
        return digest.hexdigest()


def _update(update: Callable[[Any], None], path: str, array: Array) -> None:
    update(f"{path}\0{array.dtype.str}\0{array.shape}\0".encode())
    update(np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b"")


def is_gallery(path: Path) -> bool:
    """Whether a file says that it is a gallery; it may still be damaged."""
    if not os.path.isfile(path):  # noqa: PTH113 - it never raises, and a pipe would keep us waiting
        return False
    try:
        with h5py.File(path, "r", locking=False) as file:
            return bool(scalar_attribute(file, "format") == FORMAT.encode())
    except Exception:  # HDF5 may raise anything on a damaged or malicious file
        return False


def read_content(path: Path, wanted: Container[str] | None = None) -> Content:
    """Everything in the file, or only the wanted arrays.

    All declarations are checked before any data is read or any link followed.
    """
    try:
        with path.open("rb"):  # HDF5 would not say why it cannot read a file
            pass
        if not h5py.is_hdf5(path):
            raise GalleryError(f"{path}: not a crnr gallery")
        with h5py.File(path, "r", locking=False) as file:
            kind, version = scalar_attribute(file, "format"), scalar_attribute(file, "version")
            if kind == FEATURES.encode():
                raise GalleryError(
                    f"{path}: contains features, written by `crnr extract`, and is not a gallery; "
                    f"build one from it with `crnr build {path}`"
                )
            if kind != FORMAT.encode():
                raise GalleryError(f"{path}: not a crnr gallery")
            if not isinstance(version, np.integer) or version > NEWEST_VERSION:
                raise GalleryError(
                    f"{path}: gallery format {version}, but this crnr ({__version__}) reads up to "
                    f"{NEWEST_VERSION}; please upgrade crnr"
                )
            size = path.stat().st_size
            memory.require(
                size, f"{path}: the gallery", "classify on a larger machine, or build it with --pca"
            )
            content = Content({}, {})
            _collect(file, "/", 0, size, content)
            arrays = {
                name: _read_array(dataset)
                for name, dataset in content.arrays.items()
                if wanted is None or name in wanted
            }
            return replace(content, arrays=arrays)
    except CrnrError as e:
        raise e if str(e).startswith(str(path)) else GalleryError(f"{path}: {e}; build it again") from e
    except PermissionError as e:
        raise GalleryError(f"{path}: cannot read it ({e.strerror})") from e
    except Exception as e:  # HDF5 may raise anything on a damaged or malicious file
        raise GalleryError(f"{path}: not a readable gallery ({e}); restore it or build it again") from e


def _collect(group: Any, path: str, depth: int, budget: int, content: Content) -> int:
    """Collect attributes and datasets, which are not read yet; returns the rest of the budget of bytes."""
    values = {key: scalar_attribute(group, key) for key in group.attrs}
    if None in values.values():
        raise GalleryError("an attribute is not a single plain value")
    if not all(isinstance(name, str) for name in (*values, *group)):  # bytes, if it is not UTF-8
        raise GalleryError("a name in it is not text")
    content.attributes[path] = values
    if len(content.attributes) > _MAX_GROUPS:  # hard links can make the same group appear any number of times
        raise GalleryError("it has more groups than any gallery")
    for name in group:
        where = name if path == "/" else f"{path}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise GalleryError(f"{where} is a link")
        item = group[name]
        if isinstance(item, h5py.Dataset):
            budget -= _checked_size(item, where)
            if budget < 0:
                raise GalleryError(f"{where} declares more data than the file contains")
            content.arrays[where] = item
        elif isinstance(item, h5py.Group) and depth < _MAX_DEPTH:
            budget = _collect(item, where, depth + 1, budget, content)
        else:
            raise GalleryError(f"{where} does not belong in a gallery")
    return budget


def _checked_size(dataset: Any, where: str) -> int:
    plan = dataset.id.get_create_plist()
    if plan.get_layout() != h5py.h5d.CONTIGUOUS or plan.get_nfilters() or plan.get_external_count():
        raise GalleryError(f"{where} is not stored as plain data")
    if dataset.dtype.kind not in "fiuS" or dataset.dtype.hasobject:
        raise GalleryError(f"{where} is of type {dataset.dtype}")
    size: int = math.prod(dataset.shape) * dataset.dtype.itemsize
    return size


def _read_array(dataset: Any) -> Array:
    array: Array = dataset[()]
    return array


def to_texts(array: Array) -> list[str]:
    return [value.decode("utf-8", "surrogateescape") for value in array.tolist()]
