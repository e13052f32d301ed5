"""crnr classify."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.choices import ENDINGS, FORMATS, format_by_name
from crnr_cli.cli import options
from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.cluster import workers
from crnr_cli.cli.command import Written, make_command
from crnr_cli.cli.console import say, say_separators, shown_progress
from crnr_cli.cli.events import Dates, Events
from crnr_cli.cli.options import ConfidenceOptions, ErrorHandlingOptions, ModelOptions, Quiet, SourceOptions
from crnr_cli.cli.parsing import Choice, Whole
from crnr_cli.errors import DataError, UsageError
from crnr_cli.images.pool import DecoderPool
from crnr_cli.records import dataclass
from crnr_cli.sources.formats import is_table
from crnr_cli.system.files import is_stdout
from crnr_cli.system.names import quote_word
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.jobs.classify import ClassifyReport, Gone

_output_option = partial(typer.Option, rich_help_panel="Output")


@dataclass(frozen=True, kw_only=True)
class Format:
    json: Annotated[bool, _output_option("--json", help="Write JSON Lines, one object per query.")] = False
    format: Annotated[
        str | None,
        _output_option(
            parser=Choice(FORMATS),
            help="Write this format: {choices}.",
            show_default="by file name",
        ),
    ] = None
    dates: Dates = None

    def choose(self, output: str) -> str:
        if self.json and self.format not in (None, "jsonl"):
            raise UsageError(f"--json and --format {self.format} contradict each other; give one of them")
        return "jsonl" if self.json else self.format or format_by_name(output)

    def to_fields(self, output: str) -> dict[str, Any]:
        """Return fields of `QueryOptions`."""
        return {"format": self.choose(output), "dates": self.dates}


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """How the output of an earlier run is used."""

    update: Annotated[
        bool, typer.Option("--update", help="Classify new and changed files; keep other rows.")
    ] = False
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was stopped.")] = False
    prune: Annotated[
        bool, typer.Option("--prune", help="With --update, drop the rows of files that are gone.")
    ] = False

    def decide(self) -> tuple[dict[str, Any], str]:
        """Return the arguments of the job, and how to continue if it is stopped; refuse contradictions."""
        if self.resume and self.update:
            raise UsageError("--update also continues a stopped run; leave out --resume")
        if self.prune and not self.update:
            raise UsageError("--prune only applies to --update; add --update, or leave out --prune")
        fate: Gone | None = ("prune" if self.prune else "keep") if self.update else None
        remedy = f"; the same command{'' if self.update else ' with --resume'} continues from there"
        return {"resume": self.resume, "update": fate}, remedy


@make_command(side_by_side=True)
def classify(
    context: typer.Context,
    sources: options.SourcesOrLabels = None,
    gallery: options.GalleryPath = options.GALLERY,
    path: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Predictions file to write; - is stdout."),
        Written(),
    ] = "-",
    top: Annotated[
        int | None,
        typer.Option(
            parser=Whole(0),
            metavar="K",
            help="Write the K best classes (0: all).",
            show_default="auto",
        ),
    ] = None,
    cache: options.Cache = None,
    dask: options.Dask = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            parser=Whole(),
            metavar="N",
            help="Classify N queries per batch; a stopped run keeps finished batches.",
            show_default="auto",
        ),
    ] = None,
    *,
    earlier: EarlierRun,
    confidence: ConfidenceOptions,
    input: SourceOptions,
    model: ModelOptions,
    error_handling: ErrorHandlingOptions,
    written: Format,
    events: Events,
    output: Quiet,
) -> None:
    """Label images or feature vectors.

    Writes one CSV row per query, with the label and the residuals of the classes.
    """
    _refuse_outputs(sources or [], path)
    continuing, remedy = earlier.decide()
    of_output = written.to_fields(path)
    format = of_output["format"]
    grouping = None if events == Events() else events.choose()
    to_stdout = path == "-" or is_stdout(Path(path))
    target = sys.stdout.buffer if to_stdout else Path(path)
    reads_images = not (sources and all(map(is_table, sources)))
    decoders = DecoderPool(input.jobs)
    if dask is None and reads_images:
        decoders.start_early()
    from crnr_cli.gallery.queries import QueryOptions
    from crnr_cli.jobs.classify import classify as run

    sources = options.require_sources(context, sources, input.labels, input.boxes)
    query_options = QueryOptions(
        **input.to_fields(),
        **error_handling.to_fields(),
        **confidence.to_fields(),
        top=top,
        **of_output,
        events=grouping,
        **model.to_fields(),
        batch_size=batch_size,
        cache=cache,
    )
    with (
        workers(dask, output.quiet, input.jobs, gallery=gallery, decoders=decoders) as who,
        shown_progress(output.quiet, prints=to_stdout) as shown,
        finishing_batches(shown, "" if to_stdout or format == "parquet" else remedy) as progress,
    ):
        report = run(sources, gallery, target, query_options, progress, **continuing, workers=who)
    if not output.quiet:
        say_separators(input.labels)
        say_separators(confidence.taxa)
        _show(report, None if to_stdout else path, verbose=error_handling.verbose)
    error_handling.finish(report.skipped)


def _refuse_outputs(sources: list[str], path: str) -> None:
    """Refuse a missing predictions file among several sources: -o was forgotten."""
    for name in sources[1:] if path == "-" else ():
        if name.lower().endswith(ENDINGS) and not os.path.lexists(name):
            command = f"-o {quote_word(name)}"
            raise DataError(f"{name}: no such file or folder; to write the labels there, use `{command}`")


def _show(report: ClassifyReport, path: str | None, *, verbose: bool) -> None:
    for note in report.notes:
        say(f"note: {note.text}", style="yellow" if note.kind == "sets" else None)
    from crnr_cli.sources.images import NO_BOX

    total = format_count(report.n_queries, "query")
    failed = {
        status: count
        for status, count in report.statuses.most_common()
        if status not in ("ok", "rejected", "broader", NO_BOX)
    }
    if report.rejection and report.n_queries:
        say(f"rejected {report.statuses['rejected']} of {total} as unknown ({report.rejection})")
    if report.n_queries > 1 or (report.n_queries and not failed):
        broader = report.statuses["broader"]
        some = f", {broader} of them as a broader class" if broader else ""
        say(f"labelled {report.statuses['ok'] + broader} of {total}{some}" + (f": {path}" if path else ""))
    if without := report.statuses[NO_BOX]:
        say(f"without a box: {format_count(without, 'image')}")
    for name, why in report.failures:
        say(f"failed: {name}: {why}", style="yellow")
    if sum(failed.values()) > len(report.failures):
        reasons = ", ".join(f"{count} {status}" for status, count in failed.items())
        remedy = "" if verbose else "; --verbose prints all"
        say(f"failed in all: {reasons} (see the column status{remedy})", style="yellow")
