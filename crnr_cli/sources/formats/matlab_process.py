"""A process that reads a MATLAB file up to v7 for its parent: SciPy's parser crashes on some damaged files.

The arguments are the path and the names of the wanted variables. The output is one line of JSON, with the
shapes and classes of all variables and the kinds of the wanted ones, and then the wanted variables in NumPy's
format. If the file cannot be read, the exit code is above 0, and the reason is on stderr.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.formats import BEST_RATIO
from crnr_cli.system import memory
from crnr_cli.system.child import limit_address_space, limit_cpu_time

REFUSED = 2  # exit code of the reading process if its stderr is the complete message
_NUMBERS = {
    *("double", "single", "logical"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TEXT = {"char", "cell"}
BASE_BYTES = 2**30  # of address space, for Python and SciPy themselves
_SECONDS = 60.0  # of work on a core
_NUMBERS_PER_SECOND = 2e6  # the minimum
_LONGEST_NAME = 1000  # characters; MATLAB writes up to 63
_REMEDY = "save fewer rows per file"
Listed = dict[str, tuple[list[int], str]]  # shape and class of all variables


def refuse_odd_class(path: Path, name: str, kind: str) -> None:
    if kind not in _NUMBERS | _TEXT:
        remedy = f"full({name})" if kind == "sparse" else "it as a plain matrix"
        raise DataError(
            f"{path}: {name} is of the MATLAB class {kind}, but must be numbers or text; save {remedy}"
        )


def odd_cells_error(path: Path, name: str) -> DataError:
    return DataError(
        f"{path}: {name} is a cell array of something else than texts, or arrays of numbers of one size; "
        "save one text, number or image per example"
    )


def read_variables(path: Path, wanted: Collection[str]) -> tuple[Listed, dict[str, Array], set[str]]:
    """Return shapes and classes of all variables, the wanted variables, and the names of number cells."""
    from scipy.io import loadmat, whosmat  # imported here, because SciPy is slow to import

    limit_cpu_time(_SECONDS)
    listed = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
    if any("\0" in name or len(name) > _LONGEST_NAME for name in listed):  # no argument can have such a name
        raise DataError(f"{path}: not a readable .mat file (a variable has no valid name)")
    found = [name for name in listed if name in wanted]
    numbers = 0
    for name in found:
        shape, kind = listed[name]
        refuse_odd_class(path, name, kind)
        count = math.prod(int(side) for side in shape)
        if count > BEST_RATIO * path.stat().st_size:
            raise DataError(f"{path}: {name} declares more data than the file can contain")
        numbers += count
    # A number of any class takes at least one byte: MATLAB stores small numbers in fewer bytes.
    memory.require_memory(2 * numbers, f"{path}: {', '.join(found)}", _REMEDY)
    limit_cpu_time(_SECONDS + numbers / _NUMBERS_PER_SECOND)
    loaded = loadmat(str(path), variable_names=found) if found else {}
    variables = {name: ([int(side) for side in shape], kind) for name, (shape, kind) in listed.items()}
    cells = {name for name in found if _has_numbers(loaded[name])}
    arrays = {
        name: _stack_cells(path, name, loaded[name]) if name in cells else _plain(path, name, loaded[name])
        for name in found
    }
    memory.require_memory(
        sum(array.nbytes for array in arrays.values()), f"{path}: {', '.join(found)}", _REMEDY
    )
    return variables, arrays, cells


def _has_numbers(array: Array) -> bool:
    """Return whether this is a cell array that begins with numbers."""
    return (
        array.dtype == object
        and array.size > 0
        and getattr(array.flat[0], "dtype", array.dtype).kind in "fiub"
    )


def _stack_cells(path: Path, name: str, cells: Array) -> Array:
    """Return one row per cell, in MATLAB's order; the numbers of a cell are in the order of reading."""
    arrays = [np.asarray(cell) for cell in cells.ravel(order="F")]
    if len({cell.shape for cell in arrays}) != 1 or any(cell.dtype.kind not in "fiub" for cell in arrays):
        raise odd_cells_error(path, name)
    memory.require_memory(2 * sum(cell.nbytes for cell in arrays), f"{path}: {name}", _REMEDY)
    return np.array([cell.ravel() for cell in arrays])


def _plain(path: Path, name: str, array: Array) -> Array:
    """Return cells and matrices of characters as an array of text, and numbers unchanged."""
    if array.dtype.kind == "U":
        return np.array([text.rstrip() for text in array.ravel().tolist()])
    if array.dtype != object:
        return array
    texts = [cell for cell in array.ravel() if isinstance(cell, np.ndarray) and cell.dtype.kind == "U"]
    if len(texts) < array.size or any(text.size > 1 for text in texts):
        raise odd_cells_error(path, name)
    return np.array(["".join(text.ravel().tolist()) for text in texts])


def memory_limit() -> int | None:
    """Return the memory limit; half of the free memory is left to the parent, which needs it too."""
    free = memory.free_bytes()
    return None if free is None else BASE_BYTES + free // 2


def seconds_limit(path: Path) -> float:
    """Return the time limit for any file of this size; the process itself has a stricter limit, if any."""
    return 2 * _SECONDS + BEST_RATIO * path.stat().st_size / _NUMBERS_PER_SECOND


def _limit_memory() -> None:
    if (limit := memory_limit()) is not None:
        limit_address_space(limit)


def too_large(path: Path) -> str:
    return f"{path}: needs more memory than there is; {_REMEDY}"


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.buffer.write(os.fsencode(message))
    sys.exit(code)


def print_variables() -> None:
    path = Path(sys.argv[1])
    try:
        _limit_memory()
        variables, arrays, cells = read_variables(path, sys.argv[2:])
    except DataError as e:
        _fail(str(e), REFUSED)
    except MemoryError:
        _fail(too_large(path), REFUSED)
    except Exception as e:  # the parser may raise anything on a damaged file; the user sees its message
        _fail(" ".join(str(e).split()) or type(e).__name__, 1)
    kinds = {name: "cells" if name in cells else "array" for name in arrays}
    sys.stdout.buffer.write(json.dumps({"variables": variables, "arrays": kinds}).encode() + b"\n")
    # To a file object, NumPy would write by its position, which a pipe does not have.
    pipe = SimpleNamespace(write=sys.stdout.buffer.write)
    for array in arrays.values():
        np.lib.format.write_array(pipe, np.asanyarray(array), allow_pickle=False)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    print_variables()
