"""crnr rename."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.options import PrintOptions


@make_command
def rename(
    context: typer.Context,
    gallery: Annotated[
        Path, typer.Argument(metavar="GALLERY", help="Gallery file."), Written(is_gallery=True)
    ],
    old: Annotated[
        str,
        typer.Argument(metavar="OLD", help="Class to rename.", autocompletion=completion.complete_classes),
    ],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW", help="New name of the class.", autocompletion=completion.complete_classes
        ),
    ],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Move the examples of OLD into the existing class NEW."),
    ] = False,
    *,
    output: PrintOptions,
) -> None:
    """Rename or merge classes.

    The examples keep their names.
    """
    from crnr_cli.jobs.update import rename as run

    if not new:
        context.fail("the new name of the class must not be empty")
    with shown_progress(output.quiet) as progress:
        report = run(gallery, old, new, merge=merge, progress=progress)
    show_report(gallery, report, output)
