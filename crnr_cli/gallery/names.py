"""The names in a gallery, without reading and checking all of it: for the completion of a shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import h5py

_MAX_BYTES = 2**24  # of names: more would keep a shell waiting


def stored_names(path: Path, of: Literal["classes", "samples"]) -> list[str]:
    """The names of all classes or samples; none if the file is not a gallery or has too many of them."""
    try:
        with h5py.File(path) as file:
            names = file[f"{of}/names"]
            if names.dtype.kind != "S" or names.ndim != 1 or names.nbytes > _MAX_BYTES:
                return []
            return [os.fsdecode(name) for name in names[()].tolist()]
    except (OSError, LookupError, AttributeError, TypeError, ValueError, RuntimeError):
        return []
