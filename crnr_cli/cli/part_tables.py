"""What explain shows about the parts of a query: a grid of their margins, and the classes that others win."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crnr_cli.cli.console import plain, print_table
from crnr_cli.report.names import place, tally
from crnr_cli.wording import counted, have

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.jobs.explain import ExplainReport, Explanation, PartAnswer

_DISSENTERS = 6  # classes that are listed, those with the most parts
_MOST_ROWS = 40  # of tiles in the grid


def print_parts(console: Console, report: ExplainReport, explanation: Explanation) -> None:
    parts, classes = report.parts(explanation), report.gallery.classes
    label = classes[int(explanation.order[0])]
    against = [part for part in parts if part.is_against]
    console.print()
    console.print(plain(f"{tally(parts, label)}:"))
    console.print()
    for line in _grid(parts, console.width):
        console.print(line)
    if against:
        print_table(console, _dissenters(classes, against))
    else:
        console.print()


def _grid(parts: list[PartAnswer], width: int) -> list[Text]:
    """The margins in the shape of the tiles; only their signs if there is not enough room for figures."""
    from rich.text import Text

    tiles = [part for part in parts if not part.name]
    n_rows, n_columns = tiles[-1].row or 0, tiles[-1].column or 0
    lines: list[Text] = []
    as_figures = n_columns * len("  +0.00") <= width
    if n_rows <= _MOST_ROWS and n_columns * len(" +") <= width:
        for row in range(n_rows):
            line = Text()
            for part in tiles[row * n_columns : (row + 1) * n_columns]:
                line.append(f"  {_figure(part):>5}" if as_figures else f" {_sign(part)}", _style(part))
            lines.append(line)
    for part in parts:
        if part.name:
            lines.append(Text.assemble(f"  {part.name}: ", (_figure(part), _style(part))))
    return lines


def _dissenters(classes: list[str], against: list[PartAnswer]) -> Table:
    from rich import box
    from rich.table import Table

    by_class: dict[int | None, list[PartAnswer]] = {}
    for part in sorted(against, key=lambda part: part.margin):
        by_class.setdefault(part.label, []).append(part)
    largest_first = sorted(by_class.items(), key=lambda item: -len(item[1]))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("others speak for", overflow="fold")
    table.add_column("parts", justify="right", no_wrap=True)
    table.add_column("margin", justify="right", no_wrap=True)
    table.add_column("strongest in", no_wrap=True)
    for label, found in largest_first[:_DISSENTERS]:
        name = "several classes alike" if label is None else classes[label]
        table.add_row(plain(name), str(len(found)), _figure(found[0]), place(found[0]))
    if (more := len(by_class) - _DISSENTERS) > 0:
        rest = sum(len(found) for _, found in largest_first[_DISSENTERS:])
        table.caption = f"{counted(more, 'more class')} {have(more)} {counted(rest, 'part')}"
        table.caption_justify = "left"
    return table


def _figure(part: PartAnswer) -> str:
    return f"{part.margin:+.2f}" if part.margin else "0.00"


def _sign(part: PartAnswer) -> str:
    return "+" if part.margin > 0 else "-" if part.is_against else "0"


def _style(part: PartAnswer) -> str:
    return "green" if part.margin > 0 else "yellow" if part.is_against else "dim"
