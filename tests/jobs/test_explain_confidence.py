"""The confidence that explain shows is the confidence of classify, on the same queries."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crnr_cli.api import Gallery, make_explanations
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs.explain import explain_query, open_query
from helpers.runner import Runner

CLASSES = ["ant", "bee", "cow", "dog", "[b]emu"]
PER_CLASS, DIMENSION = 30, 12
N_QUERIES = 15  # as many of the classes as outsiders
DOUBT = re.compile(
    r"^no class fits well: the separation (0\.\d+) is below (0\.\d+), "
    r"so --reject 0\.05 labels the query unknown$",
    re.M,
)
GALLERIES = {
    "crnr": [],
    "nn": ["--method", "nn"],
    "svm": ["--method", "svm"],
    "double": ["--dtype", "float64"],
    "neighbors": ["--neighbors", "20"],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """queries.npz, and calibrated galleries of the same features."""
    crnr = Runner(tmp_path_factory.mktemp("confidence"))
    rng = np.random.default_rng(0)
    centres = rng.random((len(CLASSES), DIMENSION)) * (rng.random((len(CLASSES), DIMENSION)) < 0.5) + 0.05
    examples = np.repeat(centres, PER_CLASS, axis=0)
    features = examples + 0.35 * rng.random(examples.shape)
    np.savez(crnr.here / "gallery.npz", features=features, labels=np.repeat(CLASSES, PER_CLASS))
    known = centres[np.arange(N_QUERIES) % len(CLASSES)] + 0.35 * rng.random((N_QUERIES, DIMENSION))
    outsiders = rng.random((N_QUERIES, DIMENSION))
    np.savez(crnr.here / "queries.npz", features=np.vstack([known, outsiders]))
    for name, options in GALLERIES.items():
        built = crnr("build", "gallery.npz", "-o", f"{name}.h5", "--calibrate", "-q", *options)
        assert built.exit == 0, built.err
    return crnr


def classified(crnr: Runner, gallery: str, *options: str) -> list[dict[str, Any]]:
    result = crnr("classify", "queries.npz", "-g", gallery, "-q", "--format", "jsonl", *options)
    assert result.exit == 0, result.err
    return [json.loads(line) for line in result.out.splitlines()]


def explained(crnr: Runner, row: int, gallery: str, *options: str) -> list[dict[str, Any]]:
    result = crnr("explain", f"queries.npz#{row}", "-g", gallery, "--json", *options)
    assert result.exit == 0, result.err
    return json.loads(result.out)["explanations"]


@pytest.mark.parametrize("gallery", GALLERIES)
def test_explain_has_the_confidence_of_classify(here: Runner, gallery: str) -> None:
    answers = classified(here, f"{gallery}.h5", "--reject", "0.05", "--sets", "0.95")
    assert {answer["status"] for answer in answers} == {"ok", "rejected"}
    for row, answer in enumerate(answers[::2]):
        (found,) = explained(here, 2 * row, f"{gallery}.h5")
        assert found["rejected"] == (answer["status"] == "rejected")
        assert found["label"] == answer["runner_up" if found["rejected"] else "label"]
        assert found["probability"] == pytest.approx(answer["probability"], abs=2e-4)
        assert found["probabilities"] == pytest.approx(answer["probabilities"], abs=2e-4)
        assert found["probabilities"][found["label"]] == found["probability"]
        assert found["set"] == answer["set"]


def test_the_text_of_explain_has_the_doubt_the_probability_and_the_set(here: Runner) -> None:
    answers = classified(here, "crnr.h5", "--reject", "0.05", "--sets", "0.95")
    rule = here("classify", "queries.npz", "-g", "crnr.h5", "-o", "out.csv", "--reject", "0.05").err
    threshold = float(re.findall(r"separation below ([\d.e-]+)", rule)[0])
    for row, answer in enumerate(answers[::3]):
        text = here("explain", f"queries.npz#{3 * row}", "-g", "crnr.h5").out
        rejected = answer["status"] == "rejected"
        best = answer["runner_up" if rejected else "label"]
        assert f": {best} by crnr (probability {answer['probability']:.3f}, runner-up " in text
        doubts = DOUBT.findall(text)
        assert len(doubts) == rejected
        for separation, limit in doubts:
            assert float(separation) == pytest.approx(answer["separation"], abs=5e-5)
            assert float(limit) == pytest.approx(threshold, abs=5e-5)
        names = ", ".join(answer["set"]) or "empty, no label is plausible"
        assert f"\n95% label set: {names}\n" in text
        shown = {
            name: float(value)
            for name, value in re.findall(r"^ (\S+) +\S* +\d\.\d{4} +(\d\.\d{4}) ", text, re.M)
        }
        assert shown == pytest.approx(answer["probabilities"], abs=2e-4)


def test_the_page_and_the_drawing_have_the_doubt_and_the_set(here: Runner) -> None:
    answers = classified(here, "crnr.h5", "--reject", "0.05", "--sets", "0.95")
    rejected = next(i for i, answer in enumerate(answers) if answer["status"] == "rejected")
    accepted = next(i for i, answer in enumerate(answers) if answer["status"] == "ok")
    for row in (rejected, accepted):
        for suffix in ("html", "svg"):
            assert here("explain", f"queries.npz#{row}", "-g", "crnr.h5", "-o", f"w.{suffix}", "-q").exit == 0
            text = (here.here / f"w.{suffix}").read_text()
            assert ("o class fits well" in text) == (row == rejected)
            assert f"probability {answers[row]['probability']:.3f}" in text
            assert "95% label set: " in text


def test_explain_invents_no_confidence_without_a_calibration(here: Runner) -> None:
    assert here("build", "gallery.npz", "-o", "bare.h5", "-q").exit == 0
    (found,) = explained(here, N_QUERIES, "bare.h5")
    assert [found[key] for key in ("probability", "probabilities", "set", "rejected")] == [None] * 4
    text = here("explain", f"queries.npz#{N_QUERIES}", "-g", "bare.h5", "-o", "bare.html", "-q").out
    for words in (text, (here.here / "bare.html").read_text()):
        assert "probability" not in words
        assert "fits well" not in words
        assert "label set" not in words


def test_the_calibration_is_not_used_for_another_method(here: Runner) -> None:
    own, other = explained(here, 0, "crnr.h5", "--compare-with", "nn")
    assert own["probability"] is not None
    assert [other[key] for key in ("probability", "probabilities", "set", "rejected")] == [None] * 4


def test_a_calibration_of_an_earlier_version_gives_doubt_but_no_probability(here: Runner) -> None:
    gallery = load_gallery(here.here / "crnr.h5")
    assert gallery.calibration is not None
    old = replace(gallery, calibration=replace(gallery.calibration, certainty=None))
    options = QueryOptions()
    answers = classified(here, "crnr.h5", "--reject", "0.05")
    name = str(here.here / "queries.npz")
    for row in (0, N_QUERIES, N_QUERIES + 1):
        report = explain_query(open_query(f"{name}#{row}", old, options), old, options)
        (found,) = make_explanations(report)
        assert (found.probability, found.probabilities, found.set) == (None, None, None)
        assert found.rejected == (answers[row]["status"] == "rejected")


def test_a_set_that_excludes_nothing_names_the_reason(here: Runner) -> None:
    with np.load(here.here / "gallery.npz") as file:
        few = np.arange(0, len(file["labels"]), PER_CLASS // 3)
        np.savez(here.here / "few.npz", features=file["features"][few], labels=file["labels"][few])
    assert here("build", "few.npz", "-o", "few.h5", "-q", "--calibrate").exit == 0
    (found,) = explained(here, 0, "few.h5")
    assert sorted(found["set"]) == sorted(CLASSES)
    text = here("explain", "queries.npz#0", "-g", "few.h5").out
    assert "95% label set: all 5 classes, because too few examples were held out to exclude any\n" in text
    assert found["rejected"] is False  # 15 examples are too few for a rate of 0.05, as in classify


def test_the_python_interface_returns_the_same_confidence(
    here: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here.here)
    gallery = Gallery.load("crnr.h5")
    answers = gallery.classify("queries.npz", reject=0.05, sets=0.95)
    for row in (0, N_QUERIES):
        found = gallery.explain(f"queries.npz#{row}")
        assert found.rejected == (answers[row].status == "rejected")
        assert found.set == answers[row].set
        assert found.probability == pytest.approx(answers[row].probability, abs=2e-4)
