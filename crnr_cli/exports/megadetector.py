"""MegaDetector's batch format, version 1.6: answers are the classifications of detections.

The format has no classification of a whole image, so a whole image becomes one detection that covers it. With
the detector's own JSON, all its fields are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
        for answer in image.answers:
            try:
                writer.add(record, image, answer)
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
            return all(isinstance(one, int | float) and not isinstance(one, bool) for one in numbers)
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


class _Writer:
    """Adds answers to records, and keeps their categories."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._info: dict[str, Any] = document["info"]
        self._document = document
        self._detections: dict[str, str] = document["detection_categories"]
        self._classes: dict[str, str] = document.get("classification_categories", {})
        self._detection_ids: dict[str, str] = {name: id for id, name in reversed(self._detections.items())}
        self._class_ids: dict[str, str] = {name: id for id, name in reversed(self._classes.items())}
        self._used: set[int] = set()  # detections that have got their answer
        self._has_classified = False

    def add(self, record: dict[str, Any], image: ExportedImage, answer: ExportedAnswer) -> None:
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
        detection = self._find(detections, box or _WHOLE)
        if detection is None:
            detection = self._new_detection(answer.label, box or _WHOLE)
            detections.append(detection)
        self._used.add(id(detection))
        if answer.label is not None:
            detection["classifications"] = [[self._class_id(answer.label), answer.score]]
            self._has_classified = True

    def _find(self, detections: list[dict[str, Any]], box: Rectangle) -> dict[str, Any] | None:
        """Return the nearest detection that has no answer yet; the numbers in a name may be rounded."""
        free = [one for one in detections if id(one) not in self._used]
        distance = {id(one): max(abs(a - b) for a, b in zip(one["bbox"], box, strict=True)) for one in free}
        nearest = min(free, key=lambda one: distance[id(one)], default=None)
        return nearest if nearest is not None and distance[id(nearest)] <= _SAME else None

    def _new_detection(self, label: str | None, box: Rectangle) -> dict[str, Any]:
        name = _CATEGORY_OF[kind_of(label or "")]
        if name not in self._detection_ids:
            self._detection_ids[name] = _next_id(self._detections, first=1)
            self._detections[self._detection_ids[name]] = name
        return {"category": self._detection_ids[name], "conf": _NO_DETECTOR, "bbox": list(box)}

    def _class_id(self, label: str) -> str:
        if label not in self._class_ids:
            self._class_ids[label] = _next_id(self._classes, first=0)
            self._classes[self._class_ids[label]] = label
        return self._class_ids[label]

    def finish(self) -> None:
        """Name the classifier and the version, where the detector did not."""
        self._info.setdefault("format_version", _VERSION)
        if self._has_classified:
            self._info["classifier"] = PROGRAM
            self._document["classification_categories"] = self._classes


def _next_id(categories: dict[str, Any], first: int) -> str:
    numbers = [int(id) for id in categories if id.isascii() and id.isdigit() and len(id) < 10]
    return str(max([first - 1, *numbers]) + 1)


EXPORTER = Exporter(_make_megadetector, options=frozenset({"boxes"}))
