"""Writing files: either the complete file appears or none, and only one process writes it at a time."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crnr_cli.errors import OutputError

_DESCRIPTOR = re.compile(r"/dev/std(?:in|out|err)|/dev/fd/\d+|/proc/(?:self|\d+)/fd/\d+")
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}


def check_output(path: Path, inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before any work, an output that cannot be written or that is an input."""
    folder = path.parent
    if os.path.isdir(path):  # noqa: PTH112, which raises if access is denied; the same below
        raise OutputError(f"{path}: is a directory; give a file name")
    if not os.path.isdir(folder):  # noqa: PTH112
        raise OutputError(f"{path}: there is no directory {folder}; create it first")
    if _is_descriptor(path) and os.path.isfile(path):  # noqa: PTH113
        raise OutputError(f"{path}: refers to a file that is already open; give the name of that file")
    if (is_replaceable(path) and not os.access(folder, os.W_OK)) or (
        path.exists() and not os.access(path, os.W_OK)
    ):
        raise OutputError(f"{path}: no permission to write; choose another place")
    for given in inputs:
        if os.path.isfile(path) and os.path.isfile(given) and path.samefile(given):  # noqa: PTH113
            raise OutputError(f"{path}: is an input of this run; write to another file")


def is_replaceable(path: Path) -> bool:
    """Whether this is a regular file or does not exist yet; a pipe or /dev/null is written to directly."""
    return not _is_descriptor(path) and (path.is_file() or not path.exists())


def _is_descriptor(path: Path) -> bool:
    """Whether this is /dev/stdout or the like: even if it refers to a regular file, it cannot be replaced."""
    return _DESCRIPTOR.fullmatch(os.path.abspath(path)) is not None  # noqa: PTH100, which follows links


def is_stdout(path: Path) -> bool:
    return os.path.abspath(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # noqa: PTH100


@contextmanager
def claimed(path: Path, *, keep: bool = False) -> Iterator[Path]:
    """The partial file next to `path`, locked until the block ends: a second writer is refused.

    If the block fails, the partial file is removed, unless it is to be kept for another run.
    """
    check_output(path)
    target = Path(os.path.realpath(path))
    part = target.with_name(target.name + ".part")
    lock = _locked(part, path)
    try:
        yield part
    except BaseException:
        # After put_in_place, a file of this name belongs to another writer.
        if not keep and _is_still(part, lock):
            part.unlink()
        raise
    finally:
        os.close(lock)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a partial file in the same folder to write to; it replaces `path` if the block succeeds.

    Until then, and if the block fails, an existing file at `path` is not changed. A pipe or a device such as
    /dev/null is written to directly.
    """
    if not is_replaceable(path):
        check_output(path)
        yield path
        return
    with claimed(path) as part:
        with disk_errors(path, "the old file, if any, is intact"):
            yield part
        put_in_place(part, path)


def put_in_place(part: Path, path: Path, journal: Path | None = None) -> None:
    """Rename the finished partial file to `path`; a power failure leaves either the old or the new file.

    Its journal is removed first, because after the renaming, a journal could be that of another writer.
    """
    target = Path(os.path.realpath(path))
    with disk_errors(path, "the old file, if any, is intact"):
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        if journal:
            journal.unlink()
        part.replace(target)
    with disk_errors(path, "the new file is in place, but a power loss might undo that"):
        _sync_folder(target.parent)


@contextmanager
def disk_errors(path: Path, consequence: str) -> Iterator[None]:
    """Turn the exceptions of a full or failing disk into an error, and name the consequence for the files."""
    try:
        yield
    except OSError as e:
        if e.errno not in _DISK_ERRORS:
            raise
        raise OutputError(f"{path}: cannot write ({os.strerror(e.errno)}); {consequence}") from e


def _locked(part: Path, path: Path) -> int:
    """Open and lock the partial file. The kernel releases the lock when the process ends, in any way."""
    while True:
        try:
            lock = os.open(part, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as e:
            raise OutputError(f"{path}: cannot write ({e.strerror})") from e
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(lock)
            raise OutputError(f"{path}: another crnr is writing it; wait, or choose another file") from e
        # Between open and lock, another writer may have renamed this file; in that case, try again.
        if _is_still(part, lock):
            return lock
        os.close(lock)


def _is_still(part: Path, lock: int) -> bool:
    """Whether the locked file still has this name. Only the owner of the lock can rename it."""
    try:
        return os.path.samestat(os.fstat(lock), part.stat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Make sure that the renaming survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
