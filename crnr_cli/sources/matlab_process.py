"""A process that reads a MATLAB file up to v7 for another: SciPy's parser crashes on some damaged files.

Its arguments are the path and the names of the variables that are wanted. It answers with a line of JSON,
the shapes of all variables and the names of those that follow, and these as arrays in NumPy's format; or
with an exit code above 0 and, on stderr, what is wrong with the file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from crnr_cli.errors import DataError

Array = npt.NDArray[Any]

REFUSED = 2  # exit code where what is said on stderr is the whole message

_NUMBERS = {
    *("double", "single", "logical"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_TEXT = {"char", "cell"}
_MOST_DEFLATED = 1032  # zlib packs at most this many bytes into one


def read(path: Path, wanted: Collection[str]) -> tuple[dict[str, list[int]], dict[str, Array]]:
    """The shapes of all variables; those that are wanted."""
    from scipy.io import loadmat, whosmat  # here, as the parent has no use for it

    listed = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
    found = [name for name in listed if name in wanted]
    for name in found:
        shape, kind = listed[name]
        refuse_odd_class(path, name, kind)
        if np.prod([float(side) for side in shape]) > _MOST_DEFLATED * path.stat().st_size:
            raise DataError(f"{path}: {name} declares more data than the file holds")
    loaded = loadmat(str(path), variable_names=found) if found else {}
    shapes = {name: [int(side) for side in shape] for name, (shape, _) in listed.items()}
    return shapes, {name: _plain(path, name, loaded[name]) for name in found}


def refuse_odd_class(path: Path, name: str, kind: str) -> None:
    if kind not in _NUMBERS | _TEXT:
        remedy = f"full({name})" if kind == "sparse" else "it as a plain matrix"
        raise DataError(f"{path}: {name} is of the MATLAB class {kind}, not numbers or text; save {remedy}")


def odd_cells(path: Path, name: str) -> DataError:
    return DataError(f"{path}: {name} is a cell array of more than text; save one text or number a sample")


def _plain(path: Path, name: str, array: Array) -> Array:
    """Cells of text as text; matrices of characters are an array of their rows already."""
    if array.dtype.kind == "U":
        return np.array([text.rstrip() for text in array.ravel().tolist()])
    if array.dtype != object:
        return array
    texts = [cell for cell in array.ravel() if isinstance(cell, np.ndarray) and cell.dtype.kind == "U"]
    if len(texts) < array.size or any(text.size > 1 for text in texts):
        raise odd_cells(path, name)
    return np.array(["".join(text.ravel().tolist()) for text in texts])


def _fail(words: str, code: int) -> NoReturn:
    sys.stderr.buffer.write(os.fsencode(words))
    sys.exit(code)


def main() -> None:
    try:
        shapes, arrays = read(Path(sys.argv[1]), sys.argv[2:])
    except DataError as e:
        _fail(str(e), REFUSED)
    except Exception as e:  # the parser fails on a broken file with any exception; its words go to the user
        _fail(" ".join(str(e).split()) or type(e).__name__, 1)
    header = json.dumps({"shapes": shapes, "arrays": list(arrays)})
    sys.stdout.buffer.write(header.encode() + b"\n")
    for array in arrays.values():
        np.save(sys.stdout.buffer, array, allow_pickle=False)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
