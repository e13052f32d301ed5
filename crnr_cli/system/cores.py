"""Cores, threads of matrix products, and work in several threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from crnr_cli.system import other_systems

Item = TypeVar("Item")
Result = TypeVar("Result")
# The wheels of NumPy and SciPy contain OpenBLAS; other builds read one of the other variables.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_LOOK = 0.2  # seconds
_THREADS = "crnr-piece"  # prefix of the names of threads
# A thread that waits for others gives its core away at once: on a busy machine the wait may be long.
_WAITING = {"OPENBLAS_THREAD_TIMEOUT": "4", "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0"}
_set_for_now: int | None = None
_pieces: set[Future[Any]] = set()  # that are waiting or running
_lock = threading.Lock()
_counts: dict[object, int] = {}  # of every `product_threads` block that is still open, the latest last
_libraries: list[tuple[Any, int]] = []  # controllers of libraries, with the threads before the first block
Shared = TypeVar("Shared")


def available_cores() -> int:
    """Return the cores that this process may use, by its affinity and its cgroup's quota."""
    if other_systems.NEEDED:
        return other_systems.cores()
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="utf-8").split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def use_cores(jobs: int | None, *, side_by_side: bool = False) -> None:
    """Give every matrix product all cores, or one core if pieces of work are done `side_by_side`.

    The threads of one product wait for each other at its end, so that all of them wait if one core is busy
    with something else; pieces side by side never wait. This must be called before NumPy is imported. The
    environment is ignored, because the last bits of a product may depend on its threads.
    """
    threads = str(1 if side_by_side else jobs or available_cores())
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, threads) | _WAITING)


def set_product_threads(threads: int | None) -> None:
    """Set the threads of every matrix product; None restores the previous number."""
    global _set_for_now
    _set_for_now = threads


def threads_per_product() -> int:
    """Return the number of threads as set by `use_cores` or, if crnr is used as a library, by the user."""
    if _set_for_now is not None:
        return _set_for_now
    threads = os.environ.get(_THREAD_VARIABLES[0], "")
    return int(threads) if threads.isdecimal() and int(threads) > 0 else available_cores()


def wait_for_pieces() -> None:
    """Wait until all pieces of work that have begun are done or cancelled."""
    begun = list(_pieces)
    while begun := [piece for piece in begun if not piece.done()]:
        wait(begun, _LOOK)  # it does not notice cancelled pieces


def is_working() -> bool:
    """Return whether a piece of work still runs in a thread; Python would wait for it at exit."""
    return any(thread.name.startswith(_THREADS) for thread in threading.enumerate())


def pieces_at_once(jobs: int) -> int:
    """Return how many pieces of work can run at once, if each has its own threads for products."""
    return max(1, jobs // threads_per_product())


def run_side_by_side(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    ahead: int = 1,
    *,
    wait: bool = True,
) -> Generator[Result]:
    """Yield work(item) for every item, in order; at most `threads` run and `ahead` are finished or queued.

    If the caller stops early, `wait` for the running pieces; nothing can stop them.
    """
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads, _THREADS)
    try:
        for item in items:
            waiting.append(_track(pool.submit(work, item)))
            if len(waiting) >= threads + ahead:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())
    finally:
        pool.shutdown(wait=wait, cancel_futures=True)


def _track(piece: Future[Result]) -> Future[Result]:
    _pieces.add(piece)
    piece.add_done_callback(_pieces.discard)
    return piece


def _result(piece: Future[Result]) -> Result:
    """Wait for a piece of work; on Windows, a wait without an end could not be interrupted by Ctrl-C."""
    while sys.platform == "win32" and not wait([piece], _LOOK).done:
        pass
    return piece.result()


def run_with_ticks(work: Callable[[], None], every: float = _LOOK) -> Generator[int]:
    """Run one piece of work in a thread; until it is done, yield 0, 1, 2... `every` few seconds."""
    pool = ThreadPoolExecutor(1, _THREADS)
    try:
        running = pool.submit(work)
        for turn in count():
            if wait([running], every).done:
                running.result()
                return
            yield turn
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def product_threads(count: int) -> Iterator[None]:
    """Set the threads of every matrix product until the block ends, if threadpoolctl is installed.

    Libraries have one setting for the whole process. Of blocks that overlap, such as an `explain` between two
    batches of `iter_classify`, the latest open block decides. Before it changes the threads, the pieces of
    work that began with others are finished.
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
    """Set the latest of these counts; without any, restore the threads from before the first block."""
    global _counts
    if not _counts:
        _libraries[:] = [(library, library.num_threads) for library in _find_libraries()]
    _counts = counts
    threads = _latest(counts)
    for library, before in _libraries:
        library.set_num_threads(before if threads is None else threads)
    set_product_threads(threads if _libraries else None)


def _find_libraries() -> list[Any]:
    """Return threadpoolctl's controllers of all loaded libraries for matrix products."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return []
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def spread_over_threads(
    count: int, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, work(shared, item)) in order; up to `count` pieces of work run at a time.

    Items are taken only when a thread is free.
    """
    pieces = run_side_by_side(lambda item: (item, work(shared, item)), items, count, ahead=0, wait=False)
    with closing(pieces) as done:
        yield from done
