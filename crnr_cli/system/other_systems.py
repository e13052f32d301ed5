"""Ask psutil about the machine and its processes, where there is no /proc: on macOS and Windows."""

from __future__ import annotations

import os
import sys

NEEDED = sys.platform in ("darwin", "win32")


def free_memory() -> int:
    """Return the bytes that programs can get without others being moved to the disk."""
    import psutil

    return int(psutil.virtual_memory().available)


def cores() -> int:
    """Return the cores that this process may use."""
    if sys.platform == "win32":
        import psutil

        return len(psutil.Process().cpu_affinity())
    return os.cpu_count() or 1


class Usage:
    """The resources that a child process uses."""

    def __init__(self, number: int) -> None:
        import psutil

        self._gone = psutil.Error
        try:
            self._processes = [psutil.Process(number)]
        except psutil.Error:
            self._processes = []

    def measure(self) -> tuple[int, float]:
        """Return bytes of memory, and seconds of work on a core; zeros if the process has ended."""
        self._find_launched()
        size, seconds = 0, 0.0
        for process in self._processes:
            try:
                size += process.memory_info().rss
                times = process.cpu_times()
            except self._gone:
                continue
            seconds += times.user + times.system
        return size, seconds

    def _find_launched(self) -> None:
        """Add the child of a launcher: in a virtual environment on Windows, python.exe only starts Python."""
        is_launcher = sys.platform == "win32" and sys.prefix != sys.base_prefix
        if is_launcher and len(self._processes) == 1:
            try:
                self._processes += self._processes[0].children()
            except self._gone:
                return
