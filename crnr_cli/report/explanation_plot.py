"""The drawing of an explanation: one narrow column, readable on a phone too, with measured texts.

Every text is measured, then shortened or wrapped to fit its place, so names never overlap.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.report.plots import (
    COLORS,
    TILES_ABOVE,
    TILES_BELOW,
    Axes,
    Figure,
    FontProperties,
    TextToPath,
    TileDrawing,
    draw_tiles,
    find_tiles_height,
)

_MAX_SHAPES = 5000  # in an SVG or PDF; more are drawn as pixels
_GREYS = ("#8d99a6", "#c3cbd3")  # of neighbouring classes, to tell their weights apart
_BAR = "#a9b4bf"
_INK, _SOFT, _DOUBT = "#1b2430", "#5a6675", "#b3420c"
# All lengths are in inches, and all sizes of text in points.
_WIDTH, _MARGIN = 5.6, 0.15  # 10 points are about 10 pixels on a screen of 400 pixels
_TITLE, _TEXT, _SMALL = 13.0, 10.0, 9.0
_LINE = 1.35 / 72  # the height of a line of text, per point
_PER_ROW = 4  # images
_IMAGE = 0.95
_BAR_HEIGHT = 0.23
_LONGEST_NAME = 1.9
_GAP = 0.12
_WEIGHTS_HEIGHT = 1.2


@dataclass(frozen=True)
class Panel:
    """One method's explanation of one query."""

    title: str
    label: int
    runner_up: int
    shown: Sequence[int]  # the classes that have bars, the best first
    lengths: Sequence[float]  # of these bars, from 0 to 1
    measure: str  # the title of the bars
    columns: Mapping[str, Sequence[str]]  # figures next to the bars
    code: Array | None  # (n,): the weight of each sample; None for a method without weights
    lines: Sequence[str] = ()  # sentences below the title
    doubt: str | None = None  # why no class fits well
    rest: str | None = None  # about the classes without a bar
    tiles: TileDrawing | None = None  # the query in its parts, if it has any


@dataclass
class _Column:
    """The parts of the drawing from top to bottom, before the height of the figure is known."""

    figure: Figure
    texts: list[tuple[float, float, str, dict[str, Any]]] = field(default_factory=list)
    axes: list[tuple[float, float, float, float, Axes]] = field(default_factory=list)
    height: float = _MARGIN

    def write(self, text: str, size: float, **style: Any) -> None:
        """Write a paragraph over the whole width."""
        for line in wrap(text, _WIDTH - 2 * _MARGIN, size, bold="fontweight" in style):
            self.put(_MARGIN, line, size, **style)
            self.height += size * _LINE

    def put(self, left: float, text: str, size: float, down: float = 0.0, **style: Any) -> None:
        """Write one line without moving on."""
        self.texts.append((left, self.height + down, text, {"fontsize": size, "color": _INK, **style}))

    def add_axes(self, left: float, width: float, height: float, down: float = 0.0) -> Axes:
        """Add axes without moving on."""
        axes = self.figure.add_axes((0, 0, 1, 1), label=str(len(self.axes)))
        self.axes.append((left, self.height + down, width, height, axes))
        return axes

    def finish(self) -> None:
        """Give the figure its height, and everything its place."""
        total = self.height + _MARGIN
        self.figure.set_size_inches(_WIDTH, total)
        for left, top, width, height, axes in self.axes:
            axes.set_position((left / _WIDTH, 1 - (top + height) / total, width / _WIDTH, height / total))
        for left, top, text, style in self.texts:
            self.figure.text(left / _WIDTH, 1 - top / total, text, **{"va": "top", **style})


def draw_explanation(
    panels: Sequence[Panel],
    edges: Array,
    classes: Sequence[str],
    images: Sequence[tuple[str, Array, int | None]],
    heading: str = "",
) -> Figure:
    """Draw the images, then for each method the best classes as bars, and the weights of all samples.

    With parts, the image of the query with the support of its parts comes before the bars. `images` are
    (title, RGB, class) of the query, whose class is None, and of gallery samples.
    """
    colors = _class_colors(panels, len(classes))
    column = _Column(Figure(figsize=(_WIDTH, 1)))
    if heading:
        column.write(heading, _SMALL, color=_SOFT)
        column.height += _GAP
    for first in range(0, len(images), _PER_ROW):
        _draw_images(column, images[first : first + _PER_ROW], colors)
    for panel in panels:
        column.height += _GAP
        column.write(panel.title, _TITLE, fontweight="bold", color=colors[panel.label])
        if panel.doubt:
            column.write(panel.doubt, _TEXT, fontweight="bold", color=_DOUBT)
        for line in panel.lines:
            column.write(line, _TEXT)
        column.height += _GAP
        if panel.tiles:
            _draw_tiles(column, panel.tiles)
        _draw_bars(column, panel, classes, colors)
        if panel.code is not None:
            _draw_weights(column, panel, edges, classes, colors)
    column.finish()
    return column.figure


def _class_colors(panels: Sequence[Panel], count: int) -> list[str]:
    """Return strong colours for labels and runners-up, the same in every panel, and greys for others."""
    named = list(dict.fromkeys(i for panel in panels for i in (panel.label, panel.runner_up)))
    return [COLORS[named.index(i)] if i in named else _GREYS[i % 2] for i in range(count)]


def _draw_images(
    column: _Column, images: Sequence[tuple[str, Array, int | None]], colors: Sequence[str]
) -> None:
    cell = (_WIDTH - 2 * _MARGIN) / _PER_ROW
    n_lines = max(title.count("\n") + 1 for title, _, _ in images)
    words = n_lines * _SMALL * _LINE
    for i, (title, image, label) in enumerate(images):
        left = _MARGIN + i * cell
        for number, line in enumerate(title.splitlines()):
            text = fit(line, cell - 0.08, _SMALL)
            column.put(left + cell / 2, text, _SMALL, number * _SMALL * _LINE, ha="center")
        axes = column.add_axes(left + (cell - _IMAGE) / 2, _IMAGE, _IMAGE, words + 0.04)
        axes.imshow(image, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=_INK if label is None else colors[label], linewidth=2.5)
    column.height += words + 0.04 + _IMAGE + _GAP


def _draw_tiles(column: _Column, drawing: TileDrawing) -> None:
    room = (_WIDTH - 2 * _MARGIN, 3.0)
    height = find_tiles_height(drawing, room)
    draw_tiles(column.add_axes(_MARGIN, room[0], height, TILES_ABOVE), drawing, (room[0], height))
    column.height += TILES_ABOVE + height + TILES_BELOW


def _draw_bars(column: _Column, panel: Panel, classes: Sequence[str], colors: Sequence[str]) -> None:
    """Draw a bar per class between its name and its figures, as in the terminal."""
    names = [fit(classes[i], _LONGEST_NAME, _TEXT) for i in panel.shown]
    left = _MARGIN + max(measure(name, _TEXT, bold=True) for name in names) + _GAP
    widths = [
        max(measure(title, _SMALL), *(measure(text, _TEXT) for text in texts)) + _GAP
        for title, texts in panel.columns.items()
    ]
    right = _WIDTH - _MARGIN - sum(widths)
    column.put(left, fit(panel.measure, right - left, _SMALL), _SMALL, color=_SOFT)
    ends = (_WIDTH - _MARGIN - sum(widths[i + 1 :]) for i in range(len(widths)))
    columns = list(zip(ends, panel.columns.items(), strict=True))
    for end, (title, _) in columns:
        column.put(end, title, _SMALL, ha="right", color=_SOFT)
    column.height += _SMALL * _LINE + 0.02
    height = _BAR_HEIGHT * len(names)
    axes = column.add_axes(left, right - left, height)
    places = np.arange(len(names))
    bars = [_BAR if colors[i] in _GREYS else colors[i] for i in panel.shown]
    axes.barh(places, panel.lengths, color=bars, height=0.7)
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.5, -0.5), xticks=[])
    axes.spines[:].set_visible(False)
    axes.set_yticks(places, names, fontsize=_TEXT, color=_INK)
    axes.tick_params(axis="y", length=0, pad=72 * _GAP / 2)
    for i, tick in zip(panel.shown, axes.get_yticklabels(), strict=True):
        if i in (panel.label, panel.runner_up):
            tick.set(color=colors[i], fontweight="bold")
    for end, (_, texts) in columns:
        for place, text in zip(places.tolist(), texts, strict=True):
            across = (end - left) / (right - left)
            axes.text(
                across,
                place,
                text,
                transform=axes.get_yaxis_transform(),
                fontsize=_TEXT,
                color=_INK,
                ha="right",
                va="center_baseline",
            )
    column.height += height
    if panel.rest:
        column.height += 0.05
        column.write(panel.rest, _SMALL, color=_SOFT)
    column.height += _GAP


def _draw_weights(
    column: _Column, panel: Panel, edges: Array, classes: Sequence[str], colors: Sequence[str]
) -> None:
    """Draw the weight of each sample as a line, the label and the runner-up in their colours."""
    assert panel.code is not None
    column.write("weight of each example, ordered by class", _SMALL, color=_SOFT)
    third = (_WIDTH - 2 * _MARGIN) / 3
    key = [(classes[i], colors[i]) for i in (panel.label, panel.runner_up)]
    if len(classes) > len(key):
        key.append(("other classes", _SOFT))
    for i, (name, color) in enumerate(key):
        text = fit(f"\u25a0 {name}", third - _GAP, _SMALL)
        column.put(_MARGIN + i * third, text, _SMALL, color=color)
    column.height += _SMALL * _LINE + 0.05
    class_of = np.repeat(np.arange(len(classes)), np.diff(edges))
    extremes = sorted({0.0, float(max(panel.code.max(), 0.0)) or 1.0})
    numbers = [f"{weight:.2g}" for weight in extremes]
    left = _MARGIN + max(measure(number, _SMALL) for number in numbers) + _GAP
    axes = column.add_axes(left, _WIDTH - _MARGIN - left, _WEIGHTS_HEIGHT)
    _draw_lines(axes, panel.code, class_of, colors, panel)
    axes.axhline(0, color="#444444", linewidth=0.6)
    axes.set_xlim(-0.5, edges[-1] - 0.5)
    axes.set_xticks([])
    axes.set_yticks(extremes, numbers, fontsize=_SMALL)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    column.height += _WEIGHTS_HEIGHT + _GAP


def _draw_lines(axes: Axes, heights: Array, class_of: Array, colors: Sequence[str], panel: Panel) -> None:
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
            linewidth=1.2,
            zorder=over,
            rasterized=len(places) > _MAX_SHAPES,
        )


def measure(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a text in inches."""
    font = FontProperties(size=size, weight="bold" if bold else "normal")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")  # drawn as a box
        width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fit(text: str, width: float, size: float) -> str:
    """Return a text that is at most this wide: names often differ at the end, so it loses its middle."""
    if measure(text, size, bold=True) <= width:
        return text
    low, high = 0, len(text) - 1  # the number of letters that remain
    while low < high:
        kept = (low + high + 1) // 2
        low, high = (kept, high) if measure(_cut(text, kept), size, bold=True) <= width else (low, kept - 1)
    return _cut(text, low)


def _cut(text: str, kept: int) -> str:
    return text[: kept - kept // 3].rstrip() + "\u2026" + text[len(text) - kept // 3 :].lstrip()


def wrap(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return the lines of a paragraph; a word that is wider than a line loses its middle."""
    lines: list[str] = []
    for word in text.split():
        if lines and measure(f"{lines[-1]} {word}", size, bold=bold) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(fit(word, width, size))
    return lines
