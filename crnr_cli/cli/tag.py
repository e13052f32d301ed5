"""crnr tag."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.command import given_values, make_command, parameter_names
from crnr_cli.cli.console import note_separators, print_csv, print_json, say, say_some, shown_progress
from crnr_cli.cli.options import Below, DryRun, ErrorHandlingOptions, PrintOptions, ReviewedLabels
from crnr_cli.cli.parsing import Choice, Number
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.system.names import quote_word
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.jobs.tag import TagReport

_CONTINUES = "; the same command continues from there"


@dataclass(frozen=True, kw_only=True)
class Tagging:
    """The keywords, and the names of sidecars."""

    naming: Annotated[
        str,
        typer.Option(
            parser=Choice(("auto", "photo.jpg.xmp", "photo.xmp")),
            help="Name new sidecars in this way: {choices}.",
        ),
    ] = "auto"
    taxa: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write hierarchical keywords by this CSV file of class,parent."),
    ] = None
    min_probability: Annotated[
        float | None,
        typer.Option(parser=Number(at_most=1), metavar="P", help="Write no labels less probable than P."),
    ] = None
    corrections: ReviewedLabels = None
    dry_run: DryRun = False


@make_command
def tag(
    context: typer.Context,
    table: Annotated[
        Path | None, typer.Argument(metavar="CSV", help="Predictions file from `crnr classify`.")
    ] = None,
    below: Below = None,
    undo: Annotated[
        Path | None, typer.Option("--undo", metavar="FILE", help="Undo the run that wrote this undo file.")
    ] = None,
    *,
    tagging: Tagging,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Write labels as keywords into XMP sidecars.

    Never touches an image, and keeps everything that a sidecar contains.
    """
    from crnr_cli.jobs.tag import TagOptions
    from crnr_cli.jobs.tag import tag as run
    from crnr_cli.results.taxa import read_taxa

    places = [Path(name) for name in below or ()]
    if undo is not None:
        if names := given_values(context, ["table", *parameter_names(Tagging)]):
            raise UsageError(f"--undo takes only the undo file; leave out {', '.join(names)}")
        _undo(undo, places, error_handling, output)
        return
    if table is None:
        context.fail("missing argument: CSV")
    options = TagOptions(
        tagging.naming,
        tagging.min_probability,
        read_taxa(tagging.taxa, for_keywords=True) if tagging.taxa else None,
        tagging.corrections,
        places,
        dry_run=tagging.dry_run,
        max_failure_rate=error_handling.allowed_rate,
    )
    with shown_progress(output.quiet) as shown, finishing_batches(shown, _CONTINUES) as progress:
        report = run(table, options, progress)
    if output.json:
        print_json(_record(report, tagging.dry_run))
    elif tagging.dry_run:
        print_csv(["path", "sidecar", "result", "keywords", "reason"], report.rows)
    if not output.quiet:
        for note in note_separators([one for one in (table, tagging.taxa, tagging.corrections) if one]):
            say(f"note: {note}")
        _say(report, tagging.dry_run)
    error_handling.finish(len(report.left_out))


def _record(report: TagReport, dry_run: bool) -> dict[str, object]:
    from crnr_cli.jobs.tag import CHANGED, NEW
    from crnr_cli.sorting.placing import ALREADY_THERE

    return {
        "new": 0 if dry_run else report.count(NEW),
        "changed": 0 if dry_run else report.count(CHANGED),
        "there": report.count(ALREADY_THERE),
        "untagged": report.untagged,
        "left_out": [{"name": row.path, "reason": row.reason} for row in report.left_out],
        "undo_list": _shown(report.list) if report.list else None,
        **({"planned": [row._asdict() for row in report.rows]} if dry_run else {}),
    }


def _shown(path: Path) -> str:
    """Return the path relative to the current folder, if that is shorter."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)


def _say(report: TagReport, dry_run: bool) -> None:
    from crnr_cli.jobs.tag import CHANGED, NEW
    from crnr_cli.sorting.placing import ALREADY_THERE

    say_some("left out", list(map(str, report.left_out)), style="yellow")
    if report.untagged:
        say(f"note: {format_count(report.untagged, 'image')} without a label to write")
    new, changed, there = map(report.count, (NEW, CHANGED, ALREADY_THERE))
    already = f", {format_count(there, 'sidecar')} with the labels already" if there else ""
    if not new + changed:
        say(f"no sidecars to write{already}")
        return
    counts = f"{format_count(new, 'new sidecar')}, {format_count(changed, 'changed sidecar')}{already}"
    say(f"planned: {counts}" if dry_run else counts)
    if report.list:
        say(f"to undo it: crnr tag --undo {quote_word(_shown(report.list))}")


def _undo(path: Path, below: list[Path], error_handling: ErrorHandlingOptions, output: PrintOptions) -> None:
    from crnr_cli.jobs.tag import untag

    with shown_progress(output.quiet) as shown, finishing_batches(shown, _CONTINUES) as progress:
        report = untag(path, below, progress)
    if output.json:
        left_out = [{"name": name, "reason": reason} for name, reason in report.left_out]
        print_json({"undone": report.undone, "left_out": left_out})
    if not output.quiet:
        say_some("left out", [f"{name}: {reason}" for name, reason in report.left_out], style="yellow")
        say(f"{format_count(report.undone, 'sidecar')} as before")
        if report.left_out:
            say(f"kept {path} for the rest")
    error_handling.finish(len(report.left_out))
