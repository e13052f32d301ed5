"""Audit: find wrong labels, copies and outliers, each sample classified by the others."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crnr_cli.errors import UsageError
from crnr_cli.gallery.duplicates import Looks, find_exact_copies, find_near_pairs, group_pairs, read_looks
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.fit import KnownSamples, sort_by_class, suit_to_vectors
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.hdf5_contents import is_gallery
from crnr_cli.gallery.queries import with_model_at
from crnr_cli.gallery.reading import refuse_mismatch
from crnr_cli.gallery.samples import (
    LeftOut,
    Reading,
    ReadSamples,
    Report,
    read_by_recipe,
    read_samples,
    require_samples,
)
from crnr_cli.gallery.scenes import SameScene, find_same_scenes
from crnr_cli.gallery.suspects import (
    FOLDS,
    AlikeClasses,
    Comparison,
    Folds,
    Outlier,
    RankedLabel,
    Suspect,
    compare_samples,
    find_alike_classes,
    find_outliers,
    find_small_classes,
    find_suspects,
    rank_labels,
)
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import Samples, make_method
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.sources.opening import open_examples, open_source
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.wording import Note, format_count, is_or_are

COPY, NEAR, SCENE = "copy", "near duplicate", "same scene"


@dataclass(frozen=True)
class Known:
    """A query that is also in the gallery."""

    query: str
    sample: int
    as_what: str  # COPY, NEAR or SCENE


@dataclass(frozen=True)
class AuditReport(Report):
    names: Sequence[str]
    labels: list[str]  # of the samples
    classes: list[str]
    suspects: list[Suspect]
    ranking: list[RankedLabel]  # of all labels, the most doubtful first
    copies: list[list[int]]  # groups of samples of the same content
    near: list[list[int]]  # groups of near duplicates; only the first of several copies is in them
    scenes: list[SameScene]  # the most similar first; copies and near duplicates are not in them
    outliers: list[Outlier]
    small: list[tuple[int, int]]  # classes, and their numbers of different samples
    alike: list[AlikeClasses]
    known: list[Known]  # queries, in their order
    n_queries: int
    n_answered: int  # samples compared with the others
    n_wins: int  # of these, samples whose own class is the best
    folds: int
    hashes: Sequence[str]
    samples: Samples
    seconds: float

    def label_of(self, suspect: Suspect) -> str:
        return self.classes[suspect.suggested]

    def suggested_for(self, ranked: RankedLabel) -> str:
        """Return the best other class; empty if the sample could not be compared."""
        return "" if ranked.suggested is None else self.classes[ranked.suggested]

    def is_across(self, group: Iterable[int]) -> bool:
        """Return whether a group has samples of several classes."""
        return len({self.labels[i] for i in group}) > 1


def audit(
    names: Sequence[str],
    reading: Reading,
    against: Sequence[str] = (),
    model: Path | None = None,
    progress: Progress = silent,
) -> AuditReport:
    """Audit a gallery, if one is named, or the samples of a source."""
    started = time.perf_counter()
    gallery, left_out, notes = _open(names, reading, model, progress)
    queries = open_source(against, reading) if against else None
    if queries is not None:
        refuse_mismatch(queries, gallery.recipe)
    samples, method = gallery.samples, gallery.method
    folds = Folds.of(samples, gallery.hashes, events=gallery.events)
    compared = compare_samples(gallery.samples_to_hold_out, method, folds, reading.n_jobs, progress)
    residuals = compared.residuals
    looks, of_looks = _read_looks(gallery, reading)
    copies = find_exact_copies(gallery.hashes)
    again = {i for group in copies for i in group[1:]}
    firsts = np.array([i for i in range(len(gallery.names)) if i not in again])
    near = group_pairs(firsts[find_near_pairs(looks.pick(firsts), progress=progress)])
    scenes = _find_scenes(gallery, looks, [*copies, *near], progress)
    known: list[Known] = []
    n_queries = 0
    if queries is not None:
        read = read_by_recipe(
            gallery.recipe, queries, replace(reading, dtype=gallery.dtype, label="?"), progress
        )
        require_samples(read.table.names, read.left_out)
        n_queries, left_out = len(read.table), left_out + read.left_out
        known = _find_known_queries(gallery, looks, read, reading)
    held, suspects = folds.is_held, find_suspects(residuals, samples, method.signed, compared.typical)
    return AuditReport(
        names=gallery.names,
        labels=list(gallery.table.labels),
        classes=gallery.classes,
        suspects=suspects,
        ranking=rank_labels(residuals, samples, method.signed, suspects),
        copies=copies,
        near=near,
        scenes=scenes,
        outliers=find_outliers(looks.vectors, samples.edges, folds.copies, progress),
        small=find_small_classes(samples, folds.copies),
        alike=find_alike_classes(residuals, samples.class_index),
        known=known,
        n_queries=n_queries,
        n_answered=int(held.sum()),
        n_wins=int((residuals.argmin(axis=1) == samples.class_index)[held].sum()),
        folds=FOLDS,
        hashes=gallery.hashes,
        samples=samples,
        seconds=time.perf_counter() - started,
        left_out=left_out,
        notes=notes + _neighbors_note(compared) + _uncompared_note(folds) + of_looks,
    )


def _open(
    names: Sequence[str], reading: Reading, model: Path | None, progress: Progress
) -> tuple[FittedGallery, list[LeftOut], list[Note]]:
    """Return the gallery, or an unfitted gallery of the source with the default method."""
    galleries = [name for name in names if is_gallery(Path(name))]
    if galleries and len(names) > 1:
        raise UsageError(f"{galleries[0]}: is a gallery; audit it alone")
    if galleries:
        gallery = load_gallery(Path(names[0]))
        refuse_mentioned(gallery.names)
        return (with_model_at(model, gallery, Path(names[0])) if model else gallery), [], []
    read = read_samples(open_examples(names, reading), reading, progress)
    classes, order, class_index = sort_by_class(read.table.labels, read.recipe.kind)
    in_order = read.take(order)
    gallery = FittedGallery(
        samples=Samples.of(in_order.values, class_index, read.recipe.part_edges),
        table=in_order.table,
        classes=classes,
        recipe=read.recipe,
        method=suit_to_vectors(make_method("crnr", {}), read.recipe, ()),
        state={},
        event_gap=read.event_gap,
    )
    return gallery, read.left_out, read.notes


def _read_looks(gallery: FittedGallery, reading: Reading) -> tuple[Looks, list[Note]]:
    """Return the samples with their images, as far as available, and a note on missing images."""
    # Whitening makes images of one class more similar than they look.
    vectors, names = gallery.recipe.undo_whitening(gallery.samples.vectors), gallery.names
    if gallery.recipe.kind == "features":
        text = "near duplicates: found by the cosine of the features alone, because there are no images"
        return Looks.of(vectors), [Note("looks", text)]
    looks = read_looks(vectors, names, gallery.hashes, DecoderPool(reading.jobs), reading.max_pixels)
    missing = np.flatnonzero(looks.image_of < 0).tolist()
    if not missing:
        return looks, []
    text = (
        f"{len(missing)} of {format_count(len(names), 'image')} {is_or_are(len(missing))} gone or "
        "changed, such as "
        f"{names[missing[0]]}: their near duplicates are found by the cosine of the vectors alone; "
        "run the command in the folder where the gallery was built to find more"
    )
    return looks, [Note("looks", text)]


def _find_scenes(
    gallery: FittedGallery, looks: Looks, groups: Iterable[Sequence[int]], progress: Progress
) -> list[SameScene]:
    """Return pairs of the same scene, except for those within a group of copies or near duplicates."""
    joined = [(group[0], i) for group in groups for i in group[1:]]
    together = group_pairs(np.array(joined, dtype=np.int64).reshape(-1, 2))
    group_of = {i: number for number, group in enumerate(together) for i in group}
    found = find_same_scenes(looks, by_vectors=gallery.recipe.has_network, progress=progress)
    return [
        pair for pair in found if pair.one not in group_of or group_of[pair.one] != group_of.get(pair.other)
    ]


def _find_known_queries(
    gallery: FittedGallery, looks: Looks, read: ReadSamples, reading: Reading
) -> list[Known]:
    """Return the queries that are also in the gallery, each with its first matching sample."""
    kind = gallery.recipe.kind
    names, hashes = read.table.names, read.table.hashes
    is_copy = KnownSamples.of(kind, gallery.hashes, gallery.samples.vectors).known_mask(hashes, read.values)
    vectors = gallery.recipe.undo_whitening(read.values)
    queries = Looks.of(vectors)
    if kind == "pictures":
        queries = read_looks(vectors, names, hashes, DecoderPool(reading.jobs), reading.max_pixels)
    scenes = find_same_scenes(queries, looks, by_vectors=gallery.recipe.has_network)
    found = {pair.one: Known(names[pair.one], pair.other, SCENE) for pair in reversed(scenes)}
    found |= {int(i): Known(names[i], int(j), NEAR) for i, j in find_near_pairs(queries, looks)[::-1]}
    of_hash = {digest: i for i, digest in reversed(list(enumerate(gallery.hashes)))}
    for query in np.flatnonzero(is_copy).tolist():
        nearest = int(np.argmax(looks.vectors @ queries.vectors[query]))
        found[query] = Known(names[query], of_hash.get(hashes[query], nearest), COPY)
    return [found[query] for query in sorted(found)]


def _neighbors_note(compared: Comparison) -> list[Note]:
    if not compared.neighbors:
        return []
    text = (
        f"large gallery: each label was compared by the {compared.neighbors} nearest examples, and the most "
        "doubtful labels again by all examples"
    )
    return [Note("neighbors", text)]


def _uncompared_note(folds: Folds) -> list[Note]:
    alone = int((~folds.is_held).sum())
    if not alone:
        return []
    text = (
        f"{format_count(alone, 'example')} not compared with the others of the class: "
        "apart from copies, no other example could be held out"
    )
    return [Note("alone", text)]
