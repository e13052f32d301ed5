"""Indexes that find nearest samples: compared with faiss's flat search, and given arrays that are damaged."""

from __future__ import annotations

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import CrnrError
from crnr_cli.solvers import Index, indexes, made_index, recall_of
from crnr_cli.system import cores, optional

KINDS = ["hnsw", "ivf"]
each_kind = pytest.mark.parametrize("kind", KINDS)


def clusters(
    n: int = 3000, d: int = 24, seed: int = 0, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Unit samples around centres, and queries around the same ones."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n // 30, d))
    rows = centers[np.sort(np.arange(n) % len(centers))] + 0.7 * rng.normal(size=(n, d))
    queries = centers[rng.integers(0, len(centers), 40)] + 0.7 * rng.normal(size=(40, d))
    X, Y = ((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(dtype) for x in (rows, queries))
    return X, Y


def flat(X: np.ndarray, Y: np.ndarray, count: int) -> np.ndarray:
    index = faiss.IndexFlatIP(X.shape[1])
    index.add(X.astype(np.float32))
    found: np.ndarray = index.search(Y.astype(np.float32), count)[1]
    return found


_made: dict[str, tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]] = {}


def made(kind: str) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Made once for all tests, which must not change the arrays."""
    if kind not in _made:
        X, Y = clusters()
        _made[kind] = X, Y, made_index(kind, X.T, 10)
    return _made[kind]


def shares(found: np.ndarray, exact: np.ndarray) -> float:
    return float(
        np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)])
    )


@each_kind
def test_it_finds_what_a_flat_search_finds(kind: str) -> None:
    X, Y, arrays = made(kind)
    found, exact = Index(kind, X.T, arrays).nearest(Y.T, 10), flat(X, Y, 10)
    assert found.shape == (40, 10)
    assert shares(found, exact) > 0.97
    complete = [set(a) == set(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    np.testing.assert_array_equal(found[complete], exact[complete])  # the nearest first
    assert sum(complete) > 30


@each_kind
def test_the_recall_is_that_of_samples_without_themselves(kind: str) -> None:
    X, _, arrays = made(kind)
    asked = np.linspace(0, len(X) - 1, 1000).astype(int)
    found, exact = Index(kind, X.T, arrays).nearest(X[asked].T, 11), flat(X, X[asked], 11)
    assert (found[:, 0] == asked).all()
    assert (exact[:, 0] == asked).all()
    assert recall_of(arrays) == pytest.approx(shares(found[:, 1:], exact[:, 1:]), abs=1e-9)
    assert recall_of(arrays) >= 0.99


@each_kind
def test_the_effort_grows_until_the_recall_is_reached(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of samples that lie anywhere, few lists or a short walk find too little."""
    X = np.random.default_rng(5).normal(size=(1500, 40)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    monkeypatch.setitem(indexes._LEAST_EFFORT, kind, 1)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0.3)
    low = made_index(kind, X.T, 10)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0.9)
    high = made_index(kind, X.T, 10)
    assert low["effort"] < high["effort"]
    assert 0.3 <= recall_of(low) < recall_of(high)
    search = Index(kind, X.T, high).search
    monkeypatch.setattr(type(search), "size", 8)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 1.1)  # which nothing reaches
    assert made_index(kind, X.T, 10)["effort"] == 8


@each_kind
def test_it_is_the_same_for_any_number_of_threads(kind: str) -> None:
    X, _, arrays = made(kind)
    for threads in (1, 3):
        cores.products_have(threads)
        try:
            again = made_index(kind, X.T, 10)
        finally:
            cores.products_have(None)
        assert again.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(again[key], array)


@each_kind
def test_a_query_finds_the_same_alone_and_in_any_batch(kind: str) -> None:
    X, Y, arrays = made(kind)
    index = Index(kind, X.T, arrays)
    together = index.nearest(Y.T, 10)
    for i in range(len(Y)):
        np.testing.assert_array_equal(index.nearest(Y[i : i + 1].T, 10)[0], together[i])
    np.testing.assert_array_equal(index.nearest(Y[::-1].T, 10)[::-1], together)


@each_kind
@pytest.mark.parametrize("n", [1, 2, 5, 17, 130])
@pytest.mark.parametrize("count", [1, 4, 200])
def test_few_samples(kind: str, n: int, count: int) -> None:
    X, Y = clusters()
    X = X[:: len(X) // n][:n]
    found = Index(kind, X.T, made_index(kind, X.T, count)).nearest(Y.T, count)
    np.testing.assert_array_equal(found[:, 0], flat(X, Y, 1)[:, 0])
    assert found.shape == (40, min(n, count))
    assert all(len(set(row)) == len(row) for row in found.tolist())


@each_kind
def test_copies_of_samples_count_as_found(kind: str) -> None:
    X = np.repeat(clusters(300)[0], 30, axis=0)
    arrays = made_index(kind, X.T, 5)
    assert recall_of(arrays) >= 0.99
    found = Index(kind, X.T, arrays).nearest(X[::30].T, 5)
    assert np.mean(found // 30 == np.arange(300)[:, np.newaxis]) > 0.97


@each_kind
def test_samples_of_float64_and_in_another_order_in_memory(kind: str) -> None:
    X, Y = clusters(dtype="float64")
    wide = np.asfortranarray(np.hstack([X, X])[:, : X.shape[1]])
    found = Index(kind, wide.T, made_index(kind, wide.T, 10)).nearest(Y.T, 10)
    exact = np.argsort(-(Y @ X.T), axis=1)[:, :10]
    assert shares(found, exact) > 0.97
    np.testing.assert_array_equal(found[:, 0], exact[:, 0])


def test_vectors_are_not_copied_by_the_graph() -> None:
    X, _, arrays = made("hnsw")
    X = X.copy()
    X.flags.writeable = False  # as if they were mapped from a file
    graph = Index("hnsw", X.T, arrays).search
    assert np.shares_memory(graph._X, X)  # type: ignore[attr-defined]
    assert graph._storage.codes.data().__int__() == X.ctypes.data  # type: ignore[attr-defined]


def test_a_query_that_the_graph_cannot_reach_enough_samples_for() -> None:
    """Without links, only the first sample is found; all samples are searched instead."""
    X, Y, arrays = made("hnsw")
    found = Index("hnsw", X.T, arrays | {"links": np.full_like(arrays["links"], -1)}).nearest(Y.T, 10)
    np.testing.assert_array_equal(found, flat(X, Y, 10))


def test_queries_that_are_not_numbers_do_not_reach_faiss() -> None:
    X, Y, arrays = made("hnsw")
    strange = Y.copy()
    strange[3], strange[5, 2], strange[7] = np.nan, np.inf, 1e30
    with np.errstate(all="ignore"):
        found = Index("hnsw", X.T, arrays).nearest(strange.T, 10)
    healthy = np.setdiff1d(np.arange(40), [3, 5, 7])
    np.testing.assert_array_equal(found[healthy], Index("hnsw", X.T, arrays).nearest(Y[healthy].T, 10))
    assert found.min() >= 0
    assert found.max() < len(X)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20, -3.0])
def test_vectors_that_cannot_be_compared(value: float) -> None:
    X, _, arrays = made("hnsw")
    X = X.copy()
    X[1234, 5] = value
    with pytest.raises(ValueError, match="vectors are not of unit length"):
        Index("hnsw", X.T, arrays)


def test_a_link_to_a_sample_that_is_not_on_its_level() -> None:
    X, _, arrays = made("hnsw")
    levels, links = arrays["levels"], arrays["links"].copy()
    high = int(np.flatnonzero(levels > 1)[0])
    slot = 32 * high + 16 * int((levels[:high].astype(int) - 1).sum()) + 32  # the first on the second level
    assert levels[links[slot]] > 1
    links[slot] = int(np.flatnonzero(levels == 1)[0])
    with pytest.raises(ValueError, match="leads to a sample that is not on its level"):
        Index("hnsw", X.T, arrays | {"links": links})


def test_a_search_that_does_not_begin_at_the_top() -> None:
    X, _, arrays = made("hnsw")
    low = int(np.flatnonzero(arrays["levels"] == 1)[0])
    for entry in (low, -1, len(X)):
        with pytest.raises(ValueError, match="does not begin at its highest level"):
            Index("hnsw", X.T, arrays | {"graph": np.array([16, entry])})


@each_kind
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damaged_arrays_are_refused_or_harmless(kind: str, data: st.DataObject) -> None:
    X, Y, arrays = made(kind)
    damaged = dict(arrays)
    for name in data.draw(st.lists(st.sampled_from(sorted(arrays)), min_size=1, max_size=2, unique=True)):
        damaged[name] = data.draw(st.sampled_from(DAMAGE))(arrays[name].copy(), data.draw)
    try:
        index = Index(kind, X.T, damaged)
    except ValueError:
        return
    found = index.nearest(Y[:5].T, 10)
    assert found.min() >= 0
    assert found.max() < len(X)


def _other_numbers(array, draw):  # type: ignore[no-untyped-def]
    info = (np.iinfo if array.dtype.kind in "iu" else np.finfo)(array.dtype)
    values = [info.min, -2, -1, 0, 1, 2, 3, 16, len(array) - 1, len(array), 3000, info.max]
    for place in draw(st.lists(st.integers(0, array.size - 1), min_size=1, max_size=4)):
        value = draw(st.sampled_from([value for value in values if info.min <= value <= info.max]))
        array.reshape(-1)[place] = value
    return array


DAMAGE = [
    _other_numbers,
    lambda array, draw: array[:-1],
    lambda array, draw: np.concatenate([array, array]),
    lambda array, draw: array[:0],
    lambda array, draw: array.astype(draw(st.sampled_from(["f4", "f8", "i4", "i8", "u1", "u4"]))),
    lambda array, draw: array[np.newaxis],
    lambda array, draw: array[::-1].copy(),
    lambda array, draw: np.roll(array, draw(st.integers(1, 50))),
    lambda array, draw: np.full_like(array, draw(st.integers(0, 100))),
]


def test_an_index_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, arrays = made("hnsw")
    _, _, lists = made("ivf")
    monkeypatch.setattr(optional, "find_spec", lambda package: None)
    with pytest.raises(CrnrError, match=r"^the index hnsw needs faiss: pip install 'crnr-cli\[faiss\]'$"):
        Index("hnsw", X.T, arrays)
    with pytest.raises(CrnrError, match="needs faiss"):
        made_index("ivf", X.T, 10)
    assert len(Index("ivf", X.T, lists).nearest(Y.T, 10)) == 40  # which NumPy searches


def test_progress_is_reported_and_ends() -> None:
    seen: dict[str, list[tuple[int, int]]] = {}
    X, _ = clusters()
    for kind in KINDS:
        seen.clear()
        made_index(kind, X.T, 10, lambda step, done, total: seen.setdefault(step, []).append((done, total)))
        assert list(seen) == ["indexing", "measuring recall"]
        for reports in seen.values():
            done = [number for number, _ in reports]
            assert done == sorted(done)
            assert reports[0][0] == 0
            assert reports[-1][0] == reports[-1][1]
