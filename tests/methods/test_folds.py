"""Folds are fair, and one pass answers as many separate fits would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli import solvers
from crnr_cli.methods.folds import Fold, stratified_folds
from crnr_cli.methods.nonnegative import Crnr, Nrc


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    values = np.abs(np.random.default_rng(seed).normal(size=(n, d)))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(2, 6), st.integers(0, 3))
def test_folds_are_even_in_size_and_in_every_class(sizes: list[int], count: int, seed: int) -> None:
    class_index = np.repeat(np.arange(len(sizes)), sizes)
    folds = stratified_folds(class_index, count, seed)
    assert np.array_equal(folds == -1, np.repeat(np.array(sizes) == 1, sizes))
    for k, size in enumerate(sizes):
        if size > 1:
            in_fold = np.bincount(folds[class_index == k], minlength=count)
            assert np.ptp(in_fold) <= 1
            assert in_fold.max() < size  # never is a whole class held back
    assert np.ptp(np.bincount(folds[folds >= 0], minlength=count)) <= 1


def test_residuals_by_gram_are_the_residuals() -> None:
    X, Y = unit_rows(20, 9).T, unit_rows(5, 9, seed=1).T
    edges, c = np.array([0, 4, 13, 20]), np.random.default_rng(2).normal(size=(20, 5))
    expected = [
        [np.linalg.norm(Y[:, j] - X[:, a:b] @ c[a:b, j]) for j in range(5)]
        for a, b in ((0, 4), (4, 13), (13, 20))
    ]
    np.testing.assert_allclose(
        solvers.class_residuals_by_gram(X.T @ X, edges, c, X.T @ Y), expected, rtol=1e-10
    )


@pytest.mark.parametrize(("n_features", "form"), [(40, "dense"), (4, "low-rank")])
@pytest.mark.parametrize("method", [Crnr(lam=0.3, mu=0.3), Crnr(lam=0.0), Nrc(mu=1.0)])
def test_one_pass_answers_for_every_count_of_iterations(
    n_features: int, form: str, method: Crnr | Nrc
) -> None:
    vectors, class_index = unit_rows(60, n_features), np.repeat(np.arange(4), 15)
    fold = Fold.of(vectors, class_index, stratified_folds(class_index, 4) == 1)
    counts = (2, 5, 9)
    assert solvers.cheaper_form(fold.samples.edges, n_features, method.class_weight, 9) == form
    winners = method.winners_after(fold, counts)
    assert method.variants(counts) == [replace(method, iterations=count) for count in counts]
    for row, count in zip(winners, counts, strict=True):
        separate = replace(method, iterations=count)
        state = separate.fit(fold.samples)
        expected = separate.residuals(fold.samples, state, fold.queries).argmin(axis=1)
        assert np.array_equal(row, expected)
