"""How many threads a matrix product uses, in a program that has loaded NumPy before it uses crnr.

The last bits of a product may depend on the number of its threads. A command sets it before NumPy is loaded
(see `cores.use_cores`); here it is set for a while and then set back, so that a program gets the same digits.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crnr_cli.system.cores import products_have

_MAPS = Path("/proc/self/maps")
# How OpenBLAS calls its functions: in the wheels of NumPy and SciPy, and in Linux distributions.
_PREFIXES, _SUFFIXES = ("scipy_openblas", "openblas"), ("64_", "", "_64")

_lock = threading.Lock()
_users = 0  # that are between the beginning and the end of a `product_threads`
_before: list[
    tuple[Callable[[int], Any], int]
] = []  # what sets the threads of a library, and how many it had


@contextmanager
def product_threads(count: int) -> Iterator[None]:
    """Until the block ends, every product of an OpenBLAS that is loaded uses so many threads.

    That is for all of the process, as OpenBLAS has one setting. Other libraries of products keep their own.
    """
    global _users
    with _lock:
        if _users == 0:
            _before[:] = [(change, get()) for get, change in _openblas()]
        _users += 1
        for change, _ in _before:
            change(count)
        products_have(count if _before else None)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for change, threads in _before:
                    change(threads)
                products_have(None)


def _openblas() -> list[tuple[Callable[[], int], Callable[[int], Any]]]:
    """What gets and what sets the threads of every OpenBLAS that is loaded."""
    found = []
    for path in _loaded():
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for name in (f"{prefix}_%s_num_threads{suffix}" for prefix in _PREFIXES for suffix in _SUFFIXES):
                if hasattr(library, name % "set"):
                    found.append((getattr(library, name % "get"), getattr(library, name % "set")))
                    break
    return found


def _loaded() -> set[str]:
    try:
        lines = _MAPS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if "openblas" in line}
    return {path for path in paths if "openblas" in Path(path).name}
