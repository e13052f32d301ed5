"""Fitting a method to samples makes a gallery, which can be written to a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery.copies import copy_notes
from crnr_cli.gallery.file import save_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.samples import ReadSamples, Report
from crnr_cli.methods import Method, Samples, State, fitted
from crnr_cli.methods.fitting import indexed
from crnr_cli.methods.folds import copies_of
from crnr_cli.methods.local import measured_by
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.system.files import replacing
from crnr_cli.system.names import class_key
from crnr_cli.wording import Note

_WANTED_AGREEMENT = 0.99  # less than an index aims for, which it measures on few samples


@dataclass(frozen=True)
class BuildReport(Report):
    """A gallery that was written, and what the user should know about it."""

    gallery: Gallery
    seconds: float
    file_bytes: int


def make_gallery(
    read: ReadSamples, method: Method, progress: Progress = silent
) -> tuple[Gallery, list[Note]]:
    """Sort the samples by class, in name order, and fit the method to them; return notes too."""
    classes, order, class_index = sort_by_class(read.table.labels, read.recipe.kind)
    in_order = read.take(order)  # vectors in a file are in order already, and are not copied to memory
    samples = Samples.of(in_order.values, class_index, read.recipe.part_edges)
    notes: list[Note] = []
    if len(classes) == 1:
        text = f"only one class, {classes[0]}: classify will refuse this gallery"
        notes.append(Note("one class", text))
    notes += copy_notes(read.table, copies_of(read.values, read.table.hashes))
    index = indexed(method, samples, progress)
    notes += index_notes(index)
    gallery = Gallery(
        samples=samples,
        table=in_order.table,
        classes=classes,
        recipe=read.recipe,
        method=method,
        state=fitted(method, samples) | index,
    )
    return gallery, notes


def write_gallery(gallery: Gallery, output: Path) -> int:
    """Write the complete file or, if that fails, nothing; returns its size."""
    with replacing(output) as file:
        save_gallery(gallery, file)
        return os.fstat(file.fileno()).st_size


def sort_by_class(labels: Sequence[str], kind: str = "pictures") -> tuple[list[str], Array, Array]:
    """The classes in name order, the order that sorts the samples by class, and the sorted class index."""
    classes = sorted(set(labels))
    _refuse_lookalikes(classes, are_folders=kind == "pictures")
    _refuse_reserved(classes)
    position = {name: i for i, name in enumerate(classes)}
    class_index = np.array([position[label] for label in labels])
    order = np.argsort(class_index, kind="stable")
    return classes, order, class_index[order]


def _refuse_lookalikes(classes: Sequence[str], are_folders: bool) -> None:
    """Refuse two names that look the same or, as folders, are the same for some file systems."""
    seen: dict[str, str] = {}
    for name in classes:
        form = class_key(name)
        other = seen.setdefault(form.casefold() if are_folders else form, name)
        if other != name:
            how = "case or Unicode form" if are_folders else "their Unicode form"
            # As ASCII, because two Unicode forms of one name look the same.
            raise DataError(f"classes {other!a} and {name!a} differ only in {how}; rename one")


def _refuse_reserved(classes: Sequence[str]) -> None:
    for name in classes:
        if class_key(name).casefold() == UNKNOWN:
            raise DataError(f"class {name!r}: this name is reserved for rejected queries; rename the class")


def index_notes(state: State) -> list[Note]:
    """Report an index with which too many labels are not those of the exact search."""
    measured = measured_by(state)
    if measured is None or measured.agreement >= _WANTED_AGREEMENT:
        return []
    text = (
        f"with the index, {100 * measured.agreement:.1f} % of the labels are those of the exact search; "
        "`crnr tune` may find settings that depend less on single samples, and --index exact is exact"
    )
    return [Note("index", text)]
