"""The picture of a query with its tiles shaded: which speak for the label, and which against it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.recipe.parts import Tile
from crnr_cli.report.canvas import (
    Axes,
    Figure,
    LinearSegmentedColormap,
    Normalize,
    PolyCollection,
    Rectangle,
    ScalarMappable,
    to_rgba,
    withStroke,
)

FOR, AGAINST = "#0072b2", "#d55e00"  # which most colour-blind people can distinguish
_LINES = "///"
_NARROWEST_KEY = 1.8  # inches
_WEAKEST = 0.02  # the margin that is always shaded faintly, even if no other is larger
_MOST_HATCHED = 1000  # tiles; more would take too long
_BAND = 0.11  # the height of a part that is not a tile, as a share of the picture's
_STRONGEST = 0.66  # the opacity of the largest margin
_LIGHTER = 0.6  # the share of its contrast that the picture keeps, so that shades are seen on dark tiles too
_LETTER = 0.58  # the width of a letter, as a share of its height
_LONGEST_TITLE = 40  # letters
_SMALLEST_TEXT, _LARGEST_TEXT = 4.5, 10.0  # in points
_READABLE = 7.0  # points to which text shrinks so that names fit; below, names are shortened instead


@dataclass(frozen=True)
class TileDrawing:
    """What is drawn of the parts of a query, for one method."""

    title: str
    picture: Array | None  # RGB; None if there is no picture to show
    tiles: Sequence[Tile]
    margins: Array  # (P,): how much each part supports the label
    others: Sequence[str]  # the class that a part against the label speaks for; empty for the other parts
    n_common: int = 0  # letters with which the names of all classes begin, which are left out first


def tiles_figure(drawing: TileDrawing) -> Figure:
    rows, columns = (1, 1) if drawing.picture is None else drawing.picture.shape[:2]
    height = min(4.8, max(1.5, 4.8 * rows / columns))
    figure = Figure(figsize=(5.2, height + 1.1), layout="constrained")
    draw_tiles(figure.subplots(), drawing, (4.8, height))
    return figure


def draw_tiles(axes: Axes, drawing: TileDrawing, room: tuple[float, float]) -> None:
    """`room` is about the width and height in inches that the picture can take."""
    picture = np.full((4, 4, 3), 255, np.uint8) if drawing.picture is None else drawing.picture
    height, width = picture.shape[:2]
    # In grey, so that its own colours are not taken for a shade.
    grey = 255 - (255 - picture.astype(float).mean(axis=2)) * _LIGHTER
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
    axes.set_title(_fitted(drawing.title, _LONGEST_TITLE), fontsize=11, loc="left")
    scale = min(room[0] / width, room[1] / lowest)  # inches per pixel
    _write(axes, drawing, boxes, 72 * scale)
    _key(axes, shades, limit, (width * scale, lowest * scale))


def _shades() -> LinearSegmentedColormap:
    """From one colour through nothing to the other; small margins are seen beside large ones."""
    places = np.linspace(-1, 1, 257)
    # As numbers: matplotlib 3.8 takes a colour with its opacity for a place with its colour.
    colors = [
        to_rgba(AGAINST if place < 0 else FOR, _STRONGEST * abs(place) ** 0.7) for place in places.tolist()
    ]
    return LinearSegmentedColormap.from_list("support", colors, N=257)


def _boxes(tiles: Sequence[Tile], width: int, height: int) -> Array:
    """(P, 4): left, top, right and bottom in pixels; a part that is not a tile is a band below the others."""
    boxes, bottom = [], 1.0
    for tile in tiles:
        if tile.name:
            boxes.append((0.0, bottom + _BAND / 4, 1.0, bottom + _BAND))
            bottom += _BAND
        else:
            boxes.append((tile.left, tile.top, tile.right, tile.bottom))
    return np.array(boxes) * (width, height, width, height)


def _hatch(axes: Axes, box: Array, strength: float) -> None:
    """Lines, so that the two kinds of tiles differ without colours too; fainter for a small margin."""
    left, top, right, bottom = box.tolist()
    color = (AGAINST, min(1.0, 0.25 + strength))
    axes.add_patch(
        Rectangle(
            (left, top), right - left, bottom - top, fill=False, hatch=_LINES, edgecolor=color, linewidth=0
        )
    )


def _write(axes: Axes, drawing: TileDrawing, boxes: Array, scale: float) -> None:
    """The margin in each tile and, if it is against the label, the class; `scale` is in points per pixel."""
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
        name = _fitted(other, fits, drawing.n_common)
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


def _fitted(name: str, longest: int, n_common: int = 0) -> str:
    if len(name) > longest and n_common > 1:
        name = "\u2026" + name[n_common:]
    return name if len(name) <= longest else name[: longest - 1] + "\u2026"


def _key(axes: Axes, shades: ScalarMappable, limit: float, size: tuple[float, float]) -> None:
    """Which colour is which margin; `size` is that of the picture in inches."""
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
