"""The methods as scikit-learn estimators. They read and write the gallery files of the command line."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as e:
    from crnr_cli.system.extras import describe_missing

    raise ImportError(describe_missing("sklearn", "an estimator", "sklearn")) from e

from crnr_cli.arrays import Array, Batch, to_dense
from crnr_cli.errors import CrnrError, NothingToCompare
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.fit import make_gallery, write_gallery
from crnr_cli.gallery.gallery import LABEL_TYPES, FittedGallery, SampleTable
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.methods import make_method
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.methods.ridge import Crc, Croc, Procrc
from crnr_cli.methods.sparse import Src
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.probability import logarithms
from crnr_cli.sources.formats.labels import label_text
from crnr_cli.sources.tables import row_hash


class GalleryClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The base of all estimators. Every row is scaled to unit length.

    A row of zeros stays zero, as with scikit-learn's `normalize`, with a warning `NothingToCompare`. As a
    sample, it has no influence; a class of zero rows alone is never preferred to another. As a query, it has
    the residual 0 for all classes, so all are equally probable and the first one is predicted.

    `predict_proba` is calibrated by cross-validation on the samples when it is first called: some of them are
    held out and classified by the others. It needs a class with two samples that are not copies.

    Attributes after `fit` or `load`: `classes_`, `n_features_in_`, `feature_names_in_` if the data has names,
    and `gallery_`, the content of a gallery file.
    """

    method: ClassVar[str]
    # Signed codes depend only on the span of a class. scikit-learn's checks use 2-D data, where every class
    # spans the plane, so scores are poor there.
    by_span: ClassVar[bool] = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.by_span
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Store the samples and fit the method. Float32 stays float32, everything else becomes float64."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        names = _class_names(self.classes_)
        recipe = Recipe(X.shape[1])
        with _as_value_error():
            table = SampleTable(
                names=[f"row {i}" for i in range(len(X))],
                labels=[names[i] for i in index],
                hashes=[row_hash(row) for row in X],
            )
            vectors = _unit_vectors(recipe, X, str(X.dtype))
            gallery, _ = make_gallery(
                ReadSamples(recipe=recipe, table=table, values=vectors),
                make_method(self.method, self.get_params()),
            )
        self.gallery_ = replace(gallery, label_type=_label_type(self.classes_))
        # A gallery sorts its classes by name: 10 comes before 9.
        column_of = {name: i for i, name in enumerate(self.gallery_.classes)}
        self._columns = [column_of[name] for name in names]
        return self

    def residuals(self, X: Any) -> Array:
        """Return (m, K): the distance of every row from every class in `classes_`; the smallest wins."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        gallery = self.gallery_
        vectors = _unit_vectors(gallery.recipe, X, gallery.dtype)
        step = gallery.method.batch_size(gallery.samples)
        parts = [
            to_dense(gallery.residuals(vectors[start : start + step]))
            for start in range(0, len(vectors), step)
        ]
        return np.concatenate(parts)[:, self._columns]

    def decision_function(self, X: Any) -> Array:
        """Return the negated residuals or, with two classes, one value per row, as in scikit-learn.

        The value for two classes is the logarithm of the ratio of their residuals, positive if the second
        class wins. It has the order of `predict_proba`, as scikit-learn requires.
        """
        residuals = self.residuals(X)
        if residuals.shape[1] != 2:
            return -residuals
        values = logarithms(residuals)
        ratios: Array = values[:, 0] - values[:, 1]
        # Two residuals that differ in the last bit may have the same logarithm, but only one of them wins.
        second_wins = residuals[:, 1] < residuals[:, 0]
        return np.where(second_wins, np.maximum(ratios, np.finfo(np.float64).tiny), np.minimum(ratios, 0))

    def predict(self, X: Any) -> Array:
        """Return the class with the smallest residual; ties go to the first class."""
        winners = self.residuals(X).argmin(axis=1)
        labels: Array = self.classes_[winners]
        return labels

    def predict_proba(self, X: Any) -> Array:
        """Return (m, K): the probability of each class of `classes_`, for every row."""
        residuals = self.residuals(X)
        if residuals.shape[1] == 1:
            return np.ones_like(residuals)
        with _as_value_error():
            certainty = self.gallery_.certainty
        return to_dense(certainty.probabilities(residuals, self.gallery_.method.signed))

    def save(self, path: str | Path) -> None:
        """Write a gallery that `crnr classify` can read. Class 3 is stored as "3"; `load` restores 3."""
        check_is_fitted(self)
        with _as_value_error():
            write_gallery(self.gallery_, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, dtype: Any = None) -> Self:
        """Return a fitted estimator from a gallery that `save` or `crnr build` wrote with this method.

        It expects rows of the data that the gallery was made from: features, outputs of its network, or
        pixels of images of its working size, from 0 to 255, row by row. Classes have the type of the `y` that
        was saved. In a gallery that `crnr build` wrote, they are text, unless `dtype` is given, such as int.
        """
        with _as_value_error():
            gallery = load_gallery(Path(path))
        if gallery.method.name != cls.method:
            raise ValueError(f"{path}: built with the method {gallery.method.name}, not with {cls.method}")
        estimator = cls(**gallery.parameters)
        estimator.gallery_ = gallery
        estimator.classes_, estimator._columns = _typed_classes(path, gallery, dtype)
        estimator.n_features_in_ = _n_columns(gallery.recipe)
        return estimator

    from_gallery = load


@contextmanager
def _as_value_error() -> Iterator[None]:
    """Raise ValueError, which users of scikit-learn expect."""
    try:
        yield
    except CrnrError as e:
        raise ValueError(str(e)) from e


def _class_names(classes: Array) -> list[str]:
    names = [label_text(label) for label in classes.tolist()]
    if "" in names:
        raise ValueError("a label is an empty string; give it a name")
    return names


def _label_type(classes: Array) -> str:
    """Return the name of the type of labels that are numbers or truth values; empty for text."""
    dtype = np.array(classes.tolist()).dtype if classes.dtype.kind == "O" else classes.dtype
    return dtype.name if dtype.name in LABEL_TYPES else ""


def _typed_classes(path: str | Path, gallery: FittedGallery, dtype: Any) -> tuple[Array, list[int]]:
    """Return the classes of a gallery in ascending order, and their columns in it, in name order."""
    if dtype is None:
        with suppress(ValueError):  # a class of another type has been added since, or a class was renamed
            return _as_type(path, gallery.classes, np.dtype(gallery.label_type or str))
    return _as_type(path, gallery.classes, np.dtype(dtype or str))


def _as_type(path: str | Path, names: list[Any], kind: np.dtype[Any]) -> tuple[Array, list[int]]:
    try:
        if kind.kind == "b":
            names = [{"False": False, "True": True}[name] for name in names]
        elif kind.kind in "iu":
            names = list(map(int, names))
        labels = np.array(names, dtype=kind)
    except (KeyError, OverflowError, ValueError) as e:
        raise ValueError(f"{path}: the classes are not of the type {kind}; leave out dtype") from e
    classes, columns = np.unique(labels, return_index=True)
    if len(classes) < len(labels):
        raise ValueError(f"{path}: two classes are the same number as {kind}; leave out dtype")
    return classes, columns.tolist()


def _takes_pixels(recipe: Recipe) -> bool:
    """Return whether rows are pixels: only the outputs of a network can be computed elsewhere."""
    return recipe.extractor is not None and not isinstance(recipe.extractor, Network)


def _n_columns(recipe: Recipe) -> int:
    request = recipe.request(0) if _takes_pixels(recipe) else None
    return math.prod(request.size or ()) * request.bands if request else recipe.n_inputs


def _unit_vectors(recipe: Recipe, X: Array, dtype: str) -> Array:
    batch = Batch([""] * len(X), [None] * len(X), X, len(X))
    if _takes_pixels(recipe):  # one colour is refused as in images
        batch = recipe.open().raw(batch)
    batch = recipe.apply(batch, dtype)
    if failed := batch.failures():
        row, error = failed[0]
        warnings.warn(NothingToCompare(len(failed), row, str(error)), stacklevel=3)
    vectors = np.zeros((len(X), recipe.n_outputs), batch.values.dtype)
    vectors[batch.rows] = batch.values
    return vectors


class CRNRClassifier(GalleryClassifier):
    """Class-specific residual constraint non-negative representation."""

    method = Crnr.name

    def __init__(
        self,
        *,
        lam: float = Crnr.lam,
        mu: float = Crnr.mu,
        iterations: int = Crnr.iterations,
        tol: float = Crnr.tol,
        factor: str = Crnr.factor,
        neighbors: int = 0,
        index: str = "exact",
    ) -> None:
        self.lam = lam
        self.mu = mu
        self.iterations = iterations
        self.tol = tol
        self.factor = factor
        self.neighbors = neighbors
        self.index = index


class NRCClassifier(GalleryClassifier):
    """Non-negative representation."""

    method = Nrc.name

    def __init__(
        self,
        *,
        mu: float = Nrc.mu,
        iterations: int = Nrc.iterations,
        tol: float = Nrc.tol,
        factor: str = Nrc.factor,
        neighbors: int = 0,
        index: str = "exact",
    ) -> None:
        self.mu = mu
        self.iterations = iterations
        self.tol = tol
        self.factor = factor
        self.neighbors = neighbors
        self.index = index


class CRCClassifier(GalleryClassifier):
    """Collaborative representation."""

    method = Crc.name
    by_span = True

    def __init__(self, *, lam: float = Crc.lam, neighbors: int = 0, index: str = "exact") -> None:
        self.lam = lam
        self.neighbors = neighbors
        self.index = index


class SRCClassifier(GalleryClassifier):
    """Sparse representation."""

    method = Src.name
    by_span = True

    def __init__(
        self,
        *,
        lam: float = Src.lam,
        tol: float = Src.tol,
        iterations: int = Src.iterations,
        neighbors: int = 0,
        index: str = "exact",
    ) -> None:
        self.lam = lam
        self.tol = tol
        self.iterations = iterations
        self.neighbors = neighbors
        self.index = index


class NSCClassifier(GalleryClassifier):
    """Nearest subspace."""

    method = "nsc"
    by_span = True


class CROCClassifier(GalleryClassifier):
    """Collaborative representation optimized classifier."""

    method = Croc.name
    by_span = True

    def __init__(self, *, lam: float = Croc.lam, weight: float = Croc.weight) -> None:
        self.lam = lam
        self.weight = weight


class ProCRCClassifier(GalleryClassifier):
    """Probabilistic collaborative representation."""

    method = Procrc.name
    by_span = True

    def __init__(self, *, lam: float = Procrc.lam, gamma: float = Procrc.gamma) -> None:
        self.lam = lam
        self.gamma = gamma
