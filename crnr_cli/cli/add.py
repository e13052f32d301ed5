"""crnr add."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import given_values, make_command, parameter_names
from crnr_cli.cli.console import say_separators, shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.options import (
    ChangedGallery,
    DryRun,
    ErrorHandlingOptions,
    ModelOptions,
    PrintOptions,
    SourceOptions,
)

# How sources are listed and labelled, which corrections have decided already.
_OF_SOURCES = [
    name for name in parameter_names(SourceOptions) if name not in ("max_pixels", "jobs", "box_margin")
]


@make_command
def add(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GALLERY SOURCE...",
            help="Gallery file, and the class folders, images or feature files to add; - reads a list of "
            "files from stdin.",
            show_default=False,
        ),
    ] = None,
    option: ChangedGallery = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Add all examples to the class NAME.",
            show_default="by folder",
            autocompletion=completion.complete_classes,
        ),
    ] = None,
    corrections: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Add the files that were reviewed with `crnr review`.",
        ),
    ] = None,
    dry_run: DryRun = False,
    *,
    input: SourceOptions,
    model: ModelOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Add examples to a gallery.

    The sources that it was built from are not needed.
    """
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.jobs.update import add as run
    from crnr_cli.results.edited import read_corrections
    from crnr_cli.system import outputs

    named = arguments or []
    if not named and option is None:
        context.fail("missing argument: GALLERY SOURCE...")
    gallery, sources = (option, named) if option else (Path(named[0]), named[1:])
    if os.path.isdir(gallery):  # noqa: PTH112, which raises if access is denied
        context.fail(f"{gallery}: is a folder, not a gallery; the order is `crnr add GALLERY SOURCE...`")
    if corrections is None and not sources and not (input.labels or input.boxes):
        context.fail("missing argument: SOURCE...")
    if label == "":
        context.fail("--class: the name of a class cannot be empty")
    if corrections is not None:
        if sources:
            context.fail(f"--corrections already names the files to add; leave out {sources[0]}")
        others = [*([] if label is None else ["--class"]), *given_values(context, _OF_SOURCES)]
        if others:
            context.fail(
                f"--corrections already names the classes of the files; leave out {', '.join(others)}"
            )
    reading = Reading(**input.to_fields(), **error_handling.to_fields(), provider=model.provider, label=label)
    # A gallery among the arguments has no mark of its own.
    written = [outputs.DeclaredOutput(gallery, is_gallery=True)]
    with outputs.planned(written), shown_progress(output.quiet) as progress:
        reviewed = None if corrections is None else read_corrections(corrections)
        report = run(gallery, sources, reading, progress, model.model_path, reviewed, dry_run=dry_run)
    if not output.quiet:
        say_separators(corrections)
    show_report(gallery, report, output, dry_run=dry_run)
    error_handling.finish(report.skipped)
