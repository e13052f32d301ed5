"""What `crnr info` shows of a feature file."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crnr_cli.cli.console import plain, print_table, results_console, say

if TYPE_CHECKING:
    from crnr_cli.jobs.inspect import FileReport

_AXES = ("first", "second", "third", "fourth")


def file_record(report: FileReport) -> dict[str, Any]:
    """As JSON."""
    return {
        "file": str(report.path),
        "bytes": report.bytes,
        "arrays": [{k: v for k, v in asdict(array).items() if k != "n_labels"} for array in report.arrays],
        "taken": asdict(report.taken) if report.taken else None,
        "problem": report.problem,
        "notes": [note.text for note in report.notes],
    }


def show_file(report: FileReport) -> None:
    """Tables of the arrays and of what is taken; what was assumed, or why nothing is taken, as messages."""
    from rich.table import Table

    arrays = Table(box=None, pad_edge=False)
    arrays.add_column("array", overflow="fold")
    for name in ("shape", "type", "could be", "is taken as"):
        arrays.add_column(name, overflow="fold")
    for array in report.arrays:
        could_be = " or ".join(array.could_be) or (f"- ({array.why_not})" if array.why_not else "-")
        sizes = " x ".join(map(str, array.shape)) or ("-" if array.why_not else "single")
        arrays.add_row(plain(array.name), sizes, array.type, plain(could_be), _role(report, array.name))
    console = results_console()
    print_table(console, arrays)
    if report.taken is None:
        say(f"note: {report.problem}", style="yellow")
        return
    console.print()
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column()
    facts.add_column(overflow="fold")
    taken = report.taken
    shape = next((array.shape for array in report.arrays if array.name == taken.features), ())
    where = "last" if taken.axis and taken.axis == len(shape) - 1 else _AXES[taken.axis]
    facts.add_row("samples", plain(f"{taken.samples}, along the {where} axis of {taken.features}"))
    facts.add_row("numbers per sample", str(taken.numbers))
    facts.add_row("classes", "-" if taken.classes is None else str(taken.classes))
    print_table(console, facts)
    for note in report.notes:
        say(f"note: {note.text}")


def _role(report: FileReport, name: str) -> str:
    taken = report.taken
    if taken is None:
        return "-"
    roles = {taken.features: "features", taken.labels: "labels"}
    return roles.get(name, "names" if name == "paths" else "-")
