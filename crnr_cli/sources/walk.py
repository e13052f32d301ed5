"""List images: the files that the user named, and all files in the folders that the user named."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.images.regions import MARGIN, find_region, image_of
from crnr_cli.records import dataclass
from crnr_cli.sources.compact_listing import PER_BLOCK, CompactListing, ImageFile, ListingBlock
from crnr_cli.sources.images import Images, NamedFolder
from crnr_cli.system.files import OWN_ENDINGS
from crnr_cli.system.names import ListedForms, with_slashes

# Files of operating systems and tools, which are never samples or classes.
_SYSTEM_FILES = {
    *("thumbs.db", "ehthumbs.db", "desktop.ini", "$recycle.bin", "system volume information"),  # Windows
    *("__macosx", "icon\r"),  # macOS; its other files begin with a dot
    *("lost+found", "__pycache__"),
}
_SIDECAR = ".xmp"  # `crnr tag` and other programs write these next to images
# `crnr correct` moves removed examples to this folder; the mark tells it from a class of this name.
REMOVED, REMOVED_MARK = "_removed", ".crnr-removed"
_GROUPS = 1000  # of the subfolders of a folder: enough for many workers, few enough to hand out
_FOLDERS_PER_GROUP = 256


@dataclass(frozen=True)
class FolderListing:
    """The content of some subfolders."""

    blocks: list[ListingBlock]  # of the files of all folders
    counts: list[int]  # files of each folder
    ignored: int
    followed: set[str]  # links to folders, by their targets


Folder = tuple[str, str]  # its path as the user gave it, and its name
# Lists groups of the subfolders of a named folder, in their order.
Lister = Callable[[str, Iterable[Sequence[Folder]]], Iterator[FolderListing]]


def list_images(names: Sequence[str], nul_separated: bool, lister: Lister | None = None) -> Images:
    """Return all named files, and all files in named folders; the `lister` lists subfolders."""
    listing, named, forms = _Listing(), [], ListedForms()
    for name in names:
        if name == "-":
            listing.files += [_describe_named_file(path, forms) for path in _stdin_list(nul_separated)]
        elif _is_folder(Path(name)):
            walk = _Walk(name, listing)
            if lister:
                walk.list_by(lister)
            else:
                walk.list_here()
            named.append(walk.named)
        else:
            listing.files.append(_describe_named_file(name, forms))
    return Images(listing.all_files(), listing.ignored, listing.empty, named, removed_folders=listing.removed)


def list_named_images(paths: Sequence[str], margin: float = MARGIN) -> Images:
    """Return these files, whatever their names; a folder among them is not listed."""
    forms = ListedForms()
    return Images([_describe_named_file(path, forms) for path in paths]).with_margin(margin)


def _describe_named_file(path: str, forms: ListedForms) -> ImageFile:
    """Return a file that was named directly, or a region of one.

    All folders above it may be its class, the nearest first.
    """
    image = image_of(path) if "#" in path else path
    path = forms.find(image) + path[len(image) :]
    return _image_file(with_slashes(path), tuple(reversed(Path(path).parts[:-1])))


def _stdin_list(nul_separated: bool) -> Iterator[str]:
    separator = b"\0" if nul_separated else b"\n"
    if sys.stdin is None:
        raise DataError("-: stdin is closed; give it a list of files")
    content = sys.stdin.buffer.read()
    if not nul_separated and b"\0" in content and b"\n" not in content:
        raise UsageError("-: the list on stdin is separated by NUL, like the output of find -print0; add -0")
    lines = content.split(separator)
    if not nul_separated and all(line.endswith(b"\r") for line in lines if line):  # a list made on Windows
        lines = [line.removesuffix(b"\r") for line in lines]
    for number, line in enumerate(lines, 1):
        try:
            if line:
                yield os.fsdecode(line)
        except UnicodeDecodeError as e:  # elsewhere, any bytes are a name
            raise DataError(
                f"-: line {number} of the list on stdin is not UTF-8; make the list with `chcp 65001`, or in "
                "PowerShell with $OutputEncoding = [Text.UTF8Encoding]::new()"
            ) from e


@dataclass
class _Listing:
    """The files found so far."""

    files: list[ImageFile] = field(default_factory=list)  # after the files of the blocks
    ignored: int = 0
    empty: list[str] = field(default_factory=list)  # first-level folders without any file
    removed: list[str] = field(default_factory=list)  # folders of removed examples
    blocks: list[ListingBlock | list[ImageFile]] = field(default_factory=list)
    _packed: int = 0  # files in the blocks

    def __len__(self) -> int:
        return self._packed + len(self.files)

    def add(self, found: FolderListing) -> None:
        if self.files:
            self.blocks.append(self.files)
            self._packed += len(self.files)
            self.files = []
        self.blocks += found.blocks
        self._packed += sum(found.counts)
        self.ignored += found.ignored

    def all_files(self) -> Sequence[ImageFile]:
        return CompactListing([*self.blocks, self.files]) if self.blocks else self.files


class _Walk:
    """All files under a folder in a fixed order; the first folder below the root is the class."""

    def __init__(self, root: str, listing: _Listing) -> None:
        self._root, self._listing = with_slashes(str(Path(root))), listing
        self.named = NamedFolder(self._root)
        self._followed: set[str] = set()

    def list_here(self) -> None:
        for path, name, is_folder in self._own_entries():
            if is_folder:
                self._descend(path, name)
            else:
                self._add_loose(path)

    def _own_entries(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the entries of the root, without the folder of removed examples."""
        for path, name, is_folder in _entries(self._root, (), self._listing):
            if name == REMOVED and is_folder and os.path.lexists(f"{path}/{REMOVED_MARK}"):
                self._listing.removed.append(path)
            else:
                yield path, name, is_folder

    def list_by(self, lister: Lister) -> None:
        """List in groups; the lister cannot see which links other groups followed."""
        entries = list(self._own_entries())
        size = max(1, min(_FOLDERS_PER_GROUP, sum(is_folder for *_, is_folder in entries) // _GROUPS))
        runs = [(is_folder, list(run)) for is_folder, run in groupby(entries, key=lambda entry: entry[2])]
        groups = {
            number: [[entry[:2] for entry in run[start : start + size]] for start in range(0, len(run), size)]
            for number, (is_folder, run) in enumerate(runs)
            if is_folder
        }
        found = lister(self._root, (group for of_run in groups.values() for group in of_run))
        for number, (_, run) in enumerate(runs):
            if number not in groups:
                for path, _, _ in run:
                    self._add_loose(path)
            for group in groups.get(number, ()):
                self._add(group, next(found))

    def _add(self, group: Sequence[Folder], found: FolderListing) -> None:
        if found.followed & self._followed:  # by another group: here, these links lead nowhere
            for path, name in group:
                self._descend(path, name)
            return
        self._followed |= found.followed
        self._listing.add(found)
        for (path, name), count in zip(group, found.counts, strict=True):
            self._count(path, name, count)

    def _descend(self, path: str, name: str) -> None:
        before = len(self._listing)
        _descend(path, name, os.path.realpath(self._root), self._followed, self._listing)
        self._count(path, name, len(self._listing) - before)

    def _count(self, path: str, name: str, files: int) -> None:
        if files:
            self.named.has_folders = True
        elif not _is_circle(path, {os.path.realpath(self._root)}):
            self._listing.empty.append(name)

    def _add_loose(self, path: str) -> None:
        self.named.loose.append(len(self._listing))
        self._listing.files.append(_image_file(path, ()))


def list_some_folders(base: str, root: str, folders: Sequence[Folder]) -> FolderListing:
    """Return the content of these folders of the root; relative paths are relative to `base`."""
    listing, counts, followed = _Listing(), [], set[str]()
    real = os.path.realpath(os.path.join(base, root))  # noqa: PTH118
    for path, name in folders:
        before = len(listing)
        _descend(os.path.join(base, path), name, real, followed, listing)  # noqa: PTH118
        counts.append(len(listing) - before)
    files = listing.files
    if not os.path.isabs(root):  # noqa: PTH117
        extra = len(os.path.join(base, ""))  # noqa: PTH118
        files = [file._replace(path=file.path[extra:]) for file in files]
    blocks = [ListingBlock.of(files[start : start + PER_BLOCK]) for start in range(0, len(files), PER_BLOCK)]
    return FolderListing(blocks, counts, listing.ignored, followed)


class _Level(NamedTuple):
    """A folder that is being listed."""

    entries: Iterator[tuple[str, str, bool]]
    folders: tuple[str, ...]
    real: str  # its path without links


def _descend(path: str, name: str, root: str, followed: set[str], listing: _Listing) -> None:
    """List a subfolder of the root. Folders may be nested deeper than the limit of recursion."""
    levels = [_Level(iter([(path, name, True)]), (), root)]
    above = {root}
    while levels:
        entries, folders, parent = levels[-1]
        path, name, is_folder = next(entries, ("", "", False))
        if not path:
            above.discard(levels.pop().real)
        elif not is_folder:
            listing.files.append(_image_file(path, folders))
        elif real := _real_path_if_new(path, os.path.join(parent, name), above, followed):  # noqa: PTH118
            above.add(real)
            inner = (*folders, name)
            levels.append(_Level(_entries(path, inner, listing), inner, real))


def _real_path_if_new(path: str, real: str, above: set[str], followed: set[str]) -> str | None:
    """Return the path of a folder without links, or None if its files are listed elsewhere."""
    if not os.path.islink(path):  # noqa: PTH114
        return None if real in above else real
    real = os.path.realpath(path)
    # Each link target is followed once: links between folders can be endless.
    if _is_circle(path, above) or real in followed:
        return None
    followed.add(real)
    return real


def _is_circle(path: str, above: set[str]) -> bool:
    """Return whether a path is a link to a folder that contains one of the folders `above` the link.

    The files of such a folder are no class: the link leads out of a class folder to all other classes.
    """
    if not os.path.islink(path):  # noqa: PTH114
        return False
    target = os.path.join(os.path.realpath(path), "")  # noqa: PTH118
    return any(os.path.join(folder, "").startswith(target) for folder in above)  # noqa: PTH118


def is_system_file(name: str) -> bool:
    """Return whether a file or folder is hidden, or made by an operating system or a tool."""
    return name.startswith(".") or name.lower() in _SYSTEM_FILES


def _is_folder(path: Path | os.DirEntry[str]) -> bool:
    return os.path.isdir(path)  # noqa: PTH112, which raises if access is denied


def _entries(folder: str, folders: tuple[str, ...], found: _Listing) -> Iterator[tuple[str, str, bool]]:
    """Yield the sorted entries of a folder, without system files: path, name, and whether it is a folder.

    There may be many files, so this avoids Path objects and extra stat calls, which are slow.
    """
    names: list[str] = []
    folder_names: set[str] = set()
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                names.append(entry.name)
                if _is_folder(entry) if entry.is_symlink() else entry.is_dir():
                    folder_names.add(entry.name)
    except OSError as e:
        error = SampleError("unreadable", e.strerror or str(e))
        found.files.append(ImageFile(folder, folders, error=error))
        return
    names.sort(reverse=True)
    prefix = "" if folder == "." else with_slashes(os.path.join(folder, ""))  # noqa: PTH118
    while names:
        name = names.pop()  # frees each name before the next path is made, to save memory
        if is_system_file(name) or name.endswith(OWN_ENDINGS):
            found.ignored += 1
        elif name in folder_names or not name.lower().endswith(_SIDECAR):
            yield prefix + name, name, name in folder_names


def _image_file(path: str, folders: tuple[str, ...]) -> ImageFile:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):  # a dangling link, or removed since it was listed
        if region := find_region(path):
            return _image_file(region.path, folders)._replace(path=path)
        return ImageFile(path, folders, error=SampleError("vanished", "no such file"))
    except (OSError, ValueError) as e:  # a loop of links, a folder without access, or NUL in a name
        return ImageFile(
            path, folders, error=SampleError("unreadable", getattr(e, "strerror", None) or str(e))
        )
    error = None if stat.S_ISREG(found.st_mode) else SampleError("not_regular", "not a regular file")
    return ImageFile(path, folders, *Stamp.of(found), error)
