"""crnr correct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import print_csv, print_json, say, say_separators, say_some, shown_progress
from crnr_cli.cli.gallery_report import show_report
from crnr_cli.cli.options import DryRun, ErrorHandlingOptions, PrintOptions
from crnr_cli.system.names import quote_word
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.jobs.correct import Plan
    from crnr_cli.sorting.plan import SortReport


@make_command
def correct(
    gallery: Annotated[
        Path, typer.Argument(metavar="GALLERY", help="Gallery file."), Written(is_gallery=True)
    ],
    table: Annotated[
        Path,
        typer.Argument(
            metavar="CSV", help="CSV from `crnr audit`, or from its page, with corrected or removed rows."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--sources",
            metavar="FOLDER",
            help="Also move the files to the class folders of FOLDER, or to its folder _removed.",
        ),
    ] = None,
    dry_run: DryRun = False,
    *,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Apply corrected labels and removals after an audit.

    `crnr build --update` keeps them.
    """
    from crnr_cli.jobs.correct import correct as run
    from crnr_cli.jobs.correct import plan_corrections
    from crnr_cli.results.edited import read_marks

    marks, allowed = read_marks(table), error_handling.allowed_rate
    if not output.quiet:
        say_separators(table)
    if dry_run:
        plan = plan_corrections(gallery, marks, folder, allowed)
        _show_plan(gallery, plan, output)
    else:
        with shown_progress(output.quiet) as progress:
            report = run(gallery, marks, f"correct {table}", folder, progress, allowed)
        plan = report.plan
        more = {"files": _record(plan.moves)} if plan.moves else {}
        show_report(gallery, report.update, output, more=more)
        if plan.moves and not output.quiet:
            _say_moves(plan.moves, dry_run=False)
    error_handling.finish(len(plan.moves.left_out) if plan.moves else 0)


def _rows(plan: Plan) -> Iterator[tuple[str, str, str, str, str]]:
    targets = {row.path: row.target for row in plan.moves.rows} if plan.moves else {}
    for one in plan.corrections:
        target = targets.get(one.name, "")
        if one.is_new or target:
            yield one.name, one.change, one.label, one.corrected, target


def _show_plan(gallery: Path, plan: Plan, output: PrintOptions) -> None:
    header = ("sample", "change", "class", "corrected", "target")
    if output.json:
        planned = [dict(zip(header, row, strict=True)) for row in _rows(plan)]
        files = {"files": _record(plan.moves)} if plan.moves else {}
        print_json({"gallery": str(gallery), "planned": planned, "confirmed": plan.kept, **files})
    else:
        print_csv(header, _rows(plan))
    if output.quiet:
        return
    removed = sum(not one.corrected for one in plan.new)
    changed = len(plan.new) - removed
    say(f"{gallery}: {changed} changed, {removed} removed, {plan.kept} confirmed; not changed by a dry run")
    if plan.moves:
        _say_moves(plan.moves, dry_run=True)


def _record(moves: SortReport) -> dict[str, Any]:
    return {
        "moved": moves.count(moves.how),
        "left_out": [{"name": row.path, "reason": row.reason} for row in moves.left_out],
        "undo_list": str(moves.list) if moves.list else None,
    }


def _say_moves(moves: SortReport, *, dry_run: bool) -> None:
    say_some("not moved", [f"{row.path}: {row.reason}" for row in moves.left_out], style="yellow")
    files = format_count(moves.count(moves.how), "file")
    say(f"{files} would be moved" if dry_run else f"{files} moved")
    if moves.list:
        say(f"to undo the moves: crnr sort --undo {quote_word(str(moves.list))}")
