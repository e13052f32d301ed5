"""Plots with matplotlib. Figures are made without pyplot, so that no window is opened."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.recipe.steps import Tile
from crnr_cli.system.files import replacing
from crnr_cli.system.folders import elsewhere

FORMATS = ("png", "svg", "pdf")
# The colours of Okabe and Ito, which most colour-blind people can distinguish.
_LONGEST_NAME = 44  # letters of a name that fit into one of two columns of a legend
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
_MAX_BARS = 300  # classes; more are drawn as lines
_MAX_SHAPES = 5000  # in an SVG or PDF; more are drawn as pixels
FOR, AGAINST = "#0072b2", "#d55e00"  # most colour-blind people can distinguish these
_LINES = "///"
_NARROWEST_KEY = 1.8  # inches
_WEAKEST = 0.02  # the margin that is always shaded faintly, even if no other is larger
_MOST_HATCHED = 1000  # tiles; more would take too long
_BAND = 0.11  # the height of a part that is not a tile, as a share of the image's
_STRONGEST = 0.66  # the opacity of the largest margin
_LIGHTER = 0.6  # the share of contrast that the image keeps, so that shades are visible on dark tiles
_LETTER = 0.58  # the width of a letter, as a share of its height
_LONGEST_TITLE = 40  # letters
_SMALLEST_TEXT, _LARGEST_TEXT = 4.5, 10.0  # in points
_READABLE = 7.0  # points: text shrinks to this size to fit; below, names are shortened instead
__all__ = [
    "Axes",
    "Figure",
    "LinearSegmentedColormap",
    "Normalize",
    "PolyCollection",
    "Rectangle",
    "ScalarMappable",
    "Text",
    "to_rgba",
    "withStroke",
]


def check_plot(path: Path) -> None:
    """Refuse, before any work, a plot of unknown format."""
    if path.suffix.lower().removeprefix(".") not in FORMATS:
        raise UsageError(f"{path}: the name of a plot must end in .{', .'.join(FORMATS)}")


def save(figure: Figure, path: Path) -> None:
    with replacing(path) as file:
        render(figure, file, path.suffix.lower().removeprefix("."))


def render(figure: Figure, out: BinaryIO, file_format: str) -> None:
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # the name of a class may contain $
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box; a warning would only disturb.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        figure.savefig(out, format=file_format, dpi=150)


@dataclass(frozen=True)
class Panel:
    """One method's explanation of one query."""

    title: str
    values: Array  # (K,)
    code: Array | None  # (n,)
    label: int
    runner_up: int
    measure: str  # "residual" or "score"
    best: str  # "smallest" or "largest"
    tiles: TileDrawing | None = None  # the query in its parts, if it has any


def draw_explanation(
    panels: Sequence[Panel],
    edges: Array,
    classes: Sequence[str],
    images: Sequence[tuple[str, Array, int | None]],
) -> Figure:
    """Draw one row per method: the weights of all gallery samples, and every class's residual or score.

    With parts, the row begins with the image of the query and the support of its parts. `images` are (title,
    RGB, class) of the query, whose class is None, and of gallery samples.
    """
    colors = _class_colors(panels, len(classes))
    strip = 1.8 if images else 0.0
    of_parts = [panel.tiles for panel in panels if panel.tiles]
    width, height = (15, 4.3) if of_parts else (11, 2.9)
    figure = Figure(figsize=(width, height * len(panels) + strip + 0.2), layout="constrained")
    parts = figure.subfigures(
        2 if images else 1,
        1,
        height_ratios=[strip, height * len(panels)][-2 if images else -1 :],
        squeeze=False,
    )
    if images:
        _draw_strip(parts[0, 0].subplots(1, max(8, len(images))), images, colors, 24 if of_parts else 18)
    below = parts[-1, 0]
    if of_parts:
        first, below = below.subfigures(1, 2, width_ratios=[4, 11])
        for axes, drawing in zip(
            first.subplots(len(of_parts), 1, squeeze=False)[:, 0], of_parts, strict=True
        ):
            draw_tiles(axes, drawing, (3.6, height - 1.2))
    grid = below.subplots(len(panels), 2, squeeze=False, width_ratios=[1.5, 1])
    for (left, right), panel in zip(grid, panels, strict=True):
        _draw_code(left, panel, edges, classes, colors)
        _draw_values(right, panel, classes, colors)
    return figure


def _class_colors(panels: Sequence[Panel], count: int) -> list[str]:
    """Return strong colours for labels and runners-up, the same in every panel, and greys for others."""
    named = list(dict.fromkeys(i for panel in panels for i in (panel.label, panel.runner_up)))
    return [_COLORS[named.index(i)] if i in named else ("#8d99a6", "#c3cbd3")[i % 2] for i in range(count)]


def _draw_strip(
    axes: Sequence[Axes],
    images: Sequence[tuple[str, Array, int | None]],
    colors: Sequence[str],
    longest: int,
) -> None:
    for one in axes:
        one.set_axis_off()
    for one, (title, image, label) in zip(axes, images, strict=False):
        one.set_axis_on()
        one.imshow(image, interpolation="nearest")
        one.set_xticks([])
        one.set_yticks([])
        one.set_title("\n".join(_short(line, longest) for line in title.splitlines()), fontsize=8)
        color = "#222222" if label is None else colors[label]
        one.spines[:].set(color=color, linewidth=2.5)


def _draw_code(axes: Axes, panel: Panel, edges: Array, classes: Sequence[str], colors: Sequence[str]) -> None:
    axes.set_title(panel.title, fontsize=11, loc="left")
    _clean(axes)
    if panel.code is None:
        axes.text(0.5, 0.5, "this method has no weights", ha="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        return
    class_of = np.repeat(np.arange(len(classes)), np.diff(edges))
    _draw_lines(axes, panel.code, class_of, colors, panel, 1.2)
    axes.axhline(0, color="#444444", linewidth=0.6)
    axes.set_xlim(-0.5, edges[-1] - 0.5)
    axes.set_ylabel("weight")
    _name_places(axes, (edges[:-1] + edges[1:] - 1) / 2, panel, classes, colors, "examples, by class")


def _draw_lines(
    axes: Axes, heights: Array, class_of: Array, colors: Sequence[str], panel: Panel, width: float
) -> None:
    """Draw a line per place: one object per colour, because one per class would take minutes."""
    by_color: dict[str, list[int]] = {}
    for i, color in enumerate(colors):
        by_color.setdefault(color, []).append(i)
    for color, members in by_color.items():
        places = np.flatnonzero(np.isin(class_of, members))
        # The label and the runner-up are drawn over the other classes.
        over = 3 if {panel.label, panel.runner_up} & set(members) else 2
        axes.vlines(
            places,
            0,
            heights[places],
            color=color,
            linewidth=width,
            zorder=over,
            rasterized=len(places) > _MAX_SHAPES,
        )


def _draw_values(axes: Axes, panel: Panel, classes: Sequence[str], colors: Sequence[str]) -> None:
    _clean(axes)
    if len(classes) <= _MAX_BARS:
        axes.bar(np.arange(len(classes)), panel.values, color=colors, width=0.8)
    else:
        _draw_lines(axes, panel.values, np.arange(len(classes)), colors, panel, 1.2)
    low, high = min(0.0, float(panel.values.min())), max(0.0, float(panel.values.max()))
    axes.set_ylim(low * 1.1, high + 0.12 * (high - low))
    above = max(0.0, panel.values[panel.label]) + 0.035 * (high - low)
    axes.plot(panel.label, above, "v", color=colors[panel.label], markersize=7, clip_on=False)
    axes.set_title(
        f"{panel.best}: {_short(classes[panel.label], 15)}, then {_short(classes[panel.runner_up], 15)}",
        fontsize=10,
        loc="left",
    )
    axes.set_ylabel(panel.measure)
    _name_places(axes, np.arange(len(classes)), panel, classes, colors, "class")


def _name_places(
    axes: Axes, places: Array, panel: Panel, classes: Sequence[str], colors: Sequence[str], what: str
) -> None:
    """Write the names of all classes if there is room, else of the label and the runner-up."""
    room = len(classes) <= 30
    named = range(len(classes)) if room else sorted({panel.label, panel.runner_up})
    axes.set_xticks([places[i] for i in named], [_short(classes[i]) for i in named], fontsize=9)
    if room and sum(map(len, classes)) > 60:
        axes.tick_params(axis="x", labelsize=8)
        for tick in axes.get_xticklabels():
            tick.set(rotation=40, horizontalalignment="right", rotation_mode="anchor")
    for i, tick in zip(named, axes.get_xticklabels(), strict=True):
        if i in (panel.label, panel.runner_up):
            tick.set(color=colors[i], fontweight="bold")
    if not room:
        # The two names must not overlap.
        for i, tick in zip(named, axes.get_xticklabels(), strict=True):
            tick.set_horizontalalignment("right" if i == min(named) else "left")
    axes.set_xlabel(what)


def _short(name: str, longest: int = 18) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _clean(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def draw_sensitivity(
    lams: Sequence[float],
    accuracies: Mapping[str, Sequence[float | None]],
    marked: Mapping[str, tuple[float, float]],
    title: str,
) -> Figure:
    """Draw accuracy over lam, one line per name; `marked` points are (lam, accuracy)."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    place = {lam: i for i, lam in enumerate(lams)}  # equal distances, as a log axis has no 0
    for (name, values), color in zip(accuracies.items(), _COLORS, strict=False):
        known = [
            (place[lam], 100 * value) for lam, value in zip(lams, values, strict=True) if value is not None
        ]
        if not known:  # the time budget ended before any was tried
            continue
        axes.plot(
            [x for x, _ in known], [y for _, y in known], marker="o", markersize=4, color=color, label=name
        )
    for (name, (lam, accuracy)), marker in zip(marked.items(), "sD", strict=False):
        axes.plot(
            place[lam], 100 * accuracy, marker, markersize=11, mfc="none", mew=2, color="#222222", label=name
        )
    axes.set_xticks(range(len(lams)), [f"{lam:g}" for lam in lams])
    axes.set_xlabel("lam, the weight of the class residuals")
    axes.set_ylabel("cross-validated accuracy, %")
    axes.set_title(title, fontsize=11)
    _clean(axes)
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(0.0, bottom), min(100.0, top))
    for drawn in axes.lines:
        drawn.set_clip_on(False)  # a marker at 100 % is not cut in half
    # Two columns, unless a name is too long for half of the width.
    is_long = max(map(len, [*accuracies, *marked])) > _LONGEST_NAME
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=1 if is_long else 2)
    return figure


@dataclass(frozen=True)
class TileDrawing:
    """The drawing of a query's parts, for one method."""

    title: str
    image: Array | None  # RGB; None if there is no image to show
    tiles: Sequence[Tile]
    margins: Array  # (P,): how much each part supports the label
    others: Sequence[str]  # the class that a part against the label supports; empty for the other parts
    n_common: int = 0  # length of the common prefix of class names, which is left out first


def tiles_figure(drawing: TileDrawing) -> Figure:
    rows, columns = (1, 1) if drawing.image is None else drawing.image.shape[:2]
    height = min(4.8, max(1.5, 4.8 * rows / columns))
    figure = Figure(figsize=(5.2, height + 1.1), layout="constrained")
    draw_tiles(figure.subplots(), drawing, (4.8, height))
    return figure


def draw_tiles(axes: Axes, drawing: TileDrawing, room: tuple[float, float]) -> None:
    """Draw the tiles; `room` is about the width and height in inches for the image."""
    image = np.full((4, 4, 3), 255, np.uint8) if drawing.image is None else drawing.image
    height, width = image.shape[:2]
    # In grey, so that its own colours are not mistaken for a shade.
    grey = 255 - (255 - image.astype(float).mean(axis=2)) * _LIGHTER
    axes.imshow(grey, cmap="gray", vmin=0, vmax=255, extent=(0, width, height, 0), interpolation="nearest")
    boxes = _boxes(drawing.tiles, width, height)
    limit = max(_WEAKEST, float(np.abs(drawing.margins).max()))
    shades = ScalarMappable(Normalize(-limit, limit), _shades())
    corners: list[Array] = list(boxes[:, [[0, 1], [2, 1], [2, 3], [0, 3]]])
    many = len(boxes) > _MOST_HATCHED
    colors = shades.to_rgba(drawing.margins)
    axes.add_collection(PolyCollection(corners, facecolors=colors, linewidths=0, rasterized=many))
    if not many:
        for box, margin in zip(boxes, drawing.margins, strict=True):
            if margin < 0:
                _hatch(axes, box, -margin / limit)
        axes.add_collection(PolyCollection(corners, facecolors="none", edgecolors="white", linewidths=0.9))
    lowest = float(boxes[:, 3].max())
    axes.set(xlim=(0, width), ylim=(lowest, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(_shorten_name(drawing.title, _LONGEST_TITLE), fontsize=11, loc="left")
    scale = min(room[0] / width, room[1] / lowest)  # inches per pixel
    _write_margins(axes, drawing, boxes, 72 * scale)
    _draw_key(axes, shades, limit, (width * scale, lowest * scale))


def _shades() -> LinearSegmentedColormap:
    """Return colours from one through nothing to the other; small margins stay visible next to large ones."""
    places = np.linspace(-1, 1, 257)
    # As numbers: matplotlib 3.8 would read a colour with its opacity as a place with its colour.
    colors = [
        to_rgba(AGAINST if place < 0 else FOR, _STRONGEST * abs(place) ** 0.7) for place in places.tolist()
    ]
    return LinearSegmentedColormap.from_list("support", colors, N=257)


def _boxes(tiles: Sequence[Tile], width: int, height: int) -> Array:
    """Return (P, 4): left, top, right and bottom in pixels; a part that is not a tile is a band below."""
    boxes, bottom = [], 1.0
    for tile in tiles:
        if tile.name:
            boxes.append((0.0, bottom + _BAND / 4, 1.0, bottom + _BAND))
            bottom += _BAND
        else:
            boxes.append((tile.left, tile.top, tile.right, tile.bottom))
    return np.array(boxes) * (width, height, width, height)


def _hatch(axes: Axes, box: Array, strength: float) -> None:
    """Draw lines, so that tiles differ without colours too; fainter for a small margin."""
    left, top, right, bottom = box.tolist()
    color = (AGAINST, min(1.0, 0.25 + strength))
    axes.add_patch(
        Rectangle(
            (left, top), right - left, bottom - top, fill=False, hatch=_LINES, edgecolor=color, linewidth=0
        )
    )


def _write_margins(axes: Axes, drawing: TileDrawing, boxes: Array, scale: float) -> None:
    """Write each tile's margin and, if it contradicts the label, the class; `scale` is points per pixel."""
    sizes = (boxes[:, 2:] - boxes[:, :2]) * scale
    lines_in = np.array([1.4 if tile.name else 2.6 for tile in drawing.tiles])
    points = min(_LARGEST_TEXT, (sizes[:, 1] / lines_in).min(), sizes[:, 0].min() / (5 * _LETTER))
    if points < _SMALLEST_TEXT:
        return
    named = zip(drawing.tiles, drawing.others, strict=True)
    lengths = np.array([0 if tile.name else len(other) for tile, other in named])
    points = min(points, max(_READABLE, (sizes[:, 0] / np.maximum(lengths, 1)).min() / _LETTER))
    rows = zip(drawing.tiles, drawing.margins, drawing.others, boxes, sizes, strict=True)
    for tile, margin, other, (left, top, right, bottom), (wide, _) in rows:
        figure = f"{margin:+.2f}".replace("-", "\u2212") if margin else "0.00"
        fits = int(wide / (points * _LETTER) + 1e-6)
        name = _shorten_name(other, fits, drawing.n_common)
        text = f"{tile.name} {figure}  {name}".rstrip() if tile.name else f"{figure}\n{name}".rstrip()
        axes.text(
            (left + right) / 2,
            (top + bottom) / 2,
            text,
            fontsize=points,
            color="#111111",
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=2, foreground="#ffffffd0")],
        )


def _shorten_name(name: str, longest: int, n_common: int = 0) -> str:
    if len(name) > longest and n_common > 1:
        name = "\u2026" + name[n_common:]
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"


def _draw_key(axes: Axes, shades: ScalarMappable, limit: float, size: tuple[float, float]) -> None:
    """Draw the colour key of the margins; `size` is the image's, in inches."""
    width = max(1.0, _NARROWEST_KEY / size[0])
    place = axes.inset_axes(((1 - width) / 2, -0.27 / size[1], width, 0.13 / size[1]))
    bar = axes.figure.colorbar(shades, cax=place, orientation="horizontal")
    words = f"\u2212{limit:.2f}\nagainst", "0", f"+{limit:.2f}\nfor"
    bar.set_ticks([-limit, 0.0, limit], labels=list(words))
    for tick, side in zip(place.get_xticklabels(), ("left", "center", "right"), strict=True):
        tick.set(fontsize=9, horizontalalignment=side)
    place.add_patch(
        Rectangle((-limit, 0), limit, 1, fill=False, hatch=_LINES, edgecolor=AGAINST, linewidth=0)
    )


# On import, matplotlib obeys a file matplotlibrc in the current folder, which may be any user's and may start
# LaTeX. The user's own settings are not used either, so that plots are the same everywhere.
with elsewhere():
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text

matplotlib.rcdefaults()
