"""Read MATLAB files: variables by name, in their shape in MATLAB, if numbers or text."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import FormatReader, Refused
from crnr_cli.sources.formats.axes import Cells, Transposed
from crnr_cli.sources.formats.hdf5 import (
    VariableText,
    detach_dataset,
    listed_datasets,
    scalar_attribute,
    why_unreadable,
)
from crnr_cli.sources.formats.matlab_process import (
    REFUSED,
    memory_limit,
    odd_cells_error,
    refuse_odd_class,
    seconds_limit,
    too_large,
)
from crnr_cli.system import memory
from crnr_cli.system.child import Guard, crash_reason, start_guarded


@dataclass(frozen=True)
class Unread:
    """A variable that is listed, but not loaded."""

    shape: tuple[int, ...]
    kind: str  # MATLAB's name for its type


def read_mat(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    if h5py.is_hdf5(path):  # MATLAB's v7.3
        return read_v73(path, wanted)
    return read_matlab(path, wanted)


def read_matlab(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return all variables of a file up to v7: the `wanted` ones as arrays, the rest only listed."""
    with (
        tempfile.TemporaryFile() as messages,
        start_guarded(
            "crnr_cli.sources.formats.matlab_process",
            *(str(path), *sorted(wanted)),
            memory=memory_limit(),
            seconds=seconds_limit(path),
            messages=messages,
        ) as guard,
    ):
        output = guard.process.stdout
        assert output is not None
        # Only a read method: NumPy would query the position of a file object, which a pipe lacks.
        stream = SimpleNamespace(read=output.read)
        try:
            header = json.loads(output.readline())
            variables: dict[str, Any] = {
                name: Unread(tuple(shape), kind) for name, (shape, kind) in header["variables"].items()
            }
            for name, kind in header["arrays"].items():
                array = np.lib.format.read_array(stream, allow_pickle=False)
                variables[name] = Cells(array) if kind == "cells" else array
        except (ValueError, EOFError) as e:
            guard.process.wait()
            messages.seek(0)
            raise DataError(_failure(path, guard, os.fsdecode(messages.read()))) from e
    return variables


def _failure(path: Path, guard: Guard, message: str) -> str:
    code = guard.process.returncode
    if guard.is_out_of_memory:
        return too_large(path)
    if code == REFUSED:
        return message
    reason = f"the parser crashed with {cause}" if (cause := crash_reason(code)) else message
    if guard.is_out_of_time:
        reason = "the parser took too long"
    return f"{path}: not a readable .mat file ({reason})"


def read_v73(path: Path, wanted: Collection[str]) -> dict[str, Any]:
    """Return the variables of a v7.3 file, which is HDF5 with every array transposed."""
    with listed_datasets(path, references=True) as datasets:
        return {
            name: _from_dataset(path, name, dataset) if name in wanted else _to_listing(dataset)
            for name, dataset in datasets.items()
        }


def _to_listing(dataset: Any) -> Any:
    return dataset if isinstance(dataset, Refused) else Unread(dataset.shape[::-1], _class_of(dataset) or "-")


def _from_dataset(path: Path, name: str, dataset: Any) -> Any:
    if isinstance(dataset, Refused):
        return dataset
    kind = _class_of(dataset)
    if kind is None:
        (kind,) = np.asarray(VariableText(path, name, (1,), "MATLAB_class")).tolist()
    refuse_odd_class(path, name, kind)
    if "MATLAB_empty" in dataset.attrs:
        raise DataError(f"{path}: {name} is empty")
    if kind not in ("char", "cell"):
        return Transposed(detach_dataset(path, name, dataset))
    try:
        if kind == "char":
            return _join_characters(dataset)
        # In MATLAB's order, column by column, which is the order of rows here.
        cells = [dataset.file[reference] for reference in np.ravel(dataset[()])]
        return _from_cells(path, name, cells)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError) as e:
        raise DataError(f"{path}: {name} is not readable as text or numbers ({e})") from e


def _from_cells(path: Path, name: str, cells: Sequence[Any]) -> Any:
    kinds = {_class_of(cell) for cell in cells}
    if any(why_unreadable(cell) for cell in cells if isinstance(cell, h5py.Dataset)):
        raise odd_cells_error(path, name)
    if kinds == {"char"}:
        texts = [[] if "MATLAB_empty" in cell.attrs else _join_characters(cell).tolist() for cell in cells]
        return np.array([text[0] if text else "" for text in texts])
    if kinds & {"struct", "cell", "char", None} or len({cell.shape for cell in cells}) != 1:
        raise odd_cells_error(path, name)
    if any("MATLAB_empty" in cell.attrs or cell.dtype.kind not in "fiub" for cell in cells):
        raise odd_cells_error(path, name)
    size = sum(cell.size * cell.dtype.itemsize for cell in cells)
    memory.require_memory(2 * size, f"{path}: {name}", "save fewer rows per file")
    return Cells(np.array([cell[()].T.ravel() for cell in cells]))


def _class_of(item: Any) -> str | None:
    """Return MATLAB's name for the type; None if it is stored in a way that is not safe to read."""
    if not isinstance(item, h5py.Dataset):
        return "struct"
    if "MATLAB_class" not in item.attrs:
        return "double"
    kind = scalar_attribute(item, "MATLAB_class")
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else None


def _join_characters(characters: Any) -> Array:
    """Return the rows of a MATLAB matrix of characters; in HDF5 they are columns of UTF-16 units."""
    if characters.dtype != np.uint16:
        raise TypeError(f"characters of type {characters.dtype}")
    units = np.atleast_2d(characters[()]).T.astype("<u2")
    return np.array([row.tobytes().decode("utf-16-le", "replace").rstrip() for row in units], dtype=str)


READER = FormatReader(read_mat, either_axis=True, first_class=1)
