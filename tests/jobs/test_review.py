"""Review: the answers on the page, their order, and notes on the rest."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import crnr_cli.jobs.review as jobs_review
from crnr_cli.arrays import Array
from crnr_cli.jobs.review import choose_diverse
from crnr_cli.progress import silent
from crnr_cli.report.found_images import FoundImages, ImageSearch
from crnr_cli.report.review import PER_PART, EmbeddedImages
from crnr_cli.system.extras import describe_missing
from helpers.browser import data_of
from helpers.patches import remove_extras
from helpers.runner import Outcome, Runner
from helpers.samples import make_features, make_images, noise
from helpers.templates import Templates

NO_IMAGES = (
    "note: 4 of 4 images are not shown: 5.png was not found; run the command in the folder where classify "
    "ran, or give their folder with --images-from\n"
)
WRITTEN = "wrote review.html; open it in a browser, review the answers, and save corrections.csv from there\n"


def images_of(page: Path, kind: str = "images") -> list[str]:
    parts = re.findall(rf'class="{kind}">(.*?)</script>', page.read_text(), re.S)
    return [image for part in parts for image in json.loads(part)]


def classify_queries(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=9, per_class=2)
    assert crnr("build", "gallery", "-q") == Outcome(0, "", "")
    assert crnr("classify", "queries", "-o", "out.csv", "-q") == Outcome(0, "", "")


@pytest.fixture
def ready(crnr: Runner, templates: Templates) -> Runner:
    """A gallery, queries in one folder, and their answers."""
    templates.copy(classify_queries, crnr.here)
    return crnr


def test_the_least_probable_come_first_and_failures_last(crnr: Runner) -> None:
    Path("out.csv").write_text(
        "path,truth,label,runner_up,margin,status,probability,set\n"
        "1.png,,a,b,0.9,ok,0.8,\n"
        "2.png,,,,,truncated,,\n"
        "notes.txt,,,,,not_image,,\n"
        "3.png,,unknown,c,0.1,rejected,0.5,\n"
        "4.png,,b,a,0.2,ok,0.3,b|d\n"
        "4.png,,b,a,0.2,ok,0.3,\n"
        "5.png,,b,a,0.01,ok,,\n"
    )
    outcome = crnr("review", "out.csv", "-g", "none.h5")
    words = "error: none.h5: no such gallery; create it with `crnr build FOLDER -o none.h5`\n"
    assert outcome == Outcome(1, "", words)
    note = "note: the page shows no gallery images: gallery.h5: no such gallery; name it with --gallery\n"
    assert crnr("review", "out.csv") == Outcome(0, "", f"{note}{NO_IMAGES}{WRITTEN}")
    data = data_of(Path("review.html"))
    names = data["classes"]
    assert names == ["a", "b", "c", "d"]
    rows = [
        (number, path, label if label in (None, -1) else names[label], [names[k] for k in candidates])
        for number, path, label, candidates, *_ in data["answers"]
    ]
    assert rows == [
        (6, "5.png", "b", ["b", "a"]),
        (4, "4.png", "b", ["b", "a", "d"]),
        (3, "3.png", -1, ["c"]),
        (0, "1.png", "a", ["a", "b"]),
        (1, "2.png", None, []),
    ]
    assert "Gallery images are not shown: gallery.h5: " in Path("review.html").read_text()


def test_without_probabilities_the_smallest_margin_is_first(crnr: Runner) -> None:
    Path("out.csv").write_text("path,truth,label,margin\nx,,a,0.5\ny,,a,0.25\nz,,a,\n")
    assert crnr("review", "out.csv", "-q") == Outcome(0, "", "")
    page = Path("review.html")
    assert [row[1] for row in data_of(page)["answers"]] == ["y", "x", "z"]
    assert "smallest margin first" in page.read_text()


def test_images_of_answers_and_of_the_gallery_are_on_the_page(ready: Runner) -> None:
    assert ready("review", "out.csv") == Outcome(0, "", WRITTEN)
    page = Path("review.html")
    data = data_of(page)
    assert len(data["answers"]) == len(images_of(page)) == 6
    assert all(image.startswith("data:image/png;base64,") for image in images_of(page))
    shown = images_of(page, "sample-images")
    assert len(shown) == len(data["samples"])
    for _, path, label, candidates, *_, strong in data["answers"]:
        assert data["classes"][label] == Path(path).parent.name
        assert [len(samples) for samples in strong] == [2, 2, 2]  # of all three classes
        for k, samples in zip(candidates, strong, strict=True):
            for sample in samples:
                assert Path(data["samples"][sample]).parent.name == data["classes"][k]
                assert shown[sample].startswith("data:image/png;base64,")


def test_a_page_can_be_limited_to_the_most_doubtful_answers(ready: Runner) -> None:
    note = "note: 2 of 6 answers are on the page, the most doubtful first; --limit shows more\n"
    assert ready("review", "out.csv", "--limit", "2") == Outcome(0, "", note + WRITTEN)
    page = Path("review.html")
    assert ready("review", "out.csv", "-o", "all.html", "-q") == Outcome(0, "", "")
    assert [row[:7] for row in data_of(page)["answers"]] == [
        row[:7] for row in data_of(Path("all.html"))["answers"][:2]
    ]
    # Decisions on one page are stored for the other.
    assert data_of(page)["identity"] == data_of(Path("all.html"))["identity"]
    assert "2 of 6 answers" in page.read_text()


def test_identity_is_kept_when_the_csv_is_written_again(ready: Runner) -> None:
    """Decisions are stored under it; equal answers elsewhere are other answers."""
    ready("review", "out.csv", "-o", "1.html", "-q")
    text = Path("out.csv").read_text()
    Path("same.csv").write_text(text)
    Path("out.csv").write_text(text.replace(",ant,ant,", ",ant,cow,", 1))
    os.chdir("queries")
    Runner(ready.here / "queries")("review", "../out.csv", "-o", "../2.html", "-g", "../gallery.h5", "-q")
    os.chdir("..")
    ready("review", "same.csv", "-o", "3.html", "-q")
    first, second, third = (data_of(Path(f"{i}.html")) for i in (1, 2, 3))
    assert first["identity"] == second["identity"] != third["identity"]
    assert first["content"] == third["content"] != second["content"]


def test_the_result_as_json(ready: Runner) -> None:
    outcome = ready("review", "out.csv", "--limit", "5", "--json", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {
        "page": "review.html",
        "answers": 5,
        "total": 6,
        "notes": ["5 of 6 answers are on the page, the most doubtful first; --limit shows more"],
    }


def test_images_that_are_gone_or_changed_are_reported(ready: Runner) -> None:
    Path("queries/ant/9.png").unlink()
    for path in Path("gallery").rglob("*.png"):
        noise(77).save(path)
    outcome = ready("review", "out.csv")
    assert outcome.exit == 0
    assert "note: 1 of 6 images is not shown: queries/ant/9.png was not found; run the command" in outcome.err
    assert re.search(r"note: (\d+) of \1 gallery images are not shown: gallery/", outcome.err)
    assert images_of(Path("review.html")).count("") == 1


def test_a_csv_cannot_make_the_page_show_an_image_from_elsewhere(ready: Runner) -> None:
    (ready.here / "in").mkdir()
    shutil.copy("out.csv", "in/out.csv")
    os.chdir("in")
    inside = Runner(ready.here / "in")
    Path("out.csv").write_text("path,truth,label,margin\n../queries/ant/9.png,,ant,0.1\n")
    outcome = inside("review", "out.csv", "-g", "../gallery.h5")
    assert "note: 1 of 1 images is not shown: ../queries/ant/9.png is outside of the current" in outcome.err
    assert "data:image" not in Path("review.html").read_text()
    assert inside("review", "out.csv", "-g", "../gallery.h5", "--images-from", "../queries").exit == 0
    assert "data:image" in Path("review.html").read_text()


def links_of(page: Path) -> dict[str, str | int]:
    """Return the links of a page by the paths of the answers."""
    return {path: path if link == 1 else link for _, path, *_, link, _ in data_of(page)["answers"]}


def test_page_links_to_allowed_files_relative_to_itself(ready: Runner) -> None:
    """Names cannot become addresses elsewhere, and files outside of the allowed folders have no link."""
    (ready.here / "in").mkdir()
    names = ["http:x.png", "a b#c?.png", "caf\u00e9 %41.png", "plain.png"]
    for name in names:
        shutil.copy("queries/ant/9.png", f"in/{name}")
    more = ["gone.png", str(ready.here / "in" / "plain.png"), "../queries/ant/9.png", "g.npz#3"]
    rows = [f"{name},,ant,0.1\n" for name in [*names, *more]]
    Path("in/out.csv").write_text(f"path,truth,label,margin\n{''.join(rows)}", encoding="utf-8")
    Path("pages").mkdir()
    os.chdir("in")
    assert Runner(ready.here / "in")("review", "out.csv", "-o", "../pages/review.html", "-q").exit == 0
    found = links_of(ready.here / "pages" / "review.html")
    assert found == {
        "http:x.png": "../in/http%3Ax.png",
        "a b#c?.png": "../in/a%20b%23c%3F.png",
        "caf\u00e9 %41.png": "../in/caf%C3%A9%20%2541.png",
        "plain.png": "../in/plain.png",
        "gone.png": 0,
        str(ready.here / "in" / "plain.png"): "../in/plain.png",
        "../queries/ant/9.png": -1,
        "g.npz#3": 0,
    }
    for name in names:
        base = (ready.here / "pages" / "review.html").as_uri()
        assert url2pathname(urlsplit(urljoin(base, str(found[name]))).path) == str(ready.here / "in" / name)


def test_first_images_are_large_and_small_ones_are_embedded_once(crnr: Runner) -> None:
    sizes = {"wide": (900, 300), "tall": (100, 170), "small": (160, 120)}
    for name, size in sizes.items():
        Image.effect_noise(size, 50).save(f"{name}.png")
    rows = "".join(f"{name}.png,,a,0.{i}\n" for i, name in enumerate(sizes))
    Path("out.csv").write_text(f"path,truth,label,margin\n{rows}")
    assert crnr("review", "out.csv", "-q") == Outcome(0, "", "")

    def sizes_of(kind: str) -> list[tuple[int, int] | None]:
        images = images_of(Path("review.html"), kind)
        opened = [uri and Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) for uri in images]
        return [one.size if isinstance(one, Image.Image) else None for one in opened]

    assert sizes_of("images") == [(160, 53), (94, 160), (160, 120)]
    assert sizes_of("large-images") == [(480, 160), (100, 170), None]


@pytest.mark.parametrize("count", [255, 256, 257, 511, 512, 513, 900])
def test_every_answer_keeps_its_own_image(count: int) -> None:
    """However the answers fall into parts: each name is asked for once, and its image is at its place."""
    found = EmbeddedImages(silent, "images")
    names = [f"{i}.png" if i % 5 else None for i in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        asked: list[str] = []

        def find(some: list[str], _search: ImageSearch, _most: int, side: int) -> FoundImages:
            asked.extend(some)
            value = {name: np.full((side, 1, 3), int(name[:-4]) % 251, np.uint8) for name in some}
            return FoundImages(value, [], [])

        patch.setattr("crnr_cli.report.review.find_images", find)
        patch.setattr("crnr_cli.report.review.data_uri", lambda image: (int(image[0, 0, 0]), len(image)))
        parts = list(found.parts(names, ImageSearch(), 1, 160, 480))
        large: list[Any] = [one for part in found.large_parts() for one in part]
    assert asked == [name for name in names if name]
    assert [len(part) for part in parts[:-1]] == [PER_PART] * (len(parts) - 1)
    wanted = ["" if not i % 5 else (i % 251, 160) for i in range(count)]
    assert [one for part in parts for one in part] == wanted
    assert large == ["" if not i % 5 else (i % 251, 480) for i in range(min(count, 256))]


def choose_naively(vectors: Array, count: int) -> list[int]:
    """Choose by the definition: of the pool, the vector whose nearest chosen one is farthest."""
    chosen = [0]
    while len(chosen) < min(count, len(vectors)):
        pool = [i for i in range(min(4 * len(chosen) + 1, len(vectors))) if i not in chosen]
        angles = {
            i: min(float(np.arccos(np.clip(vectors[i] @ vectors[k], -1, 1))) for k in chosen) for i in pool
        }
        chosen.append(max(pool, key=lambda i: (round(angles[i], 9), -i)))
    return chosen


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_diverse_choice_agrees_with_its_definition(n: int, count: int, seed: int) -> None:
    vectors = np.random.default_rng(seed).normal(size=(n, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert choose_diverse(vectors, count) == choose_naively(vectors, count)


def test_diverse_choice_takes_copies_last() -> None:
    vectors = np.eye(4)[[2, 2, 2, 0, 2, 1, 3]]
    assert choose_diverse(vectors, 4) == [0, 3, 5, 6]
    assert choose_diverse(vectors, 99) == [0, 3, 5, 6, 1, 2, 4]


def paths_of(page: str) -> list[str]:
    return [row[1] for row in data_of(Path(page))["answers"]]


def test_diverse_order_puts_different_images_first(ready: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three copies of the most doubtful image, one comes first; no image is read twice."""
    for i in range(3):
        shutil.copy("queries/ant/9.png", f"queries/copy{i}.png")
    rows = ["copy0.png", "copy1.png", "gone.png", "copy2.png", "cow/9.png", "bee/9.png", "ant/10.png"]
    text = "".join(f"queries/{name},,ant,bee,0.{i}\n" for i, name in enumerate(rows))
    Path("out.csv").write_text(f"path,truth,label,runner_up,margin\n{text}queries/bad.png,,,,\n")
    read: list[int] = []
    original = jobs_review._read_vectors

    def count(*arguments: Any) -> Any:
        for queries, batch in original(*arguments):
            read.extend(queries)
            yield queries, batch

    monkeypatch.setattr(jobs_review, "_read_vectors", count)
    assert ready("review", "out.csv", "--order", "diverse", "-q") == Outcome(0, "", "")
    names = [Path(path).name if "copy" in path else path[8:] for path in paths_of("review.html")]
    assert names[0] == "copy0.png"
    assert set(names[1:3]) == {"cow/9.png", "bee/9.png"}
    assert names[3:] == ["ant/10.png", "copy1.png", "copy2.png", "gone.png", "bad.png"]
    assert len(read) == 6
    assert "doubtful and different ones first" in Path("review.html").read_text()
    # The examples are the same as those found by reading the images again.
    assert ready("review", "out.csv", "-o", "doubtful.html", "-q") == Outcome(0, "", "")
    diverse, doubtful = (data_of(Path(name)) for name in ("review.html", "doubtful.html"))

    def examples(data: dict[str, Any]) -> dict[str, Any]:
        return {
            path: [[data["samples"][i] for i in some] for some in strong]
            for _, path, *_, strong in data["answers"]
        }

    assert examples(diverse) == examples(doubtful)
    assert paths_of("doubtful.html")[:3] == [f"queries/{name}" for name in rows[:3]]


def test_diverse_order_reads_few_images(ready: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is made among four times as many answers as the page shows, however many there are."""
    monkeypatch.setattr(jobs_review, "_POOL", 2)
    asked: list[str] = []
    find = ImageSearch.find
    monkeypatch.setattr(ImageSearch, "find", lambda self, name: (asked.append(name), find(self, name))[1])
    outcome = ready("review", "out.csv", "--order", "diverse", "--limit", "2")
    note = "note: 2 of 6 answers are on the page, doubtful and different ones first; --limit shows more\n"
    assert outcome == Outcome(0, "", note + WRITTEN)
    assert len({name for name in asked if name.startswith("queries")}) == 4


def test_diverse_order_needs_a_gallery_of_images(ready: Runner) -> None:
    make_features(ready.here / "g.npz")
    assert ready("build", "g.npz", "-o", "features.h5", "-q").exit == 0
    words = "error: --order diverse compares images with a gallery of images; "
    outcome = ready("review", "out.csv", "--order", "diverse", "-g", "features.h5")
    assert outcome == Outcome(2, "", f"{words}features.h5: was built from features\n")
    Path("gallery.h5").unlink()
    outcome = ready("review", "out.csv", "--order", "diverse")
    assert outcome == Outcome(2, "", f"{words}gallery.h5: no such gallery; name it with --gallery\n")
    outcome = ready("review", "out.csv", "--order", "divers")
    assert (outcome.exit, outcome.out) == (2, "")
    assert "did you mean diverse?" in outcome.err


def test_answers_to_features_have_no_images(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz")
    assert crnr("build", "g.npz", "-q").exit == 0
    assert crnr("classify", "g.npz", "-o", "out.csv", "-q").exit == 0
    note = "note: the page shows no gallery images: the gallery was built from features\n"
    assert crnr("review", "out.csv") == Outcome(0, "", note + WRITTEN)
    assert len(data_of(Path("review.html"))["answers"]) == 15


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("path,truth,label\n", "out.csv: has no answers to review"),
        ("path,truth,label\nnotes.txt,,\n", None),
        ("truth,label\na,b\n", "out.csv: row 1 has no path; was it written by `crnr classify`?"),
        ("a,b\n", "out.csv: no column truth or label; was it written by `crnr classify`?"),
    ],
)
def test_a_csv_without_answers(crnr: Runner, content: str, words: str | None) -> None:
    Path("out.csv").write_text(content)
    outcome = crnr("review", "out.csv", "-q")
    assert outcome == (Outcome(1, "", f"error: {words}\n") if words else Outcome(0, "", ""))


@pytest.mark.parametrize(
    ("start", "kind"), [(b"PAR1\x15\x04", "a Parquet file"), (b'{"path": "a.png"}\n', "JSON Lines")]
)
def test_predictions_in_other_formats_are_refused(crnr: Runner, start: bytes, kind: str) -> None:
    Path("out").write_bytes(start)
    message = f"error: out: is {kind}, but `crnr review` reads CSV; classify with -o out.csv\n"
    assert crnr("review", "out") == Outcome(1, "", message)
    assert not Path("review.html").exists()


def test_names_in_the_page_are_data(crnr: Runner) -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    Path("out.csv").write_bytes(
        f"path,truth,label,margin\n{evil}.png,,{evil},0.1\ncaf\xe9.png,,b,0\n".encode("latin-1")
    )
    assert crnr("review", "out.csv", "-q") == Outcome(0, "", "")
    page = Path("review.html").read_text()
    assert "alert(1)</script>" not in page
    assert "<img src=x" not in page
    assert [row[1] for row in data_of(Path("review.html"))["answers"]] == ["caf\udce9.png", f"{evil}.png"]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    # Besides data, only files on this computer, or on the server that the page came from.
    assert policy[1].startswith("default-src 'none'; img-src data: 'self' file:; ")
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", page)


def test_a_page_needs_jinja(ready: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    remove_extras(monkeypatch.setattr)
    outcome = ready("review", "out.csv")
    assert outcome == Outcome(1, "", f"error: {describe_missing('report', 'crnr review', 'jinja2')}\n")
