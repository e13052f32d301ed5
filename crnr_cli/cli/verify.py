"""crnr verify."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.console import boundary, print_json, say, tell_some


def verify(
    gallery: Annotated[
        Path, typer.Argument(envvar="CRNR_GALLERY", help="Gallery written by `crnr build`.")
    ] = options.GALLERY,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="SOURCE", help="What it was built from, to compare with; may be repeated."),
    ] = None,
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    samples: options.SampleAxis = None,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Check that a gallery is whole and, with --against, that its sources still are what they were."""
    with boundary():
        from crnr_cli.errors import DataError
        from crnr_cli.jobs.build import BuildOptions
        from crnr_cli.jobs.update import verify as run
        from crnr_cli.sources.base import Keys

        report = run(gallery, against or [], BuildOptions(keys=Keys(features_key, labels_key, samples)))
        if json:
            print_json({"gallery": str(gallery), **asdict(report), "holds": report.holds})
        if not quiet:
            tell_some("changed", report.changed)
            tell_some("missing", report.missing)
            tell_some("not in the gallery", report.unknown)
        if not report.holds:
            raise DataError(
                f"{gallery}: {len(report.changed)} of {report.n_samples} samples have changed and "
                f"{len(report.missing)} are missing in {', '.join(against or [])}; "
                "if these are all its sources, `crnr build --update` with them brings it up to date, "
                "and removes what is missing"
            )
        if not quiet:
            compared = ", and the same as in its sources" if against else ""
            if report.unknown:
                compared += f", which have {len(report.unknown)} more"
            say(f"{gallery}: {report.n_samples} samples, whole by its checksum{compared}")
