"""The report: a page that is whole, safe and of use, seen by a real browser where there is one."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.gallery import queries
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.report import evaluation
from crnr_cli.report.evaluation import MAX_IMAGES, choose_images, draw_thresholds, histogram, matrix_cells
from crnr_cli.report.names import common_folder
from crnr_cli.results.decision import Prediction
from crnr_cli.results.scores import score
from crnr_cli.results.thresholds import ThresholdTable, measure_steps
from crnr_cli.system.extras import describe_missing
from helpers.browser import no_complaint, opened, requests
from helpers.patches import remove_extras
from helpers.paths import SAMPLE_DATA
from helpers.runner import Runner
from helpers.samples import make_images

EVIL = "<script>alert(1)</script>"
EVIL_PATH = "</script><img src=x onerror=alert(2)>.png"


def row(truth: str, label: str, margin: float = 0.1, path: str = "q/x.png") -> Prediction:
    return Prediction(path, truth, label, 0.5, "other", margin, "ok")


def write_csv(path: Path, rows: list[tuple[str, str, str, float]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth", "label", "margin", "status"])
        writer.writerows([*row, "ok"] for row in rows)
    return path


def evaluate_to_page(crnr: Runner, source: Path, page: Path, *options: str) -> str:
    result = crnr("evaluate", source, "--html", page, "-q", *options)
    assert result.exit == 0, result.err
    # Without the minute, which may be another one for the next page.
    return re.sub(r"\d{4}-\d\d-\d\d, \d\d:\d\d UTC", "DATE", page.read_text(encoding="utf-8"))


def test_cells_are_the_counts_and_the_rarest_mistake_is_seen() -> None:
    scores = score(["a"] * 100 + ["b"], ["a"] * 99 + ["b", "b"])
    cells = {(cell["row"], cell["column"]): cell for cell in matrix_cells(scores, np.arange(2))}
    assert {place: cell["count"] for place, cell in cells.items()} == {(0, 0): 99, (0, 1): 1, (1, 1): 1}
    assert cells[0, 1]["strength"] >= 0.25
    assert cells[1, 1]["strength"] == 1


def test_histogram_counts_every_answer_once() -> None:
    bins = histogram([row("a", "a", 0.9), row("a", "b", 0.0), row("a", "a", 0.05), row("b", "b", 0.9)])
    assert bins is not None
    assert (sum(bin["right"] for bin in bins), sum(bin["wrong"] for bin in bins)) == (3, 1)
    assert (bins[0]["wrong"], bins[-1]["right"]) == (1, 2)


def test_a_page_embeds_no_more_images_than_it_can_carry() -> None:
    mistakes = [row("a", f"b{i % 7}", path=f"{i}.png") for i in range(500)]
    paths = choose_images(mistakes)
    assert len(paths) == len(set(paths)) == MAX_IMAGES
    assert paths[:3] == ["0.png", "1.png", "2.png"]


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["q/a/1.png", "q/b/2.png"], "q/"),
        (["/x/a/1.png", "/y/2.png"], ""),
        (["/x/1.png", "y/2.png"], ""),
        (["1.png"], ""),
        ([], ""),
    ],
)
def test_the_folder_that_all_paths_share(paths: list[str], folder: str) -> None:
    assert common_folder(paths) == folder


def test_the_page_is_one_file_that_only_runs_its_own_script(crnr: Runner, tmp_path: Path) -> None:
    rows = [("q/1.png", "a", "b", 0.2), ("q/2.png", "b", "b", 0.2)]
    page = evaluate_to_page(crnr, write_csv(tmp_path / "p.csv", rows), tmp_path / "r.html")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)
    assert "http" not in re.sub(r"<meta http-equiv", "", page)
    script = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert len(script) == 1
    assert f"script-src 'sha256-{digest}'" in page
    assert "default-src 'none'" in page


def test_every_name_and_path_is_escaped(crnr: Runner, tmp_path: Path) -> None:
    rows = [(EVIL_PATH, EVIL, '"><b onclick=x>', 0.2), ("caf\udce9.png", "a", "a", 0.3)]
    path = tmp_path / "p.csv"
    with path.open("w", newline="", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth", "label", "margin", "status"])
        writer.writerows([*row, "ok"] for row in rows)
    page = evaluate_to_page(crnr, path, tmp_path / "r.html")
    assert EVIL not in page
    assert "<img src=x" not in page
    assert "<b onclick" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_report_without_jinja_names_the_extra(
    crnr: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_extras(monkeypatch.setattr)
    path = write_csv(tmp_path / "p.csv", [("q/1.png", "a", "a", 0.2)])
    result = crnr("evaluate", path, "--html", tmp_path / "r.html")
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {describe_missing('report', '--html', 'jinja2')}\n"


def test_a_page_that_cannot_be_written_is_refused_before_any_work(crnr: Runner, tmp_path: Path) -> None:
    path = write_csv(tmp_path / "p.csv", [("q/1.png", "a", "a", 0.2)])
    result = crnr("evaluate", path, "--html", tmp_path / "no" / "r.html")
    assert (result.exit, result.out) == (1, "")
    assert "does not exist; create it first" in result.err


@pytest.fixture(scope="module")
def digits_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on the sample data, with its images and its gallery."""
    crnr = Runner(tmp_path_factory.mktemp("digits"))
    built = crnr("build", SAMPLE_DATA / "gallery", "-q")
    assert built.exit == 0, built.err
    evaluate_to_page(crnr, SAMPLE_DATA / "queries", crnr.here / "r.html")
    return crnr.here / "r.html"


def test_images_and_the_gallery_are_in_the_page(digits_page: Path) -> None:
    page = digits_page.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert len(data["mistakes"]) > 0
    assert all(m["image"].startswith("data:image/png;base64,") for m in data["mistakes"])
    assert sum(count for _, _, count in data["cells"]) == 100
    assert "500 in 10 classes, 50 per class" in page
    assert "gradients, 28x28, cells of 4, 8 directions" in page


def test_the_page_loads_without_complaint_and_without_the_network(browser: Any, digits_page: Path) -> None:
    opened(browser, digits_page)
    assert browser.find_element("css selector", "h1").text.endswith("of 100 labelled correctly")
    loaded = "return [...document.images].map((image) => image.complete && image.naturalWidth)"
    assert set(browser.execute_script(loaded)) == {28}
    assert requests(browser) == [digits_page.as_uri()]
    assert no_complaint(browser)


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_screen(browser: Any, digits_page: Path, width: int) -> None:
    opened(browser, digits_page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def column(browser: Any, index: int) -> list[str]:
    rows = (
        "return [...document.querySelectorAll('#classes tbody tr')].map((row) => row.cells[%d].dataset.value)"
    )
    return browser.execute_script(rows % index)


def test_the_table_sorts_both_ways_by_any_column(browser: Any, digits_page: Path) -> None:
    opened(browser, digits_page)
    f1 = [float(value) for value in column(browser, 3)]
    assert f1 == sorted(f1)
    heads = browser.find_elements("css selector", "#classes thead th")
    heads[0].find_element("css selector", "button").click()
    assert column(browser, 0) == [str(digit) for digit in range(10)]
    heads[0].find_element("css selector", "button").click()
    assert column(browser, 0) == [str(digit) for digit in reversed(range(10))]
    assert [head.get_attribute("aria-sort") for head in heads] == ["descending", None, None, None, None]
    heads[2].find_element("css selector", "button").click()
    recall = [float(value) for value in column(browser, 2)]
    assert recall == sorted(recall)
    assert no_complaint(browser)


def test_a_cell_shows_its_mistakes_by_mouse_and_by_keyboard(browser: Any, digits_page: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    opened(browser, digits_page)
    data = json.loads(browser.execute_script("return document.getElementById('data').textContent"))
    truth, label, count = next(cell for cell in data["cells"] if cell[0] != cell[1])
    grid = browser.find_element("id", "grid")
    browser.execute_script("arguments[0].scrollIntoView()", grid)
    side = grid.size["width"] / 10
    away = [round((place + 0.5) * side - grid.size["width"] / 2) for place in (label, truth)]
    ActionChains(browser).move_to_element_with_offset(grid, *away).perform()
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed()
    assert tip.text == f"{truth}, labelled as {label}: {count} of 10 ({10 * count}.0%)"
    ActionChains(browser).click().perform()
    detail = browser.find_element("id", "detail")
    assert f"{truth} labelled as {label}" in detail.text
    expected = [m["path"] for m in data["mistakes"] if (m["truth"], m["label"]) == (truth, label)]
    assert len(expected) == count
    assert [item.text for item in detail.find_elements("css selector", ".path")] == expected
    detail.find_element("css selector", "button").click()
    assert browser.find_element("id", "overview").is_displayed()
    # The keyboard: from the first cell N goes to the first mistake in reading order, and Enter opens it.
    browser.execute_script("arguments[0].blur(); arguments[0].focus()", grid)
    grid.send_keys("n")
    spoken = browser.execute_script("return document.getElementById('spoken').textContent")
    assert spoken == f"{truth}, labelled as {label}: {count} of 10 ({10 * count}.0%)"
    grid.send_keys(Keys.ENTER)
    assert f"{truth} labelled as {label}" in detail.text
    grid.send_keys(Keys.HOME)
    grid.send_keys(Keys.ARROW_RIGHT)
    spoken = browser.execute_script("return document.getElementById('spoken').textContent")
    assert spoken.startswith(f"{truth}, labelled as 1: ") or (truth == 1 and "labelled correctly" in spoken)
    assert no_complaint(browser)


def test_a_class_named_as_a_script_does_nothing(crnr: Runner, browser: Any, tmp_path: Path) -> None:
    rows = [(EVIL_PATH, EVIL, "b", 0.3), ("q.png", EVIL, EVIL, 0.2), ("b.png", "b", EVIL, 0.2)]
    page = tmp_path / "r.html"
    evaluate_to_page(crnr, write_csv(tmp_path / "p.csv", rows), page)
    opened(browser, page)  # an alert would make every command after it fail
    browser.find_element("css selector", ".pairs button").click()
    detail = browser.find_element("id", "detail")
    assert detail.find_element("css selector", "h2").text == f"{EVIL} labelled as b"
    assert detail.find_element("css selector", ".path").text == EVIL_PATH
    assert browser.execute_script("return document.scripts.length") == 2
    assert requests(browser) == [page.as_uri()]
    assert no_complaint(browser)


def test_two_hundred_classes_fit_a_phone(crnr: Runner, browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"species {i}" for i in range(200)]
    rows = [(f"q/{i}.png", names[i % 200], names[rng.integers(200)], 0.1) for i in range(600)]
    page = tmp_path / "r.html"
    evaluate_to_page(crnr, write_csv(tmp_path / "p.csv", rows), page)
    opened(browser, page, 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    grid = browser.find_element("id", "grid")
    assert grid.size["width"] == pytest.approx(grid.size["height"], abs=1)
    assert len(browser.find_elements("css selector", "#classes tbody tr")) == 200
    assert no_complaint(browser)


def test_the_matrix_shows_the_most_confused_of_very_many_classes(
    crnr: Runner, browser: Any, tmp_path: Path
) -> None:
    names = [f"person {i}" for i in range(1500)]
    wrong = [(1400, 3, 4), (7, 9, 3), *((20 + i, 21 + i, 1) for i in range(0, 120, 2))]
    rows = [(f"q/{i}.png", name, name, 0.5) for i, name in enumerate(names)]
    rows += [(f"w/{i}/{n}.png", names[i], names[j], 0.1) for i, j, times in wrong for n in range(times)]
    page = tmp_path / "r.html"
    evaluate_to_page(crnr, write_csv(tmp_path / "p.csv", rows), page)
    opened(browser, page, 1200)
    body = browser.find_element("tag name", "body").text
    assert "Shown are the 50 of 1500 classes that are confused most often." in body
    assert "Shown are the 1000 of 1500 classes with the lowest F1." in body
    assert "12 of 62 kinds of mistakes." in body
    assert len(browser.find_elements("css selector", "#classes tbody tr")) == 1000
    shown = [each.get_attribute("title") for each in browser.find_elements("css selector", ".rows span")]
    assert len(shown) == 50
    assert [shown[0], shown[1], shown[2], shown[-1]] == ["person 3", "person 7", "person 9", "person 1400"]
    browser.find_element("css selector", ".pairs button").click()
    detail = browser.find_element("id", "detail").text
    assert "person 1400 labelled as person 3" in detail
    assert "4 of 5 queries of this class (80.0%)" in detail
    assert "1400/3.png" in detail
    assert no_complaint(browser)


def test_a_run_without_one_answer_still_has_a_page(crnr: Runner, browser: Any, tmp_path: Path) -> None:
    (table := tmp_path / "p.csv").write_text(
        "path,truth,label,status\nq/1.png,a,,truncated\nq/2.png,b,unknown,rejected\n"
    )
    page = tmp_path / "r.html"
    evaluate_to_page(crnr, table, page)
    opened(browser, page)
    assert browser.find_element("css selector", "h1").text == "0 of 2 labelled correctly"
    assert "truncated" in browser.find_element("css selector", "main").text
    assert no_complaint(browser)


def test_a_gallery_that_is_damaged_or_another_adds_nothing(crnr: Runner, tmp_path: Path) -> None:
    """The scores come from the CSV, whatever is next to it."""
    source = write_csv(tmp_path / "out.csv", [("q/1", "a", "a", 0.5), ("q/2", "b", "a", 0.1)])
    gallery = tmp_path / "g.h5"
    alone = evaluate_to_page(crnr, source, tmp_path / "r.html", "-g", str(gallery))
    gallery.write_text("not a gallery")
    assert evaluate_to_page(crnr, source, tmp_path / "r.html", "-g", str(gallery)) == alone
    for names, facts in ((["x", "y"], False), (["a", "b"], True)):
        np.savez(tmp_path / "g.npz", features=np.eye(2), labels=names)
        crnr("build", tmp_path / "g.npz", "-o", gallery, "-q")
        page = evaluate_to_page(crnr, source, tmp_path / "r.html", "-g", str(gallery))
        assert (page != alone) == facts
        assert ("How the gallery was built" in page) == facts


def test_a_report_on_queries_classified_now_loads_the_gallery_once(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_images(crnr.here / "gallery")
    crnr("build", "gallery", "--pca", 3, "-q")
    loaded: list[Path] = []

    def counted(path: Path) -> FittedGallery:
        loaded.append(path)
        return load_gallery(path)

    monkeypatch.setattr(queries, "load_gallery", counted)
    monkeypatch.setattr(evaluation, "load_gallery", counted)
    assert crnr("evaluate", "gallery", "--html", "now.html").exit == 0
    assert len(loaded) == 1
    crnr("classify", "gallery", "-o", "out.csv", "-q")
    loaded.clear()
    assert crnr("evaluate", "out.csv", "--html", "csv.html").exit == 0
    assert len(loaded) == 1
    for page in ("now.html", "csv.html"):
        text = Path(page).read_text()
        assert "12 in 3 classes, 4 per class" in text
        assert "images: gradients, 8x8, cells of 3, 8 directions; 3 principal components" in text


def test_the_curves_pass_through_all_steps() -> None:
    probability = np.array([0.2, 0.83, 0.83, 0.95, 1.0])
    table = ThresholdTable(measure_steps(probability, np.array([False, True, False, True, True])))
    drawn = draw_thresholds(table)
    assert drawn is not None
    assert drawn["floor"] == 0.6
    numbers = [float(text) for text in drawn["accuracy"].removeprefix("M").split()]
    corners = list(zip(numbers[::2], numbers[1::2], strict=True))
    # Three in five, three in four, two in two: 1 is at the top, and 0.6 at the bottom.
    assert [1 - 0.4 * y for _, y in corners[::2]] == pytest.approx([0.6, 0.75, 1, 1], abs=1e-4)
    assert [y for _, y in corners[::2]] == [y for _, y in corners[1::2]]
    assert [x for x, _ in corners[2::2]] == [x for x, _ in corners[1:-1:2]]  # without gaps
    assert (corners[0][0], corners[-1][0]) == (0, 1)
    rates = [1 - float(text) for text in drawn["answer_rate"].removeprefix("M").split()[1::4]]
    assert rates == pytest.approx([1, 0.8, 0.4, 0.2])
    assert drawn["bars"][1]["text"] == (
        "--min-probability 0.21: 4 of 5 answered, 75.0% of the answers right (30.1 to 95.4)"
    )
    assert draw_thresholds(None) is None


def write_probabilities(path: Path, n_classes: int, per_class: int = 4) -> Path:
    rng, names = np.random.default_rng(0), [f"a bird of species {i}" for i in range(n_classes)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth", "label", "margin", "status", "probability"])
        for i in range(n_classes * per_class):
            truth, p = names[i % n_classes], float(rng.beta(4, 0.4))
            label = truth if rng.random() < p else names[rng.integers(n_classes)]
            writer.writerow([f"q/{i}.png", truth, label, 0.1, "ok", f"{p:.4f}"])
    return path


@pytest.mark.parametrize("width", [1280, 390])
def test_the_thresholds_are_on_the_page(crnr: Runner, browser: Any, tmp_path: Path, width: int) -> None:
    table, page = write_probabilities(tmp_path / "p.csv", 10, 30), tmp_path / "r.html"
    evaluate_to_page(crnr, table, page)
    steps = json.loads(crnr("evaluate", table, "--json").out)["thresholds"]["steps"]
    opened(browser, page, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    drawn = "return document.querySelectorAll('.curves svg svg:first-of-type .target').length"
    assert browser.execute_script(drawn) == len(steps)
    cells = (
        "return [...document.querySelectorAll('#thresholds tbody tr')].map("
        "(row) => [...row.cells].map((cell) => cell.innerText))"
    )
    rows = browser.execute_script(cells)
    assert 5 <= len(rows) <= 7
    by_threshold = {f"{step['min_probability']:g}": step for step in steps}
    for threshold, rate, accuracy, interval in rows:
        step = by_threshold[threshold]
        low, high = step["interval"]
        assert (rate, accuracy) == tuple(f"{100 * step[name]:.1f}%" for name in ("answer_rate", "accuracy"))
        assert interval == f"{100 * low:.1f} to {100 * high:.1f}"
    inside = (
        "const box = document.querySelector('.curves > svg').getBoundingClientRect();"
        "return [...document.querySelectorAll('.curves text')].every((text) => {"
        "const {left, right} = text.getBoundingClientRect();"
        "return left >= box.left - 1 && right <= box.right + 1; })"
    )
    assert browser.execute_script(inside)
    assert no_complaint(browser)


@pytest.mark.parametrize("n_classes", [12, 22, 30, 50])
def test_a_narrow_matrix_keeps_its_names(crnr: Runner, browser: Any, tmp_path: Path, n_classes: int) -> None:
    page = tmp_path / "r.html"
    evaluate_to_page(crnr, write_probabilities(tmp_path / "p.csv", n_classes), page)
    opened(browser, page, 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    sizes = (
        "return [...document.querySelectorAll('.matrix .%s span')].map((name) => {"
        "const {width, height} = name.getBoundingClientRect(); return [width, height]; })"
    )
    rows, columns = (browser.execute_script(sizes % part) for part in ("rows", "columns"))
    assert len(rows) == len(columns) == n_classes
    cell = browser.execute_script("return grid.clientWidth") / n_classes
    assert all(height <= cell + 1.5 and width > 30 for width, height in rows)
    assert all(width <= cell + 1.5 and height > 30 for width, height in columns)
    # If the matrix scrolls, the names of its rows stay, and so does the tip of a cell.
    browser.execute_script("document.querySelector('.matrix-box').scrollLeft = 1e4")
    left = "return document.querySelector('.matrix .rows span').getBoundingClientRect().left"
    assert 0 <= browser.execute_script(left) < 200
    grid = browser.find_element("id", "grid")
    grid.send_keys("n")
    tip = "const {left, right} = tip.getBoundingClientRect(); return [left, right]"
    assert browser.execute_script("return tip.hidden") is False
    begins, ends = browser.execute_script(tip)
    assert begins >= 0
    assert ends <= 390
    assert no_complaint(browser)
