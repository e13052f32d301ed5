"""crnr evaluate."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import (
    format_number,
    note_separators,
    print_json,
    say,
    say_page,
    say_some,
    shown_progress,
    write_csv,
)
from crnr_cli.cli.events import Events
from crnr_cli.cli.options import (
    ConfidenceOptions,
    ErrorHandlingOptions,
    ModelOptions,
    PrintOptions,
    SourceOptions,
)
from crnr_cli.cli.parsing import HiddenNames, Number
from crnr_cli.cli.score_tables import MAX_CONFUSION, show_scores
from crnr_cli.cli.thresholds import TargetAccuracy, show_thresholds
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count, has_or_have

if TYPE_CHECKING:
    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Scores
    from crnr_cli.results.thresholds import ChosenThreshold

_MAX_MATRIX = 1000  # classes; for more, JSON has only the cells that are not zero
_threshold_option = partial(
    typer.Option, parser=Number(at_most=1), metavar="SHARE", rich_help_panel="Pass/fail thresholds"
)


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions:
    """Scores that make the command fail. docs/reference/scores.md has a table of what each counts."""

    min_accuracy: Annotated[
        float | None,
        _threshold_option(help="Exit with 4 if the accuracy is below SHARE (no answer: wrong)."),
    ] = None
    min_f1: Annotated[
        float | None,
        _threshold_option(help="Exit with 4 if the macro F1 is below SHARE (no answer: wrong)."),
    ] = None
    min_answer_rate: Annotated[
        float | None,
        _threshold_option(help="Exit with 4 if the answer rate is below SHARE; outsiders do not count."),
        HiddenNames("min-coverage"),
    ] = None
    min_rejected: Annotated[
        float | None,
        _threshold_option(help="Exit with 4 if less than SHARE of the outsiders is rejected."),
    ] = None

    def require_outsiders(self, report: EvaluateReport) -> None:
        """Raise UsageError if there is a threshold for outsiders, but no outsiders."""
        if self.min_rejected is not None and report.open_set is None:
            raise UsageError("--min-rejected needs outsiders; name them with --outsiders DIR")

    def finish(self, report: EvaluateReport) -> None:
        """Exit with GATE_MISSED if a score is too low, and say which."""
        over_all = report.over_all
        unanswered = over_all.n - report.scores.n
        inputs = f"{unanswered} of {format_count(over_all.n, 'query')}"
        kind = "exact answer" if report.broader else "answer"
        why = f"; {inputs} {has_or_have(unanswered)} no {kind}, which counts as wrong" if unanswered else ""
        missed = [
            _report_if_below("accuracy", over_all.accuracy, self.min_accuracy, why),
            _report_if_below("macro F1", over_all.macro.f1, self.min_f1, why),
            _report_if_below("answer rate", report.answer_rate, self.min_answer_rate, ""),
            _report_if_below(
                "share of rejected outsiders",
                report.open_set.share if report.open_set else None,
                self.min_rejected,
                "",
            ),
        ]
        if any(missed):
            raise typer.Exit(GATE_MISSED)


def _report_if_below(name: str, value: float | None, minimum: float | None, why: str) -> bool:
    if minimum is None or (value is not None and value >= minimum):
        return False
    say(f"{name} {format_number(value)} is below {minimum:g}{why}", style="red")
    return True


Evaluated = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SOURCE...",
        help="Predictions file from `crnr classify` (- is stdin), or labelled queries to classify now. "
        "With --labels or --boxes, the default is all files of that file.",
    ),
]


@make_command(side_by_side=True)
def evaluate(
    context: typer.Context,
    sources: Evaluated = None,
    gallery: options.GalleryPath = options.GALLERY,
    corrections: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Use the labels saved by `crnr review` as the truth.",
        ),
    ] = None,
    errors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every mistake to this CSV file."), Written()
    ] = None,
    confusion: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the confusion matrix to this CSV file."),
        Written(),
    ] = None,
    html: options.HtmlReport = None,
    images_from: options.ImagesFrom = None,
    outsiders: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder or file of queries that belong to no class.",
        ),
    ] = None,
    target_accuracy: TargetAccuracy = None,
    *,
    thresholds: ThresholdOptions,
    confidence: ConfidenceOptions,
    events: Events,
    input: SourceOptions,
    model: ModelOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Score labels against the truth.

    Prints accuracy, precision, recall, F1 and the confusion matrix.
    """
    from crnr_cli.gallery.queries import QueryOptions
    from crnr_cli.jobs import evaluate as job
    from crnr_cli.system.extras import require_packages

    sources = options.require_sources(context, sources, input.labels, input.boxes)
    named = sources or [str(path) for path in (input.labels, input.boxes) if path]
    if html:
        require_packages("report", "--html", "jinja2")
    query_options = QueryOptions(
        **input.to_fields(),
        **error_handling.to_fields(),
        **confidence.to_fields(),
        events=None if events == Events() else events.choose(),
        **model.to_fields(),
    )
    with shown_progress(output.quiet) as progress:
        truth = job.Truth(corrections, outsiders or [], needs_probabilities=target_accuracy is not None)
        report = job.evaluate(sources, gallery, query_options, progress, truth)
    thresholds.require_outsiders(report)
    choice = _choose_threshold(report, target_accuracy)
    _write_tables(report, confusion, errors, ", ".join(named))
    notes: list[str] = []
    if html:
        from crnr_cli.report.evaluation import write_report

        notes = write_report(report, html, named, gallery, input.max_pixels, images_from or [])
    if output.json:
        print_json({**_record(report), "target_accuracy": choice.to_record() if choice else None})
    else:
        show_scores(report)
        show_thresholds(report.thresholds, choice)
    if not output.quiet:
        tables = [*map(Path, sources), *filter(None, (corrections, input.labels, confidence.taxa))]
        _say_notes(report, [*note_separators(tables), *notes], corrections)
        say_page(html)
    thresholds.finish(report)
    error_handling.finish(report.skipped)


def _choose_threshold(report: EvaluateReport, target: float | None) -> ChosenThreshold | None:
    if target is None:
        return None
    if report.thresholds is None:
        raise UsageError(
            "--target-accuracy needs known queries with probabilities; run `crnr classify` with a gallery "
            "that was built with --calibrate"
        )
    return report.thresholds.choose_threshold(target)


def _say_notes(report: EvaluateReport, notes: list[str], corrections: Path | None) -> None:
    for note in dict.fromkeys((*(note.text for note in report.notes), *notes)):
        say(f"note: {note}", style="yellow")
    if corrections is not None and report.reviewed is not None:
        rest = (
            f"; {report.without_truth} {has_or_have(report.without_truth)} no true class"
            if report.without_truth
            else ""
        )
        rows = format_count(len(report.rows), "answer")
        say(f"note: {report.reviewed} of {rows} scored against {corrections}{rest}", style="yellow")
    else:
        say_some("note", _unknown_folders(report), style="yellow")
    say_some("note", _missing_classes(report), style="yellow")
    if report.copies:
        from crnr_cli.gallery.fit import copies_note

        say(f"note: {copies_note(report.copies, len(report.rows))}", style="yellow")


def _missing_classes(report: EvaluateReport) -> list[str]:
    """Return one line per true class that the gallery lacks; names that may be misspelt come first."""
    missing = report.missing_classes
    similar = report.similar_classes(missing)
    lines = [
        f"{format_count(count, 'query')} of the class {name}, which the gallery does not have, "
        f"{'counts as an outsider' if count == 1 else 'count as outsiders'}{_hint(similar.get(name))}"
        for name, count in missing.items()
    ]
    return sorted(lines, key=lambda line: "did you mean" not in line)


def _hint(like: str | None) -> str:
    return f"; did you mean {like}?" if like else ""


def _unknown_folders(report: EvaluateReport) -> list[str]:
    """Return one line per folder that is named after no class; names that may be misspelt come first."""
    lines = []
    folders = report.unknown_folders
    similar = report.similar_classes(folders)
    for folder, count in folders.most_common():
        hint = _hint(similar.get(folder))
        if folder.lower().removeprefix("_") == "unknown":
            hint = "; if they belong to no class of the gallery, add --outsiders with this folder"
        queries = format_count(count, "query")
        lines.append(f"{queries} without a true class: the folder {folder} is not named after a class{hint}")
    return sorted(lines, key=lambda line: "did you mean" not in line)


def _refuse_too_many_classes(name: str, n_classes: int) -> None:
    from crnr_cli.errors import DataError

    if n_classes > MAX_CONFUSION:
        raise DataError(
            f"{name}: truth and label have {n_classes} different names, and --confusion takes at most "
            f"{MAX_CONFUSION}; check that they are names of classes, or use --json, which lists the cells "
            "that are not zero"
        )


def _write_tables(report: EvaluateReport, confusion: Path | None, errors: Path | None, source: str) -> None:
    if confusion:
        _write_confusion(confusion, report.scores, source)
    if errors:
        columns = ["path", "truth", "label", "margin"]
        write_csv(errors, columns, ([getattr(row, name) for name in columns] for row in report.mistakes))


def _write_confusion(path: Path, scores: Scores, source: str) -> None:
    _refuse_too_many_classes(source, len(scores.classes))
    names = [score.name for score in scores.classes]
    rows = ([name, *row] for name, row in zip(names, scores.confusion_rows(), strict=True))
    write_csv(path, ["truth \\ label", *names], rows)


def _record(report: EvaluateReport) -> dict[str, Any]:
    scores, over_all = report.scores, report.over_all
    return {
        **_scores_record(scores),
        "over_all": {
            "n": over_all.n,
            "accuracy": over_all.accuracy,
            "interval": over_all.interval,
            "macro": asdict(over_all.macro),
        },
        "known": _known_record(report),
        "inputs": len(report.rows),
        "answered": report.answered,
        "coverage": report.answer_rate,
        "in_gallery": len(report.copies) if report.gallery else None,
        "similar_in_gallery": len(report.leaks.pairs) if report.leaks else None,
        "without_truth": report.without_truth,
        "reviewed": report.reviewed,
        "failed": dict(report.failed),
        "passed_over": report.unrelated + report.without_box,
        "rejected": len(report.rejected) + report.rejected_without_truth,
        "rejected_with_truth": len(report.rejected),
        "rejected_guess_right": report.rejected_guess_right,
        "reliability": asdict(report.reliability) if report.reliability else None,
        "thresholds": report.thresholds.to_record() if report.thresholds else None,
        "sets": _sets_record(report),
        "open_set": _open_set_record(report),
        "broader": report.broader.to_record() if report.broader else None,
        "events": _events_record(report),
        "classes": [vars(score) for score in scores.classes],
        "confusion": list(scores.confusion_rows()) if len(scores.classes) <= _MAX_MATRIX else None,
        "confusion_cells": scores.cells.tolist(),
    }


def _scores_record(scores: Scores) -> dict[str, Any]:
    from crnr_cli.results.intervals import macro_intervals

    return {
        "n": scores.n,
        "correct": scores.correct,
        "accuracy": scores.accuracy,
        "interval": scores.interval,
        "macro": asdict(scores.macro),
        "macro_intervals": asdict(macro_intervals(scores)),
        "weighted": asdict(scores.weighted),
    }


def _known_record(report: EvaluateReport) -> dict[str, Any]:
    """Return the block of known queries, as it is printed: every share is of all `n` of them."""
    return {
        **_scores_record(report.over_all),
        "answered": report.answered,
        "answer_rate": report.answer_rate,
        "rejected": len(report.rejected),
        "failed": sum(1 for row in report.known if row.label is None),
        "classes": [vars(score) for score in report.over_all.classes],
    }


def _sets_record(report: EvaluateReport) -> dict[str, Any] | None:
    sets = report.sets
    return {**asdict(sets), "coverage": sets.coverage, "interval": sets.interval} if sets else None


def _events_record(report: EvaluateReport) -> dict[str, Any] | None:
    found = report.events
    return {**asdict(found), "accuracy": found.accuracy, "interval": found.interval} if found else None


def _open_set_record(report: EvaluateReport) -> dict[str, Any] | None:
    found = report.open_set
    if found is None:
        return None
    return {
        **asdict(found),
        "share_rejected": found.share,
        "interval": found.interval,
        "share_accepted": found.share_accepted,
        "interval_accepted": found.interval_accepted,
        "accuracy": found.accuracy,
        "accuracy_interval": found.accuracy_interval,
    }
