"""crnr evaluate."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import (
    format_number,
    format_share,
    natural_width,
    note_separators,
    plain_text,
    print_facts,
    print_json,
    print_table,
    results_console,
    say,
    say_page,
    say_some,
    shown_progress,
    write_csv,
)
from crnr_cli.cli.options import ConfidenceOptions, ErrorHandlingOptions, PrintOptions, SourceOptions
from crnr_cli.cli.parsing import HiddenNames, Number
from crnr_cli.cli.recipe_options import ModelOptions
from crnr_cli.errors import UsageError
from crnr_cli.wording import format_count, has_or_have

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Average, OpenSet, Scores

_MAX_MATRIX = 1000  # classes; for more, JSON has only the cells that are not zero
_threshold_option = partial(
    typer.Option, parser=Number(at_most=1), metavar="SHARE", rich_help_panel="Pass/fail thresholds"
)
MAX_CONFUSION = 20_000  # classes in a full matrix
_CELL = 4  # columns of the screen that a class of the confusion matrix takes at least
_MAX_CLASSES = 1000  # in the table
_WORST = 50  # shown if there are more
_PAIRS = 10


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
        why = f"; {inputs} {has_or_have(unanswered)} no answer, which counts as wrong" if unanswered else ""
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


@make_command(side_by_side=True)
def evaluate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Predictions file from `crnr classify` (- is stdin), or labelled queries to classify now.",
        ),
    ],
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
    *,
    thresholds: ThresholdOptions,
    confidence: ConfidenceOptions,
    input: SourceOptions,
    model: ModelOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Score labels against the truth.

    Prints accuracy, precision, recall, F1 and the confusion matrix.
    """
    from crnr_cli.gallery.queries import QueryOptions
    from crnr_cli.jobs.evaluate import Truth
    from crnr_cli.jobs.evaluate import evaluate as run
    from crnr_cli.system.extras import require_packages

    if html:
        require_packages("report", "--html", "jinja2")
    query_options = QueryOptions(
        **input.to_fields(), **error_handling.to_fields(), **confidence.to_fields(), **model.to_fields()
    )
    with shown_progress(output.quiet) as progress:
        report = run(sources, gallery, query_options, progress, Truth(corrections, outsiders or []))
    thresholds.require_outsiders(report)
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

        notes = write_report(report, html, sources, gallery, input.max_pixels, images_from or [])
    if output.json:
        print_json(_record(report))
    else:
        show_scores(report)
    if not output.quiet:
        tables = [*map(Path, sources), *filter(None, (corrections, input.labels))]
        _say_notes(report, [*note_separators(tables), *notes], corrections)
        say_page(html)
    thresholds.finish(report)
    error_handling.finish(report.skipped)


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


def _write_confusion(path: Path, scores: Scores) -> None:
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
        "passed_over": report.unrelated,
        "rejected": len(report.rejected) + report.rejected_without_truth,
        "rejected_with_truth": len(report.rejected),
        "rejected_guess_right": report.rejected_guess_right,
        "reliability": asdict(report.reliability) if report.reliability else None,
        "sets": _sets_record(report),
        "open_set": _open_set_record(report),
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


def show_scores(report: EvaluateReport) -> None:
    console = results_console()
    scores = report.scores
    _show_blocks(console, report)
    if not report.known:
        return
    if report.open_set:
        console.print("known queries by class")
    print_table(console, _class_table(report.over_all))
    if _CELL * len(scores.classes) <= console.width:
        matrix = _confusion_table(scores)
        if natural_width(console, matrix) <= console.width:
            without = report.over_all.n - scores.n
            rest = f"; {format_count(without, 'query')} without an answer not counted" if without else ""
            console.print(f"confusion matrix: rows are true classes, columns are labels{rest}")
            print_table(console, matrix)
            return
    pairs = _confused_pairs(scores)
    if not pairs.row_count:
        console.print("no classes were confused")
        return
    is_large = len(scores.classes) > MAX_CONFUSION
    rest = "--json lists all" if is_large else "--confusion FILE writes the full matrix"
    console.print(f"most often confused; {rest}")
    print_table(console, pairs)


def _show_blocks(console: Console, report: EvaluateReport) -> None:
    """Print the scores: in one block or, with outsiders, in one block per group, each with its number."""
    known, rest, found = _known_facts(report), _other_facts(report), report.open_set
    if found is None:
        print_facts(console, [*known, *rest])
        return
    blocks = [
        (f"Known queries ({report.over_all.n})", known),
        (f"Outsiders ({found.outsiders})", _outsider_facts(found)),
        (f"All queries ({len(report.rows)})", rest),
    ]
    for heading, facts in blocks:
        if facts:
            console.print(heading, style="bold")
            print_facts(console, facts)
            console.print()


def _known_facts(report: EvaluateReport) -> list[tuple[str, str, str]]:
    """Return the name of each score of the known queries, its value and a remark."""
    scores = report.over_all
    partly = report.answered < scores.n
    remark = f"{scores.correct} of {scores.n} correct" + ("; no answer counts as wrong" if partly else "")
    facts = [
        ("accuracy", format_share(scores.accuracy, scores.interval), remark),
        ("macro F1", format_number(scores.macro.f1), "every class counts the same"),
    ]
    if partly:
        remark = f"{report.answered} of {scores.n} got an answer"
        if report.answered:
            remark += f"; accuracy of these {format_number(report.scores.accuracy)}"
        facts.append(("answer rate", format_number(report.answer_rate), remark))
    if reliability := report.reliability:
        mean, right = map(format_number, (reliability.mean_probability, reliability.accuracy))
        remark = f"mean probability {mean}, right {right}"
        facts.append(("calibration error", format_share(reliability.error, reliability.interval), remark))
    if sets := report.sets:
        size = f"mean number of labels {sets.mean_size:.2f}"
        remark = f"{sets.covered} of {sets.n} label sets contain the true class; {size}"
        facts.append(("set coverage", format_share(sets.coverage, sets.interval), remark))
    if report.rejected:
        remark = f"the best guess was right for {report.rejected_guess_right}"
        facts.append(("rejected as unknown", str(len(report.rejected)), remark))
    return facts


def _outsider_facts(found: OpenSet) -> list[tuple[str, str, str]]:
    given = next(iter(found.given.items()), None)
    often = f"; most often as {given[0]}, {format_count(given[1], 'time')}" if given else ""
    accepted = format_share(found.share_accepted, found.interval_accepted)
    facts = [
        ("rejected", format_share(found.share, found.interval), f"{found.rejected} of {found.outsiders}"),
        ("wrongly accepted", accepted, f"{found.accepted} of {found.outsiders}{often}"),
    ]
    for name, value in (("separation", found.auroc), ("probability", found.auroc_of_probability)):
        if value is not None:
            facts.append((f"AUROC, {name}", format_number(value), "0.5 is chance"))
    if found.failed:
        facts.append(("failed", str(found.failed), "not counted among the outsiders"))
    return facts


def _other_facts(report: EvaluateReport) -> list[tuple[str, str, str]]:
    """Return counts of queries that are not scored, or that failed whether they are outsiders or not."""
    facts = []
    if report.failed:
        reasons = ", ".join(f"{count} {status}" for status, count in report.failed.most_common())
        facts.append(("failed", str(sum(report.failed.values())), reasons))
    if report.unrelated:
        facts.append(("ignored", str(report.unrelated), "neither images nor named like images"))
    if report.without_truth:
        rejected = report.rejected_without_truth
        remark = "not scored" + (f"; {rejected} rejected as unknown" if rejected else "")
        facts.append(("without a true class", str(report.without_truth), remark))
    return facts


def _class_table(scores: Scores) -> Table:
    from rich.table import Table

    shown = scores.classes
    table = Table()
    if len(shown) > _MAX_CLASSES:
        shown = sorted(shown, key=lambda score: score.f1)[:_WORST]
        classes = format_count(len(scores.classes), "class")
        table.title = f"the {_WORST} of {classes} with the lowest F1; --json lists all"
        table.title_justify = "left"
    table.add_column("class", overflow="fold")
    for column in ("precision", "recall", "F1", "support"):
        table.add_column(column, justify="right", no_wrap=True)
    for score in shown:
        table.add_row(
            plain_text(score.name),
            *(format_number(value) for value in (score.precision, score.recall, score.f1)),
            str(score.support),
        )
    table.add_section()
    for name, average in (("macro", scores.macro), ("weighted", scores.weighted)):
        table.add_row(name, *_averages(average), str(scores.n))
    return table


def _averages(average: Average) -> list[str]:
    return [format_number(value) for value in (average.precision, average.recall, average.f1)]


def _confusion_table(scores: Scores) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("truth")
    for score in scores.classes:
        table.add_column(plain_text(score.name), justify="right", no_wrap=True)
    for i, (score, counts) in enumerate(zip(scores.classes, scores.confusion_rows(), strict=True)):
        cells = [
            Text(str(count) if count else "·", style="green" if i == j else "red" if count else "dim")
            for j, count in enumerate(counts)
        ]
        table.add_row(plain_text(score.name), *cells)
    return table


def _confused_pairs(scores: Scores) -> Table:
    from rich.table import Table

    from crnr_cli.results.scores import most_confused_pairs

    table = Table()
    for column in ("truth", "labelled as"):
        table.add_column(column, overflow="fold")
    table.add_column("times", justify="right", no_wrap=True)
    for truth, label, count in most_confused_pairs(scores)[:_PAIRS]:
        table.add_row(plain_text(truth), plain_text(label), str(count))
    return table
