"""How many cores there are, how libraries are made to use them, and how to work in several threads."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# The wheels of NumPy and SciPy contain OpenBLAS; other builds read one of the other variables.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def available_cores() -> int:
    """The cores that this process may use, by its affinity and its cgroup's quota."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def use_cores(jobs: int | None, *, side_by_side: bool = False) -> None:
    """Give every matrix product all cores, or one core if batches are processed `side_by_side`.

    The threads of one product wait for each other at its end, so that all of them wait if one core is busy
    with something else; batches side by side never wait. This must be called before NumPy is imported.
    """
    threads = str(1 if side_by_side else jobs or available_cores())
    for variable in _THREAD_VARIABLES:
        if jobs is not None:
            os.environ[variable] = threads
        else:
            os.environ.setdefault(variable, threads)


def threads_per_product() -> int:
    """The number of threads as set by `use_cores` or by the user."""
    threads = os.environ.get(_THREAD_VARIABLES[0], "")
    return int(threads) if threads.isdecimal() and int(threads) > 0 else available_cores()


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int = 1
) -> Generator[Result]:
    """work(item) for every item, in order; at most `threads` are running and `ahead` finished or queued."""
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) >= threads + ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
