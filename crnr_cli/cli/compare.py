"""crnr compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import completion, options
from crnr_cli.cli.cluster import workers
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import (
    EarlyNotes,
    format_number,
    print_json,
    print_table,
    results_console,
    say_left_out,
    say_notes,
    shown_progress,
    write_csv,
)
from crnr_cli.cli.events import EventGap, with_events
from crnr_cli.cli.options import ErrorHandlingOptions, PrintOptions, SourceOptions, Sources
from crnr_cli.cli.parsing import METHOD_LIST, Number, Whole
from crnr_cli.cli.recipe_options import PreprocessingOptions, Steps, VectorOptions
from crnr_cli.cli.recipe_options import make_reading as reading_of
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.wording import format_count, not_one_of

if TYPE_CHECKING:
    from rich.table import Table

    from crnr_cli.jobs.compare import CompareReport, MethodResult
    from crnr_cli.sources.formats import Keys

_SIGNIFICANT = 0.05
_ROOMY = 78  # columns of a terminal on which headings need no second line

_testing_option = partial(typer.Option, rich_help_panel="Testing")


@dataclass(frozen=True, kw_only=True)
class Testing:
    """The labelled queries to test with: a separate source, or examples held out of the gallery."""

    test: Annotated[
        list[str] | None, _testing_option(metavar="SOURCE", help="Labelled queries to test with.")
    ] = None
    test_features_key: Annotated[
        str | None,
        _testing_option(
            metavar="NAME", help="Array with the features in --test.", show_default="the gallery's"
        ),
    ] = None
    test_labels_key: Annotated[
        str | None,
        _testing_option(
            metavar="NAME", help="Array with the labels in --test.", show_default="the gallery's"
        ),
    ] = None
    holdout: Annotated[
        float | None,
        _testing_option(
            parser=Number(above=0, at_most=1),
            metavar="SHARE",
            help="Hold out SHARE of every class, if there is no --test.",
            show_default="0.3",
        ),
    ] = None
    draws: Annotated[
        int | None,
        _testing_option(parser=Whole(), metavar="N", help="Draw the hold-out set N times.", show_default="5"),
    ] = None
    seed: Annotated[
        int | None,
        _testing_option(parser=Whole(0), metavar="N", help="Random seed of the draws.", show_default="0"),
    ] = None
    event_gap: EventGap = None

    def to_fields(self, keys: Keys) -> dict[str, Any]:
        """Return the fields of `CompareOptions`; `keys` are the keys for the gallery's source."""
        given = {name: getattr(self, name) for name in ("holdout", "draws", "seed")}
        drawn = {name: value for name, value in given.items() if value is not None}
        if self.test and drawn:
            raise UsageError(f"--{next(iter(drawn))} cannot be combined with --test")
        if self.test and self.event_gap is not None:
            raise UsageError("--event-gap applies to held-out examples, not to --test; leave it out")
        if not self.test and (self.test_features_key, self.test_labels_key) != (None, None):
            raise UsageError("--test-features-key and --test-labels-key need --test")
        test_keys = replace(
            keys,
            features=self.test_features_key or keys.features,
            labels=self.test_labels_key or keys.labels,
        )
        return {"test": self.test or None, "test_keys": test_keys, **drawn}


@make_command(side_by_side=True)
def compare(
    sources: Sources,
    methods: Annotated[
        str | None,
        typer.Option(parser=METHOD_LIST, help="Compare these methods: {choices}.", show_default="all"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="METHOD.PARAM=VALUE",
            help="Set a parameter of a method.",
            autocompletion=completion.complete_settings,
        ),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the table to this CSV file."), Written()
    ] = None,
    dask: options.Dask = None,
    *,
    testing: Testing,
    vectors: VectorOptions,
    steps: Steps,
    network: PreprocessingOptions,
    input: SourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Compare methods on your data.

    Holds out a part of every class several times, or tests with the queries of --test.
    """
    names = options.split_names(methods)
    early = EarlyNotes(output.quiet)
    reading = reading_of(
        input,
        vectors,
        network,
        command="compare",
        steps=steps.make_steps(),
        on_notes=early,
        **error_handling.to_fields(),
    )
    tested = testing.to_fields(reading.keys)
    from crnr_cli.jobs.compare import CompareOptions
    from crnr_cli.jobs.compare import compare as run

    compare_options = CompareOptions(
        reading=with_events(reading, testing.event_gap),
        methods=names,
        settings=_parse_settings(settings or []),
        **tested,
    )
    with workers(dask, output.quiet, reading.jobs) as who, shown_progress(output.quiet) as progress:
        report = run(sources, compare_options, progress, who)
    if csv:
        _write(csv, report)
    if output.json:
        print_json(_record(report))
    else:
        console = results_console()
        print_table(console, _table(report, console.width))
    if not output.quiet:
        say_left_out(report.left_out)
        say_notes(early.rest(report.notes))
    error_handling.finish(report.skipped)


def _parse_settings(texts: Sequence[str]) -> dict[str, dict[str, object]]:
    from crnr_cli.methods import METHODS, parse_parameter

    settings: dict[str, dict[str, object]] = {}
    for text in texts:
        name, dot, rest = text.partition(".")
        parameter, equals, value = rest.partition("=")
        if not dot or not equals:
            raise UsageError(f"--set {text}: write METHOD.PARAM=VALUE, such as crc.lam=0.1")
        if name not in METHODS:
            raise UsageError(f"--set {text}: {not_one_of(name, METHODS)}")
        settings.setdefault(name, {})[parameter] = parse_parameter(name, parameter, value)
    return settings


def _result_record(result: MethodResult) -> dict[str, Any]:
    scores = result.scores
    return {
        "method": result.method.name,
        "parameters": result.method.parameters,
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


def _table(report: CompareReport, width: int) -> Table:
    from rich.table import Table

    answers = report.results[0].scores.n
    tested = format_count(report.n_tested, "query")
    if answers > report.n_tested:
        tested += f" ({format_count(answers, 'answer')} over all draws)"
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 1 if width < _ROOMY else 2, 0, 0),
        title=f"{format_count(report.n_classes, 'class')}, "
        f"{format_count(report.n_gallery, 'example')} "
        f"with vectors of length {report.dimension},\ntested with {tested}",
        title_justify="left",
        caption=f"p: McNemar's test against the best method; * p < {_SIGNIFICANT}",
        caption_justify="left",
    )
    table.add_column("method", no_wrap=True)
    for column in ("accuracy", "95%", "macro\nF1", "build\ns", "ms per\nquery", "p"):
        heading = column if width < _ROOMY else column.replace("\n", " ")
        table.add_column(heading, justify="right", no_wrap=True)
    for result in report.results:
        scores = result.scores
        table.add_row(
            result.method.name,
            format_number(scores.accuracy),
            "{:.3f}-{:.3f}".format(*result.interval),
            format_number(scores.macro.f1),
            _time(result.build_seconds, 2),
            _time(result.query_ms, 3),
            _significance(result.p_value),
        )
    return table


def _time(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if value < 100 else f"{value:.0f}"


def _significance(p_value: float | None) -> str:
    if p_value is None:
        return "best"
    return f"{p_value:.2g}{' *' if p_value < _SIGNIFICANT else '  '}"
