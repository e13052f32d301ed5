"""--dates: a column with the time when a photograph was taken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import h5py
import pytest

from crnr_cli.results.formats import read_answers
from helpers.runner import Outcome, Runner, read_rows, rows
from helpers.samples import make_features, make_images
from helpers.templates import Templates
from images.test_dates import save_dated

TAKEN = "2026-07-01T05:06:07+02:00"


def make_photos(crnr: Runner) -> None:
    make_images(Path("g"))
    Path("q").mkdir()
    save_dated(Path("q/dated.jpg"), "2026:07:01 05:06:07", "+02:00")
    save_dated(Path("q/never.jpg"), "0000:00:00 00:00:00")
    Path("q/broken.png").write_bytes(b"\x89PNG")
    for path in Path("q").iterdir():
        os.utime(path, (0, 86400))
    assert crnr("build", "g", "-q").exit == 0


@pytest.fixture(autouse=True)
def photos(crnr: Runner, templates: Templates) -> None:
    templates.copy(make_photos, crnr.here)


def dates(found: list[dict[str, str]]) -> dict[str, str]:
    return {row["path"].removeprefix("q/"): row["date"] for row in found}


@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize("top", [[], ["--top", "1"]])
def test_classify_adds_a_column(crnr: Runner, calibrated: bool, top: list[str]) -> None:
    if calibrated:
        assert crnr("build", "g", "--calibrate", "-q").exit == 0
    sets = ["--sets", "0.9"] if calibrated else []
    plain = rows(crnr("classify", "q", *top, *sets).out)
    found = rows(crnr("classify", "q", *top, *sets, "--dates").out)
    assert dates(found) == {"broken.png": "", "dated.jpg": TAKEN, "never.jpg": ""}
    for row in found:
        del row["date"]
    assert found == plain


def test_the_time_of_the_file_is_used_on_request_only(crnr: Runner) -> None:
    found = rows(crnr("classify", "q", "--dates", "file").out)
    of_file = "1970-01-02T00:00:00+00:00"
    assert dates(found) == {"broken.png": of_file, "dated.jpg": TAKEN, "never.jpg": of_file}
    outcome = crnr("classify", "q", "--dates=other")
    assert outcome == Outcome(2, "", "error: --dates: 'other' is not one of exif, file\n")


@pytest.mark.parametrize("more", [[], ["--batch-size", "2"], ["--cache", "cache.h5"]])
@pytest.mark.parametrize("source", ["exif", "file"])
def test_images_without_a_box_are_dated(crnr: Runner, more: list[str], source: str) -> None:
    """Every image has its date, whichever have boxes, in whatever order they are read."""
    for i in range(7):
        save_dated(Path(f"q/{i}.jpg"), f"2026:07:01 05:06:{i:02}")
    wanted = dates(rows(crnr("classify", "q", "--dates", source).out))
    boxed = ["1.jpg", "4.jpg", "5.jpg", "never.jpg"]
    Path("boxes.csv").write_text(
        "path,x,y,width,height\n" + "".join(f"q/{name},0,0,0.5,0.5\n" for name in boxed)
    )
    for _ in range(2):  # the second time from a cache, if there is one
        outcome = crnr("classify", "q", "--boxes", "boxes.csv", "--dates", source, *more)
        found = rows(outcome.out)
        assert {name.partition("#")[0]: date for name, date in dates(found).items()} == wanted
        assert sum(row["status"] == "no_box" for row in found) == len(wanted) - len(boxed)


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_all_formats_have_the_dates_and_are_read_back(crnr: Runner, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    assert crnr("classify", "q", "--dates", "-o", name).exit == 3
    found = {row.path: row.date for row in read_answers(Path(name))}
    assert found == {"q/broken.png": None, "q/dated.jpg": TAKEN, "q/never.jpg": None}
    if name.endswith("jsonl"):
        assert [json.loads(line)["date"] for line in Path(name).read_text().splitlines()] == [
            None,
            TAKEN,
            None,
        ]


def test_a_cache_does_not_lose_the_dates(crnr: Runner) -> None:
    for _ in range(2):
        crnr("classify", "q", "--dates", "--cache", "c.h5", "-o", "out.csv")
        assert dates(read_rows(Path("out.csv"))) == {"broken.png": "", "dated.jpg": TAKEN, "never.jpg": ""}


def test_extract_stores_dates(crnr: Runner) -> None:
    assert crnr("extract", "q", "--dates", "-o", "f.h5").exit == 3
    with h5py.File("f.h5") as file:
        assert file["date"][:].tolist() == [TAKEN.encode(), b""]
    again = crnr("extract", "q", "--dates", "-o", "f.h5", "--update", "--json")
    assert json.loads(again.out)["n_samples"] == 2
    with h5py.File("f.h5") as file:
        assert file["date"][:].tolist() == [TAKEN.encode(), b""]
    assert crnr("extract", "q", "-o", "plain.h5").exit == 3
    with h5py.File("plain.h5") as file:
        assert "date" not in file


def test_feature_files_have_no_dates(crnr: Runner) -> None:
    make_features(Path("f.npz"))
    outcome = crnr("classify", "f.npz", "--dates")
    message = "error: --dates applies to images, but f.npz is a feature file; leave it out\n"
    assert outcome == Outcome(2, "", message)
