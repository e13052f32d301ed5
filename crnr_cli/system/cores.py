"""How many cores there are to use, how the libraries are told, and work that is done side by side."""

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

# OpenBLAS comes with NumPy's and SciPy's wheels; other builds listen to one of the others.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def available_cores() -> int:
    """The cores this process may use: its affinity and its cgroup's quota, not the machine's count."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def use_cores(jobs: int | None, *, side_by_side: bool = False) -> None:
    """Give a matrix product all the cores, or one where batches are worked on side by side.

    The threads of one product wait for each other at its end, and where one core is busy with something
    else, all do; batches side by side never wait. It counts only before NumPy is first imported.
    """
    threads = str(1 if side_by_side else jobs or available_cores())
    for variable in _THREAD_VARIABLES:
        if jobs is not None:
            os.environ[variable] = threads
        else:
            os.environ.setdefault(variable, threads)


def threads_a_product() -> int:
    """As the libraries were told."""
    told = os.environ.get(_THREAD_VARIABLES[0], "")
    return int(told) if told.isdecimal() and int(told) > 0 else available_cores()


def side_by_side(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int = 1
) -> Generator[Result]:
    """work(item) for every item, in order; so many at once, and so many more waiting before or after."""
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
