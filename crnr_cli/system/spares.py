"""Idle child processes that wait for more work of the same command."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

Origin = Hashable


class Spare(Protocol):
    """A child process without work."""

    @property
    def origin(self) -> Origin: ...

    @property
    def is_alive(self) -> bool: ...

    def end(self) -> None: ...


SpareT = TypeVar("SpareT", bound=Spare)

_lock = threading.Lock()
_idle: list[Spare] = []
_blocks = 0  # of `kept`, open in any thread


@contextmanager
def kept() -> Iterator[None]:
    """Let idle processes wait for more work until the outermost block ends; else they are ended at once.

    Starting a decoder takes as long as decoding 50 small images, and a build reads its images three times.
    """
    global _blocks
    with _lock:
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            unneeded = [] if _blocks else _take_all()
        for spare in unneeded:
            spare.end()


def put(spare: Spare) -> None:
    with _lock:
        if is_kept := _blocks > 0:
            _idle.append(spare)
    if not is_kept:
        spare.end()


def take(kind: type[SpareT], command: Sequence[str]) -> SpareT | None:
    """Return an idle process that this command started, if there is one."""
    origin = current_origin(command)
    with _lock:
        spares = _take_all()
        of_kind = [one for one in spares if isinstance(one, kind)]
        usable = [one for one in of_kind if one.origin == origin and one.is_alive]
        found = usable.pop() if usable else None
        _idle.extend(one for one in spares if one not in of_kind)
        _idle.extend(usable)
    for spare in of_kind:
        if spare is not found and spare not in usable:
            spare.end()
    return found


def current_origin(command: Sequence[str]) -> Origin:
    """Identify what a process that starts now has in common with its spares; a fork has its own."""
    return tuple(command), os.getpid()


def _take_all() -> list[Spare]:
    spares = _idle.copy()
    _idle.clear()
    return spares
