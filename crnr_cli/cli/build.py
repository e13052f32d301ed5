"""crnr build."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.console import SKIPPED, boundary, print_json, say, shown_progress, tell_left_out, tell_some
from crnr_cli.errors import UsageError
from crnr_cli.system.cores import use_cores

if TYPE_CHECKING:
    from crnr_cli.jobs.build import BuildReport


def build(
    context: typer.Context,
    sources: options.Sources,
    output: Annotated[
        Path, typer.Option("--output", "-o", envvar="CRNR_GALLERY", help="Gallery file to write.")
    ] = options.GALLERY,
    method: Annotated[
        str, typer.Option(help="crnr, nrc, crc, nsc, src, croc, procrc, nn, svm or softmax.")
    ] = "crnr",
    lam: Annotated[
        float | None,
        typer.Option(
            help="Weight of the class residuals (crnr), the ridge (crc, croc, procrc) or the l1 norm (src).",
            show_default="0.01 for crnr, else 0.001",
        ),
    ] = None,
    mu: Annotated[float | None, typer.Option(help="ADMM penalty (crnr, nrc).", show_default="0.1")] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="ADMM steps (crnr, nrc), at most (src).", show_default="5; 2000 for src"),
    ] = None,
    tol: Annotated[
        float | None,
        typer.Option(
            help="Stop a query's steps early below this (crnr, nrc); its duality gap (src).",
            show_default="0: never; 1e-6 for src",
        ),
    ] = None,
    factor: Annotated[
        str | None, typer.Option(help="dense or low-rank (crnr, nrc).", show_default="the cheaper one")
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Pull of each class's part to the whole (procrc).", show_default="0.001"),
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Share of the collaborative residual (croc).", show_default="0.1")
    ] = None,
    c: Annotated[
        float | None,
        typer.Option("--c", help="Inverse regularization (svm, softmax).", show_default="1; 100 for softmax"),
    ] = None,
    size: options.Size = None,
    color: options.Color = False,
    power: Annotated[
        float, typer.Option(metavar="P", help="Raise the absolute value of every feature to P, sign kept.")
    ] = 1.0,
    pca: options.Pca = None,
    extractor: options.Extractor = None,
    extractor_preset: options.Preset = None,
    crop: options.Crop = None,
    filter: options.Filter = None,
    mean: options.Mean = None,
    std: options.Std = None,
    channels: options.Channels = None,
    layout: options.Layout = None,
    extractor_output: options.ModelOutput = None,
    pool: options.Pool = "none",
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Store when to reject; else each `classify --reject` finds it."),
    ] = False,
    dtype: options.Dtype = options.Precision.float32,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Make the gallery that of SOURCE as it is now, with its own settings: read only files that "
            "are new or have changed, and remove samples that SOURCE does not have.",
        ),
    ] = False,
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
    """Make a gallery file from labelled examples: a folder of pictures a class, or a file of features."""
    target_size = options.parse_size(size)
    with boundary():
        use_cores(jobs)
        network = options.extractor_options(
            extractor,
            preset=extractor_preset,
            crop=crop,
            filter=filter,
            mean=mean,
            std=std,
            channels=channels,
            layout=layout,
            output=extractor_output,
            pool=pool,
        )
        from crnr_cli.jobs.build import BuildOptions
        from crnr_cli.jobs.build import build as run
        from crnr_cli.jobs.update import update as run_update
        from crnr_cli.sources.base import Keys

        update = update and output.exists()  # the first time there is nothing to bring up to date
        if update:
            _refuse_settings(context)
        given = {
            "lam": lam,
            "mu": mu,
            "iterations": iterations,
            "tol": tol,
            "factor": factor,
            "gamma": gamma,
            "weight": weight,
            "c": c,
        }
        with shown_progress(quiet) as progress:
            build_options = BuildOptions(
                method=method,
                parameters={name: value for name, value in given.items() if value is not None},
                size=target_size,
                color=color,
                power=power,
                pca=pca,
                dtype=dtype.value,
                max_pixels=max_pixels,
                keys=Keys(features_key, labels_key, samples),
                nul_separated=null,
                jobs=jobs,
                extractor=network,
                calibrate=calibrate,
                max_failure_rate=0.0 if strict else max_failure_rate,
            )
            report = (run_update if update else run)(sources, output, build_options, progress)
        show_report(output, report, quiet=quiet, json=json)
        if report.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)


def show_report(output: Path, report: BuildReport, *, quiet: bool, json: bool) -> None:
    """What was written, in words or as JSON; of a gallery that was there before, also what changed."""
    from crnr_cli.gallery.file import describe
    from crnr_cli.jobs.update import UpdateReport

    about = describe(report.gallery)
    changes = asdict(report.changes) if isinstance(report, UpdateReport) else {}
    if json:
        record = {"gallery": str(output), **about, "seconds": report.seconds, "bytes": report.file_bytes}
        print_json(record | ({"changes": changes} if changes else {}))
    if quiet:
        return
    tell_left_out([(left.name, str(left.error)) for left in report.left_out])
    for note in report.notes:
        say(f"note: {note}")
    for kind in ("added", "changed", "removed"):
        tell_some(kind, changes.get(kind, []))
    if changes:
        counts = [f"{len(changes[kind])} {kind}" for kind in ("added", "changed", "removed")]
        say(f"{', '.join(counts)}, {changes['unchanged']} unchanged")
    factor_form = f", {about['factor']}" if about["factor"] else ""
    classes = "1 class" if about["n_classes"] == 1 else f"{about['n_classes']} classes"
    say(
        f"{output}: {classes}, {about['n_samples']} samples, "
        f"dimension {about['dimension']}, {about['method']}{factor_form}; "
        f"{report.seconds:.1f} s, {report.file_bytes / 1e6:.1f} MB"
    )


# What a gallery has settled for good, by the names of the parameters above; its network may have moved.
_SETTINGS = (
    "method", "lam", "mu", "iterations", "tol", "factor", "gamma", "weight", "c",
    "size", "color", "power", "pca", "extractor_preset", "crop", "filter", "mean", "std",
    "channels", "layout", "extractor_output", "pool", "calibrate", "dtype",
)  # fmt: skip


def _refuse_settings(context: typer.Context) -> None:
    if given := options.given(context, _SETTINGS):
        raise UsageError(f"--update keeps the gallery's settings; leave out {', '.join(given)} or --update")
