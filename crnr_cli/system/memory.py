"""Check that there is enough memory before work begins."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from crnr_cli.errors import DataError


def free_bytes() -> int | None:
    """The memory that this process can still use, by the machine and its cgroup; None if unknown."""
    known: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        known.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no limit ("max")
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text() for name in ("max", "current"))
        known.append(int(limit) - int(used))
    return min(known, default=None)


def room_for(size: int) -> int:
    """How many pieces of work of this size fit into half of the free memory; at least 1."""
    free = free_bytes()
    return sys.maxsize if free is None else max(1, free // (2 * max(1, size)))


def require(needed: int, work: str, remedy: str) -> None:
    """Refuse work that does not fit into memory, with both numbers and a remedy."""
    free = free_bytes()
    if free is not None and needed > free:
        raise DataError(f"{work} needs {_shown(needed)} of memory, but {_shown(free)} are free; {remedy}")


def _shown(size: int) -> str:
    unit, name = next(
        (u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")) if size >= u or u == 1
    )
    return f"{size / unit:.1f} {name}"
