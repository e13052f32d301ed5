"""The page of an audit, seen by a real browser where there is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.browser import data_of, eventually, no_complaint, opened, requests
from helpers.runner import Runner, read_rows
from helpers.samples import draw_image, make_images, noise

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a source with everything that an audit finds, and a class and a file with hostile names."""
    crnr = Runner(tmp_path_factory.mktemp("audit"))
    make_images(crnr.here / "images", per_class=8)
    draw_image(1, 50).save(crnr.here / "images/ant/wrong.png")
    shutil.copytree(crnr.here / "images/bee", crnr.here / "images" / EVIL.replace("/", ""))
    shutil.copy(crnr.here / "images/cow/3.png", crnr.here / "images/cow" / f"{EVIL}.png")
    Image.open(crnr.here / "images/cow/5.png").save(crnr.here / "images/cow/near.png", compress_level=0)
    noise(1, (8, 8)).save(crnr.here / "images/cow/odd.png")
    (crnr.here / "queries").mkdir()
    shutil.copy(crnr.here / "images/ant/3.png", crnr.here / "queries/leaked.png")
    outcome = crnr("audit", "images", "--queries", "queries", "--html", crnr.here / "audit.html", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    return crnr.here / "audit.html"


@pytest.mark.parametrize("width", [1280, 390])
def test_audit_page_is_complete_at_any_width(browser: Any, page: Path, width: int) -> None:
    opened(browser, page, width)
    headings = [heading.text for heading in browser.find_elements("css selector", "h2")]
    assert headings == [
        "Which labels are right?",
        "Duplicates",
        "Outliers",
        "Classes",
        "Queries that are also in the gallery",
    ]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    loaded = "return [...document.images].map((image) => image.complete && image.naturalWidth)"
    assert set(browser.execute_script(loaded)) == {8}
    assert requests(browser) == [page.as_uri()]
    assert no_complaint(browser)


def test_names_of_strangers_are_text(browser: Any, page: Path) -> None:
    opened(browser, page)  # an alert would make every command after it fail
    assert EVIL in browser.find_element("css selector", "main").text
    of_script = "return [...document.scripts].filter((one) => one.type !== 'application/json').length"
    assert browser.execute_script(of_script) == 1
    assert no_complaint(browser)


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def text(browser: Any, id: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", id)).strip()


def saved(browser: Any, folder: Path) -> Path:
    """Save the decisions by Ctrl+S, and wait for the file."""
    from selenium.webdriver import ActionChains, Keys

    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    ActionChains(browser).key_down(Keys.CONTROL).send_keys("s").key_up(Keys.CONTROL).perform()
    eventually(lambda: (folder / "marked.csv").exists(), True)
    return folder / "marked.csv"


def fresh(browser: Any, page: Path) -> None:
    opened(browser, page)
    browser.execute_script("localStorage.clear()")
    opened(browser, page)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Three classes, of which two have exchanged two images and one has an image of noise, and queries."""
    crnr = Runner(tmp_path_factory.mktemp("planted"))
    make_images(crnr.here / "images", per_class=8)
    for i in range(3):
        (crnr.here / f"images/ant/{i}.png").rename(crnr.here / f"images/bee/a{i}.png")
        (crnr.here / f"images/bee/{i}.png").rename(crnr.here / f"images/ant/b{i}.png")
    noise(1, (8, 8)).save(crnr.here / "images/cow/odd.png")
    make_images(crnr.here / "queries", first=20, per_class=10)
    for i in range(3):  # near the wrong examples
        for number, name in enumerate(("ant", "bee")):
            draw_image(number, i).resize((16, 16)).save(crnr.here / f"queries/{name}/near{i}.png")
    assert crnr("build", "images", "--method", "nn", "--extractor", "pixels", "-q").exit == 0
    return crnr


def accuracy(crnr: Runner) -> float:
    outcome = crnr("evaluate", "queries", "-g", "gallery.h5", "--json", "-q")
    assert outcome.exit == 0
    return float(json.loads(outcome.out)["accuracy"])


def test_a_page_corrected_by_keyboard_makes_the_gallery_better(
    browser: Any, planted: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from selenium.webdriver import Keys

    monkeypatch.chdir(planted.here)
    outcome = planted("audit", "gallery.h5", "--html", "audit.html", "--all", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    before = accuracy(planted)
    page = planted.here / "audit.html"
    fresh(browser, page)
    paths = [row[1] for row in data_of(page)["answers"]]
    assert sorted(paths) == sorted(path.as_posix() for path in Path("images").rglob("*.png"))
    for number, path in enumerate(paths):  # a person goes through all, and knows the truth
        assert text(browser, "place") == f"Example {number + 1} of {len(paths)}"
        assert text(browser, "path") == path
        folder, name = path.split("/")[1:]
        truth = {"a": "ant", "b": "bee"}.get(name[0], folder)
        if name == "odd.png":
            press(browser, "-")
        elif truth == folder:
            press(browser, Keys.ENTER)
        else:
            press(browser, *truth[:2], Keys.ENTER)
    assert text(browser, "count") == f"{len(paths)} of {len(paths)} reviewed, 7 corrected"
    assert text(browser, "spoken").endswith("No example is left to review here; save marked.csv.")
    marked = saved(browser, tmp_path)
    rows = read_rows(marked)
    assert [row["path"] for row in rows if row["remove"]] == ["images/cow/odd.png"]
    assert {row["path"]: row["corrected"] for row in rows if row["corrected"] not in ("", row["label"])} == {
        f"images/{folder}/{other}{i}.png": name
        for folder, other, name in (("bee", "a", "ant"), ("ant", "b", "bee"))
        for i in range(3)
    }
    assert no_complaint(browser)
    outcome = planted("correct", "gallery.h5", str(marked), "-q")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "")
    assert before < accuracy(planted) == 1
    assert planted("correct", "gallery.h5", str(marked), "--sources", "images", "-q").exit == 0
    assert planted("verify", "gallery.h5", "--source", "images", "-q").exit == 0


def test_findings_and_decisions_can_be_filtered(browser: Any, page: Path) -> None:
    from selenium.webdriver import Keys
    from selenium.webdriver.support.select import Select

    fresh(browser, page)
    answers = data_of(page)["answers"]
    finding = Select(browser.find_element("id", "status"))
    for value in ("wrong_label", "copy", "near_duplicate", "outlier"):
        finding.select_by_value(value)
        wanted = [row[1] for row in answers if value in row[6].split()]
        assert wanted
        shown = browser.find_elements("css selector", ".row .file")
        assert [one.text for one in shown] == wanted[: len(shown)]
        assert value.replace("_", " ") in text(browser, "sure")
    press(browser, Keys.ESCAPE)
    browser.find_element("id", "list").click()
    press(browser, "/", "q", "x")
    assert text(browser, "names") == "No class matches."
    press(browser, Keys.ENTER, Keys.ESCAPE, "-")
    assert text(browser, "count").endswith("reviewed, 1 corrected")
    removed = [row.text for row in browser.find_elements("css selector", ".row b") if "removed" in row.text]
    assert len(removed) == 1
    press(browser, "u")
    assert text(browser, "count").startswith("0 of ")
    assert no_complaint(browser)


@pytest.mark.parametrize("everything", [False, True])
def test_the_page_tells_what_it_and_the_csv_list(browser: Any, crnr: Runner, everything: bool) -> None:
    make_images(crnr.here / "images", per_class=8)
    for i in range(3):
        draw_image(1, 50 + i).save(crnr.here / f"images/ant/wrong{i}.png")
    options = ["--all"] if everything else []
    outcome = crnr("audit", "images", "--html", "a.html", "--csv", "a.csv", "--limit", "2", *options)
    assert outcome.exit == 0
    rows = read_rows(crnr.here / "a.csv")
    listed = {row["path"] for row in rows}
    assert (len(listed) == 27) is everything
    what = "All 27 examples" if everything else f"The {len(listed)} examples with a finding"
    assert f"note: 2 of {len(listed)} examples can be corrected on the page" in outcome.err
    opened(browser, crnr.here / "a.html")
    seen = browser.find_element("css selector", "main").text
    assert (
        f"{what}, labels that look wrong first, the most doubtful first: 2 of them are on this page." in seen
    )
    footer = browser.find_element("css selector", "footer").text
    assert ("the CSV lists all 27 examples and all findings" in footer) is everything
    assert ("lists the examples with findings; --all adds all others" in footer) is not everything
    assert len(data_of(crnr.here / "a.html")["answers"]) == 2


def test_a_page_without_findings_has_no_script(browser: Any, crnr: Runner) -> None:
    make_images(crnr.here / "images", per_class=12, size=(32, 32))
    assert crnr("audit", "images", "--html", "a.html", "-q").exit == 0
    opened(browser, crnr.here / "a.html")
    assert "No example has a finding." in browser.find_element("css selector", "main").text
    assert browser.execute_script("return document.scripts.length") == 0
    assert no_complaint(browser)
