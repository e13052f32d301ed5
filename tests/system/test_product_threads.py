"""The threads of matrix products: threadpoolctl sets and counts them."""

from __future__ import annotations

import contextlib
import sys
import threading

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from crnr_cli.system.cores import pieces_at_once, product_threads, run_side_by_side, threads_per_product
from helpers.latch import Latch
from helpers.patches import open_at_product_threads

CONTROLLER = ThreadpoolController().select(internal_api="openblas")
pytestmark = pytest.mark.skipif(not CONTROLLER.info(), reason="NumPy has another library of products")


def threads() -> set[int]:
    """Return the threads of all libraries but faiss, which has a number per thread of the program."""
    libraries = (library for library in CONTROLLER.info() if "faiss" not in library["filepath"])
    return {library["num_threads"] for library in libraries}


def test_product_threads_sets_the_threads_within_the_block() -> None:
    with CONTROLLER.limit(limits=3):
        assert threads() == {3}
        with product_threads(2):
            assert threads() == {2}
            assert threads_per_product() == 2
            assert pieces_at_once(8) == 4
        assert threads() == {3}


def test_product_threads_restores_the_threads_after_an_error() -> None:
    with CONTROLLER.limit(limits=3):
        with pytest.raises(ZeroDivisionError), product_threads(1):
            _ = 1 / 0
        assert threads() == {3}


def test_product_threads_restores_the_threads_after_the_last_block() -> None:
    before = threads_per_product()
    with CONTROLLER.limit(limits=3):
        first, second = product_threads(1), product_threads(2)
        first.__enter__()
        second.__enter__()
        assert threads() == {2}
        first.__exit__(None, None, None)
        assert threads() == {2}
        second.__exit__(None, None, None)
        assert threads() == {3}
    assert threads_per_product() == before


def test_product_threads_applies_to_all_threads() -> None:
    found: list[set[int]] = []
    with CONTROLLER.limit(limits=3), product_threads(1):
        other = threading.Thread(target=lambda: found.append(threads()))
        other.start()
        other.join()
    assert found == [{1}]


def test_product_threads_restores_the_threads_of_the_outer_block() -> None:
    with CONTROLLER.limit(limits=3), product_threads(1):
        with product_threads(2):
            assert threads() == {2}
        assert threads() == {1}
        assert threads_per_product() == 1


def test_pieces_of_work_end_with_the_threads_that_they_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator stops after each result, but pieces that it has begun go on."""
    found: list[set[int]] = []
    begun, changing, seen = Latch(), Latch(), Latch()

    def work(item: int) -> None:
        if item == 1:
            begun.count_down()
            changing.wait()
        found.append(threads())
        if item == 1:
            seen.count_down()

    with CONTROLLER.limit(limits=3), product_threads(1):
        open_at_product_threads(changing, seen, monkeypatch.setattr)
        with contextlib.closing(run_side_by_side(work, range(4), 1)) as pieces:
            next(pieces)
            begun.wait()
            with product_threads(2):
                assert threads() == {2}
            list(pieces)
        with contextlib.closing(run_side_by_side(work, range(4), 1)) as pieces:
            next(pieces)
        with product_threads(2):  # does not wait for pieces that were cancelled
            assert threads() == {2}
    assert set(map(frozenset, found)) == {frozenset({1})}


@pytest.mark.parametrize("missing", ["threadpoolctl", "libraries"])
def test_without_threadpoolctl_or_libraries_nothing_is_set(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threads_per_product()
    with CONTROLLER.limit(limits=3):
        with monkeypatch.context() as patches:
            if missing == "threadpoolctl":
                patches.setitem(sys.modules, "threadpoolctl", None)
            else:
                patches.setattr(ThreadpoolController, "_load_libraries", lambda self: None)
            block = product_threads(1)
            block.__enter__()
        assert threads() == {3}
        assert threads_per_product() == before
        assert (np.eye(3) @ np.eye(3)).trace() == 3
        block.__exit__(None, None, None)
        assert threads() == {3}
