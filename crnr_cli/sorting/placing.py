"""Put files in their places without overwriting anything."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import OutputError
from crnr_cli.records import dataclass
from crnr_cli.system import descriptors, folders
from crnr_cli.system.files import LONGEST_NAME as LONGEST_NAME
from crnr_cli.system.files import longest_name as longest_name
from crnr_cli.system.folders import Place as Place
from crnr_cli.system.folders import Tree as Tree
from crnr_cli.system.folders import opened_tree as opened_tree
from crnr_cli.system.names import stat_or_none

PART = ".crnr-sort.part"  # the name of a copy until it is complete
_BLOCK = 1 << 20  # bytes
ALREADY_THERE, LEFT_OUT = "there", "left out"
_STOPPING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # every other file would fail too


@contextmanager
def folder_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of a file system into ours. Limits of the machine are reported elsewhere."""
    try:
        yield
    except OSError as e:
        if e.errno is None or e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        raise OutputError(
            f"{folder}: stopped ({os.strerror(e.errno)}); nothing is lost, and the same command continues"
        ) from e


def place_of_folder(folder: Path) -> Path:
    """Return the folder itself or, if it is missing, the existing folder above it."""
    found = stat_or_none(folder)
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise OutputError(f"{folder}: is not a folder; choose another one")
    if found is None and folder.is_symlink():
        raise OutputError(f"{folder}: is a link to a missing folder; choose another one")
    above = folder.absolute().parent
    if found is None and not above.is_dir():
        raise OutputError(f"{folder}: the folder {folder.parent} does not exist; create it first")
    return above if found is None else folder


def make_if_missing(folder: Path) -> bool:
    """Make a folder if it is missing, and return whether it is new; another process may be faster."""
    if stat_or_none(folder) is not None:
        return False
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def is_within(place: str, folder: str) -> bool:
    """Return whether a path is the folder itself, or below it."""
    return os.path.join(place, "").startswith(os.path.join(folder, ""))  # noqa: PTH118


def rename_new(source: Place, target: Place) -> None:
    """Rename a file within a file system; FileExistsError if the new name exists."""
    if not folders.rename_without_replacing(source, target):
        link_new(source, target)
        _remove_or_undo(source, target)


def link_new(source: Place, target: Place) -> None:
    """Make a second name for the same file."""
    folders.link(source, target)


def symlink_new(text: str, target: Place) -> None:
    target.make_link(text)


def put_new(source: str, target: Place, part: Place, how: str) -> None:
    """Copy or link a file, given by its absolute path."""
    if how == "copy":
        copy_new(Place(source), target, part)
    elif how == "hardlink":
        link_new(Place(source), target)
    else:
        symlink_new(source, target)


def copy_new(source: Place, target: Place, part: Place, *, sync: bool = False) -> None:
    """Copy a file with its permissions and times, like `cp -p`; with `sync`, it survives a power failure.

    It has the name `part`, on the same file system, until it is complete.
    """
    read = source.open()
    try:
        status = os.fstat(read)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file any more", source.name)
        written = _new_part(part)
        try:
            descriptors.copy_bytes(read, written)
            descriptors.copy_status(read, status, written)
            if sync:
                descriptors.sync(written)
        finally:
            os.close(written)
    finally:
        os.close(read)
    try:
        part.set_status(status)
        rename_new(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.remove()
        raise


def move_new(source: Place, target: Place, part: Place) -> None:
    """Move a file, also to another file system: the original is removed when its copy is on the disk."""
    try:
        rename_new(source, target)
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
        copy_new(source, target, part, sync=True)
        _remove_or_undo(source, target, sync=True)


def _remove_or_undo(source: Place, target: Place, *, sync: bool = False) -> None:
    """Remove the source; if that is not permitted, remove the target again: a file has one place."""
    try:
        if sync:
            target.sync_folder()
        source.remove()
    except FileNotFoundError:  # another process was faster
        pass
    except OSError:
        target.remove()
        raise


def is_same_file(one: Place, other: Place) -> bool:
    """Return whether these are two names of one file, or complete copies of each other."""
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
        os.fdopen(one.open(), "rb") as first,
        os.fdopen(other.open(), "rb") as second,
    ):
        while block := first.read(_BLOCK):
            if second.read(_BLOCK) != block:
                return False
        return not second.read(1)


def _new_part(part: Place) -> int:
    """Create the file after removing what a killed run left; the caller holds a lock."""
    try:
        return part.create()
    except FileExistsError:
        part.remove()
        return part.create()


class FileOutcome(NamedTuple):
    """The outcome for one file."""

    path: str
    target: str  # with the folder; empty if the file is left out
    result: str  # the way of placing, or THERE, or LEFT_OUT
    reason: str = ""  # why it is left out

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class OutcomeReport:
    how: str
    rows: list[FileOutcome] = field(default_factory=list)
    unrelated: int = 0  # unrelated files, which stay where they are

    @property
    def left_out(self) -> Sequence[FileOutcome]:
        return [row for row in self.rows if row.result == LEFT_OUT]

    def count(self, result: str) -> int:
        return sum(1 for row in self.rows if row.result == result)

    def leave_out(self, number: int, target: Path, error: OSError) -> None:
        """Record that a file could not be put in its place; OutputError if others would fail too."""
        if error.errno in _STOPPING:
            raise OutputError(
                f"{target}: cannot write ({os.strerror(error.errno)}); the same command continues from here"
            ) from error
        taken = "there is another file of this name now"
        reason = taken if isinstance(error, FileExistsError) else str(error.strerror)
        if error.errno == errno.EINVAL:
            reason += "; if the file system does not take this name, use --portable-names"
        self.rows[number] = FileOutcome(self.rows[number].path, "", LEFT_OUT, reason)


def refuse_other_device(path: str, folder: Path, status: os.stat_result, device: int) -> None:
    if status.st_dev != device:
        raise OutputError(
            f"{path}: is on another file system than {folder}, and hard links cannot lead there; "
            "use --how copy or --how link"
        )
