"""Arrays, and what carries them from room to room."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy.typing as npt

Array = npt.NDArray[Any]


class Stamp(NamedTuple):
    """Size and mtime of a file: enough to believe it unchanged without reading it. All zero if unknown."""

    size: int = 0
    mtime_ns: int = 0

    @classmethod
    def of(cls, about: os.stat_result) -> Stamp:
        return cls(about.st_size, about.st_mtime_ns)
