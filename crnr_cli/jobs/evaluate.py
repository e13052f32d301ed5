"""Evaluate: turn predictions with known truth into scores."""

from __future__ import annotations

import difflib
import os
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeAlias

from crnr_cli.choices import AUTO, ENDINGS
from crnr_cli.errors import DataError, NotANumberError, SampleError, UsageError, refuse_too_many
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, Run, load_for_queries, open_queries
from crnr_cli.gallery.samples import LeftOut, Report
from crnr_cli.gallery.scenes import Leaks
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import OK, UNKNOWN, Prediction, make_predictions
from crnr_cli.results.edited import Corrections, read_corrections
from crnr_cli.results.formats import has_parquet_predictions, parse_stream, read_answers
from crnr_cli.results.reliability import Reliability, SetScores, measure_reliability, score_sets
from crnr_cli.results.scores import (
    EventScores,
    OpenSet,
    Scores,
    divide_by_truth,
    has_answer,
    score,
    score_events,
    score_open_set,
    unify_spellings,
)
from crnr_cli.results.table import Predictions
from crnr_cli.results.taxa import BroaderScores, Taxa, score_broader
from crnr_cli.results.thresholds import ThresholdTable, measure_rows
from crnr_cli.sources.base import Source
from crnr_cli.sources.formats import Keys, is_table
from crnr_cli.sources.formats.csv_table import has_features
from crnr_cli.sources.images import NO_BOX, is_unrelated
from crnr_cli.sources.label_table import Labels
from crnr_cli.sources.tables import Features
from crnr_cli.system.names import join_command, normalize_path, quote_word, stat_or_none
from crnr_cli.system.outputs import refuse_inputs, refuse_mentioned
from crnr_cli.wording import Note, format_count

if TYPE_CHECKING:
    from crnr_cli.gallery.events import EventRows

LEAKS = "leaks"  # the kind of the note on similar images
_MAX_COMPARED = 1_000_000  # names of folders and classes, to find misspelt ones: some ten seconds

_Answered: TypeAlias = tuple[list[Prediction], list[str], list[LeftOut]]  # rows, copies and failures


@dataclass(frozen=True)
class Truth:
    """Sources of the truth besides folders and labels, and the answers to compare it with."""

    corrections: Path | None = None  # of a review, whose decisions are the truth
    outsiders: Sequence[Path] = ()  # folders or files of outsiders
    needs_probabilities: bool = False  # calibrate the gallery if it has no probabilities

    def require_probabilities(self, options: QueryOptions) -> QueryOptions:
        """Return options that calibrate the gallery, if needed."""
        if not self.needs_probabilities or options.min_probability is not None:
            return options
        return replace(options, min_probability=0.0)  # which rejects nothing


@dataclass(frozen=True)
class EvaluateReport(Report):
    scores: Scores  # of the known queries with an answer
    over_all: Scores  # of all known queries; failed and rejected ones count as wrong
    rows: list[Prediction]
    known: list[Prediction]  # rows whose true class is a class of the gallery
    without_truth: int
    failed: Counter[str]  # rows without a label, by status
    unrelated: int  # rows of unrelated files, which are ignored
    without_box: int  # rows of images without a box, which are ignored too
    reliability: Reliability | None = None  # None if no row has a probability
    sets: SetScores | None = None  # None if no row has a set of labels
    thresholds: ThresholdTable | None = None  # None if no row has a probability
    open_set: OpenSet | None = None  # None without outsiders
    broader: BroaderScores | None = None  # None without broader classes
    events: EventScores | None = None  # None if the rows have no events
    gallery: FittedGallery | None = (
        None  # the gallery that classified the queries; None if the rows are from a CSV
    )
    copies: list[str] = field(default_factory=list)  # queries that are also in this gallery
    leaks: Leaks | None = None  # queries that are similar to samples; None if they were not looked for
    reviewed: int | None = None  # rows whose truth comes from a review; None without corrections
    classes: Sequence[str] = ()  # all classes of the gallery; empty if a predictions file does not list them

    @property
    def answered(self) -> int:
        """The number of known queries with an answer."""
        return self.scores.n

    @property
    def answer_rate(self) -> float | None:
        """The share of the known queries that have an answer; None if all are outsiders."""
        return self.scores.n / self.over_all.n if self.over_all.n else None

    @property
    def rejected(self) -> list[Prediction]:
        """Known queries that are labelled as unknown."""
        return [row for row in self.known if row.label == UNKNOWN]

    @property
    def rejected_without_truth(self) -> int:
        return sum(1 for row in self.rows if row.label == UNKNOWN and not row.truth)

    @property
    def rejected_guess_right(self) -> int:
        """Rejected rows whose best guess is the truth: the cost of rejecting."""
        return sum(1 for row in self.rejected if row.runner_up == row.truth)

    @property
    def missing_classes(self) -> dict[str, int]:
        """True classes that the gallery does not have, with the number of their queries."""
        found = self.open_set.true_classes if self.open_set else {}
        return {name: count for name, count in found.items() if name != UNKNOWN}

    @property
    def unknown_folders(self) -> Counter[str]:
        """The folders of images without a true class; none of them is named after a class."""
        rows = [row for row in self.rows if not row.truth and not is_table(row.path.rpartition("#")[0])]
        folders = Counter(PurePath(row.path).parent.name for row in rows)
        del folders[""]
        return folders

    @property
    def known_classes(self) -> Sequence[str]:
        """The classes of the gallery or, if they are not listed, every truth and label."""
        return self.classes or [score.name for score in self.over_all.classes]

    def similar_classes(self, names: Collection[str]) -> dict[str, str]:
        """Return the most similar class of each name that has one; none of very many, which takes long."""
        if len(names) * len(self.known_classes) > _MAX_COMPARED:
            return {}
        lower = {known.lower(): known for known in reversed(self.known_classes)}
        near = {name: difflib.get_close_matches(name.lower(), list(lower), 1, 0.75) for name in names}
        return {name: lower[found[0]] for name, found in near.items() if found}

    @property
    def mistakes(self) -> list[Prediction]:
        """Wrong answers, the most confident first."""
        wrong = [row for row in self.rows if row.truth and has_answer(row) and row.truth != row.label]
        wrong += self.broader.wrong if self.broader else []
        return sorted(wrong, key=lambda row: -(row.margin or 0.0))


def evaluate(
    names: Sequence[str],
    gallery_path: Path,
    options: QueryOptions,
    progress: Progress = silent,
    truth: Truth | None = None,
) -> EvaluateReport:
    """Score predictions CSVs (`-` is one on stdin), or classify labelled queries and score the answers."""
    truth = truth or Truth()
    reviewed = None if truth.corrections is None else read_corrections(truth.corrections)
    outsiders = truth.outsiders
    tables = [name for name in names if _has_predictions(name)]
    if tables and len(tables) < len(names):
        other = next(name for name in names if name not in tables)
        raise UsageError(
            f"{tables[0]}: contains predictions, so it cannot be scored with queries such as {other}; give "
            "one kind of file"
        )
    if tables:
        return _evaluate_tables(tables, options, reviewed, outsiders)
    if options.events is not None:
        from crnr_cli.gallery.events import prepare_events

        options = prepare_events(options, options.events)
    gallery = load_for_queries(truth.require_probabilities(options), gallery_path, progress)
    try:
        source = open_queries(names, gallery, options, path=gallery_path)
    except NotANumberError as e:
        if options.keys != Keys():
            raise
        raise DataError(
            f"{', '.join(names)}: has neither predictions (columns truth and label) nor features; use "
            "--labels to give the labels of images"
        ) from e
    strangers = open_outsiders(outsiders, gallery, options) if outsiders else None
    if strangers:
        source = without_outsiders(source, strangers, names)
    run = Run.prepare(gallery, source, replace(options, find_copies=True))
    leaks = Leaks()
    rows, copies, left_out = _answer_all(run, strangers, outsiders, leaks, progress)
    notes = _list_notes(run, [one for one in (source, strangers) if isinstance(one, Features)])
    name = ", ".join(names) or _name_table(options)
    report = evaluate_rows(rows, name, reviewed, gallery.classes, options.taxa)
    leaks.compare_images(gallery, DecoderPool(options.jobs), options.max_pixels)
    if leaks.pairs:
        remedy = _spell_audit(gallery_path, names, options)
        notes.append(Note(LEAKS, leaks.describe(len(report.rows), remedy)))
    return replace(
        report,
        gallery=gallery,
        copies=copies,
        leaks=leaks if run.finds_similar else None,
        left_out=left_out,
        notes=notes,
    )


def _spell_audit(gallery_path: Path, names: Sequence[str], options: QueryOptions) -> str:
    """Return the command that lists queries similar to examples."""
    queries = (part for name in names for part in ("--queries", name))
    boxes = ["--boxes", str(options.boxes.path)] if options.boxes else []
    return join_command(["crnr", "audit", str(gallery_path), *queries, *boxes])


def _name_table(options: QueryOptions) -> str:
    """Return the file that names the queries, if no source was given."""
    return ", ".join(str(table.path) for table in (options.labels, options.boxes) if table)


def _evaluate_tables(
    names: Sequence[str], options: QueryOptions, reviewed: Corrections | None, outsiders: Sequence[Path]
) -> EvaluateReport:
    """Score predictions files."""
    _refuse_query_options(options, names[0])
    refuse_inputs(name for name in names if name != "-")
    files = [_read(name) for name in names]
    rows = [
        row._replace(event=f"{number}:{row.event}") if row.event else row  # each file counts from 1
        for number, file in enumerate(files)
        for row in file
    ]
    classes = [name for file in files for name in file.classes] if all(f.classes for f in files) else []
    refuse_mentioned(row.path for row in rows)
    if options.labels is not None:
        rows = _with_truth(rows, options.labels.read())
    rows, classes = mark_outsiders(rows, outsiders), list(dict.fromkeys(classes))
    report = evaluate_rows(rows, ", ".join(names), reviewed, classes, options.taxa)
    if report.broader is None or report.broader.broader_right is not None:
        return report
    text = "broader answers are not scored; add --taxa with the table that `crnr classify` used"
    return replace(report, notes=[Note("taxa", text)])


def _answer_all(
    run: Run, strangers: Source | None, outsiders: Sequence[Path], leaks: Leaks, progress: Progress
) -> _Answered:
    """Answer the queries and the outsiders, and then their events."""
    events = None
    if run.options.events is not None:
        from crnr_cli.gallery.events import EventRows

        events = EventRows(run, run.options.events)
    rows, copies, left_out = _answer(run, leaks, progress, events)
    if strangers:
        # A step of its own: otherwise its progress would begin again with the queries.
        counted_apart = partial(_report_outsiders, progress)
        more, more_copies, more_left_out = _answer(run.with_source(strangers), leaks, counted_apart, events)
        require_readable_outsiders(more, outsiders)
        rows += [row._replace(truth=UNKNOWN) for row in more]
        copies += more_copies
        left_out += more_left_out
    return events.finish(rows, progress) if events else rows, copies, left_out


def _answer(run: Run, leaks: Leaks, progress: Progress, events: EventRows | None) -> _Answered:
    """Return the rows of all queries, the names of queries in the gallery, and the failures.

    Queries that are similar to samples are added to the leaks.
    """
    rows: list[Prediction] = []
    left_out: list[LeftOut] = []
    copies: list[str] = []
    for answers in run.answer(DecoderPool(run.options.jobs), progress):
        copies += answers.copies
        leaks.add(answers.similar)
        if events:
            events.add(answers)
        batch = make_predictions(answers, run.gallery.classes)
        rows += batch
        without = [LeftOut(row.path, SampleError(row.status)) for row in batch if row.label is None]
        left_out += [left for left in without if left.is_skipped]
        allowed = run.options.max_failure_rate
        refuse_too_many(left_out, len(run.source), allowed, "query", fate="no answer")
    return rows, copies, left_out


def _list_notes(run: Run, of_features: Sequence[Features]) -> list[Note]:
    """Return notes on feature files, and on a table of broader classes."""
    broader = run.sureness.broader if run.sureness else None
    return [
        *(Note("source", text) for one in of_features for text in one.notes()),
        *(broader.notes if broader else ()),
    ]


def _report_outsiders(progress: Progress, step: str, done: int, total: int) -> None:
    progress(f"{step} outsiders", done, total)


def _has_predictions(name: str) -> bool:
    """Return whether a file holds predictions; a CSV or a Parquet file may also hold queries."""
    if name == "-" or not name.lower().endswith(ENDINGS):
        return name == "-"
    path = Path(name)
    if path.suffix.lower() == ".csv":
        return not has_features(path)
    return path.suffix.lower() != ".parquet" or stat_or_none(path) is None or has_parquet_predictions(path)


def _with_truth(rows: list[Prediction], labels: Labels) -> list[Prediction]:
    """Return the same answers with the truth of a table; rows that are not in it get no truth."""
    found = [row._replace(truth=labels.label_of(row.path)) for row in rows]
    if not any(row.truth for row in found):
        raise DataError(
            f"{labels.table}: has a label for none of the {format_count(len(rows), 'row')}; use --root to "
            "give the folder that its paths are relative to"
        )
    return found


def _with_corrections(rows: list[Prediction], reviewed: Corrections) -> tuple[list[Prediction], int]:
    """Return the same answers, with the truth of reviewed rows, and the number of reviewed rows."""
    found = [reviewed.of(row.path) if row.path else None for row in rows]
    count = sum(one is not None for one in found)
    if not count:
        raise DataError(
            f"{reviewed.file}: has none of the {format_count(len(rows), 'row')}, such as {rows[0].path}; "
            "paths are relative to the current folder, so run the command where `crnr classify` ran"
        )
    pairs = zip(rows, found, strict=True)
    return [row if one is None else row._replace(truth=one.corrected) for row, one in pairs], count


def _refuse_query_options(options: QueryOptions, table: str) -> None:
    """Refuse options for classifying: on a CSV they have no effect, and the scores would mislead."""
    given = {
        "--reject": options.reject,
        "--min-probability": options.min_probability,
        "--sets": options.sets,
        **({options.events.option: options.events.value} if options.events else {}),
        "--boxes": options.boxes,
        "--model-path": options.model,
        "--provider": None if options.provider == AUTO else options.provider,
        "--features-key": options.keys.features,
        "--labels-key": options.keys.labels,
        "--samples-axis": options.keys.samples,
        "--strict or --max-failure-rate": None if options.max_failure_rate == 1 else options.max_failure_rate,
    }
    for option, value in given.items():
        if value is None:
            continue
        remedy = "leave it out"
        if option in ("--reject", "--min-probability", "--sets", "--event-gap", "--event-by"):
            shown = f"{value:g}" if isinstance(value, float) else quote_word(str(value))
            remedy = f"run `crnr classify {option} {shown}` first"
        raise UsageError(f"{option} has no effect on the existing predictions in {table}; {remedy}")


def evaluate_rows(
    rows: list[Prediction],
    name: str,
    corrections: Corrections | None = None,
    classes: Sequence[str] = (),
    taxa: Taxa | None = None,
) -> EvaluateReport:
    """Score the rows; the Unicode forms of a class in `classes`, or in the answers, are one class.

    A query of another class than all `classes` of the gallery is an outsider. If `classes` is empty, they are
    not listed, and only queries whose truth is `unknown` are known to be outsiders.
    """
    reviewed: int | None = None
    if corrections is not None and rows:
        rows, reviewed = _with_corrections(rows, corrections)
    rows = unify_spellings(rows, classes)
    # An unrelated file among the images is not a query.
    n_inputs = len(rows)
    without_box = sum(1 for row in rows if not row.label and row.status == NO_BOX)
    rows = [row for row in rows if row.label or not row.path or not is_unrelated(row.path, row.status)]
    if not any(row.truth for row in rows):
        raise DataError(
            f"{name}: no query has a true class; put the queries into folders named after the gallery's "
            "classes and run `crnr evaluate FOLDER`, or give their labels with --labels FILE.csv (columns "
            "path and label) or --corrections FILE"
        )
    known, outsiders = divide_by_truth(rows, classes)
    if not known and all(row.truth != UNKNOWN for row in outsiders):  # other names, rather than outsiders
        raise DataError(
            f"{name}: no true class, such as {outsiders[0].truth!r}, is a class of the gallery, such as "
            f"{classes[0]!r}; use the names of the gallery's classes, or give outsiders with --outsiders"
        )
    return EvaluateReport(
        # Outsiders are scored apart: as a class that no answer can be right for, they would lower every mean.
        scores=_score([row for row in known if has_answer(row)]),
        over_all=_score(known),
        rows=rows,
        known=known,
        without_truth=sum(1 for row in rows if not row.truth),
        failed=Counter("no_label" if row.status == OK else row.status for row in rows if not row.label),
        unrelated=n_inputs - len(rows) - without_box,
        without_box=without_box,
        # Probabilities and sets do not apply to outsiders.
        reliability=measure_reliability(known),
        sets=score_sets(known),
        thresholds=measure_rows(known, outsiders),
        open_set=score_open_set(known, outsiders),
        broader=score_broader(known, outsiders, taxa),
        events=score_events(known, outsiders),
        reviewed=reviewed,
        classes=classes,
    )


def _score(known: Sequence[Prediction]) -> Scores:
    return score(
        [row.truth or "" for row in known], [row.label if has_answer(row) else None for row in known]
    )


def _read(name: str) -> Predictions:
    if name != "-":
        stat_or_none(name)  # reports a closed folder or a name that is too long
        return read_answers(Path(name))
    if sys.stdin is None:
        raise DataError("-: stdin is closed; give it a predictions file")
    return parse_stream(sys.stdin.buffer, "stdin")


def open_outsiders(outsiders: Sequence[Path], gallery: FittedGallery, options: QueryOptions) -> Source:
    for path in outsiders:
        if stat_or_none(path, follow_links=False) is None:
            raise DataError(f"{path}: no such file or folder")
    return open_queries([str(path) for path in outsiders], gallery, replace(options, labels=None))


def without_outsiders(source: Source, outsiders: Source, names: Sequence[str]) -> Source:
    """Return the same listing without the outsiders, which may be in a folder among the queries."""
    places = set(map(normalize_path, outsiders.names()))
    rest = source.filter(lambda name, stamp, candidates: normalize_path(name) not in places)
    if not len(rest):
        raise UsageError(
            f"--outsiders: all queries in {', '.join(names)} would be outsiders; give other queries too"
        )
    return rest


def require_readable_outsiders(rows: Sequence[Prediction], outsiders: Sequence[Path]) -> None:
    if not any(row.label for row in rows):
        raise DataError(
            f"--outsiders: nothing in {', '.join(map(str, outsiders))} can be used; "
            f"{rows[0].path}: {rows[0].status}"
        )


def mark_outsiders(rows: list[Prediction], outsiders: Sequence[Path]) -> list[Prediction]:
    """Return the same rows; files that are outsiders, or in a folder of outsiders, get no class."""
    for folder in outsiders:
        place = normalize_path(str(folder))
        ends = (os.sep, "#") if is_table(folder) else (os.sep,)  # a feature file has rows
        inside = tuple(place.rstrip(os.sep) + end for end in ends)
        found = [row.path != "" and f"{normalize_path(row.path)}{os.sep}".startswith(inside) for row in rows]
        if not any(found):
            raise DataError(
                f"{folder}: contains no file of the {format_count(len(rows), 'row')}; paths "
                "are relative "
                "to the current folder, so run the command where `crnr classify` ran"
            )
        rows = [row._replace(truth=UNKNOWN) if is_in else row for row, is_in in zip(rows, found, strict=True)]
    return rows
