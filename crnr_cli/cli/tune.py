"""crnr tune."""

from __future__ import annotations

import shlex
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
from crnr_cli.system.cores import use_cores

if TYPE_CHECKING:
    from crnr_cli.jobs.tune import Trial, TuneReport

SHOWN = 10  # settings in the table


def _numbers(option: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as e:
        raise typer.BadParameter(
            f"{option} {text!r}: write numbers with commas between, such as 1,0.5"
        ) from e


# How samples are read, by the names of the parameters below; build has the same.
_READING = (
    "size", "color", "extractor", "extractor_preset", "crop", "filter", "mean", "std", "channels", "layout",
    "extractor_output", "pool", "features_key", "labels_key", "samples", "null", "max_pixels",
)  # fmt: skip


def tune(
    context: typer.Context,
    sources: options.Sources,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Build a gallery with the chosen settings.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Other methods to try beside crnr, at their default settings.",
            show_default="none",
        ),
    ] = None,
    power: Annotated[
        str, typer.Option(metavar="P,...", help="Powers to try, as of build; the first is preferred.")
    ] = "1,0.5",
    pca: Annotated[
        str,
        typer.Option(
            metavar="K,...", help="Principal components to try, 0 for no PCA; the first is preferred."
        ),
    ] = "0",
    folds: Annotated[int, typer.Option(min=2, help="Parts that are held back in turn.")] = 5,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Try no new setting after this time.", show_default="none"
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw accuracy over lam: .png, .svg or .pdf.")
    ] = None,
    size: options.Size = None,
    color: options.Color = False,
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
    features_key: options.FeaturesKey = None,
    labels_key: options.LabelsKey = None,
    samples: options.SampleAxis = None,
    null: options.NulSeparated = False,
    max_pixels: options.MaxPixels = options.MAX_PIXELS,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    allow_skipped: options.AllowSkipped = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Find settings by cross-validation on the gallery's own samples; the paper's stay unless beaten."""
    target_size = options.parse_size(size)
    names = options.parse_methods(methods)
    powers = _numbers("--power", power)
    components = _numbers("--pca", pca)
    if any(count < 0 or count != int(count) for count in components):
        raise typer.BadParameter(f"--pca {pca!r}: write whole numbers with commas between, such as 0,100,300")
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
        from crnr_cli.jobs.tune import TuneOptions
        from crnr_cli.jobs.tune import tune as run
        from crnr_cli.sources.base import Keys
        from crnr_cli.system.optional import require

        if plot:
            require("report", "--plot", "matplotlib")
            from crnr_cli.report.plots import check_picture

            check_picture(plot, sources)
        with spreading(dask, quiet) as spread, shown_progress(quiet) as progress:
            report = run(
                sources,
                TuneOptions(
                    build=BuildOptions(
                        size=target_size,
                        color=color,
                        max_pixels=max_pixels,
                        keys=Keys(features_key, labels_key, samples),
                        nul_separated=null,
                        jobs=jobs,
                        extractor=network,
                    ),
                    powers=powers,
                    pcas=[int(count) or None for count in components],
                    methods=names or [],
                    folds=folds,
                    budget=budget,
                ),
                output,
                progress,
                spread,
            )
        if plot:
            _draw(report, plot)
        if json:
            print_json(_record(report))
        else:
            _show(report)
        if not quiet:
            _tell(report, output, _same_reading(context, sources))
        if report.built and report.built.skipped and not allow_skipped:
            raise typer.Exit(SKIPPED)


def _record(report: TuneReport) -> dict[str, Any]:
    return {
        "chosen": _trial(report, report.chosen),
        "paper": _trial(report, report.paper),
        "trials": [_trial(report, trial) for trial in report.trials],
        "n": len(report.paper.right),
        "folds": report.folds,
        "untried": report.untried,
        "seconds": report.seconds,
    }


def _trial(report: TuneReport, trial: Trial) -> dict[str, Any]:
    lead, error = trial.lead(report.paper)
    return {
        **trial.setting.parameters(),
        "accuracy": trial.accuracy,
        "interval": trial.interval,
        "lead": lead,
        "lead_error": error,
    }


def _show(report: TuneReport) -> None:
    from rich import box
    from rich.table import Table

    shown = report.trials[:SHOWN]
    best_of = {trial.setting.method.name: trial for trial in reversed(report.trials)}
    for trial in (*best_of.values(), report.chosen, report.paper):
        if all(trial is not other for other in shown):
            shown.append(trial)
    rows = [trial.setting.parameters() for trial in shown]
    names = list({name: None for row in rows for name in row})
    # What is the same in all rows is not worth a column, but for the settings that people set.
    columns = [
        name
        for name in names
        if name in ("lam", "mu", "iterations") or len({row.get(name) for row in rows}) > 1
    ]
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("", no_wrap=True)
    for column in (*columns, "%", "95 % interval", "over paper's"):
        name = "steps" if column == "iterations" else column
        table.add_column(name, justify="left" if column == "method" else "right", no_wrap=True)
    for trial, settings in zip(shown, rows, strict=True):
        chosen, paper = trial is report.chosen, trial is report.paper
        role = "kept" if chosen and paper else "chosen" if chosen else "paper's" if paper else ""
        lead, error = trial.lead(report.paper)
        low, high = trial.interval
        table.add_row(
            role,
            *(_shown(settings.get(column)) for column in columns),
            f"{100 * trial.accuracy:.1f}",
            f"{100 * low:.1f} to {100 * high:.1f}",
            "" if trial is report.paper else f"{100 * lead:+.1f} ± {100 * error:.1f}",
            style="bold" if trial is report.chosen else None,
        )
    console = results_console()
    console.print(
        f"{len(report.paper.right)} samples, each labelled by the others in {report.folds} folds; "
        f"best of {len(report.trials)} settings"
    )
    print_whole(console, table)


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _same_reading(context: typer.Context, sources: list[str]) -> str:
    """The sources, and how they were to be read, as on the command line."""
    words = list(sources)
    for option, value in options.given(context, _READING).items():
        words += [option] if value is True else [option, str(value)]
    return shlex.join(words)


def _tell(report: TuneReport, output: Path | None, reading: str) -> None:
    tell_left_out([(left.name, str(left.error)) for left in report.left_out])
    for note in report.notes:
        say(f"note: {note}")
    if report.untried:
        say(f"note: the budget ended with {report.untried} settings untried", style="yellow")
    if report.chosen is report.paper:
        say("no setting beats the paper's by more than one standard error: keep it")
    else:
        say("chosen: the fewest changes from the paper's within one standard error of the best")
    settings = report.chosen.setting.parameters()
    flags = " ".join(f"--{name} {_shown(value)}" for name, value in settings.items() if value is not None)
    if output and report.built:
        say(f"{output}: built with {flags}; {report.seconds:.1f} s")
    else:
        say(f"to build with it: crnr build {reading} {flags}")


def _draw(report: TuneReport, path: Path) -> None:
    """Accuracy over lam for every mu, all else as chosen."""
    from crnr_cli.jobs.tune import LAMS, MUS
    from crnr_cli.report.plots import save, sensitivity

    # Where another method won, the picture is of crnr at the paper's setting.
    chosen = report.chosen if report.chosen.setting.method.name == "crnr" else report.paper
    fixed = {name: chosen.setting.parameters()[name] for name in ("method", "iterations", "power", "pca")}
    accuracy: dict[tuple[float, float], float] = {}
    for trial in report.trials:
        settings = trial.setting.parameters()
        if all(settings.get(name) == value for name, value in fixed.items()):
            accuracy[settings["lam"], settings["mu"]] = trial.accuracy
    lines = {f"mu {mu:g}": [accuracy.get((lam, mu)) for lam in LAMS] for mu in MUS}
    paper = {name: report.paper.setting.parameters()[name] for name in fixed}
    elsewhere = "" if paper == fixed else f", with {_fixed(paper)}"  # on none of the lines
    marked = {
        name: (trial.setting.parameters()["lam"], trial.accuracy)
        for name, trial in ((f"the paper's setting{elsewhere}", report.paper), ("chosen", chosen))
    }
    title = f"{_fixed(fixed)}; {len(report.paper.right)} samples held back in turn"
    save(sensitivity(LAMS, lines, marked, title), path)


def _fixed(settings: dict[str, Any]) -> str:
    pca = "" if settings["pca"] is None else f", PCA {settings['pca']}"
    return f"{settings['iterations']} iterations, power {settings['power']:g}{pca}"
