"""Classify: a source becomes a stream of answers, and these a CSV."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from crnr_cli.cores import available_cores
from crnr_cli.errors import DataError, GalleryError, OutputError, SampleError, UsageError
from crnr_cli.extractor import BATCH as EXTRACTOR_BATCH
from crnr_cli.extractor import Extractor
from crnr_cli.features import Keys
from crnr_cli.files import check_output, replacing
from crnr_cli.gallery import Gallery, load_gallery
from crnr_cli.jobs.progress import Progress, silent
from crnr_cli.loading import RawBatch, raw_batches
from crnr_cli.pixels import Form
from crnr_cli.recipe import Recipe
from crnr_cli.rejection import calibrate
from crnr_cli.results import Answers, CsvWriter
from crnr_cli.sources import Features, Pictures, Source, is_unclaimed, open_source


@dataclass(frozen=True)
class QueryOptions:
    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False
    max_pixels: int = Form.max_pixels
    jobs: int | None = None
    reject: float | None = None  # say unknown, at this rate of false rejections
    top: int | None = None  # write only so many best classes, not the residuals of all
    extractor: Path | None = None  # where the gallery's model is now


@dataclass(frozen=True)
class ClassifyReport:
    n_queries: int
    statuses: Counter[str]  # how many queries ended how
    skipped: int  # without an answer, though they were meant to have one
    ignored: int  # system files passed over
    rejection: str | None = None  # when a query was said to be unknown


def classify(
    names: Sequence[str],
    gallery_path: Path,
    output: Path | BinaryIO,
    options: QueryOptions,
    progress: Progress = silent,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears whole, or to an open stream as it comes."""
    if isinstance(output, Path):
        _check_place(output, names)
    gallery = load_for(options, gallery_path)
    source = open_queries(names, gallery, options)
    if isinstance(output, Path):
        with replacing(output) as part, part.open("wb") as file:
            return _write(gallery, source, file, options, progress)
    return _write(gallery, source, output, options, progress)


def load_for(options: QueryOptions, gallery_path: Path) -> Gallery:
    """The gallery, calibrated if queries are to be rejected and its file does not say when."""
    gallery = load_gallery(gallery_path)
    if options.extractor is not None:
        gallery = _with_extractor_at(options.extractor, gallery, gallery_path)
    if options.reject is None or gallery.calibration:
        return gallery
    return replace(gallery, calibration=calibrate(gallery.samples, gallery.method))


def _with_extractor_at(model: Path, gallery: Gallery, gallery_path: Path) -> Gallery:
    how = gallery.recipe.extraction
    if how is None:
        raise UsageError(f"--extractor: {gallery_path} was built without one")
    return replace(gallery, recipe=replace(gallery.recipe, extraction=how.found_at(model)))


def open_queries(names: Sequence[str], gallery: Gallery, options: QueryOptions) -> Source:
    """List the queries and refuse, before any work, those the gallery cannot answer."""
    if len(gallery.classes) < 2:
        raise GalleryError(f"the gallery has one class, {gallery.classes[0]}: every answer would be the same")
    source = open_source(names, options.keys, nul_separated=options.nul_separated)
    refuse_misfit(source, gallery.recipe)
    if gallery.recipe.extraction:  # a model that is lost or another one is told of before anything is written
        Extractor(gallery.recipe.extraction, options.jobs or available_cores())
    return source


def refuse_misfit(source: Source, recipe: Recipe) -> None:
    """Queries must be of the kind, and the dimension, that the gallery was built from."""
    kind = "features" if isinstance(source, Features) else "pictures"
    if kind != recipe.kind:
        raise DataError(f"the gallery was built from {recipe.kind}, and these queries are {kind}")
    if isinstance(source, Features) and source.n_features != recipe.n_inputs:
        raise DataError(
            f"{source.files[0].path}: {source.n_features} features a sample, and the gallery was built from "
            f"{recipe.n_inputs}; use the same features for both"
        )


def answer(
    gallery: Gallery, source: Source, options: QueryOptions, progress: Progress = silent
) -> Iterator[Answers]:
    """The answers to all queries, in fixed batches of the listing."""
    form = gallery.recipe.form(options.max_pixels)
    jobs = options.jobs or available_cores()
    named_as = {unicodedata.normalize("NFC", name): name for name in gallery.classes}
    least_standout = _least_standout(gallery, options)
    done = 0
    progress("classifying", 0, len(source))
    for batch in raw_batches(source, form, _queries_at_once(gallery), jobs):
        vectors, faults = gallery.recipe.unit_vectors(batch.values, gallery.dtype)
        errors = _merged(batch.errors, faults)
        good = [fault is None for fault in faults]
        yield Answers(
            paths=batch.names,
            truths=_truths(batch, named_as, isinstance(source, Features)),
            errors=errors,
            residuals=gallery.residuals(vectors[good]),
            least_standout=least_standout,
            signed=gallery.method.signed,
        )
        done += len(batch.names)
        progress("classifying", done, len(source))


def _write(
    gallery: Gallery, source: Source, file: BinaryIO, options: QueryOptions, progress: Progress
) -> ClassifyReport:
    writer = CsvWriter(file, gallery.classes, gallery.dtype, options.top)
    statuses: Counter[str] = Counter()
    skipped = 0
    for answers in answer(gallery, source, options, progress):
        for row in writer.write(answers):
            statuses[row.status] += 1
            skipped += row.label is None and not is_unclaimed(row.path, row.status)
        file.flush()
    ignored = source.ignored if isinstance(source, Pictures) else 0
    rule = None
    if options.reject is not None and gallery.calibration:
        rule = gallery.calibration.rule(options.reject)
    return ClassifyReport(len(source), statuses, skipped, ignored, rule)


def _least_standout(gallery: Gallery, options: QueryOptions) -> float:
    if options.reject is None or gallery.calibration is None:
        return 0.0
    return gallery.calibration.least_standout(options.reject)


def _check_place(output: Path, names: Sequence[str]) -> None:
    check_output(output)
    place = output.resolve()
    for name in names:
        if name != "-" and Path(name).is_dir() and place.is_relative_to(Path(name).resolve()):
            raise OutputError(f"{output}: lies inside the queries {name}; write it somewhere else")


def batch_size(n_samples: int) -> int:
    """Queries coded at once: some 32 MB an array of state, and products large enough to be fast."""
    return max(64, min(512, 2**23 // n_samples))


def _queries_at_once(gallery: Gallery) -> int:
    n = batch_size(len(gallery.names))
    return min(n, EXTRACTOR_BATCH) if gallery.recipe.extraction else n


def _merged(
    errors: Sequence[SampleError | None], faults: Sequence[SampleError | None]
) -> list[SampleError | None]:
    """Faults found in the vectors of those samples that could be read."""
    found = iter(faults)
    return [error or next(found) for error in errors]


def _truths(batch: RawBatch, named_as: dict[str, str], labelled: bool) -> list[str | None]:
    """The true class where it is known: a file's label, or the first folder that is called as a class."""
    if labelled:
        return [labels[0] if labels else None for labels in batch.labels]
    return [
        next(
            (named_as[n] for folder in folders if (n := unicodedata.normalize("NFC", folder)) in named_as),
            None,
        )
        for folders in batch.labels
    ]
