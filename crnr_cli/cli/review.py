"""crnr review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import Written, given_values, make_command
from crnr_cli.cli.console import print_json, say, say_separators, shown_progress
from crnr_cli.cli.options import ModelOptions, PrintOptions
from crnr_cli.cli.parsing import Choice, Whole
from crnr_cli.images.regions import MARGIN

_LIMIT = 2000


@make_command
def review(
    context: typer.Context,
    table: Annotated[Path, typer.Argument(metavar="CSV", help="Predictions file from `crnr classify`.")],
    path: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="HTML file to write."),
        Written(),
    ] = Path("review.html"),
    gallery: options.GalleryPath = options.GALLERY,
    limit: Annotated[
        int,
        typer.Option(parser=Whole(), metavar="N", help="Show at most N answers, the most doubtful first."),
    ] = _LIMIT,
    order: Annotated[
        str,
        typer.Option(
            parser=Choice(("doubtful", "diverse")),
            metavar="ORDER",
            help="Put these answers first, where diverse ones are doubtful and different: {choices}.",
        ),
    ] = "doubtful",
    images_from: options.ImagesFrom = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            help="Read the features that `classify --cache` saved in this .h5 file.",
        ),
    ] = None,
    box_margin: options.BoxMargin = MARGIN,
    *,
    model: ModelOptions,
    output: PrintOptions,
) -> None:
    """Check and correct labels in a browser.

    Writes a page that shows the most doubtful answers first and saves corrections.csv.
    """
    from crnr_cli.gallery.queries import QueryOptions
    from crnr_cli.jobs.review import review as run
    from crnr_cli.system.extras import require_packages

    require_packages("report", "crnr review", "jinja2")
    from crnr_cli.report.found_images import search_beside
    from crnr_cli.report.review import write_review

    query_options = QueryOptions(**model.to_fields(), cache=cache, box_margin=box_margin)
    with shown_progress(output.quiet) as progress:
        is_named = bool(given_values(context, ["gallery", "model_path"]))
        search = search_beside([str(table)], images_from or [])
        report = run(
            table,
            gallery,
            limit,
            query_options,
            is_named=is_named,
            diverse_by=search.find_or_none if order == "diverse" else None,
            progress=progress,
        )
        notes = write_review(report, path, table, gallery, query_options, images_from or [], progress)
    if output.json:
        print_json({"page": str(path), "answers": len(report.answers), "total": report.total, "notes": notes})
    if not output.quiet:
        say_separators(table)
        for note in notes:
            say(f"note: {note}", style="yellow")
        say(f"wrote {path}; open it in a browser, review the answers, and save corrections.csv from there")
