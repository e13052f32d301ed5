"""The folds of tune: right, made once for all threads, and in memory only as long as they are used."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from time import sleep
from typing import Any

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.gallery import folded
from crnr_cli.gallery.folded import FoldedSamples, VectorRecipe, fit_recipe
from crnr_cli.gallery.gallery import SampleTable
from crnr_cli.gallery.samples import Reading, ReadSamples
from crnr_cli.jobs import tune as job
from crnr_cli.jobs.tune import TuneOptions, tune_samples
from crnr_cli.methods.folds import Fold
from crnr_cli.recipe.recipe import Recipe
from helpers.latch import Latch


def by_power(power: float) -> VectorRecipe:
    return VectorRecipe(0, None, (("power", power),))


def folded_samples(raw: Array, count: int = 5) -> FoldedSamples:
    n = len(raw)
    class_index, fold_of = np.repeat([0, 1], n // 2), np.arange(n) % count
    return FoldedSamples(
        [raw],
        np.arange(n)[::-1],
        [Recipe(raw.shape[1])],
        class_index,
        fold_of,
        np.arange(n) % 7 > 0,
        "float64",
    )


@pytest.fixture
def no_cycles() -> Iterator[None]:
    """Memory is freed when the last reference goes: Python's search for cycles may come much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_principal_axes_are_fitted_without_held_out_samples() -> None:
    raw = np.random.default_rng(0).normal(size=(12, 5))
    class_index, fold_of = np.repeat([0, 1], 6), np.arange(12) % 3
    order = np.random.default_rng(1).permutation(12)  # the source is in any order
    in_source = np.empty_like(raw)
    in_source[order] = raw
    samples = FoldedSamples(
        [in_source], order, [Recipe(5)], class_index, fold_of, np.full(12, True), "float64"
    )
    with samples.fold(VectorRecipe(0, None, (("power", 1.0), ("pca", 2))), 1) as fold:
        kept = raw[fold_of != 1]
        _, _, rows = np.linalg.svd(kept - kept.mean(axis=0))
        projected = raw[fold_of == 1] @ rows[:2].T
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        np.testing.assert_allclose(np.abs(fold.queries), np.abs(projected), rtol=1e-9)


def test_threads_share_a_fold_that_is_made_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million samples must not be in memory several times: no thread makes a fold that another makes."""
    raw = np.random.default_rng(0).normal(size=(50, 4))
    samples = folded_samples(raw)
    monkeypatch.setattr(folded, "BATCH", 6)
    made: list[int] = []
    all_asked = Latch(4)
    make = FoldedSamples._make_fold

    def count(self: FoldedSamples, how: VectorRecipe, number: int) -> Fold:
        made.append(number)
        all_asked.wait()
        return make(self, how, number)

    def hold(_: int) -> Fold:
        all_asked.count_down()
        with samples.fold(by_power(1.0), 2) as fold:
            return fold

    monkeypatch.setattr(FoldedSamples, "_make_fold", count)
    with ThreadPoolExecutor(4) as threads:
        folds = list(threads.map(hold, range(4)))
    assert made == [2]
    assert all(fold is folds[0] for fold in folds)
    unit = raw[samples.order] / np.linalg.norm(raw[samples.order], axis=1, keepdims=True)
    tested = (samples.fold_of == 2) & samples.is_tested
    np.testing.assert_allclose(folds[0].samples.vectors, unit[samples.fold_of != 2], rtol=1e-12)
    np.testing.assert_allclose(folds[0].queries, unit[tested], rtol=1e-12)
    assert folds[0].truth.tolist() == samples.class_index[tested].tolist()
    assert folds[0].samples.class_index.tolist() == samples.class_index[samples.fold_of != 2].tolist()


def test_threads_never_hold_folds_of_two_recipes() -> None:
    samples = folded_samples(np.random.default_rng(0).normal(size=(50, 4)))
    held: list[float] = []
    most: list[int] = []
    lock = Lock()

    def hold(turn: int) -> None:
        power = (1.0, 0.5, 2.0)[turn // 3 % 3]
        with samples.fold(by_power(power), turn % 2):
            with lock:
                held.append(power)
                most.append(len(set(held)))
            sleep(0.002)  # how long a fold is used: other threads come to ask for others meanwhile
            with lock:
                held.remove(power)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hold, range(36)))
    assert len(most) == 36
    assert set(most) == {1}


def test_a_fold_that_fails_lets_the_next_recipe_begin() -> None:
    samples = folded_samples(np.random.default_rng(0).normal(size=(50, 4)))
    with pytest.raises(ZeroDivisionError), samples.fold(by_power(1.0), 0):
        raise ZeroDivisionError
    done = Event()

    def hold() -> None:
        with samples.fold(by_power(0.5), 0):
            done.set()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(hold).result(timeout=60)
    assert done.is_set()


def test_the_folds_of_a_recipe_are_freed_before_the_next_is_made(
    monkeypatch: pytest.MonkeyPatch, no_cycles: None
) -> None:
    samples = folded_samples(np.random.default_rng(0).normal(size=(50, 4)))
    earlier: list[weakref.ref[Array]] = []
    alive: list[int] = []
    make = FoldedSamples._make_fold

    def count(self: FoldedSamples, how: VectorRecipe, number: int) -> Fold:
        alive.append(sum(one() is not None for one in earlier))
        return make(self, how, number)

    monkeypatch.setattr(FoldedSamples, "_make_fold", count)
    for power in (1.0, 0.5, 2.0):
        this = job.Pass(0, job.DEFAULT, by_power(power), 0)
        job._find_right_answers(samples, this)
        with samples.fold(by_power(power), 0) as fold:
            earlier.append(weakref.ref(fold.samples.vectors))
        del fold
    assert alive == [0, 0, 0]


def test_folds_are_not_sent_to_other_processes() -> None:
    samples = folded_samples(np.random.default_rng(0).normal(size=(50, 4)))
    small = len(pickle.dumps(samples))
    with samples.fold(by_power(1.0), 0) as fold:
        other = pickle.loads(pickle.dumps(samples))
        assert len(pickle.dumps(samples)) == small
    with other.fold(by_power(1.0), 0) as same:
        np.testing.assert_array_equal(same.samples.vectors, fold.samples.vectors)


@pytest.mark.parametrize("steps", [{"pca": 3}, {"whiten": 0.3}, {"power": 0.5, "pca": 4, "whiten": 0.1}])
def test_many_samples_are_fitted_in_blocks_like_few(
    monkeypatch: pytest.MonkeyPatch, steps: dict[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    raw, class_index = rng.normal(size=(60, 5)) + 3, np.repeat(np.arange(6), 10)
    rows = rng.permutation(60)[:50]
    recipe, classes = Recipe(5).with_settings(steps), np.sort(class_index[rows])
    at_once = fit_recipe(recipe, raw, classes, rows).unit_vectors(raw, "float64")[0]
    monkeypatch.setattr(folded, "_FITTED_AT_ONCE", 20)
    monkeypatch.setattr(folded, "BATCH", 7)
    monkeypatch.setattr(Recipe, "fit", None)  # it makes copies of all samples
    in_blocks = fit_recipe(recipe, raw, classes, rows).unit_vectors(raw, "float64")[0]
    # An axis may have either sign, and whitening keeps its axes in single precision.
    np.testing.assert_allclose(in_blocks @ in_blocks.T, at_once @ at_once.T, rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [{"power": (1.0, 0.7, 0.5)}, {"power": (1.0,), "pca": (None, 16)}])
def test_tuning_on_many_samples_takes_one_copy_of_them(
    monkeypatch: pytest.MonkeyPatch, no_cycles: None, steps: dict[str, Any]
) -> None:
    """Besides the raw values, the unit vectors of one recipe are in memory, and batches of fixed sizes."""
    monkeypatch.setattr(job, "_ALL_UP_TO", 1000)
    monkeypatch.setattr(folded, "_FITTED_AT_ONCE", 1000)
    monkeypatch.setattr(job, "_HELD_OUT", 20)
    monkeypatch.setattr(job, "_ITERATIONS", (5,))
    monkeypatch.setattr(job, "_LOCAL", ((0.01, 0.1),))
    rng = np.random.default_rng(0)
    class_index = np.arange(12_000) % 4
    raw = (rng.normal(size=(12_000, 500)) + 3 * rng.normal(size=(4, 500))[class_index]).astype(np.float32)
    names = [str(row) for row in range(len(raw))]
    table = SampleTable(names, [f"class{k}" for k in class_index], hashes=names)
    read = ReadSamples(recipe=Recipe(500), table=table, values=raw)
    options = TuneOptions(Reading(jobs=1), steps=steps, neighbors=(5,))
    tracemalloc.start()
    try:
        report = tune_samples([read], options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.folds == 1
    assert len(report.trials) == len(steps.get("pca", (1,))) * len(steps["power"])
    assert peak < 2 * raw.nbytes
