"""crnr add."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.build import show_report
from crnr_cli.cli.console import SKIPPED, boundary, shown_progress


def add(
    gallery: Annotated[Path, typer.Argument(help="Gallery written by `crnr build`.")],
    sources: options.Sources,
    extractor: options.MovedExtractor = None,
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    samples: options.SampleAxis = None,
    null: options.NulSeparated = False,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    jobs: options.Jobs = None,
    strict: options.Strict = False,
    max_failure_rate: options.MaxFailureRate = 1.0,
    allow_skipped: options.AllowSkipped = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Add classes or samples to a gallery. What it was built from is not needed."""
    with boundary():
        from crnr_cli.jobs.build import BuildOptions
        from crnr_cli.jobs.update import add as run
        from crnr_cli.recipe.network_settings import ExtractorOptions
        from crnr_cli.sources.base import Keys

        with shown_progress(quiet) as progress:
            report = run(
                gallery,
                sources,
                BuildOptions(
                    max_pixels=max_pixels,
                    keys=Keys(features_key, labels_key, samples),
                    nul_separated=null,
                    jobs=jobs,
                    extractor=ExtractorOptions(extractor) if extractor else None,
                    max_failure_rate=0.0 if strict else max_failure_rate,
                ),
                progress,
            )
        show_report(gallery, report, quiet=quiet, json=json)
        if report.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)
