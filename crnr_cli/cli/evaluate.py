"""crnr evaluate."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import command
from crnr_cli.cli.console import (
    natural_width,
    plain,
    print_full_width,
    print_json,
    print_table,
    results_console,
    say,
    shown_progress,
)
from crnr_cli.cli.network_options import Model
from crnr_cli.cli.options import Input, Output, Strictness
from crnr_cli.cli.tables import number, share, write_csv
from crnr_cli.cli.values import Number

if TYPE_CHECKING:
    from rich.table import Table

    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Average, Scores

_SHARE = Number(at_most=1)


@command(side_by_side=True)
def evaluate(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="CSVs written by `crnr classify` (- is one on stdin), or labelled queries to classify now.",
        ),
    ],
    gallery: options.GalleryPath = options.GALLERY,
    errors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every mistake to this CSV.")
    ] = None,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the confusion matrix to this CSV.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as one self-contained page.")
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option(
            click_type=_SHARE,
            metavar="SHARE",
            help="Exit with code 4 if the accuracy is below this; inputs without an answer count as wrong.",
        ),
    ] = None,
    min_f1: Annotated[
        float | None,
        typer.Option(
            click_type=_SHARE, metavar="SHARE", help="Exit with code 4 if the macro F1 is below this."
        ),
    ] = None,
    reject: options.Reject = None,
    *,
    input: Input,
    model: Model,
    strictness: Strictness,
    output: Output,
) -> None:
    """Score predictions against the truth: accuracy, precision, recall, F1 and the confusion matrix."""
    from crnr_cli.gallery.answer import QueryOptions
    from crnr_cli.jobs.evaluate import evaluate as run
    from crnr_cli.system.files import check_output
    from crnr_cli.system.optional import require

    for path in filter(None, (errors, confusion, html)):
        check_output(path, [*sources, gallery])
    if html:
        require("report", "--html", "jinja2")
    query_options = QueryOptions(
        **input.values(), **strictness.values(), reject=reject, model=model.extractor
    )
    with shown_progress(output.quiet) as progress:
        report = run(sources, gallery, query_options, progress)
    if errors:
        columns = ["path", "truth", "label", "margin"]
        write_csv(errors, columns, ([getattr(row, name) for name in columns] for row in report.mistakes))
    if confusion:
        _write_confusion(confusion, report.scores)
    if html:
        from crnr_cli.report.evaluation import write_report

        write_report(report, html, sources, gallery, input.max_pixels)
    if output.json:
        print_json(_record(report))
    else:
        _show(report)
    accuracy = "accuracy, failures counted as wrong," if report.failed else "accuracy"
    if _gate_missed(accuracy, report.accuracy_with_failures, min_accuracy) | _gate_missed(
        "macro F1", report.scores.macro.f1, min_f1
    ):
        raise typer.Exit(GATE_MISSED)
    strictness.finish(report.skipped)


def _write_confusion(path: Path, scores: Scores) -> None:
    names = [score.name for score in scores.classes]
    counts = scores.confusion.tolist()
    rows = ([name, *row] for name, row in zip(names, counts, strict=True))
    write_csv(path, ["truth \\ label", *names], rows)


def _gate_missed(name: str, value: float | None, minimum: float | None) -> bool:
    if minimum is None or (value is not None and value >= minimum):
        return False
    say(f"{name} {number(value)} is below {minimum:g}", style="red")
    return True


def _record(report: EvaluateReport) -> dict[str, Any]:
    scores = report.scores
    return {
        "n": scores.n,
        "correct": scores.correct,
        "accuracy": scores.accuracy,
        "interval": scores.interval,
        "n_with_failures": report.n_with_failures,
        "accuracy_with_failures": report.accuracy_with_failures,
        "interval_with_failures": report.interval_with_failures,
        "macro": asdict(scores.macro),
        "weighted": asdict(scores.weighted),
        "without_truth": report.without_truth,
        "failed": dict(report.failed),
        "passed_over": report.passed_over,
        "rejected": len(report.rejected),
        "rejected_guess_right": report.rejected_guess_right,
        "classes": [asdict(score) for score in scores.classes],
        "confusion": scores.confusion.tolist(),
    }


def _show(report: EvaluateReport) -> None:
    console = results_console()
    scores = report.scores
    print_full_width(console, _summary(report))
    print_full_width(console, _class_table(scores))
    matrix = _confusion_table(scores)
    if natural_width(console, matrix) <= console.width:
        console.print("confusion: rows are truth, columns are labels")
        print_table(console, matrix)
    else:
        console.print("most often confused; --confusion FILE writes the full matrix")
        print_table(console, _confused_pairs(scores))


def _summary(report: EvaluateReport) -> Table:
    from rich.table import Table

    scores = report.scores
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row(
        "accuracy", share(scores.accuracy, scores.interval), f"{scores.correct} of {scores.n} correct"
    )
    if report.failed:
        table.add_row(
            "accuracy, failures counted as wrong",
            share(report.accuracy_with_failures, report.interval_with_failures),
            f"{scores.correct} of {report.n_with_failures}",
        )
    if report.rejected:
        table.add_row(
            "rejected as unknown",
            str(len(report.rejected)),
            f"not scored; the best guess was right for {report.rejected_guess_right}",
        )
    table.add_row("macro F1", number(scores.macro.f1), "every class counts the same")
    if report.failed:
        reasons = ", ".join(f"{count} {status}" for status, count in report.failed.most_common())
        table.add_row("without an answer", str(sum(report.failed.values())), plain(reasons))
    if report.passed_over:
        table.add_row("ignored", str(report.passed_over), "neither pictures nor named like pictures")
    if report.without_truth:
        table.add_row("without a true class", str(report.without_truth), "not scored")
    return table


def _class_table(scores: Scores) -> Table:
    from rich.table import Table

    table = Table()
    table.add_column("class")
    for column in ("precision", "recall", "F1", "support"):
        table.add_column(column, justify="right")
    for score in scores.classes:
        table.add_row(
            plain(score.name),
            *(number(value) for value in (score.precision, score.recall, score.f1)),
            str(score.support),
        )
    table.add_section()
    for name, average in (("macro", scores.macro), ("weighted", scores.weighted)):
        table.add_row(name, *_averages(average), str(scores.n))
    return table


def _averages(average: Average) -> list[str]:
    return [number(value) for value in (average.precision, average.recall, average.f1)]


def _confusion_table(scores: Scores) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    table.add_column("truth")
    for score in scores.classes:
        table.add_column(plain(score.name), justify="right", no_wrap=True)
    for i, (score, counts) in enumerate(zip(scores.classes, scores.confusion.tolist(), strict=True)):
        cells = [
            Text(str(count) if count else "·", style="green" if i == j else "red" if count else "dim")
            for j, count in enumerate(counts)
        ]
        table.add_row(plain(score.name), *cells)
    return table


def _confused_pairs(scores: Scores) -> Table:
    from rich.table import Table

    from crnr_cli.results.scores import most_confused

    table = Table()
    for column in ("truth", "labelled as"):
        table.add_column(column)
    table.add_column("times", justify="right")
    for truth, label, count in most_confused(scores)[:10]:
        table.add_row(plain(truth), plain(label), str(count))
    return table
