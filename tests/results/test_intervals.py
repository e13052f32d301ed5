"""Intervals of macro scores: against resampling, as a property, and by simulated coverage."""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, recall_score

from crnr_cli.arrays import Array
from crnr_cli.results import intervals
from crnr_cli.results.intervals import macro_intervals
from crnr_cli.results.scores import Scores, score, wilson_interval

names = st.sampled_from(["cat", "dog", "owl", "a,b", "Ö"])
pairs = st.lists(st.tuples(names, st.none() | names), min_size=1, max_size=60)

THEIRS = {
    "recall": partial(recall_score, average="macro", zero_division=np.nan),
    "f1": partial(f1_score, average="macro"),
}


def scored(truths: Array, labels: Array) -> Scores:
    return score([f"c{t}" for t in truths.ravel().tolist()], [f"c{p}" for p in labels.ravel().tolist()])


@given(pairs)
def test_an_interval_contains_its_score_and_lies_within_0_and_1(rows: list[tuple[str, str | None]]) -> None:
    truths, labels = (list(column) for column in zip(*rows, strict=True))
    scores = score(truths, labels)
    found = macro_intervals(scores)
    for name in THEIRS:
        value, interval = getattr(scores.macro, name), getattr(found, name)
        if value is None:
            assert interval is None
        else:
            assert 0 <= interval[0] <= value <= interval[1] <= 1


@pytest.mark.parametrize(("classes", "queries", "seed"), [(100, 2, 1), (200, 3, 2), (2, 1, 3), (1000, 1, 4)])
def test_an_interval_contains_its_score_for_many_small_classes(classes: int, queries: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(classes), queries)
    label = np.where(rng.random(len(truth)) < 0.7, truth, rng.integers(0, classes, len(truth)))
    scores = scored(truth, label)
    found = macro_intervals(scores)
    for name in THEIRS:
        low, high = getattr(found, name)
        assert 0 <= low <= getattr(scores.macro, name) <= high <= 1


def test_intervals_of_many_queries_match_resampling() -> None:
    rng = np.random.default_rng(5)
    truth = np.repeat(np.arange(4), 500)
    label = np.where(rng.random(2000) < 0.8, truth, rng.integers(0, 3, 2000))
    resampled: dict[str, list[float]] = {name: [] for name in THEIRS}
    for _ in range(100):
        drawn = rng.integers(0, 500, (4, 500)) + 500 * np.arange(4)[:, None]
        for name, theirs in THEIRS.items():
            resampled[name].append(theirs(truth[drawn.ravel()], label[drawn.ravel()]))
    found = macro_intervals(scored(truth, label))
    for name, values in resampled.items():
        np.testing.assert_allclose(getattr(found, name), np.quantile(values, [0.025, 0.975]), atol=0.01)


def test_perfect_answers_are_not_certain() -> None:
    scores = score(["a", "b"] * 10, ["a", "b"] * 10)
    low, high = macro_intervals(scores).f1
    assert high == 1
    assert 0.75 < low < 0.9  # 20 of 20 right: Wilson's interval of the accuracy begins at 0.839


def test_no_queries_have_no_intervals() -> None:
    found = macro_intervals(score([], []))
    assert (found.recall, found.f1) == (None, None)


def test_thousands_of_classes_need_little_memory() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5000), 2)
    label = np.where(rng.random(10000) < 0.5, truth, rng.integers(0, 5000, 10000))
    tracemalloc.start()
    macro_intervals(scored(truth, label))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # a matrix of 5000 x 5000 counts has 200 MB


def simulated_coverage(table: Array, queries: int, replicates: int) -> dict[str, float]:
    """Return how often the intervals contain the score of the table, by its plain formula."""
    k = len(table)
    hits, predicted = table.diagonal(), table.sum(axis=0)
    true = {"recall": hits, "f1": 2 * hits / (1 + predicted)}
    rng = np.random.default_rng(k * queries)
    covered = dict.fromkeys(true, 0)
    for _ in range(replicates):
        labels = np.array([rng.choice(k, queries, p=row) for row in table])
        found = macro_intervals(scored(np.repeat(np.arange(k), queries), labels))
        for name, values in true.items():
            low, high = getattr(found, name)
            covered[name] += low <= values.mean() <= high
    return {name: count / replicates for name, count in covered.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "queries"), [(3, 30), (10, 5), (20, 10), (50, 3), (100, 2), (100, 5)])
@pytest.mark.parametrize("accuracy", [0.7, 0.9])
def test_intervals_of_f1_contain_the_true_score_at_their_level(
    classes: int, queries: int, accuracy: float
) -> None:
    table = np.full((classes, classes), (1 - accuracy) / (classes - 1))
    np.fill_diagonal(table, accuracy)
    covered = simulated_coverage(table, queries, 400)
    # 95 %, within what chance allows in 400 draws; small classes may be covered more often.
    assert 0.92 <= covered["f1"] <= 0.99
    assert 0.92 <= covered["recall"] <= 0.99


EXPANSIONS = {
    "recall": (intervals._recall, lambda support, h, f: h / support),
    "f1": (intervals._f1, lambda support, h, f: 2 * h / (support + h + f)),
}


@pytest.mark.parametrize(("expand", "formula"), EXPANSIONS.values(), ids=EXPANSIONS.keys())
def test_derivatives_match_differences(expand: Any, formula: Any) -> None:
    """h are right answers and f false labels; differences are taken to both sides."""
    support, h, f = np.array([10.0, 30.0, 4.0]), np.array([7.0, 2.0, 3.5]), np.array([1.0, 6.0, 0.25])
    found = expand(support, h, f)

    def at(dh: float, df: float) -> Array:
        result: Array = formula(support, h + dh, f + df)
        return result

    e = 1e-4
    np.testing.assert_allclose(found.value, at(0, 0), rtol=1e-12)
    np.testing.assert_allclose(found.dh, (at(e, 0) - at(-e, 0)) / (2 * e), atol=1e-7)
    np.testing.assert_allclose(found.df, (at(0, e) - at(0, -e)) / (2 * e), atol=1e-7)
    np.testing.assert_allclose(found.dhh, (at(e, 0) - 2 * at(0, 0) + at(-e, 0)) / e**2, atol=1e-6)
    np.testing.assert_allclose(found.dff, (at(0, e) - 2 * at(0, 0) + at(0, -e)) / e**2, atol=1e-6)


def plain_mixture(table: Array, unanswered: Array) -> tuple[Array, Array, float]:
    """Return the number of queries per class, the smoothed probabilities of their labels, and the accuracy.

    A class is mixed with half a query that is right as often as all are, and else gets any wrong label.
    """
    k = len(table)
    support = table.sum(axis=1) + unanswered
    pooled = (np.trace(table) + 0.5) / (support.sum() + 1)
    probabilities = np.zeros((k, k))
    for i in range(k):
        own = support[i] / (support[i] + 0.5)
        for j in range(k):
            seen = table[i, j] / support[i] if support[i] else 0.0
            elsewhere = pooled if i == j else (1 - pooled) / max(1, k - 1)
            probabilities[i, j] = own * seen + (1 - own) * elsewhere
    return support, probabilities, pooled


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_smoothed_counts_match_the_mixture(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 4, (k, k)) * (rng.random((k, k)) < 0.7)
    unanswered = rng.integers(0, 2, k)
    truths = [f"c{i}" for i in range(k) for j in range(k) for _ in range(table[i, j])]
    labels: list[str | None] = [f"c{j}" for i in range(k) for j in range(k) for _ in range(table[i, j])]
    for i in range(k):
        truths += [f"c{i}"] * int(unanswered[i])
        labels += [None] * int(unanswered[i])
    assume({name for name in (*truths, *labels) if name} == {f"c{i}" for i in range(k)})
    counts = intervals._Counts.of(score(truths, labels))
    support, p, _ = plain_mixture(table, unanswered)
    np.testing.assert_allclose(counts.support, support)
    np.testing.assert_allclose(counts.hits(), support * p.diagonal(), atol=1e-12)
    wrong = p - np.diag(p.diagonal())
    np.testing.assert_allclose(counts.false_labels(), support @ wrong, atol=1e-12)
    dh, df = rng.normal(size=k), rng.normal(size=k)
    expected = 0.0
    for i in range(k):
        effects = np.where(np.arange(k) == i, dh[i], df)
        mean, square = p[i] @ effects, p[i] @ effects**2
        correction = 1 / (1 - support[i] / (support[i] + 0.5) ** 2)
        expected += support[i] * max(0.0, square - mean**2) * correction
    assert counts.variance(dh, df) == pytest.approx(expected, abs=1e-9)


def test_an_interval_is_wilsons_around_the_score_less_its_bias() -> None:
    """The formula of the module, written out for one table; macro recall has no bias."""
    table, unanswered = np.array([[8, 2, 1], [3, 9, 0], [1, 1, 5]]), np.array([1, 0, 2])
    truths = [f"c{i}" for i in range(3) for j in range(3) for _ in range(table[i, j])] + ["c0", "c2", "c2"]
    labels = [f"c{j}" for i in range(3) for j in range(3) for _ in range(table[i, j])] + [None] * 3
    scores = score(truths, labels)
    support, p, _ = plain_mixture(table, unanswered)
    hits, false = support * p.diagonal(), support @ (p - np.diag(p.diagonal()))
    found = macro_intervals(scores)
    for name, (expand, _) in EXPANSIONS.items():
        e = expand(support, hits, false)
        correction = 1 / (1 - support / (support + 0.5) ** 2)
        variance = intervals._Counts.of(scores).variance(e.dh / 3, e.df / 3)
        bias = sum(e.dhh * hits * (1 - hits / support) * correction + e.dff * false) / 3 / 2
        value, smooth = getattr(scores.macro, name), e.value.mean()
        effective = smooth * (1 - smooth) / variance
        assert (bias == 0) == (name == "recall")
        assert getattr(found, name) == pytest.approx(
            wilson_interval((value - bias) * effective, effective), rel=1e-9
        )


def test_a_class_of_one_query_has_a_part_in_macro_recall_and_one_of_none_has_not() -> None:
    """a has three queries, one of which is labelled c; b has one; c has none."""
    scores = score(list("aaab"), list("aacb"))
    support, hits, pooled = np.array([3.0, 1.0]), np.array([2.0, 1.0]), 3.5 / 5
    own = support / (support + 0.5)
    smooth = float((own * hits / support + (1 - own) * pooled).mean())
    per_class = np.array([1 / 6, 1 / 2, 0.0])  # the derivative of the mean by the right answers of each class
    variance = intervals._Counts.of(scores).variance(per_class, np.zeros(3))
    effective, value = smooth * (1 - smooth) / variance, (2 / 3 + 1) / 2
    low, high = wilson_interval(value * effective, effective)
    assert scores.macro.recall == pytest.approx(value)
    assert macro_intervals(scores).recall == pytest.approx((min(low, value), max(high, value)), rel=1e-9)
