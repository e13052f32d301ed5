"""What is made once from samples: once, for all threads, and for this process alone."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from crnr_cli.methods import Samples
from crnr_cli.methods.base import ProcessCache


def test_process_cache_computes_once_for_all_threads() -> None:
    prepared, source, made = ProcessCache(), object(), []
    together = threading.Barrier(8)

    def make() -> object:
        made.append(object())
        return made[-1]

    def ask(_: int) -> object:
        together.wait(60)
        return prepared.compute_once(source, make)

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(ask, range(8)))
    assert found == set(made)
    assert len(made) == 1


def test_process_cache_computes_again_for_another_source() -> None:
    prepared, source = ProcessCache(), np.zeros(1)
    assert prepared.compute_once(source, lambda: 1) == 1
    assert prepared.compute_once(source, lambda: 2) == 1
    assert prepared.compute_once(np.zeros(1), lambda: 3) == 3


def test_parts_have_their_own_and_keep_it() -> None:
    samples = Samples(np.eye(4), np.array([0, 2, 4]), np.array([0, 1, 4]))
    source = object()
    assert samples.part(0).prepared.compute_once(source, lambda: "first") == "first"
    assert samples.part(1).prepared.compute_once(source, lambda: "second") == "second"
    assert samples.part(0).prepared.compute_once(source, lambda: "again") == "first"


def test_process_cache_is_neither_copied_nor_pickled() -> None:
    samples, source = Samples(np.eye(4), np.array([0, 2, 4])), object()
    samples.prepared.compute_once(source, lambda: "made")
    for other in (copy.deepcopy(samples), pickle.loads(pickle.dumps(samples))):
        np.testing.assert_array_equal(other.vectors, samples.vectors)
        assert other.prepared.compute_once(source, lambda: "made anew") == "made anew"
