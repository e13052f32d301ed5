"""Write files: either the complete file appears or none, and only one process writes it at a time.

The content goes to a partial file next to the output, which replaces the output in the end. A lock file is
next to them until then. It is a separate file, because Windows cannot rename the partial file while it is
open, and closing a file unlocks it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from crnr_cli.errors import OutputError
from crnr_cli.records import dataclass
from crnr_cli.system import descriptors

_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}
_NOT_A_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EOPNOTSUPP)  # the last two: sockets
_PATIENCE = 2.0  # seconds: on Windows, virus scanners open new files for a moment
LONGEST_NAME = 255  # bytes, on most file systems
_DESCRIPTOR = r"/dev/std(?:in|out|err)|/dev/fd/\d+|/proc/(?:self|\d+)/fd/\d+"
_EFFECTIVE = os.access in os.supports_effective_ids  # as for opening files, not the user who ran us

# A file that is being written has one of these names; no other program uses them.
_PARTIAL, _JOURNAL, _ROWS, _LOCK = ".crnr-part", ".crnr-journal", ".crnr-rows", ".crnr-lock"
# The record of a finished file, see results/updating.py, and a new record until that file is in place.
_STATE, _NEXT = ".crnr-state", ".crnr-next"
PARTIAL_ENDINGS = (_PARTIAL, _JOURNAL, _ROWS, _LOCK, _NEXT)
OWN_ENDINGS = (*PARTIAL_ENDINGS, _STATE)

# The outputs that a command declared; it writes nothing else, because it could overwrite an input. None
# outside a command: a library user may write anywhere.
declared: ContextVar[tuple[Path, ...] | None] = ContextVar("declared", default=None)


def partial_of(target: Path) -> Path:
    """Return the file that an output is written to until it is complete."""
    return _beside(target, _PARTIAL)


def journal_of(target: Path) -> Path:
    """Return the journal of a partial file, see results/journal.py."""
    return _beside(target, _JOURNAL)


def rows_of(target: Path) -> Path:
    """Return the file with the values extracted so far, for an output that is only written at the end."""
    return _beside(target, _ROWS)


def state_of(target: Path) -> Path:
    """Return the record of a finished output."""
    return _beside(target, _STATE)


def next_state_of(target: Path) -> Path:
    """Return the record of an output that is about to be put in place."""
    return _beside(target, _NEXT)


def lock_of(target: Path) -> Path:
    """Return the file that is locked while an output is written."""
    return _beside(target, _LOCK)


def places_beside(target: Path) -> list[Path]:
    """Return all files that may exist next to an output while it is written."""
    return [_beside(target, ending) for ending in PARTIAL_ENDINGS]


def _beside(target: Path, ending: str) -> Path:
    """Return a name next to the target; a name that would be too long becomes a hash, for --resume too."""
    name = target.name + ending
    if len(os.fsencode(name)) > longest_name(target.parent):
        import hashlib

        name = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:32] + ending
    return target.with_name(name)


def longest_name(folder: Path) -> int:
    """Return the maximum length of a name in this folder, in bytes."""
    try:
        return os.pathconf(folder, "PC_NAME_MAX") if hasattr(os, "pathconf") else LONGEST_NAME
    except (OSError, ValueError):
        return LONGEST_NAME


def may_be_partial(found: os.stat_result) -> bool:
    """Return whether a file with the name of a partial file is safe to write: it is no link."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1


def occupied_error(place: Path, path: Path) -> OutputError:
    return OutputError(
        f"{path}: while it is written, crnr needs the name {place.name}, which is a link, a folder or the "
        "like; remove it, or write to another file"
    )


def check_output(path: Path) -> None:
    """Raise an error if an output cannot be written."""
    try:
        found: os.stat_result | None = _status(path)
        folder = _status(path.parent)
    except OSError as e:
        reason = "no permission to write" if e.errno == errno.EACCES else f"cannot write ({e.strerror})"
        raise OutputError(f"{path}: {reason}; choose another place") from e
    except ValueError as e:  # NUL in a name
        raise OutputError(f"{path}: cannot write ({e}); choose another place") from e
    if found and stat.S_ISDIR(found.st_mode):
        raise OutputError(f"{path}: is a folder; give a file name")
    if folder is None or not stat.S_ISDIR(folder.st_mode):
        raise OutputError(f"{path}: the folder {path.parent} does not exist; create it first")
    if _is_descriptor(path) and found and stat.S_ISREG(found.st_mode):
        raise OutputError(f"{path}: is a file descriptor; give the name of the file instead")
    target = Path(os.path.realpath(path))
    if not os.path.isdir(target.parent):  # noqa: PTH112, which raises if access is denied
        raise OutputError(f"{path}: is a link to {target}, whose folder does not exist; create it first")
    if (is_replaceable(path) and not _may(target.parent, os.W_OK | os.X_OK)) or (
        found and not _may(path, os.W_OK)
    ):
        raise OutputError(f"{path}: no permission to write; choose another place")


def _refuse_undeclared(path: Path) -> None:
    """Stop a command that writes an output without declaring it: a mistake in our own code."""
    outputs, target = declared.get(), Path(os.path.realpath(path))
    is_declared = outputs is None or any(Path(os.path.realpath(output)) == target for output in outputs)
    assert is_declared, f"{path} is not declared as an output of this command"


def is_replaceable(path: Path) -> bool:
    """Return whether this is a regular file or does not exist yet; pipes and devices are written directly."""
    return not _is_descriptor(path) and (os.path.isfile(path) or not os.path.exists(path))  # noqa: PTH110, PTH113


def is_stdout(path: Path) -> bool:
    return os.path.abspath(path) in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")  # noqa: PTH100


def path_in_other_process(path: Path) -> str:
    """Return a path by which a child process finds the same file: /dev/stdin is another file there."""
    match path.parts:
        case "/", "dev", "stdin":
            return _path_of_open(0) or os.path.realpath(path)
        case ("/", "dev", "fd", number, *below) | ("/", "proc", "self", "fd", number, *below):
            if number.isdecimal() and (file := _path_of_open(int(number))):
                return str(Path(file, *below))
    return os.path.realpath(path) if path.is_symlink() else str(path)


def _path_of_open(handle: int) -> str | None:
    """Return a path by which other processes find an open file, if the system has one."""
    place = f"/proc/{os.getpid()}/fd/{handle}"
    return place if os.path.exists(place) else descriptors.find_path(handle)  # noqa: PTH110


def _status(path: Path) -> os.stat_result | None:
    """Return the status of the file; None if it does not exist."""
    try:
        return os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return None


def _may(path: Path, access: int) -> bool:
    return os.access(path, access, effective_ids=_EFFECTIVE)


def _is_descriptor(path: Path) -> bool:
    """Return whether this is /dev/stdout or the like, which cannot be replaced even if it is a file."""
    return re.fullmatch(_DESCRIPTOR, os.path.abspath(path)) is not None  # noqa: PTH100, which follows links


class _Lock:
    """A lock file, which is removed when it is released; a second writer is refused until then."""

    def __init__(self, place: Path, path: Path) -> None:
        self._place, self._handle = place, _open_and_lock(place, path)
        self.is_held = True

    def protect(self, target: Path) -> None:
        """Let all users who may write the target take over the lock of a killed run."""
        with contextlib.suppress(OSError):  # it belongs to another user, whose run was killed
            descriptors.protect(self._handle, target, being_written=True)

    def release(self) -> None:
        """Remove the lock file without letting another process lose its lock. Safe to call twice."""
        if not self.is_held:
            return
        self.is_held = False
        if not descriptors.MAY_REPLACE_OPEN:
            os.close(self._handle)
            with contextlib.suppress(OSError):  # another process has opened it by now, and keeps it
                self._place.unlink()
            return
        try:
            if _is_still(self._place, os.fstat(self._handle)):
                self._place.unlink()
        finally:
            os.close(self._handle)


@dataclass(frozen=True)
class Claim:
    """The partial file of an output, and its lock: a second writer is refused until the claim ends.

    It is written through `file` only, because another process may take its name in the meantime.
    """

    path: Path  # of the output, as the user gave it
    target: Path  # the file that is replaced, after all links
    part: Path
    file: BinaryIO
    status: os.stat_result  # of the partial file
    lock: _Lock
    _beside: list[BinaryIO] = field(default_factory=list)  # files opened next to it

    def open_journal(self) -> BinaryIO:
        """Return the journal next to the partial file, empty if there was none."""
        return self._open_beside(journal_of(self.target))

    def open_rows(self) -> BinaryIO:
        """Return the file with the values extracted so far, empty if there was none."""
        return self._open_beside(rows_of(self.target))

    def open_next_state(self) -> BinaryIO:
        """Return the record of the output that is about to be put in place, empty if there was none."""
        return self._open_beside(next_state_of(self.target))

    def _open_beside(self, place: Path) -> BinaryIO:
        handle = _open_own_file(place, self.path)
        _protect(handle, self.target, being_written=True)
        self._beside.append(os.fdopen(handle, "rb+"))
        return self._beside[-1]

    def discard(self) -> None:
        """Remove the partial file and the files next to it, if nothing in them is worth keeping."""
        self.remove_kept()
        _close(self.file)
        if _is_still(self.part, self.status):
            self.part.unlink()

    def has_rows(self) -> bool:
        """Return whether any values were extracted so far."""
        with contextlib.suppress(FileNotFoundError):
            return rows_of(self.target).stat().st_size > 0
        return False

    def remove_kept(self) -> None:
        """Remove the files that would be kept for another run."""
        for file in self._beside:
            _close(file)
        for place in (journal_of(self.target), rows_of(self.target)):
            place.unlink(missing_ok=True)

    def put_in_place(self, then: Callable[[], object] | None = None) -> None:
        """Rename the finished partial file; a power failure leaves either the old or the new file.

        The next writer may begin as soon as the file is in place, and `then` has been called. Until then,
        the files for another run are kept if they are of use to it.
        """
        handle = self.file.fileno()
        with disk_errors(self.path, "the old file, if any, is intact"):
            self.file.flush()
            descriptors.sync(handle)
            if not _is_still(self.part, self.status):
                raise OutputError(f"{self.path}: another program has replaced {self.part.name}; try again")
            _protect(handle, self.target, being_written=False)
            self.file.close()
            _refuse_open(self.target, self.path)  # before the files kept for another run are removed
            if then is None:
                self.remove_kept()
            _retry_while_open(lambda: self.part.replace(self.target), self.path)
        if then is not None:
            with disk_errors(self.path, "the new file is in place; run the command again"):
                then()
                self.remove_kept()
        with contextlib.suppress(OSError):  # the next writer will take it over
            self.lock.release()
        with disk_errors(self.path, "the new file is in place, but a power loss might undo that"):
            descriptors.sync_folder(self.target.parent)


def sha256_of(path: str | Path) -> str:
    """Return the hash of a file's content in hexadecimal digits."""
    with open(path, "rb") as file:  # noqa: PTH123
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def claimed(path: Path, *, keep: bool = False) -> Iterator[Claim]:
    """Lock `path`, and create the partial file next to it.

    If the block fails, the partial file is removed, unless `keep` preserves it for another run.
    """
    check_output(path)
    _refuse_undeclared(path)
    target = Path(os.path.realpath(path))
    part = partial_of(target)
    lock = _Lock(lock_of(target), path)
    try:
        lock.protect(target)
        _refuse_open(target, path)
        with os.fdopen(_open_own_file(part, path), "rb+") as file:
            status = os.fstat(file.fileno())
            try:
                _protect(file.fileno(), target, being_written=True)
                if not keep:
                    file.truncate(0)
                yield Claim(path, target, part, file, status, lock)
            except BaseException:
                _close(file)
                # After put_in_place, a file of this name belongs to another writer.
                if not keep and lock.is_held and _is_still(part, status):
                    part.unlink()
                raise
            finally:
                _close(file)
    finally:
        with contextlib.suppress(OSError):
            lock.release()


@contextmanager
def replacing(path: Path, *, if_written: bool = False) -> Iterator[BinaryIO]:
    """Yield a partial file in the same folder to write to; it replaces `path` if the block succeeds.

    Until then, and if the block fails, an existing file at `path` is not changed. With `if_written`, a block
    that writes nothing does not replace it either. A pipe or a device such as /dev/null is written directly.
    """
    if not is_replaceable(path):
        check_output(path)
        _refuse_undeclared(path)
        with path.open("wb") as file:
            yield file
        return
    with claimed(path) as claim:
        with disk_errors(path, "the old file, if any, is intact"):
            yield claim.file
            claim.file.flush()
        if if_written and os.fstat(claim.file.fileno()).st_size == 0:
            claim.discard()
        else:
            claim.put_in_place()


@contextmanager
def locked(place: Path, path: Path) -> Iterator[None]:
    """Hold the lock of `path`, the file `place`, until the block ends; a second process is refused."""
    lock = _Lock(place, path)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def disk_errors(path: Path, consequence: str) -> Iterator[None]:
    """Turn the exceptions of a full or failing disk into an error, and name the consequence for the files."""
    try:
        yield
    except OSError as e:
        if e.errno not in _DISK_ERRORS:
            raise
        raise OutputError(f"{path}: cannot write ({os.strerror(e.errno)}); {consequence}") from e


def _open_own_file(place: Path, path: Path) -> int:
    """Open a file that exists only while `path` is written; refuse anything else of that name."""
    try:
        handle = descriptors.open_own(place)
    except OSError as e:
        if e.errno in _NOT_A_FILE:
            raise occupied_error(place, path) from e
        raise OutputError(f"{path}: cannot write ({e.strerror})") from e
    found = os.fstat(handle)
    if not may_be_partial(found):
        os.close(handle)
        raise occupied_error(place, path)
    return handle


def _open_and_lock(place: Path, path: Path) -> int:
    """Open and lock a lock file. The system releases the lock when the process ends in any way."""
    while True:
        handle = _open_own_file(place, path)
        try:
            descriptors.lock(handle)
        except BlockingIOError as e:
            os.close(handle)
            raise OutputError(f"{path}: another crnr is writing it; wait, or choose another file") from e
        # Between open and lock, another writer may have removed this file; in that case, try again.
        if _is_still(place, os.fstat(handle)):
            return handle
        os.close(handle)


def _is_still(place: Path, status: os.stat_result) -> bool:
    """Return whether this file still has this name. Only the owner of the lock may remove or rename it.

    On Windows, an open file cannot be renamed or removed.
    """
    if not descriptors.MAY_REPLACE_OPEN:
        return os.path.lexists(place)
    try:
        return os.path.samestat(status, place.lstat())
    except FileNotFoundError:
        return False


def _close(file: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # of a full disk, which has been reported
        file.close()


def _protect(handle: int, target: Path, *, being_written: bool) -> None:
    try:
        descriptors.protect(handle, target, being_written=being_written)
    except PermissionError as e:
        raise OutputError(
            f"{target}: its permissions cannot be kept, because the unfinished file next to it belongs to "
            "another user; remove that file, or write to another one"
        ) from e


def _refuse_open(target: Path, path: Path) -> None:
    """Refuse, on Windows, a file that another program has open: it could not be replaced in the end."""
    if not descriptors.MAY_REPLACE_OPEN:
        try:
            # This changes nothing, but needs the same permission from the program that has the file open.
            _retry_while_open(lambda: os.rename(target, target), path)  # noqa: PTH104
        except (FileNotFoundError, FileExistsError):
            pass
        except OSError as e:
            raise OutputError(f"{path}: cannot be replaced ({e.strerror})") from e


def _retry_while_open(action: Callable[[], object], path: Path) -> None:
    """Rename or replace a file; on Windows, wait a moment for other programs to close it."""
    if descriptors.MAY_REPLACE_OPEN:
        action()
        return
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            action()
            return
        except PermissionError as e:
            if time.monotonic() > end:
                raise OutputError(
                    f"{path}: another program has this file open, so crnr cannot replace it; close it there, "
                    "and run the command again"
                ) from e
        time.sleep(_PATIENCE / 20)
