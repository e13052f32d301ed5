"""crnr remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import completion
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import print_csv, print_json, say, say_notes, say_separators, shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.options import ChangedGallery, DryRun, GalleryArgument, PrintOptions, one_gallery
from crnr_cli.cli.parsing import HiddenNames
from crnr_cli.errors import UsageError
from crnr_cli.system.names import quote_word
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.gallery.entries import Unwanted


@make_command
def remove(
    context: typer.Context,
    gallery: Annotated[GalleryArgument, Written(is_gallery=True)] = None,
    option: ChangedGallery = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Class to remove, or a pattern such as 'sp*'.",
            autocompletion=completion.complete_classes,
        ),
    ] = None,
    samples: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            metavar="NAME",
            help="Example to remove, or a pattern such as 'ham/*.png'.",
            autocompletion=completion.complete_samples,
        ),
        HiddenNames("sample"),
    ] = None,
    marked: Annotated[
        Path | None,
        typer.Option(
            "--marked-in",
            metavar="FILE",
            help="Remove the examples marked with x in a CSV of `crnr audit`.",
        ),
        HiddenNames("from"),
    ] = None,
    dry_run: DryRun = False,
    *,
    output: PrintOptions,
) -> None:
    """Remove examples or classes."""
    from crnr_cli.gallery.entries import Unwanted
    from crnr_cli.jobs.update import remove as run
    from crnr_cli.results.edited import count_corrected, read_marked_samples

    if not classes and not samples and not marked:
        raise UsageError("choose what to remove with --class NAME, --example NAME or --marked-in FILE")
    gallery = one_gallery(context, gallery, option)
    unwanted = Unwanted(classes or [], samples or [], read_marked_samples(marked) if marked else [])
    if not output.quiet:
        say_separators(marked)
        if marked and (count := count_corrected(marked)):
            have = "row has" if count == 1 else "rows have"
            command = f"crnr correct {quote_word(str(gallery))} {quote_word(str(marked))}"
            say(
                f"note: {marked}: {count} {have} a corrected class, which `{command}` applies", style="yellow"
            )
    if dry_run:
        _show_plan(gallery, unwanted, output)
        return
    why = f"remove --marked-in {marked}" if marked else "remove"
    with shown_progress(output.quiet) as progress:
        report = run(gallery, unwanted, progress, why)
    show_report(gallery, report, output)


def _show_plan(gallery: Path, unwanted: Unwanted, output: PrintOptions) -> None:
    from crnr_cli.jobs.update import plan_removal

    kept, removed, notes = plan_removal(gallery, unwanted)
    if output.json:
        rows = zip(removed.names, removed.labels, strict=True)
        planned = [{"sample": name, "class": label} for name, label in rows]
        print_json({"gallery": str(gallery), "planned": planned, "unchanged": len(kept)})
    else:
        print_csv(["sample", "class"], zip(removed.names, removed.labels, strict=True))
    if not output.quiet:
        say_notes(notes)
        emptied = set(removed.labels) - set(kept.labels)
        classes = f", and {format_count(len(emptied), 'class')} with them" if emptied else ""
        total = format_count(len(kept) + len(removed), "example")
        say(f"{gallery}: {len(removed)} of {total} would be removed{classes}")
