"""Child processes that read untrusted files: how they are started, and how much memory they get."""

from __future__ import annotations

import math
import resource
import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package with this Python.

    With -P, Python does not import modules from the current folder, which may contain a malicious json.py.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


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
