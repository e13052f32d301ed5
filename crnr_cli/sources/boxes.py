"""Boxes of a detector: an item per box instead of an item per image.

The boxes come from MegaDetector's batch output, or from a CSV with a box per row. Both may come from
untrusted sources: a box that cannot be used costs its item, and other files are refused.
"""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

from crnr_cli.errors import DataError, SampleError, first_line
from crnr_cli.images.regions import BAD_BOX, Box, Region
from crnr_cli.records import dataclass
from crnr_cli.sources.compact_listing import ImageFile
from crnr_cli.sources.images import NO_BOX, Images, NamedFolder, is_named_like_image
from crnr_cli.system.csv_file import DecimalSigns, opened_csv, refuse_separators, require_file, require_utf_8
from crnr_cli.system.memory import format_size, require_memory
from crnr_cli.system.names import normalize_path, with_slashes
from crnr_cli.wording import format_count, is_or_are

MIN_CONFIDENCE = 0.2
CATEGORY, ANY = "animal", "any"
RELATIVE, PIXELS = UNITS = ("relative", "pixels")
_REMEDY = "give MegaDetector's JSON, or a CSV with the columns path,x,y,width,height"
_COLUMNS = ("path", "x", "y", "width", "height")
_LARGEST_FILE = 2**31  # bytes
_BYTES_OF_JSON = 12  # of memory per byte of JSON
_MOST_BOXES = 10_000_000
_LONGEST_REASON = 200  # characters of a detector's own message
_SHOWN = 3  # paths
_LARGEST_SHARE = 2.0  # boxes of a detector may exceed the image a little; pixels are larger


class LabelledBox(NamedTuple):
    box: Box
    label: str | None = None  # None: the label of its image
    unit: str = ""  # empty: not given


@dataclass
class DetectedImage:
    """An image in a box file, and its boxes."""

    path: str  # as in the file
    boxes: list[LabelledBox] = field(default_factory=list)
    failure: str = ""  # why the detector has no result


@dataclass(frozen=True)
class BoxOptions:
    """The file of boxes, and which of them are used."""

    path: Path
    min_confidence: float = MIN_CONFIDENCE
    category: str = CATEGORY  # of MegaDetector; ANY: all
    root: Path | None = None  # the folder of relative paths; None: the folder of the file, or of the images
    unit: str | None = None  # of a CSV; None: by its values

    def read(self) -> DetectedImages:
        """Return the images of the file, each with the boxes that are used."""
        require_file(self.path, "give a box file with --boxes")
        try:
            with self.path.open("rb") as file:
                size, start = os.fstat(file.fileno()).st_size, file.read(64)
        except OSError as e:
            raise DataError(f"{self.path}: cannot read it ({e.strerror})") from e
        if not size:
            raise DataError(f"{self.path}: is empty; {_REMEDY}")
        if size > _LARGEST_FILE:
            limit = format_size(_LARGEST_FILE)
            raise DataError(f"{self.path}: is larger than {limit}; divide the images into several runs")
        is_json = self.path.suffix.lower() == ".json" or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
        if not is_json:
            return _CsvReader(self).read()
        work = f"{self.path}: reading {format_size(size)} of JSON"
        require_memory(_BYTES_OF_JSON * size, work, "divide the images into several runs")
        return _JsonReader(self).read()


class DetectedImages:
    """The images of a box file by path, each once."""

    def __init__(self, options: BoxOptions) -> None:
        self._options, self._file = options, options.path
        self._by_path: dict[str, DetectedImage] = {}
        self.has_labels = False
        self._count = 0

    def __iter__(self) -> Iterator[DetectedImage]:
        return iter(self._by_path.values())

    def image(self, path: str, where: str) -> DetectedImage:
        """Return the image of a path, which may be new; DataError if no file can have this name."""
        if not path:
            raise DataError(f"{where}: the path is empty")
        try:
            is_name = b"\0" not in os.fsencode(path)
        except UnicodeEncodeError:  # JSON may contain halves of characters
            is_name = False
        if not is_name:
            raise DataError(f"{where}: {path!a} is not the name of a file")
        return self._by_path.setdefault(path, DetectedImage(path))

    def add(self, image: DetectedImage, box: LabelledBox) -> None:
        self._count += 1
        if self._count > _MOST_BOXES:
            raise DataError(
                f"{self._file}: has more than {_MOST_BOXES:,} boxes; choose a higher --min-confidence, or "
                "divide the images into several runs"
            )
        image.boxes.append(box)

    def places(self) -> list[str]:
        """Return the paths of all images; there must be at least one."""
        found = []
        for image in self:
            possible = self._places_of(image.path)
            found.append(next(filter(os.path.lexists, possible), possible[0]))
        if not found:
            raise DataError(f"{self._file}: names no images; {_REMEDY}")
        return found

    def find_places(self) -> list[str]:
        """Return the paths of all images; at least one of them must exist."""
        found = self.places()
        if not any(map(os.path.lexists, found)):
            count = format_count(len(found), "image")
            path = next(iter(self)).path
            raise DataError(f"{self._file}: none of its {count} exists; {_tell_place(found[0], path)}")
        return found

    def divide(self, source: Images) -> Images:
        """Return the regions that the boxes cover, and every image of the source without a box."""
        matches = _Matches.of(source, self, self._options)
        files: list[ImageFile] = []
        starts = []  # where the items of each file begin
        for place, file in enumerate(source.files):
            starts.append(len(files))
            files += _regions_of(file, matches.by_place.get(place), self._file)
        starts.append(len(files))
        for path, image in matches.gone:
            error = SampleError("vanished", "no such file")
            files += _regions_of(ImageFile(path, (), error=error), image, self._file)
        notes = list(source.extra_notes)
        if others := matches.others:
            shown = ", ".join(others[:_SHOWN]) + (", ..." if len(others) > _SHOWN else "")
            count = format_count(len(others), "image")
            notes.append(f"{count} of {self._file} {is_or_are(len(others))} not in the source: {shown}")
        return replace(
            source,
            files=files,
            named_folders=[] if self.has_labels else _move_places(source.named_folders, starts),
            labels_from=self._file if self.has_labels else source.labels_from,
            extra_notes=notes,
        )

    def _places_of(self, path: str) -> list[str]:
        return _possible_places(path, [self._options.root or self._file.parent])


@dataclass
class _Matches:
    """The images of a box file that are in a source, and those that are not."""

    by_place: dict[int, DetectedImage] = field(default_factory=dict)  # by their place in the source
    gone: list[tuple[str, DetectedImage]] = field(default_factory=list)  # missing in the source's folders
    others: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, source: Images, images: Iterable[DetectedImage], options: BoxOptions) -> _Matches:
        """Match paths below the root or, without one, the folder of the box file and the source's folders."""
        listed = {normalize_path(file.path): place for place, file in enumerate(source.files)}
        folders = [folder.path for folder in source.named_folders]
        roots = [options.root] if options.root else [options.path.parent, *map(Path, folders)]
        found, unmatched = cls(), []
        used: dict[Path, None] = {}  # roots
        for image in images:
            matches = (
                (listed[key], root)
                for root in roots
                for key in map(normalize_path, _possible_places(image.path, [root]))
                if key in listed
            )
            place, root = next(matches, (-1, roots[0]))
            if place < 0:
                unmatched.append(image)
                continue
            used[root] = None
            other = found.by_place.setdefault(place, image)
            if other is not image:  # two spellings of one path
                other.boxes += image.boxes
        if not found.by_place:
            if not unmatched:
                raise DataError(f"{options.path}: names no images; {_REMEDY}")
            path = unmatched[0].path
            where = _tell_place(_possible_places(path, roots)[0], path)
            raise DataError(f"{options.path}: names none of the {format_count(len(source), 'file')}; {where}")
        within = tuple(os.path.join(normalize_path(folder), "") for folder in folders)  # noqa: PTH118
        for image in unmatched:
            places = _possible_places(image.path, list(used))
            gone = [path for path in places if normalize_path(path).startswith(within)]
            if gone and not any(map(os.path.lexists, places)):
                found.gone.append((with_slashes(gone[0]), image))
            else:
                found.others.append(image.path)
        return found


def _tell_place(place: str, path: str) -> str:
    """Return where the first image of a box file was looked for, and a remedy."""
    if Path(path).is_absolute() or PureWindowsPath(path).drive:
        return (
            f"the first one is {path}, a path from another place; run MegaDetector with "
            "--output_relative_filenames, or shorten the paths in the file"
        )
    return (
        f"the first one was looked for at {place}; use --box-root to give the folder that its paths are "
        "relative to"
    )


def _possible_places(path: str, roots: Sequence[Path]) -> list[str]:
    """Return where the file of a path may be, which another system may have written."""
    spellings = [path, path.replace("\\", "/")] if "\\" in path and os.sep == "/" else [path]
    return [str(Path(os.path.join(root, name))) for root in roots for name in spellings]  # noqa: PTH118


class _JsonReader:
    """MegaDetector's batch output, format 1."""

    def __init__(self, options: BoxOptions) -> None:
        self._options, self._path = options, options.path

    def read(self) -> DetectedImages:
        content = self._load()
        images, wanted = content.get("images"), self._wanted_categories(content)
        if not isinstance(images, list):
            raise self._error("has no list `images`")
        found = DetectedImages(self._options)
        for number, entry in enumerate(images):
            where = f"{self._path}, images[{number}]"
            if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
                raise DataError(f"{where}: has no text `file`; {_REMEDY}")
            image = found.image(entry["file"], where)
            detections, failure = entry.get("detections"), entry.get("failure")
            if failure or detections is None:
                image.failure = first_line(ValueError(failure or "no detections"))[:_LONGEST_REASON]
            elif not isinstance(detections, list):
                raise DataError(f"{where}: `detections` is not a list; {_REMEDY}")
            else:
                for detection in detections:
                    self._add(found, image, detection, wanted, where)
        return found

    def _load(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
        except OSError as e:
            raise DataError(f"{self._path}: cannot read it ({e.strerror})") from e
        except RecursionError as e:
            raise self._error("is nested too deeply") from e
        except (ValueError, MemoryError) as e:
            raise DataError(f"{self._path}: not readable as JSON ({first_line(e)}); is it complete?") from e
        if not isinstance(content, dict):
            raise self._error("is not an object with `images`")
        info = content.get("info")
        version = info.get("format_version", "1") if isinstance(info, dict) else "1"
        if str(version).partition(".")[0] != "1":
            raise self._error(f"has the format version {str(version)[:20]!a}, and crnr reads version 1")
        return content

    def _wanted_categories(self, content: dict[str, Any]) -> dict[str, bool]:
        """Return for each category's number whether its boxes are used."""
        names = content.get("detection_categories")
        if not isinstance(names, dict):
            raise self._error("has no `detection_categories`")
        category = self._options.category
        wanted = {number: category in (ANY, name) for number, name in names.items()}
        if not any(wanted.values()):
            shown = ", ".join(map(str, names.values())) or "none"
            raise DataError(
                f"{self._path}: has no category {category}, only {shown}; choose one with --category, or all "
                f"with --category {ANY}"
            )
        return wanted

    def _add(
        self, found: DetectedImages, image: DetectedImage, detection: Any, wanted: dict[str, bool], where: str
    ) -> None:
        if not isinstance(detection, dict):
            raise DataError(f"{where}: has a detection that is not an object; {_REMEDY}")
        category = str(detection.get("category"))
        confidence: Any = detection.get("conf")
        if category not in wanted:
            raise DataError(
                f"{where}: has the category {category[:20]!a}, but `detection_categories` does not; correct "
                "the file"
            )
        if not _is_number(confidence):
            raise DataError(f"{where}: has a detection without a number `conf`; {_REMEDY}")
        if wanted[category] and confidence >= self._options.min_confidence:
            found.add(image, LabelledBox(_to_box(detection.get("bbox"))))

    def _error(self, problem: str) -> DataError:
        return DataError(f"{self._path}: {problem}; {_REMEDY}")


def _to_box(values: Any) -> Box:
    """Return a box; all its numbers are NaN if the values are not four numbers."""
    if isinstance(values, list) and len(values) == 4 and all(map(_is_number, values)):
        x, y, width, height = map(float, values)
        return Box(x, y, width, height)
    return Box(math.nan, math.nan, math.nan, math.nan)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53
    )


class _CsvReader:
    """A CSV with a box per row; an image without a box has a row with empty fields."""

    def __init__(self, options: BoxOptions) -> None:
        self._options, self._path = options, options.path
        self._has_pixels = False  # whether a value is larger than 1, so all are in pixels
        self._line_of_shares = 0  # of the first box without a unit that can only be in shares

    def read(self) -> DetectedImages:
        path, found = self._path, DetectedImages(self._options)
        with opened_csv(path, "\t" if path.suffix.lower() == ".tsv" else ",") as reader:
            header = next(iter(reader), [])
            separator = reader.dialect.delimiter
            if missing := [name for name in _COLUMNS if name not in header]:
                refuse_separators(header, path, separator)
                raise DataError(f"{path}: no column {' or '.join(missing)}; {_REMEDY}")
            if twice := [name for name in _COLUMNS if header.count(name) > 1]:
                raise DataError(f"{path}: has two columns {twice[0]}; remove one")
            found.has_labels = "label" in header
            signs = DecimalSigns(path, separator)
            for row in filter(None, reader):
                where = f"{path}, line {reader.line_num}"
                if len(row) != len(header):
                    fields = format_count(len(row), "field")
                    raise DataError(f"{where}: {fields}, but the header has {len(header)}; is it complete?")
                cells = dict(zip(header, row, strict=True))
                self._add(found, cells, signs, reader.line_num)
        return self._with_units(found)

    def _add(self, found: DetectedImages, cells: dict[str, str], signs: DecimalSigns, line: int) -> None:
        where = f"{self._path}, line {line}"
        image = found.image(cells["path"], where)
        texts = [cells[name].strip() for name in _COLUMNS[1:]]
        if not any(texts):
            return
        values = self._numbers(texts, signs, line)
        if confidence := cells.get("confidence", "").strip():
            (given,) = self._numbers([confidence], signs, line)
            if not given >= self._options.min_confidence:
                return
        unit = cells.get("unit", "").strip()
        if unit and unit not in UNITS:
            raise DataError(f"{where}: the unit is {unit[:20]!a}; write {' or '.join(UNITS)}")
        label = cells.get("label")
        require_utf_8(label or "", where, "the label")
        self._has_pixels |= any(1 < value < math.inf for value in values)
        is_small = all(abs(value) <= 1 for value in values)
        if is_small and not unit and not all(value.is_integer() for value in values):
            self._line_of_shares = self._line_of_shares or line
        x, y, width, height = values
        found.add(image, LabelledBox(Box(x, y, width, height), label, unit))

    def _numbers(self, texts: list[str], signs: DecimalSigns, line: int) -> list[float]:
        numbers = []
        for text in signs.to_points(texts, line):
            try:
                numbers.append(float(text))
            except ValueError as e:
                raise DataError(f"{self._path}, line {line}: {text[:40]!a} is not a number") from e
        return numbers

    def _with_units(self, found: DetectedImages) -> DetectedImages:
        """Return the boxes in the unit of the option, of their row, or of the whole file."""
        usual = self._options.unit or (PIXELS if self._has_pixels else RELATIVE)
        if self._has_pixels and self._line_of_shares and not self._options.unit:
            raise DataError(
                f"{self._path}, line {self._line_of_shares}: the numbers are shares, but other boxes have "
                "numbers larger than 1, as in pixels; give the unit of all with --box-unit, or of "
                "each row in a column unit"
            )
        for image in found:
            image.boxes = [
                one._replace(box=one.box._replace(in_pixels=True))
                if (self._options.unit or one.unit or usual) == PIXELS
                else one
                for one in image.boxes
            ]
        return found


def _regions_of(file: ImageFile, image: DetectedImage | None, table: Path) -> list[ImageFile]:
    """Return the regions of a file, each once, or the file with the reason why it has none."""
    if image is None or not image.boxes:
        error = file.error
        if error is None and image and image.failure:
            error = SampleError("detector_failed", f"the detector failed: {image.failure}")
        if error is None and image is None and not is_named_like_image(file.path):  # such as a note
            error = SampleError("not_image", "neither named like an image nor in the box file")
        return [file._replace(error=error or SampleError(NO_BOX, f"has no box in {table}"))]
    regions: dict[str, ImageFile] = {}
    for box, label, _ in image.boxes:
        error = file.error
        try:
            _refuse_pixels(box)
            box = box.clip()
        except SampleError as e:
            error = error or e
        folders = file.folders if label is None else (label,) if label else ()
        name = Region(file.path, box).name
        regions.setdefault(name, file._replace(path=name, folders=folders, error=error))
    return list(regions.values())


def _refuse_pixels(box: Box) -> None:
    """Raise SampleError for pixels in place of shares, which would be cut off at the edges of the image."""
    if not box.in_pixels and _LARGEST_SHARE < max(map(abs, box[:4])) < math.inf:
        raise SampleError(BAD_BOX, "the numbers are too large for shares of the image; are they pixels?")


def _move_places(folders: Sequence[NamedFolder], starts: Sequence[int]) -> list[NamedFolder]:
    """Return the named folders with the places of their regions instead of their files."""
    return [
        replace(
            folder,
            loose=array("q", (i for place in folder.loose for i in range(starts[place], starts[place + 1]))),
        )
        for folder in folders
    ]
