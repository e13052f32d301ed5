"""Galleries of very many classes: the default output, and that all of it is right."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from crnr_cli import Gallery
from helpers.runner import Outcome, Runner

NOTE = (
    "note: of 1001 classes, the 5 best of each query are written; choose how many with --top, or --top 0 for "
    "the residuals of all\n"
)
LABELLED = "labelled 8 of 8 queries: out.csv\n"


def make_features(n_classes: int) -> np.ndarray:
    """Return two samples per class as gallery.npz, and a query of each of eight classes as queries.npz."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_classes, 16))
    labels = [f"c{i:04}" for i in range(n_classes)]
    rows = np.repeat(centres, 2, axis=0) + 0.1 * rng.normal(size=(2 * n_classes, 16))
    np.savez("gallery.npz", features=rows, labels=np.repeat(labels, 2))
    queries: np.ndarray = centres[:8] + 0.1 * rng.normal(size=(8, 16))
    np.savez("queries.npz", features=queries, labels=labels[:8])
    return queries


def table(path: str = "out.csv") -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("method", [["--neighbors", 9], ["--method", "nn"]], ids=["neighbors", "nn"])
def test_beyond_1000_classes_only_the_best_are_written(crnr: Runner, method: list[object]) -> None:
    queries = make_features(1001)
    assert crnr("build", "gallery.npz", "-q", *method).exit == 0
    assert crnr("classify", "queries.npz", "-o", "out.csv") == Outcome(0, "", NOTE + LABELLED)
    best = table()
    assert crnr("classify", "queries.npz", "-o", "five.csv", "--top", 5, "-q") == Outcome(0, "", "")
    assert Path("five.csv").read_bytes() == Path("out.csv").read_bytes()
    assert crnr("classify", "queries.npz", "-o", "out.csv", "--top", 0) == Outcome(0, "", LABELLED)
    for row, top in zip(table(), best, strict=True):
        residuals = {name[9:]: float(value) for name, value in row.items() if name.startswith("residual:")}
        assert len(residuals) == 1001
        expected = sorted(residuals.items(), key=lambda item: (item[1], item[0]))[:5]
        assert [(top[f"label_{i}"], float(top[f"residual_{i}"])) for i in range(1, 6)] == expected
        assert (row["label"], row["runner_up"]) == (expected[0][0], expected[1][0])
    lines = crnr("classify", "queries.npz", "--json", "-q").out.splitlines()
    assert [len(json.loads(line)["residuals"]) for line in lines] == [5] * 8
    gallery = Gallery.load("gallery.h5")
    for top, size in ((None, 5), (0, 1001), (2, 2)):
        answers = gallery.classify(queries, top=top)
        assert [len(answer.residuals or ()) for answer in answers] == [size] * 8
        assert [answer.label for answer in answers] == [row["label"] for row in best]


def test_up_to_1000_classes_all_residuals_are_written(crnr: Runner) -> None:
    make_features(1000)
    assert crnr("build", "gallery.npz", "-q", "--neighbors", 9).exit == 0
    assert crnr("classify", "queries.npz", "-o", "out.csv") == Outcome(0, "", LABELLED)
    assert len(table()[0]) == 8 + 1000


def test_info_shows_the_smallest_of_many_classes(crnr: Runner) -> None:
    values = np.random.default_rng(0).normal(size=(2005, 4))
    labels = [f"c{i}" for i in range(1001)] * 2 + ["c2", "c10", "c1000"]
    np.savez("gallery.npz", features=values[:-20], labels=labels[:1985])
    assert crnr("build", "gallery.npz", "-q", "--neighbors", 9).exit == 0
    shown = crnr("info", "gallery.h5")
    assert (shown.exit, shown.err) == (0, "")
    title, header, *rows = shown.out.splitlines()[-52:]
    assert title.strip() == "the 50 of 1001 classes with the fewest examples; --json lists all"
    assert header.split() == ["class", "examples"]
    single = [f"c{i}" for i in range(984, 1001)]  # all others have two samples; the first by name fill up
    doubles = sorted(f"c{i}" for i in range(984))[:33]
    by_number = sorted([*single, *doubles], key=lambda name: int(name[1:]))
    assert [row.split() for row in rows] == [[name, "1" if name in single else "2"] for name in by_number]
    assert len(json.loads(crnr("info", "gallery.h5", "--json").out)["classes"]) == 1001


def test_folders_are_not_compared_with_very_many_classes(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for misspelt names would take minutes."""
    Path("out.csv").write_text("path,truth,label\nq/sparrow/1.png,sparrow,sparrow\nq/sparow/2.png,,sparrow\n")
    folder = "note: 1 query without a true class: the folder sparow is not named after a class"
    assert crnr("evaluate", "out.csv").err == f"{folder}; did you mean sparrow?\n"
    monkeypatch.setattr("crnr_cli.jobs.evaluate._MAX_COMPARED", 0)
    assert crnr("evaluate", "out.csv").err == f"{folder}\n"


@pytest.mark.slow
def test_the_page_of_an_explanation_has_the_best_of_many_classes(crnr: Runner) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    make_features(1001)
    assert crnr("build", "gallery.npz", "-q", "--neighbors", 9).exit == 0
    assert crnr("explain", "queries.npz#3", "-o", "why.html").exit == 0
    page = Path("why.html").read_text(encoding="utf-8")
    assert "Shown are the 1000 best of 1001 classes." in page
    rows = page[page.index("Class by class") :].split("<tr><th")
    assert len(rows) == 1 + 1 + 1000  # what is before the table, its header, and the classes
    assert ">c0003<" in rows[2]
