"""Probabilities of classify: the columns probability and set, and --min-probability."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from crnr_cli.gallery.file import load_gallery, save_gallery
from helpers.runner import Runner, rows

PER_CLASS = 25
CLASSES = ["a|b", "back\\slash", "c,d", "e"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Four classes that overlap; a gallery without a calibration, and one with it."""
    rng, folder = np.random.default_rng(3), tmp_path_factory.mktemp("sureness")
    centres = rng.uniform(0, 1, size=(len(CLASSES), 30))
    labels = np.repeat(CLASSES, PER_CLASS)
    paths = {name: folder / f"{name}.npz" for name in ("gallery", "queries")}
    for path in paths.values():
        features = np.abs(np.repeat(centres, PER_CLASS, axis=0) + 0.5 * rng.normal(size=(len(labels), 30)))
        np.savez(path, features=features, labels=labels)
    for name, options in (("plain", []), ("calibrated", ["--calibrate"]), ("svm", ["--method", "svm"])):
        paths[name] = folder / f"{name}.h5"
        result = Runner(folder)("build", paths["gallery"], "-o", paths[name], "-q", *options)
        assert result.exit == 0, result.err
    return paths


def classified(crnr: Runner, files: dict[str, Path], *options: object, gallery: str = "calibrated") -> str:
    result = crnr("classify", files["queries"], "-g", files[gallery], "-q", *options)
    assert (result.exit, result.err) == (0, "")
    return result.out


def residuals_of(row: dict[str, str]) -> np.ndarray:
    return np.array([float(row[f"residual:{name}"]) for name in CLASSES])


def test_the_column_is_the_softmax_of_the_residuals(crnr: Runner, files: dict[str, Path]) -> None:
    calibration = load_gallery(files["calibrated"]).calibration
    assert calibration is not None
    assert calibration.certainty is not None
    for row in rows(classified(crnr, files)):
        expected = softmax(-calibration.certainty.sharpness * np.log(residuals_of(row)))
        assert float(row["probability"]) == pytest.approx(expected.max(), abs=6e-5)
        assert CLASSES[expected.argmax()] == row["label"]


def test_only_a_calibrated_gallery_adds_the_probability_column(crnr: Runner, files: dict[str, Path]) -> None:
    plain, calibrated = classified(crnr, files, gallery="plain"), classified(crnr, files)
    assert "probability" not in plain
    without = rows(calibrated)
    for row in without:
        del row["probability"]
    assert without == rows(plain)
    assert "probability" not in classified(crnr, files, "--reject", "0.1", gallery="plain")
    assert "probability" not in classified(crnr, files, "--json", gallery="plain")


def test_probabilities_are_computed_if_they_are_not_stored(crnr: Runner, files: dict[str, Path]) -> None:
    """In a gallery without a calibration, and in one of an earlier version."""
    gallery = load_gallery(files["calibrated"])
    assert gallery.calibration is not None
    earlier = replace(gallery, calibration=replace(gallery.calibration, certainty=None))
    save_gallery(earlier, crnr.here / "earlier.h5")
    assert "probability" not in classified(
        crnr, files | {"earlier": crnr.here / "earlier.h5"}, gallery="earlier"
    )
    for options in (["--min-probability", "0.6"], ["--sets", "0.9"]):
        stored = classified(crnr, files, *options)
        assert classified(crnr, files, *options, gallery="plain") == stored
        result = crnr("classify", files["queries"], "-g", "earlier.h5", "-q", *options)
        assert (result.exit, result.out, result.err) == (0, stored, "")


def test_unsure_answers_are_rejected(crnr: Runner, files: dict[str, Path]) -> None:
    before = rows(classified(crnr, files))
    result = crnr("classify", files["queries"], "-g", files["calibrated"], "--min-probability", "0.8")
    after = rows(result.out)
    unsure = [float(row["probability"]) < 0.8 for row in before]
    assert 5 < sum(unsure) < 95
    assert [row["label"] == "unknown" for row in after] == unsure
    assert [row["status"] == "rejected" for row in after] == unsure
    assert [row["runner_up"] if row["label"] == "unknown" else row["label"] for row in after] == [
        row["label"] for row in before
    ]
    assert [row["probability"] for row in after] == [row["probability"] for row in before]
    assert result.exit == 0
    assert result.err == (
        f"rejected {sum(unsure)} of 100 queries as unknown (probability below 0.8)\n"
        f"labelled {100 - sum(unsure)} of 100 queries\n"
    )


def test_both_reasons_to_reject(crnr: Runner, files: dict[str, Path]) -> None:
    command = ("classify", files["queries"], "-g", files["calibrated"])
    alone = [
        rows(crnr(*command, *options).out) for options in (["--reject", "0.2"], ["--min-probability", "0.6"])
    ]
    both = crnr(*command, "--reject", "0.2", "--min-probability", "0.6")
    statuses = [row["status"] for row in rows(both.out)]
    assert statuses == [
        "rejected" if "rejected" in (one["status"], other["status"]) else "ok"
        for one, other in zip(*alone, strict=True)
    ]
    assert "separation below " in both.err
    assert "; or probability below 0.6)" in both.err


def parts(text: str) -> list[str]:
    """Return the labels of a set, read character by character."""
    labels, escaped = [""], False
    for character in text:
        if escaped or character not in "\\|":
            labels[-1] += character
            escaped = False
        elif character == "|":
            labels.append("")
        else:
            escaped = True
    return labels if text else []


def test_label_sets_are_nested_and_cover_the_truth_at_their_level(
    crnr: Runner, files: dict[str, Path]
) -> None:
    found = {level: rows(classified(crnr, files, "--sets", level)) for level in (0.5, 0.8, 0.95)}
    smaller: list[list[str]] = [[]] * 100
    for level, table in found.items():
        sets = [parts(row["set"]) for row in table]
        assert all(set(small) <= set(large) for small, large in zip(smaller, sets, strict=True))
        for row, labels in zip(table, sets, strict=True):
            order = np.argsort(residuals_of(row))
            assert labels == [CLASSES[k] for k in order[: len(labels)]]
        covered = np.mean([row["truth"] in labels for row, labels in zip(table, sets, strict=True)])
        assert covered == pytest.approx(level, abs=0.15)  # three standard deviations of 100 + 100 samples
        smaller = sets
    assert any(len(labels) > 1 for labels in smaller)


def test_a_level_for_which_the_gallery_is_too_small(crnr: Runner, files: dict[str, Path]) -> None:
    """At 0.99, 1 of 101 may be excluded; at 0.995, none."""
    command = ("classify", files["queries"], "-g", files["calibrated"], "--sets")
    enough, too_few = crnr(*command, "0.99"), crnr(*command, "0.995")
    assert (enough.exit, enough.err) == (0, "labelled 100 of 100 queries\n")
    assert too_few.exit == 0
    assert too_few.err == (
        "note: --sets 0.995 excludes no label: too few examples could be held out of the gallery (100 "
        "examples) for so high a level; choose a lower one, or add examples\nlabelled 100 of 100 queries\n"
    )
    assert {len(parts(row["set"])) for row in rows(too_few.out)} == {len(CLASSES)}


def test_the_best_classes_have_their_probabilities(crnr: Runner, files: dict[str, Path]) -> None:
    for row in rows(classified(crnr, files, "--top", 4)):
        assert row["probability_1"] == row["probability"]
        assert sum(float(row[f"probability_{i}"]) for i in (1, 2, 3, 4)) == pytest.approx(1, abs=3e-4)
        assert list(row)[9:12] == ["label_1", "residual_1", "probability_1"]


@pytest.mark.parametrize("top", [[], ["--top", 2]], ids=["all", "top"])
def test_json_lines_hold_the_same(crnr: Runner, files: dict[str, Path], top: list[object]) -> None:
    table = rows(classified(crnr, files, "--sets", "0.9", *top))
    records = [
        json.loads(line) for line in classified(crnr, files, "--sets", "0.9", "--json", *top).splitlines()
    ]
    for record, row in zip(records, table, strict=True):
        assert f"{record['probability']:.4f}" == row["probability"]
        assert record["set"] == parts(row["set"])
        assert list(record["probabilities"]) == list(record["residuals"])
        assert record["probabilities"][record["label"]] == record["probability"]
    assert len(records) == 100


def test_jobs_and_batches_make_no_difference(crnr: Runner, files: dict[str, Path]) -> None:
    once = classified(crnr, files, "--sets", "0.9", "--jobs", 1, gallery="plain")
    assert classified(crnr, files, "--sets", "0.9", "--jobs", 3, gallery="plain") == once
    table = rows(once)
    for row, other in zip(
        rows(classified(crnr, files, "--sets", "0.9", "--batch-size", 7)), table, strict=True
    ):
        # The last bits of a residual in float32 depend on the batch, which can turn the last digit.
        assert float(row["probability"]) == pytest.approx(float(other["probability"]), abs=1.1e-4)
        assert row["set"] == other["set"]


def test_scores_of_a_trained_method_become_probabilities_too(crnr: Runner, files: dict[str, Path]) -> None:
    table = rows(classified(crnr, files, "--min-probability", "0", gallery="svm"))
    right = np.mean([row["truth"] == row["label"] for row in table])
    assert np.mean([float(row["probability"]) for row in table]) == pytest.approx(right, abs=0.15)


def test_an_input_without_an_answer_has_no_probability(crnr: Runner, files: dict[str, Path]) -> None:
    content = dict(np.load(files["queries"]))
    content["features"][1] = 0
    np.savez(crnr.here / "zeros.npz", **content)
    result = crnr("classify", "zeros.npz", "-g", files["calibrated"], "--sets", "0.9", "-q")
    assert result.exit == 3
    failed = rows(result.out)[1]
    assert (failed["label"], failed["probability"], failed["set"]) == ("", "", "")
    assert failed["status"] != "ok"
    as_json = crnr("classify", "zeros.npz", "-g", files["calibrated"], "--sets", "0.9", "-q", "--json")
    record = json.loads(as_json.out.splitlines()[1])
    assert (record["probability"], record["set"], record["probabilities"]) == (None, None, None)


def test_a_gallery_that_cannot_be_calibrated(crnr: Runner) -> None:
    np.savez("one.npz", features=np.eye(3), labels=["a", "b", "c"])
    assert crnr("build", "one.npz", "-q").exit == 0
    result = crnr("classify", "one.npz", "--sets", "0.9")
    assert (result.exit, result.out) == (1, "")
    assert result.err == (
        "error: every class has only one example, apart from copies: rejecting queries and probabilities "
        "need "
        "at least two in some class\n"
    )


@pytest.mark.parametrize("option", ["--min-probability", "--sets"])
def test_levels_are_shares(crnr: Runner, files: dict[str, Path], option: str) -> None:
    result = crnr("classify", files["queries"], option, "95")
    assert (result.exit, result.out) == (2, "")
    assert "must be from 0 to 1, not 95; did you mean 0.95?" in result.err


def test_evaluate_measures_both_from_the_csv_and_from_queries(crnr: Runner, files: dict[str, Path]) -> None:
    options = ("--sets", "0.8", "-g", files["calibrated"])
    assert crnr("classify", files["queries"], "-o", "out.csv", "-q", *options).exit == 0
    table = rows(Path("out.csv").read_text())
    record = json.loads(crnr("evaluate", "out.csv", "--json").out)
    now = json.loads(crnr("evaluate", files["queries"], "--json", *options).out)
    assert (record["reliability"], record["sets"]) == (now["reliability"], now["sets"])
    assert record["reliability"]["n"] == record["sets"]["n"] == 100
    assert record["reliability"]["mean_probability"] == pytest.approx(
        np.mean([float(row["probability"]) for row in table])
    )
    assert record["sets"]["covered"] == sum(row["truth"] in parts(row["set"]) for row in table)
    assert record["sets"]["empty"] == sum(not row["set"] for row in table)
    shown = crnr("evaluate", "out.csv", "-q")
    assert (shown.exit, shown.err) == (0, "")
    low, high = record["reliability"]["interval"]
    assert (
        f"{record['reliability']['error']:.4f}  (95% {low:.4f} to {high:.4f})  mean probability " in shown.out
    )
    assert f"{record['sets']['covered']} of 100 label sets contain the true class; " in shown.out
    assert crnr("evaluate", "out.csv", "--html", "out.html", "-q").exit == 0
    assert Path("out.html").read_text().count("<circle") == len(record["reliability"]["bins"]) == 5


def test_evaluate_without_probabilities_prints_none(crnr: Runner, files: dict[str, Path]) -> None:
    assert crnr("classify", files["queries"], "-g", files["plain"], "-o", "out.csv", "-q").exit == 0
    record = json.loads(crnr("evaluate", "out.csv", "--json").out)
    assert (record["reliability"], record["sets"]) == (None, None)
    shown = crnr("evaluate", "out.csv", "--html", "out.html", "-q")
    assert (shown.exit, shown.err) == (0, "")
    assert "calibration error" not in shown.out
    assert "reliable-title" not in Path("out.html").read_text()


def test_columns_of_other_programs_are_not_taken_for_ours(crnr: Runner) -> None:
    """A set without a probability is one of a split; a probability that is no share of 1 is ignored."""
    Path("split.csv").write_text("truth,label,set\na,a,test\nb,b,train\n")
    assert json.loads(crnr("evaluate", "split.csv", "--json").out)["sets"] is None
    Path("percent.csv").write_text("truth,label,probability\na,a,93.1\nb,b,high\na,b,nan\n")
    assert json.loads(crnr("evaluate", "percent.csv", "--json").out)["reliability"] is None
