"""The registry of readers: which module of this package reads which kind of feature file.

It contains names of modules, so that a reader is only imported if a file needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from crnr_cli.records import dataclass

if TYPE_CHECKING:
    import numpy as np

# To add a format, write a module with a READER and list it here; another name follows a colon.
READERS = {
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".npz": "numpy_files:NPZ_READER",
    ".mat": "matlab",
    ".npy": "numpy_files:NPY_READER",
    ".csv": "csv_table",
    ".parquet": "parquet",
}

BEST_RATIO = 1032  # of compression, for deflate and every other filter that readers accept


@dataclass(frozen=True)
class Keys:
    """The names of the datasets in a feature file, and whether samples are its rows or columns."""

    features: str | None = None
    labels: str | None = None
    samples: str | None = None  # "rows" or "columns"; None: see sources.axes.sample_axis


class Dataset(Protocol):
    """An array in a file: its shape and type are known before any value is read.

    A table of features is read in slices of rows; labels and names are read at once, by `numpy.asarray`.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...


class Arrays(dict[str, Any]):
    """The arrays of a file by name, with the notes of its reader."""

    notes: tuple[str, ...] = ()  # the reader's assumptions
    names: tuple[str, ...] = ("paths",)  # the arrays that hold names of the samples, the best first
    ids: tuple[str, ...] = ()  # arrays that identify the samples within the file, and are no labels
    beside: tuple[Path, ...] = ()  # further files that were read


class Read(Protocol):
    def __call__(self, path: Path, wanted: Collection[str]) -> Mapping[str, Any]:
        """Return all arrays of a file by name, each a `Dataset` or a `Refused`.

        Only the `wanted` arrays must be readable. If the file cannot be read, raise a DataError that names
        it.
        """


@dataclass(frozen=True)
class FormatReader:
    """How one kind of feature file is read."""

    read: Read
    either_axis: bool = False  # samples can be along any axis; the number of labels decides
    # The description of the extractor that `crnr extract` wrote; None if another program wrote the file.
    recipe: Callable[[Path], Mapping[str, Any] | None] | None = None
    word: str = "array"  # for an array of the file, in messages
    first_class: int = 0  # the number of the first class in a matrix with a one for the class of each sample


@dataclass(frozen=True)
class Refused:
    """Replaces an array that must not be read."""

    why: str
    shape: str = "refused"


def is_table(name: str | Path) -> bool:
    """Return whether a file of this name is a feature file."""
    return Path(name).suffix.lower() in READERS


def reader_of(path: Path) -> FormatReader:
    module, _, name = READERS[path.suffix.lower()].partition(":")
    reader: FormatReader = getattr(import_module(f"{__package__}.{module}"), name or "READER")
    return reader
