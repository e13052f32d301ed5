"""The page of a review in a real browser, by keyboard and by mouse."""

from __future__ import annotations

import csv
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import click, data_of, eventually, no_complaint, opened, requests
from helpers.paths import SAMPLE_DATA
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_images

SECONDS = 60  # to wait for what takes a moment, on a slow machine


@contextmanager
def remembering(browser: Any, entries: dict[str, str]) -> Iterator[None]:
    """Give each page that opens these entries in its storage, before its own scripts run.

    The page is tested here, not the browser, whose processes may show one page late, or on some machines
    never, what another page has stored.
    """
    script = (
        "localStorage.clear();"
        f"for (const [key, value] of Object.entries({json.dumps(entries)})) localStorage.setItem(key, value);"
    )
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def fresh(browser: Any, page: Path, width: int = 1280) -> Any:
    """Opened by a user without decisions."""
    with remembering(browser, {}):
        return opened(browser, page, width)


def stored(browser: Any) -> dict[str, str]:
    return dict(browser.execute_script("return Object.entries(localStorage)"))


def reload(browser: Any) -> None:
    with remembering(browser, stored(browser)):
        browser.refresh()


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def text(browser: Any, id: str) -> str:
    return str(browser.execute_script("return document.getElementById(arguments[0]).textContent", id)).strip()


def decided(browser: Any) -> dict[str, str]:
    """Return what the storage of the browser has for this page: the numbers of rows, and the classes."""
    found = browser.execute_script(
        "const {identity, answers} = JSON.parse(document.getElementById('data').textContent);"
        "const keyOf = (path) => `crnr-review-${identity}-${JSON.stringify(path).slice(1, -1)}`;"
        "return answers.map(([number, path]) => [String(number), localStorage.getItem(keyOf(path))])"
        ".filter(([, value]) => value !== null).map(([number, value]) => [number, JSON.parse(value)[0]])"
    )
    return dict(found)


def saved(browser: Any, folder: Path) -> Path:
    """Save the corrections by the button, and wait for the file."""
    folder.mkdir(exist_ok=True)
    place = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", place)
    browser.find_element("id", "save").click()
    path = folder / "corrections.csv"
    # WebDriver does not report the end of a download. The file gets its name when it is complete.
    deadline = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert path.exists()
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """100 handwritten digits, five of which get a wrong answer; their folder does not name their class."""
    crnr = Runner(tmp_path_factory.mktemp("digits"))
    (crnr.here / "q").mkdir()
    truths: dict[str, str] = {}
    for path in sorted((SAMPLE_DATA / "queries").rglob("*.png")):
        shutil.copy(path, crnr.here / "q" / path.name)
        truths[f"q/{path.name}"] = path.parent.name
    (crnr.here / "truths.json").write_text(json.dumps(truths))
    shutil.copytree(SAMPLE_DATA / "gallery", crnr.here / "gallery")
    assert crnr("build", "gallery", "--calibrate", "-q") == Outcome(0, "", "")
    assert crnr("classify", "q", "-q", "-o", "first.csv") == Outcome(0, "", "")
    # Three answers are wrong; two more are made wrong, by the runner-up in place of the label.
    rows = (crnr.here / "first.csv").read_text().splitlines()
    names = rows[0].split(",")
    place = {name: names.index(name) for name in ("path", "label", "runner_up")}
    wrong = 0
    for i, line in enumerate(rows[1:], 1):
        values = line.split(",")
        right = values[place["label"]] == truths[values[place["path"]]]
        if right and wrong < 2 and values[place["runner_up"]] != truths[values[place["path"]]]:
            values[place["label"]], values[place["runner_up"]] = (
                values[place["runner_up"]],
                values[place["label"]],
            )
            rows[i] = ",".join(values)
            wrong += 1
    (crnr.here / "out.csv").write_text("\n".join(rows) + "\n")
    found = read_rows(crnr.here / "out.csv")
    assert sum(row["label"] != truths[row["path"]] for row in found) == 5
    assert crnr("review", "out.csv", "-q") == Outcome(0, "", "")
    return crnr


def accuracy(crnr: Runner, table: str, corrections: Path) -> tuple[int, int]:
    outcome = crnr("evaluate", table, "--corrections", corrections, "--json", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    record = json.loads(outcome.out)
    return record["correct"], record["n"]


def test_five_of_a_hundred_answers_are_corrected_by_keyboard(
    browser: Any, digits: Runner, tmp_path: Path
) -> None:
    """With a reload on the way; the corrections are saved, added to the gallery, and the accuracy rises."""
    from selenium.webdriver import Keys

    truths = json.loads((digits.here / "truths.json").read_text())
    page = digits.here / "review.html"
    fresh(browser, page)
    assert requests(browser) == [page.as_uri()]
    corrected = 0
    for step in range(100):
        if step == 40:
            reload(browser)
        place, path, label = browser.execute_script(
            "return ['place', 'path', 'state'].map((id) => document.getElementById(id).textContent)"
        )
        assert place == f"Answer {step + 1} of 100"
        if truths[path] == label:
            press(browser, Keys.ENTER)
        else:
            corrected += 1
            press(browser, truths[path])
    assert corrected == 5
    assert text(browser, "count") == "100 of 100 reviewed, 5 corrected"
    assert text(browser, "spoken").endswith("No answer is left to review here; save corrections.csv.")
    reload(browser)
    assert text(browser, "count") == "100 of 100 reviewed, 5 corrected"
    corrections = saved(browser, tmp_path / "downloads")
    assert no_complaint(browser)
    content = corrections.read_bytes()
    assert content.startswith(b"path,label,corrected,when\nq/")
    rows = read_rows(corrections)
    answers = {row["path"]: row["label"] for row in read_rows(digits.here / "out.csv")}
    assert [row["path"] for row in rows] == list(answers)
    assert {row["path"]: row["label"] for row in rows} == answers
    assert {row["path"]: row["corrected"] for row in rows} == truths
    assert all(datetime.fromisoformat(row["when"]).tzinfo for row in rows)

    assert accuracy(digits, "out.csv", corrections) == (95, 100)
    outcome = digits("add", "gallery.h5", "--corrections", corrections)
    assert (outcome.exit, outcome.out) == (0, "")
    assert f"note: {corrections}: 100 reviewed files, 5 with another label\n" in outcome.err
    assert "\n100 added, 0 changed, 0 removed, 500 unchanged\n" in outcome.err
    assert digits("classify", "q", "-q", "-o", "again.csv") == Outcome(0, "", "")
    correct, n = accuracy(digits, "again.csv", corrections)
    assert n == 100
    assert correct > 95


EVIL = "</script><script>alert(1)</script>"


@pytest.fixture
def small(crnr: Runner) -> Path:
    """A page with answers of several kinds, and classes with all sorts of names."""
    make_images(crnr.here / "q", classes=("x",), per_class=4)
    rows = [
        ("q/x/0.png", "ant", "bee", "0.1", "ok"),
        ("q/x/1.png", "unknown", 'c"o,w', "0.2", "rejected"),
        ("q/x/2.png", "bee", EVIL, "0.3", "ok"),
        ("q/x/3.png", "anteater", "ant", "0.4", "ok"),
        ("q/caf\udce9\u202egnp.png", "unicorn", "ant", "0.5", "ok"),
        ("q/bad.png", "", "", "", "truncated"),
    ]
    with Path("out.csv").open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth", "label", "runner_up", "margin", "status"])
        writer.writerows([path, "", *rest] for path, *rest in rows)
    assert crnr("review", "out.csv", "-q") == Outcome(0, "", "")
    return crnr.here / "review.html"


def test_keys_choose_classes_and_undo(browser: Any, small: Path, tmp_path: Path) -> None:
    from selenium.webdriver import Keys

    fresh(browser, small)
    assert browser.execute_script("return document.activeElement.id") == "list"
    assert text(browser, "spoken") == "Answer 1 of 6: ant, runner-up bee, margin 0.100, not reviewed."
    press(browser, "2")  # the second choice
    assert decided(browser) == {"0": "bee"}
    assert text(browser, "place") == "Answer 2 of 6"
    assert text(browser, "spoken").startswith('Corrected to bee. Answer 2 of 6: unknown, best guess c"o,w')
    press(browser, "u")
    assert decided(browser) == {}
    assert text(browser, "place") == "Answer 1 of 6"
    # The beginning of a name; Enter takes the marked one, which is not "ant" after the arrow.
    press(browser, "A", "n")
    options = browser.find_elements("css selector", "#names [role=option]")
    assert [option.text for option in options] == ["ant", "anteater", "New class: An"]
    assert browser.find_element("id", "name").get_attribute("aria-activedescendant") == "name-0"
    press(browser, Keys.ARROW_DOWN, Keys.ENTER)
    assert decided(browser) == {"0": "anteater"}
    # A rejected answer is accepted as unknown.
    press(browser, Keys.ENTER)
    assert decided(browser) == {"0": "anteater", "1": "unknown"}
    # A name that matches nothing is not taken by Enter alone.
    press(browser, "y", "a", "k", Keys.ENTER)
    assert len(decided(browser)) == 2
    press(browser, Keys.ESCAPE)
    assert browser.execute_script("return document.activeElement.id") == "list"
    # Names that begin with z or u.
    press(browser, "/", "z", "e", "b", Keys.ARROW_DOWN, Keys.ENTER)
    assert decided(browser)["2"] == "zeb"
    press(browser, "/", "u", "n", "i", Keys.ENTER)
    assert decided(browser)["3"] == "unicorn"
    press(browser, "-")
    assert decided(browser)["4"] == "unknown"
    assert text(browser, "count") == "5 of 5 reviewed, 4 corrected"
    # There is nothing to accept in an answer that failed.
    press(browser, Keys.END, Keys.ENTER)
    assert text(browser, "place") == "Answer 6 of 6"
    assert not browser.find_element("id", "accept").is_enabled()
    assert len(decided(browser)) == 5
    press(browser, "b", Keys.ENTER)  # but it can be given a class
    assert decided(browser)["5"] == "bee"
    assert text(browser, "count") == "5 of 5 reviewed, 5 corrected"
    press(browser, "u")
    press(browser, Keys.HOME, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert text(browser, "place") == "Answer 2 of 6"
    # Undo goes back step by step, after a reload too.
    reload(browser)
    press(browser, "u", "u")
    assert sorted(decided(browser)) == ["0", "1", "2"]
    press(browser, "-", "-")
    rows = read_rows(saved(browser, tmp_path / "downloads"))
    assert [(row["path"], row["label"], row["corrected"]) for row in rows] == [
        ("q/x/0.png", "ant", "anteater"),
        ("q/x/1.png", "unknown", "unknown"),
        ("q/x/2.png", "bee", "zeb"),
        ("q/x/3.png", "anteater", "unknown"),
        ("q/caf\udce9\u202egnp.png", "unicorn", "unknown"),
    ]
    assert no_complaint(browser)


def test_the_mouse_does_the_same(browser: Any, small: Path) -> None:
    fresh(browser, small)
    click(browser, browser.find_element("id", "accept"))
    eventually(lambda: text(browser, "place"), "Answer 2 of 6")
    choices = browser.find_elements("css selector", "#candidates button")
    assert [choice.text.split("\n")[0] for choice in choices] == ['1 c"o,w best guess']
    click(browser, choices[0])
    eventually(lambda: text(browser, "place"), "Answer 3 of 6")
    # The focus is not left on a button, where Enter would press it again for the next answer.
    assert browser.execute_script("return document.activeElement.id") == "list"
    for button, place in (("none", 4), ("undo", 3), ("next", 4)):
        click(browser, browser.find_element("id", button))
        eventually(lambda: text(browser, "place"), f"Answer {place} of 6")
    click(browser, browser.find_elements("css selector", ".row")[4])
    eventually(lambda: text(browser, "place"), "Answer 5 of 6")
    assert text(browser, "path") == "q/caf\ufffd\\u202egnp.png"
    browser.find_element("id", "name").send_keys(EVIL[:3])
    click(browser, browser.find_element("css selector", "#names li"))
    eventually(lambda: decided(browser), {"0": "ant", "1": 'c"o,w', "4": EVIL})
    assert browser.execute_script("return document.scripts.length") == 3
    assert no_complaint(browser)


def shown_rows(browser: Any) -> list[int]:
    script = "return [...document.querySelectorAll('.row')].map((row) => Number(row.id.slice(4)) + 1)"
    return sorted(browser.execute_script(script))


def test_answers_can_be_filtered(browser: Any, small: Path) -> None:
    from selenium.webdriver import Keys
    from selenium.webdriver.support.select import Select

    fresh(browser, small)
    press(browser, Keys.ENTER, "1")
    selects = {name: Select(browser.find_element("id", name)) for name in ("filter", "status", "class")}
    found: dict[str, list[int]] = {}
    for name, values in (
        ("filter", ("todo", "done", "corrected", "accepted", "changed", "all")),
        ("status", ("answered", "rejected", "failed", "all")),
    ):
        for value in values:
            selects[name].select_by_value(value)
            found[value] = shown_rows(browser)
    assert found == {
        "all": [1, 2, 3, 4, 5, 6],
        "todo": [3, 4, 5],
        "done": [1, 2],
        "corrected": [2],
        "accepted": [1],
        "changed": [],
        "answered": [1, 3, 4, 5],
        "rejected": [2],
        "failed": [6],
    }
    names = [option.text for option in selects["class"].options]
    assert names == ["all", "ant (1)", "anteater (1)", "bee (1)", "unicorn (1)"]
    selects["filter"].select_by_value("todo")
    browser.find_element("id", "list").click()
    browser.find_element("id", "accept").click()
    assert shown_rows(browser) == [4, 5]
    assert no_complaint(browser)


def test_filters_work_by_keyboard(browser: Any, small: Path) -> None:
    from selenium.webdriver import Keys

    fresh(browser, small)
    press(browser, ".")
    assert browser.execute_script("return document.activeElement.id") == "class"
    press(browser, "b", Keys.ENTER)  # the class that begins with b
    assert browser.execute_script("return document.activeElement.id") == "list"
    assert shown_rows(browser) == [3]
    assert text(browser, "place") == "Answer 3 of 6"
    assert text(browser, "answers") == "1 of 6 answers"
    # Together with a status that no answer of the class has, nothing is left, and the page offers a way out.
    press(browser, ".", Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ENTER)
    assert shown_rows(browser) == []
    assert browser.find_element("id", "empty").is_displayed()
    browser.find_element("id", "show-all").click()
    assert shown_rows(browser) == [1, 2, 3, 4, 5, 6]
    press(browser, ".", "u")  # a letter for the filter, not for the page
    assert shown_rows(browser) == [5]
    press(browser, Keys.ESCAPE)
    assert shown_rows(browser) == [1, 2, 3, 4, 5, 6]
    assert browser.execute_script("return document.activeElement.id") == "list"
    assert decided(browser) == {}
    assert no_complaint(browser)


def test_two_pages_do_not_mix_and_two_tabs_of_one_do(browser: Any, small: Path) -> None:
    from selenium.webdriver import Keys

    crnr = Runner(small.parent)
    table = small.parent / "other.csv"
    table.write_text("path,truth,label,margin\nq/x/0.png,,ant,0.1\nq/x/1.png,,bee,0.2\n")
    assert crnr("review", table, "-o", "other.html", "-q") == Outcome(0, "", "")
    fresh(browser, small)
    press(browser, Keys.ENTER)
    assert decided(browser) == {"0": "ant"}
    with remembering(browser, stored(browser)):
        opened(browser, small.parent / "other.html")
        assert decided(browser) == {}
        assert text(browser, "count") == "0 of 2 reviewed, 0 corrected"
        opened(browser, small)
    assert decided(browser) == {"0": "ant"}
    assert text(browser, "count") == "1 of 5 reviewed, 0 corrected"
    # A second tab decides the next answer: the browser stores that, and sends the first tab an event.
    browser.execute_script(
        "const key = Object.keys(localStorage)[0].replace('0.png', '1.png');"
        "const newValue = JSON.stringify(['unknown', '2026-01-01T00:00:00Z']);"
        "localStorage.setItem(key, newValue);"
        "dispatchEvent(new StorageEvent('storage', {key, newValue, storageArea: localStorage}));"
    )
    assert text(browser, "count") == "2 of 5 reviewed, 0 corrected"
    assert no_complaint(browser)


def test_decisions_are_kept_for_newer_answers(browser: Any, small: Path) -> None:
    """They belong to the query, whatever its row; an answer that has changed since is marked."""
    from selenium.webdriver import Keys

    fresh(browser, small)
    press(browser, Keys.ENTER, "1", "1")  # ant is right, unknown is c"o,w, bee is right
    before = stored(browser)
    rows = read_rows(small.parent / "out.csv")
    rows[0]["label"], rows[0]["runner_up"], rows[0]["margin"] = "bee", "ant", "0.9"
    rows[1]["label"], rows[1]["runner_up"], rows[1]["status"] = 'c"o,w', "ant", "ok"
    with (small.parent / "out.csv").open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(reversed(rows))
    assert Runner(small.parent)("review", "out.csv", "-q") == Outcome(0, "", "")
    with remembering(browser, before):
        opened(browser, small)
    assert decided(browser) == {"5": "ant", "4": 'c"o,w', "3": "bee"}
    assert text(browser, "count") == "3 of 5 reviewed, 1 corrected, 2 with another answer since"
    press(browser, Keys.HOME)
    assert text(browser, "path") == "q/x/1.png"
    assert text(browser, "changed") == "Changed: the answer was unknown when you decided."
    assert text(browser, "sure") == "margin 0.200, accepted"
    press(browser, Keys.ARROW_DOWN)
    assert text(browser, "path") == "q/x/2.png"
    assert not browser.find_element("id", "changed").is_displayed()
    press(browser, Keys.END, Keys.ARROW_UP)
    assert text(browser, "path") == "q/x/0.png"
    assert text(browser, "state") == "bee ant"
    assert text(browser, "changed") == "Changed: the answer was ant when you decided."
    press(browser, Keys.ENTER)  # now the new answer is accepted
    assert text(browser, "count") == "3 of 5 reviewed, 0 corrected, 1 with another answer since"
    assert no_complaint(browser)


def test_decisions_on_a_page_of_an_earlier_version_are_taken_over(browser: Any, small: Path) -> None:
    content = data_of(small)["content"]
    old = {f"crnr-review-{content}-1": json.dumps(["bee", "2026-01-01T00:00:00Z"]), "others": "stay"}
    with remembering(browser, old):
        opened(browser, small)
    assert decided(browser) == {"1": "bee"}
    assert text(browser, "count") == "1 of 5 reviewed, 1 corrected"
    assert len(stored(browser)) == 2
    press(browser, "u")
    reload(browser)
    assert stored(browser) == {"others": "stay"}


@pytest.fixture
def photos(crnr: Runner) -> Path:
    """A page with photographs: one that is there, and others that are gone, elsewhere, or no image."""
    from PIL import Image

    (crnr.here / "here").mkdir()
    for name in ("here/a #1.jpg", "here/gone.jpg", "outside.jpg"):
        Image.radial_gradient("L").resize((1600, 1200)).save(crnr.here / name)
    make_images(crnr.here / "here" / "q", classes=("x",), per_class=1)
    rows = ["a #1.jpg", "gone.jpg", "../outside.jpg", "never.jpg", "q/x/0.png"]
    content = "".join(f"{name},,ant,bee,0.{i}\n" for i, name in enumerate(rows))
    (crnr.here / "here" / "out.csv").write_text(f"path,truth,label,runner_up,margin\n{content}")
    here = crnr.here / "here"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert Runner(here)("review", "out.csv", "-q") == Outcome(0, "", "")
    (here / "gone.jpg").unlink()
    return here / "review.html"


def is_open(browser: Any) -> bool:
    return bool(browser.execute_script("return document.getElementById('zoom').open"))


def zoomed(browser: Any) -> tuple[int, int]:
    """Return the size of the image in the zoom, in its own pixels, when it has been read."""
    script = "const [image] = document.querySelectorAll('#zoom-image img'); "
    eventually(lambda: browser.execute_script(script + "return Boolean(image?.complete)"), True)
    return tuple(browser.execute_script(script + "return [image.naturalWidth, image.naturalHeight]"))


def test_z_and_click_show_the_file_itself(browser: Any, photos: Path) -> None:
    from selenium.webdriver import Keys

    fresh(browser, photos)
    assert requests(browser) == [photos.as_uri()]  # nothing but the page, until somebody asks
    press(browser, "z")
    assert is_open(browser)
    assert zoomed(browser) == (1600, 1200)
    assert requests(browser) == [(photos.parent / "a #1.jpg").as_uri()]
    assert text(browser, "zoom-name") == "a #1.jpg"
    assert not browser.find_element("id", "zoom-sign").is_displayed()
    width = "return document.querySelector('#zoom-image img').getBoundingClientRect().width"
    assert browser.execute_script(width) <= 1280
    press(browser, "z")  # its own pixels, which do not fit
    assert browser.execute_script(width) == 1600
    press(browser, "z")
    assert not is_open(browser)
    assert browser.execute_script("return document.activeElement.id") == "list"
    press(browser, "z", Keys.ENTER, "2", "-", Keys.ARROW_DOWN)  # no key decides about a page that is covered
    assert is_open(browser)
    press(browser, Keys.ESCAPE)
    assert not is_open(browser)
    assert (decided(browser), text(browser, "place")) == ({}, "Answer 1 of 5")
    click(browser, browser.find_element("id", "image"))
    eventually(lambda: is_open(browser), True)
    click(browser, browser.find_element("id", "zoom-close"))
    eventually(lambda: is_open(browser), False)
    press(browser, Keys.ENTER)  # keys work on
    eventually(lambda: decided(browser), {"0": "ant"})
    press(browser, Keys.END, "z")
    assert zoomed(browser)[0] < 48  # an image that fits has nothing to enlarge: z closes
    press(browser, "z")
    assert not is_open(browser)
    assert no_complaint(browser)


def test_page_tells_why_a_file_is_not_shown(browser: Any, photos: Path) -> None:
    from selenium.webdriver import Keys

    fresh(browser, photos)
    signs = {}
    for _ in range(3):
        press(browser, Keys.ARROW_DOWN, "z")
        eventually(lambda: browser.find_element("id", "zoom-sign").is_displayed(), True)
        has_image = bool(browser.find_elements("css selector", "#zoom-image img"))
        signs[text(browser, "zoom-name")] = (text(browser, "zoom-sign"), has_image)
        assert text(browser, "spoken") == text(browser, "zoom-sign")
        press(browser, Keys.ESCAPE)
        assert not is_open(browser)
    outside = "it is outside of the folders that the page may link to. Name its folder with --images-from."
    assert signs == {
        "gone.jpg": ("The file is not at gone.jpg, or this browser cannot show it.", True),
        "../outside.jpg": (f"The file itself is not shown: {outside}", False),
        "never.jpg": ("The file itself is not shown: it was not found when the page was made.", False),
    }
    urls = requests(browser)
    assert (photos.parent.parent / "outside.jpg").as_uri() not in urls
    press(browser, Keys.HOME, "z")
    assert zoomed(browser) == (1600, 1200)
    assert not browser.find_element("id", "zoom-sign").is_displayed()


def test_card_of_a_later_answer_shows_the_file(
    browser: Any, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has large copies of the first images only; a file that is gone leaves the small copy."""
    from PIL import Image
    from selenium.webdriver import Keys

    monkeypatch.chdir(photos.parent)
    monkeypatch.setattr("crnr_cli.report.review._N_LARGE", 0)
    Image.radial_gradient("L").resize((1600, 1200)).save("gone.jpg")
    assert Runner(photos.parent)("review", "out.csv", "-q") == Outcome(0, "", "")
    Path("gone.jpg").unlink()
    fresh(browser, photos)
    width = "return document.querySelector('#image img').naturalWidth"
    eventually(lambda: browser.execute_script(width), 1600)
    press(browser, Keys.ARROW_DOWN)
    eventually(lambda: (photos.parent / "gone.jpg").as_uri() in requests(browser), True)
    assert browser.execute_script(width) == 160


def test_all_choices_have_examples(browser: Any, digits: Runner) -> None:
    fresh(browser, digits.here / "review.html")
    counts = browser.execute_script(
        "return [...document.querySelectorAll('#candidates button')]"
        ".map((one) => one.querySelectorAll('img[src^=\"data:image\"]').length)"
    )
    assert counts == [2, 2, 2, 2, 2]
    for button in browser.find_elements("css selector", "#candidates button"):
        name = button.find_element("css selector", ".name").text
        titles = [image.get_attribute("title") for image in button.find_elements("css selector", "img")]
        assert [Path(title).parent.name for title in titles] == [name, name]


def test_image_fills_its_card(browser: Any, digits: Runner) -> None:
    fresh(browser, digits.here / "review.html")
    card, image = browser.execute_script(
        "return ['detail', 'image'].map((id) => document.getElementById(id).clientWidth)"
    )
    assert image > 0.9 * card


def test_decisions_can_be_forgotten(browser: Any, small: Path) -> None:
    from selenium.webdriver import Keys

    fresh(browser, small)
    press(browser, Keys.ENTER, Keys.ENTER)
    browser.find_element("id", "clear").click()
    browser.switch_to.alert.dismiss()
    assert len(decided(browser)) == 2
    browser.find_element("id", "clear").click()
    browser.switch_to.alert.accept()
    assert decided(browser) == {}
    assert text(browser, "count") == "0 of 5 reviewed, 0 corrected"
    assert not browser.find_element("id", "save").is_enabled()


def test_review_page_warns_if_the_browser_stores_nothing(browser: Any, small: Path) -> None:
    from selenium.webdriver import Keys

    script = {"source": "Storage.prototype.setItem = () => { throw new Error('full'); }"}
    broken = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", script)
    try:
        fresh(browser, small)
        assert not browser.find_element("id", "warning").is_displayed()
        press(browser, Keys.ENTER)
        assert text(browser, "warning").startswith("This browser does not remember your decisions.")
        assert text(browser, "count") == "1 of 5 reviewed, 0 corrected"
        browser.execute_script(
            "window.stop(); addEventListener('beforeunload', (e) => e.stopImmediatePropagation(), true)"
        )
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", broken)


@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_fits_the_screen_and_everything_has_a_name(browser: Any, digits: Runner, width: int) -> None:
    opened(browser, digits.here / "review.html", width, 740)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = {"button", "combobox", "listbox", "option", "progressbar", "ProgressIndicator", "link"}
    without = [
        node["role"]["value"]
        for node in tree
        if not node["ignored"] and node["role"]["value"] in named and not node.get("name", {}).get("value")
    ]
    assert without == []
    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert {"listbox", "option", "combobox", "status", "main", "heading"} <= set(roles)
    selected = browser.find_elements("css selector", ".row[aria-selected=true]")
    assert [row.get_attribute("aria-posinset") for row in selected] == ["1"]
    active = browser.find_element("id", "list").get_attribute("aria-activedescendant")
    assert selected[0].get_attribute("id") == active
    small = browser.execute_script(
        "return [...document.querySelectorAll('button')]"
        ".filter((one) => one.offsetParent && one.offsetHeight < 40).length"
    )
    assert small == 0
    assert no_complaint(browser)


def luminance(color: str) -> float:
    channels = [int(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_enough(browser: Any, digits: Runner, scheme: str) -> None:
    """At least 4.5 to 1, as the WCAG ask for."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        opened(browser, digits.here / "review.html")
        pairs = browser.execute_script(
            """
            const ground = (one) => {
              for (; one; one = one.parentElement) {
                const color = getComputedStyle(one).backgroundColor;
                if (!color.includes("rgba(0, 0, 0, 0)")) return color;
              }
            };
            const all = document.querySelectorAll("h1, h2, p, .row b, .sure, .file, button, label, .name");
            return [...all].filter((one) => one.offsetHeight && !one.disabled)
              .map((one) => [getComputedStyle(one).color, ground(one)]);
            """
        )
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert len(pairs) > 30
    for color, ground in pairs:
        light, dark = sorted([luminance(color), luminance(ground)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (color, ground)


@pytest.mark.slow
def test_twenty_thousand_answers_scroll_and_respond(browser: Any, crnr: Runner) -> None:
    from selenium.webdriver import Keys

    make_images(crnr.here / "q", classes=("ant", "bee", "cow"), per_class=20_000 // 3 + 1)
    make_images(crnr.here / "gallery", per_class=6, first=90_000)
    assert crnr("build", "gallery", "-q") == Outcome(0, "", "")
    assert crnr("classify", "q", "-o", "out.csv", "-q") == Outcome(0, "", "")
    outcome = crnr("review", "out.csv", "--limit", "20000")
    assert (outcome.exit, outcome.out) == (0, "")
    fresh(browser, crnr.here / "review.html")
    assert text(browser, "place") == "Answer 1 of 20000"
    elements = browser.execute_script("return document.querySelectorAll('*').length")
    assert elements < 1000
    height = browser.execute_script("return document.getElementById('list').scrollHeight")
    assert height == pytest.approx(20_000 * 64, abs=64)
    for share in (0.25, 0.999, 0.5):
        browser.execute_script(
            "const list = document.getElementById('list'); list.scrollTop = list.scrollHeight * arguments[0]",
            share,
        )
        deadline = time.monotonic() + SECONDS
        wanted = round(20_000 * share)
        found: list[int] = []
        while wanted not in found and time.monotonic() < deadline:
            found = browser.execute_script(
                "return [...document.querySelectorAll('.row')].map((row) => Number(row.id.slice(4)))"
            )
        assert wanted in found
        assert len(found) < 60
        sources = "return [...document.querySelectorAll('.row img')].map((one) => one.src.slice(0, 10))"
        assert browser.execute_script(sources) == ["data:image"] * len(found)
    press(browser, Keys.END)
    assert text(browser, "place") == "Answer 20000 of 20000"
    press(browser, Keys.HOME, *[Keys.ENTER] * 20)
    assert text(browser, "count") == "20 of 20000 reviewed, 0 corrected"
    assert browser.execute_script("return document.querySelectorAll('*').length") < 1000
    # No key takes long: the work for one does not grow with the number of answers by much.
    times = browser.execute_script(
        "const times = []; for (let i = 0; i < 20; i++) { const start = performance.now();"
        "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}));"
        "times.push(performance.now() - start); } return times"
    )
    assert sorted(times)[10] < 1000
    assert no_complaint(browser)
