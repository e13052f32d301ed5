"""crnr build."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import noting_unchanged
from crnr_cli.cli.cluster import refuse_features, workers
from crnr_cli.cli.command import Written, given_values, make_command, parameter_names
from crnr_cli.cli.console import EarlyNotes, say, shown_progress
from crnr_cli.cli.events import EventGap, with_events
from crnr_cli.cli.gallery_report import NOT_LISTED, Replaced, show_report
from crnr_cli.cli.options import ErrorHandlingOptions, PrintOptions, SourceOptions
from crnr_cli.cli.parsing import METHOD, Choice, HiddenNames, Number, Whole
from crnr_cli.cli.recipe_options import PreprocessingOptions, Steps, VectorOptions
from crnr_cli.cli.recipe_options import make_reading as reading_of
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass

if TYPE_CHECKING:
    from crnr_cli.gallery.fit import BuildReport

_method_option = partial(typer.Option, rich_help_panel="Method parameters")


def _factors() -> Iterable[str]:
    from crnr_cli.methods.nonnegative import FACTORS

    return FACTORS


def _indexes() -> Iterable[str]:
    from crnr_cli.solvers.neighbors import INDEXES

    return INDEXES


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The method, and what to prepare for rejecting queries and for probabilities."""

    method: Annotated[
        str,
        _method_option(parser=METHOD, help="Compare queries with examples by this method: {choices}."),
    ] = "crnr"
    calibrate: Annotated[
        bool,
        _method_option(
            "--calibrate",
            help="Store the calibration for --reject, --min-probability and --sets.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class ParameterOptions:
    """The parameters of all methods; those that are None stay at the method's defaults."""

    lam: Annotated[
        float | None,
        _method_option(
            parser=Number(),
            metavar="X",
            help="Weight of the class residuals (crnr); strength of the regularization (crc, croc, procrc, "
            "src).",
            show_default="0.01; others 0.001",
        ),
    ] = None
    mu: Annotated[
        float | None,
        _method_option(
            parser=Number(above=0),
            metavar="X",
            help="Penalty of ADMM for negative weights (crnr, nrc).",
            show_default="auto",
        ),
    ] = None
    iterations: Annotated[
        int | None,
        _method_option(
            parser=Whole(at_most=10**6),
            metavar="N",
            help="Number of ADMM iterations (crnr, nrc); most iterations (src).",
            show_default="5; src 2000",
        ),
    ] = None
    tol: Annotated[
        float | None,
        _method_option(
            parser=Number(),
            metavar="X",
            help="Stop when weights change by less than X (crnr, nrc), or the duality gap is below X (src).",
            show_default="0; src 1e-6",
        ),
    ] = None
    factor: Annotated[
        str | None,
        _method_option(
            parser=Choice(_factors),
            help="Store the factorized system in this form (crnr, nrc): {choices}.",
            show_default="auto",
        ),
    ] = None
    neighbors: Annotated[
        int | None,
        _method_option(
            parser=Whole(0, 2000),
            metavar="K",
            help="Use only the K nearest examples per query; for large galleries.",
            show_default="all",
        ),
    ] = None
    index: Annotated[
        str | None,
        _method_option(
            parser=Choice(_indexes),
            help="Find the nearest examples by this index: {choices}. ivf and hnsw miss a few, are faster "
            "from 100,000 examples on, and need the extra faiss.",
            show_default="exact",
        ),
    ] = None
    gamma: Annotated[
        float | None,
        _method_option(
            parser=Number(),
            metavar="X",
            help="Strength that draws each class to the common representation (procrc).",
            show_default="0.001",
        ),
    ] = None
    weight: Annotated[
        float | None,
        _method_option(
            "--crc-weight",
            parser=Number(),
            metavar="X",
            help="Weight of the crc residual, which is added to the nsc residual (croc).",
            show_default="0.1",
        ),
        HiddenNames("weight"),
    ] = None
    c: Annotated[
        float | None,
        _method_option(
            "--c",
            parser=Number(above=0),
            metavar="X",
            help="Inverse of the regularization strength (svm, softmax).",
            show_default="1; softmax 100",
        ),
    ] = None

    def given_values(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


_FIXED = [
    *parameter_names(VectorOptions, Steps, PreprocessingOptions, MethodOptions, ParameterOptions),
    "event_gap",
]  # by --update


@make_command(side_by_side="calibrate")  # which fits and classifies many small parts of the gallery
def build(
    context: typer.Context,
    sources: options.SourcesOrLabels = None,
    path: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Gallery file to write."),
        Written(is_gallery=True),
    ] = options.GALLERY,
    update: Annotated[
        bool,
        typer.Option("--update", help="Follow all changes in the sources; keep settings."),
    ] = False,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore",
            help="With --update: bring removed examples back, and take all classes from the sources again.",
        ),
    ] = False,
    cache: options.Cache = None,
    event_gap: EventGap = None,
    dry_run: options.DryRun = False,
    dask: options.Dask = None,
    *,
    vectors: VectorOptions,
    steps: Steps,
    network: PreprocessingOptions,
    method: MethodOptions,
    input: SourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
    parameters: ParameterOptions,
) -> None:
    """Build a gallery from labelled examples.

    The examples are one folder of images per class, or a feature file.
    """
    names = options.require_sources(context, sources, input.labels, input.boxes)
    _check_update(update, path, cache, restore=restore, dry_run=dry_run)
    early = EarlyNotes(output.quiet)
    reading = reading_of(
        input, vectors, network, steps=steps.make_steps(), on_notes=early, **error_handling.to_fields()
    )
    if event_gap is not None:
        reading = with_events(reading, event_gap)
    from crnr_cli.jobs.build import BuildOptions
    from crnr_cli.jobs.build import build as run_build
    from crnr_cli.jobs.update import update as run_update
    from crnr_cli.system.names import stat_or_none

    replaced = Replaced(path, output.quiet)
    refuse_features(dask, names)
    with (
        noting_unchanged(path),
        workers(dask, output.quiet, reading.jobs) as who,
        shown_progress(output.quiet) as progress,
    ):
        if update and stat_or_none(path):  # the first time, there is nothing to update
            model = vectors.moved_model(context, _FIXED, "the gallery")
            report: BuildReport = run_update(
                names, path, reading, progress, model, who, restore=restore, dry_run=dry_run
            )
        else:
            build_options = BuildOptions(
                reading, method.method, parameters.given_values(), method.calibrate, cache
            )
            report = run_build(names, path, build_options, replaced.look_before_work(progress), who)
    replaced.announce()
    show_report(path, report, output, early, dry_run=dry_run)
    labels = ["--labels", str(input.labels)] if input.labels else []
    replaced.say_lost(report.gallery, [*names, *labels], _given_settings(context))
    if not output.quiet and (used := os.environ.get("CRNR_GALLERY")) and Path(used) != path:
        say(f"note: CRNR_GALLERY is {used}, so other commands use that gallery unless they are given another")
    error_handling.finish(report.skipped)


def _given_settings(context: typer.Context) -> set[str]:
    """Return the names of the settings that the user gave, as a gallery stores them."""
    given = {name for name in _FIXED if given_values(context, [name])}
    if given.intersection(parameter_names(VectorOptions, Steps, PreprocessingOptions)):
        given |= {"extractor", *NOT_LISTED}
    return given


def _check_update(update: bool, path: Path, cache: Path | None, *, restore: bool, dry_run: bool) -> None:
    """Raise an error for options that do not suit --update, or need it."""
    from crnr_cli.system.names import stat_or_none

    if cache and update:
        raise UsageError("--update already reads only new files; leave out --cache or --update")
    if restore and not update:
        raise UsageError("--restore needs --update; without --update, build reads all examples again")
    if dry_run and not update:
        raise UsageError("--dry-run needs --update, which prints the changes of an existing gallery")
    if dry_run and not stat_or_none(path):
        from crnr_cli.gallery.file import missing_error

        raise missing_error(path)
