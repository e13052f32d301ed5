"""--taxa of classify and evaluate: broader answers in every format, and in the commands that read them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.runner import Outcome, Runner, rows

PARENTS = {"c0": "left", "c1": "left", "c2": "right", "c3": "right"}
TAXA = "class,parent\n" + "".join(f"{name},{parent}\n" for name, parent in PARENTS.items())
OPTIONS = ("--min-probability", "0.9", "--taxa", "taxa.csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pairs of classes that overlap, and queries."""
    rng, here = np.random.default_rng(1), tmp_path_factory.mktemp("taxa")
    pairs = rng.uniform(0, 1, size=(2, 12))
    centres = np.repeat(pairs, 2, axis=0) + rng.normal(0, 0.1, size=(4, 12))
    for name, n in (("gallery", 60), ("queries", 60), ("others", 10)):
        labels = np.repeat(np.arange(4), n)
        features = np.abs(centres[labels] + 0.25 * rng.normal(size=(len(labels), 12)))
        np.savez(here / f"{name}.npz", features=features, labels=np.array([f"c{k}" for k in labels]))
    (here / "taxa.csv").write_text(TAXA)
    crnr = Runner(here)
    assert crnr("build", "gallery.npz", "-o", "gallery.h5", "-q", "--calibrate").exit == 0
    assert crnr("classify", "queries.npz", "-o", "out.csv", "-q", *OPTIONS).exit == 0
    return here


@pytest.fixture
def crnr(folder: Path) -> Runner:
    return Runner(folder)


def evaluated(crnr: Runner, *arguments: Any) -> dict[str, Any]:
    result = crnr("evaluate", *arguments, "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    return json.loads(result.out)


def test_a_doubtful_query_gets_the_broader_class(crnr: Runner, folder: Path) -> None:
    """Probabilities of the classes are those of a run without the table."""
    plain = crnr("classify", "queries.npz", "-q", "--min-probability", "0.9", "--json")
    records = [json.loads(line) for line in plain.out.splitlines()]
    found = rows((folder / "out.csv").read_text())
    statuses = Counter(row["status"] for row in found)
    assert min(statuses["ok"], statuses["broader"], statuses["rejected"]) > 5
    for row, record in zip(found, records, strict=True):
        assert row["class_probability"] == f"{record['probability']:.4f}"
        if record["status"] == "ok":
            assert (row["label"], row["status"], row["rank"]) == (record["label"], "ok", "0")
            assert row["probability"] == row["class_probability"]
            continue
        sums = Counter[str]()
        for name, probability in record["probabilities"].items():
            sums[PARENTS[name]] += probability
        (best, total), _ = sums.most_common()
        if abs(total - 0.9) > 1e-3:  # the sum of rounded figures is not exact
            expected = (best, "broader", "1") if total > 0.9 else ("unknown", "rejected", "")
            assert (row["label"], row["status"], row["rank"]) == expected
        assert row["runner_up"] == record["runner_up"]
        if row["status"] == "broader":
            assert float(row["probability"]) == pytest.approx(total, abs=3e-4)


def test_all_formats_agree(crnr: Runner, folder: Path) -> None:
    expected = evaluated(crnr, "out.csv", "--taxa", "taxa.csv")
    for name in ("out.jsonl", "out.parquet"):
        assert crnr("classify", "queries.npz", "-o", name, "-q", *OPTIONS, "--top", "2").exit == 0
        found = evaluated(crnr, name, "--taxa", "taxa.csv")
        assert found["broader"] == expected["broader"]
        assert found["thresholds"] == expected["thresholds"]
    direct = evaluated(crnr, "queries.npz", *OPTIONS)
    assert direct["broader"] == expected["broader"]
    assert direct["thresholds"] == expected["thresholds"]
    with_sets = crnr("classify", "queries.npz", "-q", *OPTIONS, "--sets", "0.9")
    before = rows((folder / "out.csv").read_text())
    after = rows(with_sets.out)
    assert "set" in after[0]
    assert [{**row, "set": ""} for row in after] == [{**row, "set": ""} for row in before]


def test_scores_besides_broader_answers_are_those_without_the_table(crnr: Runner) -> None:
    plain = evaluated(crnr, "queries.npz", "--min-probability", "0.9")
    found = evaluated(crnr, "queries.npz", *OPTIONS)
    counts = found["broader"]
    assert plain["broader"] is None
    assert plain["rejected"] == found["rejected"] + counts["broader"]
    assert (counts["exact"], counts["exact_right"]) == (plain["n"], plain["correct"])
    assert counts["broader_right"] > 0.8 * counts["broader"]
    for name in ("n", "macro", "classes", "confusion", "over_all", "reliability"):
        assert found[name] == plain[name]
    steps = [one["thresholds"]["steps"] for one in (plain, found)]
    assert steps[0] == steps[1]


def test_counts_by_hand(crnr: Runner, folder: Path) -> None:
    found = rows((folder / "out.csv").read_text())
    broader = [row for row in found if row["status"] == "broader"]
    right = [row for row in broader if PARENTS[row["truth"]] == row["label"]]
    counts = evaluated(crnr, "out.csv", "--taxa", "taxa.csv")["broader"]
    assert (counts["broader"], counts["broader_right"]) == (len(broader), len(right))
    result = crnr(
        "evaluate", "out.csv", "--taxa", "taxa.csv", "--errors", "errors.csv", "--html", "page.html"
    )
    assert result.exit == 0
    assert f"{len(right)} of {len(broader)} broader answers right" in result.out
    wrong = [row for row in found if row["status"] == "ok" and row["label"] != row["truth"]]
    assert len(rows((folder / "errors.csv").read_text())) == len(wrong) + len(broader) - len(right)
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert f"{len(right)} of {len(broader)} broader answers right" in page


def test_without_the_table_broader_answers_are_not_scored(crnr: Runner) -> None:
    words = "note: broader answers are not scored; add --taxa with the table that `crnr classify` used\n"
    result = crnr("evaluate", "out.csv")
    assert (result.exit, result.err) == (0, words)
    counts = evaluated(crnr, "out.csv")["broader"]
    assert counts["broader"] > 5
    assert (counts["broader_right"], counts["accuracy"]) == (None, None)


def test_outsiders_with_a_broader_answer_are_accepted(crnr: Runner, folder: Path) -> None:
    found = evaluated(crnr, "queries.npz", *OPTIONS, "--outsiders", "others.npz")
    counts = rows(crnr("classify", "others.npz", "-q", *OPTIONS).out)
    accepted = [row["label"] for row in counts if row["label"] != "unknown"]
    assert found["open_set"]["accepted"] == len(accepted)
    assert found["broader"]["outsiders"] == sum(row["status"] == "broader" for row in counts) > 0
    assert found["broader"]["outsiders_right"] == 0


def test_messages_of_classify(crnr: Runner, folder: Path) -> None:
    (folder / "some.csv").write_text("class;parent\nc0;left\nc1;left\nC2x;left\n")
    result = crnr(
        "classify", "queries.npz", "-o", "some-out.csv", "--min-probability", "0.9", "--taxa", "some.csv"
    )
    statuses = Counter(row["status"] for row in rows((folder / "some-out.csv").read_text()))
    broader = statuses["broader"]
    assert result.exit == 0
    assert result.err.splitlines() == [
        "note: some.csv: read with semicolons between the columns",
        "note: some.csv: 2 classes of the gallery are not in it, such as c2, and have no broader class",
        "note: some.csv: the gallery does not have 1 class of it, such as C2x; did you mean c2?",
        f"rejected {statuses['rejected']} of 240 queries as unknown "
        "(probability below 0.9, of broader classes too)",
        f"labelled {statuses['ok'] + broader} of 240 queries, {broader} of them as a broader class: "
        "some-out.csv",
    ]


def test_the_table_needs_a_threshold(crnr: Runner) -> None:
    words = (
        "error: --taxa needs --min-probability: a query less probable gets a broader class; add it, such as "
        "--min-probability 0.9\n"
    )
    for command in ("classify", "evaluate"):
        assert crnr(command, "queries.npz", "--taxa", "taxa.csv") == Outcome(2, "", words)


def test_a_run_with_another_table_is_another_run(crnr: Runner, folder: Path) -> None:
    (folder / "other.csv").write_text(TAXA.replace("c0,left", "c0,right"))
    line = ("classify", "queries.npz", "-o", "resumed.csv", "--min-probability", "0.9", "--resume", "--taxa")
    assert crnr("classify", "queries.npz", "-o", "resumed.csv", "--update", *OPTIONS).exit == 0
    assert "is complete" in crnr(*line, "taxa.csv").err
    assert "was made by a different run: --taxa differs" in crnr(*line, "other.csv").err
    state = (folder / "resumed.csv.state").read_text() if (folder / "resumed.csv.state").exists() else ""
    assert "--taxa" in state or not state
    assert crnr("classify", "queries.npz", "-o", "plain.csv", "--update", "-q").exit == 0
    for path in folder.glob("plain.csv*"):
        assert "taxa" not in path.read_text()


def test_broader_answers_are_sorted_and_reviewed(crnr: Runner, tmp_path: Path) -> None:
    crnr = Runner(tmp_path)
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "a.png").write_bytes(b"pixels")
    (tmp_path / "out.csv").write_text(
        "path,truth,label,residual,runner_up,margin,status,separation,probability,rank,class_probability\n"
        "q/a.png,,canid,0.5,fox,0.1,broader,0.2,0.95,1,0.6\n"
    )
    assert crnr("sort", "out.csv", "sorted", "-q").exit == 0
    assert (tmp_path / "sorted" / "canid" / "a.png").exists()
    assert crnr("review", "out.csv", "-q").exit == 0
    assert crnr("tag", "out.csv", "--min-probability", "0.9", "-q").exit == 0
    assert b"canid" in (tmp_path / "q" / "a.png.xmp").read_bytes()
    exported = crnr("export", "out.csv", "--to", "label-studio", "-o", "tasks.json", "-q")
    assert exported.exit == 0, exported.err
    assert "canid" in (tmp_path / "tasks.json").read_text()
