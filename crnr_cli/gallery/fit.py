"""Fit a method to samples, which makes a gallery that can be written to a file."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Array, Batch
from crnr_cli.errors import DataError
from crnr_cli.gallery.file import save_gallery
from crnr_cli.gallery.gallery import FittedGallery, SampleTable
from crnr_cli.gallery.samples import ReadSamples, Report
from crnr_cli.methods import Method, Samples, State, fit_method
from crnr_cli.methods.base import make_indexes, reorder_state
from crnr_cli.methods.by_neighbors import worst_index_measurement
from crnr_cli.methods.folds import group_copies
from crnr_cli.methods.nonnegative import Crnr
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.sources.tables import row_hash
from crnr_cli.system.files import replacing
from crnr_cli.system.names import class_key
from crnr_cli.wording import Note, format_count, is_or_are

WHITENED_MU = 1.0  # of crnr, for vectors that are whitened
_WANTED_AGREEMENT = 0.99  # below the target of an index, which is measured on few samples
_NAMED = 3  # classes that a note names
_TOLERANCE = 1e-5  # between unit vectors of the same image, which other batches round differently


@dataclass(frozen=True)
class BuildReport(Report):
    """A gallery that was written, with notes for the user."""

    gallery: FittedGallery
    seconds: float
    file_bytes: int


def suit_to_vectors(method: Method, recipe: Recipe, given: Collection[str]) -> Method:
    """Return the method with the mu that suits whitened vectors, unless mu is among the given parameters.

    Only crnr with all samples has been measured: see benchmarks/README.md.
    """
    if recipe.whitening is None or not isinstance(method, Crnr) or "mu" in given:
        return method
    return replace(method, mu=WHITENED_MU)


def make_gallery(
    read: ReadSamples, method: Method, progress: Progress = silent, old: FittedGallery | None = None
) -> tuple[FittedGallery, list[Note]]:
    """Sort the samples by class, in name order, and fit the method to them; return notes too.

    Notes on classes that the `old` gallery has in the same state are not repeated.
    """
    classes, order, class_index = sort_by_class(read.table.labels, read.recipe.kind)
    in_order = read.take(order)  # vectors in a file are in order already, and stay there
    samples = Samples.of(in_order.values, class_index, read.recipe.part_edges)
    notes: list[Note] = []
    if len(classes) == 1:
        text = f"only one class, {classes[0]}: add another with `crnr add GALLERY FOLDER --class NAME`"
        notes.append(Note("one class", text))
    notes += _note_single_examples(samples, classes, old)
    notes += notes_on_copies(read.table, group_copies(read.values, read.table.hashes))
    index = make_indexes(method, samples, progress)
    notes += index_notes(index)
    gallery = FittedGallery(
        samples=samples,
        table=in_order.table,
        classes=classes,
        recipe=read.recipe,
        method=method,
        state=fit_method(method, samples) | index,
        event_gap=read.event_gap,
    )
    return gallery, notes


def fit_again(
    old: FittedGallery, read: ReadSamples, progress: Progress = silent
) -> tuple[FittedGallery, list[Note]]:
    """Return the gallery with these samples, and notes; the method is fitted only if it has to be."""
    if gallery := _keep_state(old, read):
        notes: list[Note] = []
    else:
        if read.recipe.whitening:
            recipe, vectors = read.recipe.refit_whitening(read.values, read.class_index())
            read = replace(read, recipe=recipe, values=vectors)
        gallery, notes = make_gallery(read, old.method, progress, old)
        gallery = replace(gallery, label_type=old.label_type)
    if old.calibration is None or gallery.calibration is not None:
        return gallery, notes
    try:
        return gallery.calibrate(1, progress), notes
    except DataError as e:  # a calibration of other samples would be wrong
        return gallery, [*notes, Note("calibration", f"the calibration is removed: {e}")]


def _note_single_examples(samples: Samples, classes: Sequence[str], old: FittedGallery | None) -> list[Note]:
    """Return a note on classes that have one example now, and had more or none in the old gallery."""
    known = set(_single_examples(old.samples, old.classes)) if old else set()
    found = [name for name in _single_examples(samples, classes) if name not in known]
    if not found:
        return []
    names = ", ".join(found[:_NAMED])
    further = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    have = "class {} has only one example" if len(found) == 1 else "classes {} have only one example each"
    text = (
        f"{have.format(names + further)}, which crnr cannot hold out: --calibrate, tune, compare and audit "
        "do not test such a class; add more examples"
    )
    return [Note("single example", text)]


def _single_examples(samples: Samples, classes: Sequence[str]) -> list[str]:
    return [classes[k] for k in np.flatnonzero(np.diff(samples.edges) == 1).tolist()]


def _keep_state(old: FittedGallery, read: ReadSamples) -> FittedGallery | None:
    """Return the gallery if it has the same samples, maybe with other names of the classes; else None.

    The calibration depends on the order of the classes, because samples are held out in this order.
    """
    table = read.table
    if read.values is old.samples.vectors and table.labels == old.table.labels:  # other names at most
        return replace(old, table=table)
    classes, order, _ = sort_by_class(table.labels, read.recipe.kind)
    in_order = table.take(order)
    if _are_equal(in_order, old.table) and in_order.labels == old.table.labels:
        return replace(old, table=in_order)
    if not _are_equal(table, old.table):
        return None
    pairs = set(zip(old.table.labels, table.labels, strict=True))
    if not len(pairs) == len(old.classes) == len(classes):  # not one new name for each class
        return None
    places = {name: number for number, name in enumerate(old.classes)}
    former = {new: places[name] for name, new in pairs}
    numbers = np.array([former[name] for name in classes])
    state = reorder_state(old.method, old.samples, old.state, numbers)
    if state is None:
        return None
    is_same_order = state is old.state
    samples = old.samples
    if not is_same_order:
        class_index = np.repeat(np.arange(len(classes)), np.diff(samples.edges)[numbers])
        samples = Samples.of(samples.vectors[order], class_index, samples.parts)
    calibration = old.calibration if is_same_order else None
    return replace(
        old, samples=samples, table=in_order, classes=classes, state=state, calibration=calibration
    )


def _are_equal(one: SampleTable, other: SampleTable) -> bool:
    """Return whether names and contents are the same, in the same order."""
    return one.names == other.names and one.hashes == other.hashes


def write_gallery(gallery: FittedGallery, output: Path) -> int:
    """Write the complete file or, if that fails, nothing; return its size."""
    with replacing(output) as file:
        save_gallery(gallery, file)
        return os.fstat(file.fileno()).st_size


def sort_by_class(labels: Sequence[str], kind: str = "pictures") -> tuple[list[str], Array, Array]:
    """Return the classes in name order, the order that sorts samples by class, and their class index."""
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
    """Return a note if the index changes too many labels, compared with the exact search."""
    measured = worst_index_measurement(state)
    if measured is None or measured.agreement >= _WANTED_AGREEMENT:
        return []
    text = (
        f"with the index, {100 * measured.agreement:.1f}% of the labels agree with the exact search; "
        "`crnr tune` may find better settings, and --index exact makes no errors"
    )
    return [Note("index", text)]


@dataclass(frozen=True)
class KnownSamples:
    """The samples of a gallery, to find copies among queries.

    Rows of features are the same if their hashes are. Images are the same if their vectors are, because a
    copy in another file format has another hash. Vectors can be equal only if their projections on a line
    are.
    """

    hashes: frozenset[str]
    vectors: Array | None  # (n, d); None for features
    line: Array  # (d,)
    order: Array  # the samples, sorted by their projection
    projections: Array  # ascending

    @classmethod
    def of(cls, kind: str, hashes: Sequence[str], vectors: Array) -> KnownSamples:
        line: Array = np.random.default_rng(0).standard_normal((vectors.shape[1],)).astype(vectors.dtype)
        line /= np.linalg.norm(line)
        projections = vectors @ line
        order = np.argsort(projections)
        return cls(
            frozenset(hashes), vectors if kind == "pictures" else None, line, order, projections[order]
        )

    def known_mask(self, hashes: Sequence[str], vectors: Array) -> Array:
        """Return a mask of the given samples that are in the gallery, by hashes and unit vectors."""
        found = np.array([name in self.hashes for name in hashes], dtype=bool)
        if self.vectors is None:
            return found
        places = vectors @ self.line
        first = np.searchsorted(self.projections, places - 2 * _TOLERANCE, side="left")
        last = np.searchsorted(self.projections, places + 2 * _TOLERANCE, side="right")
        for i in np.flatnonzero((last > first) & ~found).tolist():
            near = self.vectors[self.order[first[i] : last[i]]] - vectors[i]
            found[i] = bool((np.einsum("nd,nd->n", near, near) <= _TOLERANCE**2).any())
        return found

    def names_in_batch(self, raw: Batch, vectors: Batch) -> list[str]:
        """Return the names of a batch's samples that are in the gallery; `raw` is the batch as read."""
        rows = vectors.rows.tolist()
        if self.vectors is None:
            row_of = {sample: row for row, sample in enumerate(raw.rows.tolist())}
            hashes = [row_hash(raw.values[row_of[sample]]) for sample in rows]
        else:
            hashes = [""] * len(rows)
        mask = self.known_mask(hashes, vectors.values)
        return [vectors.names[sample] for sample, known in zip(rows, mask.tolist(), strict=True) if known]


def copies_note(copies: Sequence[str], total: int) -> str:
    """Return a note on test samples that are also in the gallery."""
    return (
        f"{len(copies)} of {format_count(total, 'query')} {is_or_are(len(copies))} in the gallery too, "
        f"such as {copies[0]}, so the scores are too high; test with queries that are not in the gallery"
    )


def notes_on_copies(table: SampleTable, copies: Array) -> list[Note]:
    """Return notes on copies: in one class they add nothing, and in two classes at most one is right."""
    names, labels = table.names, table.labels
    again = np.flatnonzero(copies != np.arange(len(copies)))
    pairs = list(zip(copies[again].tolist(), again.tolist(), strict=True))
    notes = [
        Note(
            "in two classes",
            f"the same content in two classes: {names[first]} ({labels[first]}) and {names[i]} ({labels[i]})",
        )
        for first, i in pairs
        if labels[first] != labels[i]
    ]
    alike = [(first, i) for first, i in pairs if labels[first] == labels[i]]
    if alike:
        first, i = alike[0]
        what = "is a copy" if len(alike) == 1 else "are copies"
        pair = f"such as {names[i]} of {names[first]}"
        text = f"{format_count(len(alike), 'example')} {what} of others in the same class, {pair}"
        notes.append(Note("copies", text))
    return notes
