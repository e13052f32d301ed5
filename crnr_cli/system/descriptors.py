"""Open files by their descriptors: locks, positions, permissions, and syncing to the disk.

Linux, macOS and Windows differ here. Anything that one of them lacks is used in this module alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import threading
import time
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Whether a file that is open or mapped can be renamed, replaced and removed. On Windows it cannot, unless the
# program that opened it permits that; neither Python nor HDF5 does.
MAY_REPLACE_OPEN = sys.platform != "win32"

# 0 where the system has no such flag. Python itself keeps descriptors from child processes (PEP 446).
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe would block until its other end is open
ONLY_FOLDERS = getattr(os, "O_DIRECTORY", 0)
_BINARY = getattr(os, "O_BINARY", 0)  # otherwise Windows would turn every \n into \r\n
READ = os.O_RDONLY | NO_LINK | _NO_WAIT | _BINARY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | _BINARY
_OWN = os.O_RDWR | os.O_CREAT | NO_LINK | _NO_WAIT | _BINARY

_NO_FULL_SYNC = (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY)  # a file system without support for it
_ACL = "system.posix_acl_access"
_PATIENCE = 1.0  # seconds: Windows may take a while to release the locks of a killed process
_BLOCK = 1 << 20  # bytes

_moving = threading.Lock()  # protects the position of a file, where writing at an offset has to move it


def open_own(place: Path) -> int:
    """Open or create a file with one of our own names; refuse a link that another user put there.

    OSError tells the problem: ELOOP, EISDIR, or ENXIO if it is not a file.
    """
    refuse_link(place)
    handle = os.open(place, _OWN, 0o666)
    try:
        refuse_link(place)  # it may have become a link since the check; while it is open, it cannot
    except OSError:
        os.close(handle)
        raise
    if _NO_WAIT:
        os.set_blocking(handle, True)
    return handle


def find_path(handle: int) -> str | None:
    """Return the path of an open file where the system tells it: on macOS."""
    if sys.platform == "darwin" and hasattr(fcntl, "F_GETPATH"):
        with contextlib.suppress(OSError):
            return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return None


def refuse_link(name: str | Path) -> None:
    """Raise OSError for a link or a folder, where the system cannot open files without following links."""
    if NO_LINK:
        return
    with contextlib.suppress(FileNotFoundError):
        mode = os.lstat(name).st_mode
        if not stat.S_ISREG(mode):
            code = errno.EISDIR if stat.S_ISDIR(mode) else errno.ELOOP
            raise OSError(code, os.strerror(code), str(name))


def lock(handle: int) -> None:
    """Lock a file without content. The system unlocks it when the process ends in any way.

    BlockingIOError if another process, or another descriptor of this process, has locked it.
    """
    if sys.platform == "win32":
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                os.lseek(handle, 0, os.SEEK_SET)
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # a byte that need not exist
                return
            except PermissionError as e:  # EACCES, according to the documentation of _locking
                if time.monotonic() > end:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from e
                time.sleep(_PATIENCE / 20)
    else:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def sync(handle: int) -> None:
    """Wait until everything written is on the disk."""
    if sys.platform == "darwin":
        # On macOS, fsync hands the data to the disk, which may keep them in its own memory: see fsync(2).
        try:
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
            return
        except OSError as e:
            if e.errno not in _NO_FULL_SYNC:
                raise
    os.fsync(handle)


def sync_folder(folder: str | Path) -> None:
    """Make sure that a renaming in the folder survives a power failure.

    Windows has no call for it: a folder cannot be opened like a file, and NTFS keeps a journal of names.
    """
    if not ONLY_FOLDERS:
        return
    handle = os.open(folder, os.O_RDONLY | ONLY_FOLDERS)
    try:
        sync(handle)
    finally:
        os.close(handle)


def write_at(handle: int, data: memoryview, offset: int) -> None:
    """Write at a position of the file, from any thread."""
    if sys.platform == "win32":
        with _moving:
            os.lseek(handle, offset, os.SEEK_SET)
            _write_all(handle, data)
        return
    while data:
        written = os.pwrite(handle, data, offset)
        data, offset = data[written:], offset + written


def copy_bytes(read: int, written: int) -> None:
    """Copy the rest of a file, in the kernel as far as the file systems support it."""
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):
            while os.copy_file_range(read, written, _BLOCK << 10):
                pass
    while block := os.read(read, _BLOCK):
        _write_all(written, memoryview(block))


def _write_all(handle: int, data: memoryview) -> None:
    while data:
        data = data[os.write(handle, data) :]


def copy_status(read: int, status: os.stat_result, written: int) -> None:
    """Give a copy the owner, permissions, attributes and times of a file; for Windows, see `folders`."""
    if sys.platform == "win32":
        return
    mode = stat.S_IMODE(status.st_mode)
    new = os.fstat(written)
    if (new.st_uid, new.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(written, status.st_uid, status.st_gid)
        except OSError:  # only root can; a program must not run as another user than before
            mode &= 0o777
            with contextlib.suppress(OSError):
                os.fchown(written, -1, status.st_gid)
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):  # the file system has none
            for name in os.listxattr(read):
                with contextlib.suppress(OSError):  # some attributes need privileges
                    os.setxattr(written, name, os.getxattr(read, name))
    os.fchmod(written, mode)
    os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))


def protect(handle: int, target: Path, *, being_written: bool) -> None:
    """Give a new file the owner, the group and the permissions of the file that it replaces, if any.

    If the group cannot be the same, the new group gets no more permissions than all users have.
    PermissionError if the permissions cannot be the same. On Windows, a new file has the permissions of its
    folder.
    """
    if sys.platform == "win32":
        return
    try:
        old = target.stat()
    except OSError:  # there is no such file, so the umask decides
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
        os.fchmod(handle, mode)
    if not being_written and hasattr(os, "getxattr"):
        with contextlib.suppress(OSError):  # it has none, or the file system does not support them
            os.setxattr(handle, _ACL, os.getxattr(target, _ACL))
