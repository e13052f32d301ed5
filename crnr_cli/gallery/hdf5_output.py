"""Writing HDF5 to a disk that may fail, and text in the one way that all our files store it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from crnr_cli.arrays import Array


@contextmanager
def written_hdf5(place: Path | BinaryIO) -> Iterator[Any]:
    """Write HDF5 to a new file, or to an open one that is empty.

    A full or failing disk raises OSError, and has no other effect.

    HDF5 cannot recover from a failed write: it tries again at every close, until the process ends. Therefore
    every write seems to succeed, and the error is raised when HDF5 has finished.
    """
    # Unbuffered, because with a buffer a seek would write, and could fail.
    with _unbuffered(place) as file:
        forgiving = _ForgivingFile(file)
        try:
            with h5py.File(forgiving, "w") as content:
                yield content
        except Exception as e:
            raise forgiving.error or e from e
    if forgiving.error is not None:
        raise forgiving.error


def _unbuffered(place: Path | BinaryIO) -> AbstractContextManager[Any]:
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
        """Do nothing, as nothing is buffered."""

    def _write_all(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.error is None:
            try:
                action()
            except OSError as e:
                self.error = e


def to_bytes(texts: Sequence[str]) -> Array:
    """UTF-8 whatever the locale; names that are not UTF-8 are stored as the bytes that were read."""
    return np.array([text.encode("utf-8", "surrogateescape") for text in texts], dtype=bytes)


def to_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values as HDF5 attributes: text becomes bytes of fixed length."""
    return {key: np.bytes_(value) if isinstance(value, str) else value for key, value in values.items()}
