"""The expected calibration error, against scikit-learn and the definition written out; the sets, counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from crnr_cli.results import reliability
from crnr_cli.results.decision import Prediction
from crnr_cli.results.reliability import bin_indexes, calibration_error, measure_reliability, score_sets
from crnr_cli.results.scores import wilson_interval


def row(
    truth: str | None,
    label: str | None,
    probability: float | None = None,
    labels: tuple[str, ...] | None = None,
    runner_up: str | None = None,
) -> Prediction:
    return Prediction("", truth, label, None, runner_up, None, "ok", None, probability, labels)


def answers(n: int, shift: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are too high by `shift`, and which answers are right."""
    rng = np.random.default_rng(seed)
    probability = rng.beta(4, 1, size=n)
    return probability, rng.random(n) < probability - shift


def test_bins_match_scikit_learn() -> None:
    """If all probabilities differ and the number of answers is a multiple of 15, both have the same bins."""
    probability, right = answers(600)
    expected_right, expected_mean = calibration_curve(right, probability, n_bins=15, strategy="quantile")
    rows = [
        row("a", "a" if ok else "b", p) for p, ok in zip(probability.tolist(), right.tolist(), strict=True)
    ]
    found = measure_reliability(rows)
    assert found is not None
    np.testing.assert_allclose([one.accuracy for one in found.bins], expected_right)
    np.testing.assert_allclose([one.probability for one in found.bins], expected_mean)
    assert [one.count for one in found.bins] == [40] * 15
    assert found.error == pytest.approx(np.abs(expected_right - expected_mean).mean())
    assert (found.n, found.accuracy, found.mean_probability) == (
        600,
        pytest.approx(right.mean()),
        pytest.approx(probability.mean()),
    )
    for one in found.bins:
        assert one.low <= one.probability <= one.high
        assert one.interval == wilson_interval(round(one.accuracy * 40), 40)


@pytest.mark.parametrize(
    ("n", "count"), [(1, 1), (2, 1), (39, 1), (40, 2), (59, 2), (60, 3), (299, 14), (300, 15), (1000, 15)]
)
def test_no_bin_holds_fewer_than_twenty_answers_and_there_are_at_most_fifteen(n: int, count: int) -> None:
    bin_of = bin_indexes(np.random.default_rng(0).permutation(n) / n)
    sizes = np.bincount(bin_of)
    assert len(sizes) == count
    assert sizes.max() - sizes.min() <= 1


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=1, max_size=200))
def test_the_error_is_its_definition_and_does_not_depend_on_the_order(drawn: list[tuple[int, bool]]) -> None:
    n = len(drawn)
    count = max(1, min(15, n // 20))
    groups: dict[int, list[tuple[float, bool]]] = {}
    for tenths, right in drawn:
        smaller = sum(1 for other, _ in drawn if other < tenths)
        groups.setdefault(count * smaller // n, []).append((tenths / 10, right))
    expected = (
        sum(abs(sum(p for p, _ in group) - sum(ok for _, ok in group)) for group in groups.values()) / n
    )
    for order in (drawn, sorted(drawn)):
        found = measure_reliability([row("a", "a" if right else "b", tenths / 10) for tenths, right in order])
        assert found is not None
        assert found.error == pytest.approx(expected, abs=1e-12)
        assert 0 <= found.interval[0] <= found.error <= found.interval[1] <= 1


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.2])
def test_the_interval_contains_the_true_error_most_of_the_time(shift: float) -> None:
    probability, _ = answers(100_000)
    truth = np.mean(probability - np.clip(probability - shift, 0, 1))
    hits = 0
    for seed in range(20):
        p, right = answers(400, shift, seed)
        low, high = calibration_error(p, right, bin_indexes(p))[1]
        hits += bool(low <= truth + 1e-9 and truth <= high)
    assert hits >= 16


@pytest.mark.parametrize(("probability", "interval"), [(1.0, (0.8, 1.0)), (0.9, (0.65, 0.95))])
def test_the_interval_of_a_single_bin_is_that_of_the_binomial_distribution(
    probability: float, interval: tuple[float, float]
) -> None:
    """2 of 20 answers are right: the error is the probability less 0.1.

    In 95 % of resamples, between 0 and 5 are right, and their errors are between p - 0.25 and p. Mirrored at
    p - 0.1, this is p - 0.2 to p + 0.05. Answers that all have p = 0.9 are off by 0.15 by chance, and nothing
    is off by chance at p = 1.
    """
    found = calibration_error(np.full(20, probability), np.arange(20) < 2, np.zeros(20, dtype=int))
    assert found[0] == pytest.approx(probability - 0.1)
    assert found[1] == pytest.approx(interval)


def test_the_more_answers_there_are_the_fewer_resamples_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def interval(n: int, resamples: int, most_drawn: int, fewest: int) -> tuple[float, float]:
        monkeypatch.setattr(reliability, "_RESAMPLES", resamples)
        monkeypatch.setattr(reliability, "_MOST_DRAWN", most_drawn)
        monkeypatch.setattr(reliability, "_FEWEST_RESAMPLES", fewest)
        probability, right = answers(n, shift=0.5)
        return calibration_error(probability, right, bin_indexes(probability))[1]

    for n, resamples in ((20, 8), (100, 4), (200, 2), (400, 2)):
        expected = {count: interval(n, count, count * n, count) for count in range(1, 10)}
        assert len(set(expected.values())) == len(expected)
        assert interval(n, 8, 400, 2) == expected[resamples]


def test_probabilities_that_lie_are_found_out() -> None:
    for shift, is_found in ((0.0, False), (0.15, True)):
        p, right = answers(1000, shift)
        assert (calibration_error(p, right, bin_indexes(p))[1][0] > 0.05) == is_found


def test_rows_without_a_truth_or_a_probability_do_not_count() -> None:
    assert measure_reliability([row("a", "a"), row(None, "a", 0.5), row("a", None)]) is None
    found = measure_reliability(
        [row("a", "a", 0.5), row(None, "a", 0.9), row("a", "unknown", 0.25, runner_up="a"), row("a", "b")]
    )
    assert found is not None
    assert (found.n, found.mean_probability, found.accuracy) == (2, 0.375, 1)  # the best guess was right


def test_sets_are_counted() -> None:
    rows = [row("a", "a", 0.9, labels) for labels in (("a",), ("b", "a"), ("b", "a", "c"), ("b", "c"), ())]
    found = score_sets([*rows, row(None, "a", 0.9, ("a",)), row("a", "a", 0.9)])
    assert found is not None
    assert (found.n, found.covered, found.mean_size, found.empty) == (5, 3, 1.6, 1)
    assert (found.coverage, found.interval) == (0.6, wilson_interval(3, 5))
    assert score_sets([row("a", "a", 0.9)]) is None
