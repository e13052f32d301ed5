"""crnr verify."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import make_command
from crnr_cli.cli.console import print_json, say, say_some
from crnr_cli.cli.options import ContentOptions, PrintOptions
from crnr_cli.cli.parsing import HiddenNames
from crnr_cli.system.names import join_command
from crnr_cli.wording import format_count, has_or_have, is_or_are


@make_command
def verify(
    context: typer.Context,
    gallery: options.GalleryArgument = None,
    option: options.GalleryPath = options.GALLERY,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="Compare with this source of the gallery."),
        HiddenNames("against"),
    ] = None,
    *,
    input: ContentOptions,
    output: PrintOptions,
) -> None:
    """Check that a gallery is intact and up to date.

    Checks its checksum and, with --source, that its sources have not changed.
    """
    from crnr_cli.errors import DataError
    from crnr_cli.jobs.verify import verify as run
    from crnr_cli.sources.base import InputOptions

    gallery = options.one_gallery(context, gallery, option)
    report = run(gallery, source or [], InputOptions(**input.to_fields()))
    if output.json:
        print_json({"gallery": str(gallery), **asdict(report), "holds": report.holds})
    examples = format_count(report.n_samples, "example")
    sources = ", ".join(source or [])
    if len(report.missing) == report.n_samples:
        raise DataError(
            f"{gallery}: none of its {examples} is in {sources}; name the source that it was built from"
        )
    if not output.quiet:
        say_some("changed", report.changed)
        say_some("missing", report.missing)
        say_some("not in the gallery", report.unknown)
    if not report.holds:
        removes = ", which also removes the missing examples" if report.missing else ""
        raise DataError(
            f"{gallery}: {len(report.changed)} of {examples} {has_or_have(len(report.changed))} changed and "
            f"{len(report.missing)} {is_or_are(len(report.missing))} missing in {sources}; if the gallery "
            "has no other sources, update it with "
            f"`crnr build {join_command(source or [])} --update`{removes}"
        )
    if not output.quiet:
        compared = ", all the same as in the sources" if source else ""
        if extra := len(report.unknown):
            compared += (
                f"; {format_count(extra, 'example')} of the sources {is_or_are(extra)} not in the gallery"
            )
        if removed := len(report.removed):
            stay = "stays" if removed == 1 else "stay"
            compared += f"; {format_count(removed, 'removed example')} {stay} removed"
        say(f"{gallery}: OK, {examples}, valid checksum{compared}")
