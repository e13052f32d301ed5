"""Scores against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

from crnr_cli.results.decision import Prediction
from crnr_cli.results.scores import (
    Average,
    EventScores,
    mcnemar_p_value,
    most_confused_pairs,
    natural_key,
    score,
    score_events,
    unify_spellings,
    wilson_interval,
)

names = st.sampled_from(["cat", "dog", "owl", "a,b", "Ö"])
pairs = st.lists(st.tuples(names, names), min_size=1, max_size=60)


def as_nan(value: float | None) -> float:
    return np.nan if value is None else value


@given(pairs)
def test_scores_match_scikit_learn(rows: list[tuple[str, str]]) -> None:
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
def test_confusion_matches_scikit_learn(rows: list[tuple[str, str]]) -> None:
    truths, labels = (list(column) for column in zip(*rows, strict=True))
    assert list(score(truths, labels).confusion_rows()) == confusion_matrix(truths, labels).tolist()


@given(st.integers(0, 50), st.integers(1, 50))
def test_interval_is_wilsons(successes: int, more: int) -> None:
    n = successes + more
    theirs = binomtest(successes, n).proportion_ci(confidence_level=0.95, method="wilson")
    assert wilson_interval(successes, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_an_interval_lies_within_0_and_1() -> None:
    """Where all answers are right or none is, rounding alone would lead out of this range."""
    for n in range(1, 500):
        assert 0 <= wilson_interval(0, n)[0] <= 1e-12
        assert 1 - 1e-12 <= wilson_interval(n, n)[1] <= 1


def test_the_scores_of_a_single_query() -> None:
    scores = score(["cat"], ["cat"])
    assert (scores.macro, scores.weighted) == (Average(1, 1, 1), Average(1, 1, 1))


def test_undefined_is_none_never_zero() -> None:
    scores = score(["cat", "cat"], ["dog", "dog"])
    cat, dog = scores.classes
    assert (cat.precision, cat.recall) == (None, 0.0)
    assert (dog.precision, dog.recall) == (0.0, None)


def test_no_rows_have_no_accuracy() -> None:
    scores = score([], [])
    assert (scores.accuracy, scores.interval, scores.macro.f1) == (None, None, None)


def test_accuracy_has_wilsons_interval() -> None:
    assert score(list("aab"), list("aba")).interval == wilson_interval(1, 3)


def test_classes_are_in_natural_order() -> None:
    assert [each.name for each in score(["10", "9"], ["1", "9"]).classes] == ["1", "9", "10"]


def test_most_confused_names_truth_first() -> None:
    scores = score(["cat", "cat", "dog", "owl"], ["dog", "dog", "cat", "owl"])
    assert most_confused_pairs(scores) == [("cat", "dog", 2), ("dog", "cat", 1)]


def test_equal_mistakes_are_in_the_order_of_names() -> None:
    scores = score(["b", "c", "a", "a", "c"], ["a", "a", "c", "b", "b"])
    pairs = [("a", "b", 1), ("a", "c", 1), ("b", "a", 1), ("c", "a", 1), ("c", "b", 1)]
    assert most_confused_pairs(scores) == pairs


def test_many_equal_mistakes_are_in_the_order_of_names() -> None:
    """More than those that any sort leaves in order."""
    names = [f"c{i}" for i in range(60)]
    scores = score(names[:-1][::-1], names[1:][::-1])
    assert most_confused_pairs(scores) == [(names[i], names[i + 1], 1) for i in range(59)]


def test_many_mistakes_are_in_the_order_of_their_counts_and_then_of_names() -> None:
    names = [f"c{i}" for i in range(400)]
    expected = [(names[i], names[i + 1], 3 - i % 3) for i in range(399)]
    rows = [(truth, label) for truth, label, count in expected for _ in range(count)]
    scores = score([truth for truth, _ in rows], [label for _, label in rows])
    assert most_confused_pairs(scores) == expected[::3] + expected[1::3] + expected[2::3]


def test_a_query_without_answer_is_wrong_for_its_class_alone() -> None:
    scores = score(["a", "a", "b"], ["a", None, "b"])
    assert (scores.n, scores.correct) == (3, 2)
    assert [(c.name, c.support, c.precision, c.recall) for c in scores.classes] == [
        ("a", 2, 1.0, 0.5),
        ("b", 1, 1.0, 1.0),
    ]
    assert list(scores.confusion_rows()) == [[1, 0], [0, 1]]


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_binomial_test(first: int, second: int) -> None:
    expected = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0
    assert mcnemar_p_value(first, second) == pytest.approx(expected, rel=1e-9)


def test_names_are_sorted_as_people_do() -> None:
    assert sorted(["a10", "a9", "a100", "a1"], key=natural_key) == ["a1", "a9", "a10", "a100"]
    assert sorted(["10", "9", "008", "08", "8"], key=natural_key) == ["008", "08", "8", "9", "10"]
    assert sorted(["b1c10", "b1c2", "b01c11"], key=natural_key) == ["b1c2", "b1c10", "b01c11"]
    assert sorted(["1c", "1bb"], key=natural_key) == ["1bb", "1c"]
    assert sorted(["cow", "Bee", "ant", "bee", "Cow 10", "cow 2"], key=natural_key) == [
        *("ant", "Bee", "bee", "cow", "cow 2", "Cow 10")
    ]


def test_every_class_gets_one_spelling() -> None:
    """The gallery's or, for a class that it lacks, the one of the answers."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    answered = Prediction("a", decomposed, composed, 0.1, decomposed, 0.2, "ok", event="1")
    answered = answered._replace(set=(decomposed, "tea"), event_label=decomposed)
    failed = Prediction("b", decomposed, None, None, None, None, "corrupt")
    rows = [answered, failed]
    of_gallery = answered._replace(truth=composed, runner_up=composed, event_label=composed)
    expected = [of_gallery._replace(set=(composed, "tea")), failed._replace(truth=composed)]
    assert unify_spellings(rows, ["tea", composed]) == expected
    assert unify_spellings(rows, []) == expected
    assert unify_spellings(expected, [composed]) is expected


def test_a_label_gets_the_spelling_of_the_gallery() -> None:
    """The row may be from a gallery with another one; then its label would count as wrong."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    row = Prediction("a", composed, decomposed, 0.1, "tea", 0.2, "ok")
    assert unify_spellings([row], [composed, "tea"]) == [row._replace(label=composed)]


def test_the_accuracy_of_events() -> None:
    assert EventScores(4, 3, 1).accuracy == 0.75
    assert EventScores(0, 0, 1).accuracy is None


def of_event(event: str | None, truth: str | None, answer: str | None) -> Prediction:
    return Prediction("", truth, "ant", None, None, None, "ok", event=event, event_label=answer)


def test_events_are_scored_once_and_those_with_several_true_classes_apart() -> None:
    """Members that are outsiders make an event mixed; events of outsiders alone are not scored."""
    known = [
        *(of_event("1", "ant", "ant") for _ in range(3)),
        of_event("2", "bee", "ant"),
        of_event("3", "bee", "bee"),
        of_event("4", "ant", "ant"),
        of_event("4", "bee", "ant"),
        of_event("5", "ant", None),  # without an answer
        of_event("6", None, "ant"),
        of_event(None, "ant", "ant"),
        of_event("7", "cow", "cow"),
    ]
    outsiders = [of_event("3", "elk", "bee"), of_event("8", "elk", "ant"), of_event("7", None, "cow")]
    found = score_events(known, outsiders)
    assert found == EventScores(n=4, correct=2, mixed=2)
    assert (found.accuracy, found.interval) == (0.5, wilson_interval(2, 4))
    assert score_events([of_event("1", "ant", None)], outsiders) is None
    assert (EventScores(0, 0, 1).accuracy, EventScores(0, 0, 1).interval) == (None, None)
