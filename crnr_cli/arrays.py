"""Arrays, and the batch that carries them from a source to the CSV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crnr_cli.errors import SampleError

Array = npt.NDArray[Any]


class Stamp(NamedTuple):
    """Size and mtime of a file: if both are the same, it is taken as unchanged. Zero if unknown."""

    size: int = 0
    mtime_ns: int = 0

    @classmethod
    def of(cls, result: os.stat_result) -> Stamp:
        return cls(result.st_size, result.st_mtime_ns)


@dataclass(frozen=True)
class Batch:
    """Consecutive samples of a listing, on their way from a source to the CSV.

    `values` has one row per sample without an error: pixels or features as read, then raw values, then unit
    vectors, and finally residuals. `rows` maps these rows to samples.
    """

    names: list[str]
    errors: list[SampleError | None]  # why a sample has no values
    values: Array
    end: int  # number of samples in the listing up to the end of this batch
    candidates: list[tuple[str, ...]] = field(default_factory=list)  # possible classes, the best first
    hashes: list[str] = field(default_factory=list)  # SHA-256 of each file; empty strings unless requested
    stamps: list[Stamp] = field(default_factory=list)  # of each sample's file
    # For each picture, the factor that brings its values to those of an 8-bit picture; empty if all are 1.
    scales: list[float] = field(default_factory=list)

    @cached_property
    def rows(self) -> Array:
        """The index of the sample that each row of `values` belongs to."""
        return np.flatnonzero([error is None for error in self.errors])

    def failed(self) -> list[tuple[int, SampleError]]:
        """The samples with an error, by their index."""
        if len(self.rows) == len(self.names):
            return []
        return [(sample, error) for sample, error in enumerate(self.errors) if error]

    def with_values(self, values: Array, faults: Sequence[SampleError | None] = ()) -> Batch:
        """The same samples with new values. `faults` has, per row, the reason to drop the sample, or None."""
        if not any(faults):
            return replace(self, values=values)
        errors = list(self.errors)
        for sample, fault in zip(self.rows.tolist(), faults, strict=True):
            errors[sample] = fault
        return replace(self, errors=errors, values=values[[fault is None for fault in faults]])
