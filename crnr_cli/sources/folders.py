"""Pictures as a source: a listing of files and folders, read in batches of pixels."""

from __future__ import annotations

import hashlib
import math
import os
import stat
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.pictures.pixels import PixelRequest, Pixels, scale_to_bytes
from crnr_cli.pictures.pool import Decoded, DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.sources.base import Keys, Kind, Source, Span
from crnr_cli.system.outputs import PARTIAL_ENDINGS
from crnr_cli.wording import counted

# Files of operating systems and tools, which are never samples or classes.
_SYSTEM_FILES = {"thumbs.db", "desktop.ini", "__macosx", "__pycache__"}
_PICTURE_SUFFIXES = {
    *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"),
}


class PictureFile(NamedTuple):  # faster to create than a dataclass, as there may be millions
    """One file of a listing. `folders` are the candidates for its class, the best first."""

    path: str
    folders: tuple[str, ...]
    size: int = 0
    mtime_ns: int = 0
    error: SampleError | None = None  # found while listing; the file is then not opened

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.mtime_ns)


@dataclass
class NamedFolder:
    """A folder that the user named: its files outside of class folders, and whether it has such folders."""

    path: str
    loose: list[int] = field(default_factory=list)  # positions in the listing
    has_folders: bool = False

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))  # noqa: PTH100, PTH119, which keep links


@dataclass
class Pictures(Source):
    files: list[PictureFile] = field(default_factory=list)
    ignored: int = 0
    empty_folders: list[str] = field(default_factory=list)  # first-level folders without any file
    named_folders: list[NamedFolder] = field(default_factory=list)
    labels_from: Path | None = None  # the table with the labels; None: the folders are the labels
    extra_notes: list[str] = field(default_factory=list)

    @property
    def is_labelled(self) -> bool:
        return self.labels_from is not None

    @property
    def why_unlabelled(self) -> str:
        return f"has no label in {self.labels_from}" if self.is_labelled else super().why_unlabelled

    @property
    def kind(self) -> Kind:
        return "pictures"

    def __len__(self) -> int:
        return len(self.files)

    def names(self, span: Span | None = None) -> list[str]:
        return [file.path for file in (self.files[slice(*span)] if span else self.files)]

    def spans(self, batch_size: int) -> list[Span]:
        n = len(self.files)
        return [(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]

    def batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        assert request is not None
        wanted = (file for start, stop in spans for file in self.files[start:stop])
        decoded = decoders.decode([file.path for file in wanted if file.error is None], request)
        try:
            for start, stop in spans:
                yield _batch(self.files[start:stop], decoded, request, stop)
        finally:
            decoded.close()

    def part(self, span: Span) -> Pictures:
        """With absolute paths, as the current folder of a worker is a different one."""
        files = self.files[slice(*span)]
        absolute = [file._replace(path=str(Path(file.path).absolute())) for file in files]
        return Pictures(absolute, labels_from=self.labels_from)

    @property
    def paths(self) -> list[Path]:
        """Empty, as a missing picture is reported by its status."""
        return []

    def opened(self, keys: Keys) -> Pictures:
        """A part of a listing of pictures is a listing itself."""
        return self

    def listing(self) -> Iterator[tuple[Any, ...]]:
        return ((file.path, file.folders, *file.stamp) for file in self.files)

    def only(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Pictures:
        files = [file for file in self.files if is_wanted(file.path, file.stamp, file.folders)]
        return replace(self, files=files)

    def contents(self) -> Iterator[tuple[str, str, str]]:
        for file in self.files:
            if file.error is not None and file.error.status == "unreadable":  # it may be there, or not
                raise DataError(f"{file.path}: cannot read it ({file.error})")
            if file.error is None:
                try:
                    with Path(file.path).open("rb") as content:
                        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
                except FileNotFoundError:  # removed since it was listed
                    continue
                except OSError as e:  # its content may be the same, or not
                    raise DataError(f"{file.path}: cannot read it ({e.strerror})") from e
                yield file.path, file.folders[0] if file.folders else "", sha256

    def require_labels(self) -> None:
        """Always accepted: the folders are the labels, and a picture outside of them is left out later."""

    def class_names(self) -> list[str]:
        return list(dict.fromkeys(file.folders[0] for file in self.files if file.folders))

    def notes(self) -> list[str]:
        notes = [f"class {name}: left out, as its folder is empty" for name in self.empty_folders]
        if self.ignored:
            notes.insert(0, ignored_note(self.ignored))
        return notes + self.extra_notes

    def sizes(self, max_pixels: int, decoders: DecoderPool, progress: Progress) -> set[tuple[int, int]]:
        paths = [file.path for file in self.files if file.error is None]
        sizes: set[tuple[int, int]] = set()
        headers = decoders.decode(paths, PixelRequest(None, max_pixels=max_pixels, header_only=True))
        for done, header in enumerate(headers, start=1):
            if isinstance(header, Pixels):
                sizes.add((header.width, header.height))
            progress("measuring", done, len(paths))
        return sizes


def ignored_note(count: int) -> str:
    files = counted(count, "hidden or system file")
    return f"{files} ignored (names that begin with a dot, Thumbs.db and the like)"


def is_unrelated(path: str, status: str) -> bool:
    """Whether a file is neither a picture nor named like one, such as a README among the pictures."""
    return status == "not_image" and Path(path).suffix.lower() not in _PICTURE_SUFFIXES


def list_pictures(names: Sequence[str], nul_separated: bool) -> Pictures:
    pictures = Pictures()
    for name in names:
        if name == "-":
            pictures.files += map(_named_file, _stdin_list(nul_separated))
        elif _is_folder(Path(name)):
            _walk(Path(name), pictures)
        else:
            pictures.files.append(_named_file(name))
    return pictures


def named_pictures(paths: Sequence[str]) -> Pictures:
    """These files, whatever they are called; a folder among them is not listed."""
    return Pictures([_named_file(path) for path in paths])


def _batch(files: list[PictureFile], decoded: Iterator[Decoded], request: PixelRequest, end: int) -> Batch:
    fresh = islice(decoded, sum(file.error is None for file in files))
    results = [file.error or next(fresh) for file in files]
    is_deep = any(isinstance(result, Pixels) and result.is_float for result in results)
    return Batch(
        names=[file.path for file in files],
        errors=[result if isinstance(result, SampleError) else None for result in results],
        values=_values([result for result in results if isinstance(result, Pixels)], request),
        end=end,
        candidates=[file.folders for file in files],
        hashes=[result.sha256 if isinstance(result, Pixels) else "" for result in results],
        stamps=[file.stamp for file in files],
        scales=[_scale(result) for result in results] if is_deep else [],
    )


def _scale(decoded: Decoded) -> float:
    if not isinstance(decoded, Pixels) or not decoded.is_float:
        return 1.0
    return scale_to_bytes(float(np.abs(np.frombuffer(decoded.data, np.float32)).max()))


def _values(pictures: list[Pixels], request: PixelRequest) -> Array:
    assert request.size is not None  # so that all pictures have the same size
    if not pictures:
        return np.empty((0, math.prod(request.size) * request.bands), np.uint8)
    return np.array([np.frombuffer(p.data, np.float32 if p.is_float else np.uint8) for p in pictures])


def _named_file(path: str) -> PictureFile:
    """A file that was named directly: all folders above it may be its class, the nearest first."""
    return _picture_file(path, tuple(reversed(Path(path).parts[:-1])))


def _stdin_list(nul_separated: bool) -> Iterator[str]:
    separator = b"\0" if nul_separated else b"\n"
    if sys.stdin is None:
        raise DataError("-: stdin is closed; give it a list of files")
    content = sys.stdin.buffer.read()
    if not nul_separated and b"\0" in content and b"\n" not in content:
        raise UsageError("-: the list on stdin contains NUL, as that of find -print0 does; add -0")
    for line in content.split(separator):
        if line:
            yield os.fsdecode(line)


def _walk(root: Path, pictures: Pictures) -> None:
    """All files under a folder in a fixed order; the first folder below the root is the class."""
    followed: set[str] = set()
    named = NamedFolder(str(root))
    pictures.named_folders.append(named)
    for path, name, is_folder in _entries(str(root), (), pictures):
        before = len(pictures.files)
        if is_folder:
            _descend(path, name, os.path.realpath(root), followed, pictures)
            if len(pictures.files) == before:
                pictures.empty_folders.append(name)
            else:
                named.has_folders = True
        else:
            named.loose.append(before)
            pictures.files.append(_picture_file(path, ()))


class _Level(NamedTuple):
    """A folder that is being listed."""

    entries: Iterator[tuple[str, str, bool]]
    folders: tuple[str, ...]
    real: str  # its path without links


def _descend(path: str, name: str, root: str, followed: set[str], pictures: Pictures) -> None:
    """List a folder of the root. Folders may be nested deeper than a function can call itself."""
    levels = [_Level(iter([(path, name, True)]), (), root)]
    above = {root}
    while levels:
        entries, folders, parent = levels[-1]
        path, name, is_folder = next(entries, ("", "", False))
        if not path:
            above.discard(levels.pop().real)
        elif not is_folder:
            pictures.files.append(_picture_file(path, folders))
        elif real := _entered(path, os.path.join(parent, name), above, followed):  # noqa: PTH118
            above.add(real)
            inner = (*folders, name)
            levels.append(_Level(_entries(path, inner, pictures), inner, real))


def _entered(path: str, real: str, above: set[str], followed: set[str]) -> str | None:
    """The path of a folder without links, or None if its files are listed anyway."""
    is_link = os.path.islink(path)  # noqa: PTH114
    if is_link:
        real = os.path.realpath(path)
    if real in above:  # a link to a folder above
        return None
    if is_link:
        if real in followed:  # each link target is followed once, as links between folders can be endless
            return None
        followed.add(real)
    return real


def _is_folder(path: Path | os.DirEntry[str]) -> bool:
    return os.path.isdir(path)  # noqa: PTH112, which raises if access is denied


def _entries(folder: str, folders: tuple[str, ...], pictures: Pictures) -> Iterator[tuple[str, str, bool]]:
    """The sorted entries of a folder, without system files: path, name, and whether it is a folder.

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
        pictures.files.append(PictureFile(folder, folders, error=error))
        return
    names.sort(reverse=True)
    prefix = "" if folder == "." else os.path.join(folder, "")  # noqa: PTH118
    while names:
        name = names.pop()  # frees each name before the next path is made, to save memory
        if name.startswith(".") or name.lower() in _SYSTEM_FILES or name.endswith(PARTIAL_ENDINGS):
            pictures.ignored += 1
        else:
            yield prefix + name, name, name in folder_names


def _picture_file(path: str, folders: tuple[str, ...]) -> PictureFile:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):  # a dangling link, or removed since it was listed
        return PictureFile(path, folders, error=SampleError("vanished", "no such file"))
    except (OSError, ValueError) as e:  # a loop of links, a folder without access, or NUL in a name
        return PictureFile(
            path, folders, error=SampleError("unreadable", getattr(e, "strerror", None) or str(e))
        )
    error = None if stat.S_ISREG(found.st_mode) else SampleError("not_regular", "not a regular file")
    return PictureFile(path, folders, found.st_size, found.st_mtime_ns, error)
