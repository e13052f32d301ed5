"""Evaluate with outsiders: inputs that belong to no class, and should be rejected."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_recall_fscore_support, roc_auc_score

from crnr_cli.gallery.queries import QueryOptions
from crnr_cli.jobs.evaluate import Truth, evaluate
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
        "accepted": sum(row["label"] not in ("unknown", "") for row in outside),
        "failed": 0,
        "true_classes": {"unknown": len(outside)},
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
    assert json.loads(now.out) == {**json.loads(later.out), "in_gallery": 0, "similar_in_gallery": 0}
    # The known queries have the same scores as without outsiders.
    alone = json.loads(ready("evaluate", "queries", *REJECTING, "--json").out)
    together = json.loads(now.out)
    tables = alone.pop("thresholds"), together.pop("thresholds")
    assert alone == {**together, "inputs": 12, "open_set": None}
    # Thresholds at which only outsiders lose their answers are steps of their own.
    known = [{step["answered"]: step["accuracy"] for step in table["steps"]} for table in tables]
    assert known[0] == known[1]
    assert [table["outsiders"] for table in tables] == [0, 6]
    assert tables[1]["steps"][0]["outsiders_accepted"] == 6
    assert alone["over_all"]["accuracy"] == expected["correct"] / 12  # type: ignore[operator]


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


def test_all_queries_as_outsiders_are_refused(crnr: Runner) -> None:
    for name in ("a.npz", "b.npz"):
        make_features(crnr.here / name)
    assert crnr("build", "a.npz", "-q").exit == 0
    everything = ("--outsiders", "a.npz", "--outsiders", "b.npz")
    message = "--outsiders: all queries in a.npz, b.npz would be outsiders; give other queries too"
    assert crnr("evaluate", "a.npz", "b.npz", *everything) == Outcome(2, "", f"error: {message}\n")
    # Each file but the outsiders is still a query.
    record = json.loads(crnr("evaluate", "a.npz", "b.npz", "--outsiders", "./b.npz", "--json").out)
    assert (record["over_all"]["n"], record["open_set"]["outsiders"], record["inputs"]) == (15, 15, 30)


def test_progress_counts_outsiders_apart(crnr: Runner) -> None:
    """A bar that began again with the queries' name would look like a repetition."""
    make_features(crnr.here / "g.npz")
    make_features(crnr.here / "others.npz", per_class=1, seed=3)
    assert crnr("build", "g.npz", "-q").exit == 0
    seen: dict[str, tuple[int, int]] = {}

    def note(step: str, done: int, total: int) -> None:
        seen[step] = done, total

    with contextlib.chdir(crnr.here):
        truth = Truth(outsiders=[Path("others.npz")])
        evaluate(["g.npz"], Path("gallery.h5"), QueryOptions(), note, truth)
    assert (seen["classifying"], seen["classifying outsiders"]) == ((15, 15), (3, 3))


def blocks(out: str) -> dict[str, list[str]]:
    """Return the lines of each headed block."""
    found: dict[str, list[str]] = {}
    for block in out.split("\n\n")[:-1]:
        heading, *lines = block.splitlines()
        found[heading] = [" ".join(line.split()) for line in lines]
    return found


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "unknown"]), st.sampled_from(["a", "b", "unknown", ""])),
        min_size=1,
        max_size=20,
    )
)
@example([("a", "a"), ("a", ""), ("b", "unknown"), ("unknown", "unknown"), ("unknown", "a"), ("unknown", "")])
def test_every_share_of_a_block_has_the_denominator_in_its_heading(rows: list[tuple[str, str]]) -> None:
    rows = [*rows, ("unknown", "a")]
    with tempfile.TemporaryDirectory() as folder:
        crnr = Runner(Path(folder))
        table = "".join(f"q/{i},{truth},{label}\n" for i, (truth, label) in enumerate(rows))
        (crnr.here / "out.csv").write_text(f"path,truth,label\n{table}")
        found = blocks(crnr("evaluate", "out.csv", columns=120).out)
    n_known = sum(truth != "unknown" for truth, _ in rows)
    n_outside = sum(truth == "unknown" and label != "" for truth, label in rows)
    for heading, n in (("Known queries", n_known), ("Outsiders", n_outside)):
        lines = found[f"{heading} ({n})"]
        denominators = re.findall(r"\d+ of (\d+)", "\n".join(lines))
        assert (set(denominators), len(denominators) >= 1) == ({str(n)}, True)


def test_one_outsider_in_a_review_leaves_macro_scores_alone(ready: Runner) -> None:
    """The reviewed answer is taken out of its class, and nothing else changes."""
    assert ready("classify", "queries", "-o", "out.csv", "-q").exit == 0
    rows = read_rows(ready.here / "out.csv")
    path, label = rows[0]["path"], rows[0]["label"]
    corrections = f"path,label,corrected,when\n{path},{label},unknown,\n"
    (ready.here / "c.csv").write_text(corrections)
    gates = ("--min-f1", "1", "--min-accuracy", "1")
    result = ready("evaluate", "out.csv", "--corrections", "c.csv", "--json", "-q", *gates)
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    truths, labels = ([row[name] for row in rows[1:]] for name in ("truth", "label"))
    classes = sorted(set(truths))
    theirs = precision_recall_fscore_support(truths, labels, labels=classes, average="macro")
    assert list(record["macro"].values()) == pytest.approx(list(theirs[:3]))
    assert [score["name"] for score in record["classes"]] == classes
    assert len(record["confusion"]) == len(classes)
    assert record["open_set"]["given"] == {label: 1}
    # A class that the gallery does not have is no other case.
    (ready.here / "c.csv").write_text(corrections.replace("unknown", "emu"))
    named = ready("evaluate", "out.csv", "--corrections", "c.csv", "--json", "--errors", "wrong.csv", *gates)
    assert (named.exit, named.err) == (
        0,
        "note: 1 of 12 answers scored against c.csv\n"
        "note: 1 query of the class emu, which the gallery does not have, counts as an outsider\n",
    )
    record["open_set"]["true_classes"] = {"emu": 1}
    assert json.loads(named.out) == record
    (wrong,) = read_rows(ready.here / "wrong.csv")
    assert (wrong["path"], wrong["truth"], wrong["label"]) == (path, "emu", label)


def test_true_classes_that_the_gallery_lacks_are_outsiders(ready: Runner) -> None:
    names = sorted(
        path.relative_to(ready.here).as_posix() for path in (ready.here / "queries").rglob("*.png")
    )
    labels = {name: name.split("/")[1] for name in names}
    labels |= {names[0]: "antt", names[1]: "emu", names[2]: "emu"}
    table = "".join(f"{name},{label}\n" for name, label in labels.items())
    (ready.here / "labels.csv").write_text(f"path,label\n{table}")
    now = ready("evaluate", "queries", "--labels", "labels.csv", "--json")
    notes = (
        "note: 1 query of the class antt, which the gallery does not have, counts as an outsider; did you "
        "mean ant?\n"
        "note: 2 queries of the class emu, which the gallery does not have, count as outsiders\n"
    )
    assert (now.exit, now.err) == (0, notes)
    record = json.loads(now.out)
    assert record["open_set"]["true_classes"] == {"emu": 2, "antt": 1}
    assert [score["name"] for score in record["known"]["classes"]] == ["ant", "bee", "cow"]
    for output in ("out.csv", "out.parquet"):  # with one column of residuals per class
        assert ready("classify", "queries", "-o", output, "-q").exit == 0
        later = ready("evaluate", output, "--labels", "labels.csv", "--json")
        assert (later.exit, later.err) == (0, notes)
        assert json.loads(later.out) == {**record, "in_gallery": None, "similar_in_gallery": None}
    stdin = (ready.here / "out.csv").read_bytes()
    piped = ready("evaluate", "-", "--labels", "labels.csv", "--json", stdin=stdin)
    assert (piped.out, piped.err) == (later.out, notes)
    # The best answers alone do not list the classes: emu may be a class that no query was labelled as.
    assert ready("classify", "queries", "-o", "top.csv", "-q", "--top", "2").exit == 0
    for sources in (("top.csv",), ("out.csv", "top.csv")):
        unlisted = json.loads(ready("evaluate", *sources, "--labels", "labels.csv", "--json").out)
        assert unlisted["open_set"] is None
        assert "emu" in [score["name"] for score in unlisted["known"]["classes"]]


def test_other_names_for_all_classes_are_refused(ready: Runner) -> None:
    """To count all queries as outsiders would hide the mistake."""
    assert ready("classify", "queries", "-o", "out.csv", "-q").exit == 0
    names = [row["path"] for row in read_rows(ready.here / "out.csv")]
    (ready.here / "labels.csv").write_text("path,label\n" + "".join(f"{name},Ameise\n" for name in names))
    for source in ("queries", "out.csv"):
        words = (
            f"error: {source}: no true class, such as 'Ameise', is a class of the gallery, such as 'ant'; "
            "use the names of the gallery's classes, or give outsiders with --outsiders\n"
        )
        assert ready("evaluate", source, "--labels", "labels.csv") == Outcome(1, "", words)


def test_outsiders_alone_have_one_block_of_scores(crnr: Runner) -> None:
    (crnr.here / "out.csv").write_text("path,truth,label\nq/1,unknown,a\nq/2,unknown,unknown\n")
    result = crnr("evaluate", "out.csv", "--html", "r.html", "-q")
    assert (result.exit, result.err) == (0, "")
    found = blocks(result.out)
    assert found["Known queries (0)"][0] == "accuracy n/a 0 of 0 correct"
    assert found["Outsiders (2)"][0] == "rejected 0.5000 (95% 0.0945 to 0.9055) 1 of 2"
    assert result.out.endswith("1 time\n\n")  # there are no classes to list
    assert "0 of 0 labelled correctly, 1 of 2 outsiders rejected" in (crnr.here / "r.html").read_text()


def test_evaluate_prints_scores_of_outsiders(crnr: Runner) -> None:
    (crnr.here / "out.csv").write_text(
        "path,truth,label,runner_up,status,separation\n"
        "q/1.png,a,a,b,ok,0.9\nq/2.png,b,b,a,ok,0.8\nq/3.png,b,unknown,b,rejected,0.2\n"
        "o/1.png,,a,b,ok,0.5\no/2.png,,unknown,b,rejected,0.1\no/3.png,,unknown,b,rejected,0.1\n"
        "o/4.png,,,,truncated,\n"
    )
    result = crnr("evaluate", "out.csv", "--outsiders", "o", "--html", "report.html", "-q", columns=100)
    assert (result.exit, result.err) == (0, "")
    area = roc_auc_score([1, 1, 1, 0, 0, 0], [0.9, 0.8, 0.2, 0.5, 0.1, 0.1])
    f1 = f1_score(["a", "b", "b"], ["a", "b", ""], labels=["a", "b"], average="macro")
    assert blocks(result.out) == {
        "Known queries (3)": [
            "accuracy 0.6667 (95% 0.2077 to 0.9385) 2 of 3 correct; queries without an answer count as wrong",
            f"macro F1 {f1:.4f} every class counts the same",
            "answer rate 0.6667 2 of 3 got an answer; accuracy of these 1.0000",
            "rejected as unknown 1 the best guess was right for 1",
        ],
        "Outsiders (3)": [
            "rejected 0.6667 (95% 0.2077 to 0.9385) 2 of 3",
            "wrongly accepted 0.3333 (95% 0.0615 to 0.7923) 1 of 3; most often as a, 1 time",
            f"AUROC, separation {area:.4f} 0.5 is chance",
            "failed 1 not counted among the outsiders",
        ],
        "All queries (7)": ["failed 1 1 truncated"],
    }
    page = (crnr.here / "report.html").read_text(encoding="utf-8")
    headings = ["2 of 3 labelled correctly, 2 of 3 outsiders rejected", "Known queries (3)", "Outsiders (3)"]
    assert [text for _, text in re.findall(r"<(h1|h3)>(.*?)</\1>", page)] == headings
    accepted = "1 of 3 got the label of a class; most often as a, 1 time"
    for text in ("Wrongly accepted", accepted, "AUROC", "66.7"):
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
            ("--min-accuracy", "0.51"),
            "accuracy 0.5000 is below 0.51; 1 of 2 queries has no answer, which counts as wrong",
        ),
        (("--min-accuracy", "0.5"), None),
        # Of the only class, one of two queries is labelled correctly: precision 1, recall 1/2.
        (
            ("--min-f1", "0.67"),
            "macro F1 0.6667 is below 0.67; 1 of 2 queries has no answer, which counts as wrong",
        ),
        (("--min-f1", "0.66"), None),
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
    found = closed["reliability"]
    assert (found["n"], found["mean_probability"], found["accuracy"]) == (2, pytest.approx(0.85), 0.5)
    assert (closed["sets"]["n"], closed["sets"]["covered"], closed["sets"]["mean_size"]) == (2, 2, 1.5)
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
            "empty: contains no images or feature files; name a folder that contains images, or a feature "
            "file",
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


def test_copies_and_failures_among_the_outsiders_count_too(ready: Runner) -> None:
    shutil.copy(next((ready.here / "gallery" / "ant").iterdir()), ready.here / "strangers" / "copy.png")
    (ready.here / "strangers" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    before = json.loads(ready("evaluate", "queries", "--json").out)
    result = ready("evaluate", "queries", "--outsiders", "strangers", "--json")
    assert (result.exit, before["in_gallery"]) == (3, 0)
    record = json.loads(result.out)
    assert (record["in_gallery"], record["open_set"]["failed"]) == (1, 1)


@pytest.mark.parametrize("broken", ["queries/ant", "strangers"])
def test_too_many_failures_stop_the_evaluation(ready: Runner, broken: str) -> None:
    (ready.here / broken / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    given = ("evaluate", "queries", "--outsiders", "strangers", "--max-failure-rate")
    assert ready(*given, "0.5").exit == 3
    result = ready(*given, "0.05")
    assert (result.exit, result.out) == (1, "")
    assert "1 of " in result.err
    assert "no answer" in result.err
    assert "broken.png" in result.err
