"""Classify: a source becomes a stream of answers, and these a CSV."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from crnr_cli import __version__
from crnr_cli.decoding import available_cores
from crnr_cli.errors import DataError, GalleryError, OutputError, SampleError, UsageError
from crnr_cli.features import Keys
from crnr_cli.files import check_output, is_replaceable
from crnr_cli.gallery import Gallery, load_gallery
from crnr_cli.images import Form
from crnr_cli.jobs.progress import Progress, silent
from crnr_cli.journal import Done, Identity, Partial, resumable
from crnr_cli.loading import RawBatch, raw_batches
from crnr_cli.results import Answers, CsvWriter, Prediction
from crnr_cli.sources import Features, Pictures, Source, fingerprint, is_unclaimed, open_source

MOST_FAILURES = 10  # told one by one; the CSV has them all


@dataclass(frozen=True)
class QueryOptions:
    keys: Keys = field(default_factory=Keys)
    nul_separated: bool = False
    max_pixels: int = Form.max_pixels
    jobs: int | None = None
    max_failure_rate: float = 1.0  # stop when more than this share of the inputs is without an answer


@dataclass(frozen=True)
class ClassifyReport:
    n_queries: int
    resumed_after: int  # queries answered by an earlier run
    statuses: Counter[str]  # how many queries ended how
    skipped: int  # without an answer, though they were meant to have one
    ignored: int  # system files passed over
    failures: list[tuple[str, str]]  # queries of this run without an answer, and why; the first of them


def classify(
    names: Sequence[str],
    gallery_path: Path,
    output: Path | BinaryIO,
    options: QueryOptions,
    progress: Progress = silent,
    *,
    resume: bool = False,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears whole, or to an open stream as it comes.

    With a path, the answers so far are kept if the run is stopped, and `resume` goes on from there.
    """
    if isinstance(output, Path):
        _check_place(output, names, gallery_path)
    if resume and not (isinstance(output, Path) and is_replaceable(output)):
        raise UsageError("--resume needs an output file; name it with --output")
    gallery = load_gallery(gallery_path)
    source = open_queries(names, gallery, options)
    if not isinstance(output, Path):
        return _write(gallery, source, _Direct(output), options, progress)
    if not is_replaceable(output):
        with output.open("wb") as stream:
            return _write(gallery, source, _Direct(stream), options, progress)
    with resumable(output, _identity(gallery, source, options), resume=resume) as partial:
        return _write(gallery, source, partial, options, progress)


def open_queries(names: Sequence[str], gallery: Gallery, options: QueryOptions) -> Source:
    """List the queries and refuse, before any work, those the gallery cannot answer."""
    if len(gallery.classes) < 2:
        raise GalleryError(f"the gallery has one class, {gallery.classes[0]}: every answer would be the same")
    source = open_source(names, options.keys, nul_separated=options.nul_separated)
    require_same_kind(source, gallery)
    return source


def require_same_kind(source: Source, gallery: Gallery) -> None:
    """Refuse what the recipe of a gallery cannot be applied to."""
    kind = "features" if isinstance(source, Features) else "pictures"
    if kind != gallery.recipe.kind:
        raise DataError(f"the gallery was built from {gallery.recipe.kind}, and these are {kind}")
    if isinstance(source, Features) and source.n_features != gallery.recipe.n_inputs:
        raise DataError(
            f"{source.files[0].path}: {source.n_features} features a sample, and the gallery was built from "
            f"{gallery.recipe.n_inputs}; use the same features for both"
        )


def answer(
    gallery: Gallery, source: Source, options: QueryOptions, progress: Progress = silent, first: int = 0
) -> Iterator[Answers]:
    """The answers to all queries, in fixed batches of the listing, from the `first` batch on."""
    form = gallery.recipe.form(options.max_pixels)
    jobs = options.jobs or available_cores()
    named_as = {unicodedata.normalize("NFC", name): name for name in gallery.classes}
    progress("classifying", 0, len(source))
    for batch in raw_batches(source, form, _batch_size(gallery), jobs, first):
        vectors, faults = gallery.recipe.unit_vectors(batch.values, gallery.dtype)
        errors = _merged(batch.errors, faults)
        good = [fault is None for fault in faults]
        yield Answers(
            paths=batch.names,
            truths=_truths(batch, named_as, isinstance(source, Features)),
            errors=errors,
            residuals=gallery.residuals(vectors[good]),
        )
        progress("classifying", batch.end, len(source))


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
    gallery: Gallery, source: Source, file: Partial | _Direct, options: QueryOptions, progress: Progress
) -> ClassifyReport:
    done = file.done
    resumed_after = done.statuses.total()
    failures: list[tuple[str, str]] = []
    writer = CsvWriter(file, gallery.classes, gallery.dtype, header=not done.batches)
    for answers in answer(gallery, source, options, progress, first=done.batches):
        rows = writer.write(answers)
        missing = [row for row in rows if row.label is None and not is_unclaimed(row.path, row.status)]
        file.end_batch(Counter(row.status for row in rows), len(missing))
        if len(failures) < MOST_FAILURES:
            failed = zip(answers.paths, answers.errors, strict=True)
            failures += [(path, f"{error.status}, {error}") for path, error in failed if error]
        if done.skipped > options.max_failure_rate * len(source):
            raise DataError(_too_many(done.skipped, len(source), options.max_failure_rate, missing[-1]))
    ignored = source.ignored if isinstance(source, Pictures) else 0
    return ClassifyReport(
        len(source), resumed_after, done.statuses, done.skipped, ignored, failures[:MOST_FAILURES]
    )


def _too_many(failed: int, total: int, allowed: float, last: Prediction) -> str:
    return (
        f"{last.path}: {last.status}; stopped, as {failed} of {total} inputs are without an answer "
        f"and at most {allowed:.2%} may be"
    )


def _identity(gallery: Gallery, source: Source, options: QueryOptions) -> Identity:
    """All that the bytes of the CSV depend on, by the names that a user knows it by."""
    return {
        "crnr": __version__,
        "gallery": gallery.sha256,
        "--max-pixels": options.max_pixels,
        "--features-key": options.keys.features,
        "--labels-key": options.keys.labels,
        "number of inputs": len(source),
        "list of inputs": fingerprint(source),
        "batch": _batch_size(gallery),
    }


def _check_place(output: Path, names: Sequence[str], gallery_path: Path) -> None:
    check_output(output, [gallery_path, *names])
    place = output.resolve()
    for name in names:
        if name != "-" and Path(name).is_dir() and place.is_relative_to(Path(name).resolve()):
            raise OutputError(f"{output}: lies inside the queries {name}; write it somewhere else")


def _batch_size(gallery: Gallery) -> int:
    """Queries coded at once: some 32 MB an array of state, and products large enough to be fast."""
    return max(64, min(512, 2**23 // len(gallery.names)))


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
