"""The solver against the authors' program, SciPy's nnls, and itself in another form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from crnr_cli.solvers.admm import admm, class_residuals
from crnr_cli.solvers.factors import cheaper_form, factorize_dense, factorize_low_rank, inverse
from helpers.paths import DATA

FORMS = {"dense": factorize_dense, "low-rank": factorize_low_rank}
REFERENCE = np.load(DATA / "small_reference.npz")


def unit_columns(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T


def edges_of(sizes: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("setting", range(7))
def test_codes_and_residuals_match_the_authors_program(form: str, setting: int) -> None:
    by_class = np.argsort(REFERENCE["labels"], kind="stable")
    X = unit_columns(REFERENCE["gallery"][by_class])
    Y = unit_columns(REFERENCE["queries"])
    edges = edges_of(np.bincount(REFERENCE["labels"])[1:].tolist())
    lam, mu = REFERENCE["lam"][setting], REFERENCE["mu"][setting]
    code = admm(FORMS[form](X, edges, lam, mu), Y, int(REFERENCE["iterations"]))
    r = class_residuals(X, edges, code.c, Y)
    np.testing.assert_allclose(code.c.T, REFERENCE["c"][setting][:, by_class], rtol=0, atol=1e-10)
    np.testing.assert_allclose(code.z.T, REFERENCE["z"][setting][:, by_class], rtol=0, atol=1e-10)
    np.testing.assert_allclose(r.T, REFERENCE["residuals"][setting], rtol=0, atol=1e-10)


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_residuals_of_classes_worked_on_together(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours of one size are one product: as if each class had been alone."""
    rng = np.random.default_rng(0)
    sizes = [3, 3, 3, 1, 3, 3, 5, 5, 5, 5, 2]
    edges = edges_of(sizes)
    X, Y, c = rng.random((4, edges[-1])), rng.random((4, 6)), rng.random((edges[-1], 6))
    monkeypatch.setattr("crnr_cli.solvers.admm.RESIDUAL_BYTES", at_once * Y.nbytes)
    alone = [np.linalg.norm(Y - X[:, a:b] @ c[a:b], axis=0) for a, b in pairwise(edges)]
    np.testing.assert_allclose(class_residuals(X, edges, c, Y), alone, rtol=1e-13)
    np.testing.assert_allclose(class_residuals(np.asfortranarray(X), edges, c, Y), alone, rtol=1e-13)


problems = st.tuples(
    st.integers(0, 2**32 - 1),  # seed
    st.lists(st.integers(1, 6), min_size=1, max_size=5),  # samples per class
    st.integers(2, 12),  # dimension
    st.sampled_from([0.0, 1e-3, 0.1, 1.0]),  # lam
)


def random_problem(seed: int, sizes: list[int], d: int, m: int = 4) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    X = unit_columns(rng.standard_normal((sum(sizes), d)) + 0.3)
    Y = unit_columns(rng.standard_normal((m, d)) + 0.3)
    return X, edges_of(sizes), Y


def stacked(X: np.ndarray, edges: np.ndarray, y: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """Return ||y - Xc||^2 + lam sum_i ||y - X_i c_i||^2 as one least-squares problem."""
    parts = []
    for start, stop in pairwise(edges):
        part = np.zeros_like(X)
        part[:, start:stop] = X[:, start:stop]
        parts.append(np.sqrt(lam) * part)
    return np.vstack([X, *parts]), np.concatenate([y, *[np.sqrt(lam) * y] * len(parts)])


# ADMM nears a minimum in steps that shorten with the curvature there: room for every class to be of full
# rank where lam weighs in, and for the whole gallery where it hardly does, keeps the steps few.
curved_problems = st.one_of(
    st.builds(
        lambda seed, sizes, lam: (*random_problem(seed, sizes, 2 * max(sizes) + 4), lam),
        st.integers(0, 2**32 - 1),
        st.lists(st.integers(1, 4), min_size=1, max_size=5),
        st.sampled_from([0.1, 1.0]),
    ),
    st.builds(
        lambda seed, sizes, lam: (*random_problem(seed, sizes, 2 * sum(sizes) + 4), lam),
        st.integers(0, 2**32 - 1),
        st.lists(st.integers(1, 4), min_size=1, max_size=4),
        st.sampled_from([0.0, 1e-3]),
    ),
)


@given(curved_problems)
@settings(max_examples=40)
def test_many_iterations_reach_the_minimum_that_nnls_finds(problem: tuple) -> None:
    X, edges, Y, lam = problem
    z = admm(factorize_dense(X, edges, lam, 0.5), Y, 5_000, tol=1e-12).z
    for column, y in enumerate(Y.T):
        A, b = stacked(X, edges, y, lam)
        np.testing.assert_allclose(z[:, column], nnls(A, b)[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_a_query_of_zeros_has_converged_after_one_iteration(form: str) -> None:
    """Its code is 0 from the beginning, so nothing changes."""
    X = unit_columns(np.random.default_rng(0).random((6, 4)))
    code = admm(
        FORMS[form](X, edges_of([3, 3]), 0.1, 0.5), np.stack([np.zeros(4), X[:, 0]], axis=1), 9, tol=1e-9
    )
    assert (code.steps.tolist(), code.converged.tolist()) == ([1, 9], [True, False])
    assert not code.z[:, 0].any()


@given(curved_problems)
@settings(max_examples=40)
def test_many_iterations_meet_the_optimality_conditions(problem: tuple) -> None:
    X, edges, Y, lam = problem
    z = admm(factorize_low_rank(X, edges, lam, 0.5), Y, 5_000, tol=1e-12).z
    for column, y in enumerate(Y.T):
        A, b = stacked(X, edges, y, lam)
        gradient = A.T @ (A @ z[:, column] - b)
        assert z.min() >= 0
        assert gradient.min() > -1e-6
        assert np.abs(z[:, column] * gradient).max() < 1e-6


@given(problems, st.sampled_from([0.05, 0.1, 2.0]))
@settings(max_examples=60)
def test_dense_and_low_rank_factors_give_the_same_codes(problem: tuple, mu: float) -> None:
    seed, sizes, d, lam = problem
    X, edges, Y = random_problem(seed, sizes, d)
    dense, low_rank = (admm(factorize(X, edges, lam, mu), Y, 5) for factorize in FORMS.values())
    np.testing.assert_allclose(dense.c, low_rank.c, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("sizes", "d"),
    [
        pytest.param([200, 3, 150, 40, 1, 1, 90], 60, id="uneven, blocks joined and not"),
        pytest.param([1] * 300, 20, id="one sample a class"),
        pytest.param([130, 2, 70, 41], 20, id="classes of more samples than dimensions"),
        pytest.param([90, 5, 5, 5, 200], 20, id="tall classes beside joined small ones"),
    ],
)
@pytest.mark.parametrize("lam", [0.0, 1e-3, 1.0])
def test_dense_and_low_rank_factors_agree_for_all_blocks(sizes: list[int], d: int, lam: float) -> None:
    X, edges, Y = random_problem(1, sizes, d)
    dense, low_rank = (admm(factorize(X, edges, lam, 0.1), Y, 5) for factorize in FORMS.values())
    np.testing.assert_allclose(dense.c, low_rank.c, rtol=0, atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.1])
def test_dimensions_that_no_sample_uses_are_left_out_of_the_factor_and_change_nothing(lam: float) -> None:
    X, edges, Y = random_problem(1, [200, 3, 150, 40], 60)
    X[10:30] = 0  # and the queries are not zero there
    dense, low_rank = (factorize(X, edges, lam, 0.1) for factorize in FORMS.values())
    assert low_rank.E.shape == (393, 40)
    np.testing.assert_allclose(admm(low_rank, Y, 5).c, admm(dense, Y, 5).c, rtol=0, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-6), ("float64", 1e-10)])
def test_order_and_batch_size_do_not_matter(form: str, dtype: str, atol: float) -> None:
    X, edges, Y = random_problem(2, [40, 7, 90], 30, m=50)
    X, Y = X.astype(dtype), Y.astype(dtype)
    factor = FORMS[form](X, edges, 0.1, 0.1)

    def residuals(columns: np.ndarray) -> np.ndarray:
        return class_residuals(X, edges, admm(factor, columns, 5).c, columns)

    whole = residuals(Y)
    one_by_one = np.hstack([residuals(np.ascontiguousarray(Y[:, [i]])) for i in range(50)])
    shuffled = np.random.default_rng(0).permutation(50)
    np.testing.assert_allclose(one_by_one, whole, rtol=0, atol=atol)
    np.testing.assert_allclose(
        residuals(np.ascontiguousarray(Y[:, shuffled])), whole[:, shuffled], rtol=0, atol=atol
    )
    assert (one_by_one.argmin(axis=0) == whole.argmin(axis=0)).all()


def test_float32_codes_agree_with_float64() -> None:
    X, edges, Y = random_problem(3, [50, 50, 50], 20)
    exact = admm(factorize_low_rank(X, edges, 0.1, 0.1), Y, 5).c
    single = factorize_low_rank(X.astype("float32"), edges, 0.1, 0.1)
    np.testing.assert_allclose(admm(single, Y.astype("float32"), 5).c, exact, rtol=0, atol=1e-5)


def plain_admm(
    X: np.ndarray, edges: np.ndarray, y: np.ndarray, lam: float, mu: float, steps: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (c, z) after every step of the paper's three variables, written out."""
    n = X.shape[1]
    Q = X.T @ X + mu / 2 * np.eye(n)
    for start, stop in pairwise(edges):
        Q[start:stop, start:stop] += lam * X[:, start:stop].T @ X[:, start:stop]
    z, delta = np.zeros(n), np.zeros(n)
    for _ in range(steps):
        c = np.linalg.solve(Q, (1 + lam) * X.T @ y + (mu * z + delta) / 2)
        z = np.maximum(0, c - delta / mu)
        delta = delta + mu * (z - c)
        yield c, z


# Where z - c, or the change of c, is the only one that is still too large at the last step but one.
@pytest.mark.parametrize(("mu", "tol", "last_to_arrive"), [(0.5, 1e-3, {0}), (2.0, 0.05, {0, 2})])
def test_tol_stops_each_query_where_it_would_stop_alone(
    mu: float, tol: float, last_to_arrive: set[int]
) -> None:
    X, edges, Y = random_problem(4, [3, 4, 2], 8, m=40)
    most = 400
    code = admm(factorize_dense(X, edges, 0.1, mu), Y, most, tol)
    assert code.converged.dtype == bool
    last = set()
    for column, y in enumerate(Y.T):
        last_c = last_z = np.zeros(9)
        step, gaps = 0, [np.inf]
        for c, z in plain_admm(X, edges, y, 0.1, mu, most):
            step += 1
            before, gaps = gaps, [np.linalg.norm(gap) for gap in (z - c, z - last_z, c - last_c)]
            if max(gaps) < tol:
                break
            last_c, last_z = c, z
        too_large = {i for i, gap in enumerate(before) if gap >= tol}
        last |= too_large if len(too_large) == 1 else set()
        assert code.steps[column] == step
        assert code.converged[column]
        np.testing.assert_allclose(code.c[:, column], c, atol=1e-10)
        np.testing.assert_allclose(code.z[:, column], z, atol=1e-10)
    assert len(set(code.steps.tolist())) > 1  # or this test would not see a frozen column
    assert last == last_to_arrive


def test_a_query_that_misses_tol_is_not_converged() -> None:
    X, edges, Y = random_problem(5, [3, 3], 8)
    code = admm(factorize_dense(X, edges, 0.1, 0.1), Y, 2, tol=1e-12)
    assert not code.converged.any()
    assert (code.steps == 2).all()
    unlimited = admm(factorize_dense(X, edges, 0.1, 0.1), Y, 2)
    np.testing.assert_array_equal(unlimited.c, code.c)
    assert (unlimited.converged.tolist(), unlimited.steps.tolist()) == ([False] * 4, [2] * 4)
    assert unlimited.converged.dtype == bool


@pytest.mark.parametrize(
    ("sizes", "d", "form"),
    [
        pytest.param([10] * 5, 784, "dense", id="few samples"),
        pytest.param([500] * 10, 784, "low-rank", id="many samples"),
        pytest.param([7] * 100, 54, "low-rank", id="faces, 54 dimensions"),
    ],
)
def test_the_cheaper_form_is_chosen(sizes: list[int], d: int, form: str) -> None:
    assert cheaper_form(edges_of(sizes), d, 0.1, 5) == form


def test_inverse_refuses_indefinite_matrices() -> None:
    with pytest.raises(np.linalg.LinAlgError, match=r"^matrix is not positive definite \(LAPACK info 2\)$"):
        inverse(np.array([[1.0, 2.0], [2.0, 1.0]]))
