"""Child processes that read untrusted files: how they are started, and how much memory they get."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package with this Python.

    With -P, Python does not import modules from the current folder, which may contain a malicious json.py.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


@contextmanager
def safe_path() -> Iterator[None]:
    """Like -P, for all processes that another library starts until the block ends."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def limit_address_space(limit: int) -> None:
    """Limit the memory of this process, unless there is a stricter limit already."""
    _limit(resource.RLIMIT_AS, min(limit, sys.maxsize))


def limit_cpu_time(seconds: float) -> None:
    """Have the kernel end this process after so much more work; waiting for a busy machine does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds))


def _limit(what: int, limit: int) -> None:
    _, hard = resource.getrlimit(what)
    resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
