"""MegaDetector's batch format, version 1.6: answers are the classifications of detections.

The format has no classification of a whole image, so a whole image becomes one detection that covers it. With
the detector's own JSON, all its fields are kept.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.exports.base import (
    ANIMAL,
    BLANK,
    HUMAN,
    PROGRAM,
    VEHICLE,
    Exported,
    ExportedAnswer,
    ExportedImage,
    Exporter,
    ExportOptions,
    LeftOutError,
    Rectangle,
    kind_of,
    read_json_object,
    to_json,
)
from crnr_cli.system.names import with_slashes

_VERSION = "1.6"
_WHOLE = Rectangle(0.0, 0.0, 1.0, 1.0)
_CATEGORIES = {"1": "animal", "2": "person", "3": "vehicle"}
_CATEGORY_OF = {ANIMAL: "animal", HUMAN: "person", VEHICLE: "vehicle", BLANK: "animal"}
_NO_DETECTOR = 1.0  # the confidence of a box whose detector is unknown: no threshold may hide it
_SAME = 5e-4  # the largest difference between a number of a box and the same number in a name
_CELL = 4 * _SAME  # boxes are searched in cells of this width
_LARGEST = 1e9  # no box of an image has a larger number
_REMEDY = "give the JSON that MegaDetector wrote"


def _make_megadetector(images: Sequence[ExportedImage], options: ExportOptions) -> Exported:
    document = _new_document() if options.boxes is None else _check_detections(options.boxes)
    writer = _Writer(document)
    known = _match_files(images, document["images"])
    exported = Exported({})
    for image in images:
        record = known.get(image.path)
        if record is None:
            record = {"file": image.path}
            document["images"].append(record)
        free = _FreeDetections(record.get("detections") or ())
        for answer in image.answers:
            try:
                writer.add(record, free, image, answer)
            except LeftOutError as e:
                exported.left_out.append((answer.name, str(e)))
        if "detections" not in record:
            # A file without detections has failed; one that was processed has a list, which may be empty.
            failed = next((answer.status for answer in image.answers if answer.failed), "")
            record["detections"] = None if failed else []
            if failed:
                record["failure"] = failed
    writer.finish()
    exported.files[""] = to_json(document)
    return exported


def _new_document() -> dict[str, Any]:
    return {
        "info": {"format_version": _VERSION},
        "detection_categories": dict(_CATEGORIES),
        "images": [],
    }


def _check_detections(path: Path) -> dict[str, Any]:
    """Return the detector's JSON, in which everything that is looked at has the form of the format."""
    document = read_json_object(path, _REMEDY)
    records = document.get("images")
    if not isinstance(records, list):
        raise DataError(f"{path}: has no list images; {_REMEDY}")
    if not isinstance(document.setdefault("info", {}), dict):
        raise DataError(f"{path}: info is not an object; {_REMEDY}")
    document.setdefault("detection_categories", {})
    for name in ("detection_categories", "classification_categories"):
        categories = document.get(name, {})
        if not isinstance(categories, dict) or not all(isinstance(one, str) for one in categories.values()):
            raise DataError(f"{path}: {name} is not an object of texts; {_REMEDY}")
    for number, record in enumerate(records, 1):
        where = f"{path}: image {number}"
        if not isinstance(record, dict) or not isinstance(record.get("file"), str):
            raise DataError(f"{where} has no text file; {_REMEDY}")
        detections = record.get("detections")
        if detections is None:
            continue
        if not isinstance(detections, list) or not all(map(_is_detection, detections)):
            raise DataError(f"{where} has detections without a bbox of four numbers; {_REMEDY}")
    return document


def _is_detection(value: Any) -> bool:
    match value:
        case {"bbox": [*numbers]} if len(numbers) == 4:
            return all(
                isinstance(one, int | float) and not isinstance(one, bool) and abs(one) <= _LARGEST
                for one in numbers
            )
    return False


def _match_files(
    images: Iterable[ExportedImage], records: Sequence[dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the detector's record of each image, by the image's path.

    The detector's paths are relative to the folder that it searched: they are the ends of ours.
    """
    by_file: dict[str, dict[str, Any]] = {}
    for record in records:
        by_file.setdefault(_plain(record["file"]), record)
    found: dict[str, dict[str, Any]] = {}
    owners: dict[int, str] = {}
    for image in images if by_file else ():
        names = _plain(image.path).split("/")
        ends = ("/".join(names[start:]) for start in range(len(names)))
        record_ = next((by_file[end] for end in ends if end in by_file), None)
        if record_ is None:
            continue
        other = owners.setdefault(id(record_), image.path)
        if other != image.path:
            raise DataError(
                f"{other} and {image.path} are the same image {record_['file']} in the detector's "
                "JSON; export them separately"
            )
        found[image.path] = record_
    return found


def _plain(path: str) -> str:
    return with_slashes(path).replace("\\", "/").removeprefix("./")


class _FreeDetections:
    """The detections of an image that have no answer yet, by the cells of their boxes."""

    def __init__(self, detections: Iterable[dict[str, Any]]) -> None:
        self._by_box: dict[tuple[float, ...], deque[tuple[int, dict[str, Any]]]] = {}
        self._cells: dict[tuple[int, ...], list[tuple[float, ...]]] = {}
        for place, detection in enumerate(detections):
            box = tuple(detection["bbox"])
            if box not in self._by_box:
                self._by_box[box] = deque()
                self._cells.setdefault(_find_cell(box), []).append(box)
            self._by_box[box].append((place, detection))

    def take(self, wanted: Rectangle) -> dict[str, Any] | None:
        """Remove and return the nearest detection, if it is near; the numbers in a name may be rounded.

        Of several, it is the first in the list.
        """
        margin = 1.01 * _SAME  # a rounding error more, because the distance decides
        low, high = (_find_cell(value + sign * margin for value in wanted) for sign in (-1, 1))
        cells = product(*({one, other} for one, other in zip(low, high, strict=True)))
        near = [(_distance(box, wanted), box) for cell in cells for box in self._cells.get(cell, ())]
        found = min(((how, self._by_box[box][0][0], box) for how, box in near if how <= _SAME), default=None)
        if found is None:
            return None
        box = found[2]
        _, detection = self._by_box[box].popleft()
        if not self._by_box[box]:
            del self._by_box[box]
            self._cells[_find_cell(box)].remove(box)
        return detection


def _find_cell(box: Iterable[float]) -> tuple[int, ...]:
    return tuple(math.floor(value / _CELL) for value in box)


def _distance(one: Iterable[float], other: Iterable[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


class _Categories:
    """The names of categories by their numbers, which are texts; a new name gets the next number."""

    def __init__(self, names: dict[str, str], first: int) -> None:
        self.names = names
        self._ids = {name: id for id, name in reversed(names.items())}
        numbers = [int(id) for id in names if id.isascii() and id.isdigit() and len(id) < 10]
        self._next = max([first - 1, *numbers]) + 1

    def number(self, name: str) -> str:
        if name not in self._ids:
            self._ids[name] = str(self._next)
            self.names[self._ids[name]] = name
            self._next += 1
        return self._ids[name]


class _Writer:
    """Adds answers to records, and keeps their categories."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._info: dict[str, Any] = document["info"]
        self._document = document
        self._detections = _Categories(document["detection_categories"], first=1)
        self._classes = _Categories(document.get("classification_categories", {}), first=0)
        self._has_classified = False

    def add(
        self, record: dict[str, Any], free: _FreeDetections, image: ExportedImage, answer: ExportedAnswer
    ) -> None:
        box = image.relative_box(answer)
        if box is None and (answer.failed or answer.is_blank):
            return
        if answer.label is not None and answer.score is None:
            raise DataError(
                f"{answer.name}: has no probability, which MegaDetector's format requires; classify with a "
                "gallery that was built with --calibrate"
            )
        detections = record.get("detections")
        if detections is None:
            record.pop("failure", None)
            detections = record["detections"] = []
        detection = free.take(box or _WHOLE)
        if detection is None:
            detection = self._new_detection(answer.label, box or _WHOLE)
            detections.append(detection)
        if answer.label is not None:
            detection["classifications"] = [[self._classes.number(answer.label), answer.score]]
            self._has_classified = True

    def _new_detection(self, label: str | None, box: Rectangle) -> dict[str, Any]:
        category = self._detections.number(_CATEGORY_OF[kind_of(label or "")])
        return {"category": category, "conf": _NO_DETECTOR, "bbox": list(box)}

    def finish(self) -> None:
        """Name the classifier and the version, where the detector did not."""
        self._info.setdefault("format_version", _VERSION)
        if self._has_classified:
            self._info["classifier"] = PROGRAM
            self._document["classification_categories"] = self._classes.names


EXPORTER = Exporter(_make_megadetector, options=frozenset({"boxes"}))
