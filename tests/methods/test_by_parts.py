"""Vectors of several parts: every part is represented separately, and residuals are averaged."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.methods import METHODS, Method, Samples, Split, fit_method, make_method
from crnr_cli.methods.base import (
    fit_bytes,
    part_residuals,
    residuals,
    residuals_in_batches,
    states_of_parts,
    winners_after,
)
from crnr_cli.solvers.factors import cheaper_form
from crnr_cli.system import memory
from helpers.method_checks import assert_close, method_called, problem

PARTS = np.array([0, 5, 12, 13, 24])  # one of them a single number
SIZES = (5, 3, 7, 4)


def in_parts(rows: Array, edges: Array = PARTS) -> Array:
    """Scale each part of every row to unit length."""
    return np.concatenate(
        [
            rows[:, start:stop] / np.linalg.norm(rows[:, start:stop], axis=1, keepdims=True)
            for start, stop in pairwise(edges)
        ],
        axis=1,
    )


def parted(dtype: str = "float64", edges: Array = PARTS, m: int = 12) -> tuple[Samples, Array]:
    samples, queries, _ = problem(sizes=SIZES, d=int(edges[-1]), m=m)
    vectors = in_parts(samples.vectors, edges).astype(dtype)
    return Samples(vectors, samples.edges, edges), in_parts(queries, edges).astype(dtype)


def one_by_one(method: Method, samples: Samples, query: Array, edges: Array = PARTS) -> list[Array]:
    """Return the residuals of one query for each part that is not blank, fitted to that part only."""
    found = []
    for start, stop in pairwise(edges):
        if query[start:stop].any():
            alone = Samples(samples.vectors[:, start:stop].copy(), samples.edges)
            fresh = replace(method)  # type: ignore[type-var]
            found.append(fresh.residuals(alone, fresh.fit(alone), query[None, start:stop].copy())[0])
    return found


@pytest.mark.parametrize("name", METHODS)
def test_residuals_are_the_mean_over_the_parts(name: str) -> None:
    method = method_called(name)
    samples, queries = parted()
    found = residuals(method, samples, fit_method(method, samples), queries)
    expected = [sum(one_by_one(method, samples, query)) / 4 for query in queries]
    assert_close(name, found, np.array(expected))


@pytest.mark.parametrize("name", METHODS)
def test_a_blank_part_of_a_query_contributes_the_same_to_every_class(name: str) -> None:
    """It leaves the decision to the others, and is 0 for all."""
    method = method_called(name)
    samples, queries = parted()
    queries[0, 5:12] = 0
    queries[1, 13:24] = 0
    queries[2, 0:13] = 0
    state = fit_method(method, samples)
    found = residuals(method, samples, state, queries)
    expected = [sum(one_by_one(method, samples, query)) / 4 for query in queries]
    assert_close(name, found, np.array(expected))
    of_parts = list(part_residuals(method, samples, state, queries))
    assert not of_parts[1][0].any()
    assert not of_parts[3][1].any()
    assert of_parts[1][1].any()


@pytest.mark.parametrize("name", METHODS)
def test_blank_parts_of_samples_give_finite_residuals(name: str) -> None:
    """Such as the corners of digits, which are all of the background."""
    samples, queries = parted()
    vectors = samples.vectors.copy()
    vectors[:5, 0:5] = 0  # of a whole class
    vectors[6:9, 5:12] = 0  # of some samples
    vectors[:, 12] = 0  # of all samples
    blank = Samples(vectors, samples.edges, PARTS)
    method = method_called(name)
    found = residuals(method, blank, fit_method(method, blank), queries)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_single_part_equals_no_parts(name: str) -> None:
    samples, queries, _ = problem(sizes=SIZES)
    method = method_called(name)
    whole = residuals(method, samples, fit_method(method, samples), queries)
    single = replace(samples, parts=np.array([0, 24]))
    np.testing.assert_array_equal(residuals(method, single, fit_method(method, single), queries), whole)
    np.testing.assert_array_equal(whole, method.residuals(samples, method.fit(samples), queries))


@pytest.mark.parametrize("name", METHODS)
def test_residuals_keep_the_type_of_the_samples(name: str) -> None:
    samples, queries = parted("float32")
    method = make_method(name, {})
    found = residuals(method, samples, fit_method(method, samples), queries)
    assert (found.shape, found.dtype) == ((12, 4), np.float32)
    assert residuals(method, samples, fit_method(method, samples), queries[:0]).shape == (0, 4)


@pytest.mark.parametrize("name", ["crnr", "nn", "nsc"])
def test_the_order_of_the_parts_does_not_matter(name: str) -> None:
    method = method_called(name)
    samples, queries = parted()
    places = [np.arange(start, stop) for start, stop in pairwise(PARTS)]
    order = [2, 0, 3, 1]
    moved = np.concatenate([places[number] for number in order])
    edges = np.cumsum([0, *(len(places[number]) for number in order)])
    other = Samples(samples.vectors[:, moved], samples.edges, edges)
    found = residuals(method, other, fit_method(method, other), queries[:, moved])
    assert_close(name, found, residuals(method, samples, fit_method(method, samples), queries))


def test_the_state_has_the_arrays_of_each_part() -> None:
    """More than ten parts, whose numbers end alike."""
    edges = np.arange(0, 37, 3)
    samples, _ = parted(edges=edges)
    method = make_method("crnr", {"factor": "dense"})
    state = fit_method(method, samples)
    assert len(state) == 12 * len(method.fit(samples.part(0)))
    for number in (0, 1, 10, 11):
        expected = method.fit(samples.part(number))
        found = states_of_parts(state, 12)[number]
        assert found.keys() == expected.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)


COUNTS = (1, 2, 5, 9)


# Parts of few numbers have low-rank factors, parts of many have dense ones.
@pytest.mark.parametrize("width", [2, 30], ids=["low-rank", "dense"])
@pytest.mark.parametrize("name", METHODS)
def test_one_pass_finds_the_winners_of_the_parts_together(name: str, width: int) -> None:
    edges = np.array([0, width, 2 * width, 3 * width])
    samples, queries = parted(edges=edges, m=60)
    queries[3, :width] = 0
    queries[4, width:] = 0
    method = make_method(name, {})
    form = cheaper_form(samples.edges, width, 0.01, max(COUNTS))
    assert form == ("dense" if width == 30 else "low-rank")
    variants = method.variants(COUNTS)
    assert len(variants) == (4 if name in ("crnr", "nrc") else 1)
    winners = winners_after(method, Split(samples, queries), COUNTS)
    assert winners.shape == (len(variants), 60)
    for variant, found in zip(variants, winners, strict=True):
        expected = residuals(variant, samples, fit_method(variant, samples), queries).argmin(axis=1)
        np.testing.assert_array_equal(found, expected)


def test_batches_have_the_residuals_of_all_queries() -> None:
    samples, queries = parted(m=300)
    method = make_method("crnr", {})
    state = fit_method(method, samples)
    batches = list(residuals_in_batches(method, Split(samples, queries), state))
    assert len(batches) > 1
    whole = residuals(method, samples, state, queries)
    np.testing.assert_allclose(np.concatenate(batches), whole, rtol=0, atol=1e-12)


def test_fit_method_checks_the_memory_of_all_parts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _ = parted()
    method = make_method("crnr", {"factor": "dense"})
    needed = fit_bytes(method, samples)
    assert needed == sum(method.fit_bytes(samples.part(number)) for number in range(4))
    monkeypatch.setattr(memory, "free_bytes", lambda: needed // 2)
    with pytest.raises(DataError, match="fitting method crnr to 19 examples with vectors of length 24"):
        fit_method(method, samples)


def test_a_singular_part_is_an_error_with_a_remedy() -> None:
    samples, _ = parted("float32")
    method = make_method("crnr", {"mu": 1e-300, "lam": 0.0, "factor": "dense"})
    with pytest.raises(DataError, match=r"the matrix to invert is singular; choose less extreme parameters"):
        fit_method(method, samples)
