"""A latch: threads wait until others have come, and not for some time in which they should."""

from __future__ import annotations

from threading import Event, Lock


class Latch:
    """Opens when it has been counted down."""

    def __init__(self, count: int = 1) -> None:
        self._count, self._lock, self._is_open = count, Lock(), Event()

    def count_down(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count <= 0:
                self._is_open.set()

    def wait(self) -> None:
        """Return when the latch is open; a test that fails must not wait for ever."""
        assert self._is_open.wait(60)
