"""The l1 solver against scikit-learn's lasso, and its own certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Lasso

from crnr_cli.arrays import Array
from crnr_cli.solvers import lasso
from helpers.method_checks import problem


def objective(X: Array, y: Array, c: Array, lam: float) -> float:
    return float(np.sum((y - X @ c) ** 2) + lam * np.abs(c).sum())


def least(X: Array, y: Array, lam: float, tol: float = 1e-14) -> float:
    """By scikit-learn, whose objective is ours divided by 2d."""
    d = len(y)
    model = Lasso(alpha=lam / (2 * d), fit_intercept=False, tol=tol, max_iter=1_000_000)
    return objective(X, y, model.fit(X, y).coef_, lam)


@pytest.mark.parametrize(("dtype", "close"), [("float64", 1e-6), ("float32", 1.2e-5)])
@pytest.mark.parametrize("lam", [1e-3, 1e-2, 0.3])
@pytest.mark.parametrize(("sizes", "d"), [((5, 3, 7), 24), ((20, 30, 25), 16)], ids=["dense", "low-rank"])
def test_objective_is_that_of_scikit_learn(
    sizes: tuple[int, ...], d: int, lam: float, dtype: str, close: float
) -> None:
    samples, queries, _ = problem(sizes=sizes, d=d, dtype=dtype)
    X, Y = samples.vectors.T, queries.T.copy()
    code = lasso.code(lasso.factorize(X, samples.edges, lam), X, Y, lam, 20_000, 1e-6)
    X64, Y64, c = X.astype(float), Y.astype(float), code.c.astype(float)
    for y, ci in zip(Y64.T, c.T, strict=True):
        assert abs(objective(X64, y, ci, lam) - least(X64, y, lam)) <= close
    assert code.gap.max() <= close


def test_nothing_is_used_where_lam_is_large() -> None:
    """Above twice the largest |x'y| the answer is exactly 0."""
    samples, queries, _ = problem()
    X, Y = samples.vectors.T, queries.T.copy()
    lam = 2.01 * float(np.abs(X.T @ Y).max())
    code = lasso.code(lasso.factorize(X, samples.edges, lam), X, Y, lam, 5000, 1e-10)
    assert not code.c.any()


def test_the_last_step_is_the_answer_when_steps_run_out() -> None:
    samples, queries, _ = problem()
    X, Y = samples.vectors.T, queries.T.copy()
    code = lasso.code(lasso.factorize(X, samples.edges, 1e-3), X, Y, 1e-3, 3, 1e-9)
    assert np.isfinite(code.c).all()
    assert code.gap.min() > 1e-9


# Short of its tolerance scikit-learn's objective is only higher, and the test still holds.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.floats(1e-4, 1.0), st.integers(0, 60))
def test_gap_bounds_the_excess_of_any_code(seed: int, lam: float, nonzero: int) -> None:
    """Weak duality: whatever the code, its objective exceeds the least by no more than the gap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, 12))
    X /= np.linalg.norm(X, axis=0)
    y = rng.normal(size=8)
    y /= np.linalg.norm(y)
    c = rng.normal(size=12) * (rng.integers(60, size=12) < nonzero)
    gap = lasso.duality_gap(X, y[:, None], c[:, None], lam)[0]
    assert objective(X, y, c, lam) - least(X, y, lam, tol=1e-6) <= gap + 1e-12
