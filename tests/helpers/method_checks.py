"""What must hold for every method: `CHECKS`, each a function of a method's name."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.gallery import FittedGallery, LazyLabels, SampleTable
from crnr_cli.methods import METHODS, Method, Samples, fit_method, make_method
from crnr_cli.recipe.recipe import Recipe
from helpers.runner import Runner, rows

# An iterative method is run to the end, so that it can be held to (nearly) what a closed form is held to.
STRICT: dict[str, dict[str, object]] = {"src": {"tol": 1e-11, "iterations": 20_000}}
# How far residuals may be apart that should be equal: scikit-learn stops its training at tolerances of 1e-4.
TOLERANCES = {"src": 1e-5, "svm": 1e-2, "softmax": 5e-2}
TOLERANCE = 1e-9

SIZES = (5, 3, 7, 4)


def method_called(name: str) -> Method:
    return make_method(name, STRICT.get(name, {}))


def problem(
    sizes: tuple[int, ...] = SIZES, d: int = 24, m: int = 12, dtype: str = "float64", spread: float = 0.5
) -> tuple[Samples, Array, Array]:
    """Return samples around a centre for each class, and queries with their classes, as unit vectors."""
    rng = np.random.default_rng(7)
    centres = rng.normal(size=(len(sizes), d))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    truths = rng.integers(len(sizes), size=m)
    samples, queries = (
        unit(centres[classes] + spread * rng.normal(size=(len(classes), d))) for classes in (labels, truths)
    )
    return Samples.of(samples.astype(dtype), labels), queries.astype(dtype), truths


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def residuals(name: str, samples: Samples, queries: Array) -> Array:
    method = method_called(name)
    return method.residuals(samples, method.fit(samples), queries)


def assert_close(name: str, actual: Array, expected: Array, tolerance: float = TOLERANCE) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=max(tolerance, TOLERANCES.get(name, 0.0)))


def check_shape_and_type(name: str) -> None:
    for dtype in ("float32", "float64"):
        samples, queries, _ = problem(dtype=dtype)
        r = residuals(name, samples, queries)
        assert (r.shape, r.dtype) == ((len(queries), len(SIZES)), np.dtype(dtype))


def check_finite_and_not_negative(name: str) -> None:
    samples, queries, _ = problem()
    r = residuals(name, samples, np.vstack([queries, samples.vectors]))
    assert np.isfinite(r).all()
    if not METHODS[name].signed:
        assert r.min() >= 0


def check_new_queries_are_recognised(name: str) -> None:
    samples, queries, truths = problem(spread=0.15)
    np.testing.assert_array_equal(residuals(name, samples, queries).argmin(axis=1), truths)


def check_samples_are_recognised(name: str) -> None:
    samples, _, _ = problem()
    classes = np.repeat(np.arange(len(SIZES)), SIZES)
    np.testing.assert_array_equal(residuals(name, samples, samples.vectors).argmin(axis=1), classes)


def check_batch_size_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    method = method_called(name)
    state = method.fit(samples)
    whole = method.residuals(samples, state, queries)
    for size in (1, 5):
        parts = [
            method.residuals(samples, state, queries[i : i + size]) for i in range(0, len(queries), size)
        ]
        np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-9)


def check_empty_batch(name: str) -> None:
    samples, queries, _ = problem()
    assert residuals(name, samples, queries[:0]).shape == (0, len(SIZES))


def check_order_of_queries_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    order = np.random.default_rng(1).permutation(len(queries))
    method = method_called(name)
    state = method.fit(samples)
    shuffled = method.residuals(samples, state, queries[order])
    np.testing.assert_allclose(shuffled, method.residuals(samples, state, queries)[order], rtol=0, atol=1e-9)


def check_scale_of_a_query_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    recipe = Recipe(queries.shape[1])
    scales = 10.0 ** np.linspace(-150, 150, len(queries))
    scaled, errors = recipe.unit_vectors(queries * scales[:, None], "float64")
    assert errors == [None] * len(queries)
    assert_close(name, residuals(name, samples, scaled), residuals(name, samples, queries))


def check_order_of_samples_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    rng = np.random.default_rng(2)
    order = np.concatenate(
        [start + rng.permutation(size) for start, size in zip(samples.edges, SIZES, strict=False)]
    )
    shuffled = Samples(samples.vectors[order], samples.edges)
    assert_close(name, residuals(name, shuffled, queries), residuals(name, samples, queries))


def check_order_of_classes_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    order = [2, 0, 3, 1]
    parts = [samples.vectors[samples.edges[i] : samples.edges[i + 1]] for i in order]
    index = np.repeat(np.arange(len(order)), [len(part) for part in parts])
    renamed = Samples.of(np.concatenate(parts), index)
    assert_close(name, residuals(name, renamed, queries), residuals(name, samples, queries)[:, order])


def check_rotation_does_not_matter(name: str) -> None:
    samples, queries, _ = problem()
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(queries.shape[1], queries.shape[1])))
    turned = residuals(name, Samples(samples.vectors @ turn, samples.edges), queries @ turn)
    assert_close(name, turned, residuals(name, samples, queries))


def check_duplicated_sample(name: str) -> None:
    samples, queries, truths = problem(spread=0.15)
    twice = Samples(np.repeat(samples.vectors, 2, axis=0), samples.edges * 2)
    r = residuals(name, twice, queries)
    assert np.isfinite(r).all()
    np.testing.assert_array_equal(r.argmin(axis=1), truths)


def check_one_sample_per_class(name: str) -> None:
    samples, _, _ = problem(sizes=(1, 1, 1, 1, 1))
    np.testing.assert_array_equal(residuals(name, samples, samples.vectors).argmin(axis=1), np.arange(5))


def check_two_classes(name: str) -> None:
    samples, queries, truths = problem(sizes=(4, 6), spread=0.15)
    np.testing.assert_array_equal(residuals(name, samples, queries).argmin(axis=1), truths)


def check_more_samples_than_dimensions(name: str) -> None:
    samples, queries, truths = problem(sizes=(6, 5, 6, 4), d=8, spread=0.1)
    r = residuals(name, samples, queries)
    assert np.isfinite(r).all()
    np.testing.assert_array_equal(r.argmin(axis=1), truths)


def check_classes_larger_than_the_dimension(name: str) -> None:
    samples, queries, _ = problem(sizes=(9, 12), d=3)
    assert np.isfinite(residuals(name, samples, queries)).all()


def check_float32_agrees_with_float64(name: str) -> None:
    single, double = (residuals(name, *problem(dtype=dtype)[:2]) for dtype in ("float32", "float64"))
    assert_close(name, single, double, 5e-3 if name == "src" else 1e-4)


def check_vectors_that_differ_by_little(name: str) -> None:
    """Features far from zero make unit vectors that nearly agree; float32 must still tell them apart."""
    rng = np.random.default_rng(0)
    centres, labels, truths = rng.normal(size=(4, 20)), np.repeat(np.arange(4), 15), np.arange(40) % 4
    values, asked = (1000 + centres[k] + 0.1 * rng.normal(size=(len(k), 20)) for k in (labels, truths))
    winners = [
        residuals(name, Samples.of(unit(values).astype(dtype), labels), unit(asked).astype(dtype)).argmin(
            axis=1
        )
        for dtype in ("float32", "float64")
    ]
    np.testing.assert_array_equal(*winners)


def check_extreme_parameters(name: str) -> None:
    """Residuals, finite or not, or an error with a remedy; here samples are more than their dimensions."""
    samples, queries, _ = problem(sizes=(9, 8), d=5)
    double = Samples(np.repeat(samples.vectors, 2, axis=0), 2 * samples.edges)
    for parameter, default in make_method(name, {}).parameters.items():
        if type(default) is float:
            for value in (5e-324, 1e-300, 1e-20, 1e-16, 1e20, 1e300, 1.7e308):
                with suppress(UsageError, DataError), np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    method = make_method(name, {parameter: value})
                    found = method.residuals(double, fit_method(method, double), queries)
                    assert found.shape == (12, 2)


def check_fit_is_repeatable(name: str) -> None:
    samples, _, _ = problem()
    first, second = (method_called(name).fit(samples) for _ in range(2))
    assert first.keys() == second.keys()
    for key, array in first.items():
        np.testing.assert_array_equal(array, second[key])


def check_inputs_are_left_alone(name: str) -> None:
    samples, queries, _ = problem()
    method = method_called(name)
    before = samples.vectors.copy(), queries.copy()
    state = method.fit(samples)
    kept = {key: array.copy() for key, array in state.items()}
    method.residuals(samples, state, queries)
    np.testing.assert_array_equal(samples.vectors, before[0])
    np.testing.assert_array_equal(queries, before[1])
    for key, array in kept.items():
        np.testing.assert_array_equal(state[key], array)


def check_state_is_plain_arrays(name: str) -> None:
    samples, _, _ = problem(dtype="float32")
    for array in method_called(name).fit(samples).values():
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.float32 or array.dtype.kind in "iu"


def check_state_survives_save_and_load(name: str) -> None:
    samples, queries, _ = problem(dtype="float32")
    method = method_called(name)
    n, d = samples.vectors.shape
    names = [f"s{i}" for i in range(n)]
    table = SampleTable(names, LazyLabels("abcd", samples.class_index), names)
    gallery = FittedGallery(samples, table, list("abcd"), Recipe(d), method, method.fit(samples))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.h5"
        save_gallery(gallery, path)
        loaded = load_gallery(path)
    assert loaded.method == method
    np.testing.assert_array_equal(loaded.residuals(queries), gallery.residuals(queries))


def check_unknown_parameter_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"^method {name} has no parameter colour; "):
        make_method(name, {"colour": 1.0})


def check_senseless_parameters_are_refused(name: str) -> None:
    for parameter, default in make_method(name, {}).parameters.items():
        senseless = {float: (-1.0, np.nan, np.inf), int: (0, -3), str: ("", "nonsense")}[type(default)]
        if parameter == "neighbors":  # 0 means all samples
            senseless = (-1, 1.5)
        for value in senseless:
            with pytest.raises(UsageError, match=f"{name}: {parameter} must be "):
                make_method(name, {parameter: value})


def check_parameters_round_trip(name: str) -> None:
    method = method_called(name)
    assert make_method(name, method.parameters) == method
    if method.supports_neighbors:
        local = make_method(name, STRICT.get(name, {}) | {"neighbors": 3})
        assert make_method(name, local.parameters) == local


def check_commands(name: str) -> None:
    """Build, classify and evaluate; a query of zeros has no answer, the others have the right one."""
    samples, queries, truths = problem(spread=0.15)
    labels = np.repeat(list("abcd"), SIZES)
    queries[3] = 0
    with tempfile.TemporaryDirectory() as folder:
        crnr = Runner(Path(folder))
        np.savez(crnr.here / "gallery.npz", features=samples.vectors, labels=labels)
        np.savez(crnr.here / "queries.npz", features=queries, labels=[list("abcd")[i] for i in truths])
        built = crnr("build", "gallery.npz", "--method", name, "-q")
        assert (built.exit, built.out, built.err) == (0, "", "")
        answered = crnr("classify", "queries.npz", "-q")
        assert (answered.exit, answered.err) == (3, "")
        found = rows(answered.out)
        assert [row["status"] for row in found] == ["zero_norm" if i == 3 else "ok" for i in range(12)]
        good = [row for row in found if row["status"] == "ok"]
        assert all(0 <= float(row["margin"]) <= 1 and row["truth"] == row["label"] for row in good)
        scored = crnr("evaluate", "queries.npz", "--json")
        assert (scored.exit, scored.err) == (3, "")
        assert crnr("evaluate", "queries.npz", "--json", "--allow-skipped").exit == 0
        assert '"accuracy": 1.0' in scored.out


CHECKS: list[Callable[[str], None]] = [
    check for key, check in list(globals().items()) if key.startswith("check_")
]
