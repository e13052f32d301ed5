"""Probabilities, fitted as SciPy fits them, and sets of labels as plain conformal prediction makes them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, softmax

from crnr_cli.arrays import Batch
from crnr_cli.results.decision import Answers, make_predictions
from crnr_cli.results.probability import Calibrated, Thresholds, fit_probabilities

RESIDUALS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=st.floats(0, 2))


def held_out(
    seed: int, n: int = 200, n_classes: int = 5, shift: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals around 1, smaller for the true class."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n)
    residuals = 1 + 0.2 * rng.normal(size=(n, n_classes)).clip(-3, 3)
    residuals[np.arange(n), truth] -= shift * rng.random(n)
    return np.maximum(residuals, 0.05), truth


def loss(logits: np.ndarray, truth: np.ndarray) -> float:
    """Return the negative log-likelihood with Platt's targets, written out."""
    n, n_classes = logits.shape
    targets = np.full((n, n_classes), 1 / (n + 2) / (n_classes - 1))
    targets[np.arange(n), truth] = (n + 1) / (n + 2)
    return float(-(targets * log_softmax(logits, axis=1)).sum())


def slope(sharpness: float, logits: np.ndarray, truth: np.ndarray) -> float:
    """Return the derivative of the loss of residuals with these logarithms."""
    step = 1e-4 * sharpness
    above, below = (loss(-one * logits, truth) for one in (sharpness + step, sharpness - step))
    return (above - below) / (2 * step)


@pytest.mark.parametrize("signed", [False, True], ids=["residuals", "scores"])
@pytest.mark.parametrize(("seed", "n_classes"), [(0, 5), (1, 5), (2, 2), (3, 3)])
def test_the_sharpness_is_the_one_that_scipy_finds(seed: int, n_classes: int, signed: bool) -> None:
    residuals, truth = held_out(seed, n_classes=n_classes)
    values = residuals if signed else np.log(residuals)
    best = minimize_scalar(
        lambda power: loss(-np.exp(power) * values, truth),
        bounds=(-6, 8),
        method="bounded",
        options={"xatol": 1e-9},
    )
    found = fit_probabilities([(residuals, truth)], signed)
    assert found.sharpness == pytest.approx(np.exp(best.x), rel=1e-4)
    expected = softmax(-found.sharpness * values, axis=1)
    np.testing.assert_allclose(found.probabilities(residuals, signed), expected, rtol=1e-12)
    np.testing.assert_allclose(found.of_truth, np.sort(expected[np.arange(len(truth)), truth]), rtol=1e-12)


def test_the_sharpness_has_six_digits() -> None:
    """They are the right ones, and so few that the last bits of the residuals do not matter."""
    digits = set()
    for seed in range(8):
        residuals, truth = held_out(seed, n=20)
        root = brentq(slope, 0.01, 1000, args=(np.log(residuals), truth))
        found = fit_probabilities([(residuals, truth)]).sharpness
        assert found == pytest.approx(root, rel=6e-6)
        assert found == float(f"{found:.5e}")
        digits.add(len(f"{found:.12g}".replace(".", "").lstrip("0")))
    assert max(digits) == 6


def test_batches_make_no_difference() -> None:
    residuals, truth = held_out(4)
    whole = fit_probabilities([(residuals, truth)])
    parts = fit_probabilities(list(zip(np.split(residuals, 8), np.split(truth, 8), strict=True)))
    assert parts.sharpness == whole.sharpness
    np.testing.assert_array_equal(parts.of_truth, whole.of_truth)


def test_fit_probabilities_recovers_a_known_sharpness() -> None:
    """Truths are drawn from a softmax of known temperature: its sharpness is found again."""
    rng = np.random.default_rng(5)
    residuals = np.exp(0.3 * rng.normal(size=(20_000, 4)))
    weights = residuals**-7.0
    edges = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    truth = (rng.random((len(edges), 1)) > edges[:, :-1]).sum(axis=1)
    assert fit_probabilities([(residuals, truth)]).sharpness == pytest.approx(7, rel=0.03)


def test_a_gallery_that_is_always_right_is_not_certain() -> None:
    residuals = np.tile([0.5, 1.0, 1.0], (8, 1))
    certainty = fit_probabilities([(residuals, np.zeros(8, dtype=int))])
    assert certainty.probabilities(residuals)[0, 0] == pytest.approx(9 / 10, abs=1e-4)  # Laplace's rule


def test_two_classes_that_are_always_told_apart_are_not_certain_either() -> None:
    residuals = np.tile([0.5, 1.0], (8, 1))
    certainty = fit_probabilities([(residuals, np.zeros(8, dtype=int))])
    assert certainty.probabilities(residuals)[0] == pytest.approx([9 / 10, 1 / 10], abs=1e-4)


def test_from_residuals_that_were_all_equal_nothing_is_learnt() -> None:
    certainty = fit_probabilities([(np.ones((6, 3)), np.array([0, 1, 2, 0, 1, 2]))])
    np.testing.assert_allclose(certainty.probabilities(np.array([[0.5, 1.0, 1.5]])), 1 / 3, atol=0.001)


@pytest.mark.parametrize("n_classes", [1, 4])
def test_equal_residuals_give_equal_probabilities(n_classes: int) -> None:
    residuals = np.ones((6, n_classes))
    certainty = fit_probabilities([(residuals, np.arange(6) % n_classes)])
    np.testing.assert_allclose(certainty.probabilities(residuals), 1 / n_classes)


def test_the_worst_class_being_right_leaves_the_order_of_the_classes() -> None:
    """The classes cannot be less than equally probable, as the label would then be the least probable."""
    residuals = np.tile([0.5, 1.0], (8, 1))
    best, other = fit_probabilities([(residuals, np.ones(8, dtype=int))]).probabilities(residuals)[0]
    assert other < best < other + 0.01


@given(RESIDUALS, st.floats(1e-3, 1e5), st.booleans())
def test_probabilities_sum_to_1_and_fall_with_the_residuals(
    residuals: np.ndarray, sharpness: float, signed: bool
) -> None:
    found = Calibrated(sharpness, np.array([0.5])).probabilities(residuals, signed)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.all((found >= 0) & (found <= 1))
    order = np.argsort(residuals, axis=1)
    assert np.all(np.diff(np.take_along_axis(found, order, axis=1), axis=1) <= 0)


def plainly_in_set(scores: list[float], probability: float, percent: int) -> bool:
    """Return whether a label is kept: its p-value among the held-out samples, counted, is above 1 - level."""
    lower = sum(1 for score in scores if score <= probability)
    return 100 * (lower + 1) > (100 - percent) * (len(scores) + 1)


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=30),
    arrays(
        np.float64,
        st.tuples(st.integers(1, 4), st.integers(2, 4)),
        elements=st.sampled_from([0, 0.2, 0.5, 1]),
    ),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_label_sets_match_conformal_prediction_and_are_nested(
    counts: list[int], probabilities: np.ndarray, one: int, other: int
) -> None:
    scores = [count / 20 for count in counts]
    certainty = Calibrated(1.0, np.sort(scores))
    found = {}
    for percent in (one, other):
        sureness = Thresholds(certainty, least_in_set=certainty.least_probability(percent / 100))
        found[percent] = sureness.in_sets(probabilities)
        expected = [
            [plainly_in_set(scores, value, percent) for value in row] for row in probabilities.tolist()
        ]
        np.testing.assert_array_equal(found[percent], expected)
    assert np.all(found[min(one, other)] <= found[max(one, other)])


@given(st.integers(0, 100), st.integers(0, 300))
def test_a_label_can_be_excluded_if_enough_samples_were_held_out(percent: int, n: int) -> None:
    """At the level, the true labels of at least one of n + 1 samples may be excluded."""
    certainty = Calibrated(1.0, np.full(n, 0.5))
    assert certainty.can_exclude(percent / 100) is ((100 - percent) * (n + 1) >= 100)
    assert certainty.can_exclude(percent / 100) is (certainty.least_probability(percent / 100) > 0)


@pytest.mark.parametrize(
    ("level", "enough"), [(0.5, 1), (0.6, 2), (0.7, 3), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)]
)
def test_a_high_level_needs_many_held_out_samples(level: float, enough: int) -> None:
    assert Calibrated(1.0, np.full(enough, 0.5)).can_exclude(level) is True
    assert Calibrated(1.0, np.full(enough - 1, 0.5)).can_exclude(level) is False


def test_by_default_no_query_is_rejected_and_there_are_no_sets() -> None:
    certainty = Calibrated(1.0, np.array([0.5]))
    batch = Batch(["x"], [None], np.empty((1, 0)), 1)
    answers = Answers(batch, np.array([[0.9, 1.0, 1.0]]), [None], sureness=Thresholds(certainty))
    (found,) = make_predictions(answers, ["a", "b", "c"])
    assert (found.label, found.status, found.set) == ("a", "ok", None)
    assert found.probability == pytest.approx(0.3571)  # 1 / 0.9 of 1 / 0.9 + 1 + 1


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_label_sets_contain_the_truth_at_their_level(level: float) -> None:
    held, truth = held_out(6, n=1000)
    certainty = fit_probabilities([(held, truth)])
    residuals, truth = held_out(7, n=5000)
    sureness = Thresholds(certainty, least_in_set=certainty.least_probability(level))
    kept = sureness.in_sets(certainty.probabilities(residuals))
    assert kept[np.arange(len(truth)), truth].mean() == pytest.approx(level, abs=0.03)
