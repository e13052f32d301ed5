"""Choosing a threshold: the promise of `evaluate` and `info` is what `classify` does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery, save_gallery
from helpers.runner import Runner, rows

N_CLASSES, DIMENSION = 4, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated gallery of four classes that overlap, one that is not, queries and outsiders."""
    rng, here = np.random.default_rng(0), tmp_path_factory.mktemp("thresholds")
    centres = rng.uniform(0, 1, size=(N_CLASSES + 1, DIMENSION))
    for name, n, classes in (("gallery", 150, range(4)), ("queries", 200, range(4)), ("others", 25, [4])):
        labels = np.repeat(list(classes), n)
        features = np.abs(centres[labels] + 0.3 * rng.normal(size=(len(labels), DIMENSION)))
        np.savez(here / f"{name}.npz", features=features, labels=np.array([f"c{k}" for k in labels]))
    crnr = Runner(here)
    for output, options in (("g.h5", ["--calibrate"]), ("plain.h5", [])):
        assert crnr("build", "gallery.npz", "-o", output, "-q", *options).exit == 0
    assert crnr("classify", "queries.npz", "-g", "g.h5", "-o", "out.csv", "-q").exit == 0
    return here


@pytest.fixture
def crnr(folder: Path) -> Runner:
    return Runner(folder)


def evaluated(crnr: Runner, *arguments: Any) -> dict[str, Any]:
    result = crnr("evaluate", *arguments, "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    return json.loads(result.out)


@pytest.mark.parametrize("target", ["0.9", "0.95"])
def test_classify_keeps_the_promise_of_the_chosen_threshold(crnr: Runner, target: str) -> None:
    choice = evaluated(crnr, "out.csv", "--target-accuracy", target)["target_accuracy"]
    assert choice["min_probability"] == choice["confident"]["min_probability"]
    for step in (choice["confident"], choice["estimate"]):
        result = crnr(
            "classify", "queries.npz", "-g", "g.h5", "--min-probability", step["min_probability"], "-q"
        )
        answers = [row for row in rows(result.out) if row["label"] != "unknown"]
        right = sum(row["label"] == row["truth"] for row in answers)
        assert (len(answers), right) == (step["answered"], step["correct"])
        assert right / len(answers) >= float(target)
        assert step["answer_rate"] == len(answers) / 800
    assert choice["confident"]["interval"][0] >= float(target)


def test_the_table_is_the_same_if_the_file_was_made_with_a_threshold(crnr: Runner) -> None:
    plain = evaluated(crnr, "out.csv")["thresholds"]
    assert (plain["n"], plain["rejected"]) == (800, 0)
    for options in (["--min-probability", 0.8], ["--reject", 0.1]):
        made = crnr("classify", "queries.npz", "-g", "g.h5", *options, "-o", "again.csv", "-q")
        assert made.exit == 0
        found = evaluated(crnr, "again.csv")["thresholds"]
        assert found["rejected"] > 20
        assert found == {**plain, "rejected": found["rejected"]}


def test_evaluate_prints_a_few_thresholds_and_the_choice(crnr: Runner) -> None:
    shown = crnr("evaluate", "out.csv", "--target-accuracy", 0.95, columns=100).out
    record = evaluated(crnr, "out.csv", "--target-accuracy", 0.95)
    choice, steps = record["target_accuracy"], record["thresholds"]["steps"]
    table = re.findall(r"^ +(\S+) +(\S+) +(\S+) +(\S+) to (\S+)$", shown, re.MULTILINE)
    assert 5 <= len(table) <= 9
    by_threshold = {step["min_probability"]: step for step in steps}
    assert len(by_threshold) == len(steps) > 50
    for threshold, *figures in table:
        step = by_threshold[float(threshold)]
        expected = [step["answer_rate"], step["accuracy"], *step["interval"]]
        assert figures == [f"{value:.4f}" for value in expected]
    assert [float(line[0]) for line in table] == sorted(float(line[0]) for line in table)
    assert {choice["confident"]["min_probability"], choice["estimate"]["min_probability"]} <= {
        float(line[0]) for line in table
    }
    assert shown.splitlines()[-1] == f"crnr classify ... --min-probability {choice['min_probability']:g}"
    assert "thresholds, on 800 known queries; --json lists all\n" in shown
    assert "target accuracy 0.95\n" in shown


def test_a_target_that_no_threshold_reaches_is_named_with_the_closest(crnr: Runner, tmp_path: Path) -> None:
    lines = ["path,truth,label,runner_up,margin,status,probability"]
    lines += [f"{i}.png,a,{'ab'[i % 2]},c,0.1,ok,{0.5 + i / 200:.4f}" for i in range(40)]
    lines += ["x.png,a,,,,truncated,", "y.png,a,a,b,0.1,ok,", "z.png,unknown,a,b,0.1,ok,0.6"]
    (table := tmp_path / "p.csv").write_text("\n".join(lines))
    result = crnr("evaluate", table, "--target-accuracy", 0.99, columns=100)
    assert result.exit == 0
    assert (
        "thresholds, on 41 known queries; 1 of them failed, which no threshold answers; 1 answer without a "
        "probability not counted; 1 outsider counted apart; --json lists all"
    ) in result.out
    assert re.search("^confident +none", result.out, re.MULTILINE)
    assert re.search("^closest +--min-probability 0", result.out, re.MULTILINE)
    assert "no threshold reaches the target with confidence: " in result.out
    assert "crnr classify" not in result.out
    record = evaluated(crnr, table, "--target-accuracy", 0.99)
    found, choice = record["thresholds"], record["target_accuracy"]
    assert (found["n"], found["failed"], found["without_probability"], found["outsiders"]) == (41, 1, 1, 1)
    assert found["steps"][0]["answer_rate"] == 40 / 41
    assert (choice["min_probability"], choice["confident"], choice["estimate"]) == (None, None, None)


def test_outsiders_are_counted_apart(crnr: Runner) -> None:
    options = ("-g", "g.h5", "--outsiders", "others.npz")
    alone = evaluated(crnr, "queries.npz", "-g", "g.h5")["thresholds"]["steps"]
    found = evaluated(crnr, "queries.npz", *options)["thresholds"]
    assert (found["n"], found["outsiders"]) == (800, 25)
    assert found["steps"][0]["outsiders_accepted"] == 25
    accepted = rows(crnr("classify", "others.npz", "-g", "g.h5", "--min-probability", 0.9, "-q").out)
    expected = sum(row["label"] != "unknown" for row in accepted)
    step = max((s for s in found["steps"] if s["min_probability"] <= 0.9), key=lambda s: s["min_probability"])
    assert step["outsiders_accepted"] == expected
    assert {s["answered"]: s["correct"] for s in found["steps"]} == {
        s["answered"]: s["correct"] for s in alone
    }
    shown = crnr("evaluate", "queries.npz", *options, columns=100).out
    assert "outsiders accepted" in shown


def test_a_gallery_without_calibration_is_calibrated_for_the_target(crnr: Runner) -> None:
    command = ("queries.npz", "--target-accuracy", 0.95)
    stored, now = (evaluated(crnr, *command, "-g", gallery) for gallery in ("g.h5", "plain.h5"))
    assert now["target_accuracy"] == stored["target_accuracy"]
    assert evaluated(crnr, "queries.npz", "-g", "plain.h5")["thresholds"] is None
    made = crnr("classify", "queries.npz", "-g", "plain.h5", "-o", "plain.csv", "-q")
    assert made.exit == 0
    result = crnr("evaluate", "plain.csv", "--target-accuracy", 0.95)
    assert (result.exit, result.out) == (2, "")
    assert "--target-accuracy needs known queries with probabilities; run `crnr classify`" in result.err


def test_info_shows_the_thresholds_of_the_held_out_examples(crnr: Runner) -> None:
    about = json.loads(crnr("info", "g.h5", "--json", "--target-accuracy", 0.9).out)
    found, choice = about["thresholds"], about["target_accuracy"]
    assert (found["n"], found["steps"][0]["answered"]) == (600, 600)
    assert choice["confident"]["interval"][0] >= 0.9
    shown = crnr("info", "g.h5", "--target-accuracy", 0.9, columns=100).out
    assert "thresholds, on 600 held-out examples; --json lists all\n" in shown
    assert shown.splitlines()[-1] == f"crnr classify ... --min-probability {choice['min_probability']:g}"
    # The queries are like the examples: the promise of the gallery alone holds on them.
    achieved = evaluated(crnr, "queries.npz", "-g", "g.h5", "--min-probability", choice["min_probability"])
    assert achieved["accuracy"] >= 0.9
    assert achieved["coverage"] == pytest.approx(choice["confident"]["answer_rate"], abs=0.06)
    assert "target accuracy" not in crnr("info", "g.h5").out


def test_info_refuses_a_target_without_held_out_answers(crnr: Runner) -> None:
    gallery = load_gallery(crnr.here / "g.h5")
    assert gallery.calibration is not None
    old = replace(gallery, calibration=replace(gallery.calibration, answers=None))
    save_gallery(old, crnr.here / "old.h5")
    for name in ("plain.h5", "old.h5"):
        assert json.loads(crnr("info", name, "--json").out)["thresholds"] is None
        assert "thresholds, on" not in crnr("info", name).out
        result = crnr("info", name, "--target-accuracy", 0.9)
        assert (result.exit, result.out) == (1, "")
        assert result.err == (
            f"error: {name}: has no held-out answers for --target-accuracy; build it again with --calibrate\n"
        )
    result = crnr("info", "gallery.npz", "--target-accuracy", 0.9)
    assert result.exit == 2
    assert "--target-accuracy applies to galleries, but gallery.npz is a feature file" in result.err


@pytest.mark.parametrize("value", ["0", "-0.1", "1.01", "nan", "all"])
def test_a_target_is_a_share(crnr: Runner, value: str) -> None:
    for command in ("evaluate out.csv", "info g.h5"):
        result = crnr(*command.split(), "--target-accuracy", value)
        assert (result.exit, result.out) == (2, "")
        assert "--target-accuracy" in result.err
