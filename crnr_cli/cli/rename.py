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
        Path, typer.Argument(metavar="GALLERY", help="The gallery."), Written(is_gallery=True)
    ],
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD", help="The class to rename.", autocompletion=completion.complete_classes
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(metavar="NEW", help="Its new name.", autocompletion=completion.complete_classes),
    ],
    merge: Annotated[
        bool,
        typer.Option("--merge", help="NEW is a class of the gallery, which gets the samples of OLD."),
    ] = False,
    *,
    output: PrintOptions,
) -> None:
    """Rename a class of a gallery, or merge it with another one. Its samples keep their names."""
    from crnr_cli.jobs.update import rename as run

    if not new:
        context.fail("the new name of the class must not be empty")
    with shown_progress(output.quiet) as progress:
        report = run(gallery, old, new, merge=merge, progress=progress)
    show_report(gallery, report, output)
