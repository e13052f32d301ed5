"""crnr sort."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.command import given_values, make_command, parameter_names
from crnr_cli.cli.console import print_csv, print_json, say, say_some, shown_progress
from crnr_cli.cli.options import DryRun, ErrorHandlingOptions, PortableNames, PrintOptions
from crnr_cli.cli.parsing import Choice, Number
from crnr_cli.errors import UsageError
from crnr_cli.wording import format_count, is_or_are

if TYPE_CHECKING:
    from crnr_cli.jobs.sort import SortReport

_DONE = {"copy": "copied", "hardlink": "hard-linked", "link": "linked", "move": "moved"}
_ARGUMENTS = {"table": "CSV", "folder": "FOLDER"}


@dataclass(frozen=True, kw_only=True)
class Sorting:
    """What becomes of the files."""

    how: Annotated[
        str,
        typer.Option(
            parser=Choice(("copy", "hardlink", "link", "move")),
            help="What to do with the files: copy, hardlink, link, move.",
        ),
    ] = "copy"
    template: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="The names below FOLDER, made of the fields label, truth, runner_up, status, name, stem and "
            "suffix, each in braces.",
            show_default="FOLDER/label/name",
        ),
    ] = "{label}/{name}"
    min_probability: Annotated[
        float | None,
        typer.Option(
            parser=Number(at_most=1),
            metavar="P",
            help="Put files whose probability is lower into the folder _doubtful.",
        ),
    ] = None
    portable_names: PortableNames = False
    dry_run: DryRun = False


@make_command
def sort(
    context: typer.Context,
    table: Annotated[
        Path | None, typer.Argument(metavar="CSV", help="Predictions written by `crnr classify`.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", help="Where to make one folder per label; made if it is missing."),
    ] = None,
    below: Annotated[
        list[str] | None,
        typer.Option(
            "--below",
            metavar="DIR",
            help="Folder whose files may be touched, besides the current one and that of the CSV; "
            "can be repeated.",
        ),
    ] = None,
    undo: Annotated[
        Path | None,
        typer.Option(
            "--undo",
            metavar="LIST",
            help="Undo the run that wrote this list: move files back, or remove unchanged copies and links.",
        ),
    ] = None,
    *,
    sorting: Sorting,
    strictness: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Put classified files into one folder per label: copied, linked or moved; nothing is overwritten."""
    from crnr_cli.jobs.sort import SortOptions
    from crnr_cli.jobs.sort import sort as run

    places = [Path(name) for name in below or ()]
    if undo is not None:
        if names := given_values(context, ["table", "folder", *parameter_names(Sorting)]):
            others = ", ".join(_ARGUMENTS.get(name.removeprefix("--"), name) for name in names)
            raise UsageError(f"--undo takes only the undo file; leave out {others}")
        _undo(undo, places, strictness, output)
        return
    if table is None or not folder:
        context.fail(f"missing argument: {'FOLDER' if table else 'CSV FOLDER'}")
    options = SortOptions(**asdict(sorting), below=places, **strictness.to_fields())
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
        _say(report, folder, sorting.dry_run)
    strictness.finish(len(report.left_out))


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
        say(f"note: not touched, because not named like images: {format_count(report.unrelated, 'file')}")
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
    say(f"to undo it: crnr sort --undo {report.list}")


def _undo(path: Path, below: list[Path], strictness: ErrorHandlingOptions, output: PrintOptions) -> None:
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
    strictness.finish(len(report.left_out))
