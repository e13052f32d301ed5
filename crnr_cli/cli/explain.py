"""crnr explain."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import plain_text, print_json, print_table, results_console, say_page
from crnr_cli.cli.options import ModelOptions, PrintOptions, QuerySourceOptions
from crnr_cli.cli.parsing import METHOD, HiddenNames
from crnr_cli.report.names import describe_doubt, describe_place, describe_rest, describe_set, describe_tally
from crnr_cli.system.names import join_command
from crnr_cli.wording import format_count, has_or_have

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.jobs.explain import ExplainReport, MethodExplanation, PartAnswer

_SAMPLES = 8  # shown, those with the largest weights
BAR = 28  # characters of the longest bar
_WIDEST_NAME = 20  # characters of a class that are kept together
_DISSENTERS = 6  # classes that are listed, those with the most parts
_MOST_ROWS = 40  # of tiles in the grid


@make_command(more_arguments=True)
def explain(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(metavar="QUERY", help="An image, or a row of a feature file such as queries.h5#3."),
    ],
    gallery: options.GalleryPath = options.GALLERY,
    compare_with: Annotated[
        str | None,
        typer.Option(parser=METHOD, help="Explain by another method, too: {choices}."),
        HiddenNames("against"),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Draw the explanation: .png, .svg, .pdf or .html."
        ),
        Written(),
    ] = None,
    images_from: options.ImagesFrom = None,
    *,
    input: QuerySourceOptions,
    model: ModelOptions,
    output: PrintOptions,
) -> None:
    """Show which examples led to a label.

    Prints the residuals of the classes and the examples with the largest weights.
    """
    if context.args:
        _refuse_more(context, [query, *context.args])
    from crnr_cli.gallery.queries import QueryOptions
    from crnr_cli.jobs.explain import explain as run

    if path:
        from crnr_cli.system.extras import require_packages

        require_packages("report", "--output", "matplotlib", "jinja2")
        from crnr_cli.report.explanation import check_explanation, write_explanation

        check_explanation(path)
    report = run(query, gallery, QueryOptions(**input.to_fields(), **model.to_fields()), compare_with)
    notes: list[str] = []
    if path:
        notes = write_explanation(report, path, gallery, input.max_pixels, images_from or [])
    if output.json:
        print_json(_record(report))
    else:
        for explanation in report.explanations:
            _show(report, explanation)
    if path and not output.quiet:
        say_page(path, notes)


def _refuse_more(context: typer.Context, words: list[str]) -> None:
    """Refuse several arguments, with the command that was probably meant if one of them is a gallery."""
    from crnr_cli.gallery.hdf5_contents import is_gallery

    files = [word for word in words if PurePath(word).suffix.lower() in (".h5", ".hdf5")]
    galleries = files if len(files) == 1 else [word for word in files if is_gallery(Path(word))]
    if len(galleries) != 1:
        context.fail(f"explain takes one query, but {len(words)} were given; run it once for each of them")
    query = next(word for word in words if word not in galleries)
    command = join_command(["crnr", "explain", query, "--gallery", *galleries])
    context.fail(f"explain takes one query, and the gallery as an option: `{command}`")


def _record(report: ExplainReport) -> dict[str, Any]:
    from crnr_cli.api import make_explanations

    answers = [one.record() for one in make_explanations(report, _SAMPLES)]
    return {"query": report.query, "truth": report.truth, "explanations": answers}


def _show(report: ExplainReport, explanation: MethodExplanation) -> None:
    from rich.text import Text

    console = results_console()
    classes = report.gallery.classes
    first, second = explanation.order[:2].tolist()
    truth = "" if report.truth is None else f"; true class {report.truth}"
    sure = explanation.confidence
    probabilities = sure.probabilities if sure else None
    probability = "" if probabilities is None else f"probability {probabilities[first]:.3f}, "
    console.print(
        Text.assemble(
            plain_text(f"{report.query}: "),
            plain_text(
                classes[first], "bold green" if report.truth in (None, classes[first]) else "bold red"
            ),
            f" by {explanation.method.name} ({probability}runner-up ",
            plain_text(classes[second]),
            f", margin {explanation.margin:.3f})",
            plain_text(truth),
        )
    )
    if doubt := describe_doubt(sure):
        console.print(plain_text(doubt, "bold yellow"))
    if labels := describe_set(sure, len(classes)):
        console.print(plain_text(labels))
    # Bars give way to names on a narrow screen; in a pipe there is room for both.
    others = 52 if probabilities is None else 66
    bar = max(6, min(BAR, console.width - others)) if console.is_terminal else BAR
    print_table(console, _class_table(report, explanation, bar))
    if report.grid:
        print_parts(console, report, explanation)
    if explanation.code is not None:
        print_table(console, _sample_table(report, explanation, bar // 2))
    for line in _separation(report, explanation):
        console.print(plain_text(line))
    console.print()


def _class_table(report: ExplainReport, explanation: MethodExplanation, width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    classes, values, shares = report.gallery.classes, explanation.values, report.shares(explanation)
    scored = explanation.method.signed
    # Residuals start at zero; for scores only the differences matter.
    low, high = float(values.min()) if scored else 0.0, float(values.max())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class", overflow="fold")
    table.add_column("largest wins" if scored else "smallest wins", no_wrap=True)
    table.add_column(explanation.measure, justify="right", no_wrap=True)
    probabilities = explanation.confidence.probabilities if explanation.confidence else None
    if probabilities is not None:
        table.add_column("probability", justify="right", no_wrap=True)
    if shares is not None:
        table.add_column("weight", justify="right", no_wrap=True)
    shown = report.shown_classes(explanation)
    for rank, i in enumerate(shown):
        style = (
            "green"
            if rank == 0
            else "yellow"
            if rank == 1
            else "cyan"
            if classes[i] == report.truth
            else "dim"
        )
        bar = _bar((values[i] - low) / ((high - low) or 1.0), width)
        more = [] if probabilities is None else [f"{probabilities[i]:.4f}"]
        more += [] if shares is None else [f"{100 * shares[i]:.0f}%"]
        table.add_row(plain_text(classes[i]), Text(bar, style=style), f"{values[i]:.4f}", *more)
    table.caption = describe_rest(len(classes) - len(shown), scored)
    table.caption_justify = "left"
    return table


def _sample_table(report: ExplainReport, explanation: MethodExplanation, width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from crnr_cli.report.names import common_folder

    samples = report.strongest(explanation, _SAMPLES)
    folder = common_folder(sample.name for sample in samples)
    largest = max(abs(sample.weight) for sample in samples) or 1.0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    longest = max(len(sample.label) for sample in samples)
    table.add_column("class", overflow="fold", min_width=min(longest, _WIDEST_NAME))
    table.add_column("largest\nweights", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column(plain_text(f"example in {folder}" if folder else "example"), overflow="fold")
    for sample in samples:
        style = "green" if sample.weight > 0 else "red"
        bar = Text(_bar(abs(sample.weight) / largest, width), style=style)
        table.add_row(
            plain_text(sample.label),
            bar,
            f"{sample.weight:+.3f}",
            plain_text(sample.name.removeprefix(folder)),
        )
    return table


def _separation(report: ExplainReport, explanation: MethodExplanation) -> tuple[str, str]:
    """Describe the difference between the label and the runner-up: one sentence on two lines."""
    classes, shares = report.gallery.classes, report.shares(explanation)
    first, second = explanation.order[:2].tolist()
    parts = []
    for i in (first, second):
        share = "" if shares is None else f" with {100 * shares[i]:.0f}% of the weight"
        best = report.strongest(explanation, 1, i)
        if i == first and (nearest := report.nearest(explanation)):
            cosine = "mean cosine" if report.grid else "cosine"
            share = f", nearest example {nearest.name} with {cosine} {nearest.weight:.4f}"
        led = f", led by {PurePath(best[0].name).name} ({best[0].weight:+.3f})" if best else ""
        parts.append(f"{classes[i]}: {explanation.measure} {explanation.values[i]:.4f}{share}{led}")
    return f"{parts[0]};", f"{parts[1]}."


def _bar(share: float, width: int) -> str:
    """Draw a bar in eighths of a character."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def print_parts(console: Console, report: ExplainReport, explanation: MethodExplanation) -> None:
    parts, classes = report.parts(explanation), report.gallery.classes
    label = classes[int(explanation.order[0])]
    against = [part for part in parts if part.is_against]
    console.print()
    console.print(plain_text(f"{describe_tally(parts, label)}:"))
    console.print()
    for line in _grid(parts, console.width):
        console.print(line)
    if against:
        print_table(console, _dissenters(classes, against))
    else:
        console.print()


def _grid(parts: list[PartAnswer], width: int) -> list[Text]:
    """Return the margins in the shape of the tiles; only their signs if the figures need too much space."""
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
    table.add_column("others support", overflow="fold")
    table.add_column("tiles", justify="right", no_wrap=True)
    table.add_column("margin", justify="right", no_wrap=True)
    table.add_column("strongest in", no_wrap=True)
    for label, found in largest_first[:_DISSENTERS]:
        name = "several classes alike" if label is None else classes[label]
        table.add_row(plain_text(name), str(len(found)), _figure(found[0]), describe_place(found[0]))
    if (more := len(by_class) - _DISSENTERS) > 0:
        rest = sum(len(found) for _, found in largest_first[_DISSENTERS:])
        table.caption = f"{format_count(more, 'more class')} {has_or_have(more)} {format_count(rest, 'tile')}"
        table.caption_justify = "left"
    return table


def _figure(part: PartAnswer) -> str:
    return f"{part.margin:+.2f}" if part.margin else "0.00"


def _sign(part: PartAnswer) -> str:
    return "+" if part.margin > 0 else "-" if part.is_against else "0"


def _style(part: PartAnswer) -> str:
    return "green" if part.margin > 0 else "yellow" if part.is_against else "dim"
