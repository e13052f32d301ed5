"""Evaluate with outsiders: inputs that belong to no class, and should be rejected."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_features, make_images, noise
from helpers.templates import Templates

REJECTING = ("--reject", "0.2")


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", per_class=8)
    make_images(crnr.here / "queries", per_class=4, first=20)
    (crnr.here / "strangers").mkdir()
    for i in range(6):
        noise(i).save(crnr.here / "strangers" / f"{i}.png")
    assert crnr("build", "gallery", "-q", "--calibrate").exit == 0


@pytest.fixture
def ready(crnr: Runner, templates: Templates) -> Runner:
    """A gallery, queries of its classes, and a folder of noise."""
    templates.copy(build_gallery, crnr.here)
    return crnr


def counted(table: Path) -> dict[str, object]:
    """Return the numbers of an open set, one row of the CSV after the other."""
    rows = read_rows(table)
    outside = [row for row in rows if row["path"].startswith("strangers/")]
    inside = [row for row in rows if row["path"].startswith("queries/")]
    named = [row for row in rows if row["label"] not in ("unknown", "")]
    areas = {
        name: roc_auc_score(
            [1] * len(inside) + [0] * len(outside), [float(row[name]) for row in inside + outside]
        )
        for name in ("separation", "probability")
    }
    right = [row for row in named if row["path"].split("/")[1] == row["label"]]
    return {
        "outsiders": len(outside),
        "rejected": sum(row["label"] == "unknown" for row in outside),
        "failed": 0,
        "answers": len(named),
        "correct": len(right),
        "auroc": pytest.approx(areas["separation"]),
        "auroc_of_probability": pytest.approx(areas["probability"]),
        "share_rejected": sum(row["label"] == "unknown" for row in outside) / len(outside),
        "accuracy": len(right) / len(named),
    }


def test_a_folder_of_outsiders_is_classified_too(ready: Runner) -> None:
    assert ready("classify", "queries", "strangers", *REJECTING, "-o", "out.csv", "-q").exit == 0
    expected = counted(ready.here / "out.csv")
    assert 0 < int(expected["rejected"]) <= 6  # type: ignore[call-overload]
    answered = [row for row in read_rows(ready.here / "out.csv") if row["path"].startswith("queries/")]
    coverage = sum(row["label"] != "unknown" for row in answered) / len(answered)
    now = ready("evaluate", "queries", "--outsiders", "strangers", *REJECTING, "--json")
    later = ready("evaluate", "out.csv", "--outsiders", "strangers", "--json")
    for result in (now, later):
        assert (result.exit, result.err) == (0, "")
        record = json.loads(result.out)
        found = record["open_set"]
        assert {name: found[name] for name in expected} == expected
        assert record["coverage"] == coverage
        assert (record["inputs"], record["without_truth"]) == (18, 0)
    assert json.loads(now.out) == {**json.loads(later.out), "in_gallery": 0}
    # To reject an outsider is right, and counts in the accuracy over all inputs.
    n_right = int(expected["correct"]) + int(expected["rejected"])  # type: ignore[call-overload]
    assert json.loads(now.out)["over_all"]["accuracy"] == n_right / 18


def test_outsiders_in_a_label_table_score_the_same(ready: Runner) -> None:
    names = sorted(
        path.relative_to(ready.here).as_posix()
        for folder in ("queries", "strangers")
        for path in (ready.here / folder).rglob("*.png")
    )
    with (ready.here / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        writer.writerows(
            [name, "unknown" if name.startswith("strangers") else name.split("/")[1]] for name in names
        )
    by_table = ready("evaluate", "queries", "strangers", "--labels", "labels.csv", *REJECTING, "--json")
    by_folder = ready("evaluate", "queries", "--outsiders", "strangers", *REJECTING, "--json")
    assert (by_table.exit, by_table.err) == (0, "")
    assert by_table == by_folder
    del names[0]
    both = ready(
        *("evaluate", "queries", "--labels", "labels.csv", "--outsiders", "strangers", *REJECTING, "--json")
    )
    assert both == by_folder


def test_outsiders_in_a_folder_among_the_queries(ready: Runner) -> None:
    shutil.copytree(ready.here / "queries", ready.here / "all")
    shutil.copytree(ready.here / "strangers", ready.here / "all" / "unknown")
    expected = ready("evaluate", "queries", "--outsiders", "strangers", *REJECTING, "--json")
    for name in ("all/unknown", f"{ready.here}/all/unknown/", "all/ant/../unknown"):
        assert ready("evaluate", "all", "--outsiders", name, *REJECTING, "--json") == expected
    # Without the option, the folder may contain images without labels.
    result = ready("evaluate", "all", *REJECTING, "--json")
    assert (result.exit, json.loads(result.out)["open_set"]) == (0, None)
    assert json.loads(result.out)["without_truth"] == 6
    assert result.err == (
        "note: 6 queries without a true class: the folder unknown is not named after a class; if they "
        "belong to "
        "no class of the gallery, add --outsiders with this folder\n"
    )
    result = ready("evaluate", "all", "--outsiders", ".")
    assert (result.exit, result.out) == (2, "")
    assert result.err == "error: --outsiders: all queries in all would be outsiders; give other queries too\n"


def test_features_can_be_outsiders(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    make_features(crnr.here / "queries.npz", seed=1)
    random = np.random.default_rng(5)
    np.savez(crnr.here / "others.npz", features=random.random((7, 6)).astype(np.float32))
    assert crnr("build", "gallery.npz", "-q").exit == 0
    now = crnr("evaluate", "queries.npz", "--outsiders", "others.npz", *REJECTING, "--json")
    assert (now.exit, now.err) == (0, "")
    assert crnr("classify", "queries.npz", "others.npz", *REJECTING, "-o", "out.csv", "-q").exit == 0
    later = crnr("evaluate", "out.csv", "--outsiders", "others.npz", "--json")
    assert json.loads(now.out)["open_set"] == json.loads(later.out)["open_set"]
    assert json.loads(now.out)["open_set"]["outsiders"] == 7


def test_evaluate_prints_scores_of_outsiders(crnr: Runner) -> None:
    (crnr.here / "out.csv").write_text(
        "path,truth,label,runner_up,status,separation\n"
        "q/1.png,a,a,b,ok,0.9\nq/2.png,b,b,a,ok,0.8\nq/3.png,b,unknown,b,rejected,0.2\n"
        "o/1.png,,a,b,ok,0.5\no/2.png,,unknown,b,rejected,0.1\no/3.png,,unknown,b,rejected,0.1\n"
        "o/4.png,,,,truncated,\n"
    )
    result = crnr("evaluate", "out.csv", "--outsiders", "o", "--html", "report.html", "-q", columns=100)
    assert (result.exit, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "answer rate 0.6667 2 of 3 queries got an answer" in lines
    assert "outsiders rejected 0.6667 (95% 0.2077 to 0.9385) 2 of 3 outsiders" in lines
    assert "accuracy of answers 0.6667 (95% 0.2077 to 0.9385) 2 of 3 correct, outsiders included" in lines
    area = roc_auc_score([1, 1, 1, 0, 0, 0], [0.9, 0.8, 0.2, 0.5, 0.1, 0.1])
    assert f"AUROC, separation {area:.4f} 0.5 is chance" in lines
    assert "failed 1 1 truncated" in lines
    page = (crnr.here / "report.html").read_text(encoding="utf-8")
    for text in ("Outsiders rejected", "2 of 3 outsiders", "Accuracy of answers", "AUROC", "66.7"):
        assert text in page


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        # Half of the inputs of a class are rejected: they have no answer, although most inputs have a label.
        (("--min-answer-rate", "0.6"), "answer rate 0.5000 is below 0.6"),
        (("--min-answer-rate", "0.5"), None),
        (("--min-rejected", "0.7"), "share of rejected outsiders 0.6667 is below 0.7"),
        (("--min-rejected", "0.6"), None),
        (
            ("--min-accuracy", "0.61"),
            "accuracy 0.6000 is below 0.61; 1 of 5 queries has no answer, which counts as wrong",
        ),
    ],
)
def test_evaluate_thresholds_set_the_exit_code(
    crnr: Runner, gate: tuple[str, str], message: str | None
) -> None:
    table = (
        "path,truth,label\nq/1,a,a\nq/2,a,unknown\no/1,unknown,unknown\no/2,unknown,unknown\no/3,unknown,a\n"
    )
    (crnr.here / "out.csv").write_text(table)
    result = crnr("evaluate", "out.csv", "--json", *gate)
    assert result.err == (f"{message}\n" if message else "")
    assert result.exit == (4 if message else 0)
    assert json.loads(result.out)["answered"] == 1


def test_a_gate_on_outsiders_needs_some(crnr: Runner) -> None:
    (crnr.here / "out.csv").write_text("path,truth,label\nq/1,a,a\n")
    result = crnr("evaluate", "out.csv", "--min-rejected", "0.5", "--json")
    assert result == Outcome(2, "", "error: --min-rejected needs outsiders; name them with --outsiders DIR\n")


def test_outsiders_have_no_part_in_calibration(crnr: Runner) -> None:
    """Probabilities and sets are about inputs that belong to a class."""
    header = "path,truth,label,probability,set\n"
    rows = "q/1,a,a,0.9,a\nq/2,b,a,0.8,a|b\n"
    (crnr.here / "closed.csv").write_text(header + rows)
    (crnr.here / "open.csv").write_text(header + rows + "o/1,unknown,a,1,a\n")
    closed, opened = (json.loads(crnr("evaluate", name, "--json").out) for name in ("closed.csv", "open.csv"))
    assert opened["reliability"] == closed["reliability"]
    assert opened["sets"] == closed["sets"]
    assert opened["open_set"]["auroc_of_probability"] == 0


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (
            ("out.csv", "--outsiders", "else"),
            "else: contains no file of the 1 row; paths are relative to the current folder, so run the "
            "command "
            "where `crnr classify` ran",
        ),
        (
            ("out.csv", "--outsiders", "q"),
            None,
        ),
        (("queries", "--outsiders", "nowhere"), "nowhere: no such file or folder"),
        (
            ("queries", "--outsiders", "empty"),
            "empty: contains no images or feature files",
        ),
        (
            ("queries", "--outsiders", "broken"),
            "--outsiders: nothing in broken can be used; broken/x.png: not_image",
        ),
    ],
)
def test_evaluate_refuses_unusable_outsiders(
    ready: Runner, sources: tuple[str, ...], message: str | None
) -> None:
    (ready.here / "out.csv").write_text("path,truth,label\nq#2/1.png,a,a\n")
    (ready.here / "empty").mkdir()
    (ready.here / "broken").mkdir()
    (ready.here / "broken" / "x.png").write_text("no image")
    result = ready("evaluate", *sources)
    if message is None:  # q#2 is another folder than q
        message = (
            "q: contains no file of the 1 row; paths are relative to the current folder, so run the command "
            "where `crnr classify` ran"
        )
    assert (result.exit, result.out, result.err) == (1, "", f"error: {message}\n")
