"""Image files and their class folders, as a source."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import field, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.images.dates import BY_FILE, date_of_file
from crnr_cli.images.pixels import PixelRequest, Pixels, scale_to_bytes
from crnr_cli.images.pool import Decoded, DecoderPool
from crnr_cli.images.regions import MARGIN, hash_image, parse_region
from crnr_cli.progress import Progress
from crnr_cli.records import dataclass
from crnr_cli.sources.base import Kind, Source, Span
from crnr_cli.sources.compact_listing import CompactListing, ImageFile, to_json_texts
from crnr_cli.sources.formats import Keys
from crnr_cli.system.names import Spellings, normalize_path, quote_word, with_slashes
from crnr_cli.wording import format_count

_IMAGE_SUFFIXES = {
    *(".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"),
    *(".avif", ".heic", ".heif", ".hif"),
}
_SEARCHED = 1000  # entries of a folder that are searched for a remedy
_USUAL = ("train", "training", "gallery", "examples")  # names of the folder of examples, next to others
_SHOWN = 3  # names of folders in a message
_PER_MARGIN = 2**40  # bytes: added to the size of a file in the stamps of its regions
NO_BOX = "no_box"  # the status of an image in which a detector found nothing


@dataclass
class NamedFolder:
    """A folder that the user named: its files outside class folders, and whether it has class folders."""

    path: str
    loose: array[int] = field(default_factory=lambda: array("q"))  # positions in the listing: 8 bytes each
    has_folders: bool = False

    @property
    def name(self) -> str:
        return os.path.basename(os.path.abspath(self.path))  # noqa: PTH100, PTH119, which keep links


@dataclass
class Images(Source):
    files: Sequence[ImageFile] = field(default_factory=list)
    ignored: int = 0
    empty_folders: list[str] = field(default_factory=list)  # first-level folders without any file
    named_folders: list[NamedFolder] = field(default_factory=list)
    labels_from: Path | None = None  # the table with the labels; None: the folders are the labels
    base: str = ""  # the folder of relative paths; by default, the current folder
    extra_notes: list[str] = field(default_factory=list)
    removed_folders: Sequence[str] = ()
    margin: float = MARGIN  # around the boxes of regions, as a share of their width and height
    dates: str | None = None  # see InputOptions

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

    def read_batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        assert request is not None
        request = request._replace(margin=self.margin, with_date=self.dates is not None)
        wanted = (file for start, stop in spans for file in self.files[start:stop])
        decoded = decoders.decode([self.place(file) for file in wanted if file.error is None], request)
        headers = self._read_headers(spans, request, decoders) if self.dates else None
        try:
            for start, stop in spans:
                yield _batch(self.files[start:stop], decoded, headers, request, stop, self.dates)
        finally:
            decoded.close()
            if headers:
                headers.close()

    def _read_headers(
        self, spans: Sequence[Span], request: PixelRequest, decoders: DecoderPool
    ) -> Generator[Decoded]:
        """Yield the dates of images without a box, whose pixels are not needed."""
        wanted = (file for start, stop in spans for file in self.files[start:stop] if _has_no_box(file))
        return decoders.decode([self.place(file) for file in wanted], request._replace(header_only=True))

    def read_dates(self, files: Sequence[ImageFile], max_pixels: int, decoders: DecoderPool) -> list[str]:
        """Return the dates of files whose pixels are not needed."""
        request = PixelRequest(None, max_pixels=max_pixels, header_only=True, with_date=True)
        is_readable = [file.error is None or _has_no_box(file) for file in files]
        found = decoders.decode([self.place(file) for file in compress(files, is_readable)], request)
        results = [next(found) if readable else None for readable in is_readable]
        return [_date(result, file, self.dates) for result, file in zip(results, files, strict=True)]

    def place(self, file: ImageFile) -> str:
        """Return the path of the file. Its name is the one that the user gave."""
        return os.path.join(self.base, file.path) if self.base else file.path  # noqa: PTH118

    def part(self, span: Span) -> Images:
        """Return a span with the current folder, because a worker has another one."""
        base = os.path.join(os.getcwd(), self.base)  # noqa: PTH109, PTH118
        packed = self.files if isinstance(self.files, CompactListing) else None
        files = packed.cut(*span) if packed else self.files[slice(*span)]
        return Images(files, labels_from=self.labels_from, base=base, margin=self.margin, dates=self.dates)

    @property
    def paths(self) -> list[Path]:
        """Empty: a missing image is reported by its status."""
        return []

    def open(self, keys: Keys) -> Images:
        """Return this listing: a part of an image listing is a listing itself."""
        return replace(self, files=list(self.files))

    def listing(self) -> Iterator[tuple[Any, ...]]:
        return ((file.path, file.folders, *file.stamp) for file in self.files)

    def listing_texts(self) -> Iterator[bytes]:
        return self.files.texts() if isinstance(self.files, CompactListing) else to_json_texts(self.listing())

    def filter(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Images:
        files = [file for file in self.files if is_wanted(file.path, file.stamp, file.folders)]
        return replace(self, files=files)

    def read_contents(self) -> Iterator[tuple[str, str, str]]:
        for file in self.files:
            if file.error is not None and file.error.status == "unreadable":  # it may exist, or not
                raise DataError(f"{file.path}: cannot read it ({file.error})")
            if file.error is None:
                try:
                    sha256 = hash_image(file.path)
                except FileNotFoundError:  # removed since it was listed
                    continue
                except OSError as e:  # its content may be unchanged, or not
                    raise DataError(f"{file.path}: cannot read it ({e.strerror})") from e
                yield file.path, file.folders[0] if file.folders else "", sha256

    def with_margin(self, margin: float) -> Images:
        """Return the same listing with another margin around boxes, before anything is read.

        The stamp of a region depends on the margin, so features of other pixels are not used again.
        """
        if margin == MARGIN:
            return self
        more = (1 + round(margin * 10**4)) * _PER_MARGIN
        files = [
            file._replace(size=file.size + more) if parse_region(file.path) and not file.error else file
            for file in self.files
        ]
        return replace(self, files=files, margin=margin)

    def check_classes(self, command: str) -> list[str]:
        if self.is_labelled or not self.named_folders:
            return []
        flat = [
            folder
            for folder in self.named_folders
            if any(
                not (file := self.files[i]).folders and is_named_like_image(file.path) for i in folder.loose
            )
        ]
        if next((True for file in self.files if file.folders), False):
            _refuse_mixed(self.named_folders, flat, command)
            return _note_deeper_classes(self, command)
        if flat:
            raise DataError(_describe_flat(flat[0].path, command))
        return []

    def require_labels(self) -> None:
        """Accept any listing: the folders are the labels, and an image outside them is left out later."""

    def with_classes(self, classes: Collection[str], *, strict: bool = False) -> Images:
        if self.is_labelled:
            return self
        files: list[ImageFile] = []
        known = Spellings(classes)
        for folder in self.named_folders:
            label = known.find(folder.name)
            if label is None or not folder.loose:
                continue
            if folder.has_folders:
                if strict:
                    raise UsageError(
                        f"{folder.path}: contains both images, like a class folder, and folders, "
                        f"which may be classes; name its files or folders one by one, or put all images "
                        f"into one class with --class {label}"
                    )
                continue
            files = files or list(self.files)
            for i in folder.loose:
                files[i] = files[i]._replace(folders=(label,))
        return replace(self, files=files) if files else self

    def with_named_classes(self) -> Images:
        """Return the same listing; several named folders of images are classes, as in `build train/*`.

        Next to folders of classes, only a folder that is named after one of these classes is a class.
        """
        if self.is_labelled or len({normalize_path(folder.path) for folder in self.named_folders}) < 2:
            return self
        if any(folder.has_folders for folder in self.named_folders):
            return self.with_classes(self.class_names())
        named = self.with_classes([folder.name for folder in self.named_folders])
        empty = [folder.name for folder in self.named_folders if not folder.loose]
        return replace(
            named, files=named._without_class_beside_folders(), empty_folders=self.empty_folders + empty
        )

    def _without_class_beside_folders(self) -> Sequence[ImageFile]:
        """Return the files; named files next to the class folders have no class, as if all were listed."""
        if sum(len(folder.loose) for folder in self.named_folders) == len(self.files):
            return self.files
        loose = {i for folder in self.named_folders for i in folder.loose}
        above = {_folder_of(folder.path) for folder in self.named_folders}
        return [
            file if i in loose or _folder_of(file.path) not in above else file._replace(folders=())
            for i, file in enumerate(self.files)
        ]

    def folder_of_no_class(self) -> str | None:
        for folder in self.named_folders:
            if folder.loose and not folder.has_folders and not self.files[folder.loose[0]].folders:
                return folder.path
        return None

    def possible_classes(self) -> dict[str, str]:
        return {
            self.files[i].path: folder.name
            for folder in self.named_folders
            if not folder.has_folders
            for i in folder.loose
        }

    def class_names(self) -> list[str]:
        return list(dict.fromkeys(file.folders[0] for file in self.files if file.folders))

    def notes(self) -> list[str]:
        notes = [f"class {name}: left out, because the folder is empty" for name in self.empty_folders]
        if self.ignored:
            notes.insert(0, ignored_note(self.ignored))
        return notes + removed_notes(self.removed_folders) + self.extra_notes

    def read_sizes(self, max_pixels: int, decoders: DecoderPool, progress: Progress) -> set[tuple[int, int]]:
        paths = [self.place(file) for file in self.files if file.error is None]
        sizes: set[tuple[int, int]] = set()
        request = PixelRequest(None, max_pixels=max_pixels, header_only=True, margin=self.margin)
        headers = decoders.decode(paths, request)
        for done, header in enumerate(headers, start=1):
            if isinstance(header, Pixels):
                sizes.add((header.width, header.height))
            progress("measuring", done, len(paths))
        return sizes


def _describe_flat(folder: str, command: str) -> str:
    """Return what is wrong with a folder of images without class folders: perhaps it is a class."""
    wrong = f"{folder}: contains images but no class folders"
    if not _has_folder_of_images(_folder_of(folder), folder):
        return f"{wrong}; put the images into one folder per class, or give their labels with --labels"
    name = os.path.basename(os.path.abspath(folder))  # noqa: PTH100, PTH119
    return (
        f"{wrong}; if {name} is a class, {_name_folder_above(folder, command)}; else put the images into "
        "one folder per class"
    )


def _refuse_mixed(named: Sequence[NamedFolder], flat: Sequence[NamedFolder], command: str) -> None:
    """Refuse a folder of images next to folders of classes: is it a class, or are the others classes?"""
    of_classes = next((folder.path for folder in named if folder.has_folders), None)
    for folder in flat:
        if of_classes is not None and not folder.has_folders:
            wrong = (
                f"{folder.path}: contains images like a class folder, but {of_classes} is like a folder of "
                "classes; give either class folders or folders of classes"
            )
            if _folder_of(folder.path) == _folder_of(of_classes):
                wrong += f"; if both are classes, {_name_folder_above(folder.path, command)}"
            raise DataError(wrong)


def _folder_of(path: str) -> str:
    return with_slashes(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120


def _name_folder_above(folder: str, command: str) -> str:
    above = _folder_of(folder)
    shown = above if os.path.isabs(folder) else with_slashes(os.path.relpath(above))  # noqa: PTH117
    return f"give the folder above, as in `crnr {command} {quote_word(shown)}`"


def _has_folder_of_images(folder: str, but: str) -> bool:
    """Return whether one of the first folders in a folder, except `but`, has an image directly in it."""
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _SEARCHED):
                if entry.is_dir() and not Path(entry.path).samefile(but):
                    with os.scandir(entry.path) as inner:
                        if any(is_named_like_image(found.name) for found in islice(inner, _SEARCHED)):
                            return True
    except OSError:  # a folder that cannot be read is no reason for another error
        return False
    return False


def _note_deeper_classes(images: Images, command: str) -> list[str]:
    """Return a note if the folders below the class folders look like the classes, as in parent/train/cat."""
    if len(images.named_folders) != 1 or images.named_folders[0].loose:
        return []
    inner: dict[str, dict[str, int]] = {}  # per class folder, the number of files in each of its folders
    for file in images.files:
        if len(file.folders) < 2:
            return []
        counts = inner.setdefault(file.folders[0], {})
        counts[file.folders[1]] = counts.get(file.folders[1], 0) + 1
    common = set.intersection(*map(set, inner.values()))
    if len(common) < 2 or 2 * len(common) < max(map(len, inner.values())):
        return []
    usual = [name for name in inner if name.lower() in _USUAL]
    largest = max(usual or inner, key=lambda name: sum(inner[name].values()))
    path = with_slashes(os.path.join(images.named_folders[0].path, largest))  # noqa: PTH118
    shown = ", ".join(sorted(common)[:_SHOWN]) + (", ..." if len(common) > _SHOWN else "")
    taken = f"{format_count(len(inner), 'class')} ({', '.join(sorted(inner)[:_SHOWN])})"
    instead = f"if the folders in it ({shown}) are the classes, run `crnr {command} {quote_word(path)}`"
    return [
        f"{images.named_folders[0].path} has {taken}, but no images directly in a class folder; {instead}"
    ]


def ignored_note(count: int) -> str:
    files = format_count(count, "hidden or system file")
    return f"{files} ignored (names that begin with a dot, Thumbs.db and the like)"


def removed_notes(folders: Sequence[str]) -> list[str]:
    return [f"{path}: left out, because `crnr correct` moved removed examples there" for path in folders]


def is_unrelated(path: str, status: str) -> bool:
    """Return whether a file is no input, and so cannot fail.

    It is neither an image nor named like one, such as a README among the images, or it has no box.
    """
    return status == NO_BOX or (status == "not_image" and not is_named_like_image(path))


def is_named_like_image(path: str) -> bool:
    region = parse_region(path)
    return Path(region.path if region else path).suffix.lower() in _IMAGE_SUFFIXES


def _has_no_box(file: ImageFile) -> bool:
    return file.error is not None and file.error.status == NO_BOX


def _batch(
    files: Sequence[ImageFile],
    decoded: Iterator[Decoded],
    headers: Iterator[Decoded] | None,  # of images without a box, if dates are needed
    request: PixelRequest,
    end: int,
    dates: str | None,
) -> Batch:
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
        dates=[
            _date(next(headers) if _has_no_box(file) else result, file, dates)
            for result, file in zip(results, files, strict=True)
        ]
        if headers
        else [],
    )


def _date(decoded: Decoded | None, file: ImageFile, dates: str | None) -> str:
    found = decoded.date if isinstance(decoded, Pixels) else ""
    return found or (date_of_file(file.mtime_ns) if dates == BY_FILE and file.mtime_ns else "")


def _scale(decoded: Decoded) -> float:
    if not isinstance(decoded, Pixels) or not decoded.is_float:
        return 1.0
    return scale_to_bytes(float(np.abs(np.frombuffer(decoded.data, np.float32)).max()))


def _values(images: list[Pixels], request: PixelRequest) -> Array:
    assert request.size is not None  # all images must have the same size
    if not images:
        return np.empty((0, math.prod(request.size) * request.bands), np.uint8)
    return np.array([np.frombuffer(p.data, np.float32 if p.is_float else np.uint8) for p in images])
