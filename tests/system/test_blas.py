"""The threads of matrix products: threadpoolctl, which comes with scikit-learn, says how many there are."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from crnr_cli.system import blas
from crnr_cli.system.blas import product_threads
from crnr_cli.system.cores import pieces_at_once, threads_per_product

CONTROLLER = ThreadpoolController().select(internal_api="openblas")
pytestmark = pytest.mark.skipif(not CONTROLLER.info(), reason="NumPy has another library of products")


def threads() -> set[int]:
    """Of all libraries of products but that of faiss, whose number is one for each thread of the program."""
    libraries = (library for library in CONTROLLER.info() if "faiss" not in library["filepath"])
    return {library["num_threads"] for library in libraries}


def test_products_have_so_many_threads_for_a_while() -> None:
    with CONTROLLER.limit(limits=3):
        assert threads() == {3}
        with product_threads(2):
            assert threads() == {2}
            assert threads_per_product() == 2
            assert pieces_at_once(8) == 4
        assert threads() == {3}


def test_what_was_before_is_restored_after_an_error() -> None:
    with CONTROLLER.limit(limits=3):
        with pytest.raises(ZeroDivisionError), product_threads(1):
            _ = 1 / 0
        assert threads() == {3}


def test_the_last_of_several_restores_what_the_first_found() -> None:
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


def test_it_is_for_all_threads_of_the_program() -> None:
    found: list[set[int]] = []
    with CONTROLLER.limit(limits=3), product_threads(1):
        other = threading.Thread(target=lambda: found.append(threads()))
        other.start()
        other.join()
    assert found == [{1}]


@pytest.mark.parametrize(
    "maps", ["", "7f00-7f01 r-xp 0 0:0 1 /no/libopenblas.so\n7f02-7f03 r-xp 0 0:0 1\n", None]
)
def test_without_an_openblas_nothing_is_set(
    maps: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if maps is not None:
        (tmp_path / "maps").write_text(maps)
    monkeypatch.setattr(blas, "_MAPS", tmp_path / "maps")
    before = threads_per_product()
    with CONTROLLER.limit(limits=3), product_threads(1):
        assert threads() == {3}
        assert threads_per_product() == before
        assert (np.eye(3) @ np.eye(3)).trace() == 3
