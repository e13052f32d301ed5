"""Folds are fair, and one pass answers as many separate fits would."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import product
from threading import Event

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.arrays import to_dense
from crnr_cli.errors import DataError, UsageError
from crnr_cli.methods import fit_method, folds, make_method
from crnr_cli.methods.base import RefittedSamples, Samples, State, residuals, winners_after
from crnr_cli.methods.folds import (
    Fold,
    first_of_copies_mask,
    group_copies,
    held_out_residuals,
    hold_out_few,
    hold_out_share,
    stratified_folds,
)
from crnr_cli.methods.nearest import Nn
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.solvers.admm import class_residuals_by_gram
from crnr_cli.solvers.factors import cheaper_form
from crnr_cli.system import cores, memory
from helpers.method_checks import problem


def unit_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    values = np.abs(np.random.default_rng(seed).normal(size=(n, d)))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(2, 6), st.integers(0, 3))
def test_folds_are_even_in_size_and_in_every_class(sizes: list[int], count: int, seed: int) -> None:
    class_index = np.repeat(np.arange(len(sizes)), sizes)
    folds = stratified_folds(class_index, count, seed)
    assert np.array_equal(folds == -1, np.repeat(np.array(sizes) == 1, sizes))
    assert folds.max() < count
    for k, size in enumerate(sizes):
        if size > 1:
            in_fold = np.bincount(folds[class_index == k], minlength=count)
            assert np.ptp(in_fold) <= 1
            assert in_fold.max() < size  # never is a whole class held back
    assert np.ptp(np.bincount(folds[folds >= 0], minlength=count)) <= 1


@st.composite
def samples_with_copies(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of every sample, and a number for its content, which several classes may share."""
    sizes = draw(st.lists(st.integers(1, 10), min_size=2, max_size=6))
    class_index = np.repeat(np.arange(len(sizes)), sizes)
    contents = draw(st.lists(st.integers(0, 20), min_size=len(class_index), max_size=len(class_index)))
    return class_index, np.array(contents)


@given(samples_with_copies(), st.integers(2, 6), st.integers(0, 3))
def test_copies_are_held_out_together_and_a_class_never_completely(
    samples: tuple[np.ndarray, np.ndarray], count: int, seed: int
) -> None:
    class_index, contents = samples
    folds = stratified_folds(class_index, count, seed, contents)
    masks = [folds == number for number in range(count)]
    with suppress(UsageError):  # if nothing can be held out
        masks.append(hold_out_share(class_index, 0.5, np.random.default_rng(seed), contents))
    for held in masks:
        assert not set(contents[held]) & set(contents[~held])
        assert set(class_index[~held]) == set(class_index)


@given(samples_with_copies())
@example((np.zeros(4, np.int64), np.array([0, 6, 6, 1])))  # the last one shows that the others are copies
def test_samples_of_equal_values_or_hashes_are_copies(samples: tuple[np.ndarray, np.ndarray]) -> None:
    """Compared with all pairs, and pairs of pairs: a copy of a copy is a copy."""
    class_index, contents = samples
    rows, hashes = (contents // 2)[:, None] * np.ones(3), [f"{value % 5}" for value in contents]
    alike = np.array(
        [
            [a == b or (x == y).all() for b, y in zip(hashes, rows, strict=True)]
            for a, x in zip(hashes, rows, strict=True)
        ]
    )
    for _ in range(6):  # 2^6 > the number of samples in a chain
        alike = alike @ alike
    found = group_copies(rows, hashes)
    np.testing.assert_array_equal(found[:, None] == found, alike)
    asked = first_of_copies_mask(class_index, found)
    pairs = list(zip(class_index.tolist(), found.tolist(), strict=True))
    assert sorted(pairs[i] for i in np.flatnonzero(asked)) == sorted(set(pairs))


@given(st.data(), st.sampled_from(["uint8", "uint16", "float32", "float64"]), st.sampled_from([1, 9, 2**21]))
def test_copies_are_found_in_rows_of_any_width_however_many_are_looked_at_at_once(
    data: st.DataObject, dtype: str, at_once: int
) -> None:
    n, width = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 7))
    values = data.draw(st.lists(st.integers(0, 1), min_size=n * width, max_size=n * width))
    rows = np.array(values, dtype).reshape(n, width)
    as_lists = rows.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folds, "_WORDS", at_once)
        found = group_copies(rows)
    assert found.tolist() == [as_lists.index(row) for row in as_lists]


def test_only_samples_that_have_a_copy_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that differ by small numbers, many of which have the same sum."""
    hashed: list[bytes] = []

    def note(content: bytes, **options: int) -> object:
        hashed.append(content)
        return blake2b(content, **options)

    monkeypatch.setattr(folds, "blake2b", note)
    rows = np.array(list(product(range(4), repeat=4)), np.uint32)
    names = [f"{i:064x}" for i in range(256)]
    assert group_copies(rows, names).tolist() == list(range(256))
    assert hashed == []
    rows[[9, 200]] = rows[3]
    assert np.flatnonzero(group_copies(rows, names) != np.arange(256)).tolist() == [9, 200]
    assert hashed == 3 * [rows[3].tobytes()]
    hashed.clear()
    names[150] = names[100]
    assert np.flatnonzero(group_copies(rows, names) != np.arange(256)).tolist() == [9, 150, 200]
    assert hashed == [rows[i].tobytes() for i in (3, 9, 100, 150, 200)]


def test_residuals_by_gram_are_the_residuals() -> None:
    X, Y = unit_rows(20, 9).T, unit_rows(5, 9, seed=1).T
    edges, c = np.array([0, 4, 13, 20]), np.random.default_rng(2).normal(size=(20, 5))
    expected = [
        [np.linalg.norm(Y[:, j] - X[:, a:b] @ c[a:b, j]) for j in range(5)]
        for a, b in ((0, 4), (4, 13), (13, 20))
    ]
    np.testing.assert_allclose(class_residuals_by_gram(X.T @ X, edges, c, X.T @ Y), expected, rtol=1e-10)


@pytest.mark.parametrize(("n_features", "form"), [(40, "dense"), (4, "low-rank")])
@pytest.mark.parametrize("method", [Crnr(lam=0.3, mu=0.3), Crnr(lam=0.0), Nrc(mu=1.0)])
def test_one_pass_covers_every_number_of_iterations(n_features: int, form: str, method: Crnr | Nrc) -> None:
    vectors, class_index = unit_rows(60, n_features), np.repeat(np.arange(4), 15)
    held = stratified_folds(class_index, 4) == 1
    fold = Fold(Samples.of(vectors[~held], class_index[~held]), vectors[held], class_index[held])
    counts = (2, 5, 9)
    assert cheaper_form(fold.samples.edges, n_features, method.class_weight, 9) == form
    winners = winners_after(method, fold, counts)
    assert ("gram" in vars(fold)) == (form == "dense")  # computed only where that is cheaper
    assert method.variants(counts) == [replace(method, iterations=count) for count in counts]
    for row, count in zip(winners, counts, strict=True):
        separate = replace(method, iterations=count)
        state = separate.fit(fold.samples)
        expected = separate.residuals(fold.samples, state, fold.queries).argmin(axis=1)
        assert np.array_equal(row, expected)


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.sampled_from([0.1, 0.3, 0.5, 0.9, 1.0]),
    st.integers(0, 99),
)
def test_a_share_of_every_class_is_held_out_and_never_all(sizes: list[int], share: float, seed: int) -> None:
    class_index = np.repeat(np.arange(len(sizes)), sizes)
    expected = [min(round(share * size), size - 1) for size in sizes]
    rng, copies = np.random.default_rng(seed), np.arange(len(class_index))
    if not any(expected):
        words = f"--holdout {share:g} leaves no example to test with; hold out more, or give --test"
        with pytest.raises(UsageError) as error:
            hold_out_share(class_index, share, rng, copies)
        assert str(error.value) == words
    else:
        held = hold_out_share(class_index, share, rng, copies)
        assert held.dtype == bool
        assert [int(held[class_index == k].sum()) for k in range(len(sizes))] == expected


def test_held_out_samples_differ_between_draws() -> None:
    class_index, copies = np.repeat([0, 1], 20), np.arange(40)
    first, again, other = (
        hold_out_share(class_index, 0.5, np.random.default_rng(seed), copies).tolist() for seed in (1, 1, 2)
    )
    assert first == again != other
    folds = [stratified_folds(class_index, 4, seed).tolist() for seed in (1, 1, 2)]
    assert folds[0] == folds[1] != folds[2]
    assert stratified_folds(class_index, 4).tolist() == stratified_folds(class_index, 4, 0).tolist()
    few = [hold_out_few(class_index, 5, copies, seed).tolist() for seed in (0, 1)]
    assert hold_out_few(class_index, 5, copies).tolist() == few[0] != few[1]


def test_first_of_copies_mask_is_boolean() -> None:
    mask = first_of_copies_mask(np.array([0, 0, 1]), np.array([5, 5, 5]))
    assert (mask.dtype, int(mask.sum())) == (bool, 2)


def test_no_samples_have_no_copies() -> None:
    assert group_copies(np.empty((0, 3))).dtype == np.int64


def plain_folds(class_index: np.ndarray, count: int, seed: int, copies: np.ndarray) -> list[int]:
    """Class by class and sample by sample, as one would deal cards."""
    rng = np.random.default_rng(seed)
    folds: dict[int, int] = {}
    dealt = 0
    for k in np.unique(class_index):
        different = list(dict.fromkeys(copies[rng.permutation(np.flatnonzero(class_index == k))].tolist()))
        if len(different) == 1:
            folds[different[0]] = -1
            continue
        for group in different:
            folds.setdefault(group, dealt % count)
            dealt += 1
    for k in np.unique(class_index):
        groups = copies[class_index == k].tolist()
        if len({folds[group] for group in groups}) == 1:
            folds[groups[0]] = -1
    return [folds[group] for group in copies.tolist()]


def plain_held_out(
    class_index: np.ndarray, share: float, rng: np.random.Generator, copies: np.ndarray
) -> list[bool]:
    is_held: dict[int, bool] = {}
    for k in np.unique(class_index):
        different = list(dict.fromkeys(copies[rng.permutation(np.flatnonzero(class_index == k))].tolist()))
        count = min(round(share * len(different)), len(different) - 1)
        for position, group in enumerate(different):
            is_held.setdefault(group, position < count)
    for k in np.unique(class_index):
        groups = copies[class_index == k].tolist()
        if all(is_held[group] for group in groups):
            is_held[groups[0]] = False
    return [is_held[group] for group in copies.tolist()]


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 9), st.integers(2, 6), st.floats(0.1, 2))
@example(93, 11, 5, 2, 1.5)  # a class that another class gives a sample back, and is then left alone
def test_samples_are_dealt_as_by_hand(seed: int, n: int, n_classes: int, count: int, variety: float) -> None:
    rng = np.random.default_rng(seed)
    class_index = rng.integers(0, n_classes, n)
    copies = rng.integers(0, max(1, round(variety * n)), n)  # some of them in several classes
    found = stratified_folds(class_index, count, seed, copies)
    assert found.tolist() == plain_folds(class_index, count, seed, copies)
    expected = plain_held_out(class_index, variety / 2, np.random.default_rng(seed), copies)
    if any(expected):
        held = hold_out_share(class_index, variety / 2, np.random.default_rng(seed), copies)
        assert held.tolist() == expected


def test_classes_of_a_small_type_are_dealt_as_by_hand() -> None:
    """Of 80 classes with two samples each, six have the samples of the first six."""
    class_index, copies = np.repeat(np.arange(80, dtype=np.uint8), 2), np.arange(160)
    copies[128:140] = np.arange(12)
    found = stratified_folds(class_index, 5, 0, copies)
    assert found.tolist() == plain_folds(class_index, 5, 0, copies)


@given(st.integers(10, 200), st.integers(1, 20), st.integers(1, 9), st.integers(0, 99))
def test_a_few_of_many_samples_are_held_out_by_the_sizes_of_classes(
    n: int, n_classes: int, count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    class_index = np.sort(rng.integers(0, n_classes, n))
    class_index = np.unique(class_index, return_inverse=True)[1]
    copies = rng.integers(0, 2 * n, n)
    held = hold_out_few(class_index, count, copies, seed)
    np.testing.assert_array_equal(held, hold_out_few(class_index, count, copies, seed))
    assert set(class_index[~held]) == set(class_index)
    assert not set(copies[held]) & set(copies[~held])
    different = hold_out_few(class_index, count, np.arange(n), seed)
    of_class = np.bincount(class_index[different], minlength=class_index.max() + 1)
    expected = count * np.bincount(class_index) / n
    assert (np.abs(of_class - expected) <= 1).all()


@pytest.mark.parametrize("jobs", [1, 3])
def test_residuals_of_held_out_samples_are_by_trusted_samples_of_other_folds(jobs: int) -> None:
    """Compared with the distance to the nearest sample, which is what nn computes, one pair at a time."""
    vectors, class_index = unit_rows(30, 5), np.repeat([0, 1, 2], 10)
    fold_of = np.arange(30) % 4 - 1  # samples with -1 are never held out
    is_tested, is_trusted = np.arange(30) % 5 != 0, np.arange(30) % 7 != 0
    told: list[tuple[int, int]] = []
    parts = list(
        held_out_residuals(
            Samples.of(vectors, class_index),
            make_method("nn", {}),
            fold_of,
            is_tested=is_tested,
            is_trusted=is_trusted,
            jobs=jobs,
            progress=lambda *counts: told.append(counts),
        )
    )
    expected = [np.flatnonzero((fold_of == number) & is_tested).tolist() for number in range(3)]
    assert [places.tolist() for places, _ in parts] == expected
    sizes = np.cumsum([0, *map(len, expected)]).tolist()
    assert told == [(done, sizes[-1]) for done in sizes]
    for places, values in parts:
        for i, row in zip(places.tolist(), to_dense(values), strict=True):
            answering = (fold_of != fold_of[i]) & is_trusted
            nearest = [
                min(((vectors[i] - x) ** 2).sum() / 2 for x in vectors[answering & (class_index == k)])
                for k in range(3)
            ]
            np.testing.assert_allclose(row, nearest, atol=1e-12)


def test_memory_is_asked_for_before_samples_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """For two copies of the samples at most: they are either kept or asked. Neighbours need no fitting."""
    samples, fold_of = Samples.of(unit_rows(30, 5), np.repeat([0, 1, 2], 10)), np.arange(30) % 3
    method = make_method("crnr", {"neighbors": 4})

    def asked_for(**options: int) -> int:
        asked: list[int] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "require_memory", lambda needed, *words: asked.append(needed))
            list(held_out_residuals(samples, method, fold_of, jobs=1, progress=lambda *_: None, **options))
        return asked[0]

    assert samples.vectors.nbytes <= asked_for() <= 2 * samples.vectors.nbytes
    assert asked_for(result_bytes=1000) == asked_for() + 1000
    monkeypatch.setattr(memory, "free_bytes", lambda: 10)
    words = r"^holding (sample|example)s out of the gallery needs .* are free; use --pca or fewer "
    with pytest.raises(DataError, match=words):
        next(held_out_residuals(samples, method, fold_of, jobs=1, progress=lambda *_: None))


@pytest.mark.parametrize(("jobs", "room", "expected"), [(3, 1, 1), (2, 3, 2)])
def test_as_many_folds_as_jobs_and_memory_allow_are_answered_at_once(
    jobs: int, room: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, fold_of = Samples.of(unit_rows(30, 5), np.repeat([0, 1, 2], 10)), np.arange(30) % 3
    threads: list[int] = []
    original = folds.run_side_by_side

    def noting(answer, numbers, count, *, wait):  # type: ignore[no-untyped-def]
        threads.append(count)
        return original(answer, numbers, count, wait=wait)

    monkeypatch.setattr(folds, "run_side_by_side", noting)
    monkeypatch.setattr(folds, "pieces_at_once", lambda asked: asked)
    monkeypatch.setattr(memory, "room_for", lambda needed: room)
    list(held_out_residuals(samples, Nn(), fold_of, jobs=jobs, progress=lambda *_: None))
    assert threads == [expected]


def test_whoever_stops_early_does_not_wait_for_the_fold_that_is_answered() -> None:
    samples, fold_of = Samples.of(unit_rows(30, 5), np.repeat([0, 1, 2], 10)), np.arange(30) % 3
    asked, began, may_end, ended = [], Event(), Event(), []

    class Slow(Nn):
        def residuals(self, samples: Samples, state: State, queries: np.ndarray) -> np.ndarray:
            asked.append(len(queries))
            if len(asked) > 1:
                began.set()
                may_end.wait(10)
                ended.append(len(queries))
            return super().residuals(samples, state, queries)

    parts = held_out_residuals(samples, Slow(), fold_of, jobs=1, progress=lambda *_: None)
    places, _ = next(parts)
    assert places.tolist() == list(range(0, 30, 3))
    assert began.wait(60)
    parts.close()  # type: ignore[attr-defined]
    assert ended == []
    may_end.set()
    cores.wait_for_pieces()


def test_held_out_samples_take_no_part_in_vectors_that_depend_on_the_others() -> None:
    samples, _, _ = problem((4, 5, 6), d=5)
    fold_of = np.arange(15) % 3

    def refit(is_kept: np.ndarray) -> np.ndarray:
        moved = samples.vectors + samples.vectors[is_kept].mean(axis=0)
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    refitted = RefittedSamples(samples.vectors, samples.edges, refit=refit)
    method = make_method("nn", {})
    found = dict(
        pair
        for places, values in held_out_residuals(
            refitted, method, fold_of, jobs=1, progress=lambda done, total: None
        )
        for pair in zip(places.tolist(), to_dense(values).tolist(), strict=True)
    )
    assert sorted(found) == list(range(15))
    for number in range(3):
        is_kept = fold_of != number
        vectors = refit(is_kept)
        rest = Samples.of(vectors[is_kept], samples.class_index[is_kept])
        expected = residuals(method, rest, fit_method(method, rest), vectors[~is_kept])
        found_here = [found[place] for place in np.flatnonzero(~is_kept)]
        np.testing.assert_allclose(found_here, to_dense(expected), atol=1e-12)
