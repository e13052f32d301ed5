"""Images in reports: found after a move, reported if missing, and never from an untrusted CSV."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.report.found_images import MISSING, OUTSIDE, ImageSearch, search_beside
from crnr_cli.report.names import printable
from helpers.runner import Runner
from helpers.samples import make_images, noise


def shown(page: Path) -> dict[str, bool]:
    """Return the mistakes of a report, and whether they have an image."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.read_text(), re.S)[1])
    return {mistake["path"]: mistake["image"] is not None for mistake in data["mistakes"]}


@pytest.fixture
def work(crnr: Runner) -> Path:
    """A folder with a CSV of two mistakes and their images; the current folder is another one."""
    work = crnr.here / "work"
    (work / "q").mkdir(parents=True)
    (crnr.here / "elsewhere").mkdir()
    for i in range(2):
        noise(i).save(work / "q" / f"{i}.png")
    (work / "out.csv").write_text("path,truth,label\nq/0.png,a,b\nq/1.png,a,b\n")
    return work


def test_the_images_of_a_csv_are_found_from_any_folder(crnr: Runner, work: Path) -> None:
    for here, csv in (
        (work, "out.csv"),
        (crnr.here / "elsewhere", "../work/out.csv"),
        (crnr.here, work / "out.csv"),
    ):
        result = Runner(here)("evaluate", csv, "--html", work / "r.html")
        assert (result.exit, result.err) == (0, f"wrote {work / 'r.html'}\n")
        assert list(shown(work / "r.html").values()) == [True, True]


def test_images_that_moved_are_reported_and_found_where_they_are(crnr: Runner, work: Path) -> None:
    shutil.move(work / "q", crnr.here / "new")
    result = crnr("evaluate", "work/out.csv", "--html", "r.html")
    assert result.exit == 0
    assert result.err == (
        "note: 2 of 2 images of mistakes are not shown: q/0.png was not found; run the command "
        "in the folder where classify ran, or give their folder with --images-from\nwrote r.html\n"
    )
    assert list(shown(crnr.here / "r.html").values()) == [False, False]
    assert crnr("evaluate", "work/out.csv", "--html", "r.html", "-q").err == ""
    result = crnr("evaluate", "work/out.csv", "--html", "r.html", "--images-from", "new")
    assert (result.exit, result.err) == (0, "wrote r.html\n")
    assert list(shown(crnr.here / "r.html").values()) == [True, True]


@pytest.mark.parametrize("how", ["absolute", "dots", "link"])
def test_a_csv_cannot_make_a_page_show_images_from_elsewhere(crnr: Runner, work: Path, how: str) -> None:
    (private := crnr.here / "private").mkdir()
    noise(5).save(private / "passport.png")
    name = {
        "absolute": f"{private}/passport.png",
        "dots": "../private/passport.png",
        "link": "l/passport.png",
    }[how]
    (work / "l").symlink_to(private)
    (work / "out.csv").write_text(f"path,truth,label\n{name},a,b\n")
    inside = Runner(work)
    result = inside("evaluate", "out.csv", "--html", "r.html")
    assert result.exit == 0
    assert result.err == (
        f"note: 1 of 1 images of mistakes is not shown: {name} is outside of the current folder and "
        "the folder of the CSV; give their folder with --images-from to show it\nwrote r.html\n"
    )
    assert "data:image/" not in (work / "r.html").read_text()
    assert inside("evaluate", "out.csv", "--html", "r.html", "--images-from", "../private", "-q").err == ""
    assert "data:image/" in (work / "r.html").read_text()


parts = st.lists(st.sampled_from(["in", "out", "..", ".", "a.png", "link", ""]), min_size=1, max_size=6)


@given(parts, st.booleans())
def test_no_name_leads_out_of_the_allowed_folders(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], absolute: bool
) -> None:
    base = tmp_path_factory.getbasetemp() / "roots"
    if not base.exists():
        for folder in ("in", "out", "in/in", "out/in"):
            (base / folder).mkdir(parents=True)
            (base / folder / "a.png").write_text("x")
        (base / "in" / "link").symlink_to(base / "out")
    name = "/".join(names)
    name = f"{base}/{name}" if absolute else name
    found = ImageSearch([base / "in"], [base / "in"], [base / "in"]).find(name)
    if found not in (OUTSIDE, MISSING):
        assert Path(found).resolve().is_relative_to(base / "in")


def test_a_csv_on_stdin_is_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    noise(1).save("a.png")
    assert search_beside(["-"], []).find("a.png") == "a.png"


def test_explain_finds_the_gallery_images_from_any_folder(crnr: Runner) -> None:
    make_images(crnr.here / "c" / "gallery")
    inside = Runner(crnr.here / "c")
    assert inside("build", "gallery", "-q").exit == 0
    query = crnr.here / "c" / "gallery" / "ant" / "0.png"
    alone = inside("explain", query, "-o", "here.html")
    assert (alone.exit, alone.err) == (0, "wrote here.html\n")
    there = crnr("explain", query, "-g", "c/gallery.h5", "-o", "there.html")
    assert (there.exit, there.err) == (0, "wrote there.html\n")
    count = (crnr.here / "c" / "here.html").read_text().count("data:image/png")
    assert Path("there.html").read_text().count("data:image/png") == count == 8


def test_explain_reports_gallery_images_that_are_missing_or_changed(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    shutil.copy("gallery/ant/0.png", "query.png")
    shutil.move("gallery", "moved")
    words = (
        "note: 7 of 7 gallery images are not shown: gallery/ant/0.png was not found; run the command "
        "in the folder where build ran, or give their folder with --images-from\n"
    )
    for name in ("w.html", "w.png"):
        result = crnr("explain", "query.png", "-o", name)
        assert (result.exit, result.err) == (0, f"{words}wrote {name}\n")
    result = crnr("explain", "query.png", "-o", "w.html", "--images-from", "moved")
    assert (result.exit, result.err) == (0, "wrote w.html\n")
    # Another image of the same name is not the sample.
    shutil.copytree("moved", "gallery")
    noise(3).save("gallery/ant/0.png")
    result = crnr("explain", "query.png", "-o", "w.html")
    assert "1 of 7 gallery images is not shown: gallery/ant/0.png was not found" in result.err


def test_explain_shows_the_nearest_sample_of_nn(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    assert crnr("build", "gallery", "-q").exit == 0
    shutil.copy("gallery/bee/2.png", "query.png")
    result = crnr("explain", "query.png", "--compare-with", "nn", "-o", "w.html")
    assert "bee: residual 0.0000, nearest example gallery/bee/2.png with cosine 1.0000;" in result.out
    page = Path("w.html").read_text()
    assert re.search(r"<dt>cosine</dt><dd>1.0000</dd><dd class=\"path\">gallery/bee/2.png</dd>", page)
    record = json.loads(crnr("explain", "query.png", "--compare-with", "nn", "--json").out)
    assert [each["nearest"] and each["nearest"]["name"] for each in record["explanations"]] == [
        None,
        "gallery/bee/2.png",
    ]


@given(st.text())
def test_a_name_is_shown_as_text_that_xml_can_contain(name: str) -> None:
    text = printable(name.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape"))
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    assert ET.fromstring(f"<a>{escaped}</a>").text == (text or None)


def test_drawings_are_well_formed_whatever_the_names(crnr: Runner) -> None:
    names = np.repeat(["\x01\x1b[31m", "b\x0c\ufffe", "\x85<&>$x_"], 3)
    np.savez("g.npz", features=np.random.default_rng(0).random((9, 4)), labels=names)
    assert crnr("build", "g.npz", "-q").exit == 0
    assert crnr("explain", "g.npz#0", "-o", "w.svg", "-q").exit == 0
    words = "".join(ET.parse("w.svg").getroot().itertext())
    assert words
    assert crnr("explain", "g.npz#0", "-o", "w.html", "-q").exit == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffe]", Path("w.html").read_text())


def test_thousands_of_classes_are_drawn_with_few_objects(crnr: Runner) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    from crnr_cli.report.explanation_plot import Panel, draw_explanation

    k = 3000
    values = np.random.default_rng(0).random(k)
    panel = Panel("crnr", 7, 9, [7, 9], [0.1, 0.2], "smallest wins", {}, np.repeat(values, 2))
    figure = draw_explanation([panel], np.arange(0, 2 * k + 1, 2), [str(i) for i in range(k)], [])
    assert len(figure.findobj(LineCollection)) <= 8 + 2
    assert len(figure.findobj(Rectangle)) < 20
    left = [each for each in figure.findobj(LineCollection) if len(each.get_segments()) == 2]
    assert sorted(float(s[1][0]) for each in left for s in each.get_segments()) == [14, 15, 18, 19]
