"""The estimators: scikit-learn's own checks, the tools they are used with, and galleries shared with crnr."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import crnr_cli
from crnr_cli.errors import NothingToCompare
from crnr_cli.estimators import GalleryClassifier
from crnr_cli.methods import METHODS, Samples
from crnr_cli.system.extras import describe_missing
from helpers.runner import Runner, rows
from helpers.samples import make_images

ESTIMATORS: list[type[GalleryClassifier]] = [
    getattr(crnr_cli, name) for name in crnr_cli.__all__ if name.endswith("Classifier")
]
# src takes seconds to converge.
SLOW = {crnr_cli.SRCClassifier: pytest.mark.slow}
each = pytest.mark.parametrize(
    "estimator", [pytest.param(e, marks=SLOW.get(e, ()), id=e.__name__) for e in ESTIMATORS]
)


# Few iterations are enough for the contract: src takes seconds to converge on the data of some checks.
CHECKED = [
    *(crnr_cli.SRCClassifier(iterations=50) if e is crnr_cli.SRCClassifier else e() for e in ESTIMATORS),
    crnr_cli.CRNRClassifier(neighbors=5),
]


@pytest.mark.filterwarnings("ignore::crnr_cli.errors.NothingToCompare")  # some checks have rows of zeros
@parametrize_with_checks(CHECKED)
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any, Any, Any]:
    """Training and test parts, 200 and 300 of 8x8 pixels."""
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200], X[200:500], y[200:500]


def test_estimators_exist_for_methods_that_scikit_learn_lacks() -> None:
    assert {e.method for e in ESTIMATORS} == set(METHODS) - {"nn", "svm", "softmax"}
    for estimator in ESTIMATORS:
        assert estimator().get_params() == METHODS[estimator.method]().parameters


@each
def test_the_method_decides(estimator: type[GalleryClassifier], digits: Any) -> None:
    """The same labels as the method gives on unit vectors, and the residuals of each class."""
    X, y, queries, truths = digits
    fitted = estimator().fit(X, y)
    order = np.argsort(y, kind="stable")
    unit = X[order] / np.linalg.norm(X[order], axis=1, keepdims=True)
    samples = Samples.of(unit, y[order])
    method = METHODS[estimator.method]()
    expected = method.residuals(
        samples, method.fit(samples), queries / np.linalg.norm(queries, axis=1, keepdims=True)
    )
    np.testing.assert_allclose(fitted.residuals(queries), expected, atol=1e-9)
    np.testing.assert_array_equal(fitted.decision_function(queries), -fitted.residuals(queries))
    np.testing.assert_array_equal(fitted.predict(queries), expected.argmin(axis=1))
    assert fitted.score(queries, truths) > 0.85


@each
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int8", ">f8", "float16"])
def test_every_type_of_numbers(estimator: type[GalleryClassifier], dtype: str, digits: Any) -> None:
    X, y, queries, truths = digits
    fitted = estimator().fit(X.astype(dtype), y)
    assert fitted.gallery_.dtype == ("float32" if dtype == "float32" else "float64")
    assert fitted.score(queries.astype(dtype), truths) > 0.85


def test_two_classes_have_one_value(digits: Any) -> None:
    X, y, queries, _ = digits
    fitted = crnr_cli.CRNRClassifier().fit(X[y < 2], y[y < 2])
    residuals, values = fitted.residuals(queries), fitted.decision_function(queries)
    assert values.shape == (len(queries),)
    np.testing.assert_array_equal(values > 0, residuals[:, 1] < residuals[:, 0])


def test_classes_keep_their_order(digits: Any) -> None:
    """As numbers 9 comes before 10, as names of a gallery after it."""
    X, y, queries, _ = digits
    shifted = crnr_cli.CRNRClassifier().fit(X, y + 5)
    assert shifted.classes_.tolist() == list(range(5, 15))
    assert shifted.gallery_.classes[:2] == ["10", "11"]
    expected = crnr_cli.CRNRClassifier().fit(X, y)
    np.testing.assert_array_equal(shifted.predict(queries), expected.predict(queries) + 5)


def test_works_with_the_tools_of_scikit_learn(digits: Any) -> None:
    X, y, queries, truths = digits
    pipeline = make_pipeline(PCA(30), crnr_cli.CRNRClassifier())
    search = GridSearchCV(pipeline, {"crnrclassifier__lam": [1e-3, 0.1]}, cv=3).fit(X, y)
    assert search.score(queries, truths) > 0.85
    assert cross_val_score(crnr_cli.CRCClassifier(lam=0.01), X, y, cv=3).min() > 0.8
    assert clone(crnr_cli.CRNRClassifier(lam=0.5)).lam == 0.5
    again = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(again.predict(queries), search.predict(queries))


def test_probabilities_only_by_calibration(digits: Any) -> None:
    X, y, queries, _ = digits
    calibrated = CalibratedClassifierCV(crnr_cli.CRNRClassifier(), cv=3).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(queries).sum(axis=1), 1)


@pytest.mark.slow
@each
def test_a_notebook_and_the_command_line_share_a_gallery(
    estimator: type[GalleryClassifier], digits: Any, crnr: Runner, tmp_path: Path
) -> None:
    X, y, queries, truths = digits
    fitted = estimator().fit(X, y)
    fitted.save("g.h5")
    np.savez(tmp_path / "q.npz", features=queries, labels=truths)
    answered = crnr("classify", "q.npz", "-g", "g.h5")
    assert answered.exit == 0, answered.err
    found = rows(answered.out)
    assert [int(row["label"]) for row in found] == fitted.predict(queries).tolist()
    residuals = [[float(row[f"residual:{name}"]) for name in range(10)] for row in found]
    np.testing.assert_allclose(residuals, fitted.residuals(queries), atol=1e-12)
    opened = estimator.load("g.h5")
    assert opened.get_params() == fitted.get_params()
    assert opened.n_features_in_ == 64
    np.testing.assert_array_equal(opened.predict(queries), fitted.predict(queries))
    assert opened.score(queries, truths) == fitted.score(queries, truths)


def test_opens_a_gallery_that_build_made(digits: Any, crnr: Runner, tmp_path: Path) -> None:
    X, y, queries, truths = digits
    np.savez(tmp_path / "g.npz", features=X, labels=y)
    built = crnr("build", "g.npz", "-o", "g.h5", "--lam", "0.1", "--pca", "40", "--dtype", "float64")
    assert built.exit == 0, built.err
    opened = crnr_cli.CRNRClassifier.from_gallery("g.h5")
    assert opened.lam == 0.1
    assert opened.n_features_in_ == 64
    assert opened.score(queries, truths.astype(str)) > 0.85
    assert crnr_cli.CRNRClassifier.load("g.h5", dtype=int).score(queries, truths) > 0.85
    with pytest.raises(ValueError, match=r"^g\.h5: built with the method crnr, not with crc$"):
        crnr_cli.CRCClassifier.from_gallery("g.h5")


def test_invalid_parameters_and_data_raise_value_error(digits: Any, tmp_path: Path) -> None:
    X, y, _, _ = digits
    with pytest.raises(ValueError, match="method crnr: lam must be 0 or more, not -1"):
        crnr_cli.CRNRClassifier(lam=-1).fit(X, y)
    with pytest.raises(ValueError, match="a label is an empty string"):
        crnr_cli.CRNRClassifier().fit(X, np.where(y == 0, "", y.astype(str)))
    fitted = crnr_cli.CRNRClassifier().fit(X, y)
    with pytest.raises(ValueError, match="does not exist; create it first"):
        fitted.save(tmp_path / "missing" / "g.h5")
    with pytest.raises(ValueError, match="no such gallery"):
        crnr_cli.CRNRClassifier.from_gallery(tmp_path / "g.h5")


def test_the_package_alone_is_light() -> None:
    code = "import sys, crnr_cli; print('numpy' in sys.modules, hasattr(crnr_cli, 'nothing'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_a_missing_scikit_learn_is_named() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import crnr_cli; crnr_cli.CRNRClassifier"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith(f"ImportError: {describe_missing('sklearn', 'an estimator', 'sklearn')}\n")


def test_numbers_are_the_labels_that_the_command_line_takes_them_for(crnr: Runner) -> None:
    y = np.repeat([1.0, 2.0, 3.0], 10)
    X = np.random.default_rng(0).random((30, 5)) + np.eye(5)[y.astype(int)]
    crnr_cli.CRNRClassifier().fit(X, y).save("gallery.h5")
    np.savez("queries.npz", features=X[20:], labels=y[20:])
    record = json.loads(crnr("evaluate", "queries.npz", "--json").out)
    assert record["accuracy"] > 0.5
    assert {entry["name"] for entry in record["classes"]} <= {"1", "2", "3"}


def test_classes_that_would_have_one_name_in_a_file_are_not_saved(tmp_path: Path) -> None:
    """HDF5 ends a text at its last NUL."""
    fitted = crnr_cli.CRNRClassifier().fit(np.eye(4), np.array(["a", "a", "a\0", "a\0"], dtype=object))
    assert fitted.predict(np.eye(4)).tolist() == ["a", "a", "a\0", "a\0"]
    with pytest.raises(ValueError, match="two classes would have the same name"):
        fitted.save(tmp_path / "g.h5")
    assert not list(tmp_path.iterdir())


def test_a_row_of_one_colour_is_refused_by_galleries_of_images(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    for extractor in ("pixels", "gradients"):
        crnr("build", "gallery", "--size", "8", "--extractor", extractor, "-q")
        estimator = crnr_cli.CRNRClassifier.from_gallery("gallery.h5")
        with pytest.warns(NothingToCompare, match=r"^1 row .*; the first is row 1: .* all of one colour$"):
            found = estimator.residuals(np.vstack([np.arange(64), np.full(64, 7)]))
        assert found[0].min() > 0
        assert found[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("color", ["--color", "--gray"])
def test_a_gallery_of_gradients_takes_rows_of_pixels(crnr: Runner, color: str) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=7)
    assert crnr("build", "gallery", "--size", "8", color, "-q").exit == 0
    expected = [row["label"] for row in rows(crnr("classify", "queries", "-q").out)]
    estimator = crnr_cli.CRNRClassifier.from_gallery("gallery.h5")
    files = sorted((crnr.here / "queries").rglob("*.png"))
    mode = "RGB" if color == "--color" else "L"
    X = np.array([np.asarray(Image.open(path).convert(mode)).ravel() for path in files])
    assert estimator.n_features_in_ == X.shape[1]
    assert estimator.predict(X).tolist() == expected


def test_labels_may_differ_in_case() -> None:
    letters = np.array(["a", "A"] * 5)
    X = np.eye(2)[[0, 1] * 5] + 0.1
    assert crnr_cli.CRNRClassifier().fit(X, letters).predict(X).tolist() == letters.tolist()


ODD_VALUES = ("x", None, [1.0], np.array([1.0, 2.0]), float("nan"), float("inf"), -1, 10**400, object(), 1j)


@pytest.mark.parametrize(
    ("estimator", "parameter"),
    [(estimator, name) for estimator in ESTIMATORS for name in estimator().get_params()],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_parameter_that_is_no_number_is_named(estimator: type, parameter: str) -> None:
    """As in scikit-learn, parameters are checked by `fit`, which raises ValueError."""
    X, y = np.random.default_rng(0).random((6, 4)), np.arange(6) % 2
    for value in ODD_VALUES:
        wrong = estimator(**{parameter: value})
        with pytest.raises(ValueError, match=rf"^method {estimator.method}: {parameter} must be "):
            wrong.fit(X, y)


@each
def test_probabilities_are_calibrated(estimator: type[GalleryClassifier], digits: Any) -> None:
    X, y, queries, truths = digits
    fitted = estimator().fit(X, y)
    found = fitted.predict_proba(queries)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_array_equal(found.argmax(axis=1), fitted.predict(queries))
    right = fitted.predict(queries) == truths
    assert found.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.1)
    assert log_loss(truths, found) < 1


def test_probabilities_match_the_command_line(crnr: Runner, digits: Any) -> None:
    """Whether the gallery has them or not; classes are in the order of scikit-learn, not of names."""
    X, y, queries, truths = digits
    fitted = crnr_cli.CRNRClassifier().fit(X, y + 5)  # 10 comes before 9 in a gallery
    expected = fitted.predict_proba(queries).max(axis=1)
    fitted.save("plain.h5")
    np.savez("train.npz", features=X, labels=(y + 5).astype(str))
    np.savez("queries.npz", features=queries, labels=(truths + 5).astype(str))
    assert (
        crnr("build", "train.npz", "-o", "calibrated.h5", "--dtype", "float64", "--calibrate", "-q").exit == 0
    )
    for gallery in ("plain.h5", "calibrated.h5"):
        result = crnr("classify", "queries.npz", "-g", gallery, "--min-probability", "0", "-q")
        assert (result.exit, result.err) == (0, "")
        found = [float(row["probability"]) for row in rows(result.out)]
        np.testing.assert_allclose(found, expected, atol=6e-5)
        loaded = crnr_cli.CRNRClassifier.from_gallery(gallery)
        np.testing.assert_allclose(loaded.predict_proba(queries).max(axis=1), expected, atol=1e-9)


def test_probabilities_need_two_samples_of_a_class() -> None:
    fitted = crnr_cli.CRNRClassifier().fit(np.eye(3), [1, 2, 3])
    with pytest.raises(ValueError, match="every class has only one example"):
        fitted.predict_proba(np.eye(3))


def test_a_single_class_is_certain() -> None:
    fitted = crnr_cli.CRNRClassifier().fit(np.eye(3), [1, 1, 1])
    np.testing.assert_array_equal(fitted.predict_proba(np.eye(3)), np.ones((3, 1)))


LABELS = [
    np.array([3, -1, 12], dtype="int8"),
    np.array([3, 2**62 + 1, 2**62 + 2]),
    np.array([2**64 - 1, 7, 2**63], dtype="uint64"),
    np.array([9, 10, 100], dtype=">i4"),
    np.array([1.0, -2.0, 2.0**60]),
    np.array([0.0, 5.0, 2.0], dtype="float32"),
    np.array([True, False, True]),
    np.array(["3", "20", "b"]),
    np.array(["long name", "x", "1"], dtype=object),
]


@pytest.mark.parametrize("labels", LABELS, ids=lambda labels: labels.dtype.str)
def test_labels_come_back_as_they_were(labels: Any, tmp_path: Path) -> None:
    """Of `predict`, and of `predict` after `save` and `load`."""
    X = np.repeat(np.eye(3) + 0.1, 4, axis=0) + np.random.default_rng(0).random((12, 3)) / 10
    y = np.repeat(labels, 4)
    fitted = crnr_cli.CRNRClassifier().fit(X, y)
    assert fitted.predict(X).dtype == y.dtype
    np.testing.assert_array_equal(fitted.predict(X), y)
    fitted.save(tmp_path / "g.h5")
    loaded = crnr_cli.CRNRClassifier.load(tmp_path / "g.h5")
    like = fitted.classes_.astype(str) if labels.dtype.kind in "UO" else labels
    assert loaded.classes_.dtype == like.dtype.newbyteorder("=")
    np.testing.assert_array_equal(loaded.classes_, fitted.classes_)
    np.testing.assert_array_equal(loaded.predict(X), y)
    np.testing.assert_array_equal(loaded.residuals(X), fitted.residuals(X))
    np.testing.assert_allclose(loaded.predict_proba(X), fitted.predict_proba(X))


def test_a_type_that_the_classes_do_not_have(tmp_path: Path) -> None:
    crnr_cli.CRNRClassifier().fit(np.eye(3), ["1", "01", "x"]).save(tmp_path / "g.h5")
    crnr_cli.CRNRClassifier().fit(np.eye(2), ["1", "01"]).save(tmp_path / "two.h5")
    for dtype in (int, bool, "float32"):
        with pytest.raises(ValueError, match=r"g\.h5: the classes are not of the type "):
            crnr_cli.CRNRClassifier.load(tmp_path / "g.h5", dtype=dtype)
    with pytest.raises(ValueError, match=r"two\.h5: two classes are the same number as int64"):
        crnr_cli.CRNRClassifier.load(tmp_path / "two.h5", dtype=int)
    assert crnr_cli.CRNRClassifier.load(tmp_path / "g.h5").classes_.tolist() == ["01", "1", "x"]


def test_commands_keep_the_type_of_labels_as_far_as_they_can(crnr: Runner, digits: Any) -> None:
    X, y, queries, truths = digits
    crnr_cli.CRNRClassifier().fit(X, y).save("g.h5")
    np.savez("more.npz", features=queries[:50], labels=truths[:50])
    np.savez("named.npz", features=queries[:2], labels=["eleven", "eleven"])
    assert crnr("add", "g.h5", "more.npz", "-q").exit == 0
    assert crnr_cli.CRNRClassifier.load("g.h5").classes_.tolist() == list(range(10))
    assert crnr("remove", "g.h5", "--class", "3", "-q").exit == 0
    assert crnr_cli.CRNRClassifier.load("g.h5").classes_.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert crnr("add", "g.h5", "named.npz", "-q").exit == 0
    opened = crnr_cli.CRNRClassifier.load("g.h5")
    assert opened.classes_.tolist() == ["0", "1", "2", "4", "5", "6", "7", "8", "9", "eleven"]


@each
def test_a_sample_of_zeros_has_no_influence(estimator: type[GalleryClassifier], digits: Any) -> None:
    X, y, queries, _ = digits
    with_zeros = np.insert(X, [0, 50, 50], 0.0, axis=0)
    labels = np.insert(y, [0, 50, 50], [4, 7, 8])
    with pytest.warns(NothingToCompare, match=r"^3 rows .*; the first is row 0: .* all values are zero$"):
        fitted = estimator().fit(with_zeros, labels)
    np.testing.assert_allclose(fitted.residuals(queries), estimator().fit(X, y).residuals(queries), atol=1e-9)


@each
def test_a_class_of_zeros_never_wins(estimator: type[GalleryClassifier], digits: Any) -> None:
    X, y, queries, _ = digits
    with pytest.warns(NothingToCompare):
        fitted = estimator().fit(np.vstack([X, np.zeros((2, 64))]), np.append(y, [-5, -5]))
    np.testing.assert_array_equal(fitted.classes_, [-5, *range(10)])
    np.testing.assert_array_equal(fitted.predict(queries), estimator().fit(X, y).predict(queries))
    assert np.isfinite(fitted.predict_proba(queries)).all()


@each
def test_a_query_of_zeros_is_a_tie(estimator: type[GalleryClassifier], digits: Any) -> None:
    X, y, queries, _ = digits
    asked = queries[:5].copy()
    asked[2] = 0
    fitted = estimator().fit(X, y)
    with pytest.warns(NothingToCompare, match=r"^1 row .*; the first is row 2: "):
        found = fitted.predict_proba(asked)
    np.testing.assert_allclose(found[2], 0.1)
    np.testing.assert_allclose(np.delete(found, 2, axis=0), fitted.predict_proba(np.delete(asked, 2, axis=0)))
    with pytest.warns(NothingToCompare):
        assert fitted.predict(asked)[2] == 0
    two = estimator().fit(X[y < 2], y[y < 2])
    with pytest.warns(NothingToCompare):
        assert two.decision_function(asked)[2] == 0


@pytest.mark.parametrize("neighbors", [0, 5, 40])
@each
def test_the_residuals_of_a_query_of_zeros_are_zero(
    estimator: type[GalleryClassifier], neighbors: int, digits: Any
) -> None:
    X, y, queries, _ = digits
    has_neighbors = "neighbors" in estimator().get_params()
    fitted = estimator(**({"neighbors": neighbors} if has_neighbors else {})).fit(X, y)
    asked = np.vstack([np.zeros(64), queries[:3]])
    with pytest.warns(NothingToCompare):
        found = fitted.residuals(asked)
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1:], fitted.residuals(queries[:3]))


def test_a_gallery_with_a_sample_of_zeros_is_saved(crnr: Runner, digits: Any) -> None:
    X, y, queries, truths = digits
    with pytest.warns(NothingToCompare):
        fitted = crnr_cli.CRNRClassifier().fit(np.vstack([np.zeros(64), X]), np.insert(y, 0, 0))
    fitted.save("g.h5")
    np.savez("q.npz", features=queries, labels=truths)
    answered = crnr("classify", "q.npz", "-g", "g.h5", "--sets", "0.9", "-q")
    assert (answered.exit, answered.err) == (0, "")
    assert [int(row["label"]) for row in rows(answered.out)] == fitted.predict(queries).tolist()
    for command in ("info g.h5", "verify g.h5", "audit g.h5", "explain q.npz#0 -g g.h5"):
        outcome = crnr(*command.split())
        assert outcome.exit == 0, outcome.err
        assert "nan" not in outcome.out


whole_numbers = st.integers(-3, 3)


def probabilities_or_reason(fitted: GalleryClassifier, queries: Any) -> Any:
    """Or why they are missing."""
    try:
        return fitted.predict_proba(queries)
    except ValueError as e:
        return str(e)


@each
@given(data=st.data())
@settings(max_examples=15)
@pytest.mark.filterwarnings("ignore::crnr_cli.errors.NothingToCompare")
def test_scores_probabilities_and_labels_agree(estimator: type[GalleryClassifier], data: Any) -> None:
    """Whatever the rows, with ties, copies and zeros among them, and with samples as queries."""
    n_classes, width = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    X = data.draw(arrays(np.float64, (3 * n_classes, width), elements=whole_numbers))
    y = np.repeat(np.arange(n_classes)[::-1], 3)
    fitted = estimator().fit(X, y)
    queries = np.vstack([X, data.draw(arrays(np.float64, (5, width), elements=whole_numbers))])
    predicted, values = fitted.predict(queries), fitted.decision_function(queries)
    if n_classes == 2:
        np.testing.assert_array_equal(predicted, fitted.classes_[(values > 0).astype(int)])
    else:
        np.testing.assert_array_equal(predicted, fitted.classes_[values.argmax(axis=1)])
    found = probabilities_or_reason(fitted, queries)
    if isinstance(found, str):
        assert found.startswith("every class has only one example, apart from copies")
        return
    np.testing.assert_allclose(found.sum(axis=1), 1)
    of_predicted = found[np.arange(len(queries)), np.searchsorted(fitted.classes_, predicted)]
    np.testing.assert_array_equal(of_predicted, found.max(axis=1))
    if n_classes == 2:
        assert (np.sign(values) * np.sign(found[:, 1] - found[:, 0]) >= 0).all()


def test_two_residuals_that_differ_in_the_last_bit(monkeypatch: pytest.MonkeyPatch, digits: Any) -> None:
    """Their logarithms may be the same, and are for numbers near 0."""
    X, y, _, _ = digits
    fitted = crnr_cli.CRNRClassifier().fit(X[y < 2], y[y < 2])
    near = np.nextafter(1e3, 2e3)
    residuals = np.array([[near, 1e3], [1e3, near], [1e-310, 0], [0, 1e-310], [0, 0], [2, 1], [1, 2]])
    assert np.log(near) == np.log(1e3)
    monkeypatch.setattr(fitted, "residuals", lambda _: residuals)
    np.testing.assert_array_equal(fitted.decision_function(X) > 0, fitted.predict(X) == 1)
    np.testing.assert_allclose(fitted.decision_function(X)[-2:], [np.log(2), -np.log(2)])
