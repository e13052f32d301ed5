"""How many cores there are, how the libraries learn of it, and work done side by side."""

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

# OpenBLAS comes with NumPy's and SciPy's wheels; other builds read one of the others.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def available_cores() -> int:
    """The cores this process may use: by its affinity and its cgroup's quota, not the machine's count."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def use_cores(jobs: int | None, *, side_by_side: bool = False) -> None:
    """Give every matrix product all cores, or one core where batches are processed side by side.

    The threads of one product wait for each other at its end, and if one core is busy with something else,
    all of them wait; batches side by side never do. Only works before NumPy is first imported.
    """
    threads = str(1 if side_by_side else jobs or available_cores())
    for variable in _THREAD_VARIABLES:
        if jobs is not None:
            os.environ[variable] = threads
        else:
            os.environ.setdefault(variable, threads)


def threads_per_product() -> int:
    """As set by `use_cores`, or by the user."""
    threads = os.environ.get(_THREAD_VARIABLES[0], "")
    return int(threads) if threads.isdecimal() and int(threads) > 0 else available_cores()


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int = 1
) -> Generator[Result]:
    """work(item) for every item, in order; at most `threads` running and `ahead` finished or queued."""
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
