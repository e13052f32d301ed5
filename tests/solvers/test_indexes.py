"""Indexes that find nearest samples: compared with faiss's flat search, and given arrays that are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import CrnrError
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers import graph, indexes
from crnr_cli.solvers.graph import graph_without, hideable
from crnr_cli.solvers.indexes import Index, build_indexes, index_measurement
from crnr_cli.system import cores, extras

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


def label_of_nearest(asked: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    return places[0][:, 0] // 30


def made_with(
    kind: str, X: np.ndarray, count: int, labelled: indexes.LabelByNeighbors, progress: Progress = silent
) -> indexes.Arrays:
    """Return the index of vectors that are not divided into tiles."""
    (made,) = build_indexes(kind, [X], count, labelled, progress)
    return made


made_index = partial(made_with, labelled=label_of_nearest)


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
def test_indexes_find_most_of_the_exact_neighbours(kind: str) -> None:
    X, Y, arrays = made(kind)
    found, exact = Index(kind, X.T, arrays).find_nearest(Y.T, 10), flat(X, Y, 10)
    assert found.shape == (40, 10)
    assert shares(found, exact) > 0.97
    complete = [set(a) == set(b) for a, b in zip(found.tolist(), exact.tolist(), strict=True)]
    np.testing.assert_array_equal(found[complete], exact[complete])  # the nearest first
    assert sum(complete) > 30


def without(X: np.ndarray, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the other rows, and their places."""
    others = np.setdiff1d(np.arange(len(X)), hidden)
    return X[others], others


def hard(n: int = 4000, seed: int = 5) -> np.ndarray:
    """Return samples that lie anywhere, so that few lists or a short walk find too little."""
    X = np.random.default_rng(seed).normal(size=(n, 40)).astype(np.float32)
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


@each_kind
def test_measured_recall_is_for_queries_outside_the_gallery(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured on samples as such, the recall of the graph would be too high: their links lead to others.

    Without them, it is a little too low, as a graph made without them would have other links instead.
    """
    X, Y = hard(), hard(1000, seed=6)
    monkeypatch.setitem(indexes._LEAST_WIDTH, kind, 12)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0)
    arrays = made_index(kind, X.T, 10)
    of_queries = shares(Index(kind, X.T, arrays).find_nearest(Y.T, 10), flat(X, Y, 10))
    assert 0.3 < of_queries < 0.95
    assert (
        of_queries - (0.2 if kind == "hnsw" else 0.06) < index_measurement(arrays).recall < of_queries + 0.06
    )
    of_samples = shares(Index(kind, X.T, arrays).find_nearest(X[::10].T, 10), flat(X, X[::10], 10))
    assert kind == "ivf" or of_samples > of_queries + 0.06


def test_a_hidden_sample_is_never_found_and_all_others_are() -> None:
    X, _, arrays = made("hnsw")
    hidden = hideable(arrays)[::7]
    rest, places = without(X, hidden)
    index = Index("hnsw", X.T, graph_without(arrays, hidden) | {"effort": np.array([512])})
    found = index.find_nearest(X[hidden].T, 10)
    assert not np.isin(found, hidden).any()
    assert shares(found, places[flat(rest, X[hidden], 10)]) > 0.97


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_hiding_removes_links_to_the_hidden_alone(data: st.DataObject) -> None:
    """Compared with a loop over all samples and their links."""
    _, _, arrays = made("hnsw")
    hidden = np.array(data.draw(st.lists(st.sampled_from(hideable(arrays).tolist()), unique=True)), dtype=int)
    left = graph_without(arrays, hidden)
    gone, links, start = set(hidden.tolist()), arrays["links"].tolist(), 0
    for levels in arrays["levels"].tolist():
        kept = [link for link in links[start : start + 32] if link not in gone]
        links[start : start + 32] = kept + [-1] * (32 - len(kept))
        start += 16 * (levels + 1)
    assert left["links"].tolist() == links
    assert all(left[key] is arrays[key] for key in arrays if key != "links")


@each_kind
def test_the_search_width_grows_until_enough_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = hard(1500)
    monkeypatch.setitem(indexes._LEAST_WIDTH, kind, 1)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0.3)
    low = made_index(kind, X.T, 10)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0.9)
    high = made_index(kind, X.T, 10)
    assert low["effort"] < high["effort"]
    assert 0.3 <= index_measurement(low).recall < 0.9 <= index_measurement(high).recall
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0.95)
    agreeing = made_index(kind, X.T, 10)
    assert low["effort"] < agreeing["effort"]
    assert index_measurement(agreeing).agreement >= 0.95
    search = Index(kind, X.T, high).search
    monkeypatch.setattr(type(search), "size", 8)
    monkeypatch.setattr(indexes, "_LEAST_GAIN", 0)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 1.1)  # which nothing reaches
    assert made_index(kind, X.T, 10)["effort"] == 8


WIDTHS = {"hnsw": [64, 80, 100, 125, 128], "ivf": [8, 10, 13, 16]}


@each_kind
def test_the_search_width_does_not_grow_in_vain(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If labels differ however many neighbours are found, looking for more of them only takes time."""
    X, _, _ = made(kind)
    turns, widths = [], []
    original = indexes._Trial.measure

    def noted(trial: indexes._Trial, search_width: int) -> indexes.Measured:
        widths.append(search_width)
        return original(trial, search_width)

    monkeypatch.setattr(indexes._Trial, "measure", noted)

    def never_the_same(asked: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        turns.append(len(asked))
        return np.full(len(asked), len(turns))

    arrays = made_with(kind, X.T, 10, never_the_same)
    assert index_measurement(arrays).agreement == 0
    assert widths == WIDTHS[kind]
    assert arrays["effort"] == indexes._LEAST_WIDTH[kind]


@each_kind
def test_blank_samples_are_not_asked_for_their_neighbours(kind: str) -> None:
    X, _ = clusters()
    X[np.arange(len(X)) % 3 > 0] = 0
    X[:, 0] = 0  # a sample with a zero is not blank
    asked: list[int] = []

    def noting(probes: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        asked.extend(probes.tolist())
        return label_of_nearest(probes, places)

    made_with(kind, X.T, 10, noting)
    assert asked
    assert X[asked].any(axis=1).all()


def test_blank_tiles_do_not_count_as_found(monkeypatch: pytest.MonkeyPatch) -> None:
    X = hard()
    monkeypatch.setitem(indexes._LEAST_WIDTH, "ivf", 1)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0)
    alone = made_index("ivf", X.T, 10)
    blank = np.zeros((7, len(X)), np.float32)
    for tiles in ([X.T, blank], [X.T, blank, X.T]):
        for arrays in build_indexes("ivf", tiles, 10, label_of_nearest):
            np.testing.assert_array_equal(arrays["measured"], alone["measured"])
    assert index_measurement(alone).recall < 0.5
    assert index_measurement(made_index("ivf", blank, 10)) == indexes.Measured(1.0, 1.0)


@each_kind
def test_indexes_are_the_same_for_any_number_of_threads(kind: str) -> None:
    X, _, arrays = made(kind)
    for threads in (1, 3):
        cores.set_product_threads(threads)
        try:
            again = made_index(kind, X.T, 10)
        finally:
            cores.set_product_threads(None)
        assert again.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(again[key], array)


@each_kind
def test_a_query_finds_the_same_alone_and_in_any_batch(kind: str) -> None:
    X, Y, arrays = made(kind)
    index = Index(kind, X.T, arrays)
    together = index.find_nearest(Y.T, 10)
    for i in range(len(Y)):
        np.testing.assert_array_equal(index.find_nearest(Y[i : i + 1].T, 10)[0], together[i])
    np.testing.assert_array_equal(index.find_nearest(Y[::-1].T, 10)[::-1], together)


@each_kind
@pytest.mark.parametrize("n", [1, 2, 5, 17, 130])
@pytest.mark.parametrize("count", [1, 4, 200])
def test_indexes_of_few_samples_find_the_nearest(kind: str, n: int, count: int) -> None:
    X, Y = clusters()
    X = X[:: len(X) // n][:n]
    found = Index(kind, X.T, made_index(kind, X.T, count)).find_nearest(Y.T, count)
    np.testing.assert_array_equal(found[:, 0], flat(X, Y, 1)[:, 0])
    assert found.shape == (40, min(n, count))
    assert all(len(set(row)) == len(row) for row in found.tolist())


@each_kind
def test_copies_of_samples_count_as_found(kind: str) -> None:
    X = np.repeat(clusters(300)[0], 30, axis=0)
    arrays = made_index(kind, X.T, 5)
    assert index_measurement(arrays).recall >= 0.97
    found = Index(kind, X.T, arrays).find_nearest(X[::30].T, 5)
    assert np.mean(found // 30 == np.arange(300)[:, np.newaxis]) > 0.97


@each_kind
def test_samples_of_float64_and_in_another_order_in_memory(kind: str) -> None:
    X, Y = clusters(dtype="float64")
    wide = np.asfortranarray(np.hstack([X, X])[:, : X.shape[1]])
    found = Index(kind, wide.T, made_index(kind, wide.T, 10)).find_nearest(Y.T, 10)
    exact = np.argsort(-(Y @ X.T), axis=1)[:, :10]
    assert shares(found, exact) > 0.97
    np.testing.assert_array_equal(found[:, 0], exact[:, 0])


def test_vectors_are_not_copied_by_the_graph() -> None:
    X, _, arrays = made("hnsw")
    X = X.copy()
    X.flags.writeable = False  # as if they were mapped from a file
    search = Index("hnsw", X.T, arrays).search
    assert np.shares_memory(search._X, X)  # type: ignore[attr-defined]
    assert search._storage.codes.data().__int__() == X.ctypes.data  # type: ignore[attr-defined]


def test_a_query_that_the_graph_cannot_reach_enough_samples_for() -> None:
    """Without links, only the first sample is found; all samples are searched instead."""
    X, Y, arrays = made("hnsw")
    found = Index("hnsw", X.T, arrays | {"links": np.full_like(arrays["links"], -1)}).find_nearest(Y.T, 10)
    np.testing.assert_array_equal(found, flat(X, Y, 10))


def test_queries_that_are_not_numbers_do_not_reach_faiss() -> None:
    X, Y, arrays = made("hnsw")
    strange = Y.copy()
    strange[3], strange[5, 2], strange[7] = np.nan, np.inf, 1e30
    with np.errstate(all="ignore"):
        found = Index("hnsw", X.T, arrays).find_nearest(strange.T, 10)
    healthy = np.setdiff1d(np.arange(40), [3, 5, 7])
    np.testing.assert_array_equal(found[healthy], Index("hnsw", X.T, arrays).find_nearest(Y[healthy].T, 10))
    assert found.min() >= 0
    assert found.max() < len(X)
    assert all(len(set(row)) == 10 for row in found.tolist())


def test_what_is_not_found_is_padded() -> None:
    """One value that is not a number spoils a query, and no other query."""
    X, Y, arrays = made("hnsw")
    search = Index("hnsw", X.T, arrays).search
    expected = search.find_candidates(Y, 12, 30)
    strange = Y.copy()
    strange[5, 2], strange[7, 0] = np.inf, np.nan
    found = search.find_candidates(strange, 12, 30)
    assert found[[5, 7]].tolist() == [[-1] * 12] * 2
    healthy = np.setdiff1d(np.arange(40), [5, 7])
    np.testing.assert_array_equal(found[healthy], expected[healthy])
    assert expected.min() >= 0
    lists = Index("ivf", X.T, made("ivf")[2]).search
    few = lists.find_candidates(Y, 600, 1)
    assert few.min() == -1
    lengths = np.count_nonzero(few >= 0, axis=1)
    assert all(row[:length].min() >= 0 for row, length in zip(few, lengths, strict=True))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e20, -3.0])
def test_vectors_that_cannot_be_compared(value: float) -> None:
    X, _, arrays = made("hnsw")
    X = X.copy()
    X[1234, 5] = value
    with pytest.raises(ValueError, match=r"^the vectors are not of unit length$"):
        Index("hnsw", X.T, arrays)


def test_a_link_to_a_sample_that_is_not_on_its_level() -> None:
    X, _, arrays = made("hnsw")
    levels, links = arrays["levels"], arrays["links"].copy()
    high = int(np.flatnonzero(levels > 1)[0])
    slot = 32 * high + 16 * int((levels[:high].astype(int) - 1).sum()) + 32  # the first on the second level
    assert levels[links[slot]] > 1
    links[slot] = int(np.flatnonzero(levels == 1)[0])
    with pytest.raises(ValueError, match=r"^a link of the index leads to an example on another level$"):
        Index("hnsw", X.T, arrays | {"links": links})


def test_a_search_that_does_not_begin_at_the_top() -> None:
    X, _, arrays = made("hnsw")
    low = int(np.flatnonzero(arrays["levels"] == 1)[0])
    for entry in (low, -1, len(X)):
        with pytest.raises(ValueError, match=r"^the index does not begin at the highest level$"):
            Index("hnsw", X.T, arrays | {"graph": np.array([16, entry])})


@each_kind
@settings(max_examples=60, deadline=None)
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
    found = index.find_nearest(Y[:5].T, 10)
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


CENTERS = "the centres of the index do not match the examples"
LISTS = "the lists of the index do not match the examples"
OTHER_ARRAYS = "the index has arrays of another type or size"
ON_ONE_LIST = "an example is not on exactly one list of the index"
SEARCH_WIDTH = "the search width of the index is out of range"
SHARES = "the measured quality of the index is not given as shares"


def with_first(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array.reshape(-1)[0] = value
    return array


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("centers", lambda array: array.astype("f8"), CENTERS),
        ("centers", lambda array: array.reshape(-1), CENTERS),
        ("centers", lambda array: array[:, :-1], CENTERS),
        ("centers", lambda array: array[:0], CENTERS),
        ("centers", lambda array: with_first(array, np.nan), "a centre of the index is not a number"),
        ("centers", lambda array: with_first(array, np.inf), "a centre of the index is not a number"),
        ("edges", lambda array: array.astype("i4"), OTHER_ARRAYS),
        ("edges", lambda array: array[:-1], OTHER_ARRAYS),
        ("members", lambda array: array.astype("i8"), OTHER_ARRAYS),
        ("edges", lambda array: with_first(array, 1), LISTS),
        ("edges", lambda array: with_first(array, -1), LISTS),
        ("edges", lambda array: np.append(array[:-1], 2999), LISTS),
        ("edges", lambda array: np.concatenate([array[:1], array[2:0:-1], array[3:]]), LISTS),
        ("members", lambda array: array[:-1], LISTS),
        ("members", lambda array: array[:, np.newaxis], LISTS),
        ("members", lambda array: with_first(array, -1), ON_ONE_LIST),
        ("members", lambda array: with_first(array, array[1]), ON_ONE_LIST),
        ("members", lambda array: with_first(array, 3000), ON_ONE_LIST),
        ("effort", lambda array: array[:0], SEARCH_WIDTH),
        ("effort", lambda array: array.astype("i4"), SEARCH_WIDTH),
        ("effort", lambda array: with_first(array, 0), SEARCH_WIDTH),
        ("effort", lambda array: with_first(array, 76), SEARCH_WIDTH),
        ("measured", lambda array: array[:1], SHARES),
        ("measured", lambda array: array.astype("f4"), SHARES),
        ("measured", lambda array: with_first(array, -0.1), SHARES),
        ("measured", lambda array: with_first(array, 1.1), SHARES),
        ("measured", lambda array: with_first(array, np.nan), SHARES),
    ],
)
def test_lists_that_do_not_match_the_samples(
    name: str, damage: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    X, _, arrays = made("ivf")
    assert len(arrays["centers"]) == 75  # 3000 samples, and 40 for every list
    with pytest.raises(ValueError, match=f"^{message}$"):
        Index("ivf", X.T, arrays | {name: damage(arrays[name])})


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("links", lambda array: array.astype("i8"), OTHER_ARRAYS),
        ("links", lambda array: array[:, np.newaxis], OTHER_ARRAYS),
        ("levels", lambda array: array.astype("i4"), OTHER_ARRAYS),
        ("graph", lambda array: np.append(array, 0), OTHER_ARRAYS),
        ("graph", lambda array: with_first(array, 15), "the index has 15 links per example"),
        ("levels", lambda array: array[:-1], "the levels of the index do not match the examples"),
        ("levels", lambda array: with_first(array, 0), "the levels of the index do not match the examples"),
        ("levels", lambda array: with_first(array, 255), "the levels of the index do not match the examples"),
        ("links", lambda array: array[:-1], "the links of the index do not match the examples"),
        ("links", lambda array: with_first(array, -2), "the links of the index do not match the examples"),
        ("links", lambda array: with_first(array, 3000), "the links of the index do not match the examples"),
    ],
)
def test_a_graph_that_does_not_match_the_samples(
    name: str, damage: Callable[[np.ndarray], np.ndarray], message: str
) -> None:
    X, _, arrays = made("hnsw")
    with pytest.raises(ValueError, match=f"^{message}$"):
        Index("hnsw", X.T, arrays | {name: damage(arrays[name])})


def test_values_up_to_two_can_be_compared() -> None:
    X, _, arrays = made("hnsw")
    X = X.copy()
    X[1234, 5], X[1235, 5] = 2, -2
    Index("hnsw", X.T, arrays)


def test_search_width_of_an_index_may_be_the_largest() -> None:
    for kind, most in (("ivf", 32), ("hnsw", 4096)):
        X, Y, arrays = made(kind)
        assert Index(kind, X.T, arrays).search.size == most
        found = Index(kind, X.T, arrays | {"effort": np.array([most])}).find_nearest(Y.T, 10)
        assert shares(found, flat(X, Y, 10)) > 0.97


def test_lists_of_many_samples_are_searched_up_to_a_32nd() -> None:
    X, lists = np.eye(4, dtype=np.float32), 1600
    arrays = {
        "centers": np.zeros((lists, 4), np.float32),
        "edges": np.append(np.zeros(lists, np.int64), 4),
        "members": np.arange(4, dtype=np.int32),
    }
    assert indexes.Lists(X, arrays).size == 50
    few = arrays | {"centers": arrays["centers"][:20], "edges": arrays["edges"][-21:]}
    assert indexes.Lists(X, few).size == 20


@each_kind
def test_index_bytes_are_those_of_what_building_holds_at_the_same_time(kind: str) -> None:
    X, _, arrays = made(kind)
    n, d = X.shape
    if kind == "hnsw":  # a byte for every value, and the links in faiss and in NumPy
        expected = n * d + 2 * arrays["links"].nbytes
    else:  # the samples of k-means in float32, two sets of centres, and four numbers for every sample
        expected = 4 * d * 40 * len(arrays["centers"]) + 2 * arrays["centers"].nbytes + 4 * 8 * n
    assert indexes.index_bytes(kind, n, d) == pytest.approx(expected, rel=0.03)
    assert indexes.list_bytes(40 * 10_000, 8) == 4 * 8 * 42 * 2530 + 32 * 400_000  # 4 sqrt(n) lists


def test_a_measurement_is_described_in_percent() -> None:
    described = indexes.Measured(0.98765, 0.5).describe()
    assert described == "98.8% of the nearest examples and 50.0% of the labels"


def test_lists_are_searched_in_batches_with_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, arrays = made("ivf")
    lists = indexes.Lists(X, arrays)
    together = lists.find_candidates(Y, 20, 8)
    sizes = []
    search = indexes.Lists._search

    def noting(self: indexes.Lists, Y: np.ndarray, chosen: np.ndarray, found: np.ndarray) -> None:
        sizes.append((len(Y), int(np.diff(arrays["edges"])[chosen].sum())))
        search(self, Y, chosen, found)

    monkeypatch.setattr(indexes.Lists, "_search", noting)
    for products in (1, 1500):
        sizes.clear()
        monkeypatch.setattr(indexes, "_PRODUCTS", products)
        np.testing.assert_array_equal(lists.find_candidates(Y, 20, 8), together)
        assert sum(count for count, _ in sizes) == len(Y)
        assert all(count == 1 or of_batch <= products for count, of_batch in sizes)
    assert 2 < len(sizes) < len(Y) / 2  # as many as fit


def test_candidates_are_ranked_in_batches_with_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, _ = made("ivf")
    candidates = np.argsort(-(Y @ X.T), axis=1)[:, :20][:, ::-1].copy()
    candidates[3, 5:] = -1
    expected = [
        sorted(row[row >= 0], key=lambda place: (-float(X[place].astype("f8") @ y.astype("f8")), place))[:5]
        for row, y in zip(candidates, Y, strict=True)
    ]
    for gathered in (1, 3 * 20 * X.shape[1], 2**23):
        monkeypatch.setattr(indexes, "_GATHERED", gathered)
        np.testing.assert_array_equal(indexes._rank_candidates(X, Y, candidates, 5), expected)


def test_hiding_in_batches_gives_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, arrays = made("hnsw")
    hidden = hideable(arrays)[::3]
    together = graph_without(arrays, hidden)["links"]
    monkeypatch.setattr(graph, "_AT_ONCE", 32 * 7)
    np.testing.assert_array_equal(graph_without(arrays, hidden)["links"], together)


def test_vectors_are_checked_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _, arrays = made("hnsw")
    monkeypatch.setattr(graph, "_AT_ONCE", 100 * X.shape[1])
    for row in (0, 99, 100, 2999):
        strange = X.copy()
        strange[row, 0] = 3
        with pytest.raises(ValueError, match="unit length"):
            Index("hnsw", strange.T, arrays)


def test_the_graph_looks_at_more_candidates_for_more_samples() -> None:
    """The docstring's figures: 64 for few, 200 for 100,000, and never more than 256."""
    found = [graph._ef_construction(n) for n in (1, 3000, 10_000, 100_000, 200_000, 10**9)]
    assert found == [64, 64, 93, 200, 251, 256]


def test_a_level_has_a_sixteenth_of_the_samples_below_it() -> None:
    levels = graph._draw_levels(200_000, 3)
    assert levels.dtype == np.uint8
    counts = [np.count_nonzero(levels >= level) for level in (1, 2, 3, 4)]
    assert counts == [200_000, pytest.approx(12_500, rel=0.03), pytest.approx(781, rel=0.1), 0]


def test_equally_near_columns_are_found_in_their_order() -> None:
    X = np.repeat(np.eye(4, dtype=np.float32), 40, axis=0)
    index = Index("ivf", X.T, made_index("ivf", X.T, 3))
    found = index.find_nearest(np.eye(4, dtype=np.float32), 30)
    np.testing.assert_array_equal(found, 40 * np.arange(4)[:, np.newaxis] + np.arange(30))


def test_an_index_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y, arrays = made("hnsw")
    _, _, lists = made("ivf")
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    for kind, use in (
        ("hnsw", lambda: Index("hnsw", X.T, arrays)),
        ("ivf", lambda: made_index("ivf", X.T, 10)),
    ):
        with pytest.raises(CrnrError) as missing:
            use()
        assert str(missing.value) == extras.describe_missing("faiss", f"--index {kind}", "faiss")
    assert len(Index("ivf", X.T, lists).find_nearest(Y.T, 10)) == 40  # which NumPy searches


def test_progress_is_reported_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[tuple[int, int]]] = {}

    def note(step: str, done: int, total: int) -> None:
        seen.setdefault(step, []).append((done, total))

    X, _ = clusters()
    monkeypatch.setattr(indexes, "_LISTED_AT_ONCE", 1000)
    for kind, tiles in product(KINDS, ([X.T], [X.T, X.T])):
        seen.clear()
        build_indexes(kind, tiles, 10, label_of_nearest, note)
        assert list(seen) == ["indexing", "measuring the index"]
        for reports in seen.values():
            done = [number for number, _ in reports]
            assert done == sorted(done)
            assert reports[0][0] == 0
            assert reports[-1][0] == reports[-1][1]
        assert {total for _, total in seen["indexing"]} == {len(X) * len(tiles)}
        # Ten rounds of k-means, and a share for putting the samples on lists.
        assert kind == "hnsw" or len({done for done, _ in seen["indexing"]}) > 12 * len(tiles)


def test_progress_of_the_graph_counts_samples_with_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def turns(work: Callable[[], None]) -> Iterator[int]:
        yield 1  # before the links exist
        work()
        yield 0  # the first turn begins before the work
        yield 1
        yield 2

    X, _, _ = made("hnsw")
    for rows in (X, X[:5]):  # of a few samples, some begin with a link to sample 0
        seen: list[tuple[str, int, int]] = []
        plain = graph.build_graph(rows, silent)
        with monkeypatch.context() as patch:
            patch.setattr(graph, "run_with_ticks", turns)
            again = graph.build_graph(rows, lambda *report, seen=seen: seen.append(report))
        assert seen == 2 * [("indexing", len(rows), len(rows))]
        np.testing.assert_array_equal(again["links"], plain["links"])


def test_the_entry_of_a_graph_cannot_be_hidden() -> None:
    few = graph.build_graph(clusters()[0][:5], silent)
    assert few["levels"].tolist() == [1] * 5
    assert hideable(few).tolist() == sorted({0, 1, 2, 3, 4} - {int(few["graph"][1])})
    assert {key: array.dtype.str for key, array in few.items()} == {
        "levels": "|u1",
        "links": "<i4",
        "graph": "<i8",
    }


def test_links_of_the_first_and_the_last_sample_are_hidden_too() -> None:
    _, _, arrays = made("hnsw")
    edges = np.concatenate([[0], np.cumsum(16 * (arrays["levels"].astype(int) + 1))])
    for sample in (0, len(arrays["levels"]) - 1):
        place = slice(edges[sample], edges[sample] + 32)
        hidden = np.intersect1d(arrays["links"][place], hideable(arrays))
        assert len(hidden) > 5
        assert not np.isin(graph_without(arrays, hidden)["links"][place], hidden).any()


def test_a_level_above_all_levels_is_refused() -> None:
    X, _, arrays = made("hnsw")
    most = faiss.IndexHNSWFlat(X.shape[1], 16).hnsw.cum_nneighbor_per_level.size()
    with pytest.raises(ValueError, match=r"^the levels of the index do not match the examples$"):
        Index("hnsw", X.T, arrays | {"levels": with_first(arrays["levels"], most)})


@pytest.mark.parametrize("width", [1, 2, 8])
@pytest.mark.parametrize("count", [5, 40, 3000])
def test_candidates_are_the_nearest_members_of_the_nearest_lists(width: int, count: int) -> None:
    X, Y, arrays = made("ivf")
    X64, Y64, edges = X.astype(float), Y.astype(float), arrays["edges"]
    found = indexes.Lists(X, arrays).find_candidates(Y, count, width)
    assert (found.shape, found.dtype) == ((40, count), np.int64)
    for row, y in zip(found, Y64, strict=True):
        lists = np.argsort(-(arrays["centers"].astype(float) @ y))[:width]
        members = np.concatenate([arrays["members"][edges[k] : edges[k + 1]] for k in lists])
        nearest = members[np.argsort(-(X64[members] @ y))][:count]
        assert sorted(row[row >= 0].tolist()) == sorted(nearest.tolist())
        assert (row[len(nearest) :] == -1).all()


@pytest.mark.parametrize("width", [1, 2, 30])
@pytest.mark.parametrize("count", [5, 900])
def test_candidates_of_many_long_lists_are_the_nearest(width: int, count: int) -> None:
    """So many that NumPy does not sort all of them where the smallest are wanted."""
    rng = np.random.default_rng(0)
    X, Y, centers = (rng.normal(size=(n, 8)).astype(np.float32) for n in (60_000, 20, 600))
    list_of = (X @ centers.T).argmax(axis=1)
    edges = np.concatenate([[0], np.cumsum(np.bincount(list_of, minlength=600))])
    members = np.argsort(list_of, kind="stable").astype(np.int32)
    arrays = {"centers": centers, "edges": edges, "members": members}
    found = indexes.Lists(X, arrays).find_candidates(Y, count, width)
    for row, y in zip(found, Y, strict=True):
        lists = np.argsort(-(centers.astype(float) @ y.astype(float)))[:width]
        places = np.concatenate([members[edges[k] : edges[k + 1]] for k in lists])
        nearest = places[np.argsort(-(X[places] @ y))][:count]
        assert sorted(row[row >= 0].tolist()) == sorted(nearest.tolist())


def test_the_measured_recall_leaves_blank_tiles_of_probes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X = hard()
    X[:, 0] = 0  # a sample with a zero is not blank
    half = X.copy()
    half[np.random.default_rng(0).random(len(X)) < 0.5] = 0
    monkeypatch.setitem(indexes._LEAST_WIDTH, "ivf", 1)
    monkeypatch.setattr(indexes, "WANTED_RECALL", 0)
    monkeypatch.setattr(indexes, "WANTED_AGREEMENT", 0)
    asked: list[int] = []

    def noting(probes: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
        asked.extend(probes.tolist())
        return np.zeros(len(probes))

    tiles = [X, half]
    made = build_indexes("ivf", [tile.T for tile in tiles], 10, noting)
    probes = np.unique(asked)
    assert len(probes) == 4000 // 20
    shown = np.setdiff1d(np.arange(len(X)), probes)
    hits = []
    for tile, arrays in zip(tiles, made, strict=True):
        asking = probes[tile[probes].any(axis=1)]
        found = Index("ivf", tile.T, arrays).find_nearest(tile[asking].T, 10 + 10, 1)
        exact = shown[flat(tile[shown], tile[asking], 10)]
        for ours, best in zip(found.tolist(), exact.tolist(), strict=True):
            kept = [place for place in ours if place not in set(probes.tolist())][:10]
            hits.append(len(set(kept) & set(best)) / 10)
    assert index_measurement(made[0]).recall == pytest.approx(np.mean(hits), abs=0.01)
    assert np.mean(hits) < 0.5
