"""crnr split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.command import given_values, make_command
from crnr_cli.cli.console import print_csv, print_json, say, say_some, shown_progress
from crnr_cli.cli.events import EventGap
from crnr_cli.cli.options import (
    DryRun,
    ErrorHandlingOptions,
    ImageSourceOptions,
    PortableNames,
    PrintOptions,
    require_sources,
)
from crnr_cli.cli.parsing import Choice, HiddenNames, Number, Whole
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.system.names import join_command
from crnr_cli.wording import format_count, is_or_are

if TYPE_CHECKING:
    from crnr_cli.jobs.split import SplitReport

_DONE = {"copy": "copied", "hardlink": "hard-linked", "link": "linked"}


@dataclass(frozen=True, kw_only=True)
class Division:
    """How the images are divided, and what becomes of them."""

    share: Annotated[
        float,
        typer.Option(
            parser=Number(above=0, at_most=1),
            metavar="SHARE",
            help="Put SHARE of every class into the gallery.",
        ),
    ] = 0.8
    per_class: Annotated[
        int | None,
        typer.Option(
            parser=Whole(), metavar="N", help="Put N images of every class into the gallery, instead."
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(parser=Whole(0), metavar="N", help="Random seed of the draws.", show_default="0"),
    ] = None
    how: Annotated[
        str,
        typer.Option(
            parser=Choice(("copy", "hardlink", "link")),
            help="Place files in this way: {choices}.",
        ),
    ] = "copy"
    event_gap: EventGap = None
    group_similar: Annotated[
        bool,
        typer.Option(
            "--group-similar", help="Keep near duplicates and mirror images on one side; reads all images."
        ),
    ] = False
    portable_names: PortableNames = False
    dry_run: DryRun = False


@make_command
def split(
    context: typer.Context,
    train: Annotated[
        str,
        typer.Option(metavar="DIR", help="Folder for the gallery; created if missing."),
        HiddenNames("gallery", "g"),
    ],
    test: Annotated[
        str,
        typer.Option(metavar="DIR", help="Folder for the test set; created if missing."),
        HiddenNames("queries"),
    ],
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Folders or images, or - to read a list of files from stdin. With --labels, the default is "
            "all files of the label table.",
        ),
    ] = None,
    *,
    division: Division,
    input: ImageSourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Split labelled images into a gallery and a test set.

    Copies of an image stay on one side.
    """
    from crnr_cli.jobs.split import Portion, SplitOptions
    from crnr_cli.jobs.split import split as run

    if division.per_class is not None and given_values(context, ["share"]):
        raise UsageError("--share and --per-class contradict each other; give one of them")
    if division.share == 1:
        raise UsageError("--share 1 would leave no queries; give a number between 0 and 1")
    for option, folder in (("--train", train), ("--test", test)):
        if not folder:
            raise UsageError(f"{option}: the name of the folder is empty")
    split_options = SplitOptions(
        gallery=Path(train),
        queries=Path(test),
        portion=Portion(division.share, division.per_class),
        seed=division.seed or 0,
        how=division.how,
        dry_run=division.dry_run,
        event_gap=division.event_gap,
        group_similar=division.group_similar,
        portable_names=division.portable_names,
        **input.to_fields(),
        **error_handling.to_fields(),
    )
    with (
        shown_progress(output.quiet) as shown,
        finishing_batches(shown, "; the same command continues from there") as progress,
    ):
        report = run(require_sources(context, sources, input.labels), split_options, progress)
    if output.json:
        print_json(_record(report, train, test, division.dry_run))
    elif division.dry_run:
        print_csv(["path", "target", "result", "reason"], report.rows)
    if not output.quiet:
        _say(report, train, test, division.dry_run)
    error_handling.finish(len(report.left_out))


def _record(report: SplitReport, gallery: str, queries: str, dry_run: bool) -> dict[str, object]:
    from crnr_cli.sorting.placing import ALREADY_THERE

    return {
        "gallery": gallery,
        "queries": queries,
        "how": report.how,
        "done": 0 if dry_run else report.count(report.how),
        "there": report.count(ALREADY_THERE),
        "classes": {
            name: {"gallery": own, "queries": others} for name, (own, others) in report.classes.items()
        },
        "copies": report.copies,
        "events": report.events,
        "similar": report.similar,
        "passed_over": report.unrelated,
        "left_out": [{"name": row.path, "reason": row.reason} for row in report.left_out],
        "notes": [note.text for note in report.notes],
        **({"planned": [row._asdict() for row in report.rows]} if dry_run else {}),
    }


def _say(report: SplitReport, gallery: str, queries: str, dry_run: bool) -> None:
    from crnr_cli.sorting.placing import ALREADY_THERE

    say_some("left out", list(map(str, report.left_out)), style="yellow")
    say_some("note", [note.text for note in report.notes])
    if report.unrelated:
        say(f"note: not touched, because not images: {format_count(report.unrelated, 'file')}")
    if report.copies:
        say(
            f"note: {format_count(report.copies, 'file')} {is_or_are(report.copies)} an exact copy of "
            "another file; copies stay together"
        )
    if report.events is not None:
        say(f"note: {format_count(report.events, 'event')} of several images; an event stays together")
    if report.similar:
        are = "are near duplicates or mirror images of other files"
        if report.similar == 1:
            are = "is a near duplicate or a mirror image of another file"
        say(f"note: {format_count(report.similar, 'file')} {are}; they stay together")
    for i, folder in enumerate((gallery, queries)):
        counts = [sides[i] for sides in report.classes.values() if sides[i]]
        per_class = f", {min(counts)} to {max(counts)} per class" if counts else ""
        if counts and min(counts) == max(counts):
            per_class = f", {counts[0]} per class"
        say(
            f"{folder}: {format_count(sum(counts), 'image')} of "
            f"{format_count(len(counts), 'class')}{per_class}"
        )
    done, there = report.count(report.how), report.count(ALREADY_THERE)
    already = f", {there} {is_or_are(there)} already there" if there else ""
    would = "would be " if dry_run else ""
    say(f"{format_count(done, 'file')} {would}{_DONE[report.how]}{already}")
    if not dry_run:
        what = "near duplicates" if report.similar is None else "images of the same scene"
        command = join_command(["crnr", "audit", str(gallery), "--queries", str(queries)])
        say(f"to find {what} on both sides: {command}")
