"""Classify: turn queries into answers, and answers into rows of a CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from crnr_cli.errors import UsageError, refuse_too_many
from crnr_cli.gallery.extraction import read_queries_through_cache
from crnr_cli.gallery.queries import MAX_FAILURES, QueryOptions, RowBatch, Run, load_for_queries, open_queries
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.results.journal import Done, Partial, resumable
from crnr_cli.sources.images import NO_BOX
from crnr_cli.system.extras import require_packages
from crnr_cli.system.files import is_replaceable, replacing
from crnr_cli.wording import Note, format_count


@dataclass(frozen=True)
class ClassifyReport:
    n_queries: int
    resumed_after: int  # queries classified by an earlier run
    statuses: Counter[str]  # number of queries by status
    skipped: int  # failed queries, except unrelated files
    failures: list[tuple[str, str]]  # the first failed queries of this run, and the reasons
    rejection: str | None = None  # the rule for labelling queries as unknown
    notes: list[Note] = field(default_factory=list)


def classify(
    names: Sequence[str],
    gallery_path: Path,
    output: Path | BinaryIO,
    options: QueryOptions,
    progress: Progress = silent,
    *,
    resume: bool = False,
    workers: Workers | None = None,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears when it is complete, or to an open stream batch by batch.

    With a path, finished batches are kept if the run is stopped, and `resume` continues after them. By
    default, this process does the work. It writes a Parquet file in any case.
    """
    workers = workers or Here(DecoderPool(options.jobs))
    _refuse_format(options.format, resume)
    if resume and not (isinstance(output, Path) and is_replaceable(output)):
        raise UsageError("--resume needs an output file; name it with --output")
    gallery = load_for_queries(options, gallery_path, progress)
    source = open_queries(names, gallery, options, workers.lister, gallery_path)
    of_cache: list[Note] = []
    if options.cache:
        source, of_cache = read_queries_through_cache(
            source, gallery.recipe, options, options.cache, progress, workers
        )
        workers = Here(DecoderPool(options.jobs))  # reading features is faster than sending them
    run = Run.prepare(gallery, source, options)
    if not isinstance(output, Path):
        report = _classify_to(_Direct(output), run, workers, progress)
    elif not is_replaceable(output) or options.format == "parquet":
        with replacing(output) as stream:
            report = _classify_to(_Direct(stream), run, workers, progress)
    else:
        with resumable(output, run.identity(), resume=resume) as partial:
            report = _classify_to(partial, replace(run, first=partial.done.batches), workers, progress)
    notes = of_cache
    if resume:
        queries = format_count(report.n_queries, "query")
        text = f"{report.resumed_after} of {queries} were done by the earlier run"
        notes = [Note("resumed", text), *of_cache]
    return replace(report, notes=[*notes, *report.notes])


def _refuse_format(format: str, resume: bool) -> None:
    """Refuse, before any work, a format that cannot be written."""
    if format == "parquet":
        require_packages("parquet", "--format parquet", "pyarrow")
        if resume:
            raise UsageError(
                "--resume cannot continue a Parquet file, which is unreadable until it is complete; "
                "choose --format csv or jsonl"
            )


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


def _classify_to(file: Partial | _Direct, run: Run, workers: Workers, progress: Progress) -> ClassifyReport:
    done, total = file.done, len(run.source)
    resumed_after = done.statuses.total()
    failures: list[tuple[str, str]] = []
    if done.skipped:
        _refuse_too_many(file, total, run.options)
    write = _write_parquet if run.options.format == "parquet" else _write_rows
    for batch in write(file, run, workers, progress):
        file.end_batch(batch.statuses, batch.missing)
        if len(failures) < MAX_FAILURES:
            failures += batch.failures
        if batch.missing:
            _refuse_too_many(file, total, run.options, batch.first_missing)
    answered = done.statuses["ok"] + done.statuses["rejected"]
    return ClassifyReport(
        n_queries=total,
        resumed_after=resumed_after,
        statuses=done.statuses,
        # Unrelated files among images do not count; but if there is nothing else, they were meant.
        skipped=done.skipped if answered else total - done.statuses[NO_BOX],
        failures=failures[:MAX_FAILURES],
        rejection=run.rejection_rule(),
        notes=run.notes(),
    )


def _write_rows(
    file: Partial | _Direct, run: Run, workers: Workers, progress: Progress
) -> Iterator[RowBatch]:
    """Yield every batch after it was written."""
    if not run.first:
        file.write(run.row_formatter.lines.header())
    for batch in workers.answer_rows(run, progress):
        file.write(batch.data)
        yield batch


def _write_parquet(
    file: Partial | _Direct, run: Run, workers: Workers, progress: Progress
) -> Iterator[RowBatch]:
    """Yield every batch after it was written."""
    from crnr_cli.results.formats import ParquetRows, parquet_schema
    from crnr_cli.system.parquet import refuse_other_encodings, table_writer

    assert isinstance(file, _Direct)
    classes = run.gallery.classes
    refuse_other_encodings(classes)
    with table_writer(file.stream, parquet_schema(classes, run.gallery.dtype, run.top, run.columns)) as table:
        writer = ParquetRows(table, classes, run.top, run.columns)
        for answers in workers.answer(run, progress):
            yield RowBatch.of(answers, writer.write(answers))


def _refuse_too_many(
    file: Partial | _Direct, total: int, options: QueryOptions, latest: tuple[str, str] | None = None
) -> None:
    """Stop when more inputs have failed than allowed, including failures of the earlier run."""
    remedy = (
        "; finished batches are kept: continue with --resume, without --strict or with a higher "
        "--max-failure-rate"
    )
    refuse_too_many(
        file.done.skipped,
        total,
        options.max_failure_rate,
        "query",
        remedy if isinstance(file, Partial) else "",
        fate="no answer",
        latest=": ".join(latest) if latest else None,
    )
