"""Fitting a method to samples makes a gallery, which can be written to a file."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery.file import save_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.samples import LabelledVectors, LeftOut, Note, count_skipped
from crnr_cli.methods import Method, Samples
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.system import memory
from crnr_cli.system.files import replacing
from crnr_cli.wording import counted


@dataclass(frozen=True)
class BuildReport:
    """A gallery that was written, and what the user should know about it."""

    gallery: Gallery
    seconds: float
    file_bytes: int
    left_out: list[LeftOut]
    notes: list[Note]

    @property
    def skipped(self) -> int:
        """Samples that were left out, not counting unrelated files."""
        return count_skipped(self.left_out)


def make_gallery(labelled: LabelledVectors, method: Method) -> Gallery:
    """Sort the samples by class, in name order, and fit the method to them."""
    classes, order, class_index = sort_by_class(labelled.labels)
    samples = Samples.of(labelled.vectors[order], class_index)
    refuse_unfittable(method, samples)
    if len(classes) == 1:
        text = f"only one class, {classes[0]}: classify will refuse this gallery"
        labelled.notes.append(Note("one class", text))
    labelled.notes += _in_two_classes(labelled)
    with np.errstate(over="ignore"):  # an overflow is found when the gallery is saved
        state = method.fit(samples)
    return Gallery(
        samples=samples,
        names=[labelled.names[i] for i in order],
        hashes=[labelled.hashes[i] for i in order],
        stamps=[labelled.stamps[i] for i in order] if labelled.stamps else [],
        classes=classes,
        recipe=labelled.recipe,
        method=method,
        state=state,
    )


def write_gallery(gallery: Gallery, output: Path) -> int:
    """Write the complete file or, if that fails, nothing; returns its size."""
    with replacing(output) as part:
        save_gallery(gallery, part)
        return part.stat().st_size


def sort_by_class(labels: Sequence[str]) -> tuple[list[str], Array, Array]:
    """The classes in name order, the order that sorts the samples by class, and the sorted class index."""
    classes = sorted(set(labels))
    _refuse_lookalikes(classes)
    _refuse_reserved(classes)
    position = {name: i for i, name in enumerate(classes)}
    class_index = np.array([position[label] for label in labels])
    order = np.argsort(class_index, kind="stable")
    return classes, order, class_index[order]


def refuse_unfittable(method: Method, samples: Samples) -> None:
    n, d = samples.vectors.shape
    memory.require(
        method.fit_bytes(samples),
        f"fitting {method.name} to {counted(n, 'sample')} of dimension {d}",
        "use --pca or fewer samples",
    )


def _in_two_classes(labelled: LabelledVectors) -> list[Note]:
    """Notes on samples with the same content in two classes: at most one of these can be right."""
    seen: dict[str, int] = {}
    notes = []
    for i, content in enumerate(labelled.hashes):
        first = seen.setdefault(content, i)
        if labelled.labels[first] != labelled.labels[i]:
            text = (
                f"the same content in two classes: {labelled.names[first]} ({labelled.labels[first]}) and "
                f"{labelled.names[i]} ({labelled.labels[i]})"
            )
            notes.append(Note("in two classes", text))
    return notes


def _refuse_lookalikes(classes: Sequence[str]) -> None:
    """Refuse two names that a file system or a person may take for the same."""
    seen: dict[str, str] = {}
    for name in classes:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if other != name:
            # As ASCII, because two Unicode forms of one name look the same.
            raise DataError(f"classes {other!a} and {name!a} differ only in case or Unicode form; rename one")


def _refuse_reserved(classes: Sequence[str]) -> None:
    for name in classes:
        if unicodedata.normalize("NFC", name).casefold() == UNKNOWN:
            raise DataError(f"class {name!r}: this name is reserved for rejected queries; rename the class")
