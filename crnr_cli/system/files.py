"""Writing files: either the complete file appears or none, and only one process writes it at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crnr_cli.errors import OutputError
from crnr_cli.system.outputs import (
    check_output,
    is_replaceable,
    journal_of,
    may_be_partial,
    occupied,
    partial_of,
    refuse_undeclared,
    rows_of,
)

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}
# A name that somebody else prepared is not followed elsewhere, and a pipe does not make us wait.
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
_ACL = "system.posix_acl_access"


@dataclass(frozen=True)
class Claim:
    """The partial file of an output, locked: a second writer is refused until the claim ends.

    It is written through `file` only, as its name may be taken by somebody else in the meantime.
    """

    path: Path  # of the output, as the user gave it
    target: Path  # the file that is replaced, after all links
    part: Path
    file: BinaryIO

    def open_journal(self) -> BinaryIO:
        """The journal next to the partial file, empty if there was none."""
        return self._open_beside(journal_of(self.target))

    def open_rows(self) -> BinaryIO:
        """The file of what was extracted so far, empty if there was none."""
        return self._open_beside(rows_of(self.target))

    def _open_beside(self, place: Path) -> BinaryIO:
        handle = _opened(place, self.path)
        _protect(handle, self.target, being_written=True)
        return os.fdopen(handle, "rb+")

    def discard(self) -> None:
        """Remove the partial file and what is next to it, if nothing in them is worth keeping."""
        self.remove_kept()
        if _is_still(self.part, self.file.fileno()):
            self.part.unlink()

    def has_rows(self) -> bool:
        """Whether anything was extracted so far."""
        with contextlib.suppress(FileNotFoundError):
            return rows_of(self.target).stat().st_size > 0
        return False

    def remove_kept(self) -> None:
        """Remove what would be kept for another run."""
        for place in (journal_of(self.target), rows_of(self.target)):
            place.unlink(missing_ok=True)

    def put_in_place(self) -> None:
        """Rename the finished partial file; a power failure leaves either the old or the new file.

        What is next to it is removed first, because after the renaming, it could be that of another writer.
        """
        handle = self.file.fileno()
        with disk_errors(self.path, "the old file, if any, is intact"):
            self.file.flush()
            os.fsync(handle)
            if not _is_still(self.part, handle):
                raise OutputError(f"{self.path}: another program has replaced {self.part.name}; try again")
            _protect(handle, self.target, being_written=False)
            self.remove_kept()
            self.part.replace(self.target)
        with disk_errors(self.path, "the new file is in place, but a power loss might undo that"):
            _sync_folder(self.target.parent)


@contextmanager
def claimed(path: Path, *, keep: bool = False) -> Iterator[Claim]:
    """Create and lock the partial file next to `path`.

    If the block fails, the partial file is removed, unless it is to be kept for another run.
    """
    check_output(path)
    refuse_undeclared(path)
    target = Path(os.path.realpath(path))
    part = partial_of(target)
    handle = _locked(part, path)
    file = os.fdopen(handle, "rb+")
    try:
        _protect(handle, target, being_written=True)
        if not keep:
            file.truncate(0)
        yield Claim(path, target, part, file)
    except BaseException:
        # After put_in_place, a file of this name belongs to another writer.
        if not keep and _is_still(part, handle):
            part.unlink()
        raise
    finally:
        with contextlib.suppress(OSError):  # of a full disk, which has been reported
            file.close()


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a partial file in the same folder to write to; it replaces `path` if the block succeeds.

    Until then, and if the block fails, an existing file at `path` is not changed. A pipe or a device such as
    /dev/null is written to directly.
    """
    if not is_replaceable(path):
        check_output(path)
        refuse_undeclared(path)
        with path.open("wb") as file:
            yield file
        return
    with claimed(path) as claim:
        with disk_errors(path, "the old file, if any, is intact"):
            yield claim.file
        claim.put_in_place()


@contextmanager
def locked(place: Path, path: Path) -> Iterator[None]:
    """Hold the lock of `path`, a file of this place, until the block ends; a second process is refused."""
    handle = _locked(place, path)
    try:
        yield
    finally:
        try:
            if _is_still(place, handle):
                place.unlink()
        finally:
            os.close(handle)


@contextmanager
def disk_errors(path: Path, consequence: str) -> Iterator[None]:
    """Turn the exceptions of a full or failing disk into an error, and name the consequence for the files."""
    try:
        yield
    except OSError as e:
        if e.errno not in _DISK_ERRORS:
            raise
        raise OutputError(f"{path}: cannot write ({os.strerror(e.errno)}); {consequence}") from e


def _opened(place: Path, path: Path) -> int:
    """Open a file that is only needed while `path` is written; refuse one that cannot be such a file."""
    try:
        handle = os.open(place, _FLAGS, 0o666)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise occupied(place, path) from e
        raise OutputError(f"{path}: cannot write ({e.strerror})") from e
    found = os.fstat(handle)
    if not may_be_partial(found):
        os.close(handle)
        raise occupied(place, path)
    os.set_blocking(handle, True)
    return handle


def _locked(part: Path, path: Path) -> int:
    """Open and lock the partial file. The kernel releases the lock when the process ends, in any way."""
    while True:
        handle = _opened(part, path)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(handle)
            raise OutputError(f"{path}: another crnr is writing it; wait, or choose another file") from e
        # Between open and lock, another writer may have renamed this file; in that case, try again.
        if _is_still(part, handle):
            return handle
        os.close(handle)


def _is_still(part: Path, handle: int) -> bool:
    """Whether the locked file still has this name. Only the owner of the lock can rename it."""
    try:
        return os.path.samestat(os.fstat(handle), part.lstat())
    except FileNotFoundError:
        return False


def _protect(handle: int, target: Path, *, being_written: bool) -> None:
    """Give a new file the owner, the group and the permissions of the file that it replaces, if there is one.

    If the group cannot be the same, the new one gets no more permissions than everybody has.
    """
    try:
        old = target.stat()
    except OSError:  # there is none, so that the umask decides
        return
    mode = stat.S_IMODE(old.st_mode)
    new = os.fstat(handle)
    if new.st_gid != old.st_gid:
        try:
            os.fchown(handle, -1, old.st_gid)
        except OSError:
            mode = mode & ~0o070 | (mode & 0o007) << 3
    if new.st_uid != old.st_uid:
        with contextlib.suppress(OSError):  # only root can
            os.fchown(handle, old.st_uid, -1)
    if being_written:
        mode = mode & 0o777 | 0o600
    if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
        try:
            os.fchmod(handle, mode)
        except PermissionError as e:
            raise OutputError(
                f"{target}: its permissions cannot be kept, as the unfinished file next to it belongs to "
                "somebody else; remove that, or write to another file"
            ) from e
    if not being_written and hasattr(os, "getxattr"):
        with contextlib.suppress(OSError):  # it has none, or the file system does not support them
            os.setxattr(handle, _ACL, os.getxattr(target, _ACL))


def _sync_folder(folder: Path) -> None:
    """Make sure that the renaming survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
