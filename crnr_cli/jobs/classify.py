"""Classify: a source becomes a stream of answers, and these a CSV."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crnr_cli import __version__
from crnr_cli.errors import DataError, GalleryError, OutputError, SampleError, UsageError
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.pictures.pixels import MAX_PIXELS
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.network import BATCH as EXTRACTOR_BATCH
from crnr_cli.recipe.network import Extractor
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.decision import Answers, Prediction
from crnr_cli.results.journal import Done, Identity, Partial, resumable
from crnr_cli.results.table import CsvWriter
from crnr_cli.sources.base import Keys
from crnr_cli.sources.folders import Features, Pictures, Source, fingerprint, is_unclaimed, open_source
from crnr_cli.sources.loading import RawBatch, raw_batches
from crnr_cli.system.cores import available_cores, side_by_side, threads_a_product
from crnr_cli.system.files import check_output, is_replaceable
from crnr_cli.system.memory import free_bytes

ARRAYS_A_BATCH = 5  # as large as the codes of a batch, held while it is coded
MOST_FAILURES = 10  # told one by one; the CSV has them all


@dataclass(frozen=True)
class QueryOptions:
    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False
    max_pixels: int = MAX_PIXELS
    jobs: int | None = None
    reject: float | None = None  # say unknown, at this rate of false rejections
    top: int | None = None  # write only so many best classes, not the residuals of all
    extractor: Path | None = None  # where the gallery's model is now
    max_failure_rate: float = 1.0  # stop when more than this share of the inputs is without an answer


# The answers to all queries of a source, in order, from a batch of this number on.
Answering = Callable[[Gallery, Source, QueryOptions, Progress, int], Iterator[Answers]]


@dataclass(frozen=True)
class ClassifyReport:
    n_queries: int
    resumed_after: int  # queries answered by an earlier run
    statuses: Counter[str]  # how many queries ended how
    skipped: int  # without an answer, though they were meant to have one
    ignored: int  # system files passed over
    failures: list[tuple[str, str]]  # queries of this run without an answer, and why; the first of them
    rejection: str | None = None  # when a query was said to be unknown


def classify(
    names: Sequence[str],
    gallery_path: Path,
    output: Path | BinaryIO,
    options: QueryOptions,
    progress: Progress = silent,
    *,
    resume: bool = False,
    answered_by: Answering | None = None,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears whole, or to an open stream as it comes.

    With a path, the answers so far are kept if the run is stopped, and `resume` goes on from there.
    `answered_by` does the work elsewhere than in this process.
    """
    answered_by = answered_by or answer
    if isinstance(output, Path):
        _check_place(output, names, gallery_path)
    if resume and not (isinstance(output, Path) and is_replaceable(output)):
        raise UsageError("--resume needs an output file; name it with --output")
    gallery = load_for(options, gallery_path)
    source = open_queries(names, gallery, options)
    if not isinstance(output, Path):
        return _write(gallery, source, _Direct(output), options, progress, answered_by)
    if not is_replaceable(output):
        with output.open("wb") as stream:
            return _write(gallery, source, _Direct(stream), options, progress, answered_by)
    with resumable(output, _identity(gallery, source, options), resume=resume) as partial:
        return _write(gallery, source, partial, options, progress, answered_by)


def load_for(options: QueryOptions, gallery_path: Path) -> Gallery:
    """The gallery, calibrated if queries are to be rejected and its file does not say when."""
    gallery = load_gallery(gallery_path)
    if options.extractor is not None:
        gallery = with_extractor_at(options.extractor, gallery, gallery_path)
    if options.reject is None or gallery.calibration:
        return gallery
    return replace(gallery, calibration=calibrate(gallery.samples, gallery.method))


def with_extractor_at(model: Path, gallery: Gallery, gallery_path: Path) -> Gallery:
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
    """Queries, and samples to add, must be of the kind and the dimension that the gallery was built from."""
    kind = "features" if isinstance(source, Features) else "pictures"
    if kind != recipe.kind:
        raise DataError(f"the gallery was built from {recipe.kind}, and these are {kind}")
    if isinstance(source, Features) and source.n_features != recipe.n_inputs:
        raise DataError(
            f"{source.files[0].path}: {source.n_features} features a sample, and the gallery was built from "
            f"{recipe.n_inputs}; use the same features for both"
        )


def answer(
    gallery: Gallery, source: Source, options: QueryOptions, progress: Progress = silent, first: int = 0
) -> Iterator[Answers]:
    """The answers to all queries, in fixed batches of the listing, from the `first` batch on."""
    form = gallery.recipe.form(options.max_pixels)
    jobs = options.jobs or available_cores()
    named_as = {unicodedata.normalize("NFC", name): name for name in gallery.classes}
    standout = least_standout(gallery, options)

    def answered(batch: RawBatch) -> tuple[Answers, int]:
        vectors, faults = gallery.recipe.unit_vectors(batch.values, gallery.dtype)
        if any(faults):
            vectors = vectors[[fault is None for fault in faults]]
        answers = Answers(
            paths=batch.names,
            truths=_truths(batch, named_as, isinstance(source, Features)),
            errors=_merged(batch.errors, faults),
            residuals=gallery.residuals(vectors),
            least_standout=standout,
            signed=gallery.method.signed,
        )
        return answers, batch.end

    progress("classifying", 0, len(source))
    batches = raw_batches(source, form, queries_at_once(gallery), jobs, first)
    with closing(batches), closing(side_by_side(answered, batches, _batches_at_once(gallery, jobs))) as done:
        for answers, end in done:
            yield answers
            progress("classifying", end, len(source))


def _batches_at_once(gallery: Gallery, jobs: int) -> int:
    """As many as there are cores for, unless their codes would fill half of the memory."""
    codes = queries_at_once(gallery) * len(gallery.names) * np.dtype(gallery.dtype).itemsize
    free = free_bytes()
    room = jobs if free is None else free // (2 * ARRAYS_A_BATCH * codes)
    return max(1, min(jobs // threads_a_product(), room))


class _Direct:
    """A stream that cannot be resumed, written to batch by batch."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.done = stream, Done()

    def write(self, data: bytes) -> None:
        self._stream.write(data)

    def end_batch(self, statuses: Counter[str], skipped: int) -> None:
        self._stream.flush()
        self.done.statuses += statuses
        self.done.skipped += skipped


def _write(
    gallery: Gallery,
    source: Source,
    file: Partial | _Direct,
    options: QueryOptions,
    progress: Progress,
    answered_by: Answering,
) -> ClassifyReport:
    done = file.done
    resumed_after = done.statuses.total()
    failures: list[tuple[str, str]] = []
    _refuse_too_many(file, len(source), options)
    writer = CsvWriter(file, gallery.classes, gallery.dtype, options.top, header=not done.batches)
    for answers in answered_by(gallery, source, options, progress, done.batches):
        rows = writer.write(answers)
        missing = [row for row in rows if row.label is None and not is_unclaimed(row.path, row.status)]
        file.end_batch(Counter(row.status for row in rows), len(missing))
        if len(failures) < MOST_FAILURES:
            failed = zip(answers.paths, answers.errors, strict=True)
            failures += [(path, f"{error.status}, {error}") for path, error in failed if error]
        _refuse_too_many(file, len(source), options, missing)
    return ClassifyReport(
        n_queries=len(source),
        resumed_after=resumed_after,
        statuses=done.statuses,
        skipped=done.skipped,
        ignored=source.ignored if isinstance(source, Pictures) else 0,
        failures=failures[:MOST_FAILURES],
        rejection=_rejection_rule(gallery, options),
    )


def least_standout(gallery: Gallery, options: QueryOptions) -> float:
    if options.reject is None or gallery.calibration is None:
        return 0.0
    return gallery.calibration.least_standout(options.reject)


def _rejection_rule(gallery: Gallery, options: QueryOptions) -> str | None:
    if options.reject is None or gallery.calibration is None:
        return None
    return gallery.calibration.rule(options.reject)


def _refuse_too_many(
    file: Partial | _Direct, total: int, options: QueryOptions, latest: Sequence[Prediction] = ()
) -> None:
    """Stop where more inputs are without an answer than may be, be it by an earlier run that is resumed."""
    failed, allowed = file.done.skipped, options.max_failure_rate
    if failed <= allowed * total:
        return
    culprit = f"{latest[0].path}: {latest[0].status}; " if latest else ""
    remedy = (
        "; what is done is kept: --resume goes on from there, without --strict or with a higher "
        "--max-failure-rate"
    )
    raise DataError(
        f"{culprit}stopped, as {failed} of {total} inputs are without an answer "
        f"and at most {allowed:.2%} may be{remedy if isinstance(file, Partial) else ''}"
    )


def _identity(gallery: Gallery, source: Source, options: QueryOptions) -> Identity:
    """All that the bytes of the CSV depend on, by the names that a user knows it by."""
    return {
        "crnr": __version__,
        "gallery": gallery.sha256,
        "--max-pixels": options.max_pixels,
        "--features-key": options.keys.features,
        "--labels-key": options.keys.labels,
        "--samples": options.keys.samples,
        "--reject": options.reject,
        "--top": options.top,
        "number of inputs": len(source),
        "list of inputs": fingerprint(source),
        "batch": queries_at_once(gallery),
    }


def _check_place(output: Path, names: Sequence[str], gallery_path: Path) -> None:
    check_output(output, [gallery_path, *names])
    place = output.resolve()
    for name in names:
        if name != "-" and Path(name).is_dir() and place.is_relative_to(Path(name).resolve()):
            raise OutputError(f"{output}: lies inside the queries {name}; write it somewhere else")


def batch_size(n_samples: int) -> int:
    """Queries coded as one batch: some 16 MB an array of state, and products large enough to be fast.

    Products are fastest in multiples of the tiles they are cut into. It must not depend on the cores: an
    answer's last bits may depend on its batch.
    """
    return max(128, min(256, 2**22 // n_samples // 32 * 32))


def queries_at_once(gallery: Gallery) -> int:
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
