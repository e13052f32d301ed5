"""Whether a piece of work fits into memory, asked before it is begun."""

from __future__ import annotations

import contextlib
from pathlib import Path

from crnr_cli.errors import DataError


def free_bytes() -> int | None:
    """What this process could still take: of the machine, and of its cgroup's limit. None if unknown."""
    known: list[int] = []
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        known.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or no limit ("max")
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text() for name in ("max", "current"))
        known.append(int(limit) - int(used))
    return min(known, default=None)


def require(needed: int, work: str, remedy: str) -> None:
    """Refuse work that would not fit, with both figures and what to do about it."""
    free = free_bytes()
    if free is not None and needed > free:
        raise DataError(f"{work} needs {_gigabytes(needed)}, {_gigabytes(free)} free; {remedy}")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
