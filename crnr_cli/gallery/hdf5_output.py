"""Writing HDF5 to a disk that may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any

import h5py


@contextmanager
def written_hdf5(path: Path) -> Iterator[Any]:
    """Open a new HDF5 file for writing. A full or failing disk raises OSError, and has no other effect.

    HDF5 cannot recover from a failed write: it tries again at every close, until the process ends. Therefore
    every write seems to succeed, and the error is raised when HDF5 has finished.
    """
    # Unbuffered, because with a buffer a seek would write, and could fail.
    with path.open("wb+", buffering=0) as file:
        forgiving = _ForgivingFile(file)
        try:
            with h5py.File(forgiving, "w") as content:
                yield content
        except Exception as e:
            raise forgiving.error or e from e
    if forgiving.error is not None:
        raise forgiving.error


class _ForgivingFile:
    """A file whose writes never raise; the first error is kept for the caller."""

    def __init__(self, file: RawIOBase) -> None:
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
