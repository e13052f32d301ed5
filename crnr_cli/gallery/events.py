"""Answer the events of a run, when all its queries are classified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryFile

from crnr_cli.errors import UsageError
from crnr_cli.gallery.queries import QueryOptions, Run
from crnr_cli.images.dates import BY_EXIF
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers, Prediction
from crnr_cli.results.events import EventAnswers, EventOptions


def prepare_events(options: QueryOptions, events: EventOptions, *, update: bool = False) -> QueryOptions:
    """Return options that read the dates that events need; refuse, before any work, runs without events."""
    if update:
        raise UsageError(
            f"--update keeps rows whose events may have changed; leave out {events.option} or --update"
        )
    if options.taxa is not None:
        raise UsageError(f"{events.option} gives an event one of the classes, none broader; leave out --taxa")
    if options.format == "parquet":
        raise UsageError(
            f"{events.option} cannot add columns to a Parquet file; choose --format csv or jsonl"
        )
    if events.gap is None:
        if options.labels is None:
            raise UsageError("--event-by is a column of the label table; name the table with --labels")
        return options
    given = "--dates" if options.dates else events.option
    return replace(options, dates=options.dates or BY_EXIF, dates_option=given)


def make_event_answers(run: Run, events: EventOptions) -> EventAnswers:
    """Return an object that answers events by the rows of a run."""
    options, gallery = run.options, run.gallery
    assert run.sureness is not None  # events have calibrated the gallery
    find_key = None
    if events.column is not None and options.labels is not None:
        find_key = replace(options.labels, label_column=events.column).read("--event-by").label_of
    return EventAnswers(
        gap=events.gap,
        find_key=find_key,
        is_csv=options.format == "csv",
        classes=gallery.classes,
        certainty=run.sureness.certainty,
        dtype=gallery.dtype,
        signed=gallery.method.signed,
        min_probability=options.min_probability or 0.0,
    )


class EventRows:
    """The rows of a run without an output file, kept until its events can be answered."""

    def __init__(self, run: Run, events: EventOptions) -> None:
        self._answers = make_event_answers(run, events)
        self._formatter = run.row_formatter
        self._rows = TemporaryFile()  # noqa: SIM115, closed by finish, or with this object
        self._rows.write(self._formatter.lines.header())

    def add(self, answers: Answers) -> None:
        """Keep the rows of a batch."""
        self._rows.write(self._formatter.format(answers).data)

    def finish(self, rows: Sequence[Prediction], progress: Progress) -> list[Prediction]:
        """Return all rows of the run, in the order of the batches, with their events."""
        with self._rows as file:
            events, answers = self._answers.answer(file, progress)
        return [
            row._replace(event=str(event), event_label=answers[event - 1][0])
            for row, event in zip(rows, events.tolist(), strict=True)
        ]
