"""The l1 solver against scikit-learn's lasso, and its own certificate."""

from __future__ import annotations

from typing import Any

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
def test_objective_matches_scikit_learn(
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


def plain_lasso_admm(X: Array, y: Array, lam: float, steps: int) -> Array:
    """Run the textbook iteration with over-relaxation, and return z after some steps."""
    mu, relaxation = lasso._MU_PER_LAM * lam, lasso._RELAXATION
    n = X.shape[1]
    P = np.linalg.inv(X.T @ X + mu / 2 * np.eye(n))
    c = P @ (X.T @ y)
    z = np.sign(c) * np.maximum(np.abs(c) - lam / mu, 0)
    u = c - z
    for _ in range(steps - 1):
        c = P @ (X.T @ y + mu / 2 * (z - u))
        relaxed = relaxation * c + (1 - relaxation) * z
        z = np.sign(relaxed + u) * np.maximum(np.abs(relaxed + u) - lam / mu, 0)
        u = u + relaxed - z
    return z


@pytest.mark.parametrize("steps", [1, 2, 3, 19, 20, 21, 40, 45])
@pytest.mark.parametrize(("sizes", "d"), [((5, 3, 7), 24), ((20, 30, 25), 16)], ids=["dense", "low-rank"])
def test_every_step_matches_the_textbook(sizes: tuple[int, ...], d: int, steps: int) -> None:
    samples, queries, _ = problem(sizes=sizes, d=d, m=5)
    X, Y, lam = samples.vectors.T, queries.T.copy(), 0.01
    code = lasso.code(lasso.factorize(X, samples.edges, lam), X, Y, lam, steps, 1e-13)
    assert code.gap.min() > 1e-13  # none has converged
    expected = np.array([plain_lasso_admm(X, y, lam, steps) for y in Y.T]).T
    np.testing.assert_allclose(code.c, expected, atol=1e-10)
    np.testing.assert_allclose(code.gap, lasso.duality_gap(X, Y, expected, lam), atol=1e-10)


def test_a_query_keeps_its_code_from_when_it_has_converged() -> None:
    """As if it were alone, whatever the others in the batch still need."""
    samples, queries, _ = problem(m=30)
    X, Y, lam = samples.vectors.T, queries.T.copy(), 0.05
    Y[:, 3] = X[:, 2]
    Y[:, 7] *= 1e-3
    factor = lasso.factorize(X, samples.edges, lam)
    code = lasso.code(factor, X, Y, lam, 5000, 1e-6)
    assert (code.gap <= 1e-6).all()
    ends = set()
    for i, y in enumerate(Y.T):
        alone = lasso.code(factor, X, y[:, None].copy(), lam, 5000, 1e-6)
        np.testing.assert_allclose(code.c[:, i], alone.c[:, 0], atol=1e-12)
        np.testing.assert_allclose(code.gap[i], alone.gap[0], atol=1e-12)
        ends.add(next(k for k in range(1, 500) if np.allclose(plain_lasso_admm(X, y, lam, k), alone.c[:, 0])))
    assert len(ends) > 1  # or nothing was taken out of the batch


@pytest.mark.parametrize(("dtype", "smallest"), [("float32", 1.2e-5), ("float64", 2.2e-14)])
def test_tol_is_at_least_the_resolution_of_the_type(dtype: str, smallest: float) -> None:
    samples, queries, _ = problem(dtype=dtype, m=2)
    X, Y = samples.vectors.T, queries.T.copy()
    factor = lasso.factorize(X, samples.edges, 0.1)
    assert lasso.code(factor, X, Y, 0.1, 5, 1e-30).tol == pytest.approx(smallest, rel=0.05)
    assert lasso.code(factor, X, Y, 0.1, 5, 0.25).tol == 0.25


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gap_where_a_part_of_it_vanishes(dtype: str) -> None:
    X = np.eye(4, 2, dtype=dtype)
    y = np.array([[0.6], [0.8], [0.0], [0.0]], dtype)
    exact = np.array([[0.6], [0.8]], dtype)  # nothing is left of y: the gap is the norm of the code
    assert lasso.duality_gap(X, y, exact, 0.5) == pytest.approx(0.7, rel=1e-6)
    beyond = np.array([[0.0], [0.0], [0.6], [0.8]], dtype)  # no sample helps: 0 is the minimum
    assert lasso.duality_gap(X, beyond, np.zeros((2, 1), dtype), 0.5) == pytest.approx(0, abs=1e-6)
    # For orthonormal samples the minimum is known: |x'y| less lam/2 each.
    least = np.array([[0.35], [0.55]], dtype)
    assert lasso.duality_gap(X, y, least, 0.5) == pytest.approx(0, abs=1e-6)


def test_convergence_is_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """And after the last step: it costs about as much as a step."""
    samples, queries, _ = problem(m=3)
    X, Y = samples.vectors.T, queries.T.copy()
    steps, looked = 0, []
    one_step, gap = lasso._step, lasso.duality_gap

    def counted_step(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        return one_step(*arguments)

    def noted_gap(*arguments: Any) -> Any:
        looked.append(steps)
        return gap(*arguments)

    monkeypatch.setattr(lasso, "_step", counted_step)
    monkeypatch.setattr(lasso, "duality_gap", noted_gap)
    lasso.code(lasso.factorize(X, samples.edges, 1e-3), X, Y, 1e-3, 50, 1e-13)
    assert looked == [20, 40, 50]
    assert steps == 50
