"""The drawing of a query in its parts, read from the figure, from its pixels and from the page."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from crnr_cli.images.thumbnails import read_thumbnails
from crnr_cli.recipe.steps import Tile
from crnr_cli.report import plots
from crnr_cli.report.plots import TileDrawing, draw_tiles, tiles_figure
from helpers.runner import Runner
from helpers.samples import draw_image, make_images

HALVES = [Tile(0, 0.5, 0, 0.5), Tile(0, 0.5, 0.5, 1), Tile(0.5, 1, 0, 0.5), Tile(0.5, 1, 0.5, 1)]


def drawing(margins: list[float], others: list[str], *more: Tile, side: int = 64) -> TileDrawing:
    blank = np.full((side, side, 3), 255, np.uint8)
    return TileDrawing("title", blank, [*HALVES, *more], np.array(margins), others)


def drawn(figure: Figure) -> tuple[np.ndarray, list[str]]:
    """Return the pixels of the image alone, and its texts."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    box = figure.axes[0].get_window_extent()
    top, bottom = len(pixels) - round(box.y1), len(pixels) - round(box.y0)
    texts = [text.get_text() for text in figure.axes[0].texts]
    return pixels[top:bottom, round(box.x0) : round(box.x1)], texts


def corner(pixels: np.ndarray, row: float, column: float) -> np.ndarray:
    """Return the colours near a corner of a tile, where nothing is written."""
    i, j = round(row * len(pixels)), round(column * pixels.shape[1])
    return pixels[i + 6 : i + 16, j + 6 : j + 16].reshape(-1, 3)


def test_a_tile_is_blue_if_it_is_for_the_label_and_orange_with_lines_if_it_is_against() -> None:
    pixels, texts = drawn(tiles_figure(drawing([0.4, -0.4, 0.1, 0.0], ["", "bee", "", ""])))
    strong, against, weak, nothing = (
        corner(pixels, *place) for place in ((0, 0), (0, 0.5), (0.5, 0), (0.5, 0.5))
    )
    assert (strong[:, 2] > strong[:, 0] + 60).all()  # blue
    assert (against[:, 0] > against[:, 2] + 60).all()  # orange
    assert len(np.unique(against, axis=0)) > 3 == len(np.unique(strong, axis=0)) + 2  # only it has lines
    assert (weak[:, 2] > weak[:, 0] + 15).all()
    assert weak.mean() > strong.mean() + 20  # fainter
    assert (nothing == 255).all()
    assert texts == ["+0.40", "\u22120.40\nbee", "+0.10", "0.00"]


def test_the_key_names_both_ends_and_has_the_lines() -> None:
    figure = tiles_figure(drawing([0.4, -0.15, 0.1, 0.0], ["", "bee", "", ""]))
    (key,) = figure.axes[0].child_axes
    assert [text.get_text() for text in key.get_xticklabels()] == ["\u22120.40\nagainst", "0", "+0.40\nfor"]
    (lines,) = (patch for patch in key.patches if patch.get_hatch())
    assert (lines.get_x(), lines.get_width()) == pytest.approx((-0.4, 0.4))


def test_the_image_is_shown_in_grey_behind_the_tiles() -> None:
    red = np.zeros((64, 64, 3), np.uint8)
    red[..., 0] = 240
    pixels, _ = drawn(tiles_figure(TileDrawing("title", red, HALVES, np.zeros(4), [""] * 4)))
    shown = corner(pixels, 0, 0)
    assert (shown == shown[:, :1]).all()
    assert ((shown > 80) & (shown < 200)).all()  # lighter than it is, but not white


def test_a_part_that_is_not_a_tile_is_a_band_below() -> None:
    whole = Tile(0, 1, 0, 1, "colour")
    pixels, texts = drawn(tiles_figure(drawing([0.2, 0.2, 0.2, 0.2, -0.2], [""] * 4 + ["bee"], whole)))
    assert texts[-1] == "colour \u22120.20  bee"
    band = pixels[-8:-2, 6:16].reshape(-1, 3)
    assert (band[:, 0] > band[:, 2] + 60).all()


def test_long_names_lose_their_prefix_and_small_tiles_have_no_text() -> None:
    others = ["", "person-00123", "person-00456", "person-00123 and more that does not fit"]
    shown = TileDrawing("t", None, HALVES, np.array([0.1, -0.1, -0.2, -0.3]), others, n_common=7)

    def texts(inches: float) -> list[str]:
        axes = Figure().subplots()
        draw_tiles(axes, shown, (inches, inches))
        return [text.get_text().partition("\n")[2] for text in axes.texts]

    assert texts(8)[1:] == others[1:]
    *short, shortest = texts(1.1)
    assert short == ["", "\u202600123", "\u202600456"]
    assert re.fullmatch("\u202600123.{0,3}\u2026", shortest)
    assert texts(0.3) == []


def test_thousands_of_tiles_are_drawn_as_one_shape() -> None:
    edges = np.linspace(0, 1, 41)
    tiles = [Tile(edges[i], edges[i + 1], edges[j], edges[j + 1]) for i in range(40) for j in range(40)]
    margins = np.resize([-0.1, 0.1], 1600)
    figure = tiles_figure(TileDrawing("t", None, tiles, margins, [""] * 1600))
    assert not figure.axes[0].patches
    pixels, _ = drawn(figure)
    column = pixels.shape[1] / 40
    orange, blue = pixels[50, round(column / 2)], pixels[50, round(1.5 * column)]
    assert orange[0] > orange[2]
    assert blue[2] > blue[0]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """An ant with one tile of a bee."""
    crnr = Runner(tmp_path_factory.mktemp("tiles"))
    make_images(crnr.here / "gallery", ("ant", "<i>bee</i>", "cow"), size=(16, 16))
    ant, bee = draw_image(0, 9, (16, 16)), draw_image(1, 9, (16, 16))
    ant.paste(bee.crop((0, 0, 8, 8)))
    ant.save(crnr.here / "query.png")
    build = ("build", "gallery", "--extractor", "pixels", "--parts", "2x2", "-o", "g.h5", "-q")
    assert crnr(*build).exit == 0
    return crnr


def parts_of(crnr: Runner, *against: str) -> list[list[dict]]:
    record = json.loads(crnr("explain", "query.png", "-g", "g.h5", *against, "--json").out)
    return [answer["parts"] for answer in record["explanations"]]


def test_the_drawing_has_the_margins_of_every_method(built: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    result = built("explain", "query.png", "-g", "g.h5", "--compare-with", "nn", "-o", "w.png", "-q")
    assert (result.exit, result.err) == (0, "")
    shaded = [axes for axes in figures[0].axes if axes.get_title(loc="left").endswith(" tiles for ant")]
    for axes, parts in zip(shaded, parts_of(built, "--compare-with", "nn"), strict=True):
        supporting = sum(part["margin"] > 0 for part in parts)
        assert axes.get_title(loc="left") == f"{supporting} of 4 tiles for ant"
        assert [text.get_text() for text in axes.texts] == [
            f"{part['margin']:+.2f}".replace("-", "\u2212")
            + (f"\n{part['label']}" if part["margin"] < 0 else "")
            for part in parts
        ]
        assert sum(patch.get_hatch() is not None for patch in axes.patches) == 4 - supporting


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_explain_writes_a_plot_of_tiles(built: Runner, suffix: str) -> None:
    result = built("explain", "query.png", "-g", "g.h5", "-o", f"w.{suffix}")
    assert (result.exit, result.err) == (0, f"wrote w.{suffix}\n")
    written = (built.here / f"w.{suffix}").read_bytes()
    assert written.startswith({"svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    assert suffix == "pdf" or b"<!-- 3 of 4 tiles for ant -->" in written


def test_explain_page_describes_the_tiles_as_text(built: Runner) -> None:
    result = built("explain", "query.png", "-g", "g.h5", "--compare-with", "nn", "-o", "w.html")
    assert (result.exit, result.err) == (0, "wrote w.html\n")
    page = (built.here / "w.html").read_text()
    sections = re.findall(r"<h2 [^>]*>Tile by tile, method (\w+)</h2>(.*?)</section>", page, re.DOTALL)
    assert [method for method, _ in sections] == ["crnr", "nn"]
    assert "<i>bee" not in page
    for (_, section), parts in zip(sections, parts_of(built, "--compare-with", "nn"), strict=True):
        supporting = sum(part["margin"] > 0 for part in parts)
        (alt,) = re.findall(r'src="data:image/svg\+xml;base64,[^"]+" alt="([^"]+)"', section)
        assert f"{supporting} of 4 tiles support ant, {4 - supporting} contradict" in alt
        rows = re.findall(r"<tr><th[^>]*>([^<]+)</th><td[^>]*>([^<]+)</td><td>([^<]+)</td>", section)
        assert [tuple(map(html.unescape, row)) for row in rows] == [
            (f"row {part['row']}, column {part['column']}", part["label"], f"{part['margin']:+.3f}")
            for part in parts
        ]
    assert "Both are means over the tiles." in page


def test_explain_page_without_parts_shows_none(built: Runner) -> None:
    built("build", "gallery", "-o", "whole.h5", "-q")
    assert built("explain", "query.png", "-g", "whole.h5", "-o", "whole.html").exit == 0
    page = (built.here / "whole.html").read_text()
    assert "Part by part" not in page
    assert "means over the parts" not in page


def test_a_thumbnail_can_be_larger(tmp_path: Path) -> None:
    path = str(tmp_path / "large.png")
    Image.new("RGB", (1000, 500), (9, 200, 9)).save(path)
    shapes = [read_thumbnails([path], longest=side)[path].shape for side in (96, 384)]
    assert shapes == [(48, 96, 3), (192, 384, 3)]
