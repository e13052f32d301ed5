"""The scores of an evaluation as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crnr_cli.cli.console import (
    natural_width,
    plain,
    print_facts,
    print_table,
    results_console,
)
from crnr_cli.cli.tables import number, share
from crnr_cli.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Average, Scores

MAX_CONFUSION = 20_000  # classes in a full matrix
_CELL = 4  # columns of the screen that a class of the confusion matrix takes at least
_MAX_CLASSES = 1000  # in the table
_WORST = 50  # shown if there are more
_PAIRS = 10


def show_scores(report: EvaluateReport) -> None:
    console = results_console()
    scores = report.scores
    print_facts(console, _facts(report))
    print_table(console, _class_table(scores))
    if _CELL * len(scores.classes) <= console.width:
        matrix = _confusion_table(scores)
        if natural_width(console, matrix) <= console.width:
            console.print("confusion: rows are truth, columns are labels")
            print_table(console, matrix)
            return
    pairs = _confused_pairs(scores)
    if not pairs.row_count:
        console.print("no class was taken for another")
        return
    is_large = len(scores.classes) > MAX_CONFUSION
    rest = "--json has all" if is_large else "--confusion FILE writes the full matrix"
    console.print(f"most often confused; {rest}")
    print_table(console, pairs)


def _facts(report: EvaluateReport) -> list[tuple[str, str, str]]:
    """Name, value and a remark."""
    scores, over_all = report.scores, report.over_all
    partly = over_all.n > scores.n
    facts = [("accuracy", share(scores.accuracy, scores.interval), f"{scores.correct} of {scores.n} correct")]
    if partly:
        remark = f"{over_all.correct} of {over_all.n} correct; no answer counts as wrong"
        facts.append(("accuracy over all", share(over_all.accuracy, over_all.interval), remark))
    facts.append(("macro F1", number(scores.macro.f1), "every class counts the same"))
    if partly:
        facts.append(("macro F1 over all", number(over_all.macro.f1), "no answer counts as wrong"))
    if report.answered < report.insiders:
        remark = f"{report.answered} of {counted(report.insiders, 'input')} got an answer"
        facts.append(("coverage", number(report.coverage), remark))
    facts += _of_outsiders(report)
    if reliability := report.reliability:
        remark = (
            f"mean probability {number(reliability.mean_probability)}, right {number(reliability.accuracy)}"
        )
        facts.append(("calibration error", share(reliability.error, reliability.interval), remark))
    if sets := report.sets:
        remark = f"{sets.covered} of {sets.n} contain the truth; mean number of labels {sets.mean_size:.2f}"
        facts.append(("coverage of sets", share(sets.coverage, sets.interval), remark))
    if report.rejected:
        facts.append(("rejected as unknown", str(len(report.rejected)), report.rejection_note))
    if report.failed:
        reasons = ", ".join(f"{count} {status}" for status, count in report.failed.most_common())
        facts.append(("failed", str(sum(report.failed.values())), reasons))
    if report.passed_over:
        facts.append(("ignored", str(report.passed_over), "neither pictures nor named like pictures"))
    if report.without_truth:
        facts.append(("without a true class", str(report.without_truth), "not scored"))
    return facts


def _of_outsiders(report: EvaluateReport) -> list[tuple[str, str, str]]:
    found = report.open_set
    if found is None:
        return []
    remark = f"{found.rejected} of {counted(found.outsiders, 'outsider')}"
    facts = [("outsiders rejected", share(found.share, found.interval), remark)]
    remark = f"{found.correct} of {found.answers} correct, outsiders included"
    facts.append(("accuracy of answers", share(found.accuracy, found.accuracy_interval), remark))
    for name, value in (("separation", found.auroc), ("probability", found.auroc_of_probability)):
        if value is not None:
            facts.append((f"AUROC, {name}", number(value), "0.5 is chance"))
    return facts


def _class_table(scores: Scores) -> Table:
    from rich.table import Table

    shown = scores.classes
    table = Table()
    if len(shown) > _MAX_CLASSES:
        shown = sorted(shown, key=lambda score: score.f1)[:_WORST]
        classes = counted(len(scores.classes), "class")
        table.title = f"the {_WORST} of {classes} with the lowest F1; --json has all"
        table.title_justify = "left"
    table.add_column("class", overflow="fold")
    for column in ("precision", "recall", "F1", "support"):
        table.add_column(column, justify="right", no_wrap=True)
    for score in shown:
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
    for i, (score, counts) in enumerate(zip(scores.classes, scores.confusion_rows(), strict=True)):
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
        table.add_column(column, overflow="fold")
    table.add_column("times", justify="right", no_wrap=True)
    for truth, label, count in most_confused(scores)[:_PAIRS]:
        table.add_row(plain(truth), plain(label), str(count))
    return table
