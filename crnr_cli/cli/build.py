"""crnr build."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.console import SKIPPED, boundary, print_json, say, shown_progress, tell_left_out


def _parse_size(text: str) -> tuple[int, int]:
    parts = text.lower().split("x")
    if len(parts) not in (1, 2) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"{text!r} is not a size; write 32 or 32x24")
    return int(parts[0]), int(parts[-1])


def build(
    sources: options.Sources,
    output: Annotated[
        Path, typer.Option("--output", "-o", envvar="CRNR_GALLERY", help="Gallery file to write.")
    ] = options.GALLERY,
    method: Annotated[str, typer.Option(help="crnr or nrc.")] = "crnr",
    lam: Annotated[
        float | None, typer.Option(help="Weight of the class residuals.", show_default="0.01")
    ] = None,
    mu: Annotated[float | None, typer.Option(help="ADMM penalty.", show_default="0.1")] = None,
    iterations: Annotated[int | None, typer.Option(help="ADMM steps.", show_default="5")] = None,
    tol: Annotated[
        float | None,
        typer.Option(help="Stop a query's ADMM steps early below this.", show_default="0: never"),
    ] = None,
    factor: Annotated[
        str | None, typer.Option(help="dense or low-rank.", show_default="the cheaper one")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="WxH",
            help="Bring pictures to this size.",
            show_default="their own if all share one of at most 64x64, else 32x32",
        ),
    ] = None,
    color: Annotated[bool, typer.Option("--color", help="Use colour, not grey values.")] = False,
    pca: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Project on K principal components.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, or float64 for agreement to 1e-10.")] = "float32",
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    null: options.NulSeparated = False,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    jobs: options.Jobs = None,
    strict: options.Strict = False,
    max_failure_rate: options.MaxFailureRate = 1.0,
    allow_skipped: options.AllowSkipped = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Make a gallery file from labelled examples: a folder of pictures a class, or a file of features."""
    target_size = _parse_size(size) if size else None
    if dtype not in ("float32", "float64"):
        raise typer.BadParameter(f"--dtype must be float32 or float64, not {dtype}")
    with boundary():
        from crnr_cli.features import Keys
        from crnr_cli.gallery import describe
        from crnr_cli.jobs.build import BuildOptions
        from crnr_cli.jobs.build import build as run

        given = {"lam": lam, "mu": mu, "iterations": iterations, "tol": tol, "factor": factor}
        with shown_progress(quiet) as progress:
            report = run(
                sources,
                output,
                BuildOptions(
                    method=method,
                    parameters={name: value for name, value in given.items() if value is not None},
                    size=target_size,
                    color=color,
                    pca=pca,
                    dtype=dtype,
                    max_pixels=max_pixels,
                    keys=Keys(features_key, labels_key),
                    nul_separated=null,
                    jobs=jobs,
                    max_failure_rate=0.0 if strict else max_failure_rate,
                ),
                progress,
            )
        about = describe(report.gallery)
        if json:
            print_json(
                {"gallery": str(output), **about, "seconds": report.seconds, "bytes": report.file_bytes}
            )
        if not quiet:
            tell_left_out([(left.name, str(left.error)) for left in report.left_out])
            for note in report.notes:
                say(f"note: {note}")
            factor_form = f", {about['factor']}" if about["factor"] else ""
            say(
                f"{output}: {about['n_classes']} classes, {about['n_samples']} samples, "
                f"dimension {about['dimension']}, {about['method']}{factor_form}; "
                f"{report.seconds:.1f} s, {report.file_bytes / 1e6:.1f} MB"
            )
        if report.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)
