"""The table of thresholds and the choice of one, which `crnr evaluate` and `crnr info` print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.console import format_number, format_share, print_facts, print_table, results_console
from crnr_cli.cli.parsing import Number

if TYPE_CHECKING:
    from crnr_cli.results.thresholds import ChosenThreshold, ThresholdStep, ThresholdTable

TargetAccuracy = Annotated[
    float | None,
    typer.Option(
        "--target-accuracy",
        parser=Number(above=0, at_most=1),
        metavar="SHARE",
        help="Name the --min-probability whose answers are right in SHARE of all cases.",
        show_default="never",
    ),
]


def show_thresholds(table: ThresholdTable | None, choice: ChosenThreshold | None) -> None:
    """Print a few thresholds, if there are any, and the choice."""
    from rich.table import Table
    from rich.text import Text

    if table is None:
        return
    console = results_console()
    title = f"thresholds, on {table.describe()}; --json lists all"
    console.print(title, soft_wrap=not console.is_terminal)
    shown = Table(box=None, pad_edge=False)
    names = ["--min-probability", "answer rate", "accuracy", "95% interval"]
    for name in [*names, "outsiders accepted"] if table.outsiders else names:
        shown.add_column(Text(name), justify="right", overflow="fold")
    chosen = [choice.confident, choice.estimate] if choice else []
    steps = {step.min_probability: step for step in (*table.choose_shown(), *filter(None, chosen))}
    for _, step in sorted(steps.items()):
        low, high = step.interval
        cells = [
            f"{step.min_probability:g}",
            format_number(step.answer_rate),
            format_number(step.accuracy),
            f"{low:.4f} to {high:.4f}",
        ]
        accepted = [format_number(step.accepted / table.outsiders)] if table.outsiders else []
        shown.add_row(*map(Text, (*cells, *accepted)))
    print_table(console, shown)
    if choice:
        _show_choice(choice)


def _show_choice(choice: ChosenThreshold) -> None:
    console = results_console()
    console.print(f"target accuracy {choice.target:g}", style="bold")
    named = {"confident": choice.confident, "estimate": choice.estimate}
    if choice.confident is None:
        named["closest"] = choice.closest
    print_facts(console, [_describe_step(name, step) for name, step in named.items()])
    console.print(choice.describe(), soft_wrap=not console.is_terminal)
    if choice.step:
        console.print(f"crnr classify ... --min-probability {choice.step.min_probability:g}")


def _describe_step(name: str, step: ThresholdStep | None) -> tuple[str, str, str]:
    if step is None:
        return name, "none", ""
    accuracy = format_share(step.accuracy, step.interval)
    return (
        name,
        f"--min-probability {step.min_probability:g}",
        f"accuracy {accuracy}, answer rate {format_number(step.answer_rate)}",
    )
