"""crnr evaluate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import Written, command
from crnr_cli.cli.console import print_json, say, say_some, shown_progress
from crnr_cli.cli.network_options import Model
from crnr_cli.cli.options import Doubt, Input, Output, Strictness
from crnr_cli.cli.score_tables import MAX_CONFUSION, show_scores
from crnr_cli.cli.tables import number, write_csv
from crnr_cli.cli.values import Number
from crnr_cli.wording import counted, have

if TYPE_CHECKING:
    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Scores

_MAX_COMPARED = 1_000_000  # names of folders and classes, to find misspelt ones: some ten seconds
_MAX_MATRIX = 1000  # classes; for more, JSON has only the cells that are not zero


_gates_option = partial(typer.Option, parser=Number(at_most=1), metavar="SHARE", rich_help_panel="Gates")


@dataclass(frozen=True, kw_only=True)
class Gates:
    """Scores that make the command fail. Inputs without an answer count as wrong in all of them."""

    min_accuracy: Annotated[
        float | None,
        _gates_option(
            help="Exit with code 4 if the accuracy is below this; inputs without an answer count as wrong."
        ),
    ] = None
    min_f1: Annotated[
        float | None,
        _gates_option(
            help="Exit with code 4 if the macro F1 is below this; inputs without an answer count as wrong."
        ),
    ] = None
    min_coverage: Annotated[
        float | None,
        _gates_option(
            help="Exit with code 4 if a smaller share of the inputs got an answer; outsiders do not count."
        ),
    ] = None
    min_rejected: Annotated[
        float | None,
        _gates_option(help="Exit with code 4 if a smaller share of the outsiders was rejected."),
    ] = None

    def finish(self, report: EvaluateReport) -> None:
        """Exit with GATE_MISSED if a score is too low, and say which."""
        over_all = report.over_all
        unanswered = over_all.n - report.scores.n
        inputs = f"{unanswered} of {counted(over_all.n, 'input')}"
        why = f"; {inputs} {have(unanswered)} no answer, which counts as wrong" if unanswered else ""
        missed = [
            _missed("accuracy", over_all.accuracy, self.min_accuracy, why),
            _missed("macro F1", over_all.macro.f1, self.min_f1, why),
            _missed("coverage", report.coverage, self.min_coverage, ""),
            _missed(
                "share of rejected outsiders",
                report.open_set.share if report.open_set else None,
                self.min_rejected,
                "" if report.open_set else "; no input is known to be an outsider",
            ),
        ]
        if any(missed):
            raise typer.Exit(GATE_MISSED)


def _missed(name: str, value: float | None, minimum: float | None, why: str) -> bool:
    if minimum is None or (value is not None and value >= minimum):
        return False
    say(f"{name} {number(value)} is below {minimum:g}{why}", style="red")
    return True


@command(side_by_side=True)
def evaluate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Predictions written by `crnr classify` (- is stdin), or labelled queries to classify now.",
        ),
    ],
    gallery: options.GalleryPath = options.GALLERY,
    corrections: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the classes from a review with `crnr review` as the truth; answers that were not "
            "reviewed keep theirs, if they have one.",
        ),
    ] = None,
    errors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every mistake to this CSV."), Written()
    ] = None,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the confusion matrix to this CSV."), Written()
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report as one self-contained page."),
        Written(),
    ] = None,
    pictures_from: options.PicturesFrom = None,
    outsiders: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder or file of inputs that belong to no class and should be rejected; can be repeated.",
        ),
    ] = None,
    *,
    gates: Gates,
    doubt: Doubt,
    input: Input,
    model: Model,
    strictness: Strictness,
    output: Output,
) -> None:
    """Score predictions against the truth: accuracy, precision, recall, F1 and the confusion matrix."""
    from crnr_cli.gallery.answer import QueryOptions
    from crnr_cli.jobs.evaluate import Truth
    from crnr_cli.jobs.evaluate import evaluate as run
    from crnr_cli.system.optional import require

    if html:
        require("report", "--html", "jinja2")
    query_options = QueryOptions(**input.values(), **strictness.values(), **doubt.values(), **model.values())
    with shown_progress(output.quiet) as progress:
        report = run(sources, gallery, query_options, progress, Truth(corrections, outsiders or []))
    if confusion:
        _refuse_too_many_classes(", ".join(sources), len(report.scores.classes))
    if errors:
        columns = ["path", "truth", "label", "margin"]
        write_csv(errors, columns, ([getattr(row, name) for name in columns] for row in report.mistakes))
    if confusion:
        _write_confusion(confusion, report.scores)
    notes: list[str] = []
    if html:
        from crnr_cli.report.evaluation import write_report

        notes = write_report(report, html, sources, gallery, input.max_pixels, pictures_from or [])
    if output.json:
        print_json(_record(report))
    else:
        show_scores(report)
    if not output.quiet:
        _say_notes(report, notes, corrections)
    gates.finish(report)
    strictness.finish(report.skipped)


def _say_notes(report: EvaluateReport, notes: list[str], corrections: Path | None) -> None:
    for note in (*(note.text for note in report.notes), *notes):
        say(f"note: {note}", style="yellow")
    if corrections is not None and report.reviewed is not None:
        rest = f"; {report.without_truth} {have(report.without_truth)} none" if report.without_truth else ""
        rows = counted(len(report.rows), "answer")
        say(f"note: the truth of {report.reviewed} of {rows} is that of {corrections}{rest}", style="yellow")
    else:
        say_some("note", _unknown_folders(report), style="yellow")
    if report.copies:
        from crnr_cli.gallery.copies import copies_note

        say(f"note: {copies_note(report.copies, len(report.rows))}", style="yellow")


def _unknown_folders(report: EvaluateReport) -> list[str]:
    """One line per folder that is named after no class; those that may be misspelt come first."""
    lines = []
    folders = report.unknown_folders
    is_quick = len(folders) * len(report.known_classes) <= _MAX_COMPARED
    for folder, count in folders.most_common():
        like = report.class_like(folder) if is_quick else None
        hint = f"; did you mean {like}?" if like else ""
        if folder.lower().removeprefix("_") == "unknown":
            hint = "; if they belong to no class of the gallery, name it with --outsiders"
        inputs = counted(count, "input")
        lines.append(f"{inputs} without a true class: the folder {folder} is not a class{hint}")
    return sorted(lines, key=lambda line: "did you mean" not in line)


def _refuse_too_many_classes(name: str, n_classes: int) -> None:
    from crnr_cli.errors import DataError

    if n_classes > MAX_CONFUSION:
        raise DataError(
            f"{name}: truth and label have {n_classes} different names, and --confusion takes at most "
            f"{MAX_CONFUSION}; check that they are names of classes, or use --json, which has the cells "
            "that are not zero"
        )


def _write_confusion(path: Path, scores: Scores) -> None:
    names = [score.name for score in scores.classes]
    rows = ([name, *row] for name, row in zip(names, scores.confusion_rows(), strict=True))
    write_csv(path, ["truth \\ label", *names], rows)


def _record(report: EvaluateReport) -> dict[str, Any]:
    from crnr_cli.results.intervals import macro_intervals

    scores, over_all = report.scores, report.over_all
    return {
        "n": scores.n,
        "correct": scores.correct,
        "accuracy": scores.accuracy,
        "interval": scores.interval,
        "macro": asdict(scores.macro),
        "macro_intervals": asdict(macro_intervals(scores)),
        "weighted": asdict(scores.weighted),
        "over_all": {
            "n": over_all.n,
            "accuracy": over_all.accuracy,
            "interval": over_all.interval,
            "macro": asdict(over_all.macro),
        },
        "inputs": len(report.rows),
        "answered": report.answered,
        "coverage": report.coverage,
        "in_gallery": len(report.copies) if report.gallery else None,
        "without_truth": report.without_truth,
        "reviewed": report.reviewed,
        "failed": dict(report.failed),
        "passed_over": report.passed_over,
        "rejected": len(report.rejected),
        "rejected_with_truth": report.rejected_with_truth,
        "rejected_guess_right": report.rejected_guess_right,
        "reliability": asdict(report.reliability) if report.reliability else None,
        "sets": _sets_record(report),
        "open_set": _open_set_record(report),
        "classes": [vars(score) for score in scores.classes],
        "confusion": list(scores.confusion_rows()) if len(scores.classes) <= _MAX_MATRIX else None,
        "confusion_cells": scores.cells.tolist(),
    }


def _sets_record(report: EvaluateReport) -> dict[str, Any] | None:
    sets = report.sets
    return {**asdict(sets), "coverage": sets.coverage, "interval": sets.interval} if sets else None


def _open_set_record(report: EvaluateReport) -> dict[str, Any] | None:
    found = report.open_set
    if found is None:
        return None
    return {
        **asdict(found),
        "share_rejected": found.share,
        "interval": found.interval,
        "accuracy": found.accuracy,
        "accuracy_interval": found.accuracy_interval,
    }
