"""crnr info."""

from __future__ import annotations

import heapq
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crnr_cli.cli import options
from crnr_cli.cli.command import make_command
from crnr_cli.cli.console import plain_text, print_csv, print_json, print_table, results_console, say
from crnr_cli.cli.parsing import HiddenNames
from crnr_cli.cli.thresholds import TargetAccuracy, show_thresholds
from crnr_cli.errors import DataError, NotAGalleryError, UsageError
from crnr_cli.images.dates import date_of_file
from crnr_cli.sources.formats import READERS
from crnr_cli.wording import format_count, kind_in_words

if TYPE_CHECKING:
    from crnr_cli.gallery.cleaning import Decision
    from crnr_cli.gallery.gallery import FittedGallery
    from crnr_cli.jobs.inspect import FileReport
    from crnr_cli.results.thresholds import ChosenThreshold, ThresholdTable

_MAX_CLASSES = 1000  # in the table
_SMALLEST = 50  # shown if there are more
_SHOWN_DECISIONS = 20
_COLUMNS = ("sample", "class", "sha256", "bytes", "modified")
_WIDTH = 80
_STEPS = {  # of the pipeline
    "power": "power of features",
    "pca": "PCA",
    "whiten": "whitening",
    "parts": "tiles",
}
_AXES = ("first", "second", "third", "fourth")


@make_command
def info(
    context: typer.Context,
    gallery: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Gallery (same as --gallery) or feature file."),
    ] = None,
    option: options.GalleryPath = options.GALLERY,
    samples: Annotated[
        bool,
        typer.Option("--list-examples", help="List all examples as CSV."),
        HiddenNames("samples"),
    ] = False,
    target_accuracy: TargetAccuracy = None,
    *,
    output: options.Json,
) -> None:
    """Describe a gallery or a feature file."""
    from crnr_cli.gallery.file import load_gallery
    from crnr_cli.gallery.gallery import describe
    from crnr_cli.jobs.inspect import inspect, is_feature_file

    if samples and target_accuracy is not None:
        raise UsageError("--list-examples and --target-accuracy cannot be combined; give one of them")
    gallery = options.one_gallery(context, gallery, option)
    if is_feature_file(gallery):
        for name, is_given in (("list-examples", samples), ("target-accuracy", target_accuracy is not None)):
            if is_given:
                raise UsageError(
                    f"--{name} applies to galleries, but {gallery} is a feature file; leave it out"
                )
        report = inspect(gallery)
        if output.json:
            print_json(file_record(report))
        else:
            show_file(report)
        return
    try:
        loaded = load_gallery(gallery)
    except NotAGalleryError as e:
        raise NotAGalleryError(
            f"{gallery}: neither a gallery nor a feature file ({', '.join(READERS)})"
        ) from e
    if samples:
        _list_samples(loaded, output.json)
        return
    about = {"gallery": str(gallery), "bytes": gallery.stat().st_size, **describe(loaded)}
    thresholds = loaded.measure_thresholds()
    choice = _choose_threshold(gallery, thresholds, target_accuracy)
    if output.json:
        print_json({**about, **({"target_accuracy": choice.to_record()} if choice else {})})
        return
    _show_gallery(about, loaded)
    show_thresholds(thresholds, choice)


def _choose_threshold(
    gallery: Path, thresholds: ThresholdTable | None, target: float | None
) -> ChosenThreshold | None:
    if target is None:
        return None
    if thresholds is None:
        raise DataError(
            f"{gallery}: has no held-out answers for --target-accuracy; build it again with --calibrate"
        )
    return thresholds.choose_threshold(target)


def _show_gallery(about: dict[str, Any], gallery: FittedGallery) -> None:
    """Print what is in a gallery and how it was made, in plain words, its classes and its cleaning."""
    from rich.table import Table

    from crnr_cli.gallery.cleaning import Cleaning
    from crnr_cli.results.scores import natural_key

    classes = Table(title="classes", box=None, pad_edge=False, title_justify="left")
    classes.add_column("class", overflow="fold")
    classes.add_column("examples", justify="right", no_wrap=True)
    counts = about["classes"].items()
    if len(counts) > _MAX_CLASSES:
        counts = heapq.nsmallest(_SMALLEST, counts, key=lambda item: item[1])
        all_of_them = format_count(about["n_classes"], "class")
        classes.title = f"the {_SMALLEST} of {all_of_them} with the fewest examples; --json lists all"
    for name, count in sorted(counts, key=lambda item: natural_key(item[0])):
        classes.add_row(plain_text(name), str(count))
    _print_facts(_plain_facts(about, gallery))
    print_table(results_console(), classes)
    if decisions := [*Cleaning.of(gallery)]:
        _show_cleaning(decisions)


def _show_cleaning(decisions: Sequence[Decision]) -> None:
    """Print the latest decisions on examples and classes, the newest first."""
    from rich.table import Table

    table = Table(title="cleaning", box=None, pad_edge=False, title_justify="left")
    if len(decisions) > _SHOWN_DECISIONS:
        table.title = f"the last {_SHOWN_DECISIONS} of {len(decisions)} decisions; --json lists all"
    for name in ("when", "example", "change", "command"):
        table.add_column(name, overflow="fold")
    for one in reversed(decisions[-_SHOWN_DECISIONS:]):
        change = f"{one.former} to {one.label}" if one.label else f"removed from {one.former}"
        change = f"added to {one.label}" if one.is_addition else change
        table.add_row(*map(plain_text, (one.when, one.name or "all", change, one.why)))
    print_table(results_console(), table)


def _plain_facts(about: dict[str, Any], gallery: FittedGallery) -> dict[str, str]:
    """Return what is known about a gallery, by names that need no explanation."""
    from crnr_cli.gallery.cleaning import Cleaning, count_decisions
    from crnr_cli.recipe.recipe import STEPS
    from crnr_cli.system.memory import format_size

    extractor, steps = gallery.recipe.extractor, gallery.recipe.settings
    each = "image" if extractor else "example"
    facts = {
        "gallery": about["gallery"],
        "file size": format_size(about["bytes"]),
        "written by": f"crnr {about['crnr_version']}, gallery format {about['format_version']}",
        "classes": str(about["n_classes"]),
        "examples": str(about["n_samples"]),
        "built from": kind_in_words(about["made_from"]),
    }
    if extractor:
        facts |= {
            "extractor": extractor.describe(),
            "image size": "x".join(map(str, about["size"])),
            "colour": "yes" if about["color"] else "no",
        }
    facts[f"features per {each}"] = str(about["n_inputs"])
    for name, words in _STEPS.items():
        facts[words] = "none" if steps[name] in (None, STEPS[name].off) else _format_value(steps[name])
    facts |= {
        "vector length": str(about["dimension"]),
        "number type": about["dtype"],
        "method": about["method"],
        "method parameters": _format_value(about["parameters"]) or "none",
    }
    if about["factor"]:
        facts["stored matrices"] = about["factor"]
    if "index_recall" in about:
        found, same = about["index_recall"], about["index_agreement"]
        facts["index"] = f"finds {found:.1%} of the neighbours and {same:.1%} of the labels"
    facts["calibrated"] = f"yes, on {about['calibration']}" if about["calibration"] else "no"
    if decisions := count_decisions([*Cleaning.of(gallery)]):
        facts["cleaning"] = decisions
    return facts


def _print_facts(facts: dict[str, str]) -> None:
    """Print one line per fact, in 80 columns; longer values continue below."""
    from rich.table import Table

    width = max(map(len, facts))
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        lines = textwrap.wrap(value, _WIDTH - width - 2, break_long_words=False, break_on_hyphens=False)
        for line in lines:
            table.add_row(name if line is lines[0] else "", plain_text(line))
    print_table(results_console(), table)


def _list_samples(gallery: FittedGallery, as_json: bool) -> None:
    """Print the examples one by one, because there may be very many."""
    rows = _sample_rows(gallery)
    if not as_json:
        print_csv(_COLUMNS, rows)
        return
    between = "["
    for row in rows:
        record = dict(zip(_COLUMNS, row, strict=True))
        sys.stdout.write(f"{between}\n  {json.dumps(record)}")
        between = ","
    sys.stdout.write("\n]\n")


def _sample_rows(gallery: FittedGallery) -> Iterator[tuple[str, str, str, int | None, str | None]]:
    """Yield a row per example, with the size and the date of its file, which are None if they are unknown."""
    table = gallery.table.with_stamps()
    columns = zip(table.names, table.labels, table.hashes, table.stamps, strict=True)
    for name, label, sha256, (size, mtime_ns) in columns:
        modified = date_of_file(mtime_ns) if mtime_ns else ""
        yield name, label, sha256, size if mtime_ns else None, modified or None


def _format_value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_format_value(item)}" for key, item in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def file_record(report: FileReport) -> dict[str, Any]:
    """Return the report for JSON."""
    return {
        "file": str(report.path),
        "bytes": report.bytes,
        "arrays": [{k: v for k, v in asdict(array).items() if k != "n_labels"} for array in report.arrays],
        "taken": asdict(report.taken) if report.taken else None,
        "problem": report.problem,
        "notes": [note.text for note in report.notes],
    }


def show_file(report: FileReport) -> None:
    """Print the arrays and how crnr would use them, then notes with its assumptions or the problem."""
    from rich.table import Table

    arrays = Table(box=None, pad_edge=False)
    arrays.add_column("array", overflow="fold")
    for name in ("shape", "type", "could be", "used as"):
        arrays.add_column(name, overflow="fold")
    for array in report.arrays:
        could_be = " or ".join(array.could_be) or (f"- ({array.why_not})" if array.why_not else "-")
        sizes = " x ".join(map(str, array.shape)) or ("-" if array.why_not else "single")
        arrays.add_row(
            plain_text(array.name), sizes, array.type, plain_text(could_be), _role(report, array.name)
        )
    console = results_console()
    print_table(console, arrays)
    if report.taken is None:
        say(f"note: {report.problem}", style="yellow")
        return
    console.print()
    facts = Table(show_header=False, box=None, pad_edge=False)
    facts.add_column()
    facts.add_column(overflow="fold")
    taken = report.taken
    shape = next((array.shape for array in report.arrays if array.name == taken.features), ())
    where = "last" if taken.axis and taken.axis == len(shape) - 1 else _AXES[taken.axis]
    facts.add_row("examples", plain_text(f"{taken.samples}, along the {where} axis of '{taken.features}'"))
    facts.add_row("features per example", str(taken.numbers))
    facts.add_row("classes", "no labels" if taken.classes is None else str(taken.classes))
    print_table(console, facts)
    for note in report.notes:
        say(f"note: {note.text}")


def _role(report: FileReport, name: str) -> str:
    taken = report.taken
    if taken is None:
        return "-"
    return {taken.names: "names", taken.labels: "labels", taken.features: "features"}.get(name, "-")
