"""The origins of rows, the part of a feature file that only `crnr extract` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, Stamp, take_rows
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Refused
from crnr_cli.sources.formats.labels import read_at_once, read_texts, require_room
from crnr_cli.system.names import class_key
from crnr_cli.wording import format_count

DATASETS = ("sha256", "size", "mtime_ns", "folders", "named_folder", "scale", "date")

_BYTES_PER_ROW = 500
_SHA256 = re.compile("[0-9a-f]{64}")
_ROWS_PER_RUN = 64  # rows further apart than this are read separately


@dataclass(frozen=True)
class Origins:
    """For every row, the facts that a gallery stores about the row's image file."""

    recipe: Mapping[str, Any]  # the description of the extractor, as a gallery stores it
    hashes: list[str]  # SHA-256 of the file's content
    stamps: list[Stamp]
    folders: list[tuple[str, ...]] | None  # further folders that may name the class; None without any
    named: list[str] | None  # the folder that the user named, if the file is directly in it
    scales: list[float] | None  # see Batch; None: all are 1
    dates: list[str] | None  # when the photographs were taken; None: unknown

    @classmethod
    def read(cls, path: Path, arrays: Mapping[str, Any], recipe: Mapping[str, Any], count: int) -> Origins:
        """Read the metadata of an untrusted feature file with `count` rows."""
        require_room(path, count, _BYTES_PER_ROW, "rows")
        found: dict[str, Any] = {}
        for name in DATASETS:
            if name in arrays:
                found[name] = _check_dataset(path, name, arrays[name], count)
        if missing := [name for name in ("sha256", "size", "mtime_ns") if name not in found]:
            raise DataError(f"{path}: the array '{missing[0]}' is missing; extract the file again")
        hashes = read_texts(path, found["sha256"])
        if not all(map(_SHA256.fullmatch, hashes)):
            raise DataError(
                f"{path}: the array 'sha256' contains something else than hashes; extract the file again"
            )
        sizes, times = (read_at_once(path, found[name]).tolist() for name in ("size", "mtime_ns"))
        scales = read_at_once(path, found["scale"]) if "scale" in found else None
        if scales is not None and not np.isfinite(scales).all():
            raise DataError(
                f"{path}: the array 'scale' contains values that are not numbers; extract the file again"
            )
        folders = None
        if "folders" in found:
            names = read_texts(path, found["folders"])
            depth = found["folders"].shape[1]
            rows = (names[i : i + depth] for i in range(0, len(names), depth))
            folders = [tuple(filter(None, row)) for row in rows]
        return cls(
            recipe=recipe,
            hashes=hashes,
            stamps=[Stamp(size, time) for size, time in zip(sizes, times, strict=True)],
            folders=folders,
            named=read_texts(path, found["named_folder"]) if "named_folder" in found else None,
            scales=None if scales is None else scales.tolist(),
            dates=read_texts(path, found["date"]) if "date" in found else None,
        )

    @property
    def are_images(self) -> bool:
        return bool(self.recipe.get("kind") == "pictures")

    def candidates(self, row: int, label: str, classes: Mapping[str, str]) -> tuple[str, ...]:
        """Return the possible classes of an image, best first; a named folder must be in `classes`."""
        if label:
            return (label, *(self.folders[row] if self.folders else ()))
        named = self.named[row] if self.named else ""
        found = classes.get(class_key(named)) if named else None
        return () if found is None else (found,)

    def take(self, rows: Sequence[int]) -> Origins:
        """Return the origins of some of the rows."""
        columns = {name: column for name, column in vars(self).items() if name != "recipe" and column}
        taken: dict[str, Any] = {name: take_rows(column, rows) for name, column in columns.items()}
        return replace(self, **taken)


def _check_dataset(path: Path, name: str, array: Any, count: int) -> Any:
    """Return a dataset with one entry, or several folders, per row, after checking its type."""
    if isinstance(array, Refused):
        raise DataError(f"{path}: the array '{name}' {array.why}")
    kind = {"size": "i", "mtime_ns": "i", "scale": "f"}.get(name, "S")
    n_axes = 2 if name == "folders" else 1
    if len(array.shape) != n_axes or array.shape[0] != count or 0 in array.shape or array.dtype.kind != kind:
        raise DataError(
            f"{path}: the array '{name}' is {array.dtype} of shape {array.shape}, which does not match "
            f"the {format_count(count, 'row')} of features; extract the file again"
        )
    if name == "folders":
        require_room(path, array.shape[0] * array.shape[1], array.dtype.itemsize, "folders")
    return array


@dataclass(frozen=True)
class PickedRows:
    """Some rows of a table, in any order, which are read by slices."""

    values: Any  # (n, d): an array, or a dataset that is read by slices
    rows: Array

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, where: slice) -> Array:
        """Return rows; neighbouring rows are read at once, because every access takes time."""
        wanted = self.rows[where]
        out = np.empty((len(wanted), self.shape[1]), self.dtype)
        order = np.argsort(wanted, kind="stable")
        ascending = wanted[order]
        gaps = np.flatnonzero(np.diff(ascending) > _ROWS_PER_RUN) + 1
        for places in np.split(order, gaps) if len(order) else ():
            first, last = int(wanted[places[0]]), int(wanted[places[-1]])
            out[places] = np.asarray(self.values[first : last + 1])[wanted[places] - first]
        return out
