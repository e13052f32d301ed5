"""Outliers: samples that no class has anything like."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.gallery import suspects as module
from crnr_cli.gallery.suspects import find_outliers, similarity_to_classes


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def slowly(vectors: np.ndarray, edges: np.ndarray, copies: np.ndarray) -> list[float]:
    found = []
    for i, vector in enumerate(vectors):
        of_classes = []
        for start, stop in pairwise(edges.tolist()):
            cosines = [float(vectors[k] @ vector) for k in range(start, stop) if copies[k] != copies[i]]
            if cosines:
                of_classes.append(sorted(cosines, reverse=True)[:3][-1])
        found.append(max(of_classes))
    return found


@given(st.lists(st.integers(1, 6), min_size=2, max_size=5), st.integers(0, 999))
def test_the_third_nearest_of_the_best_class(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    vectors = unit(rng.normal(size=(edges[-1], 4)))
    copies = np.arange(edges[-1])
    if sizes[0] > 1:
        vectors[1], copies[1] = vectors[0], copies[0]
    found = similarity_to_classes(vectors, edges, copies)
    np.testing.assert_allclose(found, slowly(vectors, edges, copies), atol=1e-6)


@given(st.lists(st.integers(1, 8), min_size=2, max_size=5), st.integers(0, 9999), st.integers(1, 40))
def test_the_third_nearest_where_many_cosines_are_equal(sizes: list[int], seed: int, rows: int) -> None:
    """Rows of 0 and 1 have few different cosines, which float32 gives exactly if four values are 1."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0], np.cumsum(sizes)])
    vectors = np.zeros((edges[-1], 6), np.float32)
    for vector in vectors:
        vector[rng.choice(6, 4, replace=False)] = 0.5
    copies = rng.permutation(edges[-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", rows * int(edges[-1]))
        found = similarity_to_classes(vectors, edges, copies)
    np.testing.assert_array_equal(found, slowly(vectors, edges, copies))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_outlier_among_equal_cosines(dtype: str) -> None:
    """All pairs of a class have the cosine 100/101, up to rounding, and one sample has 10/101."""
    vectors = np.zeros((61, 65))
    vectors[:30, 0] = vectors[30:60, 1] = 10
    vectors[np.arange(60), 2 + np.arange(60)] = 1
    vectors[60, [1, 64]] = 1, 10
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(dtype)
    (found,) = find_outliers(vectors, np.array([0, 30, 61]), np.arange(61))
    assert (found.sample, found.similarity) == (60, pytest.approx(10 / 101))
    assert find_outliers(vectors[:60], np.array([0, 30, 60]), np.arange(60)) == []


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, edges = unit(np.random.default_rng(0).normal(size=(60, 5))), np.array([0, 7, 30, 60])
    whole = similarity_to_classes(vectors, edges, np.arange(60))
    monkeypatch.setattr(module, "_BLOCK", 60 * 7)
    np.testing.assert_allclose(similarity_to_classes(vectors, edges, np.arange(60)), whole, rtol=1e-6)


@pytest.mark.parametrize("per_class", [1, 2])
def test_samples_unlike_any_class_come_first(per_class: int) -> None:
    """Even if there is one of its kind in every class, or two."""
    rng = np.random.default_rng(4)
    centers, stranger = rng.normal(size=(5, 40)), rng.normal(size=40)
    rows, strange = [], []
    for center in centers:
        for i in range(20):
            strange.append(i < per_class)
            rows.append((stranger if strange[-1] else center) + 0.3 * rng.normal(size=40))
    found = find_outliers(unit(np.array(rows)), np.arange(0, 101, 20), np.arange(100))
    wanted = set(np.flatnonzero(strange).tolist())
    assert {one.sample for one in found[: len(wanted)]} == wanted
    assert len(found) <= len(wanted) + 5
    similarities = [one.similarity for one in found]
    assert similarities == sorted(similarities)


def test_a_clean_gallery_has_hardly_any() -> None:
    rng = np.random.default_rng(1)
    rows = np.repeat(rng.normal(size=(5, 40)), 20, axis=0) + 0.3 * rng.normal(size=(100, 40))
    assert len(find_outliers(unit(rows), np.arange(0, 101, 20), np.arange(100))) <= 5
