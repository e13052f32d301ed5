"""How many cores there are to use, and how the libraries are told."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# OpenBLAS comes with NumPy's and SciPy's wheels; other builds listen to one of the others.
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


def available_cores() -> int:
    """The cores this process may use: its affinity and its cgroup's quota, not the machine's count."""
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no quota ("max")
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def use_cores(jobs: int | None) -> None:
    """Give matrix products this many threads. It counts only before NumPy is first imported."""
    for variable in _THREAD_VARIABLES:
        if jobs is not None:
            os.environ[variable] = str(jobs)
        else:
            os.environ.setdefault(variable, str(available_cores()))
