"""A process that reads a MATLAB file up to v7 for another: SciPy's parser crashes on some damaged files.

Its arguments are the path and the names of the wanted variables. It replies with one line of JSON, the shapes
of all variables and the names of those that follow, and then with these as arrays in NumPy's format; or with
an exit code above 0 and, on stderr, what is wrong with the file.
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

_MOST_DEFLATED = 1032  # zlib packs at most this many bytes into one


def read(path: Path, wanted: Collection[str]) -> tuple[dict[str, list[int]], dict[str, Array]]:
    """The shapes of all variables, and the wanted variables."""
    from scipy.io import loadmat, whosmat  # imported late: nothing else here needs it

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
    except Exception as e:  # the parser may raise anything on a broken file; its message goes to the user
        _fail(" ".join(str(e).split()) or type(e).__name__, 1)
    header = json.dumps({"shapes": shapes, "arrays": list(arrays)})
    sys.stdout.buffer.write(header.encode() + b"\n")
    for array in arrays.values():
        np.save(sys.stdout.buffer, array, allow_pickle=False)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
