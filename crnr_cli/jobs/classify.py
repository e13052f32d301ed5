"""Classify: queries become answers, and answers become rows of a CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from crnr_cli import __version__
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.answer import (
    Answering,
    QueryOptions,
    answering,
    best_written,
    load_for,
    open_queries,
    queries_per_batch,
    sureness,
)
from crnr_cli.gallery.formatted import MAX_FAILURES, Formatted, Formatting, formatting, row_writer
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.raw_values import open_recipe
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.results.journal import Done, Identity, Partial, resumable
from crnr_cli.sources.base import Source
from crnr_cli.sources.listing import fingerprint
from crnr_cli.sources.tables import Features
from crnr_cli.system.files import is_replaceable, replacing
from crnr_cli.system.optional import require
from crnr_cli.wording import counted, have


@dataclass(frozen=True)
class ClassifyReport:
    n_queries: int
    resumed_after: int  # queries classified by an earlier run
    statuses: Counter[str]  # number of queries by status
    skipped: int  # queries without an answer, except unrelated files
    ignored: int  # system files that were ignored
    failures: list[tuple[str, str]]  # the first queries of this run without an answer, and the reasons
    rejection: str | None = None  # the rule for labelling queries as unknown
    sets_note: str | None = None  # why the sets of labels are useless, if they are
    top_note: str | None = None  # why not all residuals were written, if nobody asked for that
    accelerator: str | None = None  # what the network ran on, if that was chosen automatically
    notes: list[str] = field(default_factory=list)  # about the source


def classify(
    names: Sequence[str],
    gallery_path: Path,
    output: Path | BinaryIO,
    options: QueryOptions,
    progress: Progress = silent,
    *,
    resume: bool = False,
    answered_by: Answering | None = None,
    formatted_by: Formatting | None = None,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears when it is complete, or to an open stream batch by batch.

    With a path, finished batches are kept if the run is stopped, and `resume` continues after them.
    `answered_by` classifies the queries, and `formatted_by` makes rows of the answers; by default, this
    process does. A Parquet file is written by this process in any case.
    """
    answered_by = answered_by or answering(DecoderPool(options.jobs))
    by = _By(answered_by, formatted_by or formatting(answered_by))
    _refuse_format(options.format, resume)
    if resume and not (isinstance(output, Path) and is_replaceable(output)):
        raise UsageError("--resume needs an output file; name it with --output")
    gallery = load_for(options, gallery_path, progress)
    source = open_queries(names, gallery, options)
    if not isinstance(output, Path):
        return _write(gallery, source, _Direct(output), options, progress, by)
    if not is_replaceable(output) or options.format == "parquet":
        with replacing(output) as stream:
            return _write(gallery, source, _Direct(stream), options, progress, by)
    with resumable(output, _identity(gallery, source, options), resume=resume) as partial:
        return _write(gallery, source, partial, options, progress, by)


def _refuse_format(format: str, resume: bool) -> None:
    """Refuse, before any work, what cannot be written."""
    if format == "parquet":
        require("parquet", "--format parquet", "pyarrow")
        if resume:
            raise UsageError(
                "--resume cannot continue a Parquet file, which is of no use until its end is written; "
                "choose --format csv or jsonl"
            )


@dataclass(frozen=True)
class _By:
    """Who classifies the queries, and who makes rows of the answers."""

    answered_by: Answering
    formatted_by: Formatting


class _Direct:
    """A stream that cannot be resumed, written batch by batch."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.done = stream, Done()

    def write(self, data: bytes) -> None:
        self.stream.write(data)

    def end_batch(self, statuses: Counter[str], skipped: int) -> None:
        self.stream.flush()
        self.done.statuses += statuses
        self.done.skipped += skipped


def _write(
    gallery: Gallery,
    source: Source,
    file: Partial | _Direct,
    options: QueryOptions,
    progress: Progress,
    by: _By,
) -> ClassifyReport:
    done = file.done
    resumed_after = done.statuses.total()
    failures: list[tuple[str, str]] = []
    _refuse_too_many(file, len(source), options)
    for batch in _written(gallery, source, file, options, progress, by):
        file.end_batch(batch.statuses, batch.missing)
        if len(failures) < MAX_FAILURES:
            failures += batch.failures
        _refuse_too_many(file, len(source), options, batch.first_missing)
    return ClassifyReport(
        n_queries=len(source),
        resumed_after=resumed_after,
        statuses=done.statuses,
        skipped=done.skipped,
        ignored=source.ignored,
        failures=failures[:MAX_FAILURES],
        rejection=_rejection_rule(gallery, options),
        sets_note=_sets_note(gallery, options),
        top_note=_top_note(gallery, options),
        accelerator=_accelerator(gallery, source, options),
        notes=source.notes() if isinstance(source, Features) else [],
    )


def _written(
    gallery: Gallery,
    source: Source,
    file: Partial | _Direct,
    options: QueryOptions,
    progress: Progress,
    by: _By,
) -> Iterator[Formatted]:
    """Every batch after it was written."""
    first = file.done.batches
    sure = sureness(gallery, options)
    more, top = sure.columns if sure else (), best_written(gallery, options)
    if options.format != "parquet":
        row_writer(file, gallery, options, more, header=not first)  # for the header; rows come as bytes
        for batch in by.formatted_by(gallery, source, options, progress, first):
            file.write(batch.data)
            yield batch
        return
    from crnr_cli.results.parquet_rows import ParquetRows, parquet_schema
    from crnr_cli.system.parquet import table_writer

    assert isinstance(file, _Direct)
    with table_writer(file.stream, parquet_schema(gallery.classes, gallery.dtype, top, more)) as table:
        writer = ParquetRows(table, gallery.classes, top, more)
        for answers in by.answered_by(gallery, source, options, progress, first):
            yield Formatted.of(answers, writer.write(answers))


def _accelerator(gallery: Gallery, source: Source, options: QueryOptions) -> str | None:
    return open_recipe(gallery.recipe, source, options).accelerator


def _rejection_rule(gallery: Gallery, options: QueryOptions) -> str | None:
    calibration = gallery.calibration
    if calibration is None:
        return None
    rules = []
    if options.reject is not None:
        rules.append(calibration.rule(options.reject, gallery.dtype))
    if options.min_probability is not None:
        rules.append(f"probability below {options.min_probability:g} (calibrated on {calibration.origin})")
    return "; or ".join(rules) or None


def _sets_note(gallery: Gallery, options: QueryOptions) -> str | None:
    sure = sureness(gallery, options)
    if options.sets is None or sure is None or sure.certainty.can_exclude(options.sets):
        return None
    held_out = counted(len(sure.certainty.of_truth), "sample")
    return (
        f"--sets {options.sets:g} excludes no label: too few samples could be held out of the gallery "
        f"({held_out}) for so high a level; choose a lower one, or add samples"
    )


def _top_note(gallery: Gallery, options: QueryOptions) -> str | None:
    best = best_written(gallery, options)
    if options.top is not None or best is None:
        return None
    return (
        f"of {counted(len(gallery.classes), 'class')}, the {best} best of each input are written; --top sets "
        "how many, and --top 0 writes the residuals of all"
    )


def _refuse_too_many(
    file: Partial | _Direct, total: int, options: QueryOptions, latest: tuple[str, str] | None = None
) -> None:
    """Stop when more inputs have no answer than is allowed, including those of the earlier run."""
    failed, allowed = file.done.skipped, options.max_failure_rate
    if failed <= allowed * total:
        return
    culprit = f"{latest[0]}: {latest[1]}; " if latest else ""
    remedy = (
        "; finished batches are kept: continue with --resume, without --strict or with a higher "
        "--max-failure-rate"
    )
    raise DataError(
        f"{culprit}stopped: {failed} of {counted(total, 'input')} {have(failed)} no answer, "
        f"and at most {allowed:.2%} is allowed{remedy if isinstance(file, Partial) else ''}"
    )


def _identity(gallery: Gallery, source: Source, options: QueryOptions) -> Identity:
    """Everything that the bytes of the CSV depend on, by the names that users know."""
    return {
        "crnr": __version__,
        "gallery": gallery.sha256,
        "--max-pixels": options.max_pixels,
        "--features-key": options.keys.features,
        "--labels-key": options.keys.labels,
        "--samples": options.keys.samples,
        "--reject": options.reject,
        "--min-probability": options.min_probability,
        "--sets": options.sets,
        "--top": best_written(gallery, options),
        "--provider": options.provider if gallery.recipe.has_network else None,
        "--format": options.format,
        "number of inputs": len(source),
        "list of inputs": fingerprint(source),
        "batch": queries_per_batch(gallery, options),
    }
