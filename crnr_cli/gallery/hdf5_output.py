"""Write HDF5 to a disk that may fail, and large datasets in blocks of rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.system import memory
from crnr_cli.system.descriptors import MAY_REPLACE_OPEN, write_at


@contextmanager
def written_hdf5(place: Path | BinaryIO) -> Iterator[Any]:
    """Write HDF5 to a new file, or to an empty open file.

    A full or failing disk raises OSError, and has no other effect.

    HDF5 cannot recover from a failed write: it tries again at every close, until the process ends. Therefore
    every write seems to succeed, and the error is raised when HDF5 has finished.
    """
    # Unbuffered, because with a buffer a seek would write, and could fail.
    with _open_unbuffered(place) as file:
        forgiving = _ForgivingFile(file)
        try:
            with h5py.File(forgiving, "w") as content:
                yield content
        except Exception as e:
            raise forgiving.error or e from e
    if forgiving.error is not None:
        raise forgiving.error


def _open_unbuffered(place: Path | BinaryIO) -> AbstractContextManager[Any]:
    return place.open("wb+", buffering=0) if isinstance(place, Path) else nullcontext(_raw(place))


def _raw(file: BinaryIO) -> Any:
    return getattr(file, "raw", file)


class _ForgivingFile:
    """A file whose writes never raise; the first error is kept for the caller."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: OSError | None = None
        self.seek, self.tell, self.read, self.readinto = file.seek, file.tell, file.read, file.readinto

    def write(self, data: Any) -> int:
        self._attempt(lambda: self._write_all(memoryview(data).cast("B")))
        return len(data)

    def truncate(self, size: int) -> int:
        self._attempt(lambda: self._file.truncate(size))
        return size

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def _write_all(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.error is None:
            try:
                action()
            except OSError as e:
                self.error = e


@dataclass(frozen=True)
class PlacedRows:
    """The rows of a dataset in a file that is being written, in any order, from any thread."""

    handle: int  # of the file
    offset: int  # where the dataset begins
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, content: Any, name: str, shape: tuple[int, int], dtype: str, handle: int) -> PlacedRows:
        """Reserve space for a new dataset in the HDF5 file that is open for writing as `handle`."""
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_layout(h5py.h5d.CONTIGUOUS)
        plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plan.set_obj_track_times(False)  # so the same gallery is the same file
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        space, kind = h5py.h5s.create_simple(shape), h5py.h5t.py_create(np.dtype(dtype))
        dataset = h5py.h5d.create(content.id, name.encode(), kind, space, plan, links)
        return cls(handle, dataset.get_offset(), shape, np.dtype(dtype))

    def write(self, places: Array, rows: Array) -> None:
        """Write rows to these places; consecutive rows at once."""
        order = np.argsort(places, kind="stable")
        places, rows = places[order], rows if _is_ascending(order) else rows[order]
        width = self.shape[1] * self.dtype.itemsize
        data = memoryview(np.ascontiguousarray(rows, self.dtype).reshape(-1).view(np.uint8).data)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(places) != 1) + 1, [len(places)]]).tolist()
        for start, stop in pairwise(starts):
            if start < stop:
                write_at(
                    self.handle, data[start * width : stop * width], self.offset + int(places[start]) * width
                )

    def map_rows(self) -> Array:
        """Return all rows after they are written; they are read from the file on access.

        Where a mapped file could not be put in place, they are read now.
        """
        with os.fdopen(os.dup(self.handle), "rb") as file:
            if not MAY_REPLACE_OPEN:
                size = self.shape[0] * self.shape[1] * self.dtype.itemsize
                memory.require_memory(
                    size, f"a gallery of {self.shape[0]} vectors", "use --pca or fewer examples"
                )
                file.seek(self.offset)
                return np.fromfile(file, self.dtype, self.shape[0] * self.shape[1]).reshape(self.shape)
            return np.asarray(np.memmap(file, self.dtype, "r", self.offset, self.shape))


def _is_ascending(order: Array) -> bool:
    return bool((np.diff(order) > 0).all())


def to_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain values as HDF5 attributes: text becomes bytes of fixed length."""
    return {key: np.bytes_(value) if isinstance(value, str) else value for key, value in values.items()}
