"""crnr export."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli.command import make_command
from crnr_cli.cli.console import note_separators, print_json, say, say_some, shown_progress
from crnr_cli.cli.options import (
    Below,
    ErrorHandlingOptions,
    PredictionsFile,
    PrintOptions,
    ReviewedLabels,
)
from crnr_cli.cli.parsing import Choice
from crnr_cli.exports.base import EXPORTERS
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count


@dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """The options of single formats."""

    boxes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add the labels to this JSON of the detector (megadetector)."),
    ] = None
    deployments: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read the deployments from this CSV file (camtrap-dp)."),
    ] = None
    metadata: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read contributors and project from this JSON (camtrap-dp)."),
    ] = None
    url_prefix: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Put URL in front of each path (label-studio, camtrap-dp)."),
    ] = None


@make_command
def export(
    table: PredictionsFile,
    to: Annotated[
        str,
        typer.Option("--to", parser=Choice(tuple(EXPORTERS)), help="Write this format: {choices}."),
    ],
    path: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="File to write; for camtrap-dp, a new folder."),
    ],
    corrections: ReviewedLabels = None,
    below: Below = None,
    *,
    formats: FormatOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Write labels in the format of another program.

    Reads a predictions file; a column corrected takes precedence over the label.
    """
    from crnr_cli.exports.base import ExportOptions
    from crnr_cli.jobs.export import ExportJob
    from crnr_cli.jobs.export import export as run

    places = [Path(name) for name in below or ()]
    allowed = error_handling.allowed_rate
    job = ExportJob(to, ExportOptions(**asdict(formats)), corrections, places, allowed)
    with shown_progress(output.quiet) as progress:
        report = run(table, path, job, progress)
    if output.json:
        left_out = [{"name": name, "reason": reason} for name, reason in report.left_out]
        counts = {"images": report.images, "answers": report.answers, "passed_over": report.unrelated}
        print_json({"output": str(path), "to": to, **counts, "left_out": left_out, "notes": report.notes})
    if not output.quiet:
        tables = [one for one in (table, corrections, formats.deployments) if one]
        for note in [*note_separators(tables), *report.notes]:
            say(f"note: {note}")
        say_some("left out", [f"{name}: {reason}" for name, reason in report.left_out], style="yellow")
        answers, images = format_count(report.answers, "answer"), format_count(report.images, "image")
        say(f"wrote {path}: {answers} for {images}")
    error_handling.finish(len(report.left_out))
