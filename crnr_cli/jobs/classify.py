"""Classify: turn queries into answers, and answers into rows of a CSV."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias

from crnr_cli.errors import UsageError, refuse_too_many
from crnr_cli.gallery.queries import (
    MAX_FAILURES,
    QueryOptions,
    RowBatch,
    Run,
    load_for_queries,
    make_class_chooser,
    open_queries,
)
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import BROADER, OK, REJECTED
from crnr_cli.results.journal import Done, Finish, Partial, resumable
from crnr_cli.sources.base import Source
from crnr_cli.sources.images import NO_BOX
from crnr_cli.system.extras import require_packages
from crnr_cli.system.files import is_replaceable, replacing
from crnr_cli.system.names import with_slashes
from crnr_cli.wording import Note, format_count

if TYPE_CHECKING:
    from crnr_cli.results.events import EventOptions
    from crnr_cli.results.record import Finished, Listed
    from crnr_cli.results.updating import Update

    Output: TypeAlias = "Partial | _Direct | Update"

Gone = Literal["keep", "prune"]  # the rows of files that are gone, in an update


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
    update: Gone | None = None,
    workers: Workers | None = None,
) -> ClassifyReport:
    """Write the CSV to a path, where it appears when it is complete, or to an open stream batch by batch.

    With a path, finished batches are kept if the run is stopped, and `resume` continues after them. With
    `update`, rows of unchanged queries are kept; its value is the fate of rows whose files are gone. By
    default, this process does the work. It writes a Parquet file in any case.
    """
    workers = workers or Here(DecoderPool(options.jobs))
    _refuse_format(options.format, resume, update)
    if options.events is not None:
        options = _prepare_events(options, options.events, update)
    if (resume or update) and not (isinstance(output, Path) and is_replaceable(output)):
        raise UsageError(f"--{'update' if update else 'resume'} needs an output file; name it with --output")
    gallery = load_for_queries(options, gallery_path, progress)
    may_be_empty = update is not None or list(names) == ["-"]
    source = open_queries(names, gallery, options, workers.lister, gallery_path, allow_empty=may_be_empty)
    notes = [] if len(source) else [_note_empty(names)]
    if isinstance(output, Path) and (update or resume):
        run = Run.prepare(gallery, source, options)
        if update:
            return _add_notes(notes, _update(output, run, workers, progress, update))
        if found := _find_finished(output, run, gallery_path):
            notes.append(Note("finished", found.note))
            if found.is_complete:
                return _add_notes(notes, _report_nothing())
    if options.cache and len(source):
        source, of_cache, workers = _use_cache(source, gallery.recipe, options, progress, workers)
        notes += of_cache
    run = Run.prepare(gallery, source, options)
    finish = None if options.events is None else _make_finish(run, options.events, progress)
    if not isinstance(output, Path):
        with _finishing(output, finish) as stream:
            report = _classify_to(_Direct(stream), run, workers, progress)
    elif not is_replaceable(output) or options.format == "parquet":
        with replacing(output) as target, _finishing(target, finish) as stream:
            report = _classify_to(_Direct(stream), run, workers, progress)
    else:
        with resumable(output, run.identity(), resume=resume, finish=finish) as partial:
            report = _classify_to(partial, replace(run, first=partial.done.batches), workers, progress)
    if not len(source):
        return replace(report, notes=notes)
    if resume and not any(note.kind == "finished" for note in notes):
        queries = format_count(report.n_queries, "query")
        text = f"{report.resumed_after} of {queries} were done by the earlier run"
        notes.insert(0, Note("resumed", text))
    return replace(report, notes=[*notes, *report.notes])


def _note_empty(names: Sequence[str]) -> Note:
    if list(names) == ["-"]:
        return Note("empty", "-: the list of files on stdin is empty")
    return Note("empty", f"{', '.join(names)}: no images or feature files found")


def _report_nothing() -> ClassifyReport:
    """Return the report of a run that has nothing to classify."""
    return ClassifyReport(0, 0, Counter(), 0, [])


def _add_notes(notes: Sequence[Note], report: ClassifyReport) -> ClassifyReport:
    return replace(report, notes=[*notes, *report.notes])


def _update(output: Path, run: Run, workers: Workers, progress: Progress, gone: Gone) -> ClassifyReport:
    """Classify the queries that are new or have changed, and merge their rows into the predictions file."""
    from crnr_cli.results.updating import updating
    from crnr_cli.sources.tables import Features

    source, options = run.source, run.options
    report = replace(_report_nothing(), notes=run.notes())
    notes: list[Note] = []
    with updating(output, run.settings(), prune=gone == "prune") as update:
        update.begin(run.row_formatter.lines.header())
        chosen = update.choose(_list_queries(run))
        if any(chosen):
            choices = iter(chosen)
            if isinstance(source, Features):
                source = source.pick(chosen)
                # Workers of a cluster read whole files. After a stopped run, a part of one may remain.
                workers = Here(DecoderPool(options.jobs)) if source.is_picked else workers
            else:
                source = source.filter(lambda *_: next(choices))
            if options.cache:
                source, notes, workers = _use_cache(source, run.gallery.recipe, options, progress, workers)
            report = _classify_to(update, run.with_source(source), workers, progress)
            # A README among images counts as failed only if there is nothing else, in earlier rows either.
            report = replace(report, skipped=update.done.skipped if update.has_answers else report.skipped)
    return _add_notes([*update.notes, *notes], report)


def _list_queries(run: Run) -> Iterator[Listed]:
    """Yield every query with everything that its row depends on, besides the settings."""
    from crnr_cli.results.record import Listed
    from crnr_cli.sources.tables import Features

    source = run.source
    if not isinstance(source, Features):
        find_truth = make_class_chooser(run.gallery.classes, is_labelled=source.is_labelled)
        for path, folders, size, mtime_ns in source.listing():
            truth = find_truth(folders)
            yield Listed(path, size, mtime_ns, () if truth is None else (truth,))
        return
    for file in source.files:
        beside = (f"{path} {stamp.size} {stamp.mtime_ns}" for path, stamp in file.beside)
        about = (with_slashes(str(file.path)), *beside)
        for name in file.names:
            yield Listed(name, *file.stamp, about)


def _find_finished(output: Path, run: Run, gallery: Path) -> Finished | None:
    """Return whether a finished output belongs to this run; None without a finished output."""
    from crnr_cli.results.record import find_finished

    header, newer = run.row_formatter.lines.header(), gallery.stat().st_mtime_ns
    if run.options.events is not None:
        from crnr_cli.results.events import extend_header

        header = extend_header(header)
    return find_finished(output, run.settings(), header, _list_queries(run), newer)


def _refuse_format(format: str, resume: bool, update: Gone | None) -> None:
    """Refuse, before any work, a format that cannot be written."""
    if format == "parquet":
        if update:
            raise UsageError("--update cannot replace rows of a Parquet file; choose --format csv or jsonl")
        require_packages("parquet", "--format parquet", "pyarrow")
        if resume:
            raise UsageError(
                "--resume cannot continue a Parquet file, which is unreadable until it is complete; "
                "choose --format csv or jsonl"
            )


def _prepare_events(options: QueryOptions, events: EventOptions, update: Gone | None) -> QueryOptions:
    from crnr_cli.gallery.events import prepare_events

    return prepare_events(options, events, update=update is not None)


def _make_finish(run: Run, events: EventOptions, progress: Progress) -> Finish:
    """Return a function that adds the answers to events to the finished rows."""
    from crnr_cli.gallery.events import make_event_answers

    return partial(make_event_answers(run, events).finish, progress=progress)


def _use_cache(
    source: Source, recipe: Recipe, options: QueryOptions, progress: Progress, workers: Workers
) -> tuple[Source, list[Note], Workers]:
    """Return the queries as features of the cache, which is brought up to date, with notes and workers."""
    from crnr_cli.gallery.extraction import read_queries_through_cache  # here, because few runs need it

    assert options.cache is not None
    source, notes = read_queries_through_cache(source, recipe, options, options.cache, progress, workers)
    return source, notes, Here(DecoderPool(options.jobs))  # reading features is faster than sending them


@contextmanager
def _finishing(output: BinaryIO, finish: Finish | None) -> Iterator[BinaryIO]:
    """Yield the output or, if the rows have to be finished in the end, a temporary file for them."""
    if finish is None:
        yield output
        return
    from tempfile import TemporaryFile  # here, because few runs need it

    with TemporaryFile() as rows:
        yield rows
        finish(rows, output)
    output.flush()


class _Direct:
    """A stream that cannot be resumed, written batch by batch."""

    remedy = ""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.done = stream, Done()

    def begin(self, header: bytes) -> None:
        self.stream.write(header)

    def write(self, data: bytes) -> None:
        self.stream.write(data)

    def end_batch(self, statuses: Counter[str], skipped: int, failed: Sequence[int] = ()) -> None:
        self.stream.flush()
        self.done.statuses += statuses
        self.done.skipped += skipped


def _classify_to(file: Output, run: Run, workers: Workers, progress: Progress) -> ClassifyReport:
    done, total = file.done, len(run.source)
    resumed_after = done.statuses.total()
    failures: list[tuple[str, str]] = []
    if done.skipped:
        _refuse_too_many(file, total, run.options)
    write = _write_parquet if run.options.format == "parquet" else _write_rows
    for batch in write(file, run, workers, progress):
        file.end_batch(batch.statuses, batch.missing, batch.missing_rows)
        if run.options.all_failures or len(failures) < MAX_FAILURES:
            failures += batch.failures
        if batch.missing:
            _refuse_too_many(file, total, run.options, batch.first_missing)
    if not total:
        file.end_batch(Counter(), 0)  # the header
    answered = sum(done.statuses[status] for status in (OK, REJECTED, BROADER))
    return ClassifyReport(
        n_queries=total,
        resumed_after=resumed_after,
        statuses=done.statuses,
        # Unrelated files among images do not count; but if there is nothing else, they were meant.
        skipped=done.skipped if answered else total - done.statuses[NO_BOX],
        failures=failures if run.options.all_failures else failures[:MAX_FAILURES],
        rejection=run.rejection_rule(),
        notes=run.notes(),
    )


def _write_rows(file: Output, run: Run, workers: Workers, progress: Progress) -> Iterator[RowBatch]:
    """Yield every batch after it was written."""
    file.begin(run.row_formatter.lines.header())
    for batch in workers.answer_rows(run, progress) if len(run.source) else ():
        file.write(batch.data)
        yield batch


def _write_parquet(file: Output, run: Run, workers: Workers, progress: Progress) -> Iterator[RowBatch]:
    """Yield every batch after it was written."""
    from crnr_cli.results.formats import ParquetRows, parquet_schema
    from crnr_cli.system.parquet_writer import refuse_other_encodings, table_writer

    assert isinstance(file, _Direct)
    classes = run.gallery.classes
    refuse_other_encodings(classes)
    with table_writer(file.stream, parquet_schema(classes, run.gallery.dtype, run.top, run.columns)) as table:
        writer = ParquetRows(table, classes, run.top, run.columns)
        for answers in workers.answer(run, progress) if len(run.source) else ():
            yield RowBatch.of(answers, writer.write(answers))


def _refuse_too_many(
    file: Output, total: int, options: QueryOptions, latest: tuple[str, str] | None = None
) -> None:
    """Stop when more inputs have failed than allowed, including failures of the earlier run."""
    refuse_too_many(
        file.done.skipped,
        total,
        options.max_failure_rate,
        "query",
        file.remedy,
        fate="no answer",
        latest=": ".join(latest) if latest else None,
    )
