"""Child processes: how they are started, and how they ended."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# On Windows, a child gets no window; Ctrl-C is then for its parent alone. Elsewhere it has to be 0.
NO_WINDOW = 0x08000000 if sys.platform == "win32" else 0
_CRASHES = 0xC0000000  # exit codes from this on are errors of Windows, such as an access violation


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


def crash(code: int) -> str | None:
    """What a process crashed of, by its exit code; None if it ended by itself."""
    if code < 0:
        return f"signal {-code}"
    return f"error {code:#x}" if code >= _CRASHES else None
