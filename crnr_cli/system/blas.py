"""How many threads a matrix product uses, in a program that has loaded NumPy before it uses crnr.

The last bits of a product may depend on the number of its threads. A command sets it before NumPy is loaded
(see `cores.use_cores`); here it is set for a while and then set back, so that a program gets the same digits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crnr_cli.system.cores import products_have, wait_for_pieces

_lock = threading.Lock()
_counts: dict[object, int] = {}  # of every `product_threads` that has not ended, the latest last
_libraries: list[tuple[Any, int]] = []  # controllers of libraries, with the threads before the first block


@contextmanager
def product_threads(count: int) -> Iterator[None]:
    """Until the block ends, let every matrix product use so many threads, if threadpoolctl is installed.

    Libraries have one setting for all of the process. Of blocks that overlap, such as an `explain` between
    two batches of `iter_classify`, the latest that has not ended decides. Before it changes the threads, the
    pieces of work that were begun with others are finished.
    """
    own = object()
    with _lock:
        if _latest(_counts) not in (None, count):
            wait_for_pieces()
        _hold({**_counts, own: count})
    try:
        yield
    finally:
        with _lock:
            _hold({other: threads for other, threads in _counts.items() if other is not own})


def _latest(counts: dict[object, int]) -> int | None:
    return next(reversed(counts.values()), None)


def _hold(counts: dict[object, int]) -> None:
    """Set the latest of these counts; without any, set back what there was before the first."""
    global _counts
    if not _counts:
        _libraries[:] = [(library, library.num_threads) for library in _find_libraries()]
    _counts = counts
    threads = _latest(counts)
    for library, before in _libraries:
        library.set_num_threads(before if threads is None else threads)
    products_have(threads if _libraries else None)


def _find_libraries() -> list[Any]:
    """Return threadpoolctl's controllers of all libraries of matrix products that are loaded."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]
