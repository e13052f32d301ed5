"""What all methods share: parameters and their limits, samples, batches, memory, and variants in one pass."""

from __future__ import annotations

import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from crnr_cli.arrays import Array, to_dense
from crnr_cli.errors import CrnrError, DataError, NotConverged, UsageError
from crnr_cli.jobs.tune import NEIGHBORS
from crnr_cli.methods import (
    METHODS,
    NEWEST_VERSION,
    Samples,
    Split,
    batch_size,
    fit_method,
    make_method,
    parse_parameter,
)
from crnr_cli.methods.base import (
    RefittedSamples,
    are_blank,
    reorder_state,
    residuals,
    residuals_in_batches,
    winners_after,
)
from crnr_cli.methods.folds import Fold
from crnr_cli.solvers.factors import factor_bytes
from crnr_cli.solvers.neighbors import find_nearest
from crnr_cli.system import memory
from crnr_cli.system.extras import describe_missing
from helpers.latch import Latch
from helpers.method_checks import SIZES, problem

# As the help of build gives them.
DEFAULTS = {
    "crnr": {"lam": 0.01, "mu": 0.1, "iterations": 5, "tol": 0.0, "factor": "auto"},
    "nrc": {"mu": 0.1, "iterations": 5, "tol": 0.0, "factor": "auto"},
    "crc": {"lam": 0.001},
    "nsc": {},
    "src": {"lam": 0.001, "tol": 1e-6, "iterations": 2000},
    "croc": {"lam": 0.001, "weight": 0.1},
    "procrc": {"lam": 0.001, "gamma": 0.001},
    "nn": {},
    "svm": {"c": 1.0},
    "softmax": {"c": 100.0},
}


def test_methods_and_defaults_match_the_help() -> None:
    everywhere = {name: method().parameters for name, method in METHODS.items()}
    local = [name for name, given in everywhere.items() if given.pop("neighbors", None) == 0]
    assert [name for name, given in everywhere.items() if given.pop("index", None) == "exact"] == local
    assert local == ["crnr", "nrc", "crc", "src"]
    assert everywhere == DEFAULTS
    assert [name for name, method in METHODS.items() if method.signed] == ["svm", "softmax"]
    tunable = {name: method.tunable for name, method in METHODS.items() if method.tunable}
    assert tunable == {
        "crnr": ("lam", "mu", "iterations", "neighbors"),
        "nrc": ("mu", "iterations", "neighbors"),
    }


ABOVE_0 = [("crnr", "mu"), ("crc", "lam"), ("src", "lam"), ("src", "tol"), ("croc", "lam"), ("procrc", "lam")]
ABOVE_0 += [("nrc", "mu")]
FROM_0 = [("crnr", "lam"), ("crnr", "tol"), ("nrc", "tol"), ("croc", "weight"), ("procrc", "gamma")]


@pytest.mark.parametrize(("name", "parameter"), ABOVE_0 + FROM_0)
def test_limits_of_numbers(name: str, parameter: str) -> None:
    rule = "above 0" if (name, parameter) in ABOVE_0 else "0 or more"
    refused: dict[object, str] = {
        -1e-9: f"{rule}, not -1e-09",
        **({0.0: "above 0, not 0"} if rule == "above 0" else {}),
        1.1e12: "at most 1e+12, not 1.1e+12",
        -np.inf: "a finite number, not -inf",
        np.nan: "a finite number, not nan",
        10**400: f"a finite number, not {10**400}",
        "1": "a finite number, not '1'",
        None: "a finite number, not None",
    }
    for value, words in refused.items():
        with pytest.raises(UsageError) as error:
            make_method(name, {parameter: value})
        assert str(error.value) == f"method {name}: {parameter} must be {words}"
    for value in [1e-300, 1e12, 0.25] + ([0.0] if rule == "0 or more" else []):
        assert asdict(make_method(name, {parameter: value}))[parameter] == value  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_limits_of_c(name: str) -> None:
    for value in (1e-12, 3.0, 1e12):
        assert asdict(make_method(name, {"c": value})) == {"c": value}  # type: ignore[call-overload]
    for value in (0.0, -1.0):
        with pytest.raises(UsageError, match=rf"^method {name}: c must be above 0, not {value:g}$"):
            make_method(name, {"c": value})
    for value, words in ((0.9e-12, "at least 1e-12, not 9e-13"), (1.1e12, "at most 1e+12, not 1.1e+12")):
        with pytest.raises(UsageError) as error:
            make_method(name, {"c": value})
        assert str(error.value) == f"method {name}: c must be {words}"


@pytest.mark.parametrize("name", ["crnr", "nrc", "src"])
def test_limits_of_iterations(name: str) -> None:
    for count in (1, 10**6, np.int64(7)):
        assert asdict(make_method(name, {"iterations": count}))["iterations"] == count  # type: ignore[call-overload]
    for count in (0, -1, 10**6 + 1, 1.5, 2.0):
        with pytest.raises(UsageError) as error:
            make_method(name, {"iterations": count})
        rule = f"iterations must be a whole number from 1 to 1000000, not {count}"
        assert str(error.value) == f"method {name}: {rule}"


@pytest.mark.parametrize("factor", ["auto", "dense", "low-rank"])
def test_a_factor_is_chosen_by_name_or_cost(factor: str) -> None:
    for d, cheaper in ((24, "H"), (3, "E")):
        samples, _, _ = problem(d=d)
        method = make_method("crnr", {"factor": factor})
        (first, *_) = method.fit(samples)
        assert first == {"auto": cheaper, "dense": "H", "low-rank": "E"}[factor]
        form = "dense" if first == "H" else "low-rank"
        assert method.fit_bytes(samples) == factor_bytes(form, samples.edges, d, 8)


def test_samples_and_splits_are_equal_to_themselves_alone() -> None:
    """Not by their arrays, whose comparison has no single truth value; so they can be keys, too."""

    def make() -> list[object]:
        samples, queries, truth = problem()
        refitted = RefittedSamples(samples.vectors, samples.edges, refit=lambda kept: samples.vectors)
        return [samples, refitted, Split(samples, queries), Fold(samples, queries, truth)]

    for one, other in zip(make(), make(), strict=True):
        assert one == one
        assert one != other
        assert {one: 1}[one] == 1


def test_the_newest_version_covers_every_method_and_neighbors() -> None:
    assert NEWEST_VERSION == 4  # neighbors came last
    assert all(method.since_version <= NEWEST_VERSION for method in METHODS.values())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"neighbors": -1}, "neighbors must be a whole number from 0 (all examples) to 2000, not -1"),
        ({"neighbors": 2001}, "neighbors must be a whole number from 0 (all examples) to 2000, not 2001"),
        ({"neighbors": 1.5}, "neighbors must be a whole number from 0 (all examples) to 2000, not 1.5"),
        ({"index": "flat"}, "index must be exact or ivf or hnsw, not 'flat'"),
        ({"index": 1}, "index must be exact or ivf or hnsw, not 1"),
        ({"mu": 0}, "mu must be above 0, not 0"),
        ({"lam": -1}, "lam must be 0 or more, not -1"),
        ({"lam": 1.5e12}, "lam must be at most 1e+12, not 1.5e+12"),
        ({"lam": 10**400}, f"lam must be a finite number, not {10**400}"),
        ({"lam": "1"}, "lam must be a finite number, not '1'"),
        ({"iterations": 0}, "iterations must be a whole number from 1 to 1000000, not 0"),
        ({"iterations": 1_000_001}, "iterations must be a whole number from 1 to 1000000, not 1000001"),
        ({"iterations": 2.0}, "iterations must be a whole number from 1 to 1000000, not 2.0"),
    ],
)
def test_parameters_out_of_range_are_refused_with_their_range(
    parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        make_method("crnr", parameters)
    assert str(refused.value) == f"method crnr: {message}"


def test_parameters_may_be_at_the_ends_of_their_ranges() -> None:
    for parameters in (
        {"neighbors": 0},
        {"neighbors": 2000},
        {"lam": 0},
        {"lam": 1e12},
        {"iterations": 1},
        {"iterations": 10**6},
    ):
        stored = make_method("crnr", parameters).parameters
        assert stored.items() >= parameters.items()


def test_make_method_names_unknown_parameters() -> None:
    with pytest.raises(
        UsageError, match=r"^method crnr: factor must be auto or dense or low-rank, not 'sparse'$"
    ):
        make_method("crnr", {"factor": "sparse"})
    with pytest.raises(UsageError, match=r"^method: 'knn' is not one of crnr, nrc, crc, nsc, src, croc, "):
        make_method("knn", {})
    with pytest.raises(UsageError, match=r"^--mu does not apply to --method croc; it belongs to crnr, nrc$"):
        make_method("croc", {"mu": 1.0})
    with pytest.raises(UsageError, match=r"^--mu does not apply to --method nn; it belongs to crnr, nrc$"):
        make_method("nn", {"mu": 1.0})
    with pytest.raises(
        UsageError, match=r"^--crc-weight does not apply to --method procrc; it belongs to croc$"
    ):
        make_method("procrc", {"weight": 1.0})
    with pytest.raises(
        UsageError, match=r"^method croc has no parameter mi; its parameters are lam, weight$"
    ):
        make_method("croc", {"mi": 1.0})
    with pytest.raises(UsageError, match=r"^method nn has no parameter mi; it has none$"):
        make_method("nn", {"mi": 1.0})
    with pytest.raises(
        UsageError,
        match=r"^--set croc\.mu: method croc has no parameter mu; its parameters are lam, weight$",
    ):
        parse_parameter("croc", "mu", "1")
    with pytest.raises(UsageError, match=r"^--set src\.lam: 'x' is not a number$"):
        parse_parameter("src", "lam", "x")
    with pytest.raises(UsageError, match=r"^--set crnr\.iterations: '1\.5' is not a whole number$"):
        parse_parameter("crnr", "iterations", "1.5")
    with pytest.raises(UsageError, match=r"^--set nn.mu: method nn has no parameter mu; it has none$"):
        parse_parameter("nn", "mu", "x")


def test_samples_have_to_be_sorted_by_class() -> None:
    vectors = np.eye(5)
    samples = Samples.of(vectors, np.array([0, 0, 1, 2, 2]))
    assert (samples.n_classes, samples.edges.tolist()) == (3, [0, 2, 3, 5])
    assert samples.class_index.tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(ValueError, match=r"^samples must be sorted by class$"):
        Samples.of(vectors, np.array([0, 1, 0, 2, 2]))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {}) for name in METHODS if name not in ("svm", "softmax")),
        ("crnr", {"factor": "dense"}),
        ("crnr", {"factor": "low-rank"}),
        ("crnr", {"neighbors": 5}),
    ],
)
@pytest.mark.parametrize("parts", [None, [0, 3, 8]])
@pytest.mark.parametrize("order", [(3, 1, 0, 2), (1, 2, 3, 0)])
def test_reordered_states_are_states_of_reordered_classes(
    name: str, parameters: dict[str, object], parts: list[int] | None, order: tuple[int, ...]
) -> None:
    """With a class so large that the low-rank factor has a block for it alone, and small classes in one."""
    samples, queries, _ = problem((5, 3, 40, 4), d=8)
    edges, classes = None if parts is None else np.array(parts), np.array(order)
    if edges is not None:
        for start, stop in pairwise(parts or ()):
            for vectors in (samples.vectors, queries):
                vectors[:, start:stop] /= np.linalg.norm(vectors[:, start:stop], axis=1, keepdims=True)
    samples = Samples(samples.vectors, samples.edges, edges)
    rows = np.concatenate([np.flatnonzero(samples.class_index == number) for number in order])
    sizes = np.diff(samples.edges)[classes]
    moved = Samples.of(samples.vectors[rows], np.repeat(np.arange(4), sizes), edges)
    method = make_method(name, parameters)
    state = reorder_state(method, samples, fit_method(method, samples), classes)
    assert state is not None
    fresh = fit_method(method, moved)
    assert {key: array.shape for key, array in state.items()} == {
        key: array.shape for key, array in fresh.items()
    }
    found, expected = (to_dense(residuals(method, moved, one, queries)) for one in (state, fresh))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if name == "src" else 1e-9)


def test_states_that_cannot_be_reordered_are_fitted_again() -> None:
    """An index, and a factor whose blocks are not those of today."""
    samples, _, _ = problem((5, 3, 40, 4), d=8)
    classes = np.array([3, 1, 0, 2])
    search = make_method("crnr", {"neighbors": 5})
    assert reorder_state(search, samples, {"index_effort": np.array([1])}, classes) is None
    method = make_method("crnr", {"factor": "low-rank"})
    state = fit_method(method, samples)
    assert state["block_edges"].tolist() == [0, 8, 48, 52]
    other = state | {"block_edges": np.array([0, 7, 48, 52])}
    assert reorder_state(method, samples, other, classes) is None
    same = np.arange(4)
    assert reorder_state(method, samples, other, same) is other


def test_samples_of_a_class_are_where_its_span_is() -> None:
    class_index = np.array([0, 0, 1, 2, 2])
    samples = Samples.of(np.eye(5), class_index)
    for k in range(3):
        assert np.arange(5)[samples.class_span(k)].tolist() == np.flatnonzero(class_index == k).tolist()
    assert samples.n_parts == 1


def test_what_is_made_from_samples_is_no_part_of_them() -> None:
    vectors, edges = np.eye(5), np.array([0, 2, 5])
    samples = Samples(vectors, edges)
    samples.prepared.compute_once(vectors, lambda: "made")
    assert "prepared" not in repr(samples)
    assert Samples(vectors, edges).prepared.compute_once(vectors, lambda: "made again") == "made again"


def test_only_neighbours_need_few_of_the_samples() -> None:
    assert make_method("crnr", {"neighbors": 1}).needs_few_samples is True
    assert [make_method(name, {}).needs_few_samples for name in METHODS] == [False] * len(METHODS)


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 256), (16_384, 256), (16_385, 224), (20_000, 192), (32_768, 128), (10**7, 128)]
)
def test_a_batch_takes_at_most_about_16_megabytes(n: int, expected: int) -> None:
    """Of float32, in multiples of 32 queries, from 128 to 256."""
    assert batch_size(n) == expected
    assert expected == 128 or 4 * n * expected <= 2**24


def test_residuals_of_a_split_come_batch_by_batch() -> None:
    samples, queries, _ = problem(m=600)
    method = make_method("crnr", {})
    state = method.fit(samples)
    parts = list(residuals_in_batches(method, Split(samples, queries), state))
    assert [len(part) for part in parts] == [256, 256, 88]
    np.testing.assert_allclose(np.concatenate(parts), method.residuals(samples, state, queries), atol=1e-12)


def test_products_of_a_split_match_numpy() -> None:
    samples, queries, _ = problem(dtype="float32")
    split = Split(samples, queries)
    assert (split.gram.dtype, split.cross.dtype) == (np.float64, np.float32)
    X, Y = samples.vectors.astype(float), queries.astype(float)
    np.testing.assert_allclose(split.gram, X @ X.T, rtol=1e-14)
    np.testing.assert_allclose(split.cross, X @ Y.T, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("crnr", "nrc")])
def test_a_method_without_iterations_to_vary_has_one_variant(name: str) -> None:
    samples, queries, truths = problem(spread=0.15)
    method = make_method(name, {})
    assert method.variants((1, 5)) == [method]
    np.testing.assert_array_equal(winners_after(method, Split(samples, queries), (1, 5)), [truths])


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("d", [24, 4], ids=["dense", "low-rank"])
def test_one_pass_finds_the_winners_after_every_number_of_iterations(d: int, lam: float) -> None:
    samples, queries, _ = problem(d=d, m=70, spread=1.0)
    for counts in ((1, 4, 9), (6, 2), (3,)):
        method = make_method("crnr", {"lam": lam, "mu": 0.3})
        expected = [
            one.residuals(samples, one.fit(samples), queries).argmin(axis=1)
            for one in (make_method("crnr", {"lam": lam, "mu": 0.3, "iterations": count}) for count in counts)
        ]
        winners = winners_after(method, Split(samples, queries), counts)
        assert winners.dtype == np.int64
        np.testing.assert_array_equal(winners, expected)
        assert [variant.iterations for variant in method.variants(counts)] == list(counts)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "parameters"), [("nrc", {}), ("nrc", {"neighbors": 6}), ("nn", {})])
def test_one_pass_is_the_same_however_many_queries_are_coded_at_once(
    name: str, parameters: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, queries, _ = problem(spread=1.0)
    method = make_method(name, parameters)
    expected = to_dense(method.residuals(samples, method.fit(samples), queries)).argmin(axis=1)
    assert len(set(expected.tolist())) > 1
    in_fives = property(lambda split: (slice(start, start + 5) for start in range(0, 12, 5)))
    monkeypatch.setattr(Split, "batches", in_fives)
    np.testing.assert_array_equal(winners_after(method, Split(samples, queries), (5,)), [expected])


@pytest.mark.parametrize(("n", "expected"), [(10, 500), (40_000, 209), (129_055, 65), (10**6, 64)])
def test_at_most_8_million_codes_are_held_at_once(n: int, expected: int) -> None:
    """2^23, but of 64 queries in any case."""
    samples = Samples(np.broadcast_to(np.float32(1), (n, 1)), np.array([0, n]))
    places = np.arange(500)
    batches = [places[batch] for batch in Split(samples, np.ones((500, 1))).batches]
    np.testing.assert_array_equal(np.concatenate(batches), places)
    assert {len(batch) for batch in batches[:-1]} <= {expected}
    assert len(batches[0]) == expected
    assert expected == 64 or expected * n <= 2**23


def test_all_numbers_of_neighbours_that_tune_tries_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, queries, _ = problem(sizes=(150, 100))
    searches: list[int] = []

    def search(X: Array, Y: Array, count: int) -> Array:
        searches.append(count)
        return find_nearest(X, Y, count)

    monkeypatch.setattr("crnr_cli.methods.base.find_nearest", search)
    split = Split(samples, queries)
    ranked = np.argsort(-(queries @ samples.vectors.T), axis=1)
    for count in sorted(NEIGHBORS, reverse=True):
        np.testing.assert_array_equal(split.find_nearest(count), ranked[:, :count])
    assert len(searches) == 1
    np.testing.assert_array_equal(split.find_nearest(240), ranked[:, :240])


def test_threads_wait_for_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, queries, _ = problem(sizes=(150, 100))
    searches: list[int] = []
    all_asked = Latch(4)

    def search(X: Array, Y: Array, count: int) -> Array:
        searches.append(count)
        all_asked.wait()
        return find_nearest(X, Y, count)

    def ask(count: int) -> Array:
        all_asked.count_down()
        return split.find_nearest(count)

    monkeypatch.setattr("crnr_cli.methods.base.find_nearest", search)
    split = Split(samples, queries)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(ask, (50, 100, 50, 100)))
    assert len(searches) == 1
    np.testing.assert_array_equal(found[0], find_nearest(samples.vectors.T, queries.T, 50))


SHAPES = [([10] * 10, 400), ([40] * 30, 50), ([400] * 5, 50)]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("nn", "svm", "softmax")])
@pytest.mark.parametrize(("sizes", "d"), SHAPES)
def test_fit_bytes_estimates_the_memory_of_fitting(name: str, sizes: list[int], d: int) -> None:
    """Within a factor of six, below, and of a third, above: it is compared with the memory of the machine."""
    samples, _, _ = problem(sizes=tuple(sizes), d=d)
    method = make_method(name, {})
    method.fit(problem()[0])  # imports do not count
    tracemalloc.start()
    try:
        method.fit(samples)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 1 / 6 < peak / method.fit_bytes(samples) < 4 / 3


def test_crc_of_a_class_without_weight_is_a_number() -> None:
    """Its residual cannot be divided by the norm of its weights, which is 0, but by 3 % of all weights."""
    vectors = np.eye(4)[[0, 0, 1, 2]]
    samples = Samples.of(vectors, np.array([0, 0, 1, 2]))
    method = make_method("crc", {})
    residuals = method.residuals(samples, method.fit(samples), np.eye(4)[:1])
    assert np.isfinite(residuals).all()
    c = np.full(2, 1 / 2.001)  # the solution of (G + 0.001 I) c = 1, where G has ones only
    whole = np.linalg.norm(c)
    best = (1 - c.sum()) / whole
    np.testing.assert_allclose(residuals, [[best, best + 1 / (0.03 * whole), best + 1 / (0.03 * whole)]])


def test_codes_have_a_row_per_query() -> None:
    samples, queries, _ = problem()
    for name in ("crnr", "nrc", "crc", "procrc", "src"):
        method = make_method(name, {})
        codes = method.codes(samples, method.fit(samples), queries)  # type: ignore[attr-defined]
        assert codes.shape == (len(queries), sum(SIZES))


def test_fit_method_checks_memory_before_fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _, _ = problem()
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(memory, "require_memory", lambda *arguments: asked.append(arguments))
    fit_method(make_method("crc", {}), samples)
    expected = make_method("crc", {}).fit_bytes(samples)
    words = (
        "fitting method crc to 19 examples with vectors of length 24",
        "use --neighbors, --pca or fewer examples",
    )
    assert asked == [(expected, *words)]


def test_a_matrix_without_an_inverse_is_reported_with_the_parameters() -> None:
    """Two equal samples, and a ridge that is lost in rounding."""
    samples = Samples.of(np.eye(3)[[0, 0, 1]], np.array([0, 0, 1]))
    with pytest.raises(DataError) as error:
        fit_method(make_method("procrc", {"lam": 1e-300, "gamma": 0.0}), samples)
    assert str(error.value) == (
        "method procrc cannot be fitted to these examples with lam 1e-300, gamma 0.0: "
        "the matrix to invert is singular; choose less extreme parameters"
    )


@pytest.mark.parametrize("gamma", [0.3, 1.0])
@pytest.mark.parametrize("sizes", [(4,), (4, 6)], ids=["one class", "two classes"])
def test_procrc_of_few_classes_is_its_formula(sizes: tuple[int, ...], gamma: float) -> None:
    samples, queries, _ = problem(sizes=sizes)
    X, lam = samples.vectors.T, 0.1
    Q = X.T @ X + lam * np.eye(X.shape[1])
    for a, b in pairwise(samples.edges):
        others = X.copy()
        others[:, a:b] = 0
        Q += gamma * others.T @ others
    method = make_method("procrc", {"lam": lam, "gamma": gamma})
    codes = method.codes(samples, method.fit(samples), queries)  # type: ignore[attr-defined]
    np.testing.assert_allclose(codes, np.linalg.solve(Q, X.T @ queries.T).T, atol=1e-10)


@pytest.mark.parametrize(("neighbors", "file"), [(0, "base.py"), (9, "by_neighbors.py")])
def test_src_reports_how_many_queries_did_not_converge(neighbors: int, file: str) -> None:
    samples, queries, _ = problem()
    method = make_method("src", {"iterations": 1, "neighbors": neighbors})
    with pytest.warns(NotConverged) as warned:
        method.residuals(samples, method.fit(samples), queries)
    (warning,) = (each.message for each in warned)
    advice = "method src stopped after 1 iteration; build with a higher --iterations or --tol"
    assert (warning.count, warning.advice) == (len(queries), advice)
    assert Path(warned[0].filename).name == file


@pytest.mark.usefixtures("no_scikit_learn")
@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_training_needs_scikit_learn(name: str) -> None:
    samples, _, _ = problem()
    words = describe_missing("baselines", f"method {name}", "sklearn")
    with pytest.raises(CrnrError) as error:
        make_method(name, {}).fit(samples)
    assert str(error.value) == make_method(name, {}).why_unavailable() == words


def test_training_that_does_not_converge_is_an_error_even_where_warnings_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples, _, _ = problem()
    few = LogisticRegression(C=100.0, max_iter=1)
    monkeypatch.setattr(METHODS["softmax"], "make_classifier", lambda _: few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            DataError, match=r"^method softmax did not converge at c = 100; choose a smaller --c$"
        ):
            make_method("softmax", {}).fit(samples)


def test_training_on_float32_is_computed_in_float64() -> None:
    samples, _, _ = problem(dtype="float32")
    theirs = LogisticRegression(C=100.0, max_iter=2000)
    theirs.fit(samples.vectors.astype(np.float64), samples.class_index)
    state = make_method("softmax", {}).fit(samples)
    np.testing.assert_array_equal(state["weights"], theirs.coef_.astype(np.float32))
    np.testing.assert_array_equal(state["offsets"], theirs.intercept_.astype(np.float32))


@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_trained_states_are_reordered_by_class(name: str) -> None:
    samples, queries, _ = problem((5, 3, 9, 4), d=8)
    method = make_method(name, {})
    state, classes = fit_method(method, samples), np.array([3, 1, 0, 2])
    reordered = reorder_state(method, samples, state, classes)
    assert reordered is not None
    before, after = (to_dense(residuals(method, samples, one, queries)) for one in (state, reordered))
    np.testing.assert_array_equal(after, before[:, classes])


def test_a_query_is_blank_where_all_its_features_are_zero() -> None:
    assert are_blank(np.array([[0, 1.0], [0, 0], [1, 1], [-1, 0]])).tolist() == [False, True, False, False]
