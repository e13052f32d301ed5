"""Evaluate, on arbitrary CSVs, against a plain implementation of its counts and scikit-learn's scores."""

from __future__ import annotations

import csv
import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

from crnr_cli.jobs.evaluate import EvaluateReport, evaluate_rows
from crnr_cli.results.decision import Prediction
from helpers.runner import Runner
from helpers.samples import make_images

CLASSES = ["cat", "dog", "class 2", "class 10"]
Row = tuple[str, str, str, str]  # truth, label, runner_up, status

table_rows = st.lists(
    st.tuples(
        st.sampled_from([*CLASSES, "unknown", ""]),
        st.sampled_from([*CLASSES, "unknown", ""]),
        st.sampled_from([*CLASSES, ""]),
        st.sampled_from(["ok", "rejected", "truncated", "blurred", ""]),
    ),
    min_size=1,
    max_size=40,
)


def prediction(row: Row) -> Prediction:
    truth, label, runner_up, status = row
    status = status or ("ok" if label else "no_label")
    return Prediction("a.png", truth or None, label or None, 0.5, runner_up or None, 0.1, status)


def expected(rows: list[Row]) -> dict[str, object]:
    """Return all counts, one row after the other."""
    names = ("n", "correct", "all", "insiders", "answered", "without_truth", "rejected", "guessed")
    counts = dict.fromkeys(names, 0)
    failed: Counter[str] = Counter()
    for truth, label, runner_up, status in rows:
        answered = label != "" and (label != "unknown" or truth == "unknown")
        counts["insiders"] += truth != "unknown"
        counts["answered"] += answered and truth != "unknown"
        counts["without_truth"] += truth == ""
        if truth:
            counts["all"] += 1
            counts["n"] += answered
            counts["correct"] += answered and truth == label
        if label == "unknown" and not answered:
            counts["rejected"] += 1
            counts["guessed"] += truth != "" and runner_up == truth
        if label == "":
            failed["no_label" if status in ("ok", "") else status] += 1
    return {**counts, "failed": failed}


def f1_over_all(rows: list[Row]) -> float:
    """Return the macro F1 by scikit-learn, where no answer is a label that is no class."""
    known = [(t, p if p != "unknown" or t == "unknown" else "") for t, p, _, _ in rows if t]
    truths, labels = (list(column) for column in zip(*known, strict=True))
    classes = sorted({*truths, *labels} - {""})
    return float(f1_score(truths, labels, labels=classes, average="macro", zero_division=0))


def seen(report: EvaluateReport) -> dict[str, object]:
    return {
        "n": report.scores.n,
        "correct": report.scores.correct,
        "all": report.over_all.n,
        "insiders": report.insiders,
        "answered": report.answered,
        "without_truth": report.without_truth,
        "rejected": len(report.rejected),
        "guessed": report.rejected_guess_right,
        "failed": report.failed,
    }


@given(table_rows.filter(lambda rows: any(row[0] for row in rows)))
@example([("cat", "", "", "ok")])  # no label, and yet ok
@example([("cat", "cat", "dog", "blurred")])  # a label, and yet not ok
@example([("unknown", "unknown", "cat", "rejected"), ("unknown", "cat", "dog", "ok")])
def test_evaluate_counts_match_a_plain_loop(rows: list[Row]) -> None:
    report = evaluate_rows([prediction(row) for row in rows], "out.csv")
    assert seen(report) == expected(rows)
    assert report.over_all.correct == report.scores.correct
    assert report.coverage == (pytest.approx(report.answered / n) if (n := report.insiders) else None)
    assert report.over_all.macro.f1 == pytest.approx(f1_over_all(rows), abs=1e-12)
    answered = [(t, p) for t, p, _, _ in rows if t and p and (p != "unknown" or t == "unknown")]
    if answered:
        truths, labels = (list(column) for column in zip(*answered, strict=True))
        assert report.scores.accuracy == pytest.approx(accuracy_score(truths, labels))
        theirs = precision_recall_fscore_support(truths, labels, average="macro", zero_division=np.nan)
        ours = [report.scores.macro.precision, report.scores.macro.recall, report.scores.macro.f1]
        np.testing.assert_allclose([np.nan if v is None else v for v in ours], theirs[:3], atol=1e-12)


@settings(max_examples=25)
@given(table_rows, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_command_agrees_on_any_csv(rows: list[Row], accuracy: float, f1: float, coverage: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        crnr = Runner(Path(folder))
        with (crnr.here / "out.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["truth", "label", "runner_up", "status"])
            writer.writerows(rows)
        gates = ["--min-accuracy", accuracy, "--min-f1", f1, "--min-answer-rate", coverage]
        result = crnr("evaluate", "out.csv", "--json", *gates)
    if not any(row[0] for row in rows):
        assert (result.exit, result.out) == (1, "")
        assert "no query has a true class" in result.err
        return
    counts, record = expected(rows), json.loads(result.out)
    assert record["n"] == counts["n"]
    assert record["correct"] == counts["correct"]
    assert record["over_all"]["n"] == counts["all"]
    assert record["failed"] == counts["failed"]
    values = {
        "accuracy": (int(counts["correct"]) / int(counts["all"]), accuracy),  # type: ignore[call-overload]
        "macro F1": (f1_over_all(rows), f1),
    }
    if insiders := int(counts["insiders"]):  # type: ignore[call-overload]
        values["answer rate"] = int(counts["answered"]) / insiders, coverage  # type: ignore[call-overload]
    else:
        assert f"answer rate n/a is below {coverage:g}" in result.err
    for name, (value, minimum) in values.items():
        if abs(value - minimum) > 1e-9:
            assert (f"{name} {value:.4f} is below {minimum:g}" in result.err) == (value < minimum)
    assert result.exit in (0, 4)
    assert (result.exit == 4) == (result.err != "")


def test_a_misspelt_class_folder_is_named(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", ("aeroplane", "helicopter"))
    make_images(crnr.here / "queries", ("aeroplane", "helicoptre", "new"), 2, first=5)
    assert crnr("build", "gallery", "-q").exit == 0
    notes = (
        "note: 2 queries without a true class: the folder helicoptre is not named after a class; did you "
        "mean "
        "helicopter?\n"
        "note: 2 queries without a true class: the folder new is not named after a class\n"
    )
    result = crnr("evaluate", "queries")
    assert (result.exit, result.err) == (0, notes)
    assert crnr("classify", "queries", "-o", "out.csv", "-q").exit == 0
    # From a CSV, only the classes in it are known.
    result = crnr("evaluate", "out.csv")
    assert result.exit == 0
    assert "2 queries without a true class: the folder helicoptre is not named after a class" in result.err
    assert crnr("evaluate", "out.csv", "-q").err == ""
