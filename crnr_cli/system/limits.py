"""How much memory and time a child process gets that reads untrusted files.

On Linux the kernel ends a process that takes more: it limits itself before it opens the file. On macOS the
kernel limits the time alone, and on Windows neither. There the parent looks at its children, and ends them.
A thread of the child could not do that: it does not run while a library is at work that holds Python's lock,
and an endless loop in such a library is what is to be ended.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from crnr_cli.system import other_systems

if sys.platform != "win32":
    import resource
    import signal

if TYPE_CHECKING:
    import subprocess

_EVERY = 0.05  # seconds between two looks at a child


def limit_address_space(limit: int) -> None:
    """Limit the memory of this process, unless there is a stricter limit already.

    On macOS, setrlimit refuses this limit, and there is no such limit on Windows: see `Guard`.
    """
    if sys.platform not in ("darwin", "win32"):
        _limit(resource.RLIMIT_AS, min(limit, sys.maxsize))


def limit_cpu_time(seconds: float) -> None:
    """Have the kernel end this process after so much more work; waiting for a busy machine does not count."""
    if sys.platform != "win32":
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds))


def _limit(what: int, limit: int) -> None:
    if sys.platform != "win32":
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def address_space() -> int | None:
    """The limit of this process in bytes; None if there is none."""
    if sys.platform == "win32":
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


class Guard:
    """Ends a child process that uses more memory or time than it may, where the kernel does not."""

    def __init__(
        self, process: subprocess.Popen[bytes], memory: int | None, seconds: float | None = None
    ) -> None:
        self._process, self._memory, self._seconds = process, memory, seconds
        self._usage = other_systems.Usage(process.pid) if other_systems.NEEDED else None
        self.is_out_of_memory = self._is_out_of_time = False

    def check(self) -> None:
        if self._usage is None:
            return
        size, seconds = self._usage.now()
        if self._memory is not None and size > self._memory:
            self.is_out_of_memory = True
            self._process.kill()
        elif self._seconds is not None and seconds > self._seconds:
            self._is_out_of_time = True
            self._process.kill()

    @property
    def is_out_of_time(self) -> bool:
        """Whether it has ended, or was ended, because it worked too long."""
        if sys.platform == "win32":
            return self._is_out_of_time
        return self._is_out_of_time or self._process.poll() == -signal.SIGXCPU


def looks_every(seconds: float) -> float:
    """How often guards have to look, if something else is looked after every so many seconds."""
    return min(seconds, _EVERY) if other_systems.NEEDED else seconds


@contextmanager
def under_guard(
    process: subprocess.Popen[bytes], memory: int | None, seconds: float | None = None
) -> Iterator[Guard]:
    """Guard a process until the block ends."""
    guard = Guard(process, memory, seconds)
    if not other_systems.NEEDED:
        yield guard
        return
    import threading  # here, as decoders need none

    done = threading.Event()

    def look() -> None:
        while not done.wait(_EVERY):
            guard.check()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield guard
    finally:
        done.set()
        thread.join()
