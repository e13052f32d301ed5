"""HDF5 on a disk that may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import Any

import h5py


@contextmanager
def written_hdf5(path: Path) -> Iterator[Any]:
    """A new HDF5 file to fill. A disk that is full or fails raises OSError, and nothing else comes of it.

    HDF5 itself does not survive a failed write: it tries again at every close, up to the end of the process.
    So it is told that all went well, and the error is raised when it is done.
    """
    # Unbuffered: with a buffer, a seek would write, and could fail.
    with path.open("wb+", buffering=0) as file:
        patient = _Patient(file)
        try:
            with h5py.File(patient, "w") as content:
                yield content
        except Exception as e:
            raise patient.error or e from e
    if patient.error is not None:
        raise patient.error


class _Patient:
    """A file that never fails to be written, and remembers the first time it did."""

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
        """Nothing waits to be written."""

    def _write_all(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def _attempt(self, action: Callable[[], object]) -> None:
        if self.error is None:
            try:
                action()
            except OSError as e:
                self.error = e
