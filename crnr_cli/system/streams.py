"""Standard streams, and pipes whose other end is gone."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def set_up_streams() -> None:
    """Write the same bytes in cron as in a terminal, whatever the locale and even if a stream is closed.

    On stdout, names that are not UTF-8 are written as the bytes that were read; on stderr they are escaped.
    Windows would otherwise use a code page, and end lines with two characters.
    """
    # Opened read-only, so that the first write fails with EBADF and is reported.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream, errors in ((sys.stdout, "surrogateescape"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors, newline="\n")


def abandon_stdout() -> None:
    """Discard buffered output that nobody can read; otherwise Python would fail to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_broken_pipe(error: OSError) -> bool:
    """Whether the reader of a pipe is gone. Windows says EINVAL, as the module subprocess knows too."""
    is_windows_word = sys.platform == "win32" and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or is_windows_word


@contextmanager
def ignoring_broken_pipes() -> Iterator[None]:
    """For a process that may be dead already."""
    try:
        yield
    except OSError as e:
        if not is_broken_pipe(e):
            raise
