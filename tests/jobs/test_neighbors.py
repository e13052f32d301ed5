"""Every command with a gallery that compares a query with its nearest samples alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import crnr_cli
from helpers.runner import Runner, rows

K, LAM = 6, 1e-3
CLASSES = ("ant", "bee", "cow", "dog")


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 samples and 12 queries around four centres, and the galleries made of them."""
    here = tmp_path_factory.mktemp("neighbors")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 9))
    for name, count in (("gallery", 10), ("queries", 3)):
        index = np.repeat(np.arange(4), count)
        values = centres[index] + 0.5 * rng.normal(size=(len(index), 9))
        np.savez(here / f"{name}.npz", features=values, labels=np.array(CLASSES)[index])
    crnr = Runner(here)
    for method in ("crnr", "crc"):
        build = ("build", "gallery.npz", "--method", method, "--neighbors", K, "--dtype", "float64")
        assert crnr(*build, "-o", f"{method}.h5", "-q").exit == 0
    return here


@pytest.fixture
def built(features: Path) -> Runner:
    return Runner(features)


def unit(path: Path) -> np.ndarray:
    values = np.load(path)["features"]
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def test_classify_by_the_plain_formula(built: Runner) -> None:
    result = built("classify", "queries.npz", "-g", "crc.h5", "-q")
    assert (result.exit, result.err) == (0, "")
    X, labels = unit(built.here / "gallery.npz"), np.repeat(CLASSES, 10)
    for y, row in zip(unit(built.here / "queries.npz"), rows(result.out), strict=True):
        near = np.argsort(-(X @ y), kind="stable")[:K]
        A = X[near].T
        c = np.linalg.solve(A.T @ A + LAM * np.eye(K), A.T @ y)
        for name in set(labels[near]):
            mine = labels[near] == name
            expected = np.linalg.norm(y - A[:, mine] @ c[mine]) / np.linalg.norm(c[mine])
            assert float(row[f"residual:{name}"]) == pytest.approx(expected, rel=1e-6)


def test_any_batch_and_any_number_of_cores_give_the_same_bytes(built: Runner) -> None:
    once = built("classify", "queries.npz", "-g", "crnr.h5", "-q").out
    for options in (["--batch-size", 1], ["--batch-size", 5, "--jobs", 2]):
        assert built("classify", "queries.npz", "-g", "crnr.h5", "-q", *options).out == once


def test_info_names_the_neighbours_after_the_other_parameters(built: Runner) -> None:
    about = json.loads(built("info", "crnr.h5", "--json").out)
    assert list(about["parameters"]) == ["mu", "iterations", "tol", "factor", "lam", "neighbors", "index"]
    assert (about["parameters"]["neighbors"], about["factor"], about["format_version"]) == (K, None, 4)


def test_explain_gives_weight_to_neighbours_alone(built: Runner) -> None:
    drawn = built.here / "page.html"
    result = built(
        "explain", "queries.npz#2", "-g", "crnr.h5", "--compare-with", "crc", "--json", "-o", drawn
    )
    assert result.exit == 0, result.err
    ours, other = json.loads(result.out)["explanations"]
    assert (ours["parameters"]["neighbors"], other["parameters"]["neighbors"]) == (K, K)
    X, y = unit(built.here / "gallery.npz"), unit(built.here / "queries.npz")[2]
    near = {f"gallery.npz#{i}" for i in np.argsort(-(X @ y))[:K]}
    for one in (ours, other):
        named = {Path(sample["name"]).name for sample in one["strongest"] if sample["weight"]}
        assert named
        assert named <= near
    answer = rows(built("classify", "queries.npz", "-g", "crnr.h5", "-q").out)[2]
    for name in CLASSES:
        assert float(answer[f"residual:{name}"]) == pytest.approx(ours["residuals"][name], rel=1e-8)
    assert "<html" in drawn.read_text(encoding="utf-8")


def test_probabilities_and_rejections(built: Runner) -> None:
    options = ("gallery.npz", "--neighbors", K, "--calibrate", "-o", "sure.h5", "-q")
    assert built("build", *options).exit == 0
    result = built("classify", "queries.npz", "-g", "sure.h5", "--reject", 0.1, "-q")
    assert result.exit == 0
    found = rows(result.out)
    assert all(0 < float(row["probability"]) <= 1 for row in found)
    right = [row["truth"] == row["label"] for row in found]
    assert sum(right) >= 9


def test_audit_finds_a_wrong_label(built: Runner) -> None:
    rng = np.random.default_rng(1)
    index = np.repeat(np.arange(4), 10)
    values = rng.normal(size=(4, 9))[index] + 0.2 * rng.normal(size=(40, 9))
    labels = np.array(CLASSES)[index]
    labels[3] = "dog"
    np.savez(built.here / "wrong.npz", features=values, labels=labels)
    assert built("build", "wrong.npz", "--neighbors", K, "-o", "wrong.h5", "-q").exit == 0
    result = built("audit", "wrong.h5", "--json")
    assert result.exit == 0, result.err
    (suspect,) = json.loads(result.out)["suspects"]
    found = (Path(suspect["path"]).name, suspect["label"], suspect["suggested"])
    assert found == ("wrong.npz#3", "dog", "ant")


def test_compare_takes_a_number_of_neighbours(built: Runner) -> None:
    options = ("--test", "queries.npz", "--methods", "crnr,nn", "--set", f"crnr.neighbors={K}", "--json")
    result = built("compare", "gallery.npz", *options)
    assert result.exit == 0, result.err
    methods = {one["method"]: one for one in json.loads(result.out)["methods"]}
    assert methods["crnr"]["parameters"]["neighbors"] == K
    assert "neighbors" not in methods["nn"]["parameters"]


def test_samples_are_added_renamed_and_removed(built: Runner) -> None:
    with np.load(built.here / "gallery.npz") as arrays:
        for name, keep in (("first", slice(0, 30)), ("second", slice(30, 40))):
            np.savez(
                built.here / f"{name}.npz", features=arrays["features"][keep], labels=arrays["labels"][keep]
            )
    options = ("--neighbors", K, "--dtype", "float64", "-o", "grown.h5", "-q")
    assert built("build", "first.npz", *options).exit == 0
    three = built("classify", "queries.npz", "-g", "grown.h5", "-q").out
    assert built("add", "second.npz", "-g", "grown.h5", "-q").exit == 0
    whole = built("classify", "queries.npz", "-g", "crnr.h5", "-q").out
    assert built("classify", "queries.npz", "-g", "grown.h5", "-q").out == whole
    assert built("rename", "grown.h5", "dog", "wolf", "-q").exit == 0
    renamed = built("classify", "queries.npz", "-g", "grown.h5", "-q").out
    assert rows(renamed)[0]["residual:wolf"] == rows(whole)[0]["residual:dog"]
    assert built("remove", "grown.h5", "--class", "wolf", "-q").exit == 0
    assert built("classify", "queries.npz", "-g", "grown.h5", "-q").out == three


def test_estimators_and_python_give_the_answers_of_classify(built: Runner) -> None:
    asked = rows(built("classify", "queries.npz", "-g", "crnr.h5", "-q").out)
    X, labels = (np.load(built.here / "gallery.npz")[name] for name in ("features", "labels"))
    queries = np.load(built.here / "queries.npz")["features"]
    estimator = crnr_cli.CRNRClassifier(neighbors=K).fit(X, labels)
    assert estimator.predict(queries).tolist() == [row["label"] for row in asked]
    estimator.save(built.here / "saved.h5")
    assert (
        built("classify", "queries.npz", "-g", "saved.h5", "-q").out
        == built("classify", "queries.npz", "-g", "crnr.h5", "-q").out
    )
    answers = crnr_cli.Gallery.load(built.here / "crnr.h5").classify(queries)
    assert [answer.label for answer in answers] == [row["label"] for row in asked]
