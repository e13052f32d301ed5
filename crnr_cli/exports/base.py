"""The registry of export formats, and the answers that they write.

It contains names of modules, so that a format is only imported if it is written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from crnr_cli import __version__
from crnr_cli.errors import DataError
from crnr_cli.images.regions import parse_region
from crnr_cli.records import dataclass
from crnr_cli.system.csv_file import require_file

# To add a format, write a module with an EXPORTER and list it here.
EXPORTERS = {
    "megadetector": "megadetector",
    "camtrap-dp": "camtrap_dp",
    "label-studio": "label_studio",
    "coco": "coco",
}
PROGRAM = f"crnr {__version__}"
NO_BOX = "no_box"  # the status of an image without a box
ANIMAL, HUMAN, VEHICLE, BLANK = "animal", "human", "vehicle", "blank"
# Class names that mean something else than an animal, in camera trap projects.
_KINDS = {
    **dict.fromkeys(("human", "person", "people", "homo sapiens"), HUMAN),
    "vehicle": VEHICLE,
    **dict.fromkeys(("blank", "empty"), BLANK),
}


class Rectangle(NamedTuple):
    """A rectangle in an image, as shares of its width and height, or in pixels."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class BoxedName:
    """The name of a query: an image, and a box in it if there is one."""

    image: str
    box: Rectangle | None = None
    is_in_pixels: bool = False


def split_box(name: str) -> BoxedName:
    """Return the image and the box of a name such as a.jpg#0.1,0.25,0.5,0.3; whole numbers are pixels."""
    region = parse_region(name)
    if region is None:
        return BoxedName(name)
    return BoxedName(region.path, Rectangle(*region.box[:4]), region.box.in_pixels)


@dataclass(frozen=True)
class ExportedAnswer:
    """An answer for an image, or for a box in it."""

    name: str  # as in the predictions file
    query: BoxedName
    label: str | None  # None if the query was rejected or failed
    status: str
    probability: float | None = None
    is_corrected: bool = False  # a person chose the label
    timestamp: str = ""  # of the column of this name

    @property
    def failed(self) -> bool:
        return self.label is None and self.status not in ("ok", "rejected", NO_BOX)

    @property
    def is_blank(self) -> bool:
        """Whether the image shows nothing: the detector found no box, or its class is blank."""
        return self.status == NO_BOX if self.label is None else kind_of(self.label) == BLANK

    @property
    def score(self) -> float | None:
        """The probability of the label; a person is sure."""
        return 1.0 if self.is_corrected else self.probability


class ImageHeader(NamedTuple):
    """The properties of an image file that formats need."""

    width: int
    height: int
    date: str  # when it was captured, in ISO 8601; empty if unknown


@dataclass
class ExportedImage:
    """An image with its answers: one, or one per box."""

    path: str
    answers: list[ExportedAnswer] = field(default_factory=list)
    header: ImageHeader | None = None
    reason: str = ""  # why there is no header

    def relative_box(self, answer: ExportedAnswer) -> Rectangle | None:
        """Return the box as shares of the image; an error if it is in pixels, and the size unknown."""
        box = answer.query.box
        if box is None or not answer.query.is_in_pixels:
            return box
        header = self.require_header()
        return Rectangle(
            box.x / header.width, box.y / header.height, box.width / header.width, box.height / header.height
        )

    def pixel_box(self, answer: ExportedAnswer) -> Rectangle | None:
        """Return the box in pixels; an error if it is not, and the size of the image is unknown."""
        box = answer.query.box
        if box is None or answer.query.is_in_pixels:
            return box
        header = self.require_header()
        return Rectangle(
            box.x * header.width, box.y * header.height, box.width * header.width, box.height * header.height
        )

    def require_header(self) -> ImageHeader:
        if self.header is None:
            raise LeftOutError(f"its size is unknown: {self.reason}")
        return self.header


class LeftOutError(Exception):
    """Why an answer cannot be exported."""


@dataclass(frozen=True)
class ExportOptions:
    boxes: Path | None = None  # the detector's JSON
    deployments: Path | None = None
    metadata: Path | None = None
    url_prefix: str | None = None

    def url_of(self, path: str) -> str:
        """Return the address of an image; without a prefix, its path."""
        if not self.url_prefix:
            return path
        from urllib.parse import quote  # only here: the registry is loaded by every `crnr --help`

        return self.url_prefix + quote(path, errors="surrogateescape")


@dataclass
class Exported:
    """The files to write, and the answers that are not in them."""

    files: dict[str, str]  # by name; a format that is one file has one name, which is empty
    left_out: list[tuple[str, str]] = field(default_factory=list)  # answers, and why
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Exporter:
    """How one format is made."""

    make: Callable[[Sequence[ExportedImage], ExportOptions], Exported]
    options: frozenset[str] = frozenset()  # the fields of ExportOptions that it takes
    required: frozenset[str] = frozenset()
    needs_headers: bool = False  # of all images; otherwise, of images with boxes in pixels
    is_folder: bool = False


def exporter_of(name: str) -> Exporter:
    exporter: Exporter = import_module(f"{__package__}.{EXPORTERS[name]}").EXPORTER
    return exporter


def kind_of(label: str) -> str:
    """Return what a class shows, by its name: an animal, unless it is named after something else."""
    return _KINDS.get(label.strip().lower(), ANIMAL)


def to_json(document: Any) -> str:
    """Return ASCII, so that names that are not UTF-8 can be written too, as lone surrogates."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def read_json_object(path: Path, remedy: str) -> dict[str, Any]:
    """Return the object in a JSON file; numbers are finite, as other programs cannot read NaN."""
    require_file(path, remedy)
    try:
        document = json.loads(
            path.read_bytes().decode("utf-8-sig"), parse_float=_finite, parse_constant=_finite
        )
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (ValueError, RecursionError) as e:  # the latter: nested too deeply
        raise DataError(f"{path}: not readable as JSON ({e}); {remedy}") from e
    if not isinstance(document, dict):
        raise DataError(f"{path}: not a JSON object; {remedy}")
    return document


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def number_categories(images: Sequence[ExportedImage]) -> Mapping[str, int]:
    """Return the categories of all labels, numbered from 1 in the order of their names."""
    labels = sorted({answer.label for image in images for answer in image.answers if answer.label})
    return {label: number for number, label in enumerate(labels, 1)}
