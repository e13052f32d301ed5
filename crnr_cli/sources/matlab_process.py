"""A process that reads a MATLAB file up to v7 for its parent: SciPy's parser crashes on some damaged files.

The arguments are the path and the names of the wanted variables. The output is one line of JSON, with the
shapes of all variables and the names of those that follow, and then these variables in NumPy's format. If the
file cannot be read, the exit code is above 0, and the reason is on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.matlab_rules import REFUSED, odd_cells, refuse_odd_class
from crnr_cli.sources.readers import BEST_RATIO


def read(path: Path, wanted: Collection[str]) -> tuple[dict[str, list[int]], dict[str, Array]]:
    """The shapes of all variables, and the wanted variables."""
    from scipy.io import loadmat, whosmat  # imported here, as SciPy is slow to import

    listed = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
    found = [name for name in listed if name in wanted]
    for name in found:
        shape, kind = listed[name]
        refuse_odd_class(path, name, kind)
        if np.prod([float(side) for side in shape]) > BEST_RATIO * path.stat().st_size:
            raise DataError(f"{path}: {name} declares more data than the file can contain")
    loaded = loadmat(str(path), variable_names=found) if found else {}
    shapes = {name: [int(side) for side in shape] for name, (shape, _) in listed.items()}
    return shapes, {name: _plain(path, name, loaded[name]) for name in found}


def _plain(path: Path, name: str, array: Array) -> Array:
    """Cells and matrices of characters as an array of text; numbers as they are."""
    if array.dtype.kind == "U":
        return np.array([text.rstrip() for text in array.ravel().tolist()])
    if array.dtype != object:
        return array
    texts = [cell for cell in array.ravel() if isinstance(cell, np.ndarray) and cell.dtype.kind == "U"]
    if len(texts) < array.size or any(text.size > 1 for text in texts):
        raise odd_cells(path, name)
    return np.array(["".join(text.ravel().tolist()) for text in texts])


def _fail(message: str, code: int) -> NoReturn:
    sys.stderr.buffer.write(os.fsencode(message))
    sys.exit(code)


def main() -> None:
    try:
        shapes, arrays = read(Path(sys.argv[1]), sys.argv[2:])
    except DataError as e:
        _fail(str(e), REFUSED)
    except Exception as e:  # the parser may raise anything on a damaged file; the user sees its message
        _fail(" ".join(str(e).split()) or type(e).__name__, 1)
    header = json.dumps({"shapes": shapes, "arrays": list(arrays)})
    sys.stdout.buffer.write(header.encode() + b"\n")
    for array in arrays.values():
        np.save(sys.stdout.buffer, array, allow_pickle=False)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
