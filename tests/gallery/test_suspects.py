"""Labels that look wrong come first in the ranking, and the counts of classes are right."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from cleanlab.rank import get_label_quality_scores
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from crnr_cli.errors import DataError
from crnr_cli.gallery import suspects as module
from crnr_cli.gallery.suspects import (
    AlikeClasses,
    Folds,
    RankedLabel,
    Suspect,
    compare_samples,
    find_alike_classes,
    find_small_classes,
    find_suspects,
    lead,
    rank_labels,
    residuals_without_doubtful_labels,
    score_doubts,
)
from crnr_cli.methods import Samples, make_method
from crnr_cli.methods.nonnegative import Crnr


def digits(wrong: float, seed: int, per_class: int = 60) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Return samples with some wrong labels, which these are, and the true classes."""
    pixels, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.permutation(np.flatnonzero(truth == k))[:per_class] for k in range(10)])
    pixels, truth = pixels[rows], truth[rows]
    labels = truth.copy()
    spoilt = rng.choice(len(labels), round(wrong * len(labels)), replace=False)
    labels[spoilt] = (labels[spoilt] + rng.integers(1, 10, len(spoilt))) % 10
    order = np.argsort(labels, kind="stable")
    unit = pixels[order] / np.linalg.norm(pixels[order], axis=1, keepdims=True)
    return Samples.of(unit, labels[order]), (labels != truth)[order], truth[order]


def answered(samples: Samples) -> np.ndarray:
    folds = Folds.of(samples, [str(i) for i in range(len(samples.vectors))])
    return residuals_without_doubtful_labels(samples, make_method("crnr", {}), folds)


@pytest.mark.parametrize("wrong", [0.05, 0.1, 0.2])
def test_suspects_rank_at_least_as_well_as_cleanlab(wrong: float) -> None:
    ours, theirs = [], []
    for seed in range(2):
        samples, is_wrong, _ = digits(wrong, seed)
        labels = samples.class_index
        ours.append(average_precision_score(is_wrong, score_doubts(answered(samples), labels, False)[0]))
        shares = cross_val_predict(
            LogisticRegression(max_iter=1000),
            samples.vectors,
            labels,
            cv=StratifiedKFold(10, shuffle=True, random_state=0),
            method="predict_proba",
        )
        theirs.append(average_precision_score(is_wrong, -get_label_quality_scores(labels, shares)))
    assert np.mean(ours) >= np.mean(theirs)
    assert np.mean(ours) > 0.9


def test_listed_suspects_are_wrong_and_suggestions_right() -> None:
    samples, is_wrong, truth = digits(0.1, 0)
    found = find_suspects(answered(samples), samples, False)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    listed = [one.sample for one in found]
    assert is_wrong[listed].mean() > 0.9
    assert is_wrong[listed].sum() > 0.75 * is_wrong.sum()
    assert np.mean([truth[one.sample] == one.suggested for one in found]) > 0.9
    for one in found:
        of_class = np.flatnonzero(samples.class_index == one.suggested)
        similar = samples.vectors[of_class] @ samples.vectors[one.sample]
        assert one.supporters == of_class[np.argsort(-similar)[:3]].tolist()


def test_the_ranking_has_all_labels_and_finds_most_wrong_ones_early() -> None:
    samples, is_wrong, truth = digits(0.05, 4)
    residuals = answered(samples)
    suspects = find_suspects(residuals, samples, False)
    ranking = rank_labels(residuals, samples, False, suspects)
    assert sorted(one.sample for one in ranking) == list(range(len(truth)))
    assert [one.sample for one in ranking[: len(suspects)]] == [one.sample for one in suspects]
    # One row at a time, from the residuals alone.
    for one in ranking:
        own = samples.class_index[one.sample]
        by_residual = np.argsort(residuals[one.sample], kind="stable").tolist()
        assert list(one.candidates) == by_residual[:5]
        best = next(k for k in by_residual if k != own)
        assert one.suggested == best
        mine, other = residuals[one.sample, own], residuals[one.sample, best]
        assert one.score == pytest.approx(1 - other / mine if other < mine else mine / other - 1)
    scores = [one.score for one in ranking[len(suspects) :]]
    assert scores == sorted(scores, reverse=True)  # type: ignore[type-var]
    first = [one.sample for one in ranking[: round(0.05 * len(ranking))]]
    assert is_wrong[first].sum() >= 0.9 * is_wrong.sum()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Galleries of more than 100 samples are large, and 100 samples are typical."""
    monkeypatch.setattr(module, "LARGE", 100)
    monkeypatch.setattr(module, "_TYPICAL", 100)


@pytest.mark.parametrize("wrong", [0.05, 0.2])
def test_neighbours_rank_the_labels_of_a_large_gallery_as_well(wrong: float, large: None) -> None:
    averages, shares = [], []
    for seed in range(2):
        samples, is_wrong, truth = digits(wrong, seed)
        folds = Folds.of(samples, [str(i) for i in range(len(truth))])
        by_few = compare_samples(samples, make_method("crnr", {}), folds)
        assert by_few.neighbors == 50
        everyone = answered(samples)
        averages.append(
            [
                average_precision_score(is_wrong, score_doubts(some, samples.class_index, False)[0])
                for some in (by_few.residuals, everyone)
            ]
        )
        for found in (
            find_suspects(by_few.residuals, samples, False, by_few.typical),
            find_suspects(everyone, samples, False),
        ):
            listed = [one.sample for one in found]
            assert is_wrong[listed].mean() > 0.85
            shares.append(is_wrong[listed].sum() / is_wrong.sum())
    assert np.mean(averages, axis=0)[0] > np.mean(averages, axis=0)[1] - 0.01
    assert np.mean(shares[::2]) > np.mean(shares[1::2]) - 0.05


def test_only_doubtful_and_typical_labels_of_a_large_gallery_are_compared_by_all(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of codes by all grows with the square of the samples: few samples may need it."""
    samples, _, truth = digits(0.01, 0)
    folds = Folds.of(samples, [str(i) for i in range(len(truth))])
    coded = []
    original = module.cross_validated_residuals

    def count(*arguments: Any, **more: Any) -> np.ndarray:
        earlier = arguments[7].copy() if len(arguments) > 7 else np.nan
        found = original(*arguments, **more)
        coded.append((arguments[1], int((found != earlier).all(axis=1).sum())))
        return found

    monkeypatch.setattr(module, "cross_validated_residuals", count)
    compared = compare_samples(samples, Crnr(), folds)
    (by_few, of_few), (by_all, of_all) = coded
    assert by_few.parameters["neighbors"] == 50  # type: ignore[attr-defined]
    assert of_few == len(truth)
    assert by_all == Crnr()
    assert 90 <= of_all <= 100 + 0.1 * len(truth) + 5
    assert compared.typical is not None
    assert 90 <= compared.typical.sum() <= 100
    assert np.isfinite(compared.residuals).all()


@pytest.mark.parametrize(("name", "parameters"), [("nn", {}), ("crnr", {"neighbors": 20})])
def test_methods_without_codes_by_all_stay_as_they_are(
    name: str, parameters: dict[str, int], large: None
) -> None:
    samples, _, truth = digits(0.05, 0, per_class=20)
    folds = Folds.of(samples, [str(i) for i in range(len(truth))])
    method = make_method(name, parameters)
    compared = compare_samples(samples, method, folds)
    assert (compared.typical, compared.neighbors) == (None, 0)
    np.testing.assert_array_equal(
        compared.residuals, residuals_without_doubtful_labels(samples, method, folds)
    )


def test_samples_of_a_large_gallery_that_cannot_be_held_out_have_no_answer(large: None) -> None:
    samples, _, _ = digits(0.0, 0, per_class=20)
    alone = np.zeros((1, samples.vectors.shape[1]))
    alone[0, 0] = 1
    samples = Samples.of(
        np.concatenate([samples.vectors, alone]), np.concatenate([samples.class_index, [10]])
    )
    folds = Folds.of(samples, [str(i) for i in range(201)])
    compared = compare_samples(samples, Crnr(), folds)
    assert np.isnan(compared.residuals).any(axis=1).tolist() == [False] * 200 + [True]
    found = find_suspects(compared.residuals, samples, False, compared.typical)
    assert rank_labels(compared.residuals, samples, False, found)[-1].sample == 200


def test_a_class_without_a_typical_sample_leads_as_far_as_the_others() -> None:
    """The usual margin of class 0 is 0.5; half of it is enough for class 1, which has no typical sample."""
    residuals = np.array([[0.4, 0.8], [0.4, 0.8], [0.9, 0.6], [0.9, 0.8], [0.8, 0.4]])
    samples = Samples.of(np.eye(5), np.array([0, 0, 0, 0, 1]))
    typical = np.array([True, True, False, False, False])
    assert [one.sample for one in find_suspects(residuals, samples, False, typical)] == [2]


def test_labels_that_could_not_be_compared_come_last() -> None:
    samples = Samples.of(np.eye(4), np.array([0, 0, 1, 1]))
    residuals = np.array([[np.nan, np.nan], [0.2, 0.8], [0.5, 0.9], [0.9, 0.3]])
    ranking = rank_labels(residuals, samples, False, [])
    assert [one.sample for one in ranking] == [2, 3, 1, 0]
    assert (ranking[-1].suggested, ranking[-1].score, list(ranking[-1].candidates)) == (None, None, [])


def test_scores_of_negated_scores_are_at_least_minus_one() -> None:
    samples = Samples.of(np.eye(4), np.array([0, 0, 1, 1]))
    residuals = np.array([[-2000.0, 0], [-3, 0.5], [-0.5, -0.25], [1, -1]])
    ranking = rank_labels(residuals, samples, True, [])
    assert [one.sample for one in ranking] == [2, 3, 1, 0]
    expected = [1 - np.exp(-0.25), np.exp(-2) - 1, np.exp(-3.5) - 1, -1]
    assert [one.score for one in ranking] == pytest.approx(expected)


def test_the_score_compares_the_own_class_with_the_best_other() -> None:
    residuals = np.array([[0.5, 0.2, 0.4], [0.1, 0.4, 0.8], [np.nan] * 3])
    score, best = score_doubts(residuals, np.array([0, 0, 1]), False)
    np.testing.assert_allclose(score, [1 - 0.2 / 0.5, 1 - 0.4 / 0.1, np.nan])
    assert best[:2].tolist() == [1, 1]
    signed, _ = score_doubts(residuals[:2], np.array([0, 0]), True)
    np.testing.assert_allclose(signed, [1 - np.exp(0.2 - 0.5), 1 - np.exp(0.4 - 0.1)])


def test_confusable_classes_are_counted_as_scikit_learn_counts() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 20)
    label = np.where(rng.random(80) < 0.4, rng.integers(0, 4, 80), truth)
    residuals = 1 - np.eye(4)[label]
    matrix = confusion_matrix(truth, label)
    expected = {
        (a, b): (matrix[a, b], matrix[b, a])
        for a in range(4)
        for b in range(a + 1, 4)
        if matrix[a, b] + matrix[b, a] >= 4  # a tenth of both
    }
    found = find_alike_classes(residuals, truth)
    assert {pair.classes: pair.confused for pair in found} == expected
    assert len(expected) > 1
    assert [pair.share for pair in found] == sorted((sum(n) / 40 for n in expected.values()), reverse=True)


def test_copies_do_not_make_a_class_large() -> None:
    samples = Samples.of(np.eye(12), np.repeat([0, 1], [6, 6]))
    assert find_small_classes(samples, np.array([0, 0, 0, 0, 4, 5, 6, 7, 8, 9, 10, 11])) == [(0, 3)]


def test_a_suggested_class_leads_half_as_far_as_usual() -> None:
    """Class 1 usually leads by 0.8, so that a lead of 0.4 over the label is enough, and 0.36 is not."""
    residuals = np.array(
        [
            [0.5, 0.8, 0.9],
            [0.5, 0.3, 0.9],  # 1 - 0.3 / 0.5
            [0.5, 0.32, 0.9],  # 1 - 0.32 / 0.5
            [0.8, 0.16, 0.9],
            [0.9, 0.18, 0.95],
            [0.2, 0.1, 0.9],
            [0.2, 0.9, 0.1],
        ]
    )
    samples = Samples.of(np.eye(7), np.array([0, 0, 0, 1, 1, 1, 2]))
    usual = np.median([1 - 0.16 / 0.8, 1 - 0.18 / 0.9, 1 - 0.1 / 0.2])
    assert usual == pytest.approx(0.8)
    (found,) = find_suspects(residuals, samples, False)
    assert (found.sample, found.suggested, found.score) == (1, 1, pytest.approx(0.4))
    assert sorted(found.supporters) == [3, 4, 5]


def test_a_class_that_wins_none_of_its_own_examples_is_not_suggested() -> None:
    residuals = np.array([[0.5, 0.1, 0.9], [0.1, 0.5, 0.9], [0.1, 0.5, 0.9], [0.9, 0.9, 0.1]])
    samples = Samples.of(np.eye(4), np.array([0, 1, 1, 2]))
    assert find_suspects(residuals, samples, False) == []


def test_the_lead_is_the_margin_over_the_second_best() -> None:
    residuals = np.array([[0.4, 0.9, 0.1], [3.0, 1.0, 2.0]])
    np.testing.assert_allclose(lead(residuals, False), [1 - 0.1 / 0.4, 1 - 1 / 2])
    np.testing.assert_allclose(lead(residuals, True), [1 - np.exp(0.1 - 0.4), 1 - np.exp(1 - 2)])


def test_confusions_with_a_class_without_answers_count() -> None:
    """No example of the last class was held out; one confusion alone, or a share below a tenth, is chance."""
    residuals = 1 - np.eye(3)[[2, 2, 0, 0, 1, 1, 1, 0, 1, 1]]
    truth = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    (found,) = find_alike_classes(residuals, truth)
    assert (found.classes, found.confused, found.share) == ((0, 2), (2, 0), 0.5)
    residuals = np.concatenate([residuals, 1 - np.eye(3)[[0] * 17]])
    assert find_alike_classes(residuals, np.append(truth, [0] * 17)) == []
    residuals[[0, 1]] = np.nan
    assert find_alike_classes(residuals, np.append(truth, [0] * 17)) == []


def test_labels_are_judged_in_little_memory_besides_the_residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    """With very many classes, the residuals are the largest array, and must not be copied several times."""
    rng = np.random.default_rng(0)
    truth = np.sort(np.arange(4000) % 1000)
    residuals = rng.uniform(0.5, 1, (4000, 1000)).astype(np.float32)
    residuals[np.arange(4000), truth] = rng.uniform(0.2, 0.6, 4000)
    residuals[7] = np.nan
    samples = Samples.of(np.ones((4000, 1), np.float32), truth)

    def judge() -> tuple[list[Suspect], list[RankedLabel], list[AlikeClasses]]:
        suspects = find_suspects(residuals, samples, False)
        ranking = rank_labels(residuals, samples, False, suspects)
        return suspects, ranking, find_alike_classes(residuals, truth)

    tracemalloc.start()
    try:
        found = judge()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * residuals.nbytes
    monkeypatch.setattr(module, "_JUDGED", residuals.size)
    assert judge() == found
    monkeypatch.setattr(module, "_JUDGED", 1)
    assert judge() == found


def test_a_tenth_of_confusions_is_enough() -> None:
    truth = np.repeat([0, 1], 10)
    label = truth.copy()
    label[[0, 10]] = 1, 0
    (found,) = find_alike_classes(1 - np.eye(2)[label], truth)
    assert (found.confused, found.share) == ((1, 1), 0.1)


def test_classes_with_four_different_examples_are_small() -> None:
    samples = Samples.of(np.eye(9), np.repeat([0, 1], [5, 4]))
    assert find_small_classes(samples, np.arange(9)) == [(1, 4)]


@pytest.mark.parametrize(
    ("doubtful", "expected"),
    [
        ([0], [0]),
        ([0, 1], [0, 1]),  # half of the class remains
        ([0, 1, 2], []),
        ([0, 2, 4], [4]),  # the others of class 0 are in one fold
        ([4, 5], []),
        ([7], []),  # never held out
    ],
)
def test_doubtful_examples_are_used_if_too_few_others_remain(
    doubtful: list[int], expected: list[int]
) -> None:
    samples = Samples.of(np.eye(8), np.array([0, 0, 0, 0, 1, 1, 1, 2]))
    folds = Folds(np.array([0, 1, 0, 1, 0, 1, 2, -1]), np.arange(8))
    mask = folds.doubtful_mask(samples, np.isin(np.arange(8), doubtful))
    assert np.flatnonzero(mask).tolist() == expected
    assert folds.is_held.tolist() == [True] * 7 + [False]


@pytest.mark.parametrize("classes", [[0, 0, 0], [0, 1, 2]], ids=["one class", "one example each"])
def test_folds_need_two_classes_and_two_examples(classes: list[int]) -> None:
    samples = Samples.of(np.eye(3), np.array(classes))
    with pytest.raises(DataError) as refused:
        Folds.of(samples, ["a", "b", "c"])
    assert str(refused.value) == (
        "there must be two classes, and two different examples in one of them, so that examples can be "
        "compared with others; add examples"
    )
