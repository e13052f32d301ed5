"""Check that there is enough memory before work begins."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.system import child, other_systems


class _Accounting(NamedTuple):
    """Where a kind of cgroup is mounted, and the names of its files."""

    mounts: tuple[str, ...]
    limit: str
    used: str
    cache: str  # the line of memory.stat with the file pages that the kernel drops when memory is needed


_V2 = _Accounting(("sys/fs/cgroup", "sys/fs/cgroup/unified"), "memory.max", "memory.current", "inactive_file")
_V1 = _Accounting(
    ("sys/fs/cgroup/memory",), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
)


def free_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that this process can still use, by the machine, its cgroups and `ulimit -v`.

    None if it is unknown. `root` contains /proc and /sys; systems other than Linux have neither.
    """
    if other_systems.NEEDED:
        return other_systems.free_memory()
    known = [*_free_on_machine(root), *_free_in_cgroups(root), *_free_address_space(root)]
    return max(0, min(known)) if known else None


def _free_on_machine(root: Path) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError, LookupError):
        yield 1024 * _line(root / "proc/meminfo", "MemAvailable:")


def _free_in_cgroups(root: Path) -> Iterator[int]:
    """Yield the free memory of each cgroup: the cgroups above limit a process too, as far as visible."""
    for accounting, path in _cgroups(root):
        for mount in accounting.mounts:
            for group in (path, *path.parents):
                yield from _free_in_cgroup(root / mount / group, accounting)


def _cgroups(root: Path) -> Iterator[tuple[_Accounting, Path]]:
    """Yield the cgroups of this process: a line has a number, the names of controllers, and a path."""
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                yield _V2, Path(path.lstrip("/"))
            elif "memory" in controllers.split(","):
                yield _V1, Path(path.lstrip("/"))


def _free_in_cgroup(folder: Path, accounting: _Accounting) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):  # no such cgroup, or no limit ("max")
        limit, used = (
            int((folder / name).read_text(encoding="utf-8")) for name in (accounting.limit, accounting.used)
        )
        with contextlib.suppress(OSError, ValueError, LookupError):
            used -= _line(folder / "memory.stat", accounting.cache)
        yield limit - used


def _free_address_space(root: Path) -> Iterator[int]:
    if (limit := child.address_space()) is not None:
        with contextlib.suppress(OSError, ValueError, LookupError):
            pages = int((root / "proc/self/statm").read_text(encoding="utf-8").split()[0])
            yield limit - pages * os.sysconf("SC_PAGE_SIZE")


def _line(path: Path, name: str) -> int:
    """Return the number on the line with this name."""
    found = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in found if words and words[0] == name}[name]


def room_for(size: int) -> int:
    """Return how many pieces of work of this size fit into half of the free memory; at least 1."""
    free = free_bytes()
    return sys.maxsize if free is None else max(1, free // (2 * max(1, size)))


def require_memory(needed: int, work: str, remedy: str) -> None:
    """Raise DataError if work does not fit into memory, with both numbers and a remedy."""
    free = free_bytes()
    if free is not None and needed > free:
        raise DataError(
            f"{work} needs {format_size(needed)} of memory, but {format_size(free)} are free; {remedy}"
        )


def format_size(size: int) -> str:
    unit, name = next(
        (u, n) for u, n in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")) if size >= u or u == 1
    )
    return f"{size / unit:.1f} {name}"
