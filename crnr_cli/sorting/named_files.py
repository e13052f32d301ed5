"""The files in a CSV: their places, and whether the user can have meant them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.system.names import ON_WINDOWS, ListedForms, with_slashes

GONE = "no such file"


class NamedFile(NamedTuple):
    """A regular file, or the reason why the path cannot be used."""

    source: str = ""  # its absolute path, without links
    status: os.stat_result | None = None
    reason: str = ""


class NamedFiles:
    """Finds files by their names; the real path of each folder is looked up once.

    A file outside the given folders is refused, because an untrusted CSV may name any file.
    """

    def __init__(self, roots: Sequence[Path], by: str, *, follow_links: bool) -> None:
        """Look for files below `roots`, named in `by`. Links to folders are always followed."""
        self._roots = [os.path.normcase(os.path.join(os.path.realpath(root), "")) for root in roots]  # noqa: PTH118
        self._by, self._follow_links = by, follow_links
        self._folders: dict[str, str] = {}
        self._forms = ListedForms()

    def find(self, path: str) -> NamedFile:
        above, slash, name = with_slashes(path).rpartition("/")
        if "\0" in path or name in ("", ".", "..") or (ON_WINDOWS and ":" in name):
            return NamedFile(reason="is not the name of a file")
        folder = self._folders.get(above)
        if folder is None:
            folder = self._folders[above] = self.check_folder(self._forms.find(above) + slash, path)
        source = folder + name
        try:
            try:
                status = os.lstat(source)
            except FileNotFoundError:
                source = self._forms.find(source)
                status = os.lstat(source)
            if stat.S_ISLNK(status.st_mode) and self._follow_links:
                os.stat(source)  # noqa: PTH116 - a dangling link is a missing file, wherever it leads
                source = os.path.realpath(source)
                self.check_folder(os.path.dirname(source), path)  # noqa: PTH120
                status = os.lstat(source)
        except (FileNotFoundError, NotADirectoryError):
            return NamedFile(source, None, GONE)
        except OSError as e:
            return NamedFile(source, None, e.strerror or "cannot be read")
        if stat.S_ISLNK(status.st_mode):
            return NamedFile(source, status, "is a link, and only files are moved")
        if not stat.S_ISREG(status.st_mode):
            return NamedFile(source, status, "is not a file")
        return NamedFile(source, status)

    def check_folder(self, folder: str, path: str) -> str:
        """Return the real path of the folder of `path`, with a slash at its end."""
        real = os.path.join(os.path.realpath(folder or "."), "")  # noqa: PTH118
        if not os.path.normcase(real).startswith(tuple(self._roots)):
            raise DataError(
                f"{path}: is neither below the current folder nor below the folder of {self._by}, which may "
                f"name any file; to allow this folder, add --below {real.rstrip(os.sep) or os.sep}"
            )
        return real
