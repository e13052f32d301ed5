"""svm and softmax: linear classifiers. scikit-learn is needed to train them, but not to classify."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import CrnrError, DataError
from crnr_cli.methods.base import Method, Samples, State
from crnr_cli.records import dataclass
from crnr_cli.system.extras import why_missing

_SMALLEST_C = 1e-12


@dataclass(frozen=True, kw_only=True)
class Trained(Method):
    """One score per class, w_i'y + b_i. The residual is the negated score, so that the smallest wins."""

    signed: ClassVar[bool] = True
    c: float  # the inverse strength of the regularization

    def __post_init__(self) -> None:
        self._require_above_0("c")
        # Smaller values are of no use, and with some of them liblinear never returns.
        self._require(self.c >= _SMALLEST_C, f"c must be at least {_SMALLEST_C:g}, not {self.c:g}")

    def why_unavailable(self) -> str | None:
        return why_missing("baselines", f"method {self.name}", "sklearn")

    @abstractmethod
    def make_classifier(self) -> Any:
        """Return the scikit-learn estimator, not fitted yet."""

    def fit(self, samples: Samples) -> State:
        if reason := self.why_unavailable():
            raise CrnrError(reason)
        from sklearn.exceptions import ConvergenceWarning

        if samples.n_classes < 2:
            raise DataError(f"method {self.name} needs two or more classes, but the gallery has only one")
        classifier = self.make_classifier()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                classifier.fit(samples.vectors.astype(np.float64), samples.class_index)
        except ConvergenceWarning as e:
            raise DataError(
                f"method {self.name} did not converge at c = {self.c:g}; choose a smaller --c"
            ) from e
        weights, offsets = classifier.coef_, classifier.intercept_
        if samples.n_classes == 2:  # scikit-learn has one score for both, above 0 for the second class
            weights, offsets = np.vstack([-weights, weights]), np.concatenate([-offsets, offsets])
        dtype = samples.vectors.dtype
        return {"weights": weights.astype(dtype), "offsets": offsets.astype(dtype)}

    def reorder(self, samples: Samples, state: State, classes: Array) -> State:
        return {key: array[classes] for key, array in state.items()}

    def residuals(self, samples: Samples, state: State, queries: Array) -> Array:
        values: Array = queries @ state["weights"].T + state["offsets"]
        return -values


@dataclass(frozen=True, kw_only=True)
class Svm(Trained):
    """Linear support vector machine, one class against all others."""

    name: ClassVar[str] = "svm"
    c: float = 1.0

    def make_classifier(self) -> Any:
        from sklearn.svm import LinearSVC

        return LinearSVC(C=self.c, max_iter=20_000, random_state=0)


@dataclass(frozen=True, kw_only=True)
class Softmax(Trained):
    """Logistic regression on all classes at once.

    scikit-learn's default of c = 1 suits features of unit variance. The features of unit vectors are far
    smaller, and the weights would stay near zero.
    """

    name: ClassVar[str] = "softmax"
    c: float = 100.0

    def make_classifier(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=self.c, max_iter=2000)
