"""crnr remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.build import show_report
from crnr_cli.cli.console import boundary
from crnr_cli.errors import UsageError


def remove(
    gallery: Annotated[Path, typer.Argument(help="Gallery written by `crnr build`.")],
    classes: Annotated[
        list[str] | None, typer.Option("--class", metavar="NAME", help="Class to remove; may be repeated.")
    ] = None,
    samples: Annotated[
        list[str] | None, typer.Option("--sample", metavar="NAME", help="Sample to remove; may be repeated.")
    ] = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Remove classes or samples from a gallery."""
    with boundary():
        from crnr_cli.jobs.update import remove as run

        if not classes and not samples:
            raise UsageError("say what to remove, with --class NAME or --sample NAME")
        report = run(gallery, classes or [], samples or [])
        show_report(gallery, report, quiet=quiet, json=json)
