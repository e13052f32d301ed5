"""crnr add."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import command
from crnr_cli.cli.console import shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.network_options import Model
from crnr_cli.cli.options import ChangedGallery, Input, Output, Strictness


@command
def add(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="GALLERY SOURCE...",
            help="The gallery, and what to add to it: folders of classes, folders named after a class, "
            "pictures, feature files, or - for a list of files on stdin.",
        ),
    ],
    option: ChangedGallery = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Class of all added samples, whatever their folders or labels say.",
            show_default="by folder or label",
            autocompletion=completion.classes,
        ),
    ] = None,
    *,
    input: Input,
    model: Model,
    strictness: Strictness,
    output: Output,
) -> None:
    """Add classes or samples to a gallery. The sources that it was built from are not needed."""
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.jobs.update import add as run
    from crnr_cli.system import outputs

    gallery, sources = (option, arguments) if option else (Path(arguments[0]), arguments[1:])
    if not sources:
        context.fail("missing argument: SOURCE...")
    if label == "":
        context.fail("--class: the name of a class cannot be empty")
    reading = Reading(**input.values(), **strictness.values(), provider=model.provider, label=label)
    # A gallery among the arguments has no mark of its own.
    written = [outputs.Output(gallery, is_gallery=True)]
    with outputs.planned(written), shown_progress(output.quiet) as progress:
        report = run(gallery, sources, reading, progress, model.extractor)
    show_report(gallery, report, output)
    strictness.finish(report.skipped)
