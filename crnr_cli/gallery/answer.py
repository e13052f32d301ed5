"""Queries are read, turned into unit vectors, and compared with all classes, batch by batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from crnr_cli.arrays import Batch, FewClasses
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.copies import KnownSamples
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.raw_values import raw_values, refuse_mismatch
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import Answers
from crnr_cli.results.probability import Sureness
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.listing import open_source
from crnr_cli.system.cores import pieces_at_once, side_by_side
from crnr_cli.system.memory import room_for
from crnr_cli.system.names import Spellings
from crnr_cli.system.outputs import refuse_mentioned

_MANY_CLASSES = 1000  # with more, only the best are written, unless all are asked for
_BEST = 5


@dataclass(frozen=True, kw_only=True)
class QueryOptions(InputOptions):
    reject: float | None = None  # reject queries at this rate of false rejections
    min_probability: float | None = None  # reject queries whose best class is less probable
    sets: float | None = None  # write the labels that cannot be excluded at this level
    # Write only this many of the best classes; 0: the residuals of all; None: of all, unless these are many.
    top: int | None = None
    format: str = "csv"  # of what is written: csv, jsonl or parquet
    model: Path | None = None  # the path of the gallery's network, if it has moved
    find_copies: bool = False  # look for queries that are in the gallery too


# Classifies all queries of a source, in order, starting with the batch of the given number.
Answering = Callable[[Gallery, Source, QueryOptions, Progress, int], Iterator[Answers]]


def load_for(options: QueryOptions, gallery_path: Path, progress: Progress = silent) -> Gallery:
    """Load the gallery, and calibrate it if that is needed and its file does not have what is needed."""
    gallery = load_gallery(gallery_path)
    refuse_mentioned(gallery.names)
    if options.model is not None:
        gallery = with_model_at(options.model, gallery, gallery_path)
    return ready_for(options, gallery, lambda: gallery.calibrated(options.n_jobs, progress))


def ready_for(options: QueryOptions, gallery: Gallery, calibrated: Callable[[], Gallery]) -> Gallery:
    """The gallery with what the options need; `calibrated` computes it if the gallery's file has it not."""
    stored = gallery.calibration
    if options.min_probability is not None or options.sets is not None:
        is_ready = stored is not None and stored.certainty is not None
        return gallery if is_ready else calibrated()
    if options.reject is None or stored:
        return gallery
    gallery = calibrated()
    assert gallery.calibration is not None
    # The column `probability` is written if the gallery's file has probabilities, or if it is asked for.
    return replace(gallery, calibration=replace(gallery.calibration, certainty=None))


def with_model_at(model: Path, gallery: Gallery, gallery_path: Path) -> Gallery:
    extractor = gallery.recipe.extractor and gallery.recipe.extractor.moved_to(model)
    if extractor is None:
        raise UsageError(f"--extractor: {gallery_path} was built without a network; leave it out")
    return replace(gallery, recipe=replace(gallery.recipe, extractor=extractor))


def open_queries(names: Sequence[str], gallery: Gallery, options: QueryOptions) -> Source:
    """List the queries, and refuse those that the gallery cannot classify, before any work."""
    return accepted(open_source(names, options, allow_missing=True), gallery, options)


def accepted(source: Source, gallery: Gallery, options: QueryOptions) -> Source:
    """The queries as the gallery sees them; those that it cannot classify are refused."""
    if len(gallery.classes) < 2:
        raise GalleryError(
            f"the gallery has only one class, {gallery.classes[0]}; add samples of another class to it"
        )
    source = source.with_classes(gallery.classes)
    refuse_mismatch(source, gallery.recipe)
    raw_values(gallery.recipe, source, options)  # fail now if the model is missing or has changed
    return source


def answering(decoders: DecoderPool) -> Answering:
    """Classify in this process, with these decoders."""

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
) -> Generator[Answers]:
    """The answers to all queries, in fixed batches of the listing, starting with the `first` batch."""
    recipe = gallery.recipe
    truth_of = truths_by(gallery, source)
    standout, sure = min_standout(gallery, options), sureness(gallery, options)
    n_queries = len(source)
    known = (
        KnownSamples.of(recipe.kind, gallery.hashes, gallery.samples.vectors) if options.find_copies else None
    )

    def answered(batch: Batch) -> Answers:
        raw = batch if recipe.is_slow_to_read else extract(batch)
        vectors = recipe.applied(raw, gallery.dtype)
        found = gallery.compact_residuals(vectors.values)
        few = found if isinstance(found, FewClasses) else None
        values = found.values if isinstance(found, FewClasses) else found
        residuals = Batch(vectors.names, vectors.errors, values, vectors.end)
        copies = known.in_batch(raw, vectors) if known else []
        return Answers(residuals, truth_of(raw), standout, gallery.method.signed, copies, sure, few)

    def read(batch: Batch) -> Batch:
        """A network runs here and not in the threads that answer, as it uses all cores itself."""
        if not recipe.is_slow_to_read:
            return batch
        raw = extract(batch)
        progress("reading", batch.end, n_queries)  # answers come several batches later
        return raw

    progress("classifying", 0, n_queries)
    size = queries_per_batch(gallery, options)
    extract = raw_values(recipe, source, options)
    batches = source.batches(
        source.spans(size)[first:], recipe.request(options.max_pixels), decoders or DecoderPool(options.jobs)
    )
    threads = _batches_at_once(gallery, size, options.n_jobs)
    with closing(batches), closing(side_by_side(answered, map(read, batches), threads)) as done:
        for answers in done:
            yield answers
            progress("classifying", answers.batch.end, n_queries)


def truths_by(gallery: Gallery, source: Source) -> Callable[[Batch], list[str | None]]:
    """A function that returns the true class of each sample of a batch, or None if it is not known."""
    truth = truth_in(gallery.classes, is_labelled=source.is_labelled)
    return lambda batch: list(map(truth, batch.candidates))


def truth_in(classes: Iterable[str], *, is_labelled: bool) -> Callable[[tuple[str, ...]], str | None]:
    """A function from the possible classes of a sample to its true one.

    The class of a picture is the first of its folders that is named after a class; a label in a file is taken
    as it is. Both are returned in the gallery's spelling, as a name can have two Unicode forms.
    """
    known = Spellings(classes)

    @functools.lru_cache(maxsize=4096)  # there are usually few different folders or labels, but many samples
    def truth(candidates: tuple[str, ...]) -> str | None:
        for candidate in candidates:
            name = known.find(candidate)
            if name is not None or is_labelled:
                return candidate if name is None else name
        return None

    return truth


def best_written(gallery: Gallery, options: QueryOptions) -> int | None:
    """How many of the best classes are written for each query; None if the residuals of all are."""
    if options.top is None:
        return _BEST if len(gallery.classes) > _MANY_CLASSES else None
    return options.top or None


def min_standout(gallery: Gallery, options: QueryOptions) -> float:
    if options.reject is None or gallery.calibration is None:
        return 0.0
    return gallery.calibration.min_standout(options.reject)


def sureness(gallery: Gallery, options: QueryOptions) -> Sureness | None:
    certainty = gallery.calibration.certainty if gallery.calibration else None
    if certainty is None:
        return None
    least = None if options.sets is None else certainty.least_probability(options.sets)
    return Sureness(certainty, options.min_probability or 0.0, least)


def queries_per_batch(gallery: Gallery, options: QueryOptions) -> int:
    wanted = options.batch_size or gallery.method.batch_size(gallery.samples)
    return gallery.recipe.batch_size(wanted, options.provider)


def _batches_at_once(gallery: Gallery, size: int, jobs: int) -> int:
    """One batch per core, but fewer if they would fill half of the free memory."""
    return min(pieces_at_once(jobs), room_for(gallery.method.batch_bytes(gallery.samples, size)))
