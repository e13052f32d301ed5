"""Folders that stay the same while we work in them: they are opened, and names are looked up in them.

Windows has no descriptors of folders. There, a folder is a path, and each use checks for links first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import OutputError
from crnr_cli.system import descriptors

_MOST_OPEN = 64  # folders
_NO_RENAME = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)  # a file system without this kind of renaming

Folder = int | str  # a descriptor or, where the system has none, a path


class _NoReplace(NamedTuple):
    """The C library's function that renames a file unless the new name exists."""

    function: str
    flag: int
    current_folder: int


_RENAMING = {
    "linux": _NoReplace("renameat2", flag=1, current_folder=-100),  # RENAME_NOREPLACE, AT_FDCWD
    "darwin": _NoReplace("renameatx_np", flag=4, current_folder=-2),  # RENAME_EXCL, AT_FDCWD
}


class Place(NamedTuple):
    """A name in an open folder; without a folder, a path."""

    name: str
    folder: Folder | None = None

    @property
    def _path(self) -> str:
        """The name for system calls, together with `_descriptor`."""
        return os.path.join(self.folder, self.name) if isinstance(self.folder, str) else self.name  # noqa: PTH118

    @property
    def _descriptor(self) -> int | None:
        return self.folder if isinstance(self.folder, int) else None

    def status(self) -> os.stat_result | None:
        """Return the status of the file itself, without following links; None if it does not exist."""
        try:
            return os.stat(self._path, dir_fd=self._descriptor, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self) -> None:
        try:
            os.unlink(self._path, dir_fd=self._descriptor)
        except PermissionError:
            if sys.platform != "win32":
                raise
            os.chmod(self._path, stat.S_IWRITE)  # noqa: PTH101 - a read-only file cannot be removed there
            os.unlink(self._path)  # noqa: PTH108

    def open(self) -> int:
        """Open the file to read; a link is not followed."""
        descriptors.refuse_link(self._path)
        return os.open(self._path, descriptors.READ, dir_fd=self._descriptor)

    def create(self) -> int:
        """Create the file to write, unreadable for other users; FileExistsError if it exists."""
        return os.open(self._path, descriptors.NEW, 0o600, dir_fd=self._descriptor)

    def link_text(self) -> str:
        """Return the target of a link, as stored in the link."""
        text = os.readlink(self._path, dir_fd=self._descriptor)
        return text.removeprefix("\\\\?\\") if sys.platform == "win32" else text

    def make_link(self, text: str) -> None:
        os.symlink(text, self._path, dir_fd=self._descriptor)

    def set_status(self, status: os.stat_result) -> None:
        """Set, on Windows, the times and permissions of a closed file; elsewhere `copy_status` sets them."""
        if sys.platform == "win32":
            os.utime(self._path, ns=(status.st_atime_ns, status.st_mtime_ns))
            os.chmod(self._path, stat.S_IMODE(status.st_mode))  # noqa: PTH101

    def sync_folder(self) -> None:
        """Make sure that this name survives a power failure."""
        if isinstance(self.folder, int):
            descriptors.sync(self.folder)
        else:
            descriptors.sync_folder(os.path.dirname(self._path))  # noqa: PTH120


class Tree:
    """A folder and its subfolders, which are opened one at a time, so that no link in them is followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = _open_folder(path)
        self._open: dict[str, int] = {}

    def close(self) -> None:
        for folder in (*self._open.values(), self.root):
            if isinstance(folder, int):
                os.close(folder)

    def place(self, target: str, *, make: bool = False) -> Place:
        """Return the place of a file, by its name below this folder; `make` creates missing folders."""
        above, _, name = target.rpartition("/")
        return Place(name, self.folder(above, make=make))

    def folder(self, below: str, *, make: bool = False) -> Folder:
        if not below:
            return self.root
        if (found := self._open.get(below)) is not None:
            return found
        above, _, name = below.rpartition("/")
        parent = self.folder(above, make=make)
        if make:
            with contextlib.suppress(FileExistsError):
                _make(name, parent)
        try:
            opened = _open_subfolder(name, parent)
        except OSError as e:
            if e.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise OutputError(
                f"{self.path / below}: is a link or a file, and a folder is needed there; "
                "remove it, or choose another folder"
            ) from e
        if isinstance(opened, str):  # it may become a link, so it is checked again
            return opened
        if len(self._open) >= _MOST_OPEN:
            os.close(self._open.pop(next(iter(self._open))))
        self._open[below] = opened
        return opened

    def names(self, below: str) -> set[str] | None:
        """Return the names in a folder; None if it does not exist."""
        try:
            return set(os.listdir(self.folder(below)))  # noqa: PTH208, by descriptor
        except FileNotFoundError:
            return None

    def remove_folder(self, below: str) -> None:
        """Remove a folder if it is empty."""
        above, _, name = below.rpartition("/")
        with contextlib.suppress(OSError, OutputError):
            parent = self.folder(above)
            if isinstance(parent, int):
                os.rmdir(name, dir_fd=parent)
            else:
                os.rmdir(os.path.join(parent, name))  # noqa: PTH106, PTH118


@contextmanager
def opened_tree(path: Path) -> Iterator[Tree]:
    tree = Tree(path)
    try:
        yield tree
    finally:
        tree.close()


def _open_folder(path: Path) -> Folder:
    """Open a folder; links to the folder itself are followed."""
    if not descriptors.ONLY_FOLDERS:
        if not path.is_dir():
            code = errno.ENOTDIR if path.exists() else errno.ENOENT
            raise OSError(code, os.strerror(code), str(path))
        return os.path.realpath(path)
    return os.open(path, os.O_RDONLY | descriptors.ONLY_FOLDERS)


def _make(name: str, parent: Folder) -> None:
    if isinstance(parent, int):
        os.mkdir(name, dir_fd=parent)
    else:
        os.mkdir(os.path.join(parent, name))  # noqa: PTH102, PTH118


def _open_subfolder(name: str, parent: Folder) -> Folder:
    """Return a subfolder of an open folder; OSError with ELOOP or ENOTDIR if it is a link or a file."""
    if isinstance(parent, int):
        return os.open(name, os.O_RDONLY | descriptors.ONLY_FOLDERS | descriptors.NO_LINK, dir_fd=parent)
    path = os.path.join(parent, name)  # noqa: PTH118
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or _is_junction(status):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    return path


def _is_junction(status: os.stat_result) -> bool:
    """Return whether this is a Windows link that any user may make; for `lstat` it is a folder."""
    mount_point = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return mount_point is not None and getattr(status, "st_reparse_tag", 0) == mount_point


@contextmanager
def elsewhere() -> Iterator[None]:
    """Leave the current folder until the block ends."""
    if sys.platform == "win32":
        path = os.getcwd()  # noqa: PTH109
        os.chdir("/")
        try:
            yield
        finally:
            os.chdir(path)
        return
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    os.chdir("/")
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


@cache
def _renaming() -> tuple[Callable[..., int], _NoReplace] | None:
    import ctypes  # here, because it takes a while

    known = _RENAMING.get(sys.platform)
    function = known and getattr(ctypes.CDLL(None, use_errno=True), known.function, None)
    if not function or not known:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function, known


def rename_without_replacing(source: Place, target: Place) -> bool:
    """Rename a file within a file system; FileExistsError if the new name exists.

    Return False if the system cannot do this in one step.
    """
    if sys.platform == "win32":
        os.rename(source._path, target._path)  # noqa: PTH104 - which never replaces a file there
        return True
    if (found := _renaming()) is None:
        return False
    import ctypes

    function, known = found
    places = []
    for place in (source, target):
        places += [known.current_folder if place.folder is None else place.folder, os.fsencode(place.name)]
    if function(*places, known.flag) == 0:
        return True
    code = ctypes.get_errno()
    if code not in _NO_RENAME:
        raise OSError(code, os.strerror(code), source.name)
    return False


def link(source: Place, target: Place) -> None:
    """Make a second name for the same file, or for the same link."""
    if sys.platform == "win32":
        os.link(source._path, target._path)
        return
    os.link(
        source._path,
        target._path,
        src_dir_fd=source._descriptor,
        dst_dir_fd=target._descriptor,
        follow_symlinks=False,
    )
