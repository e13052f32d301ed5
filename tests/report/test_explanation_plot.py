"""The drawing of an explanation: bars and names, and no text that overlaps another or leaves the figure."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from crnr_cli.recipe.steps import Tile
from crnr_cli.report import plots
from crnr_cli.report.explanation_plot import fit, measure, wrap
from crnr_cli.report.plots import TileDrawing, tiles_figure
from helpers.browser import no_complaint, opened, requests
from helpers.runner import Runner
from helpers.samples import make_images

pytestmark = pytest.mark.filterwarnings("ignore:Glyph .* missing from")  # as when crnr draws
NAMES: dict[str, Callable[[int], str]] = {
    "short": str,
    "words": lambda i: f"Chinese giant salamander {i}",
    "one long word": lambda i: f"{'a_class_in_capitals_'.upper() * 5}{i}",
    "wide letters": lambda i: f"{'W' * 60}{i}",
    "other scripts": lambda i: f"{'大サンショウウオ' * 3} $x^2$ {i}",
}


def shown_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Return all texts that are drawn, with their boxes in pixels."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in texts]


def assert_readable(figure: Figure) -> None:
    texts = shown_texts(figure)
    for words, box in texts:
        assert box.x0 >= 0, words
        assert box.y0 >= 0, words
        assert box.x1 <= figure.bbox.x1, words
        assert box.y1 <= figure.bbox.y1, words
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        along = min(a.y1, b.y1) - max(a.y0, b.y0)
        # Boxes include the room above small letters, so those of two lines may touch.
        assert across <= 0.5 or along <= 0.35 * min(a.height, b.height), (one, other)


def bars(figure: Figure) -> dict[str, Rectangle]:
    """Return the bars by the names next to them, from top to bottom; with two methods, of the first."""
    for axes in figure.axes:
        if names := [tick.get_text() for tick in axes.get_yticklabels() if axes.containers]:
            return dict(zip(names, axes.containers[0], strict=True))
    raise AssertionError("no bars")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    found: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: found.append(figure))
    return found


def build_gallery(crnr: Runner, names: list[str], *options: str, per_class: int = 4) -> None:
    """gallery.h5, and queries.npz with one query of the first class and one of none."""
    rng = np.random.default_rng(0)
    centres = rng.random((len(names), 20))
    features = np.repeat(centres, per_class, axis=0) + 0.2 * rng.random((len(names) * per_class, 20))
    np.savez(crnr.here / "gallery.npz", features=features, labels=np.repeat(names, per_class))
    np.savez(crnr.here / "queries.npz", features=np.vstack([centres[0], np.ones(20)]))
    assert crnr("build", "gallery.npz", "-q", *options).exit == 0


@pytest.mark.parametrize(
    ("kind", "count"),
    [*((kind, 30) for kind in NAMES), *itertools.product(("words", "one long word"), (3, 300))],
)
def test_drawing_shows_the_best_classes_without_overlap(
    crnr: Runner, drawn: list[Figure], kind: str, count: int
) -> None:
    build_gallery(crnr, [NAMES[kind](i) for i in range(count)], *(["--calibrate"] if count == 30 else []))
    for row in (0, 1):
        record = crnr("explain", f"queries.npz#{row}", "-o", "w.png", "--json", "-q")
        assert (record.exit, record.err) == (0, "")
        (answer,) = json.loads(record.out)["explanations"]
        figure = drawn.pop()
        assert_readable(figure)
        residuals = answer["residuals"]
        best = sorted(residuals, key=residuals.__getitem__)[:12]
        found = bars(figure)
        assert len(found) == min(12, count)
        for (name, bar), expected in zip(found.items(), best, strict=True):
            begin, _, end = name.partition("…")
            assert expected.startswith(begin)
            assert expected.endswith(end or begin)
            length = residuals[expected] / max(residuals.values())
            assert bar.get_width() == pytest.approx(length, rel=1e-5)
        words = [text for text, _ in shown_texts(figure)]
        for name in best:
            assert f"{residuals[name]:.4f}" in words
            if count == 30:
                assert f"{answer['probabilities'][name]:.4f}" in words
        more = [f"{count - 12} more classes have larger residuals"] if count > 12 else []
        assert [text for text in words if "more class" in text] == more


def test_true_class_far_down_has_a_bar(crnr: Runner, drawn: list[Figure]) -> None:
    names = [f"class {i}" for i in range(30)]
    build_gallery(crnr, names)
    with np.load(crnr.here / "queries.npz") as file:
        features = file["features"][:1]
    residuals = json.loads(crnr("explain", "queries.npz#0", "--json").out)["explanations"][0]["residuals"]
    worst = max(residuals, key=residuals.__getitem__)
    np.savez(crnr.here / "labelled.npz", features=features, labels=[worst])
    assert crnr("explain", "labelled.npz", "-o", "w.png", "-q").exit == 0
    assert list(bars(drawn[0]))[12:] == [worst]
    assert_readable(drawn[0])


@pytest.mark.parametrize("method", ["nn", "svm"])
def test_method_without_weights_has_no_panel_for_them(crnr: Runner, drawn: list[Figure], method: str) -> None:
    build_gallery(crnr, ["ant", "bee", "cow"], "--method", method)
    assert crnr("explain", "queries.npz#0", "-o", "w.png", "-q").exit == 0
    words = " ".join(text for text, _ in shown_texts(drawn[0]))
    assert "weight" not in words
    assert len(drawn[0].axes) == 1
    assert crnr("explain", "queries.npz#0", "-o", "w.html", "-q").exit == 0
    assert "<svg" not in (crnr.here / "w.html").read_text()


def test_bars_of_scores_begin_at_the_lowest(crnr: Runner, drawn: list[Figure]) -> None:
    build_gallery(crnr, ["ant", "bee", "cow"], "--method", "svm")
    record = json.loads(crnr("explain", "queries.npz#0", "-o", "w.png", "-q", "--json").out)
    scores = {name: -value for name, value in record["explanations"][0]["residuals"].items()}
    low, high = min(scores.values()), max(scores.values())
    lengths = {name: bar.get_width() for name, bar in bars(drawn[0]).items()}
    assert lengths == pytest.approx({name: (score - low) / (high - low) for name, score in scores.items()})


@pytest.mark.parametrize("size", [(16, 16), (60, 10), (10, 60)])
def test_drawing_of_images_and_tiles_is_readable(
    crnr: Runner, drawn: list[Figure], size: tuple[int, int]
) -> None:
    make_images(crnr.here / "gallery", [NAMES["words"](i) for i in range(14)], size=size)
    steps = ["--parts", "2x2", "--extractor", "pixels", "--size", f"{size[0]}x{size[1]}"]
    assert crnr("build", "gallery", "-q", *steps).exit == 0
    query = f"gallery/{NAMES['words'](3)}/1.png"
    assert crnr("explain", query, "-o", "w.png", "--compare-with", "nn", "-q").exit == 0
    figure = drawn[0]
    assert sum(bool(axes.images) for axes in figure.axes) == 8 + 2  # the query, seven examples, and the tiles
    assert_readable(figure)


@pytest.mark.parametrize("shape", [(64, 64), (200, 20), (20, 200), (1, 300), (300, 1)])
def test_title_and_key_of_tiles_are_within_the_figure(shape: tuple[int, int]) -> None:
    tiles = [Tile(0, 0.5, 0, 1), Tile(0.5, 1, 0, 1)]
    image = np.zeros((*shape, 3), np.uint8)
    title = f"2 of 2 tiles for {'a class with a long name' * 3}"
    assert_readable(tiles_figure(TileDrawing(title, image, tiles, np.array([0.2, -0.1]), ["", "bee"])))


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("width", [0.3, 1.0, 3.0])
def test_fitted_text_is_as_long_as_its_room_allows(kind: str, width: float) -> None:
    name = NAMES[kind](12345)
    text = fit(name, width, 10)
    assert measure(text, 10) <= width or len(text) == 1
    if text != name:
        assert measure(name, 10, bold=True) > width
        begin, _, end = text.partition("…")
        assert name.startswith(begin.strip())
        assert name.endswith(end.strip())


def test_wrapped_text_keeps_every_word() -> None:
    text = " ".join(f"word{i}" for i in range(40))
    lines = wrap(text, 2, 10)
    assert " ".join(lines) == text
    assert len(lines) > 4
    assert max(measure(line, 10) for line in lines) <= 2


_GEOMETRY = """
const boxes = [...document.querySelectorAll('.best th, .best td, .key span, .ends span')]
  .map(e => e.getBoundingClientRect()).filter(b => b.width && b.height);
const bars = [...document.querySelectorAll('.best i')].map(e => e.getBoundingClientRect().width);
let overlaps = 0;
for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1))
  if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) overlaps++;
const cells = [...document.querySelectorAll('.best th, .best td')];
const cut = cells.filter(e => e.scrollWidth > e.clientWidth + 1);
return [document.documentElement.scrollWidth, overlaps, cut.length, bars,
        document.querySelector('svg.weights').getBoundingClientRect().width];
"""


@pytest.mark.parametrize("count", [3, 30, 300])
def test_page_is_readable_at_any_width(crnr: Runner, browser: Any, count: int) -> None:
    build_gallery(crnr, [NAMES["words"](i) for i in range(count)], "--calibrate")
    page = crnr.here / "why.html"
    assert crnr("explain", "queries.npz#1", "-o", page, "-q").exit == 0
    for width in (320, 400, 500, 1200):
        opened(browser, page, width)
        full, overlaps, cut, lengths, drawing = browser.execute_script(_GEOMETRY)
        assert full <= width
        assert (overlaps, cut) == (0, 0)
        assert len(lengths) == min(12, count)
        assert max(lengths) > width / 16
        assert width / 2 < drawing <= width
        assert requests(browser) == [page.as_uri()]
        assert no_complaint(browser)


def test_page_draws_every_weight_of_a_small_gallery(crnr: Runner) -> None:
    build_gallery(crnr, ["ant", "bee", "cow"])
    record = json.loads(crnr("explain", "queries.npz#0", "-o", "w.html", "-q", "--json").out)
    (answer,) = record["explanations"]
    paths = dict(re.findall(r'<path class="rank-(\d)" d="([^"]*)"', Path(crnr.here / "w.html").read_text()))
    assert {rank: lines.count("M") for rank, lines in paths.items()} == {"1": 4, "2": 4, "3": 4}
    heights = [-float(y) for lines in paths.values() for y in re.findall(r"V(\S+?)(?=M|$)", lines)]
    weights = sorted((abs(sample["weight"]) for sample in answer["strongest"]), reverse=True)
    largest = sorted(map(abs, heights), reverse=True)[: len(weights)]
    assert largest == pytest.approx([weight / weights[0] for weight in weights], abs=0.006)
