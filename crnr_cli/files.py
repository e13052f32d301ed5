"""A file appears whole or not at all; one writer at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crnr_cli.errors import OutputError

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}


def check_output(path: Path) -> None:
    """Refuse, before any work, an output that could not be written at the end of it."""
    folder = path.parent
    if path.is_dir():
        raise OutputError(f"{path}: is a directory; name a file")
    if not folder.is_dir():
        raise OutputError(f"{path}: there is no directory {folder}; make it first")
    if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OutputError(f"{path}: no permission to write here")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a sibling to write to; it takes the place of `path` when the block ends well.

    Whatever was at `path` stays whole until then, and stays for good if the block fails. What is not a
    regular file (a pipe, /dev/null) is written to directly: there is nothing to replace.
    """
    check_output(path)
    if path.exists() and not path.is_file():
        yield path
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(target.name + ".part")
    lock = _locked(part, path)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(target)
        _sync_folder(target.parent)
    except OSError as e:
        if e.errno in _DISK_ERRORS:
            raise OutputError(f"{path}: cannot write ({os.strerror(e.errno)}); the old file is intact") from e
        raise
    finally:
        part.unlink(missing_ok=True)
        os.close(lock)


def _locked(part: Path, path: Path) -> int:
    """Open and lock the partial file. The kernel lets go of the lock with the process, however it ends."""
    while True:
        try:
            lock = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as e:
            raise OutputError(f"{path}: cannot write ({e.strerror})") from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(lock)
            raise OutputError(f"{path}: another crnr is writing it; wait for it or name another file") from e
        # Between open and lock the other writer may have renamed the file away; then it is not ours to write.
        try:
            if os.path.samestat(os.fstat(lock), part.stat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power loss."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
