"""Child processes, guarded by limits of time and memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from crnr_cli.system import other_systems

if TYPE_CHECKING:
    import subprocess

# On Windows, a child gets no window, and Ctrl-C reaches its parent alone. Elsewhere it has to be 0.
NO_WINDOW = 0x08000000 if sys.platform == "win32" else 0
_CRASHES = 0xC0000000  # exit codes from here on are Windows errors, such as an access violation
_EVERY = 0.05  # seconds between two checks of a child


if sys.platform != "win32":
    import resource
    import signal


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package with this Python.

    With -P, Python does not import modules from the current folder, which may contain a malicious json.py.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


@contextmanager
def safe_path() -> Iterator[None]:
    """Act like -P for all processes that another library starts until the block ends."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def crash_reason(code: int) -> str | None:
    """Return why a process was killed, from its exit code, or None if it exited normally."""
    if code < 0:
        return f"signal {-code}"
    return f"error {code:#x}" if code >= _CRASHES else None


def limit_address_space(limit: int) -> None:
    """Limit the memory of this process, unless there is a stricter limit already.

    On macOS, setrlimit refuses this limit, and there is no such limit on Windows: see `Guard`.
    """
    if sys.platform not in ("darwin", "win32"):
        _limit(resource.RLIMIT_AS, min(limit, sys.maxsize))


def limit_cpu_time(seconds: float) -> None:
    """Let the kernel end this process after this much more work; waiting on a busy machine does not count."""
    if sys.platform != "win32":
        used = resource.getrusage(resource.RUSAGE_SELF)
        _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + seconds))


def _limit(what: int, limit: int) -> None:
    if sys.platform != "win32":
        _, hard = resource.getrlimit(what)
        resource.setrlimit(what, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def address_space() -> int | None:
    """Return the memory limit of this process in bytes; None without a limit."""
    if sys.platform == "win32":
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


class Guard:
    """Kills a child process that exceeds its memory or time, where the kernel does not."""

    def __init__(
        self, process: subprocess.Popen[bytes], memory: int | None, seconds: float | None = None
    ) -> None:
        self.process, self._memory, self._seconds = process, memory, seconds
        self._usage = other_systems.Usage(process.pid) if other_systems.NEEDED else None
        self.is_out_of_memory = self._is_out_of_time = self._is_renewed = False
        self._before = 0.0  # seconds of work that do not count

    def renew(self) -> None:
        """Give the process its time again, because it has replied."""
        self._is_renewed = True

    def check(self) -> None:
        if self._usage is None:
            return
        size, seconds = self._usage.measure()
        if self._is_renewed:
            self._before, self._is_renewed = seconds, False
        if self._memory is not None and size > self._memory:
            self.is_out_of_memory = True
            self.process.kill()
        elif self._seconds is not None and seconds - self._before > self._seconds:
            self._is_out_of_time = True
            self.process.kill()

    @property
    def is_out_of_time(self) -> bool:
        """Whether it ended, or was killed, because it worked too long."""
        if sys.platform == "win32":
            return self._is_out_of_time
        return self._is_out_of_time or self.process.poll() == -signal.SIGXCPU


def polling_interval(seconds: float) -> float:
    """Return the polling interval: `seconds`, or less on systems where guards must poll."""
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
    import threading  # here, because decoders need none

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


@contextmanager
def start_guarded(
    module: str,
    *arguments: str,
    memory: int | None,
    seconds: float,
    messages: IO[bytes] | None = None,
    is_asked: bool = False,
) -> Iterator[Guard]:
    """Run a module of this package that reads an untrusted file, under guard; kill it after an error.

    Read its output from the guard's `process`. Its stderr goes to the file `messages`. With `is_asked`, it
    reads requests from its stdin.
    """
    import subprocess  # here, because decoders need none

    with subprocess.Popen(
        python_command(module, *arguments),
        # More threads would only reserve memory, and the process has little.
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE if is_asked else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=messages or subprocess.DEVNULL,
        creationflags=NO_WINDOW,
    ) as process:
        try:
            with under_guard(process, memory, seconds) as guard:
                yield guard
        except BaseException:
            process.kill()
            raise
