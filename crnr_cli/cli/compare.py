"""crnr compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.cluster import spreading
from crnr_cli.cli.console import (
    SKIPPED,
    boundary,
    print_json,
    print_whole,
    results_console,
    say,
    shown_progress,
    tell_left_out,
)
from crnr_cli.cli.tables import number, write_csv
from crnr_cli.system.cores import use_cores

if TYPE_CHECKING:
    from rich.table import Table

    from crnr_cli.jobs.compare import CompareReport, MethodResult

SIGNIFICANT = 0.05


def compare(
    sources: options.Sources,
    test: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="Labelled samples to test with.")
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(help="Share of every class to test with, without --test.", show_default="0.3"),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=1, help="How often to draw that share anew.", show_default="5")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Another seed, another draw.", show_default="0")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Methods to compare.", show_default="all")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="METHOD.PARAM=VALUE", help="Change a method's parameter; repeatable."),
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table to this CSV.")] = None,
    size: options.Size = None,
    color: options.Color = False,
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
    dtype: options.Dtype = options.Precision.float32,
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    test_features_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Likewise in --test.", show_default="--features-key"),
    ] = None,
    test_labels_key: Annotated[
        str | None, typer.Option(metavar="NAME", help="Likewise in --test.", show_default="--labels-key")
    ] = None,
    samples: options.SampleAxis = None,
    null: options.NulSeparated = False,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    allow_skipped: options.AllowSkipped = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Try methods on the same labelled samples: which is the right one for this data?

    With --dask, the times in the table are those on the workers.
    """
    target_size = options.parse_size(size)
    names = options.parse_methods(methods)
    drawn: dict[str, Any] = {
        name: value
        for name, value in (("holdout", holdout), ("draws", draws), ("seed", seed))
        if value is not None
    }
    if test and drawn:
        raise typer.BadParameter(f"--{next(iter(drawn))} is for a comparison without --test")
    if not test and (test_features_key, test_labels_key) != (None, None):
        raise typer.BadParameter("--test-features-key and --test-labels-key go with --test")
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
        from crnr_cli.jobs.compare import CompareOptions
        from crnr_cli.jobs.compare import compare as run
        from crnr_cli.sources.base import Keys
        from crnr_cli.system.files import check_output

        if csv:
            check_output(csv, [*sources, *(test or [])])
        with spreading(dask, quiet) as spread, shown_progress(quiet) as progress:
            report = run(
                sources,
                CompareOptions(
                    reading=BuildOptions(
                        size=target_size,
                        color=color,
                        pca=pca,
                        dtype=dtype.value,
                        max_pixels=max_pixels,
                        keys=Keys(features_key, labels_key, samples),
                        nul_separated=null,
                        jobs=jobs,
                        extractor=network,
                    ),
                    methods=names,
                    settings=_parse_settings(settings or []),
                    test=test or None,
                    test_keys=Keys(test_features_key or features_key, test_labels_key or labels_key, samples),
                    **drawn,
                ),
                progress,
                spread,
            )
        if csv:
            _write(csv, report)
        if json:
            print_json(_record(report))
        else:
            _show(report)
        if not quiet:
            tell_left_out([(left.name, str(left.error)) for left in report.left_out])
            for note in report.notes:
                say(f"note: {note}")
        if report.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)


def _parse_settings(texts: Sequence[str]) -> dict[str, dict[str, object]]:
    from crnr_cli.errors import UsageError
    from crnr_cli.methods import METHODS, parse_parameter

    settings: dict[str, dict[str, object]] = {}
    for text in texts:
        name, dot, rest = text.partition(".")
        parameter, equals, value = rest.partition("=")
        if not dot or not equals:
            raise UsageError(f"--set {text}: write METHOD.PARAM=VALUE, as in crc.lam=0.1")
        if name not in METHODS:
            raise UsageError(f"--set {text}: no method is called {name}; there are {', '.join(METHODS)}")
        settings.setdefault(name, {})[parameter] = parse_parameter(name, parameter, value)
    return settings


def _result_record(result: MethodResult) -> dict[str, Any]:
    scores = result.scores
    return {
        "method": result.method.name,
        "parameters": asdict(result.method),  # type: ignore[call-overload]
        "accuracy": scores.accuracy,
        "interval": result.interval,
        "macro_f1": scores.macro.f1,
        "build_seconds": result.build_seconds,
        "query_ms": result.query_ms,
        "p_value": result.p_value,
    }


def _record(report: CompareReport) -> dict[str, Any]:
    return {
        "n_gallery": report.n_gallery,
        "n_tested": report.n_tested,
        "n_answers": report.results[0].scores.n,
        "n_classes": report.n_classes,
        "dimension": report.dimension,
        "methods": [_result_record(result) for result in report.results],
    }


def _write(path: Path, report: CompareReport) -> None:
    header = [
        *("method", "parameters", "accuracy", "low", "high", "macro_f1", "build_seconds", "query_ms"),
        "p_value",
    ]
    rows = []
    for record in map(_result_record, report.results):
        low, high = record.pop("interval")
        parameters = " ".join(f"{name}={value}" for name, value in record["parameters"].items())
        record |= {"parameters": parameters, "low": low, "high": high}
        rows.append([record[column] for column in header])
    write_csv(path, header, rows)


def _show(report: CompareReport) -> None:

    print_whole(results_console(), _table(report))


def _table(report: CompareReport) -> Table:
    from rich.table import Table

    answers = report.results[0].scores.n
    repeated = f", {answers} answers" if answers > report.n_tested else ""
    table = Table(
        title=f"{report.n_classes} classes, {report.n_gallery} samples of dimension {report.dimension} "
        f"in the gallery, {report.n_tested} tested{repeated}",
        title_justify="left",
        caption=f"p: of the difference to the best, McNemar's paired test; * is below {SIGNIFICANT}",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for column in ("accuracy", "95 %", "macro F1", "build s", "ms a query", "p"):
        table.add_column(column, justify="right")
    for result in report.results:
        scores = result.scores
        table.add_row(
            result.method.name,
            number(scores.accuracy),
            "{:.3f}-{:.3f}".format(*result.interval),
            number(scores.macro.f1),
            f"{result.build_seconds:.2f}",
            f"{result.query_ms:.3f}",
            _significance(result.p_value),
        )
    return table


def _significance(p_value: float | None) -> str:
    if p_value is None:
        return "best"
    return f"{p_value:.2g}{' *' if p_value < SIGNIFICANT else '  '}"
