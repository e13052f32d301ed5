"""The machine that soak.py runs on: processes whose clock jumps, and a small disk."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Runs crnr with a clock that is off by some ns before a moment, and by other ns from then on. In the end, it
# writes how much memory this process had: wait4 would count the process that started it, too.
RUN = """
import datetime, re, runpy, sys, time
before, after, moment = (int(sys.argv.pop(1)) for _ in range(3))
memory, real = sys.argv.pop(1), time.time_ns
def time_ns():
    now = real()
    return now + (before if now < moment else after)
class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time_ns() / 10**9, tz)
time.time_ns, time.time, datetime.datetime = time_ns, lambda: time_ns() / 10**9, Jumping
sys.argv[0] = "crnr"
try:
    runpy.run_module("crnr_cli", run_name="__main__")
finally:
    status = open("/proc/self/status").read()
    open(memory, "w").write(re.search(r"VmHWM:\\s*(\\d+) kB", status)[1])
"""
TMPFS_BYTES = 64 << 20
SECOND = 10**9  # ns


@dataclass
class Clock:
    """A clock that is off by `before` ns, and by `after` ns from a moment on, which is a true time in ns."""

    before: int = 0
    after: int = 0
    moment: int = 0

    def show(self, moment: int) -> int:
        return moment + (self.before if moment < self.moment else self.after)


@dataclass
class Ran:
    """A process that has ended."""

    exit: int  # negative if it was killed
    seconds: float
    megabytes: float
    err: str


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    began: float
    messages: Path

    def end(self) -> Ran:
        code = self.process.wait()
        seconds, err = time.perf_counter() - self.began, self.messages.read_text(errors="replace")
        self.messages.unlink()
        memory = self.messages.with_suffix(".kB")
        kilobytes = int(memory.read_text() or 0) if memory.exists() else 0
        memory.unlink(missing_ok=True)
        return Ran(code, seconds, kilobytes / 1024, err)


def start_crnr(arguments: list[str], folder: Path, clock: Clock, limit: int | None) -> Started:
    """Start crnr in this folder, with a limit of the size of its files or without."""
    messages = folder / f"run{time.perf_counter_ns()}.err"
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "OPENBLAS_NUM_THREADS": "1"}
    first = map(str, (clock.before, clock.after, clock.moment, messages.with_suffix(".kB")))

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with messages.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", RUN, *first, *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env=environment,
            start_new_session=True,
            preexec_fn=restrict,
        )
    return Started(process, time.perf_counter(), messages)


def processes_of(session: int) -> list[int]:
    """Return the processes of a session that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            state, _, _, its_session, *_ = path.read_text().rpartition(")")[2].split()
            if int(its_session) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[bool]:
    """Mount a small tmpfs at the folder if the system permits it; yield whether it did."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    try:
        is_mounted = (
            kind == "auto" and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )
    except OSError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)
