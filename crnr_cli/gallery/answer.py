"""Queries become answers, batch by batch: read, turned into unit vectors, and compared with all classes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crnr_cli.arrays import Batch
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.samples import refuse_misfit
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import Answers
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.listing import open_source
from crnr_cli.system.cores import side_by_side, threads_per_product
from crnr_cli.system.memory import free_bytes

ARRAYS_PER_BATCH = 5  # arrays of n x m alive at once while a batch is coded


@dataclass(frozen=True, kw_only=True)
class QueryOptions(InputOptions):
    reject: float | None = None  # label as unknown, at this rate of false rejections
    top: int | None = None  # write only the best classes, not the residuals of all
    model: Path | None = None  # where the gallery's network is now


# Answers all queries of a source, in order, from the batch of this number on.
Answering = Callable[[Gallery, Source, QueryOptions, Progress, int], Iterator[Answers]]


def load_for(options: QueryOptions, gallery_path: Path) -> Gallery:
    """The gallery, calibrated now if queries are to be rejected and its file has no calibration."""
    gallery = load_gallery(gallery_path)
    if options.model is not None:
        gallery = with_model_at(options.model, gallery, gallery_path)
    if options.reject is None or gallery.calibration:
        return gallery
    return replace(gallery, calibration=calibrate(gallery.samples, gallery.method))


def with_model_at(model: Path, gallery: Gallery, gallery_path: Path) -> Gallery:
    extractor = gallery.recipe.extractor and gallery.recipe.extractor.moved_to(model)
    if extractor is None:
        raise UsageError(f"--extractor: {gallery_path} was built without one")
    return replace(gallery, recipe=replace(gallery.recipe, extractor=extractor))


def open_queries(names: Sequence[str], gallery: Gallery, options: QueryOptions) -> Source:
    """List the queries, and refuse before any work those that the gallery cannot answer."""
    if len(gallery.classes) < 2:
        raise GalleryError(
            f"the gallery has only one class, {gallery.classes[0]}: every answer would be the same"
        )
    source = open_source(names, options)
    refuse_misfit(source, gallery.recipe)
    gallery.recipe.opened(options.n_jobs)  # fail now if the model is missing or has changed
    return source


def answering(decoders: DecoderPool) -> Answering:
    """Answer in this process, with these decoders."""

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        return answer(gallery, source, options, progress, first, decoders)

    return run


def answer(
    gallery: Gallery,
    source: Source,
    options: QueryOptions,
    progress: Progress = silent,
    first: int = 0,
    decoders: DecoderPool | None = None,
) -> Iterator[Answers]:
    """The answers to all queries, in fixed batches of the listing, from the `first` batch on."""
    recipe = gallery.recipe
    truth_of = truths_by(gallery, source)
    standout = least_standout(gallery, options)
    n_queries = len(source)

    def answered(raw: Batch) -> Answers:
        vectors = recipe.applied(raw, gallery.dtype)
        residuals = Batch(vectors.names, vectors.errors, gallery.residuals(vectors.values), vectors.end)
        return Answers(residuals, truth_of(raw), standout, gallery.method.signed)

    progress("classifying", 0, n_queries)
    size = queries_per_batch(gallery, options)
    # The network runs here, not in the threads below: it uses all cores by itself.
    extract = recipe.opened(options.n_jobs)
    batches = source.batches(
        source.spans(size)[first:], recipe.request(options.max_pixels), decoders or DecoderPool(options.jobs)
    )
    threads = _batches_at_once(gallery, size, options.n_jobs)
    with closing(batches), closing(side_by_side(answered, map(extract, batches), threads)) as done:
        for answers in done:
            yield answers
            progress("classifying", answers.batch.end, n_queries)


def truths_by(gallery: Gallery, source: Source) -> Callable[[Batch], list[str | None]]:
    """The function from a batch to the true class of each of its samples, None where it is not known.

    A picture's is the first folder that is named like a class; a label in a file is believed as it is. Both
    are given in the gallery's spelling, as one name may have two Unicode forms.
    """
    named = {unicodedata.normalize("NFC", name): name for name in gallery.classes}
    is_labelled = source.n_features is not None

    def truths(batch: Batch) -> list[str | None]:
        return [_truth(candidates, named, is_labelled) for candidates in batch.candidates]

    return truths


def _truth(candidates: Sequence[str], named: Mapping[str, str], is_labelled: bool) -> str | None:
    for candidate in candidates:
        name = named.get(unicodedata.normalize("NFC", candidate))
        if name is not None or is_labelled:
            return candidate if name is None else name
    return None


def least_standout(gallery: Gallery, options: QueryOptions) -> float:
    if options.reject is None or gallery.calibration is None:
        return 0.0
    return gallery.calibration.least_standout(options.reject)


def batch_size(n_samples: int) -> int:
    """Queries coded as one batch: some 16 MB per array of state, and products large enough to be fast.

    Products are fastest in multiples of the tiles they are cut into. The size must not depend on the cores:
    the last bits of an answer may depend on its batch.
    """
    return max(128, min(256, 2**22 // n_samples // 32 * 32))


def queries_per_batch(gallery: Gallery, options: QueryOptions) -> int:
    return gallery.recipe.batch_size(options.batch_size or batch_size(len(gallery.names)))


def _batches_at_once(gallery: Gallery, size: int, jobs: int) -> int:
    """As many as there are cores for, unless their codes would fill half of the memory."""
    codes = size * len(gallery.names) * np.dtype(gallery.dtype).itemsize
    free = free_bytes()
    room = jobs if free is None else free // (2 * ARRAYS_PER_BATCH * codes)
    return max(1, min(jobs // threads_per_product(), room))
