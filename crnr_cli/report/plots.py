"""Plots with matplotlib. Figures are made without pyplot, so that no window is opened."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.recipe.steps import Tile
from crnr_cli.records import dataclass
from crnr_cli.system.files import replacing
from crnr_cli.system.folders import elsewhere

FORMATS = ("png", "svg", "pdf")
# The colours of Okabe and Ito, which most colour-blind people can distinguish.
_LONGEST_NAME = 44  # letters of a name that fit into one of two columns of a legend
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")
FOR, AGAINST = "#0072b2", "#d55e00"  # most colour-blind people can distinguish these
_LINES = "///"
_NARROWEST_KEY, _LOWEST_TILES = 1.8, 0.5  # inches
_WEAKEST = 0.02  # the margin that is always shaded faintly, even if no other is larger
_MOST_HATCHED = 1000  # tiles; more would take too long
_BAND = 0.11  # the height of a part that is not a tile, as a share of the image's
_STRONGEST = 0.66  # the opacity of the largest margin
_LIGHTER = 0.6  # the share of contrast that the image keeps, so that shades are visible on dark tiles
_LETTER = 0.58  # the width of a letter, as a share of its height
_FIGURE = 3.3  # the width of a margin such as +0.87, likewise
_LONGEST_TITLE = 40  # letters
TILES_ABOVE, TILES_BELOW = 0.32, 0.75  # inches next to tiles, for their title and their key
_SMALLEST_TEXT, _LARGEST_TEXT = 4.5, 10.0  # in points
_READABLE = 7.0  # points: text shrinks to this size to fit; below, names are shortened instead
__all__ = [
    "Axes",
    "Figure",
    "FontProperties",
    "LinearSegmentedColormap",
    "Normalize",
    "PolyCollection",
    "Rectangle",
    "ScalarMappable",
    "Text",
    "TextToPath",
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
    for (name, values), color in zip(accuracies.items(), COLORS, strict=False):
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
    width, above, below = 4.8, TILES_ABOVE, TILES_BELOW
    height = find_tiles_height(drawing, (width, width))
    total = above + height + below
    figure = Figure(figsize=(width + 0.4, total))
    box = (0.2 / (width + 0.4), below / total, width / (width + 0.4), height / total)
    draw_tiles(figure.add_axes(box), drawing, (width, height))
    return figure


def find_tiles_height(drawing: TileDrawing, room: tuple[float, float]) -> float:
    """Return the height in inches of the tiles in this room, if they are as wide or as high as it is."""
    height, width = (1, 1) if drawing.image is None else drawing.image.shape[:2]
    lowest = float(_boxes(drawing.tiles, width, height)[:, 3].max())
    return max(_LOWEST_TILES, min(room[1], float(room[0] * lowest / width)))


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
    axes.set_anchor("NW")  # the title and the key may be wider than the image
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
    points = min(_LARGEST_TEXT, (sizes[:, 1] / lines_in).min(), sizes[:, 0].min() / _FIGURE)
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
    place = axes.inset_axes((0, -0.27 / size[1], width, 0.13 / size[1]))
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
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text
    from matplotlib.textpath import TextToPath

matplotlib.rcdefaults()
