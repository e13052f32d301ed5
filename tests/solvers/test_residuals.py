"""Class residuals and subspaces, against the least squares and norms of NumPy, one class at a time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.solvers import admm

EDGES = np.array([0, 4, 5, 12])


def unit_columns(d: int, n: int, seed: int) -> Array:
    X = np.random.default_rng(seed).normal(size=(d, n))
    return X / np.linalg.norm(X, axis=0)


def test_no_queries_have_no_residuals() -> None:
    X = unit_columns(6, 12, 0)
    assert admm.class_residuals(X, EDGES, np.empty((12, 0)), np.empty((6, 0))).shape == (3, 0)
    assert admm.subspace_residuals(*admm.class_bases(X, EDGES), np.empty((6, 0))).shape == (3, 0)


def test_space_for_classes_that_are_processed_together_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    Y = np.ones((5, 3))
    sizes = [2] * 7
    edges = np.concatenate([[0], np.cumsum(sizes)])
    seen: list[tuple[int, ...]] = []
    matmul = np.matmul

    def noted(a: Array, b: Array, out: Array) -> Array:
        seen.append(out.shape)
        return matmul(a, b, out=out)

    monkeypatch.setattr(admm, "RESIDUAL_BYTES", 3 * Y.nbytes + 1)
    monkeypatch.setattr(admm.np, "matmul", noted)
    admm.class_residuals(np.ones((5, 14)), edges, np.ones((14, 3)), Y)
    assert seen == [(3, 5, 3), (3, 5, 3), (1, 5, 3)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_residuals_keep_the_type_of_the_queries(dtype: str) -> None:
    X, Y = unit_columns(6, 12, 0).astype(dtype), unit_columns(6, 3, 1).astype(dtype)
    c = np.random.default_rng(2).normal(size=(12, 3)).astype(dtype)
    G = X.astype(float).T @ X.astype(float)
    expected = [np.linalg.norm(Y - X[:, a:b] @ c[a:b], axis=0) for a, b in pairwise(EDGES)]
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    for found in (
        admm.class_residuals(X, EDGES, c, Y),
        admm.class_residuals_by_gram(G, EDGES, c, X.T @ Y),
    ):
        assert found.dtype == Y.dtype
        np.testing.assert_allclose(found, expected, atol=tolerance)


def test_residuals_by_gram_of_samples_are_numbers_whatever_the_rounding() -> None:
    """The squares of residuals that are 0 come out a little above or below 0."""
    X = unit_columns(40, 60, 3)
    edges = np.arange(61)
    found = admm.class_residuals_by_gram(X.T @ X, edges, np.eye(60), X.T @ X)
    assert np.isfinite(found).all()
    assert found.diagonal().max() < 1e-7


def test_bases_are_orthonormal_and_span_their_classes() -> None:
    X = unit_columns(6, 12, 4)
    X[:, 2] = X[:, 0] + X[:, 1]  # one direction less
    bases, edges = admm.class_bases(X, EDGES)
    assert edges.tolist() == [0, 3, 4, 10]
    for (a, b), (start, stop) in zip(pairwise(edges), pairwise(EDGES), strict=True):
        U, Xi = bases[:, a:b], X[:, start:stop]
        np.testing.assert_allclose(U.T @ U, np.eye(b - a), atol=1e-12)
        np.testing.assert_allclose(U @ (U.T @ Xi), Xi, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("d", "n"), [(30, 3), (3, 30)], ids=["wide", "tall"])
@pytest.mark.parametrize(("factor", "kept"), [(0.3, 1), (3.0, 2)], ids=["below", "above"])
def test_directions_count_as_in_matrix_rank(d: int, n: int, dtype: str, factor: float, kept: int) -> None:
    """The second direction is as long as the threshold times `factor`: at first below, and then above it."""
    U, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))
    V, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(n, n)))
    second = factor * max(d, n) * float(np.finfo(dtype).eps)
    X = (U[:, :1] @ V[:1] + second * U[:, 1:2] @ V[1:2]).astype(dtype)
    before = np.ones((d, 200), dtype)  # another class, of one direction
    _, edges = admm.class_bases(np.hstack([before, X]), np.array([0, 200, 200 + n]))
    if dtype == "float64":  # in float32, rounding X to its type adds directions of about this length
        assert edges.tolist() == [0, 1, 1 + kept]
    assert edges[2] - 1 == np.linalg.matrix_rank(X.astype(float), tol=max(d, n) * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subspace_residuals_match_least_squares(dtype: str) -> None:
    X, Y = unit_columns(6, 12, 7).astype(dtype), unit_columns(6, 4, 8).astype(dtype)
    found = admm.subspace_residuals(*admm.class_bases(X, EDGES), Y)
    expected = [
        np.linalg.norm(Y - X[:, a:b] @ np.linalg.lstsq(X[:, a:b], Y, rcond=None)[0], axis=0)
        for a, b in pairwise(EDGES)
    ]
    assert found.dtype == Y.dtype
    np.testing.assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 1e-5)
    assert (found[2] == 0).all()  # 7 samples in 6 dimensions represent everything
    assert found[:2].min() > 0.01
