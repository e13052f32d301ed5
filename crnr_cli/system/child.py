"""Child processes that read untrusted files: how they are started, and how much memory they get."""

from __future__ import annotations

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
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = min(limit, sys.maxsize)
    resource.setrlimit(
        resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
    )
