"""crnr verify."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import command
from crnr_cli.cli.console import print_json, say, say_some
from crnr_cli.cli.options import Input, Output


@command
def verify(
    gallery: options.GalleryArgument = options.GALLERY,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="A source of the gallery to compare with; can be repeated."),
    ] = None,
    *,
    input: Input,
    output: Output,
) -> None:
    """Check that a gallery is intact and, with --against, that its sources have not changed."""
    from crnr_cli.errors import DataError
    from crnr_cli.jobs.verify import verify as run
    from crnr_cli.sources.base import InputOptions

    report = run(gallery, against or [], InputOptions(**input.values()))
    if output.json:
        print_json({"gallery": str(gallery), **asdict(report), "holds": report.holds})
    if not output.quiet:
        say_some("changed", report.changed)
        say_some("missing", report.missing)
        say_some("not in the gallery", report.unknown)
    if not report.holds:
        raise DataError(
            f"{gallery}: {len(report.changed)} of {report.n_samples} samples have changed and "
            f"{len(report.missing)} are missing in {', '.join(against or [])}; "
            "if these are all its sources, `crnr build --update` with them brings it up to date, "
            "and removes the missing samples"
        )
    if not output.quiet:
        compared = ", and equal to its sources" if against else ""
        if report.unknown:
            compared += f", which have {len(report.unknown)} more samples"
        say(f"{gallery}: {report.n_samples} samples, correct checksum{compared}")
