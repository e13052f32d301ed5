"""Compare: the same vectors for every method, no leak from the test part, and honest statistics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import binomtest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs import compare as compare_job
from crnr_cli.jobs.compare import CompareOptions, compare
from crnr_cli.methods import METHODS, Split, make_method
from crnr_cli.methods.folds import hold_out_share
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca
from crnr_cli.results.scores import mcnemar_p_value, wilson_interval
from crnr_cli.system.extras import command_for_extra
from helpers.latch import Latch
from helpers.method_checks import problem
from helpers.runner import Runner, read_rows
from helpers.samples import draw_image

CLASSES = np.array(["a", "b", "c", "d"])
SIZES = (15, 12, 18, 14)


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """A gallery and a test file of classes that overlap, so that methods differ."""
    samples, queries, truths = problem(sizes=SIZES, d=12, m=60, spread=1.5)
    gallery, test = tmp_path / "gallery.npz", tmp_path / "test.npz"
    np.savez(gallery, features=samples.vectors, labels=np.repeat(CLASSES, SIZES))
    np.savez(test, features=queries, labels=CLASSES[truths])
    return gallery, test


@given(st.integers(0, 99), st.integers(0, 99))
def test_mcnemar_is_the_exact_binomial_test(first: int, second: int) -> None:
    if first + second:
        expected = binomtest(first, first + second).pvalue
        assert mcnemar_p_value(first, second) == pytest.approx(expected, rel=1e-12)
    else:
        assert mcnemar_p_value(0, 0) == 1


@given(st.lists(st.integers(1, 20), min_size=2, max_size=6), st.floats(0.01, 0.99), st.integers(0, 99))
def test_every_class_keeps_a_sample_and_gives_its_share(sizes: list[int], share: float, seed: int) -> None:
    class_index = np.repeat(np.arange(len(sizes)), sizes)
    different = np.arange(len(class_index))
    taken = [min(round(share * size), size - 1) for size in sizes]
    if not any(taken):
        with pytest.raises(UsageError, match=r"--holdout .* hold out more, or give --test"):
            hold_out_share(class_index, share, np.random.default_rng(seed), different)
        return
    held = hold_out_share(class_index, share, np.random.default_rng(seed), different)
    assert np.bincount(class_index[held], minlength=len(sizes)).tolist() == taken


def test_a_test_folder_of_a_mac_has_the_same_classes(crnr: Runner) -> None:
    """Names in another Unicode form, and a folder above the class: compare agrees with evaluate."""
    for number, name in enumerate(("café", "naïve", "two")):
        for i in range(5):
            draw_image(number, i).save(made(Path("gallery", normalize("NFC", name))) / f"{i}.png")
            draw_image(number, 20 + i).save(made(Path("test", "2024", normalize("NFD", name))) / f"{i}.png")
    assert crnr("build", "gallery", "-q").exit == 0
    evaluated = json.loads(crnr("evaluate", "test", "--json", "-q").out)
    outcome = crnr("compare", "gallery", "--test", "test", "--methods", "crnr", "--json")
    assert (outcome.exit, outcome.err) == (0, "")
    (compared,) = json.loads(outcome.out)["methods"]
    assert compared["accuracy"] == evaluated["accuracy"] > 0.8


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_copies_in_the_gallery_do_not_make_methods_look_better(crnr: Runner, data: tuple[Path, Path]) -> None:
    """Every sample is there twice, so that the nearest one would always be its copy."""
    with np.load(data[0]) as file:
        values, labels = file["features"], file["labels"]
    np.savez("twice.npz", features=np.concatenate([values, values]), labels=np.concatenate([labels, labels]))
    found = {}
    for source in (data[0], "twice.npz"):
        record = json.loads(crnr("compare", source, "--methods", "nn", "--json", "-q").out)
        found[source] = record["methods"][0]["accuracy"]
        assert record["n_tested"] <= len(labels)
    assert found["twice.npz"] < 0.9
    assert found["twice.npz"] == pytest.approx(found[data[0]], abs=0.1)


def test_compare_gives_the_accuracies_of_build_and_evaluate(
    crnr: Runner, data: tuple[Path, Path], tmp_path: Path
) -> None:
    gallery, test = data
    result = crnr("compare", gallery, "--test", test, "--pca", 6, "--set", "crc.lam=0.05", "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    assert (record["n_gallery"], record["n_tested"], record["dimension"]) == (sum(SIZES), 60, 6)
    assert {row["method"] for row in record["methods"]} == set(METHODS)
    for row in record["methods"]:
        built = str(tmp_path / "g.h5")
        lam = ["--lam", "0.05"] if row["method"] == "crc" else []
        options = ["--pca", "6", "--method", row["method"], *lam]
        crnr("build", gallery, *options, "-o", built, "-q")
        scored = json.loads(crnr("evaluate", test, "-g", built, "--json").out)
        assert row["accuracy"] == scored["accuracy"]
        assert row["macro_f1"] == pytest.approx(scored["macro"]["f1"], rel=1e-12)
        assert row["interval"] == pytest.approx(scored["interval"], rel=1e-12)


def test_p_values_are_of_paired_answers(data: tuple[Path, Path]) -> None:
    gallery, test = data
    report = compare([str(gallery)], CompareOptions(Reading(dtype="float64"), test=[str(test)]))
    samples, queries, truths = problem(sizes=SIZES, d=12, m=60, spread=1.5)

    def right(name: str) -> np.ndarray:
        method = make_method(name, {})
        return method.residuals(samples, method.fit(samples), queries).argmin(axis=1) == truths

    best, *others = report.results
    assert best.p_value is None
    for other in others:
        a, b = right(best.method.name), right(other.method.name)
        only_best, only_other = int((a & ~b).sum()), int((b & ~a).sum())
        differing = only_best + only_other
        expected = binomtest(only_best, differing).pvalue if differing else 1.0
        assert other.p_value == pytest.approx(expected, rel=1e-12)
    assert len({other.p_value for other in others}) > 3


def test_the_best_comes_first(data: tuple[Path, Path]) -> None:
    report = compare([str(data[0])], CompareOptions(draws=2))
    correct = [result.scores.correct for result in report.results]
    assert correct == sorted(correct, reverse=True)
    assert [result.p_value is None for result in report.results] == [True] + [False] * (len(METHODS) - 1)


def test_a_sample_that_is_tested_again_is_still_one_sample(data: tuple[Path, Path]) -> None:
    """Ten draws of nearly the same samples must not pass for ten times the evidence."""
    options = CompareOptions(draws=10, holdout=0.5, methods=["crnr", "nn"])
    report = compare([str(data[0])], options)
    for result in report.results:
        assert result.scores.n > 4 * report.n_tested
        share = result.scores.correct / result.scores.n
        assert result.interval == pytest.approx(wilson_interval(share * report.n_tested, report.n_tested))
    assert report.n_tested <= sum(SIZES)


def test_a_pair_of_a_sample_goes_to_the_method_more_often_right() -> None:
    numbers = np.array([0, 0, 0, 1, 1, 2])
    tally = compare_job._Tally(truths=list("aaabbc"), labels=list("aabbbb"))
    assert compare_job._hits(tally, numbers).tolist() == [2, 2, 0]


def test_pca_never_sees_the_samples_held_out(
    data: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = []
    fit = Recipe.fit

    def recorded(recipe: Recipe, raw: Array, class_index: Array) -> Recipe:
        fitted.append(raw)
        return fit(recipe, raw, class_index)

    tested = []
    split = compare_job.hold_out_share

    def remembered(*arguments: Any) -> Array:
        tested.append(split(*arguments))
        return tested[-1]

    monkeypatch.setattr(Recipe, "fit", recorded)
    monkeypatch.setattr(compare_job, "hold_out_share", remembered)
    compare([str(data[0])], CompareOptions(Reading(steps=(Pca(4),), jobs=1), draws=3, methods=["nn"]))
    whole = np.load(data[0])["features"]
    assert len(fitted) == len(tested) == 3
    for raw, held in zip(fitted, tested, strict=True):
        np.testing.assert_array_equal(raw, whole[~held])


def test_threads_make_each_split_once(data: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, every thread would hold its own copy of the features."""
    made: list[Array] = []
    all_asked = Latch(3)
    ask, make = compare_job._Drawn.split, compare_job._Drawn._make_split

    def count_asking(self: compare_job._Drawn, draw: int) -> Split:
        all_asked.count_down()
        return ask(self, draw)

    def count(self: compare_job._Drawn, held: Array) -> Split:
        made.append(held)
        all_asked.wait()
        return make(self, held)

    monkeypatch.setattr(compare_job._Drawn, "split", count_asking)
    monkeypatch.setattr(compare_job._Drawn, "_make_split", count)
    monkeypatch.setattr("crnr_cli.gallery.workers.pieces_at_once", lambda jobs: 3)
    options = CompareOptions(methods=["nn", "crc", "nrc"], draws=1)
    assert len(compare([str(data[0])], options).results) == 3
    assert len(made) == 1


def test_the_seed_makes_the_draw(data: tuple[Path, Path]) -> None:
    def accuracies(seed: int) -> list[float | None]:
        report = compare([str(data[0])], CompareOptions(draws=2, seed=seed, methods=["crnr", "nn", "crc"]))
        return [result.scores.accuracy for result in report.results]

    assert accuracies(1) == accuracies(1)
    assert accuracies(1) != accuracies(2)


def test_progress_goes_over_methods_and_draws(data: tuple[Path, Path]) -> None:
    steps = []
    options = CompareOptions(draws=2, methods=["nn", "crc"])
    compare([str(data[0])], options, lambda *step: steps.append(step))
    assert steps[-5:] == [("comparing", done, 4) for done in range(5)]


def test_compare_prints_a_table_of_scores(crnr: Runner, data: tuple[Path, Path]) -> None:
    result = crnr("compare", data[0], "--methods", "nn, crnr", "--draws", 2, "--holdout", 0.25, columns=80)
    assert (result.exit, result.err) == (0, "")
    assert "best" in result.out
    for word in ("method", "accuracy", "95%", "macro F1", "build s", "ms per query", "crnr", "nn"):
        assert word in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_compare_csv_has_a_row_per_method(crnr: Runner, data: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    result = crnr("compare", data[0], "--test", data[1], "--methods", "nn,crnr", "--csv", path, "--json")
    assert (result.exit, result.err) == (0, "")
    written = read_rows(path)
    assert {row["method"] for row in written} == {"nn", "crnr"}
    for row, record in zip(written, json.loads(result.out)["methods"], strict=True):
        assert row["method"] == record["method"]
        assert [float(row[key]) for key in ("accuracy", "macro_f1")] == [
            record[key] for key in ("accuracy", "macro_f1")
        ]
        assert [float(row["low"]), float(row["high"])] == record["interval"]
        assert row["p_value"] == ("" if record["p_value"] is None else str(record["p_value"]))


def test_test_keys_are_its_own(crnr: Runner, tmp_path: Path, data: tuple[Path, Path]) -> None:
    train, test = (np.load(path) for path in data)
    both = tmp_path / "both.npz"
    np.savez(both, F=train["features"], L=train["labels"], tf=test["features"], tl=test["labels"])
    keys = ["--features-key", "F", "--labels-key", "L"]
    test_keys = ["--test-features-key", "tf", "--test-labels-key", "tl"]
    result = crnr("compare", both, *keys, "--test", both, *test_keys, "--methods", "nn", "--json")
    record = json.loads(result.out)
    assert (record["n_gallery"], record["n_tested"]) == (sum(SIZES), 60)
    same = json.loads(crnr("compare", both, *keys, "--test", both, "--methods", "nn", "--json").out)
    assert (same["n_tested"], same["methods"][0]["accuracy"]) == (sum(SIZES), 1.0)


@pytest.mark.usefixtures("no_scikit_learn")
def test_without_scikit_learn_its_methods_are_left_out(crnr: Runner, data: tuple[Path, Path]) -> None:
    result = crnr("compare", data[0], "--draws", 1, "--json")
    assert result.exit == 0
    names = {row["method"] for row in json.loads(result.out)["methods"]}
    assert names == set(METHODS) - {"svm", "softmax"}
    remedy = f"needs scikit-learn; install with: {command_for_extra('baselines')}"
    assert result.err == f"note: left out: method svm {remedy}\nnote: left out: method softmax {remedy}\n"


@pytest.mark.usefixtures("no_scikit_learn")
def test_compare_without_scikit_learn_refuses_its_methods(crnr: Runner, data: tuple[Path, Path]) -> None:
    result = crnr("compare", data[0], "--methods", "crnr,svm")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: method svm needs scikit-learn; ")


def test_a_method_that_fails_on_the_data_leaves_the_others(
    crnr: Runner, data: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, samples: object) -> None:
        raise DataError("crc cannot")

    monkeypatch.setattr(METHODS["crc"], "fit", fail)
    result = crnr("compare", data[0], "--methods", "nn,crc", "--json")
    assert (result.exit, result.err) == (0, "note: left out: crc cannot\n")
    assert [row["method"] for row in json.loads(result.out)["methods"]] == ["nn"]
    assert crnr("compare", data[0], "--methods", "crc").err == (
        "error: no method could be fitted: left out: crc cannot\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--methods", "magic"], 2, "error: --methods: 'magic' is not one of crnr, nrc, "),
        (["--set", "crc.lam"], 2, "error: --set crc.lam: write METHOD.PARAM=VALUE, such as crc.lam=0.1"),
        (["--set", "magic.lam=1"], 2, "error: --set magic.lam=1: 'magic' is not one of crnr, nrc, "),
        (
            ["--set", "crc.mu=1"],
            2,
            "error: --set crc.mu: method crc has no parameter mu; its parameters are lam",
        ),
        (["--set", "crnr.fit=1"], 2, "error: --set crnr.fit: method crnr has no parameter fit; "),
        (["--set", "crnr.iterations=1e3"], 2, "error: --set crnr.iterations: '1e3' is not a whole number"),
        (["--set", "crc.lam=much"], 2, "error: --set crc.lam: 'much' is not a number"),
        (["--set", "crc.lam=-1"], 2, "error: method crc: lam must be above 0, not -1"),
        (["--set", "crc.lam=1", "--methods", "nn"], 2, "error: a parameter is set for crc, which is not"),
        (["--holdout", "1.5"], 2, "error: --holdout must be above 0 and at most 1, not 1.5 (see "),
        (["--holdout", "0.001"], 2, "error: --holdout 0.001 leaves no example to test with; "),
        (["--csv", "/nowhere/x.csv"], 1, "error: /nowhere/x.csv: the folder /nowhere does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_compare_refuses_invalid_arguments(
    crnr: Runner, data: tuple[Path, Path], arguments: list[str], code: int, message: str
) -> None:
    result = crnr("compare", data[0], *arguments)
    assert (result.exit, result.out) == (code, "")
    assert result.err.startswith(message)


def test_holdout_and_test_exclude_each_other(crnr: Runner, data: tuple[Path, Path]) -> None:
    result = crnr("compare", data[0], "--test", data[1], "--draws", 3)
    assert (result.exit, result.out) == (2, "")
    assert "--draws cannot be combined with --test" in result.err


def test_compare_refuses_a_single_class(crnr: Runner, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=["a"] * 4)
    result = crnr("compare", tmp_path / "x.npz")
    assert (result.exit, result.out) == (1, "")
    assert result.err == "error: only one class, a: there is nothing to compare\n"


def test_other_dimensions_are_refused(crnr: Runner, data: tuple[Path, Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(5), labels=list("abcda"))
    result = crnr("compare", data[0], "--test", tmp_path / "x.npz")
    assert (result.exit, result.out) == (1, "")
    assert "5 features per query, but the gallery was built from 12" in result.err


def test_classes_the_gallery_does_not_have_are_named(
    crnr: Runner, data: tuple[Path, Path], tmp_path: Path
) -> None:
    test = np.load(data[1])
    labels = np.where(np.arange(60) < 10, "z", test["labels"])
    np.savez(tmp_path / "x.npz", features=test["features"], labels=labels)
    result = crnr("compare", data[0], "--test", tmp_path / "x.npz", "--methods", "nn", "--json")
    assert (result.exit, result.err) == (
        0,
        "note: classes that are not in the gallery, so never labelled correctly: z\n",
    )
    assert json.loads(result.out)["methods"][0]["accuracy"] <= 50 / 60


def test_compare_reads_image_folders_and_names_broken_ones(crnr: Runner, tmp_path: Path) -> None:
    """Folders for both; a broken test image is named, and the exit code tells."""
    rng = np.random.default_rng(0)
    for part in ("gallery", "test"):
        for name, black in (("top", np.s_[:4]), ("left", np.s_[:, :4])):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(4):
                pixels = rng.integers(150, 250, size=(8, 8))
                pixels[black] = 0
                Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / part / name / f"{i}.png")
    (tmp_path / "test" / "top" / "broken.png").write_bytes(b"")
    command = ("compare", "gallery", "--test", "test")
    result = crnr(*command, "--pca", 3, "--methods", "nn,crnr", "--json")
    assert result.exit == 3
    assert result.err == "failed: test/top/broken.png: the file is empty\n"
    record = json.loads(result.out)
    assert (record["n_gallery"], record["n_tested"]) == (8, 8)
    assert [row["accuracy"] for row in record["methods"]] == [1.0, 1.0]
    assert crnr(*command, "--methods", "nn", "-q", "--allow-skipped").exit == 0


def test_a_batch_of_unreadable_images_and_pca(crnr: Runner, tmp_path: Path) -> None:
    """With no image to read there is no width to project, and every row still gets its status."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "gallery" / name).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 255, size=(8, 8)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "gallery" / name / f"{i}.png")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "x.png").write_bytes(b"")
    gallery = str(tmp_path / "g.h5")
    built = crnr("build", tmp_path / "gallery", "--pca", "2", "-o", gallery, "-q")
    assert (built.exit, built.err) == (0, "")
    result = crnr("classify", tmp_path / "queries", "-g", gallery, "-q")
    assert (result.exit, result.err) == (3, "")
    assert result.out.splitlines()[1].split(",")[6] == "empty_file"


def test_compare_fits_pca_after_the_power(crnr: Runner, tmp_path: Path) -> None:
    """Comparing with --power and --pca equals raising the features beforehand."""
    rng = np.random.default_rng(0)
    labels = np.repeat(CLASSES, 10)
    raw = np.abs(rng.normal(size=(40, 8)) + np.repeat(rng.normal(size=(4, 8)), 10, axis=0)) ** 3
    np.savez(tmp_path / "raw.npz", features=raw, labels=labels)
    np.savez(tmp_path / "cubed.npz", features=np.cbrt(raw), labels=labels)
    reading = ["--pca", 3, "--methods", "nn,crc", "--draws", 2, "--json", "-q"]
    by_power = json.loads(crnr("compare", tmp_path / "raw.npz", "--power", 1 / 3, *reading).out)
    by_hand = json.loads(crnr("compare", tmp_path / "cubed.npz", *reading).out)
    plain = json.loads(crnr("compare", tmp_path / "raw.npz", *reading).out)

    def accuracies(record: dict[str, Any]) -> dict[str, float]:
        return {row["method"]: row["accuracy"] for row in record["methods"]}

    assert accuracies(by_power) == accuracies(by_hand)
    assert accuracies(plain) != accuracies(by_hand)
