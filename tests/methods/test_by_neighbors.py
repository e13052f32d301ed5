"""Coding by the nearest samples: the same as a gallery of these samples alone, for every query."""

from __future__ import annotations

import numpy as np
import pytest

from crnr_cli.arrays import FewClasses, to_dense
from crnr_cli.errors import UsageError
from crnr_cli.methods import CodingMethod, Samples, make_method
from crnr_cli.methods.base import Split
from crnr_cli.methods.by_neighbors import LocalMethod, Neighbors, residual_without_neighbor

LOCAL = ["crnr", "nrc", "crc", "src"]
each_method = pytest.mark.parametrize("name", LOCAL)


def problem(seed: int = 0, dtype: str = "float64") -> tuple[Samples, np.ndarray]:
    rng = np.random.default_rng(seed)
    class_index = np.sort(np.arange(60) % 7)
    centers = rng.normal(size=(7, 12))
    rows = centers[class_index] + 0.8 * rng.normal(size=(60, 12))
    queries = centers[rng.integers(0, 7, 9)] + 0.8 * rng.normal(size=(9, 12))
    unit = [(x / np.linalg.norm(x, axis=1, keepdims=True)).astype(dtype) for x in (rows, queries)]
    return Samples.of(unit[0], class_index), unit[1]


def residuals(name: str, samples: Samples, queries: np.ndarray, **parameters: object) -> np.ndarray:
    method = make_method(name, parameters)
    return to_dense(method.residuals(samples, method.fit(samples), queries))


@each_method
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_with_all_samples_as_neighbors_it_is_the_whole(name: str, dtype: str) -> None:
    samples, queries = problem(dtype=dtype)
    tight = {"tol": 1e-13, "iterations": 20_000} if name == "src" else {}
    whole = residuals(name, samples, queries, **tight)
    local = residuals(name, samples, queries, neighbors=60, **tight)
    if (name, dtype) == ("src", "float32"):
        # Which resolves the gap to 1e-5, and so codes to the root of that over the smallest curvature.
        np.testing.assert_array_equal(local.argmin(axis=1), whole.argmin(axis=1))
        return
    atol = {"float32": 2e-5, "float64": 1e-6 if name == "src" else 1e-12}[dtype]
    np.testing.assert_allclose(local, whole, rtol=1e-3 if dtype == "float32" else 1e-9, atol=atol)


@each_method
def test_with_few_neighbours_it_is_a_gallery_of_these_alone(name: str) -> None:
    samples, queries = problem()
    tight = {"tol": 1e-13, "iterations": 20_000} if name == "src" else {}
    found = residuals(name, samples, queries, neighbors=11, **tight)
    for query, row in zip(queries, found, strict=True):
        near = np.sort(np.argsort(-(samples.vectors @ query), kind="stable")[:11])
        classes, of_class = np.unique(samples.class_index[near], return_inverse=True)
        few = Samples.of(samples.vectors[near], of_class)
        expected = residuals(name, few, query[np.newaxis], **tight)[0]
        np.testing.assert_allclose(row[classes], expected, rtol=1e-5 if name == "src" else 1e-9)
        others = np.setdiff1d(np.arange(7), classes)
        assert len(others) > 0
        # All of the query is left over; crc divides that by the weight of the class, which is none.
        np.testing.assert_allclose(row[others], 1 / np.finfo(float).eps if name == "crc" else 1)


@each_method
def test_codes_are_zero_except_for_the_neighbours(name: str) -> None:
    samples, queries = problem()
    method = make_method(name, {"neighbors": 8})
    assert isinstance(method, CodingMethod)
    assert method.fit(samples) == {}
    assert method.fit_bytes(samples) == 0
    codes = method.codes(samples, {}, queries)
    for query, row in zip(queries, codes, strict=True):
        near = np.argsort(-(samples.vectors @ query))[:8]
        assert set(np.flatnonzero(row)) <= set(near.tolist())
    np.testing.assert_allclose(
        method.residuals_of(samples, codes, queries),
        residuals(name, samples, queries, neighbors=8),
        rtol=1e-7,
    )


@each_method
def test_a_query_has_the_same_residuals_alone_and_in_any_batch(name: str) -> None:
    samples, queries = problem(dtype="float32")
    together = residuals(name, samples, queries, neighbors=10)
    alone = [residuals(name, samples, queries[i : i + 1], neighbors=10)[0] for i in range(len(queries))]
    np.testing.assert_array_equal(together, alone)


@each_method
def test_only_classes_with_a_neighbour_are_returned(name: str) -> None:
    samples, queries = problem(dtype="float32")
    method = make_method(name, {"neighbors": 4})
    few = method.residuals(samples, {}, queries)
    assert isinstance(few, FewClasses)
    assert few.values.shape == (len(queries), 4)
    for row, query in zip(few.classes, queries, strict=True):
        near = np.argsort(-(samples.vectors @ query), kind="stable")[:4]
        assert set(samples.class_index[near]) <= set(row.tolist())
    whole = make_method(name, {})
    assert isinstance(whole.residuals(samples, whole.fit(samples), queries), np.ndarray)


@each_method
def test_a_class_without_a_neighbour_leaves_all_of_the_query(name: str) -> None:
    method = make_method(name, {})
    assert isinstance(method, LocalMethod)
    assert residual_without_neighbor(method) == (2.0**52 if name == "crc" else 1)


@each_method
def test_it_is_another_method_in_all_but_the_search(name: str) -> None:
    whole, local = make_method(name, {}), make_method(name, {"neighbors": 8, "index": "ivf"})
    assert isinstance(whole, LocalMethod)
    assert local == Neighbors(method=whole, neighbors=8, index="ivf")
    assert (local.name, local.signed, local.tunable) == (name, whole.signed, whole.tunable)
    assert list(local.parameters) == list(whole.parameters)
    assert local.parameters == whole.parameters | {"neighbors": 8, "index": "ivf"}
    assert whole.parameters == whole.to_stored() | {"neighbors": 0, "index": "exact"}
    assert list(local.to_stored()) == ["neighbors", "index", *whole.to_stored()]
    assert list(make_method(name, {"neighbors": 8}).to_stored()) == ["neighbors", *whole.to_stored()]
    assert (whole.since_version, local.since_version) == (1, 4)
    other = local.with_parameters(**dict.fromkeys({"lam", "mu"} & whole.to_stored().keys(), 0.5))
    changed = {key: 0.5 for key in local.parameters if key in ("lam", "mu")}
    assert other == make_method(name, local.parameters | changed)


def test_none_are_all_samples() -> None:
    method = make_method("crnr", {"neighbors": 0, "index": "exact"})
    assert method == make_method("crnr", {})
    assert isinstance(method, LocalMethod)
    with pytest.raises(ValueError, match="0 neighbors are all samples"):
        Neighbors(method=method, neighbors=0)
    with pytest.raises(UsageError, match="--index hnsw needs --neighbors K"):
        make_method("crnr", {"index": "hnsw"})


@each_method
@pytest.mark.parametrize("neighbors", [0, 9])
def test_all_numbers_of_iterations_in_one_pass(name: str, neighbors: int) -> None:
    samples, queries = problem()
    method = make_method(name, {"neighbors": neighbors})
    (found,) = method.residuals_after(Split(samples, queries), [1, 3, 8])
    for variant, of_variant in zip(method.variants([1, 3, 8]), found, strict=True):
        expected = to_dense(variant.residuals(samples, variant.fit(samples), queries))
        np.testing.assert_allclose(of_variant, expected, rtol=1e-7)


@each_method
@pytest.mark.parametrize("neighbors", [-1, 2001, 1.5, "many", None])
def test_senseless_numbers_of_neighbours(name: str, neighbors: object) -> None:
    with pytest.raises(UsageError, match=f"{name}: neighbors must be a whole number from 0"):
        make_method(name, {"neighbors": neighbors})


def test_batches_are_for_a_search_and_not_for_codes_by_all_samples() -> None:
    rows = np.broadcast_to(np.float32(0.1), (1_000_000, 100))
    few = Samples(rows, np.arange(0, 1_000_001, 1000))
    single = Samples(rows, np.arange(1_000_001))
    whole, local = make_method("crnr", {}), make_method("crnr", {"neighbors": 50})
    assert local.batch_size(few) == 256
    assert local.batch_size(single) == 256
    assert local.batch_bytes(few, 256) < 2**27
    assert local.batch_bytes(single, 256) < 2**27
    parts = Samples(rows, single.edges, np.array([0, 50, 100]))
    assert local.batch_size(parts) == 64
    assert local.batch_bytes(parts, 64) > 64 * 1_000_000 * 8  # residuals of all classes
    assert whole.batch_size(few) == 128
    assert whole.batch_bytes(few, 128) == 5 * 128 * 1_000_000 * 4


def test_it_is_the_same_in_any_batch_however_many_samples_are_gathered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, queries = problem(dtype="float32")
    expected = residuals("crnr", samples, queries, neighbors=10)
    monkeypatch.setattr("crnr_cli.methods.by_neighbors._GATHERED", 2 * 10 * 12)
    np.testing.assert_array_equal(residuals("crnr", samples, queries, neighbors=10), expected)


def test_a_large_gallery_is_tried_with_a_few_samples_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, queries = problem()
    monkeypatch.setattr("crnr_cli.methods.by_neighbors._TRIED", 20)
    assert make_method("crnr", {}).smoke_test_samples(samples).vectors.shape == (60, 12)
    method = make_method("crnr", {"neighbors": 30})
    few = method.smoke_test_samples(samples)
    assert few.vectors.shape == (20, 12)
    found = to_dense(method.residuals(few, {}, queries))
    assert found.shape == (9, 7)
    np.testing.assert_array_equal(found[:, 3:], 1)  # classes that have none of them
    assert (found[:, 0] != 1).all()
