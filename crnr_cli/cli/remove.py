"""crnr remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import Written, command
from crnr_cli.cli.console import shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.options import ChangedGallery, GalleryArgument, Output, one_gallery
from crnr_cli.errors import UsageError


@command
def remove(
    context: typer.Context,
    gallery: Annotated[GalleryArgument, Written(is_gallery=True)] = None,
    option: ChangedGallery = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Class to remove; can be repeated.",
            autocompletion=completion.classes,
        ),
    ] = None,
    samples: Annotated[
        list[str] | None,
        typer.Option(
            "--sample",
            metavar="NAME",
            help="Sample to remove; can be repeated.",
            autocompletion=completion.samples,
        ),
    ] = None,
    marked: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="CSV written by `crnr audit`: remove the samples that are marked with x in its last column.",
        ),
    ] = None,
    *,
    output: Output,
) -> None:
    """Remove classes or samples from a gallery."""
    from crnr_cli.jobs.update import remove as run
    from crnr_cli.results.marks import marked_samples

    if not classes and not samples and not marked:
        raise UsageError("choose what to remove with --class NAME, --sample NAME or --from FILE")
    gallery = one_gallery(context, gallery, option)
    if marked:
        samples = [*(samples or []), *marked_samples(marked)]
    with shown_progress(output.quiet) as progress:
        report = run(gallery, classes or [], samples or [], progress)
    show_report(gallery, report, output)
