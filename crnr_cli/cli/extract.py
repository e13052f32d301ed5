"""crnr extract."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crnr_cli.cli import options
from crnr_cli.cli.boundary import finishing_batches
from crnr_cli.cli.cluster import refuse_features, workers
from crnr_cli.cli.command import Written, make_command, parameter_names
from crnr_cli.cli.console import EarlyNotes, print_json, say, say_left_out, say_notes, shown_progress
from crnr_cli.cli.events import Dates
from crnr_cli.cli.gallery_report import Replaced
from crnr_cli.cli.options import Dask, ErrorHandlingOptions, PrintOptions, SourceOptions
from crnr_cli.cli.recipe_options import ExtractionOptions, PreprocessingOptions
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.gallery.extraction import ExtractReport


@make_command
def extract(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Feature file to write (.h5)."),
        Written(is_gallery=True),
    ],
    sources: options.SourcesOrLabels = None,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Add to the file: read only new and changed files; keep settings.",
        ),
    ] = False,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="GALLERY",
            help="Use the extractor of this gallery and its settings, so that classify reads the file.",
        ),
    ] = None,
    dates: Dates = None,
    dask: Dask = None,
    *,
    vectors: ExtractionOptions,
    network: PreprocessingOptions,
    input: SourceOptions,
    error_handling: ErrorHandlingOptions,
    output: PrintOptions,
) -> None:
    """Compute features once and save them.

    All commands read the saved feature file instead of the images.
    """
    early = EarlyNotes(output.quiet)
    from crnr_cli.gallery.features_file import has_content
    from crnr_cli.gallery.samples import Reading
    from crnr_cli.jobs.extract import ExtractOptions
    from crnr_cli.jobs.extract import extract as run

    chosen = vectors.to_options(network)
    reading = Reading(
        **input.to_fields(),
        **error_handling.to_fields(),
        extractor=chosen,
        provider=network.provider,
        dates=dates,
        on_notes=early,
    )
    model = None
    of_extractor = parameter_names(ExtractionOptions, PreprocessingOptions)
    if like is not None:
        model = vectors.moved_model(context, of_extractor, str(like), "--like")
    elif update and has_content(path):  # the first time, there is nothing to update
        model = vectors.moved_model(context, of_extractor, "the file")
    replaced = Replaced(path, output.quiet, is_gallery=False)
    names = options.require_sources(context, sources, input.labels, input.boxes)
    refuse_features(dask, names)
    with (
        workers(dask, output.quiet, reading.jobs) as who,
        shown_progress(output.quiet) as shown,
        finishing_batches(shown, "; the same command continues from there") as progress,
    ):
        looking = progress if update else replaced.look_before_work(progress)
        report = run(names, path, ExtractOptions(reading, update, model, like), looking, who)
    replaced.announce()
    _show(path, report, output, early, update=update)
    error_handling.finish(report.skipped)


def _show(
    path: Path, report: ExtractReport, output: PrintOptions, early: EarlyNotes, *, update: bool
) -> None:
    from crnr_cli.system.memory import format_size

    recipe = report.recipe
    if output.json:
        record = {
            "features": str(path),
            "n_samples": report.n_samples,
            "n_classes": report.n_classes,
            "added": report.added,
            "changed": report.changed,
            "gone": report.gone,
            **recipe.facts(),
            "seconds": report.seconds,
            "bytes": report.file_bytes,
            "notes": [note.text for note in report.notes],
            "left_out": [{"name": left.name, "reason": str(left.error)} for left in report.left_out],
        }
        print_json(record)
    if output.quiet:
        return
    say_left_out(report.left_out)
    say_notes(early.rest(report.notes))
    if update:
        unchanged = report.n_samples - report.added - report.changed
        say(f"{report.added} added, {report.changed} changed, {unchanged} unchanged")
    say(
        f"{path}: {format_count(report.n_samples, 'row')}, {format_count(report.n_classes, 'class')}, "
        f"{'; '.join(recipe.describe())}; {report.seconds:.1f} s, {format_size(report.file_bytes)}"
    )
