"""Evaluate, on arbitrary CSVs, against a plain implementation of its counts and scikit-learn's scores."""

from __future__ import annotations

import csv
import json
import tempfile
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from crnr_cli.jobs.evaluate import EvaluateReport, evaluate_rows
from crnr_cli.results.decision import Prediction
from crnr_cli.results.scores import Scores
from helpers.runner import Outcome, Runner
from helpers.samples import make_features, make_images

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


def expected(rows: list[Row], classes: tuple[str, ...] = ()) -> dict[str, object]:
    """Return all counts, one row after the other."""
    names = ("n", "correct", "all", "without_truth", "rejected", "guessed", "outsiders")
    counts = dict.fromkeys(names, 0)
    failed: Counter[str] = Counter()
    for truth, label, runner_up, status in rows:
        is_outsider = truth == "unknown" or (classes and truth and truth not in classes)
        counts["without_truth"] += truth == ""
        if is_outsider:
            counts["outsiders"] += label != ""
        elif truth:
            counts["all"] += 1
            counts["n"] += label not in ("", "unknown")
            counts["correct"] += truth == label
            counts["rejected"] += label == "unknown"
            counts["guessed"] += label == "unknown" and runner_up == truth
        if label == "":
            failed["no_label" if status in ("ok", "") else status] += 1
    return {**counts, "failed": failed}


def macro_over_all(rows: list[Row]) -> list[float | None]:
    """Return macro precision, recall and F1 over the gallery's classes by scikit-learn.

    The rows are those of the known queries; no answer is a label that is no class.
    """
    known = [(t, "" if p == "unknown" else p) for t, p, _, _ in rows if t in CLASSES]
    if not known:
        return [None, None, None]
    truths, labels = (list(column) for column in zip(*known, strict=True))
    found = precision_recall_fscore_support(
        truths, labels, labels=CLASSES, average="macro", zero_division=np.nan
    )
    return [None if np.isnan(value) else pytest.approx(value, abs=1e-12) for value in found[:3]]


def seen(report: EvaluateReport) -> dict[str, object]:
    return {
        "n": report.scores.n,
        "correct": report.scores.correct,
        "all": report.over_all.n,
        "without_truth": report.without_truth,
        "rejected": len(report.rejected),
        "guessed": report.rejected_guess_right,
        "outsiders": report.open_set.outsiders if report.open_set else 0,
        "failed": report.failed,
    }


def averages(scores: Scores) -> list[float | None]:
    return [scores.macro.precision, scores.macro.recall, scores.macro.f1]


@given(table_rows.filter(lambda rows: any(row[0] for row in rows)))
@example([("cat", "", "", "ok")])  # no label, and yet ok
@example([("cat", "cat", "dog", "blurred")])  # a label, and yet not ok
@example([("unknown", "unknown", "cat", "rejected"), ("unknown", "cat", "dog", "ok")])
def test_evaluate_counts_match_a_plain_loop(rows: list[Row]) -> None:
    report = evaluate_rows([prediction(row) for row in rows], "out.csv")
    assert seen(report) == expected(rows)
    assert report.over_all.correct == report.scores.correct
    assert report.answer_rate == (report.scores.n / n if (n := report.over_all.n) else None)
    assert averages(report.over_all) == macro_over_all(rows)
    answered = [row for row in rows if row[0] in CLASSES and row[1] in CLASSES]
    assert averages(report.scores) == macro_over_all(answered)
    if answered:
        truths, labels = ([row[i] for row in answered] for i in (0, 1))
        assert report.scores.accuracy == pytest.approx(accuracy_score(truths, labels))


def known_figures(report: EvaluateReport) -> object:
    """Return all figures that are about known queries."""
    scores = [
        (one.n, one.correct, one.macro, one.weighted, one.classes, one.cells.tolist())
        for one in (report.scores, report.over_all)
    ]
    return scores, report.answer_rate, len(report.rejected), report.reliability, report.sets


outsiders = st.lists(
    st.tuples(
        st.sampled_from(["unknown", "emu", "yak"]),
        st.sampled_from([*CLASSES, "unknown", ""]),
        st.sampled_from([*CLASSES, ""]),
        st.sampled_from(["ok", "rejected", "truncated"]),
    ),
    max_size=20,
)


@given(table_rows.filter(lambda rows: any(row[0] in CLASSES for row in rows)), outsiders)
@example([("cat", "cat", "dog", "ok")], [("unknown", "cat", "dog", "ok"), ("emu", "dog", "cat", "ok")])
def test_outsiders_change_no_score_of_known_queries(rows: list[Row], others: list[Row]) -> None:
    """Whatever label they get, and whether their true class has a name that the gallery lacks or none."""
    inside = [row for row in rows if row[0] != "unknown"]
    alone = evaluate_rows([prediction(row) for row in inside], "out.csv", classes=CLASSES)
    both = evaluate_rows([prediction(row) for row in inside + others], "out.csv", classes=CLASSES)
    assert known_figures(both) == known_figures(alone)
    assert averages(both.over_all) == macro_over_all(inside)
    assert seen(both) == expected(inside + others, tuple(CLASSES))
    assert (alone.open_set, both.open_set is None) == (None, not others)


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
    n_known = int(counts["all"])  # type: ignore[call-overload]
    if not n_known:  # all are outsiders
        for name, minimum in (("accuracy", accuracy), ("macro F1", f1), ("answer rate", coverage)):
            assert f"{name} n/a is below {minimum:g}" in result.err
        assert result.exit == 4
        return
    values = {
        "accuracy": (int(counts["correct"]) / n_known, accuracy),  # type: ignore[call-overload]
        "macro F1": (record["known"]["macro"]["f1"], f1),
        "answer rate": (int(counts["n"]) / n_known, coverage),  # type: ignore[call-overload]
    }
    assert list(record["known"]["macro"].values()) == macro_over_all(rows)
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


def test_rejected_rows_without_truth_are_counted_apart() -> None:
    rows = [
        *(("a.png", "cat", "unknown"), ("b.png", "", "unknown"), ("c.png", "", "cat")),
        *(("d.png", None, "unknown"), ("e.png", "cat", "cat")),
    ]
    found = [Prediction(path, truth, label, None, None, None, "ok") for path, truth, label in rows]
    report = evaluate_rows(found, "out.csv", None, ["cat"])
    assert (report.rejected_without_truth, len(report.rejected)) == (2, 1)


def test_folders_of_queries_without_truth() -> None:
    paths = ["in/kat/1.png", "in/kat/2.png", "x.png", "in/table.csv#3", "in/odd#1/4.png"]
    found = [Prediction(path, None, "cat", None, None, None, "ok") for path in paths]
    seen = Prediction("in/cat/0.png", "cat", "cat", None, None, None, "ok")
    report = evaluate_rows([*found, seen], "out.csv", None, ["cat", "dog"])
    assert report.unknown_folders == {"kat": 2, "odd#1": 1}


def test_similar_classes_of_very_many_names_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crnr_cli.jobs.evaluate._MAX_COMPARED", 8)
    seen = [Prediction("0.png", "Kitten", "Kitten", None, None, None, "ok")]
    report = evaluate_rows(seen, "out.csv", None, ["Kitten", "dog"])
    assert report.similar_classes(["kiten", "x", "y", "z"]) == {"kiten": "Kitten"}
    assert report.similar_classes(["kiten", "x", "y", "z", "one more"]) == {}


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(("theirs", "ours"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED)])
def test_the_unicode_forms_of_a_class_are_one_class(crnr: Runner, theirs: str, ours: str) -> None:
    """In every column, although another system may have written the labels."""
    header = "path,truth,label,runner_up,status,probability,set,event,event_label\n"
    (crnr.here / "out.csv").write_text(
        f"{header}1.png,{theirs},{ours},tea,ok,0.9,{ours}|tea,1,{ours}\n"
        f"2.png,{theirs},unknown,{theirs},rejected,0.4,tea|{theirs},1,{theirs}\n"
        f"3.png,tea,{theirs},tea,ok,0.6,tea,2,tea\n",
        encoding="utf-8",
    )
    plain = (crnr.here / "out.csv").read_text(encoding="utf-8")
    (crnr.here / "plain.csv").write_text(plain.replace(theirs, "coffee").replace(ours, "coffee"))
    found, expected = (
        json.loads(crnr("evaluate", name, "--json", "-q").out) for name in ("out.csv", "plain.csv")
    )
    assert found == json.loads(json.dumps(expected, ensure_ascii=False).replace("coffee", ours))
    assert (found["correct"], found["over_all"]["n"], found["sets"]["covered"]) == (1, 3, 3)
    printed = " ".join(crnr("evaluate", "out.csv", "-q").out.split())
    assert "rejected as unknown 1 the best guess was right for 1" in printed


def test_predictions_and_queries_are_not_scored_together(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz")
    (crnr.here / "out.csv").write_text("path,truth,label\na.png,ant,ant\n")
    assert crnr("build", "g.npz", "-q").exit == 0
    for names in (("out.csv", "g.npz"), ("g.npz", "out.csv")):
        message = (
            "error: out.csv: contains predictions, so it cannot be scored with queries such as g.npz; give "
            "one kind of file\n"
        )
        assert crnr("evaluate", *names) == Outcome(2, "", message)


def test_an_error_on_stdin_names_stdin(crnr: Runner) -> None:
    result = crnr("evaluate", "-", stdin="path,truth\na.png,ant\n")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: stdin: ")


def test_evaluate_names_the_files_that_do_not_fit(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz")
    make_features(crnr.here / "short.npz", dimension=4)
    assert crnr("build", "g.npz", "-o", "six.h5", "-q").exit == 0
    message = "short.npz: 4 features per query, but six.h5 was built from 6; use the same features for both"
    assert crnr("evaluate", "short.npz", "-g", "six.h5") == Outcome(1, "", f"error: {message}\n")
    (crnr.here / "out.csv").write_text("path,truth,label\na.png,ant,ant\nb.png,ant,bee\n")
    (crnr.here / "labels.csv").write_text("path,label\nelsewhere/a.png,ant\n")
    message = (
        "labels.csv: has a label for none of the 2 rows; use --root to give the folder that its paths are "
        "relative to"
    )
    given = ("evaluate", "out.csv", "--labels", "labels.csv")
    assert crnr(*given) == Outcome(1, "", f"error: {message}\n")
    # A row that the table lacks loses the truth that the predictions file has.
    (crnr.here / "labels.csv").write_text("path,label\na.png,bee\n")
    record = json.loads(crnr(*given, "--json", "-q").out)
    assert (record["correct"], record["over_all"]["n"], record["without_truth"]) == (0, 1, 1)


def test_queries_that_fail_set_the_exit_code(crnr: Runner) -> None:
    make_features(crnr.here / "g.npz")
    assert crnr("build", "g.npz", "-q").exit == 0
    with np.load(crnr.here / "g.npz") as stored:
        features, labels = stored["features"].copy(), stored["labels"]
    features[3] = 0  # nothing to compare
    np.savez(crnr.here / "q.npz", features=features, labels=labels)
    result = crnr("evaluate", "q.npz", "--json", "-q")
    record = json.loads(result.out)
    assert (result.exit, record["failed"]) == (3, {"zero_norm": 1})
    assert (record["n"], record["over_all"]["n"]) == (14, 15)
    assert crnr("evaluate", "q.npz", "--allow-skipped", "-q").exit == 0


def test_events_of_several_files_are_counted_apart(crnr: Runner) -> None:
    """Each file numbers its events from 1."""
    header = "path,truth,label,status,event,event_label\n"
    (crnr.here / "a.csv").write_text(f"{header}1.png,ant,ant,ok,1,ant\n2.png,ant,bee,ok,1,ant\n")
    (crnr.here / "b.csv").write_text(f"{header}3.png,bee,bee,ok,1,bee\n4.png,bee,bee,ok,2,ant\n")
    events = json.loads(crnr("evaluate", "a.csv", "b.csv", "--json", "-q").out)["events"]
    assert {name: events[name] for name in ("n", "correct", "mixed")} == {"n": 3, "correct": 2, "mixed": 0}
