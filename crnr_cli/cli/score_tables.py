"""The scores of an evaluation on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crnr_cli.cli.console import (
    format_number,
    format_share,
    natural_width,
    plain_text,
    print_facts,
    print_table,
    results_console,
)
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from crnr_cli.jobs.evaluate import EvaluateReport
    from crnr_cli.results.scores import Average, OpenSet, Scores
    from crnr_cli.results.taxa import BroaderScores

MAX_CONFUSION = 20_000  # classes in a full matrix
_CELL = 4  # columns of the screen that a class of the confusion matrix takes at least
_MAX_CLASSES = 1000  # in the table
_WORST = 50  # shown if there are more
_PAIRS = 10


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
            kind = "an exact answer" if report.broader else "an answer"
            rest = f"; {format_count(without, 'query')} without {kind} not counted" if without else ""
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
    exact = "exact answer" if report.broader else "answer"
    remark = f"{scores.correct} of {scores.n} correct" + (
        f"; queries without an {exact} count as wrong" if partly else ""
    )
    facts = [
        ("accuracy", format_share(scores.accuracy, scores.interval), remark),
        ("macro F1", format_number(scores.macro.f1), "every class counts the same"),
    ]
    if events := report.events:
        remark = f"{events.correct} of {format_count(events.n, 'event')} correct"
        if events.mixed:
            remark += f"; {events.mixed} with several true classes not counted"
        facts.append(("accuracy by event", format_share(events.accuracy, events.interval), remark))
    if partly:
        remark = f"{report.answered} of {scores.n} got an {exact}"
        if report.answered:
            remark += f"; accuracy of these {format_number(report.scores.accuracy)}"
        facts.append(("answer rate", format_number(report.answer_rate), remark))
    if report.broader:
        facts += _broader_facts(report.broader)
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


def _broader_facts(found: BroaderScores) -> list[tuple[str, str, str]]:
    """Return the scores of broader answers alone, and with exact ones."""
    if found.broader_right is None:
        return [("broader answers", str(found.broader), "not scored")]
    remark = f"{found.broader_right} of {format_count(found.broader, 'broader answer')} right"
    both = f"{found.right} of {format_count(found.exact + found.broader, 'answer')} right"
    return [
        ("broader answers", format_share(found.broader_accuracy, found.broader_interval), remark),
        (
            "exact or broader",
            format_share(found.accuracy, found.interval),
            f"{both}; answer rate {format_number(found.answer_rate)}",
        ),
    ]


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
    if report.without_box:
        facts.append(("without a box", str(report.without_box), "not scored"))
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
