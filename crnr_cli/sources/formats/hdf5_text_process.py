"""A process that reads variable-length text from an HDF5 file for its parent.

HDF5 follows the pointers in such text, endlessly if they are damaged or malicious. The arguments are the
file, the dataset, and its attribute if the text is in one; the output is a JSON list.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import h5py

from crnr_cli.system.child import limit_address_space, limit_cpu_time

BASE_BYTES = 2**30  # of address space, for Python and HDF5 themselves
_BYTES_PER_BYTE = 16  # of address space per byte of the file, for the objects and the JSON
_SECONDS = 4.0  # of work on a core, besides the texts
_TEXTS_PER_SECOND = 100_000  # the minimum


def text_memory_limit(path: Path) -> int:
    return BASE_BYTES + _BYTES_PER_BYTE * path.stat().st_size


def text_seconds_limit(texts: int) -> float:
    """Return the time limit in seconds of work."""
    return _SECONDS + texts / _TEXTS_PER_SECOND


def print_texts() -> None:
    path, name, *attribute = sys.argv[1:]
    limit_address_space(text_memory_limit(Path(path)))
    limit_cpu_time(_SECONDS)
    with h5py.File(path, "r", locking=False) as file:
        if attribute:
            values = [file[name].attrs[attribute[0]]]
        else:
            limit_cpu_time(text_seconds_limit(math.prod(file[name].shape)))
            values = file[name][()].ravel().tolist()
    json.dump([value if isinstance(value, str) else _text(value) for value in values], sys.stdout)


def _text(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} instead of text")
    return value.decode("utf-8", "surrogateescape")


if __name__ == "__main__":
    print_texts()
