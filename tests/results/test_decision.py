"""Answers at a threshold, and the order of label sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Batch
from crnr_cli.results.decision import REJECTED, UNKNOWN, Answers, Prediction, make_predictions
from crnr_cli.results.probability import Calibrated, Thresholds


def predict(residuals: np.ndarray, sureness: Thresholds, classes: list[str]) -> list[Prediction]:
    n = len(residuals)
    batch = Batch([f"{i}.png" for i in range(n)], [None] * n, np.empty((n, 0)), n)
    return make_predictions(Answers(batch, residuals, [None] * n, sureness=sureness), classes)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64"]), st.sampled_from([3, 200]))
def test_labels_of_a_set_are_in_the_order_of_their_residuals_and_then_of_their_names(
    seed: int, dtype: str, n_classes: int
) -> None:
    classes = [f"c{i:03}" for i in range(n_classes)]
    residuals = np.random.default_rng(seed).integers(1, 4, (2, n_classes)).astype(dtype)
    every_label = Thresholds(Calibrated(1.0, np.zeros(1)), least_in_set=0.0)
    for row, values in zip(predict(residuals, every_label, classes), residuals.tolist(), strict=True):
        ordered = [name for _, name in sorted(zip(values, classes, strict=True))]
        assert row.set == tuple(ordered)
        assert (row.label, row.runner_up) == (ordered[0], ordered[1])


@pytest.mark.parametrize(("n_classes", "written"), [(2, 0.5), (3, 0.3333), (6, 0.1667)])
def test_an_answer_with_just_the_least_probability_is_kept(n_classes: int, written: float) -> None:
    """The probability counts as it is written: 0.3333 reaches 0.3333, and 1/6 reaches 0.1667."""
    classes, residuals = list("abcdef")[:n_classes], np.ones((1, n_classes))
    certainty = Calibrated(1.0, np.zeros(1))
    (kept,) = predict(residuals, Thresholds(certainty, written), classes)
    assert (kept.label, kept.runner_up, kept.status, kept.probability) == ("a", "b", "ok", written)
    (refused,) = predict(residuals, Thresholds(certainty, written + 1e-9), classes)
    assert (refused.label, refused.runner_up, refused.status) == (UNKNOWN, "a", REJECTED)
    assert refused.probability == written
