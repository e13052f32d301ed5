"""crnr audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.audit_tables import CSV_COLUMNS, csv_rows, record, show_audit
from crnr_cli.cli.boundary import GATE_MISSED
from crnr_cli.cli.command import Written, command, given, names_of
from crnr_cli.cli.console import (
    EarlyNotes,
    print_json,
    say,
    say_left_out,
    say_notes,
    shown_progress,
)
from crnr_cli.cli.network_options import Network
from crnr_cli.cli.options import Input, Output, Strictness
from crnr_cli.cli.tables import write_csv
from crnr_cli.cli.values import Whole
from crnr_cli.cli.vector_options import Steps, Vectors
from crnr_cli.cli.vector_options import reading as reading_of
from crnr_cli.errors import UsageError
from crnr_cli.sources.readers import READERS
from crnr_cli.wording import counted

if TYPE_CHECKING:
    from crnr_cli.jobs.audit import AuditReport

# How samples become vectors, which a gallery has decided already.
_OF_SOURCES = [name for name in names_of(Vectors, Steps, Network) if name != "provider"]


@command(side_by_side=True)
def audit(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="A gallery, or what one can be built from: folders, pictures, feature files "
            f"({', '.join(READERS)}), or - for a list of files on stdin.",
        ),
    ],
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="Queries to look for among the samples; can be repeated."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="Write the samples to this CSV, for `crnr remove --from`."
        ),
        Written(),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report as one self-contained page."),
        Written(),
    ] = None,
    pictures_from: options.PicturesFrom = None,
    max_suspects: Annotated[
        int | None,
        typer.Option(
            parser=Whole(0), metavar="N", help="Exit with code 4 if more labels than this look wrong."
        ),
    ] = None,
    *,
    vectors: Vectors,
    steps: Steps,
    network: Network,
    input: Input,
    strictness: Strictness,
    output: Output,
) -> None:
    """Find labels that look wrong, duplicates, outliers and confusable classes in a gallery or a source."""
    early = EarlyNotes(output.quiet)
    reading = reading_of(input, vectors, network, steps=steps.made(), on_notes=early, **strictness.values())
    from crnr_cli.gallery.content import is_gallery
    from crnr_cli.jobs.audit import audit as run
    from crnr_cli.system.optional import require

    if html:
        require("report", "--html", "jinja2")
    model = None
    if any(is_gallery(Path(name)) for name in sources):
        model = vectors.extractor if isinstance(vectors.extractor, Path) else None
        if fixed := [name for name in given(context, _OF_SOURCES) if not (name == "--extractor" and model)]:
            raise UsageError(f"{', '.join(fixed)}: a gallery keeps its settings; leave out what it has")
    with shown_progress(output.quiet) as progress:
        report = run(sources, reading, against or [], model, progress)
    if csv:
        write_csv(csv, CSV_COLUMNS, csv_rows(report))
    notes: list[str] = []
    if html:
        from crnr_cli.report.audit import write_audit

        notes = write_audit(report, html, sources, input.max_pixels, pictures_from or [])
    if output.json:
        print_json(record(report))
    else:
        show_audit(report)
    if not output.quiet:
        say_left_out(report.left_out)
        say_notes(early.rest(report.notes))
        for note in notes:
            say(f"note: {note}", style="yellow")
    _finish(report, max_suspects)
    strictness.finish(report.skipped)


def _finish(report: AuditReport, max_suspects: int | None) -> None:
    """Exit with GATE_MISSED if more labels look wrong than are allowed."""
    count = len(report.suspects)
    if max_suspects is not None and count > max_suspects:
        looks = "looks" if count == 1 else "look"
        say(f"{counted(count, 'label')} {looks} wrong, and at most {max_suspects} may", style="red")
        raise typer.Exit(GATE_MISSED)
