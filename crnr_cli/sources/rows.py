"""Rows of features that are in memory, not in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError
from crnr_cli.sources.tables import FeatureFile, Features

_NO_FILE = Path("the array")  # in the place of a path, in messages


@dataclass(frozen=True)
class _Rows(FeatureFile):
    def rows(self, start: int, stop: int) -> Array:
        values: Array = self.values[start:stop]
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def rows_as_source(values: Array) -> Features:
    """A source of the rows of a table, which are named "row 0" and so on, and have no labels."""
    if values.ndim != 2 or values.dtype.kind not in "fiub" or 0 in values.shape[1:]:
        raise DataError(
            f"{_NO_FILE}: features must be a table of numbers with one row per sample, "
            f"but are {values.dtype} of shape {values.shape}"
        )
    return Features([_Rows(_NO_FILE, Stamp(), values, None, [f"row {row}" for row in range(len(values))])])
