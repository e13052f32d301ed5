"""What a process makes once from samples, and needs for all queries."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

Made = TypeVar("Made")


class Prepared:
    """Belongs to samples, but is not stored with them, nor copied or sent to another process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._source: object = None
        self._made: Any = None
        self._of_parts: dict[int, Prepared] = {}

    def once(self, source: object, make: Callable[[], Made]) -> Made:
        """What `make` returned when it was first called for this very object."""
        with self._lock:  # several batches may ask for it at the same time
            if self._source is not source:
                self._made, self._source = make(), source
            made: Made = self._made
            return made

    def of_part(self, number: int) -> Prepared:
        """For one part of the samples alone."""
        with self._lock:
            return self._of_parts.setdefault(number, Prepared())

    def __reduce__(self) -> tuple[type[Prepared], tuple[()]]:
        return Prepared, ()
