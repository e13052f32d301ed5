"""Child processes that read untrusted files: how they are started, and how much memory they get."""

from __future__ import annotations

import resource
import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package with this Python.

    With -P, Python does not import modules from the current folder, which may contain a malicious json.py.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def limit_address_space(limit: int) -> None:
    """Limit the memory of this process, unless there is a stricter limit already."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = min(limit, sys.maxsize)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
