"""The page of an audit, seen by a real browser where there is one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.browser import no_complaint, opened, requests
from helpers.runner import Runner
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
        "Labels that look wrong",
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
    assert browser.execute_script("return document.scripts.length") == 0
    assert no_complaint(browser)
