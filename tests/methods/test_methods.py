"""Every method against the list of checks, and against its formula or another program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.methods import METHODS, Samples, make_method, parse_parameter
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.decision import margins
from crnr_cli.system.extras import describe_missing
from helpers.method_checks import CHECKS, SIZES, problem, unit
from helpers.paths import DATA
from helpers.runner import Runner

# Fewer samples than dimensions, and more.
WIDTHS = pytest.mark.parametrize("d", [24, 9], ids=["n<d", "n>d"])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_every_method_passes_every_check(check: Callable[[str], None], name: str) -> None:
    check(name)


def test_method_checks_are_at_least_fifteen() -> None:
    assert len(CHECKS) >= 15


def run(name: str, samples: Samples, queries: Array, **parameters: object) -> Array:
    method = make_method(name, parameters)
    return method.residuals(samples, method.fit(samples), queries)


def columns(samples: Samples) -> tuple[Array, list[slice]]:
    """X with one column per sample, and the columns of each class."""
    return samples.vectors.T, [slice(a, b) for a, b in pairwise(samples.edges)]


@WIDTHS
@pytest.mark.parametrize("lam", [1e-3, 0.5])
def test_crc_is_its_formula(d: int, lam: float) -> None:
    samples, queries, _ = problem(d=d)
    X, classes = columns(samples)
    expected = []
    for y in queries:
        c = np.linalg.solve(X.T @ X + lam * np.eye(X.shape[1]), X.T @ y)
        expected.append([np.linalg.norm(y - X[:, k] @ c[k]) / np.linalg.norm(c[k]) for k in classes])
    np.testing.assert_allclose(run("crc", samples, queries, lam=lam), expected, rtol=1e-9)


@WIDTHS
def test_nsc_is_least_squares_on_each_class(d: int) -> None:
    samples, queries, _ = problem(d=d)
    X, classes = columns(samples)
    expected = [
        [np.linalg.norm(y - X[:, k] @ np.linalg.lstsq(X[:, k], y, rcond=None)[0]) for k in classes]
        for y in queries
    ]
    np.testing.assert_allclose(run("nsc", samples, queries), expected, rtol=1e-9)


def test_nsc_leaves_nothing_where_a_class_spans_the_space() -> None:
    samples, queries, _ = problem(sizes=(9, 2), d=3)
    assert (run("nsc", samples, queries)[:, 0] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nsc_does_not_take_rounding_for_a_direction(dtype: str) -> None:
    """Samples of class 0 lie in a plane, to rounding; a third direction would be noise."""
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(6, 2)) @ rng.normal(size=(2, 5))
    vectors = np.vstack([plane, rng.normal(size=(1, 5))])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    state = make_method("nsc", {}).fit(Samples(vectors.astype(dtype), np.array([0, 6, 7])))
    assert state["basis_edges"].tolist() == [0, 2, 3]


@WIDTHS
@pytest.mark.parametrize("gamma", [0.0, 1e-3, 0.3])
@pytest.mark.parametrize("lam", [1e-3, 0.1])
def test_procrc_is_its_formula(d: int, lam: float, gamma: float) -> None:
    samples, queries, _ = problem(d=d)
    X, classes = columns(samples)
    Q = X.T @ X + lam * np.eye(X.shape[1])
    for k in classes:
        others = X.copy()
        others[:, k] = 0
        Q += gamma * others.T @ others
    expected = []
    for y in queries:
        c = np.linalg.solve(Q, X.T @ y)
        expected.append([np.linalg.norm(X @ c - X[:, k] @ c[k]) for k in classes])
    np.testing.assert_allclose(run("procrc", samples, queries, lam=lam, gamma=gamma), expected, rtol=1e-8)


@WIDTHS
def test_croc_is_its_formula(d: int) -> None:
    samples, queries, _ = problem(d=d)
    X, classes = columns(samples)
    expected = []
    for y in queries:
        c = np.linalg.solve(X.T @ X + 0.05 * np.eye(X.shape[1]), X.T @ y)
        expected.append(
            [
                np.linalg.norm(y - X[:, k] @ np.linalg.lstsq(X[:, k], y, rcond=None)[0])
                + 0.7 * np.linalg.norm(y - X[:, k] @ c[k])
                for k in classes
            ]
        )
    np.testing.assert_allclose(run("croc", samples, queries, lam=0.05, weight=0.7), expected, rtol=1e-9)


def test_nn_is_one_less_the_best_cosine() -> None:
    samples, queries, _ = problem()
    expected = [
        [min(1 - x @ y for x in samples.vectors[a:b]) for a, b in pairwise(samples.edges)] for y in queries
    ]
    np.testing.assert_allclose(run("nn", samples, queries), expected, atol=1e-12)


def test_nn_in_float32_is_half_the_squared_distance_of_the_stored_vectors() -> None:
    rng = np.random.default_rng(0)
    vectors, queries = (unit(1000 + rng.normal(size=(m, 20))).astype(np.float32) for m in (12, 7))
    exact, asked = vectors.astype(np.longdouble), queries.astype(np.longdouble)
    expected = [
        [min(((x - y) ** 2).sum() / 2 for x in exact[a:b]) for a, b in ((0, 5), (5, 12))] for y in asked
    ]
    samples = Samples.of(vectors, np.repeat([0, 1], [5, 7]))
    np.testing.assert_allclose(run("nn", samples, queries), np.array(expected, float), rtol=1e-6)


def test_copies_of_a_query_are_equally_near_whatever_their_class() -> None:
    vectors = unit(np.random.default_rng(1).normal(size=(300, 50))).astype(np.float32)
    copies = np.concatenate([vectors, vectors])
    residuals = run("nn", Samples.of(copies, np.repeat([0, 1], 300)), vectors)
    np.testing.assert_array_equal(residuals, np.zeros((300, 2)))


def naive_admm(X: Array, classes: list[slice], y: Array, lam: float, mu: float, iterations: int) -> Array:
    """Run the published iteration with its three variables, and return c."""
    n = X.shape[1]
    Q = X.T @ X + mu / 2 * np.eye(n)
    for k in classes:
        Q[k, k] += lam * X[:, k].T @ X[:, k]
    z = delta = np.zeros(n)
    for _ in range(iterations):
        c = np.linalg.solve(Q, (1 + lam) * X.T @ y + (mu * z + delta) / 2)
        z = np.maximum(0, c - delta / mu)
        delta = delta + mu * (z - c)
    return c


@WIDTHS
@pytest.mark.parametrize("factor", ["dense", "low-rank"])
@pytest.mark.parametrize(("name", "lam"), [("crnr", 0.1), ("nrc", 0.0)])
def test_crnr_and_nrc_are_the_published_iteration(name: str, lam: float, factor: str, d: int) -> None:
    samples, queries, _ = problem(d=d)
    X, classes = columns(samples)
    expected = []
    for y in queries:
        c = naive_admm(X, classes, y, lam, 0.2, 7)
        expected.append([np.linalg.norm(y - X[:, k] @ c[k]) for k in classes])
    parameters = {"mu": 0.2, "iterations": 7, "factor": factor} | ({"lam": lam} if name == "crnr" else {})
    np.testing.assert_allclose(run(name, samples, queries, **parameters), expected, rtol=1e-9)


def test_crnr_answers_as_the_authors_program() -> None:
    reference = np.load(DATA / "small_reference.npz")
    labels = reference["labels"]
    order = np.argsort(labels, kind="stable")
    recipe = Recipe(reference["gallery"].shape[1])
    vectors, queries = (recipe.unit_vectors(reference[k], "float64")[0] for k in ("gallery", "queries"))
    samples = Samples.of(vectors[order], labels[order].astype(int) - 1)
    for lam, mu, expected in zip(reference["lam"], reference["mu"], reference["residuals"], strict=True):
        np.testing.assert_allclose(
            run("crnr", samples, queries, lam=float(lam), mu=float(mu)), expected, atol=1e-10
        )


@pytest.mark.parametrize("sizes", [(7,) * 40, (3, 50, 3, 3, 20, 4, 30) * 3], ids=["even", "uneven"])
def test_many_small_classes_in_few_dimensions(sizes: tuple[int, ...]) -> None:
    """The low-rank factor joins small classes into blocks, which must not count as one large class."""
    samples, queries, _ = problem(sizes=sizes, d=10)
    dense, low_rank = (run("crnr", samples, queries, lam=0.1, factor=f) for f in ("dense", "low-rank"))
    np.testing.assert_allclose(low_rank, dense, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [SIZES, (6, 9)], ids=["4 classes", "2 classes"])
@pytest.mark.parametrize(
    ("name", "classifier"),
    [
        ("svm", LinearSVC(C=3.0, random_state=0, max_iter=20_000)),
        ("softmax", LogisticRegression(C=3.0, max_iter=2000)),
    ],
)
def test_trained_methods_answer_as_scikit_learn(
    name: str, classifier: Any, sizes: tuple[int, ...], dtype: str
) -> None:
    samples, queries, _ = problem(sizes=sizes, m=400, spread=1.0, dtype=dtype)
    classifier.fit(samples.vectors, np.repeat(np.arange(len(sizes)), sizes))
    r = run(name, samples, queries, c=3.0)
    np.testing.assert_array_equal(r.argmin(axis=1), classifier.predict(queries))
    f = classifier.decision_function(queries)
    expected = -f if f.ndim == 2 else np.stack([f, -f], axis=1)
    np.testing.assert_allclose(r, expected, atol=1e-10 if dtype == "float64" else 1e-4)


@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_classify_needs_no_scikit_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, queries, _ = problem()
    method = make_method(name, {})
    state = method.fit(samples)
    expected = method.residuals(samples, state, queries)
    for module in ("sklearn", "sklearn.svm", "sklearn.linear_model"):
        monkeypatch.setitem(sys.modules, module, None)
    np.testing.assert_array_equal(method.residuals(samples, state, queries), expected)


@pytest.mark.usefixtures("no_scikit_learn")
@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_build_without_scikit_learn_names_the_extra(crnr: Runner, name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=list("aabb"))
    result = crnr("build", tmp_path / "x.npz", "--method", name, "-o", tmp_path / "g.h5")
    assert (result.exit, result.out) == (1, "")
    assert result.err == f"error: {describe_missing('baselines', f'method {name}', 'sklearn')}\n"
    assert not (tmp_path / "g.h5").exists()


@pytest.mark.parametrize("name", ["svm", "softmax"])
def test_trained_methods_need_two_classes(name: str) -> None:
    samples, _, _ = problem(sizes=(4,))
    with pytest.raises(
        DataError, match=f"^method {name} needs two or more classes, but the gallery has only one$"
    ):
        make_method(name, {}).fit(samples)


def test_training_that_does_not_converge_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, _, _ = problem()
    monkeypatch.setattr(
        METHODS["softmax"], "make_classifier", lambda self: LogisticRegression(C=self.c, max_iter=1)
    )
    with pytest.raises(DataError, match="method softmax did not converge at c = 100; choose a smaller --c"):
        make_method("softmax", {}).fit(samples)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ("svm", "softmax")])
def test_every_method_fits_a_single_class(name: str) -> None:
    samples, queries, _ = problem(sizes=(4,))
    assert np.isfinite(run(name, samples, queries)).all()


def test_every_method_is_named_in_the_help_of_build(crnr: Runner) -> None:
    result = crnr("build", "--help-all")
    assert result.exit == 0
    assert f"{', '.join(METHODS)}." in " ".join(result.out.split())


def test_a_parameter_of_another_method_is_refused(crnr: Runner, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=list("aabb"))
    source, output = str(tmp_path / "x.npz"), str(tmp_path / "g.h5")
    result = crnr("build", source, "--method", "crc", "--gamma", "1", "-o", output)
    assert (result.exit, result.out) == (2, "")
    assert result.err == "error: --gamma does not apply to --method crc; it belongs to procrc\n"


@pytest.mark.parametrize(
    ("option", "name"),
    [("--lam", "src"), ("--gamma", "procrc"), ("--crc-weight", "croc"), ("--c", "svm"), ("--tol", "src")],
)
def test_build_passes_a_parameter_to_its_method(crnr: Runner, option: str, name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4) + 0.1, labels=list("aabb"))
    source, output = str(tmp_path / "x.npz"), str(tmp_path / "g.h5")
    made = crnr("build", source, "--method", name, option, "0.25", "-o", output, "--json", "-q")
    assert (made.exit, made.err) == (0, "")
    assert f'"{option.rpartition("-")[2]}": 0.25' in made.out


def test_parameters_are_read_by_their_type() -> None:
    assert parse_parameter("crnr", "iterations", "7") == 7
    assert parse_parameter("crnr", "lam", "1e-3") == 0.001
    assert parse_parameter("crnr", "factor", "dense") == "dense"
    with pytest.raises(UsageError, match=r"crnr.iterations: '1.5' is not a whole number"):
        parse_parameter("crnr", "iterations", "1.5")


def test_margin_of_a_score_is_the_ratio_of_probabilities() -> None:
    """For softmax; and ties are 0 whatever the sign."""
    samples, queries, _ = problem(m=50, spread=1.0)
    classifier = LogisticRegression(C=100.0, max_iter=2000)
    classifier.fit(samples.vectors, np.repeat(np.arange(len(SIZES)), SIZES))
    second, best = np.sort(classifier.predict_proba(queries), axis=1)[:, -2:].T
    least = np.sort(run("softmax", samples, queries), axis=1)
    assert least.min() < 0
    np.testing.assert_allclose(margins(least[:, 0], least[:, 1], signed=True), 1 - second / best, atol=1e-9)
    assert margins(least[:, 0], least[:, 0], signed=True).tolist() == [0.0] * 50
