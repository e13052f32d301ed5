"""Codes by the neighbours of each query alone: compared with one query after the other."""

from __future__ import annotations

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.solvers import lasso
from crnr_cli.solvers.factors import factorize_gram
from crnr_cli.solvers.neighbors import (
    Neighborhoods,
    factorize_local,
    local_norms,
    local_residuals,
    rounding_of_products,
    search_bytes,
)


def problem(dtype: str = "float64") -> tuple[Array, Array, Array, Array, Neighborhoods]:
    """Return X (d, n), the class of every column, Y (d, m), the places of five neighbours, and these."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(7, 30)), rng.normal(size=(7, 4))
    X, Y = ((A / np.linalg.norm(A, axis=0)).astype(dtype) for A in (X, Y))
    Y[:, 2] = 0
    classes = np.arange(30) % 3
    places = np.array([rng.permutation(30)[:5] for _ in range(4)])
    return X, classes, Y, places, Neighborhoods.of(X, Y, places, classes)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_neighborhoods_are_products_of_their_samples(dtype: str) -> None:
    X, classes, Y, places, near = problem(dtype)
    X64, Y64 = X.astype(float), Y.astype(float)
    c = np.random.default_rng(1).normal(size=(5, 4))
    for i, those in enumerate(places):
        np.testing.assert_allclose(near.gram[i], X64[:, those].T @ X64[:, those], atol=1e-12)
        np.testing.assert_allclose(near.cross[:, i], X64[:, those].T @ Y64[:, i], atol=1e-12)
        np.testing.assert_allclose(near.times(c)[:, i], near.gram[i] @ c[:, i], atol=1e-12)
        assert near.classes[i].tolist() == classes[those].tolist()
        assert near.same_class[i].tolist() == [[classes[a] == classes[b] for b in those] for a in those]
    assert near.lengths.tolist() == [1, 1, 0, 1]
    assert {near.gram.dtype, near.cross.dtype, near.lengths.dtype} == {np.dtype("float64")}
    chosen = np.array([True, False, False, True])
    picked = near.pick(chosen)
    for name in ("gram", "classes", "lengths"):
        np.testing.assert_array_equal(getattr(picked, name), getattr(near, name)[[0, 3]])
    np.testing.assert_array_equal(picked.cross, near.cross[:, [0, 3]])


@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_local_factors_are_the_factors_of_each_query(lam: float) -> None:
    X, classes, _, places, near = problem()
    factor = factorize_local(near, lam, 0.1)
    A, product = np.random.default_rng(1).normal(size=(5, 4)), np.empty((5, 4))
    factor.product(A, out=product)
    picked = factor.pick(np.array([False, True, False, True]))
    for i, those in enumerate(places):
        order = np.argsort(classes[those], kind="stable")
        edges = np.concatenate([[0], np.cumsum(np.bincount(classes[those]))])
        samples = X[:, those[order]]
        expected = factorize_gram(samples.T @ samples, edges, lam, 0.1, "float64")
        np.testing.assert_allclose(factor.H[i][np.ix_(order, order)], expected.H, atol=1e-12)
        np.testing.assert_allclose(factor.M[i][np.ix_(order, order)], expected.M, atol=1e-12)
        np.testing.assert_allclose(product[:, i], factor.H[i] @ A[:, i], atol=1e-12)
        np.testing.assert_allclose(factor.first_code(A)[:, i], factor.M[i] @ A[:, i], atol=1e-12)
    np.testing.assert_array_equal(picked.H, factor.H[[1, 3]])
    np.testing.assert_array_equal(picked.M, factor.M[[1, 3]])


def test_local_residuals_and_norms_are_those_of_the_class_of_each_neighbour() -> None:
    X, classes, Y, places, near = problem()
    c = np.random.default_rng(1).normal(size=(5, 4))
    c[:, 2] = 0  # as for every query of zeros
    residuals, norms = local_residuals(near, c), local_norms(near, c)
    for i, those in enumerate(places):
        for k, place in enumerate(those):
            own = classes[those] == classes[place]
            rest = Y[:, i] - X[:, those[own]] @ c[own, i]
            assert residuals[k, i] == pytest.approx(np.linalg.norm(rest), abs=1e-7)
            assert norms[k, i] == pytest.approx(np.linalg.norm(c[own, i]), abs=1e-12)


def test_residuals_that_rounding_makes_negative_are_zero() -> None:
    """The query is the one sample, and the squares differ by rounding alone."""
    for seed in range(50):
        x = np.random.default_rng(seed).normal(size=(9, 1))
        x /= np.linalg.norm(x)
        near = Neighborhoods.of(x, x, np.array([[0]]), np.array([0]))
        assert 0 <= local_residuals(near, np.array([[1.0]]))[0, 0] < 1e-7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", [3, 300])
def test_products_of_a_block_differ_by_less_than_the_bound(d: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    A, B = (rng.normal(size=(500, d)) for _ in range(2))
    A, B = ((M / np.linalg.norm(M, axis=1, keepdims=True)).astype(dtype) for M in (A, B))
    exact = A.astype(np.longdouble) @ B.astype(np.longdouble).T
    bound = rounding_of_products(A)
    assert np.abs(A @ B.T - exact).max() < bound
    assert bound == pytest.approx(4 * np.sqrt(d + 16) * 2.0 ** (-23 if dtype == "float32" else -52))


def test_a_search_needs_the_products_of_two_blocks() -> None:
    """A product in float64 takes eight bytes, and the mask of the larger ones takes one."""
    assert search_bytes(100, 7) == 2 * 9 * 100 * 7
    assert search_bytes(10**6, 10**6) == 2 * 9 * 8192 * 512


@pytest.mark.parametrize("lam", [1e-3, 0.3])
def test_a_local_duality_gap_is_the_gap_of_each_query(lam: float) -> None:
    X, _, Y, places, near = problem()
    for c in (np.random.default_rng(1).normal(size=(5, 4)), np.zeros((5, 4))):
        found = lasso.local_duality_gap(near, c, lam)
        for i, those in enumerate(places):
            expected = lasso.duality_gap(X[:, those], Y[:, [i]], c[:, [i]], lam)
            assert found[i] == pytest.approx(expected[0], abs=1e-12)


@pytest.mark.parametrize("lam", [1e-3, 0.3])
@pytest.mark.parametrize(("iterations", "tol"), [(47, 0.0), (20_000, 1e-6), (20_000, 0.0)])
def test_a_local_l1_code_is_the_code_of_each_query(lam: float, iterations: int, tol: float) -> None:
    X, _, Y, places, near = problem()
    found = lasso.local_code(near, lam, iterations, tol)
    for i, those in enumerate(places):
        samples, edges = X[:, those], np.array([0, 5])
        one = lasso.code(lasso.factorize(samples, edges, lam), samples, Y[:, [i]], lam, iterations, tol)
        np.testing.assert_allclose(found.c[:, i], one.c[:, 0], atol=1e-9)
        assert found.gap[i] == pytest.approx(one.gap[0], abs=1e-12)
        assert found.tol == one.tol == max(tol, 100 * 2.0**-52)
        assert iterations == 47 or found.gap[i] <= found.tol
