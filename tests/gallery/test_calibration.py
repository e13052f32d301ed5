"""None of these: the rate of false rejections is the requested one, and outsiders are rejected."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import DataError, GalleryError
from crnr_cli.gallery.calibration import Calibration, HeldOutAnswers, calibrate
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.methods import Samples, make_method
from crnr_cli.methods.nonnegative import Crnr
from crnr_cli.results.decision import standout
from crnr_cli.results.probability import Calibrated
from helpers.runner import Runner, rows

N_CLASSES, DIMENSION = 4, 30


def draw(rng: np.random.Generator, centres: np.ndarray, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.arange(len(centres)), per_class)
    return np.abs(centres[labels] + 0.25 * rng.normal(size=(len(labels), centres.shape[1]))), labels


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A gallery of four classes, queries of these, and outsiders of a fifth."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("reject")
    centres = rng.uniform(0, 1, size=(N_CLASSES + 1, DIMENSION)) * (
        rng.random((N_CLASSES + 1, DIMENSION)) < 0.4
    )
    paths = {name: folder / f"{name}.npz" for name in ("gallery", "queries", "strangers")}
    for name, part in (("gallery", centres[:-1]), ("queries", centres[:-1]), ("strangers", centres[-1:])):
        features, labels = draw(rng, part, 100)
        labels = labels if name != "strangers" else labels + N_CLASSES
        np.savez(paths[name], features=features, labels=np.array([f"c{k}" for k in labels]))
    paths["h5"], paths["calibrated"] = folder / "g.h5", folder / "gc.h5"
    for output, options in ((paths["h5"], []), (paths["calibrated"], ["--calibrate"])):
        result = Runner(folder)("build", paths["gallery"], "-o", output, "-q", *options)
        assert result.exit == 0, result.err
    return paths


def classified(
    crnr: Runner, files: dict[str, Path], queries: str, *options: str, gallery: str = "h5"
) -> list[dict[str, str]]:
    result = crnr("classify", files[queries], "-g", files[gallery], "-q", *options)
    assert (result.exit, result.err) == (0, "")
    return rows(result.out)


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=60), st.floats(0, 1))
def test_no_more_than_the_rate_can_fall_below_the_threshold(values: list[float], rate: float) -> None:
    """With any one of n + 1 exchangeable values as the query, at most rate * (n + 1) are rejected."""
    everything = np.sort(values)
    rejected = 0
    for i in range(len(everything)):
        rest = np.delete(everything, i)
        if len(rest):
            rejected += bool(everything[i] < Calibration(rest, "").min_standout(rate))
    assert rejected <= rate * len(everything) + 1e-6


def test_the_threshold_is_the_value_of_that_rank() -> None:
    calibration = Calibration(np.arange(1, 20) / 100, "x")  # 19 values: 5 % is one in twenty
    assert calibration.min_standout(0.05) == 0.01
    assert calibration.min_standout(0.049) == 0  # too few values to promise less: nothing is rejected
    assert calibration.min_standout(0.5) == 0.1
    assert calibration.min_standout(1) == 0.19


def test_only_the_perfect_separations_of_crc_are_outdated() -> None:
    crc, crnr = make_method("crc", {}), make_method("crnr", {})
    perfect, rounded, finite = (
        Calibration(np.array([0.5, last]), "x") for last in (1.0, 1 - 0.5e-12, 1 - 1.5e-12)
    )
    assert [one.is_outdated(crc) for one in (perfect, rounded, finite)] == [True, True, False]
    assert not Calibration(np.array([1.0, 0.5]), "x").is_outdated(crc)  # the largest is the last
    assert not perfect.is_outdated(crnr)


def test_the_rule_has_all_digits_of_the_threshold() -> None:
    calibration = Calibration(np.arange(1, 20) / 30, "x")
    rule = "separation below {}; expected false rejections: 5%"
    assert calibration.describe_rule(0.05, "float32") == rule.format(f"{np.float32(1 / 30):.9g}")
    assert calibration.describe_rule(0.05, "float64") == rule.format(repr(1 / 30))


def test_standing_out_is_measured_against_the_mean_of_the_others() -> None:
    np.testing.assert_allclose(standout(np.array([[0.4, 0.6, 1.0], [0.5, 0.5, 0.5]])), [0.5, 0])


def test_every_sample_is_answered_by_the_others() -> None:
    """With fewer samples than parts each is left out alone: the same as doing so by hand."""
    vectors = np.random.default_rng(2).uniform(size=(15, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    class_index, method = np.repeat([0, 1, 2], 5), Crnr()
    by_hand = []
    for i in range(15):
        rest = Samples.of(np.delete(vectors, i, axis=0), np.delete(class_index, i))
        by_hand += standout(method.residuals(rest, method.fit(rest), vectors[[i]])).tolist()
    calibration = calibrate(Samples.of(vectors, class_index), method, [])
    np.testing.assert_allclose(calibration.standouts, np.sort(by_hand), rtol=1e-9)


def test_copies_do_not_answer_for_each_other() -> None:
    """A gallery of which every sample is there twice is calibrated by the samples without their copies."""
    vectors = np.random.default_rng(2).uniform(size=(15, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    twice, class_index, method = np.repeat(vectors, 2, axis=0), np.repeat([0, 1, 2], 10), Crnr()
    by_hand = []
    for i in range(15):
        both = [2 * i, 2 * i + 1]
        rest = Samples.of(np.delete(twice, both, axis=0), np.delete(class_index, both))
        by_hand += standout(method.residuals(rest, method.fit(rest), vectors[[i]])).tolist()
    for jobs in (1, 3):
        calibration = calibrate(Samples.of(twice, class_index), method, [], jobs)
        np.testing.assert_allclose(calibration.standouts, np.sort(by_hand), rtol=1e-9)
    only_copies = Samples.of(np.repeat(np.eye(3), 2, axis=0), np.repeat([0, 1, 2], 2))
    with pytest.raises(DataError, match="every class has only one example, apart from copies"):
        calibrate(only_copies, method, [])


def test_a_large_gallery_leaves_out_no_more_than_is_enough() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(6000, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    samples = Samples.of(vectors, np.repeat([0, 1], 3000))
    assert calibrate(samples, Crnr(), []).origin == (
        "1200 examples, classified with 1/20 of the gallery held out at a time"
    )


def test_calibrate_refuses_classes_of_one_sample() -> None:
    with pytest.raises(DataError, match="every class has only one example"):
        calibrate(Samples.of(np.eye(3), np.arange(3)), Crnr(), [])


def test_reject_has_the_requested_rate_and_rejects_outsiders(crnr: Runner, files: dict[str, Path]) -> None:
    known = classified(crnr, files, "queries", "--reject", "0.05")
    rejected = [row for row in known if row["label"] == "unknown"]
    # 5 % of 400 are 20; three standard deviations of such a count are 13.
    assert 7 <= len(rejected) <= 33
    strangers = classified(crnr, files, "strangers", "--reject", "0.05")
    assert sum(row["label"] == "unknown" for row in strangers) > 60


@pytest.mark.parametrize("method", ["crnr", "nrc", "crc", "src"])
def test_outsiders_are_rejected_by_a_few_neighbours_too(
    crnr: Runner, files: dict[str, Path], method: str
) -> None:
    """Most classes have no neighbour of a query."""
    built = crnr("build", files["gallery"], "--method", method, "--neighbors", 10, "--calibrate", "-q")
    assert (built.exit, built.err) == (0, "")
    answered = [
        rows(crnr("classify", files[queries], "--reject", "0.05", "-q").out)
        for queries in ("queries", "strangers")
    ]
    known, strangers = ([row["label"] == "unknown" for row in found] for found in answered)
    assert 7 <= sum(known) <= 33
    assert sum(strangers) > 60
    separations = [float(row["separation"]) for found in answered for row in found]
    assert 0 <= min(separations) <= max(separations) < 0.9999
    assert len(set(separations)) > 450


def test_a_rejected_row_keeps_its_best_guess(crnr: Runner, files: dict[str, Path]) -> None:
    plain = classified(crnr, files, "queries")
    rejecting = classified(crnr, files, "queries", "--reject", "0.2")
    assert {row["status"] for row in plain} == {"ok"}
    for before, after in zip(plain, rejecting, strict=True):
        if after["label"] == "unknown":
            assert (after["status"], after["runner_up"]) == ("rejected", before["label"])
            before |= {"label": "unknown", "runner_up": before["label"], "status": "rejected"}
        assert after == before
    assert sum(row["label"] == "unknown" for row in rejecting) > 40


def test_stored_calibration_gives_the_same_answers_and_its_origin(
    crnr: Runner, files: dict[str, Path]
) -> None:
    stored = classified(crnr, files, "queries", "--reject", "0.05", gallery="calibrated")
    assert all(row.pop("probability") for row in stored)  # which needs a stored calibration
    assert stored == classified(crnr, files, "queries", "--reject", "0.05")
    about = json.loads(crnr("info", files["calibrated"], "--json").out)
    assert about["calibration"] == ("400 examples, classified with 1/20 of the gallery held out at a time")
    assert json.loads(crnr("info", files["h5"], "--json").out)["calibration"] is None


def test_classify_prints_the_rejection_rule(crnr: Runner, files: dict[str, Path]) -> None:
    command = ["classify", str(files["strangers"]), "-g", str(files["calibrated"]), "--reject", "0.05"]
    result = crnr(*command)
    assert result.exit == 0
    limit = np.float32(load_gallery(files["calibrated"]).calibration.min_standout(0.05))
    rejected = result.out.count(",unknown,")
    assert result.err == (
        f"rejected {rejected} of 100 queries as unknown (separation below {limit:.9g}; expected false "
        "rejections: 5%)\n"
        f"labelled {100 - rejected} of 100 queries\n"
    )


@pytest.mark.parametrize("rate", ["0.01", "0.05", "0.3", "0.9"])
def test_the_decision_can_be_repeated_from_the_csv(crnr: Runner, files: dict[str, Path], rate: str) -> None:
    command = ["classify", str(files["queries"]), "-g", str(files["calibrated"])]
    result = crnr(*command, "--reject", rate)
    threshold = float(re.search(r"separation below (\S+);", result.err)[1])
    found = rows(result.out)
    assert [row["status"] == "rejected" for row in found] == [
        float(row["separation"]) < threshold for row in found
    ]
    # The column is the same without --reject, so that a threshold can be chosen from any CSV.
    assert [row["separation"] for row in rows(crnr(*command).out)] == [row["separation"] for row in found]


def test_evaluate_counts_the_rejected_apart(crnr: Runner, files: dict[str, Path], tmp_path: Path) -> None:
    (table := tmp_path / "out.csv").write_text(
        "path,truth,label,residual,runner_up,margin,status\n"
        "1,a,a,0.1,b,0.5,ok\n2,a,unknown,0.1,a,0.1,rejected\n3,b,unknown,0.1,a,0.1,rejected\n"
        "4,b,a,0.1,b,0.5,ok\n5,,unknown,0.1,a,0.0,rejected\n6,b,,,,,truncated\n"
    )
    record = json.loads(crnr("evaluate", table, "--json").out)
    assert (record["n"], record["correct"], record["over_all"]["n"]) == (2, 1, 5)
    assert (record["rejected"], record["rejected_with_truth"], record["rejected_guess_right"]) == (3, 2, 1)
    assert record["failed"] == {"truncated": 1}
    assert [score["name"] for score in record["classes"]] == ["a", "b"]
    shown = crnr("evaluate", table, columns=120).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "rejected as unknown 2 the best guess was right for 1" in lines
    assert "without a true class 1 not scored; 1 rejected as unknown" in lines
    page = tmp_path / "r.html"
    assert crnr("evaluate", table, "--html", page, "-q").exit == 0
    assert "Rejected as unknown" in page.read_text()


def test_evaluate_rejects_too(crnr: Runner, files: dict[str, Path]) -> None:
    command = ["evaluate", str(files["queries"]), "-g", str(files["h5"]), "--json", "-q"]
    record = json.loads(crnr(*command, "--reject", "0.2").out)
    assert record["rejected"] > 40
    assert record["n"] + record["rejected"] == 400


@pytest.mark.parametrize("name", ["unknown", "Unknown"])
def test_the_name_is_kept_for_the_rejected(crnr: Runner, tmp_path: Path, name: str) -> None:
    np.savez(path := tmp_path / "f.npz", features=np.eye(4), labels=np.array([name, name, "b", "b"]))
    result = crnr("build", path, "-o", tmp_path / "g.h5")
    assert (result.exit, result.out) == (1, "")
    words = f"class '{name}': this name is reserved for rejected queries; rename the class"
    assert result.err == f"error: {words}\n"
    assert not (tmp_path / "g.h5").exists()


def test_probabilities_are_stored_and_the_same_with_any_number_of_jobs(files: dict[str, Path]) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    stored = gallery.calibration.certainty
    assert stored is not None
    for jobs in (1, 3):
        again = calibrate(gallery.samples, gallery.method, gallery.hashes, jobs).certainty
        assert again is not None
        assert again.sharpness == stored.sharpness
        np.testing.assert_array_equal(again.of_truth, stored.of_truth)


def test_a_calibration_of_an_earlier_version_is_read(crnr: Runner, files: dict[str, Path]) -> None:
    """It has no probabilities."""
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    old = replace(gallery, calibration=replace(gallery.calibration, certainty=None))
    save_gallery(old, crnr.here / "old.h5")
    loaded = load_gallery(crnr.here / "old.h5").calibration
    assert loaded is not None
    assert loaded.certainty is None
    np.testing.assert_array_equal(loaded.standouts, gallery.calibration.standouts)


def test_a_calibration_by_infinite_residuals_is_replaced(crnr: Runner, files: dict[str, Path]) -> None:
    """An earlier version gave a class without a neighbour the residual 1/eps, and all separations were 1."""
    options = ("--method", "crc", "--neighbors", 10, "--calibrate", "-q")
    assert crnr("build", files["gallery"], *options).exit == 0
    gallery = load_gallery(crnr.here / "gallery.h5")
    assert gallery.calibration is not None
    assert not gallery.has_outdated_calibration
    old = replace(
        gallery.calibration, standouts=np.ones(400), certainty=Calibrated(0.3, np.linspace(0.1, 0.9, 400))
    )
    save_gallery(replace(gallery, calibration=old), crnr.here / "old.h5")
    loaded = load_gallery(crnr.here / "old.h5")
    assert loaded.has_outdated_calibration
    assert loaded.measure_thresholds() is None
    assert loaded.certainty.sharpness == gallery.certainty.sharpness
    for asked in ([], ["--reject", "0.05"], ["--sets", "0.9"]):
        found = [
            crnr("classify", files["queries"], "-g", name, "-q", *asked) for name in ("old.h5", "gallery.h5")
        ]
        assert found[0] == found[1]
        assert (found[0].exit, found[0].err) == (0, "")
    unlike = replace(gallery, method=Crnr(), calibration=old)  # whose residuals were never infinite
    assert not unlike.has_outdated_calibration


@pytest.mark.parametrize(
    ("sharpness", "of_truth", "message"),
    [
        (0.0, [0.5], "the calibration has a sharpness of 0"),
        (np.inf, [0.5], "the calibration has a sharpness of inf"),
        (np.nan, [0.5], "the calibration has a sharpness of nan"),
        (1.0, [0.5, 0.4], "probabilities of the calibration are not ascending"),
        (1.0, [0.5, 1.1], "probabilities of the calibration are not ascending"),
        (1.0, [-0.1, 0.5], "probabilities of the calibration are not ascending"),
        (1.0, [0.5, np.nan], "probabilities of the calibration are not ascending"),
        (1.0, [], "probabilities of the calibration are not ascending"),
    ],
)
def test_impossible_probabilities_are_refused(
    crnr: Runner, files: dict[str, Path], sharpness: float, of_truth: list[float], message: str
) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    wrong = replace(gallery.calibration, certainty=Calibrated(sharpness, np.array(of_truth)))
    save_gallery(replace(gallery, calibration=wrong), crnr.here / "wrong.h5")
    with pytest.raises(GalleryError, match=message):
        load_gallery(crnr.here / "wrong.h5")


def test_copies_do_not_make_the_probabilities_too_high() -> None:
    """Every sample twice: if a copy stayed in the gallery, all held-out samples would be recognized."""
    rng = np.random.default_rng(1)
    vectors = np.abs(rng.normal(size=(60, 20)))  # the classes are noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    once = calibrate(Samples.of(vectors, np.repeat(np.arange(3), 20)), Crnr(), []).certainty
    twice = calibrate(
        Samples.of(np.repeat(vectors, 2, axis=0), np.repeat(np.arange(3), 40)), Crnr(), []
    ).certainty
    assert once is not None
    assert twice is not None
    assert len(twice.of_truth) == 60
    assert twice.of_truth.mean() == pytest.approx(once.of_truth.mean(), abs=0.05)
    assert twice.of_truth.mean() < 0.5


def test_a_class_of_one_sample_is_never_held_out() -> None:
    rng = np.random.default_rng(2)
    vectors = np.abs(rng.normal(size=(21, 20)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = calibrate(Samples.of(vectors, np.repeat([0, 1, 2], [10, 10, 1])), Crnr(), []).certainty
    assert found is not None
    assert len(found.of_truth) == 20


def test_the_answers_to_held_out_samples_are_stored(crnr: Runner, files: dict[str, Path]) -> None:
    """Each sample is classified by hand, without the samples of its fold."""
    vectors = np.abs(np.random.default_rng(2).normal(size=(18, 6))) + np.repeat(np.eye(6)[:3], 6, axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    class_index, method = np.repeat([0, 1, 2], 6), Crnr()
    found = calibrate(Samples.of(vectors, class_index), method, [])
    assert found.certainty is not None
    assert found.answers is not None
    by_hand: dict[bool, list[float]] = {True: [], False: []}
    for i in range(18):
        rest = Samples.of(np.delete(vectors, i, axis=0), np.delete(class_index, i))
        residuals = method.residuals(rest, method.fit(rest), vectors[[i]])[0]
        weights = residuals**-found.certainty.sharpness
        by_hand[residuals.argmin() == class_index[i]].append(weights.max() / weights.sum())
    assert by_hand[False]
    np.testing.assert_allclose(found.answers.right, np.sort(by_hand[True]), atol=0.6e-4)
    np.testing.assert_allclose(found.answers.wrong, np.sort(by_hand[False]), atol=0.6e-4)
    table = found.answers.measure()
    assert (table.n, table.steps[0].answered, table.steps[0].correct) == (18, 18, len(by_hand[True]))
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    save_gallery(replace(gallery, calibration=found), crnr.here / "g.h5")
    again = load_gallery(crnr.here / "g.h5").calibration
    assert again is not None
    assert again.answers is not None
    for one, other in zip(again.answers, found.answers, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("n_wrong", [0, 2])
def test_a_calibration_without_mistakes_or_right_answers_is_read(
    crnr: Runner, files: dict[str, Path], n_wrong: int
) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    answers = HeldOutAnswers(np.full(2 - n_wrong, 0.5), np.full(n_wrong, 0.5))
    own = replace(gallery.calibration, certainty=Calibrated(1.0, np.full(2, 0.5)), answers=answers)
    save_gallery(replace(gallery, calibration=own), crnr.here / "g.h5")
    table = load_gallery(crnr.here / "g.h5").measure_thresholds()
    assert table is not None
    assert (table.n, table.steps[0].correct) == (2, 2 - n_wrong)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ([0.5, 0.4], [], "answers of the calibration are not ascending"),
        ([0.5], [1.1], "answers of the calibration are not ascending"),
        ([-0.1], [0.5], "answers of the calibration are not ascending"),
        ([np.nan], [0.5], "answers of the calibration are not ascending"),
        ([[0.5, 0.6]], [], "answers of the calibration are not ascending"),
        ([0.5], [], "another number of answers than of probabilities"),
        ([0.5, 0.6], [0.5], "another number of answers than of probabilities"),
        ([], [], "another number of answers than of probabilities"),
    ],
)
def test_impossible_answers_are_refused(
    crnr: Runner, files: dict[str, Path], right: list[float], wrong: list[float], message: str
) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    answers = HeldOutAnswers(np.array(right, dtype=float), np.array(wrong, dtype=float))
    bad = replace(gallery.calibration, certainty=Calibrated(1.0, np.full(2, 0.5)), answers=answers)
    save_gallery(replace(gallery, calibration=bad), crnr.here / "wrong.h5")
    with pytest.raises(GalleryError, match=message):
        load_gallery(crnr.here / "wrong.h5")


@pytest.mark.parametrize(
    "wrong", [np.array(0.5), np.array([], dtype="S4"), np.array([b"x"]), np.ones((0, 2))]
)
def test_answers_of_another_shape_or_type_are_refused(files: dict[str, Path], wrong: np.ndarray) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    arrays, attributes = gallery.calibration.stored()
    with pytest.raises(ValueError, match="answers of the calibration are not ascending"):
        Calibration.from_stored({**arrays, "wrong": wrong}, {**attributes, "origin": b"x"})


def test_answers_to_held_out_samples_need_both_lists(crnr: Runner, files: dict[str, Path]) -> None:
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    arrays, attributes = gallery.calibration.stored()
    del arrays["wrong"]
    with pytest.raises(ValueError, match="right and wrong answers"):
        Calibration.from_stored(arrays, {**attributes, "origin": b"x"})
    del arrays["right"]
    old = Calibration.from_stored(arrays, {**attributes, "origin": b"x"})
    assert old is not None
    assert old.answers is None
