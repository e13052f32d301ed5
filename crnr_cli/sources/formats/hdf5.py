"""Reader of HDF5 files, which are not trusted: datasets are checked before any is read."""

from __future__ import annotations

import json
import math
import subprocess
import weakref
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import BEST_RATIO, FormatReader, Refused
from crnr_cli.sources.formats.hdf5_text_process import text_memory_limit, text_seconds_limit
from crnr_cli.system.child import start_guarded
from crnr_cli.wording import format_count

FEATURES, FEATURES_VERSION = "crnr-features", 1  # what `crnr extract` writes
_MAX_DEPTH = 8
_MAX_DATASETS = 10_000
_MAX_ITEMS = 20_000  # groups, datasets and links to visit; a group with two names counts twice
_MAX_CHUNK = 2**29  # bytes in a chunk after decompression, which is always of the full chunk
# Deflate, shuffle, Fletcher's checksum and LZF. For any other filter, HDF5 would load a plugin library.
_FILTERS = {1, 2, 3, 32000}
_CHECKSUM, _CHECKSUM_BYTES = 3, 4  # the filter of Fletcher's checksum, at the end of every chunk
_MAX_ATTRIBUTES = 100  # of the recipe that `crnr extract` writes
_OPEN_FILES = 16  # at the same time; a process may open only some hundreds
CHILD_SECONDS = 600.0  # for a process that waits for the machine; `hdf5_text_process` limits its work


def read_hdf5(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    return open_datasets(path)


def open_datasets(path: Path) -> dict[str, Any]:
    """Return all datasets of a file by name, not yet read; a `Refused` replaces unsafe ones."""
    with listed_datasets(path) as found:
        return {name: detach_dataset(path, name, item) for name, item in found.items()}


@contextmanager
def listed_datasets(path: Path, *, references: bool = False) -> Iterator[dict[str, Any]]:
    """Yield all datasets of a file by name, or a `Refused` for each, as long as the file is open.

    With `references`, datasets that refer to others in the file are accepted: MATLAB stores cells that way.
    """
    with _opened_hdf5(path) as file:
        if scalar_attribute(file, "format") == b"crnr-gallery":
            raise DataError(
                f"{path}: is a gallery, not a feature file; give it to classify or explain with --gallery"
            )
        yield _Listing(references).of(file)


@contextmanager
def _opened_hdf5(path: Path) -> Iterator[Any]:
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except DataError:
        raise
    except Exception as e:  # HDF5 may raise anything on a damaged or malicious file
        raise DataError(f"{path}: not a readable HDF5 file ({e}); write it again") from e


def declares_gallery(path: Path) -> bool | None:
    """Return whether a file declares itself a gallery; None if it is not readable as HDF5."""
    try:
        with _opened_hdf5(path) as file:
            return bool(scalar_attribute(file, "format") == b"crnr-gallery")
    except DataError:
        return None


def scalar_attribute(item: Any, name: str) -> Any:
    """Return an attribute if it is a single plain value, else None; nothing larger is ever read."""
    attributes = item.attrs  # once, as h5py makes a new object each time
    if name not in attributes:
        return None
    declared = attributes.get_id(name)
    dtype = declared.dtype
    if declared.shape != () or dtype.kind not in "fiubS" or dtype.hasobject:
        return None
    value: Any = attributes[name]
    return value


@dataclass(eq=False)
class StoredDataset:
    """A dataset that is read by slices. Its file is opened on access, because there may be thousands."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stamp: Stamp  # of the file that was checked
    _file: Any = field(default=None, init=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: Any) -> Array:
        if self._file is None:
            self._open()
        values: Array = self._file[self.name][where]
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[()], dtype=dtype)

    def _open(self) -> None:
        """Open the file, if it is unchanged since the check, and close the file opened longest ago."""
        if Stamp.of(self.path.stat()) != self.stamp:
            raise DataError(f"{self.path}: was changed while it was being read; run the command again")
        self._file = h5py.File(self.path, "r", locking=False)
        _opened.append(weakref.ref(self))
        if len(_opened) > _OPEN_FILES and (oldest := _opened.popleft()()):
            oldest.close()

    def close(self) -> None:
        self._file.close()
        self._file = None


_opened: deque[weakref.ref[StoredDataset]] = deque()  # datasets with an open file, if they still exist


def close_files() -> None:
    """Close all files, because one is to be replaced; the others are opened again on access."""
    while _opened:
        if dataset := _opened.popleft()():
            dataset.close()


class VariableText:
    """Text of variable length, which a child process reads, because HDF5 may hang or crash on it."""

    dtype = np.dtype(object)

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], attribute: str | None = None) -> None:
        self._path, self._name, self._attribute, self.shape = path, name, attribute, shape

    def __array__(self, dtype: object = None, copy: bool | None = None) -> Array:
        try:
            return np.array(json.loads(self._read_in_child()), dtype=object)
        except (subprocess.SubprocessError, ValueError) as e:
            what = f"{self._attribute} of {self._name}" if self._attribute else self._name
            raise DataError(
                f"{self._path}: the text in {what} cannot be read; write it again, with a fixed length"
            ) from e

    def _read_in_child(self) -> bytes:
        """Return the output of the process; SubprocessError if it fails, or is not done in time."""
        with start_guarded(
            "crnr_cli.sources.formats.hdf5_text_process",
            *(str(self._path), self._name, *([self._attribute] if self._attribute else [])),
            memory=text_memory_limit(self._path),
            seconds=2 * text_seconds_limit(math.prod(self.shape)),
        ) as guard:
            output, _ = guard.process.communicate(timeout=CHILD_SECONDS)
        if guard.process.returncode:
            raise subprocess.CalledProcessError(guard.process.returncode, guard.process.args)
        return output


def detach_dataset(path: Path, name: str, item: Any) -> Any:
    """Return a dataset that stays usable after its file is closed."""
    if isinstance(item, Refused):
        return item
    text = h5py.check_string_dtype(item.dtype)
    if text is not None and text.length is None:
        return VariableText(path, name, item.shape)
    return StoredDataset(path, name, item.shape, item.dtype, Stamp.of(path.stat()))


@dataclass
class _Listing:
    """The datasets of a file, found by a walk through its groups that always ends."""

    references: bool
    found: dict[str, Any] = field(default_factory=dict)
    looked_at: int = 0

    def of(self, file: Any) -> dict[str, Any]:
        self._collect(file, "", 0)
        return self.found

    def _collect(self, group: Any, prefix: str, depth: int) -> None:
        for name in group:
            where = prefix + name
            if self.references and where.startswith("#"):  # the targets of MATLAB's cells and objects
                continue
            self.looked_at += 1
            if self.looked_at > _MAX_ITEMS or len(self.found) >= _MAX_DATASETS:
                raise ValueError(f"more than {_MAX_DATASETS} arrays, or {_MAX_ITEMS} groups and links")
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                self.found[where] = Refused("is a link; copy the data into the file")
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                if depth == _MAX_DEPTH:
                    raise ValueError(f"more than {_MAX_DEPTH} levels of groups")
                self._collect(item, where + "/", depth + 1)
            elif isinstance(item, h5py.Dataset):
                why = why_unreadable(item, self.references)
                self.found[where] = Refused(why) if why else item


def why_unreadable(dataset: Any, references: bool = False) -> str | None:
    """Return why a dataset must not be read, according to its declarations; None if it is safe."""
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
        return f"declares {format_count(declared, 'byte')} and holds {stored}; write the complete file again"
    if filters and math.prod(dataset.chunks) * dataset.dtype.itemsize > _MAX_CHUNK:
        return f"is compressed in chunks of more than {_MAX_CHUNK} bytes; write it with smaller chunks"
    # HDF5 crashes on a chunk that is shorter than its checksum. Any value but None ends the iteration.
    shortest = 1 + (_CHECKSUM_BYTES if _CHECKSUM in filters else 0)
    if filters and dataset.id.chunk_iter(lambda chunk: chunk.size < shortest or None):
        return "has a damaged chunk; write the file again"
    return None


def read_recipe(path: Path) -> dict[str, Any] | None:
    """Return the description of the extractor by `crnr extract`; None if another program wrote the file.

    All attributes must be scalars; their values are not validated here.
    """
    with _opened_hdf5(path) as file:
        if scalar_attribute(file, "format") != FEATURES.encode():
            return None
        version = scalar_attribute(file, "version")
        if not isinstance(version, np.integer) or version > FEATURES_VERSION:
            raise DataError(
                f"{path}: features of format {version}, but this crnr ({__version__}) reads up to "
                f"{FEATURES_VERSION}; please upgrade crnr"
            )
        group = file["recipe"] if isinstance(file.get("recipe", getlink=True), h5py.HardLink) else None
        if not isinstance(group, h5py.Group) or len(group.attrs) > _MAX_ATTRIBUTES:
            raise DataError(f"{path}: does not describe the extractor; extract the file again")
        values = {str(name): scalar_attribute(group, name) for name in group.attrs}
    try:
        found = {name: to_plain_value(value) for name, value in values.items()}
    except UnicodeDecodeError:
        found = {"": None}
    if None in found.values():
        raise DataError(
            f"{path}: an attribute of the pipeline is not a single plain value; extract the file again"
        )
    return found


def to_plain_value(value: Any) -> Any:
    """Return an attribute as a plain Python value."""
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


READER = FormatReader(read_hdf5, recipe=read_recipe)
