"""Reader of MATLAB files: variables by name, in the shape they have in MATLAB, if numbers or text."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.hdf5 import open_datasets, why_not
from crnr_cli.sources.matlab_rules import REFUSED, odd_cells, refuse_odd_class
from crnr_cli.sources.readers import Reader, Refused
from crnr_cli.sources.tables import Transposed
from crnr_cli.system.child import python_command


@dataclass(frozen=True)
class Unread:
    """A variable that is not wanted: it is listed, but not loaded."""

    shape: tuple[int, ...]


def read_mat(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    if h5py.is_hdf5(path):  # MATLAB's v7.3
        return from_hdf5(path, open_datasets(path, references=True), wanted)
    return read_matlab(path, wanted)


def read_matlab(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """All variables of a file up to v7: the `wanted` ones as arrays, the rest only listed."""
    command = python_command("crnr_cli.sources.matlab_process", str(path), *sorted(wanted))
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=messages
        ) as process,
    ):
        assert process.stdout is not None
        # Only a read method: NumPy would ask a file object for its position, which a pipe does not have.
        stream = SimpleNamespace(read=process.stdout.read)
        try:
            header = json.loads(process.stdout.readline())
            variables: dict[str, Any] = {
                name: Unread(tuple(shape)) for name, shape in header["shapes"].items()
            }
            for name in header["arrays"]:
                variables[name] = np.lib.format.read_array(stream, allow_pickle=False)
        except (ValueError, EOFError) as e:
            messages.seek(0)
            raise DataError(_failure(path, process.wait(), os.fsdecode(messages.read()))) from e
    return variables


def _failure(path: Path, code: int, message: str) -> str:
    if code == REFUSED:
        return message
    reason = f"its parser crashed with signal {-code}" if code < 0 else message
    return f"{path}: not a readable .mat file ({reason})"


def from_hdf5(path: Path, datasets: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """The variables of a v7.3 file, which is HDF5 with every array transposed."""
    return {
        name: _from_dataset(path, name, dataset) if name in wanted else _listed(dataset)
        for name, dataset in datasets.items()
        if not name.startswith("#")  # MATLAB's groups for the content of cells and objects
    }


def _listed(dataset: Any) -> Any:
    return dataset if isinstance(dataset, Refused) else Unread(dataset.shape[::-1])


def _from_dataset(path: Path, name: str, dataset: Any) -> Any:
    if isinstance(dataset, Refused):
        return dataset
    kind = _class_of(dataset)
    refuse_odd_class(path, name, kind)
    if "MATLAB_empty" in dataset.attrs:
        raise DataError(f"{path}: {name} is empty")
    if kind not in ("char", "cell"):
        return Transposed(dataset)
    try:
        if kind == "char":
            return _joined(dataset)
        cells = [dataset.file[reference] for reference in np.ravel(dataset[()])]
        if all(_class_of(cell) == "char" and why_not(cell) is None for cell in cells):
            return np.array(["" if "MATLAB_empty" in cell.attrs else _joined(cell)[0] for cell in cells])
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as e:
        raise DataError(f"{path}: {name} is not readable as text ({e})") from e
    raise odd_cells(path, name)


def _class_of(item: Any) -> str:
    kind = item.attrs.get("MATLAB_class", b"double") if isinstance(item, h5py.Dataset) else b"struct"
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)


def _joined(characters: Any) -> Array:
    """The rows of a MATLAB matrix of characters; in HDF5 they are columns of UTF-16 units."""
    if characters.dtype != np.uint16:
        raise TypeError(f"characters of type {characters.dtype}")
    units = np.atleast_2d(characters[()]).T.astype("<u2")
    return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in units])


READER = Reader(read_mat, either_axis=True)
