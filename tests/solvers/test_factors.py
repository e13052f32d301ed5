"""The two forms of the factor: which is chosen, what it costs, and how its blocks are laid out."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.arrays import Array
from crnr_cli.solvers import factors, lasso

FORMS = {"dense": factors.factorize_dense, "low-rank": factors.factorize_low_rank}


def edges_of(sizes: list[int]) -> Array:
    return np.concatenate([[0], np.cumsum(sizes)])


def samples(sizes: list[int], d: int, dtype: str = "float64") -> Array:
    X = np.random.default_rng(0).normal(0.3, 1, (d, sum(sizes)))
    return (X / np.linalg.norm(X, axis=0)).astype(dtype)


@pytest.mark.parametrize(
    ("sizes", "d", "expected", "tall"),
    [
        pytest.param([20], 10, [0, 20], [False], id="twice the dimension is not tall"),
        pytest.param([21], 10, [0, 21], [True], id="one more is"),
        pytest.param([5, 21, 5], 10, [0, 5, 26, 31], [False, True, False], id="a tall class is alone"),
        pytest.param([21, 5], 10, [0, 21, 26], [True, False], id="a tall class first"),
        pytest.param([21, 22], 10, [0, 21, 43], [True, True], id="two tall classes"),
        pytest.param([100, 28, 5], 100, [0, 128, 133], [False, False], id="128 examples are a block"),
        pytest.param([100, 27, 5], 100, [0, 132], [False], id="127 are joined with the next class"),
        pytest.param([130, 3, 2], 100, [0, 130, 135], [False, False], id="a large class is a block"),
        pytest.param([60] * 5, 100, [0, 180, 300], [False, False], id="each block counts from its own start"),
    ],
)
def test_classes_are_joined_into_blocks(
    sizes: list[int], d: int, expected: list[int], tall: list[bool]
) -> None:
    block_edges, is_tall = factors.join_classes(edges_of(sizes), d)
    assert (block_edges.tolist(), is_tall.tolist()) == (expected, tall)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.integers(1, 40))
def test_every_class_is_in_one_block_and_tall_ones_are_alone(sizes: list[int], d: int) -> None:
    edges = edges_of(sizes)
    block_edges, is_tall = factors.join_classes(edges, d)
    assert set(block_edges.tolist()) <= set(edges.tolist())
    assert (block_edges[0], block_edges[-1]) == (0, edges[-1])
    assert len(is_tall) == len(block_edges) - 1
    tall_classes = {(a, b) for a, b in pairwise(edges.tolist()) if b - a > 2 * d}
    blocks = zip(pairwise(block_edges.tolist()), is_tall.tolist(), strict=True)
    assert {block for block, tall in blocks if tall} == tall_classes


SHAPES = [
    ([3, 4, 2], 50),
    ([30, 40, 50], 8),
    ([90, 70, 60, 5], 40),
    ([200], 10),
    ([5] * 60, 20),
    ([130, 100, 60, 60, 100], 200),
]


@pytest.mark.parametrize("lam", [0.0, 0.1])
@pytest.mark.parametrize(("sizes", "d"), SHAPES)
def test_multiplications_are_those_by_the_numbers_of_the_factor(sizes: list[int], d: int, lam: float) -> None:
    """A product with a matrix takes as many multiplications as the matrix has numbers."""
    X, edges = samples(sizes, d), edges_of(sizes)
    dense, low_rank = (FORMS[form](X, edges, lam, 0.1) for form in ("dense", "low-rank"))
    first = low_rank.E.size + low_rank.W.size
    step = 2 * low_rank.E.size + low_rank.squares.size + 2 * low_rank.talls.size
    for iterations in (1, 2, 7):
        expected = {
            "dense": dense.M.size + (iterations - 1) * dense.H.size,
            "low-rank": first + (iterations - 1) * step,
        }
        for form, count in expected.items():
            assert factors.multiplications(form, edges, d, lam, iterations) == count
        assert factors.cheaper_form(edges, d, lam, iterations) == min(expected, key=expected.__getitem__)


def test_counts_of_large_galleries_do_not_overflow() -> None:
    """Squares of 3 * 10^9 samples are more than fit into 64 bits when they are added up."""
    k, d, edges = 3 * 10**9, 2 * 10**9, edges_of([3 * 10**9] * 2)
    low_rank = 2 * k * d + d * d + 2 * 2 * k * d + 2 * k * k
    assert factors.multiplications("low-rank", edges, d, 0.1, 2) == pytest.approx(low_rank)
    assert factors.multiplications("dense", edges, d, 0.1, 2) == pytest.approx(2 * k * d + 4 * k * k)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("form", "sizes", "d"),
    [
        pytest.param("dense", [40] * 10, 30, id="dense, many samples"),
        pytest.param("dense", [40] * 10, 400, id="dense"),
        pytest.param("dense", [4] * 10, 2000, id="dense, few samples"),
        pytest.param("low-rank", [40] * 30, 50, id="squares"),
        pytest.param("low-rank", [400] * 5, 50, id="talls"),
        pytest.param("low-rank", [600], 300, id="one square"),
        pytest.param("low-rank", [5] * 200, 300, id="small classes"),
        pytest.param("low-rank", [5] * 260, 1200, id="small classes, many features"),
        pytest.param("low-rank", [2000], 20, id="one tall"),
        pytest.param("low-rank", [990, 20], 500, id="a large and a small square"),
        pytest.param("low-rank", [8000, 200], 150, id="a large and a small tall"),
    ],
)
def test_factor_bytes_estimates_the_memory_of_factorizing(
    form: factors.FactorForm, sizes: list[int], d: int, dtype: str
) -> None:
    X, edges = samples(sizes, d, dtype), edges_of(sizes)
    FORMS[form](X[:, :3], np.array([0, 3]), 0.1, 0.1)  # imports do not count
    tracemalloc.start()
    try:
        FORMS[form](X, edges, 0.1, 0.1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < peak / factors.factor_bytes(form, edges, d, X.itemsize) < 1.15


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("sizes", "d"), [SHAPES[0], SHAPES[2]], ids=["few samples", "blocks of both kinds"])
def test_a_factor_is_stored_in_the_type_of_the_samples(sizes: list[int], d: int, dtype: str) -> None:
    X, edges = samples(sizes, d, dtype), edges_of(sizes)
    for factorize in FORMS.values():
        factor = factorize(X, edges, 0.1, 0.1)
        assert {array.dtype.kind for array in vars(factor).values()} <= set("fiu")  # as a gallery stores them
        assert {array.dtype for array in vars(factor).values() if array.dtype.kind == "f"} == {X.dtype}
        assert type(factors.factor_of(vars(factor))) is type(factor)
    gram = X.astype(float).T @ X.astype(float)
    by_gram = factors.factorize_gram(gram, edges, 0.1, 0.1, dtype)
    assert (by_gram.H.dtype, by_gram.M.dtype) == (X.dtype, X.dtype)
    np.testing.assert_array_equal(gram, X.astype(float).T @ X.astype(float))  # for other settings


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize(("sizes", "d"), SHAPES)
def test_a_factor_in_float32_is_computed_in_float64(sizes: list[int], d: int, lam: float) -> None:
    """Only its numbers are rounded, not what they are computed from."""
    X, edges, mu = samples(sizes, d, "float32"), edges_of(sizes), 1e-4
    for factorize in FORMS.values():
        single, double = (vars(factorize(X.astype(dtype), edges, lam, mu)) for dtype in ("f4", "f8"))
        for name, array in double.items():
            scale = np.abs(array).max(initial=1.0)
            np.testing.assert_allclose(single[name], array, rtol=0, atol=2e-7 * scale, err_msg=name)


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize(("sizes", "d"), SHAPES)
def test_a_factor_is_the_inverse_of_the_documented_matrix(sizes: list[int], d: int, lam: float) -> None:
    X, edges, mu = samples(sizes, d), edges_of(sizes), 0.7
    Q = X.T @ X + mu / 2 * np.eye(sum(sizes))
    for a, b in pairwise(edges):
        Q[a:b, a:b] += lam * X[:, a:b].T @ X[:, a:b]
    P = np.linalg.inv(Q)
    A = np.random.default_rng(1).normal(size=(sum(sizes), 3))
    Y = np.random.default_rng(2).normal(size=(d, 3))
    by_gram = factors.factorize_gram(X.T @ X, edges, lam, mu, "float64")
    np.testing.assert_allclose(by_gram.first_code(X.T @ Y), (1 + lam) * P @ X.T @ Y, atol=1e-9)
    for factorize in FORMS.values():
        factor, HA = factorize(X, edges, lam, mu), np.empty_like(A)
        factor.product(A, out=HA)
        np.testing.assert_allclose(HA, mu / 2 * P @ A, atol=1e-9)
        np.testing.assert_allclose(factor.first_code(Y), (1 + lam) * P @ X.T @ Y, atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_features_that_are_zero_in_some_or_all_samples(lam: float) -> None:
    X, edges = samples([5, 9, 30], 8), edges_of([5, 9, 30])
    X[2], X[3, :7], X[4, 20:] = 0, 0, 0
    X /= np.linalg.norm(X, axis=0)
    Q = X.T @ X + 0.35 * np.eye(44)
    for a, b in pairwise(edges):
        Q[a:b, a:b] += lam * X[:, a:b].T @ X[:, a:b]
    A = np.random.default_rng(1).normal(size=(44, 3))
    for factorize in FORMS.values():
        found = np.empty_like(A)
        factorize(X, edges, lam, 0.7).product(A, out=found)
        np.testing.assert_allclose(found, 0.35 * np.linalg.inv(Q) @ A, atol=1e-9)


def test_spans_are_concatenated_in_the_order_of_their_numbers() -> None:
    found = factors.concatenate_spans(np.array([0, 2, 3, 7]), np.array([2, 0, 2]))
    assert found.tolist() == [3, 4, 5, 6, 0, 1, 3, 4, 5, 6]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize(("sizes", "d"), [*SHAPES, ([90, 20, 70, 100, 5, 30], 30)])
def test_a_reordered_factor_is_the_factor_of_reordered_samples(
    sizes: list[int], d: int, lam: float, dtype: str
) -> None:
    X, edges = samples(sizes, d, dtype), edges_of(sizes)
    for classes in (np.arange(len(sizes))[::-1], np.arange(0, len(sizes)) // 2 * 2 % len(sizes)):
        classes = np.array(list(dict.fromkeys(classes.tolist() + list(range(len(sizes))))))
        columns = np.concatenate([np.arange(edges[number], edges[number + 1]) for number in classes])
        new_edges = edges_of([sizes[number] for number in classes])
        for factorize in FORMS.values():
            found = factors.reorder_factor(factorize(X, edges, lam, 0.1), edges, classes)
            expected = vars(factorize(X[:, columns], new_edges, lam, 0.1))
            assert found is not None
            assert vars(found).keys() == expected.keys()
            for name, array in expected.items():
                assert vars(found)[name].dtype == array.dtype, name
                if name not in ("E", "W"):
                    np.testing.assert_allclose(vars(found)[name], array, rtol=1e-5, atol=1e-6, err_msg=name)
            A = np.random.default_rng(1).normal(size=(sum(sizes), 2)).astype(dtype)
            Y = np.random.default_rng(2).normal(size=(d, 2)).astype(dtype)
            products = np.empty_like(A), np.empty_like(A)
            for one, product in zip((found, factors.factor_of(expected)), products, strict=True):
                one.product(A, out=product)
            np.testing.assert_allclose(*products, atol=2e-5)
            first = found.first_code(Y), factors.factor_of(expected).first_code(Y)
            np.testing.assert_allclose(*first, atol=2e-4)


def test_blocks_of_other_classes_cannot_be_reordered() -> None:
    """As in a gallery of another version, which joins or divides other classes."""
    sizes, d = [90, 70, 60, 5], 40
    X, edges, classes = samples(sizes, d), edges_of(sizes), np.array([1, 0, 2, 3])
    assert factors.join_classes(edges, d)[1].tolist() == [True, False, False]  # 90; 70 and 60; 5
    factor = factors.factorize_low_rank(X, edges, 0.1, 0.1)
    assert factors.reorder_factor(factor, edges, classes) is not None
    other = np.ones(3, dtype=np.uint8)
    assert factors.reorder_factor(replace(factor, block_is_tall=other), edges, classes) is None
    moved = np.array([0, 90, 160, 225])
    assert factors.reorder_factor(replace(factor, block_edges=moved), edges, classes) is None


def test_blocks_that_do_not_match_are_an_error() -> None:
    """As in a gallery made by hand."""
    sizes = [200, 30]
    factor = factors.factorize_low_rank(samples(sizes, 10), edges_of(sizes), 0.1, 0.1)
    assert len(factor.block_is_tall) == 2
    wrong = replace(factor, block_is_tall=factor.block_is_tall[:1])
    with pytest.raises(ValueError, match="shorter"):
        wrong.product(np.ones((230, 1)), out=np.ones((230, 1)))


@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_the_inverse_is_exactly_symmetric(n: int, seed: int) -> None:
    A = np.random.default_rng(seed).normal(size=(n, n + 3))
    Q = A @ A.T + 0.1 * np.eye(n)
    P = factors.inverse(Q.copy())
    np.testing.assert_allclose(P, np.linalg.inv(Q), rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(P, P.T)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_a_projection_is_its_formula(lam: float, dtype: str) -> None:
    for sizes, d in (*SHAPES, ([4, 4], 8)):
        X, edges, ridge = samples(sizes, d, dtype), edges_of(sizes), 0.05
        X64 = X.astype(float)
        Q = X64.T @ X64 + ridge * np.eye(sum(sizes))
        for a, b in pairwise(edges):
            Q[a:b, a:b] += lam * X64[:, a:b].T @ X64[:, a:b]
        found = factors.projection(X, edges, lam, ridge)
        assert found.dtype == X.dtype
        tolerance = {"rtol": 1e-8, "atol": 1e-9} if dtype == "float64" else {"rtol": 1e-5, "atol": 1e-6}
        np.testing.assert_allclose(found, np.linalg.solve(Q, X64.T), err_msg=str(sizes), **tolerance)


def test_a_projection_in_float32_is_computed_in_float64() -> None:
    for sizes, d in SHAPES:
        X, edges = samples(sizes, d, "float32"), edges_of(sizes)
        single, double = (factors.projection(X.astype(dtype), edges, 0.1, 1e-5) for dtype in ("f4", "f8"))
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-7 * np.abs(double).max())


@pytest.mark.parametrize(("n", "form"), [(7, "dense"), (8, "dense"), (9, "low-rank")])
def test_a_projection_never_needs_a_matrix_of_all_samples_by_all(
    n: int, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges = np.array([0, 2, n])
    assert factors.projection_form(edges, 8) == form
    (other,) = set(FORMS) - {form}
    monkeypatch.setattr(factors, FORMS[other].__name__, None)
    assert factors.projection(samples([2, n - 2], 8), edges, 0.1, 0.1).shape == (n, 8)


@pytest.mark.parametrize(
    ("sizes", "d", "form"), [([5, 3, 7], 24, factors.DenseFactor), ([20, 30, 25], 16, factors.LowRankFactor)]
)
def test_the_l1_solver_has_the_factor_whose_steps_are_cheaper(sizes: list[int], d: int, form: type) -> None:
    assert type(lasso.factorize(samples(sizes, d), edges_of(sizes), 0.1)) is form
