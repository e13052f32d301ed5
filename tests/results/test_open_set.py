"""Outsiders: counted one by one, and the area under the curve by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from crnr_cli.results.decision import Prediction
from crnr_cli.results.scores import OpenSet, auroc, divide_by_truth, score_open_set, wilson_interval

# Few values, so that there are ties.
few_values = st.lists(st.integers(0, 5).map(lambda value: value / 5), max_size=30)


def row(
    truth: str | None, label: str | None, separation: float | None = None, probability: float | None = None
) -> Prediction:
    status = "ok" if label else "truncated"
    return Prediction("a.png", truth, label, 0.5, "b", 0.1, status, separation, probability)


def scored(rows: list[Prediction], classes: list[str] | None = None) -> OpenSet | None:
    return score_open_set(*divide_by_truth(rows, classes or []))


@given(few_values, few_values)
def test_auroc_matches_scikit_learn(others: list[float], outsiders: list[float]) -> None:
    found = auroc(np.array(others), np.array(outsiders))
    if not others or not outsiders:
        assert found is None
    else:
        truth = [1] * len(others) + [0] * len(outsiders)
        assert found == pytest.approx(roc_auc_score(truth, others + outsiders), abs=1e-12)


names = st.sampled_from(["cat", "dog", "unknown", None])


@given(st.lists(st.tuples(names, names), max_size=30))
def test_open_set_counts_match_a_plain_loop(pairs: list[tuple[str | None, str | None]]) -> None:
    counts = dict.fromkeys(("outsiders", "rejected", "accepted", "failed", "answers", "correct"), 0)
    for truth, label in pairs:
        if truth == "unknown":
            counts["outsiders"] += label is not None
            counts["rejected"] += label == "unknown"
            counts["accepted"] += label in ("cat", "dog")
            counts["failed"] += label is None
        if truth is not None and label in ("cat", "dog"):
            counts["answers"] += 1
            counts["correct"] += truth == label
    found = scored([row(*pair) for pair in pairs])
    if all(truth != "unknown" for truth, _ in pairs):
        assert found is None
        return
    assert found is not None
    assert {name: getattr(found, name) for name in counts} == counts
    assert found.auroc is found.auroc_of_probability is None  # no row has what they are of
    n, answers = counts["outsiders"], counts["answers"]
    assert found.share == (counts["rejected"] / n if n else None)
    assert found.interval == (wilson_interval(counts["rejected"], n) if n else None)
    assert found.share_accepted == (counts["accepted"] / n if n else None)
    assert found.interval_accepted == (wilson_interval(counts["accepted"], n) if n else None)
    assert found.accuracy == (counts["correct"] / answers if answers else None)
    assert found.accuracy_interval == (wilson_interval(counts["correct"], answers) if answers else None)


def test_only_rows_with_a_truth_are_compared() -> None:
    rows = [
        row("a", "a", 0.9, 0.6),
        row("a", "unknown", 0.5, 0.5),
        row(None, "a", 0.0, 0.0),
        row("unknown", "a", 0.7, 0.1),
        row("unknown", "unknown", 0.2, 0.2),
        row("unknown", None),
    ]
    found = scored(rows)
    assert found is not None
    assert found.auroc == roc_auc_score([1, 1, 0, 0], [0.9, 0.5, 0.7, 0.2]) == 0.75
    assert found.auroc_of_probability == 1


def test_queries_of_a_class_that_the_gallery_lacks_are_outsiders() -> None:
    rows = [row("cat", "cat"), row("emu", "dog"), row("emu", "unknown"), row("yak", "dog"), row(None, "cat")]
    rows += [row("unknown", "cat"), row("ox", None)]
    found = scored(rows, ["dog", "cat"])
    assert found is not None
    assert (found.outsiders, found.rejected, found.accepted, found.failed) == (4, 1, 3, 1)
    assert list(found.given.items()) == [("dog", 2), ("cat", 1)]
    assert list(found.true_classes.items()) == [("emu", 2), ("ox", 1), ("unknown", 1), ("yak", 1)]
    # If the classes are not listed, emu may be a class that no query was labelled as.
    found = scored(rows)
    assert found is not None
    assert (found.outsiders, found.true_classes) == (1, {"unknown": 1})
