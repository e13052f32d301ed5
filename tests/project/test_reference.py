"""build and classify against the documented formulas, written out plainly and applied to one query at a time.

A case is drawn at random: images of several formats, depths, modes and orientations, or a table of numbers;
a recipe; a method with its parameters. Whatever the case, the CSV holds the residuals of the plain formulas.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat
from scipy.optimize import nnls
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.svm import LinearSVC

from crnr_cli.arrays import Array
from helpers.runner import Runner

# ---- The formulas: X has one column per sample, `classes` are slices of the columns, y is one query.

Classes = list[slice]


def class_residuals(X: Array, classes: Classes, c: Array, y: Array) -> list[float]:
    return [float(np.linalg.norm(y - X[:, k] @ c[k])) for k in classes]


def plain_nonnegative(
    X: Array,
    classes: Classes,
    y: Array,
    *,
    lam: float = 0.0,
    mu: float = 0.1,
    iterations: int = 5,
    tol: float = 0.0,
) -> list[float]:
    """Run ADMM with the three variables of the paper, c, z and delta."""
    n = X.shape[1]
    Q = X.T @ X + mu / 2 * np.eye(n)
    for k in classes:
        Q[k, k] += lam * X[:, k].T @ X[:, k]
    c, z, delta = np.zeros(n), np.zeros(n), np.zeros(n)
    for _ in range(iterations):
        last_c, last_z = c, z
        c = np.linalg.solve(Q, (1 + lam) * X.T @ y + (mu * z + delta) / 2)
        z = np.maximum(0, c - delta / mu)
        delta = delta + mu * (z - c)
        if max(np.linalg.norm(gap) for gap in (z - c, z - last_z, c - last_c)) < tol:
            break
    return class_residuals(X, classes, c, y)


def plain_ridge_code(X: Array, y: Array, lam: float) -> Array:
    return np.linalg.solve(X.T @ X + lam * np.eye(X.shape[1]), X.T @ y)


def plain_crc(X: Array, classes: Classes, y: Array, *, lam: float = 1e-3) -> list[float]:
    c = plain_ridge_code(X, y, lam)
    norms = [np.linalg.norm(c[k]) for k in classes]
    return [r / float(norm) for r, norm in zip(class_residuals(X, classes, c, y), norms, strict=True)]


def plain_nsc(X: Array, classes: Classes, y: Array) -> list[float]:
    return [float(np.linalg.norm(y - X[:, k] @ np.linalg.lstsq(X[:, k], y, rcond=None)[0])) for k in classes]


def plain_croc(
    X: Array, classes: Classes, y: Array, *, lam: float = 1e-3, weight: float = 0.1
) -> list[float]:
    shared = class_residuals(X, classes, plain_ridge_code(X, y, lam), y)
    return [a + weight * b for a, b in zip(plain_nsc(X, classes, y), shared, strict=True)]


def plain_procrc(
    X: Array, classes: Classes, y: Array, *, lam: float = 1e-3, gamma: float = 1e-3
) -> list[float]:
    Q = X.T @ X + lam * np.eye(X.shape[1])
    for k in classes:
        others = X.copy()
        others[:, k] = 0
        Q += gamma * others.T @ others
    c = np.linalg.solve(Q, X.T @ y)
    return class_residuals(X, classes, c, X @ c)


def plain_src(X: Array, classes: Classes, y: Array, *, lam: float = 1e-3, **_: object) -> list[float]:
    """scikit-learn's objective is ours divided by 2d."""
    lasso = Lasso(alpha=lam / (2 * len(y)), fit_intercept=False, tol=1e-13, max_iter=1_000_000)
    return class_residuals(X, classes, lasso.fit(X, y).coef_, y)


def plain_nn(X: Array, classes: Classes, y: Array) -> list[float]:
    return [min(1 - float(x @ y) for x in X[:, k].T) for k in classes]


def plain_minimum(X: Array, classes: Classes, y: Array, *, lam: float, **_: object) -> list[float]:
    """Return the exact minimum that ADMM approaches, as one problem of non-negative least squares."""
    alone = []
    for k in classes:
        part = np.zeros_like(X)
        part[:, k] = np.sqrt(lam) * X[:, k]
        alone.append(part)
    c, _ = nnls(np.vstack([X, *alone]), np.concatenate([y, *[np.sqrt(lam) * y] * len(classes)]))
    return class_residuals(X, classes, c, y)


def plain_scores(model: Any) -> Callable[..., list[float]]:
    """Minus the scores of a classifier of scikit-learn."""

    def residuals(X: Array, classes: Classes, y: Array, *, c: float) -> list[float]:
        index = np.concatenate([np.full(k.stop - k.start, i) for i, k in enumerate(classes)])
        score = model(C=c, max_iter=20_000, random_state=0).fit(X.T, index).decision_function([y])[0]
        return [-float(s) for s in score] if np.ndim(score) else [float(score), -float(score)]

    return residuals


# Per method: the formula, strategies of its parameters, and the tolerance in float64 and in float32.
Parameters = dict[str, st.SearchStrategy[Any]]
lams, mus = st.sampled_from([1e-3, 0.01, 0.1, 1.0]), st.sampled_from([0.05, 0.1, 1.0])
factors = st.sampled_from(["auto", "dense", "low-rank"])
admm: Parameters = {"mu": mus, "iterations": st.integers(1, 12), "factor": factors}
METHODS: dict[str, tuple[Callable[..., list[float]], Parameters, float, float]] = {
    "crnr": (plain_nonnegative, {"lam": lams, **admm}, 1e-8, 1e-4),
    "nrc": (plain_nonnegative, admm, 1e-8, 1e-4),
    "crnr, until it changes little": (
        plain_nonnegative,
        {"lam": lams, **admm, "iterations": st.just(300), "tol": st.sampled_from([1e-2, 1e-4])},
        1e-8,
        3e-2,
    ),
    "crnr, until the end": (
        plain_minimum,
        {
            "lam": st.sampled_from([0.1, 1.0]),
            "mu": st.just(0.5),
            "iterations": st.just(20_000),
            "tol": st.just(1e-10),
        },
        1e-6,
        1e-3,
    ),
    "crc": (plain_crc, {"lam": lams}, 1e-8, 1e-3),
    "nsc": (plain_nsc, {}, 1e-8, 1e-3),
    "croc": (plain_croc, {"lam": lams, "weight": st.sampled_from([0.0, 0.1, 2.0])}, 1e-8, 1e-3),
    "procrc": (plain_procrc, {"lam": lams, "gamma": st.sampled_from([0.0, 1e-3, 0.3])}, 1e-8, 1e-3),
    "src": (
        plain_src,
        {"lam": st.sampled_from([0.01, 0.1]), "tol": st.just(1e-12), "iterations": st.just(20_000)},
        1e-4,
        2e-2,
    ),
    "nn": (plain_nn, {}, 1e-12, 1e-6),
    "svm": (plain_scores(LinearSVC), {"c": st.sampled_from([0.5, 2.0])}, 1e-4, 1e-3),
    "softmax": (plain_scores(LogisticRegression), {"c": st.sampled_from([1.0, 20.0])}, 1e-3, 1e-2),
}


# ---- The recipe: raw values become unit vectors.


@dataclass(frozen=True)
class Recipe:
    power: float = 1.0
    pca: int | None = None
    size: tuple[int, int] | None = None  # of images
    color: bool = False

    def options(self) -> Iterator[str]:
        yield f"--power={self.power}"
        if self.pca:
            yield f"--pca={self.pca}"
        if self.size:
            yield "--extractor=pixels"
            yield f"--size={self.size[0]}x{self.size[1]}"
        if self.color:
            yield "--color"

    def unit_vectors(self, gallery: Array, queries: Array) -> tuple[Array, Array]:
        """Power, PCA with axes of the centred gallery but without subtracting its mean, unit length."""
        both = [np.sign(raw) * np.abs(raw) ** self.power for raw in (gallery, queries)]
        if self.pca:
            _, spread, axes = np.linalg.svd(both[0] - both[0].mean(axis=0), full_matrices=False)
            following = spread[self.pca] if self.pca < len(spread) else 0.0
            assume(spread[self.pca - 1] > 1.05 * following)  # else the last axis could be either
            both = [raw @ axes[: self.pca].T for raw in both]
        first, second = (raw / np.linalg.norm(raw, axis=1, keepdims=True) for raw in both)
        return first, second


# What the orientation of EXIF means: how the stored rows and columns have to be turned to be seen upright.
UPRIGHT: dict[int, Callable[[Array], Array]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.swapaxes(0, 1),
    6: lambda stored: stored[::-1].swapaxes(0, 1),
    7: lambda stored: stored[::-1, ::-1].swapaxes(0, 1),
    8: lambda stored: stored[:, ::-1].swapaxes(0, 1),
}


def plain_pixels(image: Image.Image, orientation: int, size: tuple[int, int], color: bool) -> Array:
    """Upright, on white, grey or RGB, and only then resized. 16 bits stay 16 bits, on the scale of 8."""
    if image.mode == "P":
        image = image.convert("RGB")
    image = Image.fromarray(np.ascontiguousarray(UPRIGHT[orientation](np.asarray(image))))
    if image.mode.startswith("I"):
        grey = np.asarray(image.convert("F").resize(size, Image.Resampling.BILINEAR), float) / 257
        return np.repeat(grey.ravel(), 3 if color else 1)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB" if color else "L")
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR), float).ravel()


# ---- Cases.


@dataclass(frozen=True)
class Case:
    seed: int
    sizes: list[int]  # samples per class
    n_features: int
    method: str
    parameters: dict[str, Any]
    recipe: Recipe
    dtype: str = "float64"
    stored_as: str = "npz"
    kinds: list[str] = field(default_factory=list)  # of images

    @property
    def n(self) -> int:
        return sum(self.sizes)

    @property
    def labels(self) -> list[str]:
        return [f"c{i}" for i, size in enumerate(self.sizes) for _ in range(size)]


STORED_AS = ["npz", "h5", "mat", "npz of float32", "npz of int16", "h5 by columns"]
SUFFIXES = ("png", "bmp", "jpg", "tif", "pgm", "webp", "gif", "avif")
IMAGES = {  # the mode, and whether EXIF turns it
    "png": ("L", False),
    "turned png": ("L", True),
    "png of 16 bits": ("I;16", False),
    "png with transparency": ("RGBA", False),
    "colour png": ("RGB", False),
    "png with a palette": ("P", False),
    "bmp": ("RGB", False),
    "turned jpg": ("RGB", True),
    "tif": ("L", False),
    "turned tif": ("L", True),
    "tif of 16 bits": ("I;16", False),
    "pgm of 16 bits": ("I;16", False),
    "webp": ("RGB", False),
    "turned webp": ("RGB", True),
    "gif": ("P", False),
    "avif": ("RGB", False),
    "turned avif": ("RGB", True),
}


@st.composite
def cases(draw: st.DrawFn, *, images: bool) -> Case:
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    size = draw(st.sampled_from([(4, 4), (5, 3), (3, 6)])) if images else None
    color = images and draw(st.booleans())
    n_features = size[0] * size[1] * (3 if color else 1) if size else draw(st.sampled_from([3, 8, 40]))
    method = draw(st.sampled_from(list(METHODS)))
    _, parameters, *_ = METHODS[method]
    most = min(sum(sizes) - 1, n_features)
    pca = draw(st.one_of(st.none(), st.integers(2, most))) if most >= 2 else None
    recipe = Recipe(draw(st.sampled_from([1.0, 0.5, 2.0])), pca, size, color)
    # ADMM takes long to find the minimum where it is flat, and then scikit-learn finds another one.
    if method == "crnr, until the end":
        assume(max(sizes) < (pca or n_features) / 2)
    if method == "src":
        assume(sum(sizes) < (pca or n_features))
    return Case(
        seed=draw(st.integers(0, 2**32 - 1)),
        sizes=sizes,
        n_features=n_features,
        method=method,
        parameters=draw(st.fixed_dictionaries(parameters)),
        recipe=recipe,
        dtype=draw(st.sampled_from(["float64", "float32"])),
        stored_as=draw(st.sampled_from(STORED_AS)),
        kinds=draw(st.lists(st.sampled_from(list(IMAGES)), min_size=1, max_size=4)) if images else [],
    )


M = 3  # queries


def write_features(case: Case, here: Path) -> tuple[list[str], Array, Array]:
    """gallery and queries as tables, in the format of the case; returns their names and their values."""
    rng = np.random.default_rng(case.seed)
    kind, _, how = case.stored_as.partition(" ")
    gallery, queries = (rng.normal(0.2, 1, (count, case.n_features)) for count in (case.n, M))
    if how.startswith("of "):
        dtype = how.removeprefix("of ")
        gallery, queries = ((100 * values).astype(dtype) for values in (gallery, queries))
        for values in (gallery, queries):
            values[:, 0] += values[:, 0] == 0  # no row of zeros
    order = rng.permutation(case.n)
    labels = np.array(case.labels)[order]
    for name, values in (("samples", gallery[order]), ("queries", queries)):
        path = here / f"{name}.{kind}"
        arrays = {"features": values.T if how == "by columns" else values}
        if name == "samples":
            arrays["labels"] = labels
        if kind == "npz":
            np.savez(path, **arrays)
        elif kind == "mat":
            savemat(path, {key: list(a) if a.dtype.kind == "U" else a for key, a in arrays.items()})
        else:
            with h5py.File(path, "w") as file:
                for key, array in arrays.items():
                    file[key] = array.astype("S") if array.dtype.kind == "U" else array
    # Samples of one class keep the order of the file.
    return [f"samples.{kind}", f"queries.{kind}"], gallery.astype(float), queries.astype(float)


def write_image(path: Path, rng: np.random.Generator, kind: str, size: tuple[int, int], color: bool) -> Array:
    """Write noise and return its pixels. A JPEG of twice `size` would be decoded at half its size."""
    mode, is_turned = IMAGES[kind]
    suffix = next(part for part in kind.split() if part in SUFFIXES)
    width, height = (int(2 * max(size) - 1 - rng.integers(2)) for _ in range(2))
    bands = {"RGB": (3,), "P": (3,), "RGBA": (4,)}.get(mode, ())
    dtype, top = (np.uint16, 2**16) if mode == "I;16" else (np.uint8, 2**8)
    image = Image.fromarray(rng.integers(1, top, (height, width, *bands), dtype=dtype))
    if mode == "P":
        image = image.quantize(16)
    exif, orientation = Image.Exif(), int(rng.integers(1, 9)) if is_turned else 1
    exif[0x0112] = orientation
    path = path.with_suffix(f".{suffix}")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **({"exif": exif} if is_turned else {}))
    if suffix in ("jpg", "webp", "avif"):  # which lose something
        with Image.open(path) as image:
            image.draft("RGB" if color else "L", image.size)  # a JPEG has a grey of its own
            image.load()
    return plain_pixels(image, orientation, size, color)


def write_images(case: Case, here: Path) -> tuple[list[str], Array, Array]:
    """gallery/<class>/<n>.* and queries/<n>.*; returns their names and their pixels."""
    rng = np.random.default_rng(case.seed)
    size, color = case.recipe.size, case.recipe.color
    assert size is not None
    pixels = []
    for number, folder in enumerate([*(f"gallery/{label}" for label in case.labels), *["queries"] * M]):
        kind = case.kinds[number % len(case.kinds)]
        pixels.append(write_image(here / folder / f"{number:03d}", rng, kind, size, color))
    return ["gallery", "queries"], np.array(pixels[: case.n]), np.array(pixels[case.n :])


@contextmanager
def empty_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def answers(case: Case, here: Path, names: list[str]) -> list[dict[str, str]]:
    """Return the rows of the CSV that the commands write."""
    crnr = Runner(here)
    method = case.method.split(",")[0]
    parameters = [f"--{name}={value}" for name, value in case.parameters.items() if value != "auto"]
    axis = []
    if not case.kinds:  # a square .mat file does not show which it is
        axis = ["--samples-axis=columns" if "columns" in case.stored_as else "--samples-axis=rows"]
    built = crnr(
        *("build", names[0], "-q", "--method", method, "--dtype", case.dtype, "-j1"),
        *(*parameters, *case.recipe.options(), *axis),
    )
    assert (built.exit, built.out, built.err) == (0, "", "")
    answered = crnr("classify", names[1], "-q", "-j1", "-o", "out.csv", *axis)
    assert (answered.exit, answered.out, answered.err) == (0, "", "")
    with (here / "out.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def check(case: Case, write: Callable[[Case, Path], tuple[list[str], Array, Array]]) -> None:
    with empty_folder() as here:
        names, gallery, queries = write(case, here)
        vectors, unit_queries = case.recipe.unit_vectors(gallery, queries)
        rows = answers(case, here, names)
    formula, _, *tolerances = METHODS[case.method]
    parameters = {key: value for key, value in case.parameters.items() if key != "factor"}
    classes = [slice(a, b) for a, b in pairwise(np.cumsum([0, *case.sizes]).tolist())]
    tolerance = tolerances[0 if case.dtype == "float64" else 1]
    if any("16 bits" in kind for kind in case.kinds):  # these pixels are scaled in float32
        tolerance = max(tolerance, 1e-6)
    assert len(rows) == M
    for row, y in zip(rows, unit_queries, strict=True):
        expected = formula(vectors.T, classes, y, **parameters)
        found = [float(row[f"residual:c{i}"]) for i in range(len(classes))]
        # crc divides by the weight of a class: the smaller that is, the more an error of it counts.
        size = np.abs(expected)
        allowed = tolerance * (1 + size * np.maximum(size, 1))
        assert np.all(np.abs(np.subtract(found, expected)) <= allowed), (found, expected)
        order = sorted(range(len(found)), key=found.__getitem__)
        assert (row["label"], row["runner_up"], row["status"]) == (f"c{order[0]}", f"c{order[1]}", "ok")
        best, second = np.sort(expected)[:2]
        if second - best > 3 * tolerance * max(1, abs(second)):
            assert row["label"] == f"c{int(np.argmin(expected))}"


# A case is small as it is drawn, and takes a while: it is not made smaller.
LONG: dict[str, Any] = {
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.reuse, Phase.generate),
}
QUICK: dict[str, Any] = {**LONG, "derandomize": True, "phases": (Phase.explicit, Phase.generate)}


@settings(max_examples=20, **QUICK)
@given(cases(images=False))
def test_features_are_answered_by_the_formulas(case: Case) -> None:
    check(case, write_features)


@settings(max_examples=8, **QUICK)
@given(cases(images=True))
def test_images_are_answered_by_the_formulas(case: Case) -> None:
    check(case, write_images)


@pytest.mark.slow
@settings(max_examples=600, **LONG)
@given(cases(images=False))
def test_many_features_are_answered_by_the_formulas(case: Case) -> None:
    check(case, write_features)


@pytest.mark.slow
@settings(max_examples=200, **LONG)
@given(cases(images=True))
def test_many_images_are_answered_by_the_formulas(case: Case) -> None:
    check(case, write_images)
