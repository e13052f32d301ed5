"""Where tests change the inside of the package, so that a change of its modules is a change here only.

Each takes a `patch`, which is `monkeypatch.setattr` in a test, and plain `setattr` in a process of its own.
The decoder process is changed in bad_decoder.py, which must not load as much as this module does.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

from crnr_cli.gallery import queries
from crnr_cli.images import pool
from crnr_cli.sorting import plan
from crnr_cli.system import cores, extras, memory, spares
from helpers.latch import Latch

Patch = Callable[[object, str, object], None]


def pause(until: str) -> None:
    """Report on stderr that work has begun, and each signal after crnr has handled it.

    It goes on after a `signal`, or `never`: the test ends the process.
    """
    signals, waker = socket.socketpair()
    with signals, waker:
        signals.settimeout(600)  # whatever becomes of the test, no process stays
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.fileno())
        _report("begun")
        goes_on = False
        while not goes_on:
            signals.recv(1)
            _report("received")
            goes_on = until == "signal"
        signal.set_wakeup_fd(-1)


def _report(word: str) -> None:
    sys.stderr.write(f"{word}\n")
    sys.stderr.flush()


def pause_in_batch(number: int, until: str, patch: Patch) -> None:
    """Let classify pause in a batch; they are counted from 0."""
    run = queries.Run.answer

    def pausing(*arguments: Any, **options: Any) -> Iterator[Any]:
        for batch, answers in enumerate(run(*arguments, **options)):
            if batch == number:
                pause(until)
            yield answers

    patch(queries.Run, "answer", pausing)


def pause_in_move(number: int, until: str, patch: Patch) -> None:
    """Let sort pause before it moves a file; they are counted from 0."""
    move, moves = plan.move_new, count()

    def pausing(*arguments: Any) -> None:
        if next(moves) == number:
            pause(until)
        move(*arguments)

    patch(plan, "move_new", pausing)


def count_batches_at_once(patch: Patch) -> list[int]:
    """Return how many batches each run of classify answers at once: the list grows with every run."""
    counts: list[int] = []

    def counting(*arguments: Any) -> Any:
        counts.append(arguments[2])
        return cores.run_side_by_side(*arguments)

    patch(queries, "run_side_by_side", counting)
    return counts


def open_at_product_threads(latch: Latch, seen: Latch, patch: Patch) -> None:
    """Open a latch when the threads of products are next set, or pieces of work are waited for before.

    Threads that are set stay until they are `seen`.
    """
    wait, hold = cores.wait, cores._hold

    def waiting(*arguments: Any) -> Any:
        latch.count_down()
        return wait(*arguments)

    def holding(counts: dict[object, int]) -> None:
        hold(counts)
        latch.count_down()
        seen.wait()

    patch(cores, "wait", waiting)
    patch(cores, "_hold", holding)


def set_free_bytes(free: int | None, patch: Patch) -> None:
    """Let the checks before any work, and the choice of batches at once, find so much memory free."""
    patch(memory, "free_bytes", lambda: free)


def use_decoder(command: Sequence[str], patch: Patch, seconds: float | None = None) -> None:
    """Decode images by another program, and wait `seconds` for each."""
    patch(pool, "COMMAND", command)
    if seconds is not None:
        patch(pool, "SECONDS_PER_IMAGE", seconds)


def watch_decoders(patch: Patch, kill_first: int = 0) -> list[subprocess.Popen[bytes]]:
    """Return the decoders as they are started, of which the first are killed at once: the list grows."""
    launch = pool.launch
    started: list[subprocess.Popen[bytes]] = []

    def watched(command: Sequence[str]) -> subprocess.Popen[bytes]:
        started.append(launch(command))
        if len(started) <= kill_first:
            started[-1].kill()
        return started[-1]

    patch(spares, "_idle", [])
    patch(spares, "_blocks", 0)
    patch(pool, "launch", watched)
    return started


def remove_extras(patch: Patch) -> None:
    """Let no optional package be found, such as matplotlib or jinja2."""
    patch(extras, "find_spec", lambda name: None)


def remove_scikit_learn(patch: Patch) -> None:
    """Let scikit-learn not be found."""
    found = extras.find_spec
    patch(extras, "find_spec", lambda name: None if name == "sklearn" else found(name))


def use_parquet_reader(code: str, patch: Patch) -> list[subprocess.Popen[bytes]]:
    """Let this code read Parquet files, if there is any, and return its processes: the list grows."""
    start = subprocess.Popen
    started: list[subprocess.Popen[bytes]] = []

    def watched(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        is_reader = "crnr_cli.system.parquet_process" in command
        process = start([sys.executable, "-c", code] if is_reader and code else command, **options)
        if is_reader:
            started.append(process)
        return process

    patch(spares, "_idle", [])
    patch(subprocess, "Popen", watched)
    return started
