"""The nearest samples: exactly those that sorting all products finds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.solvers import neighbors as module
from crnr_cli.solvers.neighbors import find_nearest, search_bytes


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def by_sorting(X: np.ndarray, Y: np.ndarray, count: int) -> np.ndarray:
    products = Y.astype(np.float64) @ X.astype(np.float64).T
    return np.argsort(-products, axis=1, kind="stable")[:, :count]


@given(st.integers(1, 300), st.integers(1, 12), st.integers(1, 60), st.integers(0, 99))
def test_find_nearest_matches_a_full_sort(n: int, m: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Y = unit(rng, n, 7), unit(rng, m, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", 64)  # several blocks, and a last one that is shorter
        patch.setattr(module, "_MERGED", 100)  # several parts of a block
        found = find_nearest(X.T, Y.T, count)
    np.testing.assert_array_equal(found, by_sorting(X, Y, count))


def test_a_query_has_the_same_neighbours_alone_and_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    X, Y = unit(rng, 5000, 33), unit(rng, 150, 33)
    together = find_nearest(X.T, Y.T, 40)
    for rows in (slice(0, 1), slice(7, 20), slice(100, 150)):
        np.testing.assert_array_equal(find_nearest(X.T, Y[rows].T, 40), together[rows])


def test_find_nearest_prefers_the_first_of_equal_samples() -> None:
    X = np.repeat(unit(np.random.default_rng(1), 4, 5), 3, axis=0)
    assert find_nearest(X.T, X[:1].T, 3).tolist() == [[0, 1, 2]]


@given(st.integers(60, 400), st.integers(1, 9), st.integers(1, 60), st.integers(0, 99))
def test_more_equally_near_samples_than_are_kept_as_candidates(n: int, m: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Products of eighths are exact in any order, and there are only a few different ones.
    X, Y = (rng.integers(-1, 2, size=(rows, 5)).astype(np.float32) / 8 for rows in (n, m))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", 64)
        patch.setattr(module, "_SPARE", 2)
        patch.setattr(module, "_BATCH", 4)
        found = find_nearest(X.T, Y.T, count)
    np.testing.assert_array_equal(found, by_sorting(X, Y, count))


def test_neighbours_that_differ_less_than_float32_can_tell() -> None:
    """In float32 products of a block, 2000 samples are the same; in float64 the last ones are nearer."""
    angles = np.linspace(1e-5, 1e-6, 2000)
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    X = np.concatenate([X, unit(np.random.default_rng(0), 9000, 2)])
    Y = np.array([[0.6, 0.8], [1, 0]], np.float32)
    np.testing.assert_array_equal(find_nearest(X.T, Y.T, 20), by_sorting(X, Y, 20))


def test_a_blank_query_is_equally_near_to_all() -> None:
    X = unit(np.random.default_rng(2), 100, 6)
    assert find_nearest(X.T, np.zeros((6, 1), np.float32), 4).tolist() == [[0, 1, 2, 3]]


def test_no_query_has_no_neighbours() -> None:
    found = find_nearest(np.eye(3), np.empty((3, 0)), 2)
    assert (found.shape, found.dtype) == ((0, 2), np.int64)


def test_the_memory_of_a_search_does_not_grow_with_the_samples() -> None:
    X, Y = unit(np.random.default_rng(3), 40_000, 8), unit(np.random.default_rng(4), 300, 8)
    tracemalloc.start()
    find_nearest(X.T, Y.T, 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    all_products = 4 * len(X) * len(Y)
    assert peak < all_products
    assert search_bytes(40_000, 300) == search_bytes(10**9, 300)
    assert peak < 2 * search_bytes(40_000, 300)


def test_the_memory_of_a_search_does_not_grow_where_each_block_is_nearer_than_the_last() -> None:
    """Samples are sorted by class: queries of the last class are near to nearly all of its block."""
    rng = np.random.default_rng(3)
    shifts = np.repeat([[0.0], [1.0], [2.0]], 8192, axis=0)
    X = rng.normal(size=(3 * 8192, 8)) + 5 * shifts
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    Y = X[-512:]
    tracemalloc.start()
    try:
        found = find_nearest(X.T, Y.T, 50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found[::64], by_sorting(X, Y[::64], 50))
    assert peak < 6 * 4 * 8192 * 512  # the products of a block, in float32
