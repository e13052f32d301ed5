"""What the user named becomes an ordered listing of named samples: picture files, or rows of features."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.sources.base import Keys
from crnr_cli.sources.tables import SUFFIXES as FEATURE_SUFFIXES
from crnr_cli.sources.tables import FeatureFile

# What operating systems and tools leave behind; never a sample, never a class.
_JUNK = {"thumbs.db", "desktop.ini", "__macosx", "__pycache__"}
_PICTURE_SUFFIXES = {
    ".jpg",
    ".jpeg",
    ".png",
    ".gif",
    ".bmp",
    ".tif",
    ".tiff",
    ".webp",
    ".ppm",
    ".pgm",
    ".pbm",
}


class PictureFile(NamedTuple):  # quicker to make than a dataclass, and there may be millions
    """One file of a listing. `folders` are the names that may be its class, the best first."""

    path: str
    folders: tuple[str, ...]
    size: int = 0
    mtime_ns: int = 0
    error: SampleError | None = None  # known from the listing already: not to be opened

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.mtime_ns)


@dataclass
class Pictures:
    files: list[PictureFile] = field(default_factory=list)
    ignored: int = 0  # system files passed over by rule
    empty_folders: list[str] = field(default_factory=list)  # first-level folders with nothing in them

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True)
class Features:
    files: list[FeatureFile]

    def __len__(self) -> int:
        return sum(len(file) for file in self.files)

    @property
    def n_features(self) -> int:
        return self.files[0].n_features


Source = Pictures | Features


def is_unclaimed(path: str, status: str) -> bool:
    """A README among the pictures: it is no picture, and its name never said so."""
    return status == "not_image" and Path(path).suffix.lower() not in _PICTURE_SUFFIXES


def open_source(names: Sequence[str], keys: Keys, *, nul_separated: bool = False) -> Source:
    """List all that `names` stand for: folders, picture files, feature files, or `-` for a list on stdin."""
    paths = [Path(name) for name in names if name != "-"]
    for path in paths:
        if not os.path.lexists(path):
            raise DataError(f"{path}: no such file or folder")
    feature_files = [path for path in paths if path.suffix.lower() in FEATURE_SUFFIXES and _is_file(path)]
    if feature_files and len(feature_files) < len(names):
        raise UsageError("give pictures or feature files, not both at once")
    if keys != Keys() and not feature_files:
        raise UsageError(
            "--features-key, --labels-key and --samples are for feature files, and these are pictures"
        )
    source = _features(feature_files, keys) if feature_files else _pictures(names, nul_separated)
    if not len(source):
        raise DataError(f"nothing to do in {', '.join(names)}: no files found there")
    return source


def fingerprint(source: Source) -> str:
    """SHA-256 of a listing: names, order, sizes and times of its files."""
    digest = hashlib.sha256()
    for file in source.files:
        folders = file.folders if isinstance(file, PictureFile) else ()
        about = (str(file.path), folders, *file.stamp)
        digest.update(ascii(about).encode())
    return digest.hexdigest()


def _features(paths: list[Path], keys: Keys) -> Features:
    files = [FeatureFile.open(path, keys) for path in paths]
    for file in files[1:]:
        if file.n_features != files[0].n_features:
            raise DataError(
                f"{file.path}: {file.n_features} features a sample, "
                f"but {files[0].path} has {files[0].n_features}"
            )
    return Features(files)


def _pictures(names: Sequence[str], nul_separated: bool) -> Pictures:
    pictures = Pictures()
    for name in names:
        if name == "-":
            pictures.files += map(_named_file, _stdin_list(nul_separated))
        elif _is_folder(Path(name)):
            _walk(Path(name), pictures)
        else:
            pictures.files.append(_named_file(name))
    return pictures


def _named_file(path: str) -> PictureFile:
    """A file named by itself: its class, if any, is the nearest folder that is called as one."""
    return _picture_file(path, tuple(reversed(Path(path).parts[:-1])))


def _stdin_list(nul_separated: bool) -> Iterator[str]:
    separator = b"\0" if nul_separated else b"\n"
    if sys.stdin is None:
        raise DataError("-: stdin is closed; give it a list of files")
    for line in sys.stdin.buffer.read().split(separator):
        if line:
            yield os.fsdecode(line)


def _walk(root: Path, pictures: Pictures) -> None:
    """All files under a folder in a fixed order; the first folder below the root is the class."""
    followed: set[str] = set()
    for path, name, is_folder in _entries(str(root), (), pictures):
        before = len(pictures.files)
        if is_folder:
            _descend(path, (name,), {os.path.realpath(root)}, followed, pictures)
            if len(pictures.files) == before:
                pictures.empty_folders.append(name)
        else:
            pictures.files.append(_picture_file(path, ()))


def _descend(
    folder: str, folders: tuple[str, ...], above: set[str], followed: set[str], pictures: Pictures
) -> None:
    real = os.path.realpath(folder)
    if real in above:  # a link back up: its files are listed already
        return
    if os.path.islink(folder):  # noqa: PTH114
        if real in followed:  # once is enough: links among folders have paths without end
            return
        followed.add(real)
    for path, name, is_folder in _entries(folder, folders, pictures):
        if is_folder:
            _descend(path, (*folders, name), above | {real}, followed, pictures)
        else:
            pictures.files.append(_picture_file(path, folders))


def _is_folder(path: Path | os.DirEntry[str]) -> bool:
    return os.path.isdir(path)  # noqa: PTH112, which is False too where we may not look


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113, likewise


def _entries(folder: str, folders: tuple[str, ...], pictures: Pictures) -> Iterator[tuple[str, str, bool]]:
    """What is in a folder, sorted, without what systems leave behind: path, name, whether it is a folder.

    Text and what the directory itself knows, as there may be many files: path objects are slow, and so is
    to ask what each file is.
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
        pictures.files.append(PictureFile(folder, folders, error=error))
        return
    names.sort(reverse=True)
    prefix = "" if folder == "." else os.path.join(folder, "")  # noqa: PTH118
    while names:
        name = names.pop()  # gone before the next path is made: there are never twice as many strings
        if name.startswith(".") or name.lower() in _JUNK:
            pictures.ignored += 1
        else:
            yield prefix + name, name, name in folder_names


def _picture_file(path: str, folders: tuple[str, ...]) -> PictureFile:
    try:
        about = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):  # a dangling link, or gone since it was listed
        return PictureFile(path, folders, error=SampleError("vanished", "no such file"))
    except (OSError, ValueError) as e:  # a loop of links, a folder that is closed to us, a NUL in a name
        return PictureFile(
            path, folders, error=SampleError("unreadable", getattr(e, "strerror", None) or str(e))
        )
    error = None if stat.S_ISREG(about.st_mode) else SampleError("not_regular", "not a regular file")
    return PictureFile(path, folders, about.st_size, about.st_mtime_ns, error)
