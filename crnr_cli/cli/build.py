"""crnr build."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.cluster import refuse_features, workers
from crnr_cli.cli.command import Written, command, names_of
from crnr_cli.cli.console import EarlyNotes, say, shown_progress
from crnr_cli.cli.gallery_report import Replaced, show_report
from crnr_cli.cli.method_options import MethodOptions, ParameterOptions
from crnr_cli.cli.network_options import Network
from crnr_cli.cli.options import Input, Output, Sources, Strictness
from crnr_cli.cli.vector_options import Steps, Vectors
from crnr_cli.cli.vector_options import reading as reading_of
from crnr_cli.errors import UsageError

if TYPE_CHECKING:
    from crnr_cli.gallery.fit import BuildReport

_FIXED = names_of(Vectors, Steps, Network, MethodOptions, ParameterOptions)  # by --update


@command(side_by_side="calibrate")  # which fits and classifies many small parts of the gallery
def build(
    context: typer.Context,
    sources: Sources,
    path: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Gallery file to write."),
        Written(is_gallery=True),
    ] = options.GALLERY,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Bring the gallery up to date with SOURCE, keeping its settings: read only files that are "
            "new or have changed, and remove samples that SOURCE no longer has.",
        ),
    ] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FILE",
            help="Keep the values of the pictures, before the steps of the recipe, in this file (.h5), and "
            "read only pictures that it does not have yet.",
            show_default="none",
        ),
        Written(is_gallery=True),
    ] = None,
    dask: options.Dask = None,
    *,
    vectors: Vectors,
    steps: Steps,
    network: Network,
    method: MethodOptions,
    input: Input,
    strictness: Strictness,
    output: Output,
    parameters: ParameterOptions,
) -> None:
    """Make a gallery file from labelled examples: one folder of pictures per class, or a file of features."""
    if cache and update:
        raise UsageError("--update already reads only what is new; leave out --cache or --update")
    early = EarlyNotes(output.quiet)
    reading = reading_of(input, vectors, network, steps=steps.made(), on_notes=early, **strictness.values())
    from crnr_cli.jobs.build import BuildOptions
    from crnr_cli.jobs.build import build as run_build
    from crnr_cli.jobs.update import update as run_update
    from crnr_cli.system.names import existing

    replaced = Replaced(path, output.quiet)
    refuse_features(dask, sources)
    with workers(dask, output.quiet, reading.jobs) as who, shown_progress(output.quiet) as progress:
        if update and existing(path):  # the first time, there is nothing to update
            model = vectors.moved_model(context, _FIXED, "the gallery")
            report: BuildReport = run_update(sources, path, reading, progress, model, who)
        else:
            build_options = BuildOptions(reading, method.method, parameters.given(), method.calibrate, cache)
            report = run_build(sources, path, build_options, replaced.announced(progress), who)
    show_report(path, report, output, early)
    replaced.say_lost(report.gallery)
    if not output.quiet and (used := os.environ.get("CRNR_GALLERY")) and Path(used) != path:
        say(f"note: CRNR_GALLERY is {used}, so that other commands use that gallery if they are given none")
    strictness.finish(report.skipped)
