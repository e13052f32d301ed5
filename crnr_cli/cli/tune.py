"""crnr tune."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.choices import ExtractorOptions
from crnr_cli.cli import options
from crnr_cli.cli.cluster import workers
from crnr_cli.cli.command import Written, given_values, make_command, parameter_names
from crnr_cli.cli.console import (
    EarlyNotes,
    natural_width,
    print_full_width,
    print_json,
    results_console,
    say,
    say_left_out,
    say_notes,
    shown_progress,
)
from crnr_cli.cli.events import EventGap, with_events
from crnr_cli.cli.gallery_report import Replaced
from crnr_cli.cli.options import ErrorHandlingOptions, PrintOptions, SourceOptions
from crnr_cli.cli.parsing import METHOD_LIST, HiddenNames, Number, Whole
from crnr_cli.cli.recipe_options import PreprocessingOptions, TriedSteps, VectorOptions
from crnr_cli.cli.recipe_options import make_reading as reading_of
from crnr_cli.errors import UsageError
from crnr_cli.sources.formats import is_table
from crnr_cli.system.names import join_command
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from rich.table import Table

    from crnr_cli.jobs.tune import Trial, TuneReport

_SHOWN = 10  # settings in the table
_LINES = 6  # in the plot
_OPTIONS = {"weight": "crc-weight"}  # of build, for parameters that have another name


# How samples are read; `build` has the same options.
_READING = [
    *(name for name in parameter_names(VectorOptions, PreprocessingOptions, SourceOptions) if name != "jobs"),
    "event_gap",
]

_Folds = Annotated[
    int,
    typer.Option(
        parser=Whole(2),
        metavar="N",
        help="Number of folds; above 20,000 examples, 4,000 are held out once.",
    ),
]
_Neighbors = Annotated[
    str | None,
    typer.Option(
        "--try-neighbors",
        metavar="K,...",
        help="Numbers of nearest examples to try (0: all), preferred one first.",
        show_default="auto",
    ),
    HiddenNames("neighbors"),
]
_TryMirror = Annotated[
    bool,
    typer.Option(
        "--try-mirror",
        help="Try a network with and without --mirror.",
        rich_help_panel="Network",
    ),
]
_Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Plot accuracy over lam: .png, .svg or .pdf."),
    Written(),
]


@make_command(side_by_side=True)
def tune(
    context: typer.Context,
    sources: options.SourcesOrLabels = None,
    path: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Build this gallery with the best settings."),
        Written(is_gallery=True),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            parser=METHOD_LIST,
            help="Try these methods, too, with their defaults: {choices}.",
        ),
    ] = None,
    folds: _Folds = 5,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=Number(),
            metavar="SECONDS",
            help="Stop trying settings after SECONDS.",
        ),
    ] = None,
    neighbors: _Neighbors = None,
    try_mirror: _TryMirror = False,
    plot: _Plot = None,
    event_gap: EventGap = None,
    dask: options.Dask = None,
    *,
    vectors: VectorOptions,
    steps: TriedSteps,
    network: PreprocessingOptions,
    input: SourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Find better settings by cross-validation.

    Keeps the defaults if no other settings are clearly better.
    """
    sources = options.require_sources(context, sources, input.labels, input.boxes)
    names = options.split_names(methods)
    early = EarlyNotes(output.quiet)
    reading = reading_of(
        input, vectors, network, command="tune", on_notes=early, **error_handling.to_fields()
    )
    reading = with_events(reading, event_gap)
    if try_mirror:
        reading = replace(reading, extractor=_try_mirror(reading.extractor))
    from crnr_cli.jobs.tune import TuneOptions
    from crnr_cli.jobs.tune import tune as run
    from crnr_cli.system.extras import require_packages

    tune_options = TuneOptions(
        reading=reading,
        steps=steps.parse(),
        methods=names or [],
        neighbors=_counts(neighbors),
        folds=folds,
        budget=budget,
    )
    if plot:
        require_packages("report", "--plot", "matplotlib")
        from crnr_cli.report.plots import check_plot

        check_plot(plot)
    replaced = Replaced(path, output.quiet)
    with workers(dask, output.quiet, reading.jobs) as who, shown_progress(output.quiet) as progress:
        report = run(sources, tune_options, path, replaced.look_before_work(progress), who)
    if plot:
        _draw(report, plot)
    if report.built:
        replaced.announce()
    _print(report, path, output, early, _same_reading(context, sources))
    if report.built:
        replaced.say_lost(report.built.gallery, sources)
    error_handling.finish(report.skipped)


def _try_mirror(chosen: ExtractorOptions) -> ExtractorOptions:
    """Return the extractor, to be tried with mirror images too; UsageError unless it is a network."""
    if chosen.name != "network":
        raise UsageError("--try-mirror only applies to networks; add --extractor NAME or MODEL.onnx")
    if chosen.settings.get("mirror"):
        raise UsageError("--mirror and --try-mirror contradict each other; give one of them")
    return replace(chosen, try_mirror=True)


def _counts(text: str | None) -> list[int]:
    """Return the numbers of neighbours to try."""
    try:
        counts = [] if text is None else [int(part) for part in text.split(",")]
    except ValueError as e:
        raise UsageError(f"--try-neighbors {text!r}: give numbers separated by commas, such as 0,50") from e
    return list(dict.fromkeys(counts))


def _print(
    report: TuneReport, path: Path | None, output: PrintOptions, early: EarlyNotes, reading: list[str]
) -> None:
    if output.json:
        print_json(_record(report))
    else:
        _show(report)
    if not output.quiet:
        say_left_out(report.left_out)
        say_notes(early.rest(report.notes))
        _explain_choice(report, path, reading)


def _record(report: TuneReport) -> dict[str, Any]:
    return {
        "chosen": _trial(report, report.chosen),
        "paper": _trial(report, report.default),
        "trials": [_trial(report, trial) for trial in report.trials],
        "n": len(report.default.right),
        "n_samples": report.n_samples,
        "folds": report.folds,
        "untried": report.untried,
        "seconds": report.seconds,
    }


def _trial(report: TuneReport, trial: Trial) -> dict[str, Any]:
    lead, error = trial.lead(report.default)
    return {
        **trial.setting.parameters(),
        "accuracy": trial.accuracy,
        "interval": trial.interval,
        "lead": lead,
        "lead_error": error,
    }


def _show(report: TuneReport) -> None:
    console = results_console()
    n_asked = len(report.default.right)
    if report.folds == 1:
        how = (
            f"{n_asked} of {format_count(report.n_samples, 'example')}, chosen at random, labelled "
            "by the others"
        )
    else:
        how = (
            f"{format_count(n_asked, 'example')}, each labelled by the others, in "
            f"{format_count(report.folds, 'fold')}"
        )
    console.print(f"{how}; best of {format_count(len(report.trials), 'setting')}")
    table = _table(report, with_interval=True)
    if console.is_terminal and natural_width(console, table) > console.width:
        table = _table(report, with_interval=False)  # it is in the JSON
    print_full_width(console, table)


def _table(report: TuneReport, *, with_interval: bool) -> Table:
    from rich import box
    from rich.table import Table

    shown = report.trials[:_SHOWN]
    best_of = {trial.setting.method.name: trial for trial in reversed(report.trials)}
    for trial in (*best_of.values(), report.chosen, report.default):
        if all(trial is not other for other in shown):
            shown.append(trial)
    rows = [trial.setting.parameters() for trial in shown]
    names = list({name: None for row in rows for name in row})
    # Hide columns of which only one value was tried, except lam, mu and iterations.
    tried = [trial.setting.parameters() for trial in report.trials]
    columns = [
        name
        for name in names
        if name in ("lam", "mu", "iterations") or len({settings.get(name) for settings in tried}) > 1
    ]
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("", no_wrap=True)
    for column in (*columns, "%", *(["95% interval"] if with_interval else []), "vs. default"):
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=True)
    for trial, settings in zip(shown, rows, strict=True):
        chosen, paper = trial is report.chosen, trial is report.default
        role = "kept" if chosen and paper else "chosen" if chosen else "default" if paper else ""
        lead, error = trial.lead(report.default)
        low, high = trial.interval
        table.add_row(
            role,
            *(_format_value(settings.get(column)) for column in columns),
            f"{100 * trial.accuracy:.1f}",
            *([f"{100 * low:.1f} to {100 * high:.1f}"] if with_interval else []),
            "" if trial is report.default else f"{100 * lead:+.1f} ± {100 * error:.1f}",
            style="bold" if trial is report.chosen else None,
        )
    return table


def _format_value(value: object) -> str:
    if value is None or value is True:
        return "yes" if value else "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _same_reading(context: typer.Context, sources: list[str]) -> list[str]:
    """Return the sources and the options for reading them, as they were given on the command line."""
    arguments = list(sources)
    for option, value in given_values(context, _READING).items():
        as_written = ",".join(map(repr, value)) if isinstance(value, tuple) else str(value)
        arguments += [option] if value is True else [option, as_written]
    return arguments


def _explain_choice(report: TuneReport, path: Path | None, reading: list[str]) -> None:
    if report.untried:
        say(
            f"note: the time budget ended with {format_count(report.untried, 'setting')} untried",
            style="yellow",
        )
    if report.chosen is report.default:
        say("no setting beats the default by more than one standard error; keeping the default")
    else:
        say(
            "chosen: the setting with the fewest changes from the default, "
            "within one standard error of the best"
        )
    settings = report.chosen.setting.parameters()
    extracted = (
        parameter_names(VectorOptions, PreprocessingOptions) if is_table(reading[0]) else []
    )  # before, so that it cannot be chosen now
    flags = " ".join(
        f"--{_OPTIONS.get(name, name)}"
        if value is True
        else f"--{_OPTIONS.get(name, name)} {_format_value(value)}"
        for name, value in settings.items()
        if value is not None
        and value is not False
        and (name, value) not in (("neighbors", 0), ("whiten", 0))  # the defaults
        and f"--{name}" not in reading
        and name not in extracted
    )
    if path and report.built:
        say(f"{path}: built with {flags}; {report.seconds:.1f} s")
    else:
        say(f"to build a gallery with it: crnr build {join_command(reading)} {flags}")


def _draw(report: TuneReport, path: Path) -> None:
    """Draw accuracy over lam, at the best mu, for the best choices of all other settings."""
    from crnr_cli.jobs.tune import LAMS
    from crnr_cli.report.plots import draw_sensitivity, save

    # If another method won, the plot shows crnr at the default setting.
    chosen = report.chosen if report.chosen.setting.method.name == "crnr" else report.default
    # Trials are sorted, so the first of each kind is the best.
    best: dict[str, dict[float, float]] = {}
    of_steps: dict[str, str] = {}  # the best line of every recipe
    for trial in (trial for trial in report.trials if trial.setting.method.name == "crnr"):
        name = _format_fixed_settings(trial)
        of_steps.setdefault(trial.setting.describe(), name)
        best.setdefault(name, {}).setdefault(trial.setting.parameters()["lam"], trial.accuracy)
    lams = sorted({*LAMS, *(lam for line in best.values() for lam in line)})
    shown = dict.fromkeys([*map(_format_fixed_settings, (chosen, report.default)), *of_steps.values(), *best])
    lines = {name: [best[name].get(lam) for lam in lams] for name in list(shown)[:_LINES]}
    # These have a mu of their own, and may be below the line of the best one.
    marked = {}
    for name, trial in (("default", report.default), ("chosen", chosen)):
        settings = trial.setting.parameters()
        marked[f"{name}, at mu {settings['mu']:g}"] = (settings["lam"], trial.accuracy)
    title = f"best mu for each lam; {format_count(len(report.default.right), 'example')} held out in turn"
    save(draw_sensitivity(lams, lines, marked, title), path)


def _format_fixed_settings(trial: Trial) -> str:
    steps = trial.setting.describe()
    settings = trial.setting.parameters()
    neighbors = [format_count(settings["neighbors"], "neighbor")] if settings["neighbors"] else []
    return ", ".join(
        [format_count(settings["iterations"], "iteration"), *neighbors, *([steps] if steps else [])]
    )
