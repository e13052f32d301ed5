"""The table of readers: which module of this room reads which kind of feature file.

Modules are named, not imported: the table is light, and a reader is loaded when a file needs it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np

# A new format is a module with a READER, and its line here.
READERS = {
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".npz": "npz",
    ".mat": "matlab",
}


class Dataset(Protocol):
    """An array of a file: its shape and type are known before any value is read.

    A table of features is read by slices of rows; labels and names are read whole, by `numpy.asarray`.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


class Read(Protocol):
    def __call__(self, path: Path, wanted: Collection[str]) -> Mapping[str, Any]:
        """All arrays of a file by name, each a `Dataset` or a `Refused`; only those wanted need be readable.

        A file that cannot be read at all is a DataError that names it.
        """


@dataclass(frozen=True)
class Reader:
    """How one kind of feature file is read."""

    read: Read
    either_axis: bool = False  # samples may be rows or columns, and the number of labels decides


@dataclass(frozen=True)
class Refused:
    """Takes the place of an array that must not be read."""

    why: str
    shape: str = "refused"


def is_table(name: str | Path) -> bool:
    """Whether a file of this name holds features."""
    return Path(name).suffix.lower() in READERS


def reader_of(path: Path) -> Reader:
    module = import_module(f"{__package__}.{READERS[path.suffix.lower()]}")
    reader: Reader = module.READER
    return reader
