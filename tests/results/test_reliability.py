"""The expected calibration error, against scikit-learn and the definition written out; the sets, counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

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
    rows = [row("a", "a", 0.9, labels) for labels in (("a",), ("b", "a"), ("b",), ())]
    found = score_sets([*rows, row(None, "a", 0.9, ("a",)), row("a", "a", 0.9)])
    assert found is not None
    assert (found.n, found.covered, found.mean_size, found.empty) == (4, 2, 1.0, 1)
    assert (found.coverage, found.interval) == (0.5, wilson_interval(2, 4))
    assert score_sets([row("a", "a", 0.9)]) is None
