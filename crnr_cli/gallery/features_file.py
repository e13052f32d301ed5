"""The feature file that `crnr extract` writes: raw values and their origins.

docs/reference/features-format.md describes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.gallery import Table, to_bytes, to_numbers
from crnr_cli.gallery.hdf5_output import to_attributes, written_hdf5
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.formats.hdf5 import FEATURES, FEATURES_VERSION
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system.names import stat_or_none

ENDINGS = (".h5", ".hdf5")
_LARGEST = 2**63


@dataclass(frozen=True)
class FeatureRows(Table):
    """The facts about rows of raw values."""

    names: Sequence[str] = field(default_factory=list)
    candidates: Sequence[tuple[str, ...]] = field(default_factory=list)  # possible classes, the best first
    named: Sequence[str] = field(
        default_factory=list
    )  # the folder that the user named, if it may be the class
    hashes: Sequence[str] = field(default_factory=list)
    stamps: Sequence[Stamp] = field(default_factory=list)
    scales: Sequence[float] = field(default_factory=list)
    dates: Sequence[str] = field(default_factory=list)  # when the photographs were taken; empty if unknown

    @classmethod
    def of(cls, file: FeatureFile) -> FeatureRows:
        """Return the rows of a file that `crnr extract` wrote."""
        assert file.origins is not None
        return cls(
            list(file.names),
            file.candidates(0, len(file)),
            list(file.origins.named or [""] * len(file)),
            list(file.origins.hashes),
            list(file.origins.stamps),
            list(file.origins.scales or [1.0] * len(file)),
            list(file.origins.dates or [""] * len(file)),
        )

    def as_plain(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return vars(self)

    @classmethod
    def from_plain(cls, values: Any) -> FeatureRows:
        """Return rows from plain values; ValueError, LookupError or TypeError if they are invalid."""
        rows = cls(
            _texts(values["names"]),
            [tuple(_texts(found)) for found in values["candidates"]],
            _texts(values["named"]),
            _texts(values["hashes"]),
            [Stamp(int(size), int(time)) for size, time in values["stamps"]],
            [float(scale) for scale in values["scales"]],
            _texts(values["dates"]),
        )
        if len({len(column) for column in vars(rows).values()}) != 1:
            raise ValueError("columns of different lengths")
        if not all(-_LARGEST <= number < _LARGEST for stamp in rows.stamps for number in stamp):
            raise ValueError("a size or a time is out of range")
        return rows


def open_extracted_file(path: Path) -> FeatureFile:
    """Open a file that `crnr extract` wrote."""
    require_ending(path)
    file = FeatureFile.open(path, Keys())
    if file.origins is None:
        raise DataError(f"{path}: not written by `crnr extract`; give another file")
    return file


def has_content(path: Path) -> bool:
    """Return whether the file exists and is not empty, as mktemp leaves it."""
    found = stat_or_none(path)
    return found is not None and found.st_size > 0


def require_ending(path: Path) -> None:
    """Raise UsageError unless the file name ends in .h5 or .hdf5."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path}: a feature file must be named .h5; give a name that ends in {' or '.join(ENDINGS)}"
        )


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("not a list of texts")
    to_bytes(values)  # ValueError if they cannot be stored
    return values


def write_features(
    file: BinaryIO, recipe: Recipe, rows: FeatureRows, values: Iterable[Array], dtype: np.dtype[Any]
) -> None:
    """Write the complete file; the values come in blocks of rows, and need not be in memory."""
    arrays = {
        "paths": to_bytes(rows.names),
        "sha256": to_bytes(rows.hashes),
    }
    arrays["size"], arrays["mtime_ns"] = to_numbers(rows.stamps)
    if any(rows.candidates):
        arrays["labels"] = to_bytes([next(iter(found), "") for found in rows.candidates])
    if (depth := max(map(len, rows.candidates)) - 1) > 0:
        padded = [(*found[1:], *[""] * depth)[:depth] for found in rows.candidates]
        arrays["folders"] = to_bytes([name for found in padded for name in found]).reshape(len(rows), depth)
    if any(rows.named):
        arrays["named_folder"] = to_bytes(rows.named)
    if any(scale != 1 for scale in rows.scales):
        arrays["scale"] = np.array(rows.scales, dtype=np.float64)
    if any(rows.dates):
        arrays["date"] = to_bytes(rows.dates)
    with written_hdf5(file) as content:
        content.attrs.update(
            to_attributes({"format": FEATURES, "version": FEATURES_VERSION, "crnr_version": __version__})
        )
        content.create_group("recipe").attrs.update(to_attributes(recipe.to_stored().attributes))
        features = content.create_dataset("features", (len(rows), recipe.n_inputs), dtype)
        start = 0
        for block in values:
            features[start : start + len(block)] = block
            start += len(block)
        for name, array in arrays.items():
            content.create_dataset(name, data=array)
