"""Scores against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from crnr_cli.results.scores import most_confused, score, wilson

names = st.sampled_from(["cat", "dog", "owl", "a,b", "Ö"])
pairs = st.lists(st.tuples(names, names), min_size=1, max_size=60)


def as_nan(value: float | None) -> float:
    return np.nan if value is None else value


@given(pairs)
def test_scores_are_those_of_scikit_learn(rows: list[tuple[str, str]]) -> None:
    truths, labels = (list(column) for column in zip(*rows, strict=True))
    ours = score(truths, labels)
    assert ours.accuracy == pytest.approx(accuracy_score(truths, labels), abs=1e-12)
    theirs = precision_recall_fscore_support(truths, labels, zero_division=np.nan)
    mine = [(as_nan(c.precision), as_nan(c.recall), c.f1, c.support) for c in ours.classes]
    np.testing.assert_allclose(np.array(mine).T, theirs, rtol=0, atol=1e-12)
    p, r, f, _ = precision_recall_fscore_support(truths, labels, average="macro", zero_division=np.nan)
    macro = [ours.macro.precision, ours.macro.recall, ours.macro.f1]
    np.testing.assert_allclose([as_nan(value) for value in macro], [p, r, f], rtol=0, atol=1e-12)
    p, r, f, _ = precision_recall_fscore_support(truths, labels, average="weighted", zero_division=np.nan)
    assert (ours.weighted.recall, ours.weighted.f1) == (
        pytest.approx(r, abs=1e-12),
        pytest.approx(f, abs=1e-12),
    )
    if ours.weighted.precision is None:
        # Undefined for every class that has any weight: scikit-learn then averages those that have none.
        assert all(c.precision is None for c in ours.classes if c.support)
    else:
        assert ours.weighted.precision == pytest.approx(p, abs=1e-12)


@given(pairs.filter(lambda rows: len({name for row in rows for name in row}) > 1))
def test_confusion_is_that_of_scikit_learn(rows: list[tuple[str, str]]) -> None:
    truths, labels = (list(column) for column in zip(*rows, strict=True))
    assert list(score(truths, labels).confusion_rows()) == confusion_matrix(truths, labels).tolist()


@given(st.integers(0, 50), st.integers(1, 50))
def test_interval_is_wilsons(successes: int, more: int) -> None:
    n = successes + more
    theirs = binomtest(successes, n).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson(successes, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_undefined_is_none_never_zero() -> None:
    scores = score(["cat", "cat"], ["dog", "dog"])
    cat, dog = scores.classes
    assert (cat.precision, cat.recall) == (None, 0.0)
    assert (dog.precision, dog.recall) == (0.0, None)


def test_no_rows_have_no_accuracy() -> None:
    scores = score([], [])
    assert (scores.accuracy, scores.interval, scores.macro.f1) == (None, None, None)


def test_most_confused_names_truth_first() -> None:
    scores = score(["cat", "cat", "dog", "owl"], ["dog", "dog", "cat", "owl"])
    assert most_confused(scores) == [("cat", "dog", 2), ("dog", "cat", 1)]
