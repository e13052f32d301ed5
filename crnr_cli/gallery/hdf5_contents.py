"""The arrays and attributes of an HDF5 file, checked, with checksums of their blocks."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Container, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array
from crnr_cli.errors import CrnrError, GalleryError, NotAGalleryError
from crnr_cli.methods import NEWEST_VERSION as NEWEST_METHOD
from crnr_cli.recipe.recipe import NEWEST_VERSION as NEWEST_RECIPE
from crnr_cli.records import dataclass
from crnr_cli.sources.formats.hdf5 import FEATURES, scalar_attribute
from crnr_cli.system import memory
from crnr_cli.system.cores import available_cores, run_side_by_side
from crnr_cli.system.names import quote_word

FORMAT = "crnr-gallery"
NEWEST_VERSION = max(NEWEST_METHOD, NEWEST_RECIPE)
_BLOCKS_SINCE = 4  # the version from which on large arrays are checked block by block, and mapped
_BLOCKS = "blocks/"  # where the blocks' checksums are
_MAX_DEPTH = 2
_MAX_GROUPS = 100
BLOCK = 2**20  # bytes
_AT_ONCE = 2**26  # bytes that one thread hashes before it returns


@dataclass(frozen=True)
class HDF5Contents:
    """A file's arrays and attributes by path; the checksum covers all of them."""

    arrays: dict[str, Array]
    attributes: dict[str, dict[str, Any]]
    # The checksums of the blocks of large arrays, by path. The checksum covers these instead of the values.
    blocks: dict[str, Array] = field(default_factory=dict)

    @property
    def has_blocks(self) -> bool:
        return bool(self.attributes["/"]["version"] >= _BLOCKS_SINCE)

    def with_blocks(self) -> HDF5Contents:
        """Return the contents with the checksums of all large arrays' blocks, if the version has them."""
        large = {path: array for path, array in self.arrays.items() if array.nbytes > BLOCK}
        return replace(self, blocks={path: block_digests(array) for path, array in large.items()})

    def all_arrays(self) -> dict[str, Array]:
        """Return all arrays of the file."""
        return self.arrays | {_stored_at(path): digests for path, digests in self.blocks.items()}

    def has_damaged_blocks(self) -> bool:
        """Return whether a large array differs from its blocks' checksums, which `sha256` trusts."""
        if any(found.dtype != np.uint8 for found in self.blocks.values()):
            return True
        known = self.blocks.items()
        return not all(np.array_equal(block_digests(self.arrays[path]), found) for path, found in known)

    def compute_sha256(self) -> str:
        digest = hashlib.sha256()
        for path, values in sorted(self.attributes.items()):
            for key, value in sorted(values.items()):
                if (path, key) != ("/", "sha256"):
                    _update(digest.update, f"{path}@{key}", np.asarray(value))
        for path, array in sorted(self.arrays.items()):
            if self.has_blocks:
                blocks = self.blocks[path] if path in self.blocks else block_digests(array)
                _update(digest.update, path, array, blocks)
            else:
                _update(digest.update, path, array)
        return digest.hexdigest()


def _stored_at(path: str) -> str:
    return _BLOCKS + path.replace("/", ".")


def _update(update: Callable[[Any], None], path: str, array: Array, values: Array | None = None) -> None:
    values = array if values is None else values
    update(f"{path}\0{array.dtype.str}\0{array.shape}\0".encode())
    update(np.ascontiguousarray(values).reshape(-1).view(np.uint8) if values.size else b"")


def is_gallery(path: Path) -> bool:
    """Return whether a file declares itself a gallery; it may still be damaged."""
    if not os.path.isfile(path):  # noqa: PTH113 - it never raises, and a pipe would keep us waiting
        return False
    try:
        with h5py.File(path, "r", locking=False) as file:
            return bool(scalar_attribute(file, "format") == FORMAT.encode())
    except Exception:  # HDF5 may raise anything on a damaged or malicious file
        return False


def read_content(path: Path, wanted: Container[str] | None = None, *, may_map: bool = True) -> HDF5Contents:
    """Return everything in the file, or only the wanted arrays; large arrays are mapped if `may_map`.

    All declarations are checked before any data is read or any link followed.
    """
    try:
        with path.open("rb"):  # HDF5 would not tell why it cannot read a file
            pass
        if not h5py.is_hdf5(path):
            raise NotAGalleryError(f"{path}: not a gallery; create one with `crnr build`")
        with h5py.File(path, "r", locking=False) as file:
            kind, version = scalar_attribute(file, "format"), scalar_attribute(file, "version")
            if kind == FEATURES.encode():
                raise GalleryError(
                    f"{path}: contains features, written by `crnr extract`, and is not a gallery; "
                    f"build one from it with `crnr build {quote_word(str(path))}`"
                )
            if kind != FORMAT.encode():
                raise NotAGalleryError(f"{path}: not a gallery; create one with `crnr build`")
            if not isinstance(version, np.integer) or version > NEWEST_VERSION:
                raise GalleryError(
                    f"{path}: gallery format {version}, but this crnr ({__version__}) reads up to "
                    f"{NEWEST_VERSION}; please upgrade crnr"
                )
            size = path.stat().st_size
            content = HDF5Contents({}, {})
            _collect(file, "/", 0, size, content)
            declared = {
                name: dataset for name, dataset in content.arrays.items() if wanted is None or name in wanted
            }
            return _read_arrays(path, declared, content, may_map)
    except CrnrError as e:
        raise e if str(e).startswith(str(path)) else GalleryError(f"{path}: {e}; build it again") from e
    except PermissionError as e:
        raise GalleryError(f"{path}: cannot read it ({e.strerror})") from e
    except Exception as e:  # HDF5 may raise anything on a damaged or malicious file
        reason = "the file is incomplete" if "truncated file" in str(e) else e
        raise GalleryError(f"{path}: not a readable gallery ({reason}); restore it or build it again") from e


def _collect(group: Any, path: str, depth: int, budget: int, content: HDF5Contents) -> int:
    """Collect attributes and datasets without reading them; return the rest of the byte budget."""
    values = {key: scalar_attribute(group, key) for key in group.attrs}
    if None in values.values():
        raise GalleryError("an attribute is not a single plain value")
    if not all(isinstance(name, str) for name in (*values, *group)):  # bytes, if it is not UTF-8
        raise GalleryError("a name in the file is not text")
    content.attributes[path] = values
    if len(content.attributes) > _MAX_GROUPS:  # hard links can repeat the same group any number of times
        raise GalleryError("the file has more groups than any gallery")
    for name in group:
        where = name if path == "/" else f"{path}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise GalleryError(f"{where} is a link")
        item = group[name]
        if isinstance(item, h5py.Dataset):
            budget -= _check_size(item, where)
            if budget < 0:
                raise GalleryError(f"{where} declares more data than the file contains")
            content.arrays[where] = item
        elif isinstance(item, h5py.Group) and depth < _MAX_DEPTH:
            budget = _collect(item, where, depth + 1, budget, content)
        else:
            raise GalleryError(f"{where} does not belong in a gallery")
    return budget


def _check_size(dataset: Any, where: str) -> int:
    plan = dataset.id.get_create_plist()
    if plan.get_layout() != h5py.h5d.CONTIGUOUS or plan.get_nfilters() or plan.get_external_count():
        raise GalleryError(f"{where} is not stored as plain data")
    dtype = dataset.dtype
    if dtype.kind not in "fiuS" or dtype.hasobject:
        raise GalleryError(f"{where} is of type {dtype}")
    size: int = math.prod(dataset.shape) * dtype.itemsize
    return size


def _read_arrays(path: Path, declared: dict[str, Any], content: HDF5Contents, may_map: bool) -> HDF5Contents:
    """Return the arrays: read, or mapped from the file if they are large and have block checksums."""
    is_mapped = {
        name: may_map and content.has_blocks and item.nbytes > BLOCK for name, item in declared.items()
    }
    memory.require_memory(
        path.stat().st_size - sum(item.nbytes for name, item in declared.items() if is_mapped[name]),
        f"{path}: the gallery",
        "classify on a larger machine, or build the gallery with --neighbors or --pca",
    )
    arrays = {
        name: _map_array(path, item) if is_mapped[name] else _read_array(item)
        for name, item in declared.items()
    }
    blocks: dict[str, Array] = {}
    for name in list(arrays) if content.has_blocks else ():
        digests = arrays.pop(_stored_at(name), None) if not name.startswith(_BLOCKS) else None
        if digests is not None:
            blocks[name] = digests
    return replace(content, arrays=arrays, blocks=blocks)


def _read_array(dataset: Any) -> Array:
    array: Array = dataset[()]
    return array


def _map_array(path: Path, dataset: Any) -> Array:
    """Return an array whose pages are read on access, shared by all processes that map the file."""
    offset, file_size = dataset.id.get_offset(), path.stat().st_size
    if offset is None or offset + dataset.nbytes > file_size:
        raise GalleryError(f"{dataset.name.strip('/')} lies outside of the file")
    return np.asarray(np.memmap(path, dataset.dtype, "r", offset, dataset.shape))


def block_digests(array: Array) -> Array:
    """Return (blocks, 32): the SHA-256 of each block of the values in C order; empty without values."""
    values = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
    parts = (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))
    if len(values) <= _AT_ONCE:
        return np.concatenate([np.empty((0, 32), np.uint8), *map(_digests, parts)])
    # Hashing releases the interpreter's lock, so threads run on several cores.
    return np.concatenate(list(run_side_by_side(_digests, parts, available_cores())))


def _digests(values: Array) -> Array:
    found = b"".join(hashlib.sha256(block.data).digest() for block in _blocks(values))
    return np.frombuffer(found, np.uint8).reshape(-1, 32)


def _blocks(values: Array) -> Iterator[Array]:
    for start in range(0, len(values), BLOCK):
        yield values[start : start + BLOCK]
