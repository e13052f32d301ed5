"""Every sample is answered by the samples of the other folds, and by no copy of itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from crnr_cli.errors import DataError
from crnr_cli.gallery.suspects import Folds, cross_validated_residuals
from crnr_cli.methods import Samples, fit_method, make_method
from crnr_cli.methods.base import residuals


def made(per_class: int = 8, n_classes: int = 3, seed: int = 0) -> Samples:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), per_class)
    vectors = rng.normal(size=(n_classes, 6))[labels] + rng.normal(size=(len(labels), 6))
    return Samples.of(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), labels)


def hashes(samples: Samples) -> list[str]:
    return [str(i) for i in range(len(samples.vectors))]


def test_cross_validated_labels_match_scikit_learn() -> None:
    samples = made(per_class=20)
    folds = Folds.of(samples, hashes(samples))
    found = cross_validated_residuals(samples, make_method("nn", {}), folds).argmin(axis=1)
    expected = cross_val_predict(
        KNeighborsClassifier(1), samples.vectors, samples.class_index, cv=PredefinedSplit(folds.fold_of)
    )
    assert found.tolist() == expected.tolist()
    assert 0 < (found != samples.class_index).sum() < len(found)


def test_distrusted_samples_are_classified_but_never_used() -> None:
    samples, method = made(), make_method("crnr", {})
    folds = Folds.of(samples, hashes(samples))
    distrusted = np.arange(len(samples.vectors)) % 5 == 0
    found = cross_validated_residuals(samples, method, folds, distrusted, jobs=2)
    for i, fold in enumerate(folds.fold_of.tolist()):  # one by one
        kept = (folds.fold_of != fold) & ~distrusted
        rest = Samples.of(samples.vectors[kept], samples.class_index[kept])
        expected = residuals(method, rest, fit_method(method, rest), samples.vectors[i : i + 1])[0]
        np.testing.assert_allclose(found[i], expected, rtol=1e-9)


def test_a_copy_does_not_answer_for_its_sample() -> None:
    samples = made()
    vectors = samples.vectors.copy()
    vectors[1] = vectors[0]
    folds = Folds.of(Samples(vectors, samples.edges), hashes(samples))
    assert folds.fold_of[0] == folds.fold_of[1]
    assert folds.copies[0] == folds.copies[1]


def test_a_class_of_one_sample_has_no_answer() -> None:
    samples = made()
    labels = np.array([0] * 12 + [1] * 11 + [2])
    alone = Samples.of(samples.vectors, labels)
    folds = Folds.of(alone, hashes(alone))
    found = cross_validated_residuals(alone, make_method("crnr", {}), folds)
    assert np.isnan(found).all(axis=1).tolist() == [False] * 23 + [True]
    assert folds.is_held.tolist() == [True] * 23 + [False]


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_nothing_to_compare_with_is_refused(labels: list[int]) -> None:
    samples = Samples.of(np.eye(4), np.array(labels))
    with pytest.raises(DataError, match="there must be two classes"):
        Folds.of(samples, list("abcd"))


@given(st.data())
def test_every_class_keeps_samples_in_every_fold(data: st.DataObject) -> None:
    samples = made(per_class=data.draw(st.integers(2, 6)))
    folds = Folds.of(samples, hashes(samples))
    n = len(samples.vectors)
    doubtful = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    distrusted = folds.doubtful_mask(samples, doubtful)
    assert not (distrusted & ~doubtful).any()
    for fold in np.unique(folds.fold_of):
        left = samples.class_index[(folds.fold_of != fold) & ~distrusted]
        assert set(left.tolist()) == {0, 1, 2}
