"""crnr sort."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.command import given_values, make_command, parameter_names
from crnr_cli.cli.console import print_csv, print_json, say, say_separators, say_some, shown_progress
from crnr_cli.cli.options import Below, DryRun, ErrorHandlingOptions, PortableNames, PrintOptions
from crnr_cli.cli.parsing import Choice, Number
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.system.names import quote_word
from crnr_cli.wording import format_count, is_or_are

if TYPE_CHECKING:
    from crnr_cli.sorting.plan import SortReport

_DONE = {"copy": "copied", "hardlink": "hard-linked", "link": "linked", "move": "moved"}


@dataclass(frozen=True, kw_only=True)
class Sorting:
    """The way to place files, and their new names."""

    how: Annotated[
        str,
        typer.Option(
            parser=Choice(("copy", "hardlink", "link", "move")),
            help="Place files in this way: {choices}.",
        ),
    ] = "copy"
    template: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Name files by these fields in braces: label, truth, runner_up, status, name, stem, suffix.",
            show_default="label/name",
        ),
    ] = "{label}/{name}"
    min_probability: Annotated[
        float | None,
        typer.Option(
            parser=Number(at_most=1),
            metavar="P",
            help="Put files less probable than P into the folder _doubtful.",
        ),
    ] = None
    portable_names: PortableNames = False
    dry_run: DryRun = False


@make_command
def sort(
    context: typer.Context,
    table: Annotated[
        Path | None, typer.Argument(metavar="CSV", help="Predictions file from `crnr classify`.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", help="Target folder; created if missing."),
    ] = None,
    below: Below = None,
    undo: Annotated[
        Path | None,
        typer.Option(
            "--undo",
            metavar="FILE",
            help="Undo the run that wrote this undo file.",
        ),
    ] = None,
    *,
    sorting: Sorting,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Copy, link or move files into one folder per label.

    Never overwrites a file, and takes only files below the current folder and the folder of the CSV.
    """
    from crnr_cli.jobs.sort import SortOptions
    from crnr_cli.jobs.sort import sort as run

    places = [Path(name) for name in below or ()]
    if undo is not None:
        if names := given_values(context, ["table", "folder", *parameter_names(Sorting)]):
            raise UsageError(f"--undo takes only the undo file; leave out {', '.join(names)}")
        _undo(undo, places, error_handling, output)
        return
    if table is None or not folder:
        context.fail(f"missing argument: {'FOLDER' if table else 'CSV FOLDER'}")
    if os.path.isdir(table):  # noqa: PTH112, which raises if access is denied
        context.fail(f"{table}: is a folder; the order is `crnr sort CSV FOLDER`")
    rate = error_handling.allowed_rate
    options = SortOptions(**asdict(sorting), below=places, max_failure_rate=rate)
    with (
        shown_progress(output.quiet) as shown,
        finishing_batches(shown, "; the same command continues from there") as progress,
    ):
        report = run(table, Path(folder), options, progress)
    if output.json:
        print_json(_record(report, folder, sorting.dry_run))
    elif sorting.dry_run:
        print_csv(["path", "target", "result", "reason"], report.rows)
    if not output.quiet:
        say_separators(table)
        _say(report, folder, sorting.dry_run)
    error_handling.finish(len(report.left_out))


def _record(report: SortReport, folder: str, dry_run: bool) -> dict[str, object]:
    from crnr_cli.sorting.placing import ALREADY_THERE

    return {
        "folder": folder,
        "how": report.how,
        "done": 0 if dry_run else report.count(report.how),
        "there": report.count(ALREADY_THERE),
        "passed_over": report.unrelated,
        "left_out": [{"name": row.path, "reason": row.reason} for row in report.left_out],
        "undo_list": str(report.list) if report.list else None,
        **({"planned": [row._asdict() for row in report.rows]} if dry_run else {}),
    }


def _say(report: SortReport, folder: str, dry_run: bool) -> None:
    from crnr_cli.sorting.placing import ALREADY_THERE

    say_some("left out", [f"{row.path}: {row.reason}" for row in report.left_out], style="yellow")
    if report.unrelated:
        files = format_count(report.unrelated, "file")
        say(f"note: not touched, because not named like images or without a box: {files}")
    if report.mixed:
        images = format_count(report.mixed, "image")
        say(f"note: {images} with boxes of several labels: each goes to the folder of its surest box")
    done, there = report.count(report.how), report.count(ALREADY_THERE)
    already = f", {there} {is_or_are(there)} already there" if there else ""
    if dry_run:
        say(f"{folder}: {format_count(done, 'file')} would be {_DONE[report.how]}{already}")
        return
    if not done:
        say(f"{folder}: no files to place{already}")
        return
    into = format_count(len(report.folders), "folder")
    say(f"{folder}: {format_count(done, 'file')} {_DONE[report.how]} into {into}{already}")
    say(f"to undo it: crnr sort --undo {quote_word(str(report.list))}")


def _undo(path: Path, below: list[Path], error_handling: ErrorHandlingOptions, output: PrintOptions) -> None:
    from crnr_cli.jobs.sort import unsort

    with (
        shown_progress(output.quiet) as shown,
        finishing_batches(shown, "; the same command continues from there") as progress,
    ):
        report = unsort(path, below, progress)
    if output.json:
        left_out = [{"name": name, "reason": reason} for name, reason in report.left_out]
        print_json({"how": report.how, "undone": report.undone, "left_out": left_out})
    if not output.quiet:
        say_some("left out", [f"{name}: {reason}" for name, reason in report.left_out], style="yellow")
        files = format_count(report.undone, "file")
        say(f"{files} moved back" if report.how == "move" else f"{files} removed")
        if report.left_out:
            say(f"kept {path} for the rest")
    error_handling.finish(len(report.left_out))
