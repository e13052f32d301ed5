"""Put files in their places: copied, linked or moved, whole or not at all, and never over another file."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import OutputError
from crnr_cli.system.names import existing

PART = ".crnr-sort.part"  # what is copied has this name until it is whole
LONGEST_NAME = 255  # bytes, on most file systems
_BLOCK = 1 << 20  # bytes
_MOST_OPEN = 64  # folders
_CURRENT_FOLDER = -100  # AT_FDCWD of Linux
_NO_REPLACE = 1  # RENAME_NOREPLACE
_NO_RENAME = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # a file system that cannot rename like this
_SOURCE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    """A name in an open folder; without one, a path."""

    name: str
    folder: int | None = None

    def status(self) -> os.stat_result | None:
        """Of the file itself, links not followed; None if there is nothing of this name."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self) -> None:
        os.unlink(self.name, dir_fd=self.folder)


class Tree:
    """A folder and those below it, which are opened one by one, so that no link among them is followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._open: dict[str, int] = {}

    def close(self) -> None:
        for folder in (*self._open.values(), self.root):
            os.close(folder)

    def place(self, target: str, *, make: bool = False) -> Place:
        """Of a file, by its name below this folder. The folders on the way are made if they are missing."""
        above, _, name = target.rpartition("/")
        return Place(name, self.folder(above, make=make))

    def folder(self, below: str, *, make: bool = False) -> int:
        if not below:
            return self.root
        if (found := self._open.get(below)) is not None:
            return found
        above, _, name = below.rpartition("/")
        parent = self.folder(above, make=make)
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)
        try:
            opened = os.open(name, _FOLDER, dir_fd=parent)
        except OSError as e:
            if e.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise OutputError(
                f"{self.path / below}: is a link or a file, and a folder is needed there; "
                "remove it, or choose another folder"
            ) from e
        if len(self._open) >= _MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[below] = opened
        return opened

    def names(self, below: str) -> set[str] | None:
        """What is in a folder; None if it does not exist."""
        try:
            return set(os.listdir(self.folder(below)))  # noqa: PTH208, by descriptor
        except FileNotFoundError:
            return None

    def remove_folder(self, below: str) -> None:
        """Remove a folder if it is empty."""
        above, _, name = below.rpartition("/")
        with contextlib.suppress(OSError, OutputError):
            os.rmdir(name, dir_fd=self.folder(above))


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Turn what a file system refuses into an error. Limits of the machine are reported elsewhere."""
    try:
        yield
    except OSError as e:
        if e.errno is None or e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise OutputError(
            f"{folder}: stopped ({os.strerror(e.errno)}); nothing is lost, and the same command continues"
        ) from e


def place_of_folder(folder: Path) -> Path:
    """The folder itself or, if it is missing, the one that it will be made in."""
    found = existing(folder)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise OutputError(f"{folder}: is not a folder; choose another place")
    above = folder.absolute().parent
    if found is None and not above.is_dir():
        raise OutputError(f"{folder}: there is no directory {folder.parent}; create it first")
    return above if found is None else folder


def is_within(place: str, folder: str) -> bool:
    """Whether a path is that of the folder, or below it."""
    return os.path.join(place, "").startswith(os.path.join(folder, ""))  # noqa: PTH118


def longest_name(folder: Path) -> int:
    """In bytes."""
    try:
        return os.pathconf(folder, "PC_NAME_MAX")
    except (OSError, ValueError):
        return LONGEST_NAME


@contextmanager
def opened_tree(path: Path) -> Iterator[Tree]:
    tree = Tree(path)
    try:
        yield tree
    finally:
        tree.close()


@cache
def _renameat2() -> Callable[..., int] | None:
    """The system call that renames a file, unless there is another of the new name; Linux has it."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is None:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function  # type: ignore[no-any-return]


def rename_new(source: Place, target: Place) -> None:
    """Rename a file within a file system. If there is a file of the new name, FileExistsError is raised."""
    if (function := _renameat2()) is not None:
        places = []
        for place in (source, target):
            places += [_CURRENT_FOLDER if place.folder is None else place.folder, os.fsencode(place.name)]
        if function(*places, _NO_REPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in _NO_RENAME:
            raise OSError(code, os.strerror(code), source.name)
    link_new(source, target)
    _remove_or_undo(source, target)


def link_new(source: Place, target: Place) -> None:
    """A second name of the same file."""
    os.link(
        source.name,
        target.name,
        src_dir_fd=source.folder,
        dst_dir_fd=target.folder,
        follow_symlinks=False,
    )


def symlink_new(text: str, target: Place) -> None:
    os.symlink(text, target.name, dir_fd=target.folder)


def put_new(source: str, target: Place, part: Place, how: str) -> None:
    """Copy or link a file, given by its whole path."""
    if how == "copy":
        copy_new(Place(source), target, part)
    elif how == "hardlink":
        link_new(Place(source), target)
    else:
        symlink_new(source, target)


def copy_new(source: Place, target: Place, part: Place, *, sync: bool = False) -> None:
    """Copy a file with its permissions and times, as `cp -p` does; with `sync`, it survives a power failure.

    It has the name `part`, on the same file system, until it is whole.
    """
    read = os.open(source.name, _SOURCE, dir_fd=source.folder)
    try:
        status = os.fstat(read)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file any more", source.name)
        written = _new_part(part)
        try:
            _copy_bytes(read, written)
            _copy_status(read, status, written)
            if sync:
                os.fsync(written)
        finally:
            os.close(written)
    finally:
        os.close(read)
    try:
        rename_new(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.remove()
        raise


def move_new(source: Place, target: Place, part: Place) -> None:
    """Move a file, also to another file system: it is removed when its copy is on the disk."""
    try:
        rename_new(source, target)
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
        copy_new(source, target, part, sync=True)
        _remove_or_undo(source, target, sync=True)


def _remove_or_undo(source: Place, target: Place, *, sync: bool = False) -> None:
    """Remove the source; if that is not permitted, remove the target again, as a file has one place."""
    try:
        if sync:
            _sync_folder(target)
        source.remove()
    except FileNotFoundError:  # somebody else was faster
        pass
    except OSError:
        target.remove()
        raise


def is_same_file(one: Place, other: Place) -> bool:
    """Whether these are two names of one file, or whole copies of each other."""
    first, second = one.status(), other.status()
    if first is None or second is None:
        return False
    if os.path.samestat(first, second):
        return True
    if not stat.S_ISREG(first.st_mode) or not stat.S_ISREG(second.st_mode):
        return False
    return first.st_size == second.st_size and _has_same_bytes(one, other)


def _has_same_bytes(one: Place, other: Place) -> bool:
    with (
        os.fdopen(os.open(one.name, _SOURCE, dir_fd=one.folder), "rb") as first,
        os.fdopen(os.open(other.name, _SOURCE, dir_fd=other.folder), "rb") as second,
    ):
        while block := first.read(_BLOCK):
            if second.read(_BLOCK) != block:
                return False
        return not second.read(1)


def _new_part(part: Place) -> int:
    """What a killed run left of this name is removed; whoever writes here has a lock."""
    try:
        return os.open(part.name, _NEW, 0o600, dir_fd=part.folder)
    except FileExistsError:
        part.remove()
        return os.open(part.name, _NEW, 0o600, dir_fd=part.folder)


def _copy_bytes(read: int, written: int) -> None:
    """By the kernel, as far as the file systems support that."""
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):
            while os.copy_file_range(read, written, _BLOCK << 10):
                pass
    while block := os.read(read, _BLOCK):
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(written, rest) :]


def _copy_status(read: int, status: os.stat_result, written: int) -> None:
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
                with contextlib.suppress(OSError):  # not every attribute may be set by everybody
                    os.setxattr(written, name, os.getxattr(read, name))
    os.fchmod(written, mode)
    os.utime(written, ns=(status.st_atime_ns, status.st_mtime_ns))


def _sync_folder(place: Place) -> None:
    """Make sure that a name in a folder survives a power failure."""
    if place.folder is not None:
        os.fsync(place.folder)
        return
    handle = os.open(os.path.dirname(place.name), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
