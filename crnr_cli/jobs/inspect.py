"""Inspect: list the arrays of a feature file, and the ones that crnr would use."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import Keys, is_table, reader_of
from crnr_cli.sources.formats.choice import FoundArray, choose_arrays, list_arrays
from crnr_cli.sources.formats.hdf5 import declares_gallery
from crnr_cli.system.names import quote_word, stat_or_none
from crnr_cli.wording import Note


@dataclass(frozen=True)
class Taken:
    """The arrays that are read if the user names none."""

    features: str
    axis: int  # of the samples, counted from 0
    samples: int
    numbers: int  # per sample
    labels: str | None
    classes: int | None
    names: str | None


@dataclass(frozen=True)
class FileReport:
    path: Path
    bytes: int
    arrays: list[FoundArray]
    taken: Taken | None
    problem: str | None  # why no arrays are chosen
    notes: list[Note]


def is_feature_file(path: Path) -> bool:
    """Return whether name and content are of a feature file; damaged HDF5 may have been a gallery."""
    if not is_table(path):
        return False
    found = declares_gallery(path) if os.path.isfile(path) else None  # noqa: PTH113, which raises if access is denied
    return found is False or (found is None and path.suffix.lower() not in (".h5", ".hdf5"))


def inspect(path: Path) -> FileReport:
    found = stat_or_none(path)
    if found is None or not stat.S_ISREG(found.st_mode):  # reading a pipe would block
        raise DataError(f"{path}: no such file")
    reader = reader_of(path)
    arrays = reader.read(path, {"features", "labels", "paths"})
    all_arrays = list_arrays(path, reader, arrays)
    try:
        choice = choose_arrays(path, reader, Keys())
        is_extracted = bool(reader.recipe and reader.recipe(path))
    except DataError as e:
        return FileReport(path, found.st_size, all_arrays, None, str(e), [])
    samples, numbers = choice.values.shape
    taken = Taken(
        features=choice.features,
        axis=choice.axis,
        samples=int(samples),
        numbers=int(numbers),
        labels=choice.labels_from,
        classes=None if choice.labels is None else len(set(choice.labels)),
        names=choice.names_from,
    )
    notes = [Note("source", text) for text in choice.notes]
    if is_extracted:
        command = f"crnr build {quote_word(str(path))}"
        text = f"{path}: written by `crnr extract`; `{command}` builds a gallery from it"
        notes.append(Note("extracted", text))
    return FileReport(path, found.st_size, all_arrays, taken, None, notes)
