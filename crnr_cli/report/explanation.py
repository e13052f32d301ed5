"""An explanation as a plot or a page, with the images of the samples if they still exist."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from crnr_cli.arrays import Array, find_largest
from crnr_cli.errors import UsageError
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.thumbnails import data_uri, read_thumbnails
from crnr_cli.jobs.explain import ExplainReport, MethodExplanation, WeightedSample
from crnr_cli.report import plots
from crnr_cli.report.explanation_plot import Panel, draw_explanation
from crnr_cli.report.found_images import FoundImages, ImageSearch, find_images
from crnr_cli.report.names import (
    describe_doubt,
    describe_place,
    describe_rest,
    describe_set,
    describe_tally,
    printable,
)
from crnr_cli.report.pages import write_page
from crnr_cli.report.plots import TileDrawing, tiles_figure
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IMAGES = 7  # of gallery samples, besides the query
_LARGE = 384  # maximum width and height of the query's image, if its parts are shown
_MAX_LINES = 5000  # weights in the page, the largest first; the others are too small to be seen
_MAX_ROWS = 1000  # classes in a table of the page, the best first


def check_explanation(path: Path) -> None:
    """Refuse, before any work, an output of unknown format."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in (*plots.FORMATS, "html"):
        raise UsageError(f"{path}: the name must end in .{', .'.join(plots.FORMATS)} or .html")


def write_explanation(
    report: ExplainReport,
    path: Path,
    gallery_path: Path,
    max_pixels: int = MAX_PIXELS,
    images_from: Sequence[Path] = (),
) -> list[str]:
    """Write the plot or the page; return notes about missing gallery images."""
    samples = samples_to_show(report)
    names = [sample.name for sample in samples]
    found = FoundImages({}, [], [])
    images: dict[str, Array] = {}
    large: Array | None = None
    if report.gallery.recipe.kind == "pictures":
        known = dict(zip(report.gallery.names, report.gallery.hashes, strict=True))
        # A gallery may name any file; only one with the content of the sample is shown.
        hashes = {name: known[name] for name in names}
        search = ImageSearch([gallery_path.parent], images_from, hashes=hashes)
        found = find_images(names, search, max_pixels)
        images = found.images | read_thumbnails([report.query], max_pixels)
    if report.grid:
        large = read_thumbnails([report.query], max_pixels, _LARGE).get(report.query)
    drawings = [_tiles(report, explanation, large) for explanation in report.explanations]
    if path.suffix.lower() == ".html":
        _write_page(report, path, samples, images, drawings)
    else:
        plots.save(_figure(report, samples, images, drawings), path)
    return found.notes("gallery images", elsewhere="the folder where build ran")


def samples_to_show(report: ExplainReport) -> list[WeightedSample]:
    """Return the samples to show as images: those with the largest weights, and the nearest of `nn`."""
    samples = report.strongest(report.explanations[0], _IMAGES)
    nearest = [sample for each in report.explanations if (sample := report.nearest(each))]
    return samples[: _IMAGES - len(nearest)] + nearest


def _figure(
    report: ExplainReport,
    samples: Sequence[WeightedSample] = (),
    found: Mapping[str, Array] = MappingProxyType({}),
    drawings: Sequence[TileDrawing | None] = (None, None),
) -> Figure:
    classes = report.gallery.classes
    images: list[tuple[str, Array, int | None]] = []
    if report.query in found:
        images.append(("query", found[report.query], None))
    for sample in samples:
        if sample.name in found:
            figure = f"nearest {sample.weight:.3f}" if sample.is_nearest else f"{sample.weight:+.2f}"
            title = f"{printable(sample.label)}\n{figure}"
            images.append((title, found[sample.name], classes.index(sample.label)))
    panels = [
        _panel(report, explanation, drawing)
        for explanation, drawing in zip(report.explanations, drawings, strict=False)
    ]
    truth = "" if report.truth is None else f", true class {printable(report.truth)}"
    return draw_explanation(
        panels,
        report.gallery.samples.edges,
        [printable(name) for name in classes],
        images,
        f"{printable(report.query)}{truth}",
    )


def _panel(report: ExplainReport, explanation: MethodExplanation, drawing: TileDrawing | None) -> Panel:
    classes, shown = report.gallery.classes, report.shown_classes(explanation)
    label, runner_up = explanation.order[:2].tolist()
    confidence, shares = explanation.confidence, report.shares(explanation)
    probabilities = confidence.probabilities if confidence else None
    measures: list[tuple[str, Array | None, str]] = [
        (explanation.measure, explanation.values, "{:.4f}"),
        ("probability", probabilities, "{:.4f}"),
        ("weight", shares, "{:.0%}"),
    ]
    signed = explanation.method.signed
    facts = f"runner-up {printable(classes[runner_up])}, margin {explanation.margin:.3f}"
    if probabilities is not None:
        facts = f"probability {probabilities[label]:.3f}, {facts}"
    labels = describe_set(confidence, len(classes))
    return Panel(
        title=f"{printable(classes[label])} by {explanation.method.name}",
        label=label,
        runner_up=runner_up,
        shown=shown,
        lengths=_lengths(explanation)[shown].tolist(),
        measure="largest wins" if signed else "smallest wins",
        columns={
            name: [form.format(values[i]) for i in shown]
            for name, values, form in measures
            if values is not None
        },
        code=explanation.code,
        lines=[facts, *([printable(labels)] if labels else [])],
        doubt=describe_doubt(confidence),
        rest=describe_rest(len(classes) - len(shown), signed),
        tiles=drawing,
    )


def _lengths(explanation: MethodExplanation) -> Array:
    """Return (K,): the lengths of the bars, from 0 to 1. Residuals start at zero; scores at the lowest."""
    values = explanation.values
    low, high = float(values.min()) if explanation.method.signed else 0.0, float(values.max())
    lengths: Array = (values - low) / ((high - low) or 1.0)
    return lengths


def _tiles(report: ExplainReport, explanation: MethodExplanation, image: Array | None) -> TileDrawing | None:
    if (grid := report.grid) is None:
        return None
    parts, classes = report.parts(explanation), report.gallery.classes
    supporting = sum(part.margin > 0 for part in parts)
    others = [
        "" if part.label is None or not part.is_against else printable(classes[part.label]) for part in parts
    ]
    return TileDrawing(
        title=f"{supporting} of {format_count(len(parts), 'tile')} for "
        f"{printable(classes[explanation.order[0]])}",
        image=image,
        tiles=grid.tiles,
        margins=np.array([part.margin for part in parts]),
        others=others,
        n_common=_n_common([printable(name) for name in classes]),
    )


def _n_common(names: Sequence[str]) -> int:
    """Return the length of the common prefix of all names."""
    return len(list(takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))))


def _write_page(
    report: ExplainReport,
    path: Path,
    samples: list[WeightedSample],
    found: dict[str, Array],
    drawings: list[TileDrawing | None],
) -> None:
    uris = {name: data_uri(image) for name, image in found.items()}
    write_page(
        path,
        "explain",
        {
            "query": printable(report.query),
            "truth": None if report.truth is None else printable(report.truth),
            "image": uris.get(report.query),
            "has_parts": report.grid is not None,
            "answers": [
                {**_section(report, explanation), "parts": _parts(report, explanation, drawing)}
                for explanation, drawing in zip(report.explanations, drawings, strict=True)
            ],
            "samples": [
                {
                    "name": printable(sample.name),
                    "label": printable(sample.label),
                    "weight": sample.weight,
                    "is_nearest": sample.is_nearest,
                    "image": uris.get(sample.name),
                }
                for sample in samples
            ],
        },
    )


def _svg_uri(figure: Figure) -> str:
    out = io.BytesIO()
    plots.render(figure, out, "svg")
    return f"data:image/svg+xml;base64,{base64.b64encode(out.getvalue()).decode()}"


def _parts(
    report: ExplainReport, explanation: MethodExplanation, drawing: TileDrawing | None
) -> dict[str, Any] | None:
    if drawing is None:
        return None
    classes, parts = report.gallery.classes, report.parts(explanation)
    return {
        "drawing": _svg_uri(tiles_figure(drawing)),
        "tally": describe_tally(parts, printable(classes[explanation.order[0]])),
        "rows": [
            {
                "place": describe_place(part),
                "label": None if part.label is None else printable(classes[part.label]),
                "margin": part.margin,
                "is_against": part.is_against,
            }
            for part in parts
        ],
    }


def _section(report: ExplainReport, explanation: MethodExplanation) -> dict[str, Any]:
    classes, shares = report.gallery.classes, report.shares(explanation)
    first, second = explanation.order[:2].tolist()
    confidence, lengths = explanation.confidence, _lengths(explanation)
    probabilities = confidence.probabilities if confidence else None
    labels = describe_set(confidence, len(classes))

    def describe_class(i: int) -> dict[str, Any]:
        return {
            "name": printable(classes[i]),
            "value": float(explanation.values[i]),
            "length": float(lengths[i]),
            "probability": None if probabilities is None else float(probabilities[i]),
            "share": None if shares is None else float(shares[i]),
            "rank": 1 if i == first else 2 if i == second else 3,
        }

    shown = report.shown_classes(explanation)
    return {
        "method": explanation.method.name,
        "measure": explanation.measure,
        "label": printable(classes[first]),
        "runner_up": printable(classes[second]),
        "margin": explanation.margin,
        "doubt": describe_doubt(confidence),
        "label_set": printable(labels) if labels else None,
        "right": None if report.truth is None else classes[first] == report.truth,
        "best": list(map(describe_class, shown)),
        "rest": describe_rest(len(classes) - len(shown), explanation.method.signed),
        "rows": list(map(describe_class, explanation.order[:_MAX_ROWS].tolist())),
        "weights": _weights(report, explanation),
        "n_classes": len(classes),
    }


def _weights(report: ExplainReport, explanation: MethodExplanation) -> dict[str, Any] | None:
    """Return the weights of all samples as lines of an SVG; None for a method without weights."""
    if (code := explanation.code) is None:
        return None
    samples, found = report.gallery.samples, []
    largest = float(np.abs(code).max()) or 1.0
    drawn = np.zeros(len(code), dtype=bool)
    drawn[find_largest([np.abs(code)], _MAX_LINES, 0)] = True
    for i in explanation.order[:2].tolist():
        span = samples.class_span(i)
        found.append([j for j in range(span.start, span.stop) if drawn[j]])
        drawn[span] = False
    found.append(np.flatnonzero(drawn).tolist())
    lines = ["".join(f"M{j + 0.5:g} 0V{-code[j] / largest:.3g}" for j in places) for places in found]
    low, high = min(0.0, float(code.min())), max(0.0, float(code.max()))
    return {
        "lines": dict(zip(("first", "second", "others"), lines, strict=True)),
        "top": -high / largest,
        "height": (high - low) / largest or 1.0,
        "count": len(code),
        "low": low,
        "high": high,
    }
