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

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.images.pixels import MAX_PIXELS
from crnr_cli.images.thumbnails import data_uri, read_thumbnails
from crnr_cli.jobs.explain import ExplainReport, MethodExplanation, WeightedSample
from crnr_cli.report import plots
from crnr_cli.report.found_images import FoundImages, ImageSearch, find_images
from crnr_cli.report.names import describe_place, describe_tally, printable
from crnr_cli.report.pages import write_page
from crnr_cli.report.plots import TileDrawing, tiles_figure
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IMAGES = 7  # of gallery samples, besides the query
_LARGE = 384  # maximum width and height of the query's image, if its parts are shown
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
        truth = "" if report.truth is None else f"\ntrue class {printable(report.truth)}"
        images.append((f"query{truth}", found[report.query], None))
    for sample in samples:
        if sample.name in found:
            figure = f"nearest {sample.weight:.3f}" if sample.is_nearest else f"{sample.weight:+.2f}"
            title = f"{printable(sample.label)}\n{figure}"
            images.append((title, found[sample.name], classes.index(sample.label)))
    panels = [
        _panel(explanation, drawing)
        for explanation, drawing in zip(report.explanations, drawings, strict=False)
    ]
    return plots.draw_explanation(
        panels, report.gallery.samples.edges, [printable(name) for name in classes], images
    )


def _panel(explanation: MethodExplanation, drawing: TileDrawing | None) -> plots.Panel:
    label, runner_up = explanation.order[:2].tolist()
    return plots.Panel(
        title=f"{explanation.method.name}, margin {explanation.margin:.3f}",
        values=explanation.values,
        code=explanation.code,
        label=label,
        runner_up=runner_up,
        measure=explanation.measure,
        best="largest" if explanation.method.signed else "smallest",
        tiles=drawing,
    )


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
            "drawing": _svg_uri(_figure(report)),
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
    return {
        "method": explanation.method.name,
        "measure": explanation.measure,
        "label": printable(classes[first]),
        "runner_up": printable(classes[second]),
        "margin": explanation.margin,
        "right": None if report.truth is None else classes[first] == report.truth,
        "rows": [
            {
                "name": printable(classes[i]),
                "value": float(explanation.values[i]),
                "share": None if shares is None else float(shares[i]),
            }
            for i in explanation.order[:_MAX_ROWS].tolist()
        ],
        "n_classes": len(classes),
    }
