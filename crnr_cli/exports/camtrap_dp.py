"""Camtrap DP 1.0: deployments, media and observations as CSV, and a datapackage.json, in one folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path, PurePosixPath
from typing import Any

from crnr_cli.errors import DataError
from crnr_cli.exports.base import (
    ANIMAL,
    BLANK,
    PROGRAM,
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
from crnr_cli.records import dataclass
from crnr_cli.system.csv_file import DecimalSigns, opened_csv, read_records, require_file, write_rows
from crnr_cli.system.names import with_slashes

_HOME = "https://raw.githubusercontent.com/tdwg/camtrap-dp/1.0"
_REQUIRED = ("deploymentID", "latitude", "longitude", "deploymentStart", "deploymentEnd")
_DEPLOYMENTS = (
    *("deploymentID", "locationID", "locationName", "latitude", "longitude", "coordinateUncertainty"),
    *("deploymentStart", "deploymentEnd", "setupBy", "cameraID", "cameraModel", "cameraDelay"),
    *("cameraHeight", "cameraDepth", "cameraTilt", "cameraHeading", "detectionDistance", "timestampIssues"),
    *("baitUse", "featureType", "habitat", "deploymentGroups", "deploymentTags", "deploymentComments"),
)
_FOLDER = "folder"  # a column of our own: the images below this folder belong to the deployment
_MEDIA = (
    *("mediaID", "deploymentID", "captureMethod", "timestamp", "filePath", "filePublic", "fileName"),
    *("fileMediatype", "exifData", "favorite", "mediaComments"),
)
_OBSERVATIONS = (
    *("observationID", "deploymentID", "mediaID", "eventID", "eventStart", "eventEnd", "observationLevel"),
    *("observationType", "cameraSetupType", "scientificName", "count", "lifeStage", "sex", "behavior"),
    *("individualID", "individualPositionRadius", "individualPositionAngle", "individualSpeed"),
    *("bboxX", "bboxY", "bboxWidth", "bboxHeight", "classificationMethod", "classifiedBy"),
    *("classificationTimestamp", "classificationProbability", "observationTags", "observationComments"),
)
_MEDIATYPES = {
    **dict.fromkeys((".jpg", ".jpeg"), "image/jpeg"),
    **dict.fromkeys((".tif", ".tiff"), "image/tiff"),
    **dict.fromkeys((".heic", ".heif", ".hif"), "image/heic"),
    **{f".{name}": f"image/{name}" for name in ("png", "gif", "bmp", "webp", "avif")},
    ".ppm": "image/x-portable-pixmap",
    ".pgm": "image/x-portable-graymap",
    ".pbm": "image/x-portable-bitmap",
}
_ALLOWED_PATH = re.compile(r"(?![./~])(?:(?!\.\.).)*", re.DOTALL)  # of the specification
_SMALLEST_SIDE = 1e-15  # of a box, in the specification
_METADATA = {
    "contributors": [{"title": "unknown"}],
    "project": {
        "title": "unknown",
        "samplingDesign": "opportunistic",
        "captureMethod": ["activityDetection"],
        "individualAnimals": False,
        "observationLevel": ["media"],
    },
}
_COMPUTED = ("resources", "profile", "created", "spatial", "temporal", "taxonomic")
_ASSUMED = (
    "datapackage.json has placeholders for contributors and project; give yours with --metadata, or edit it"
)


@dataclass(frozen=True)
class _Deployment:
    """A row of the table of deployments."""

    values: Mapping[str, str]
    start: datetime
    end: datetime
    longitude: float
    latitude: float
    folder: str  # empty if the table has no such column

    @property
    def id(self) -> str:
        return self.values["deploymentID"]


def _make_camtrap_dp(images: Sequence[ExportedImage], options: ExportOptions) -> Exported:
    assert options.deployments is not None
    deployments, notes = _read_deployments(options.deployments)
    metadata = _read_metadata(options.metadata)
    finder = _Finder(deployments)
    media: list[dict[str, Any]] = []
    observations: list[dict[str, Any]] = []
    exported = Exported({}, notes=[*notes, *([] if options.metadata else [_ASSUMED])])
    for image in images:
        try:
            medium = _medium(image, finder, options)
        except LeftOutError as e:
            exported.left_out += [(answer.name, str(e)) for answer in image.answers]
            continue
        media.append(medium)
        for answer in image.answers:
            try:
                observations.append(_observation(image, answer, medium))
            except LeftOutError as e:
                exported.left_out.append((answer.name, str(e)))
    names = sorted({one["scientificName"] for one in observations if one["scientificName"]})
    exported.files = {
        "deployments.csv": _to_csv(_DEPLOYMENTS, (one.values for one in deployments)),
        "media.csv": _to_csv(_MEDIA, media),
        "observations.csv": _to_csv(_OBSERVATIONS, observations),
        "datapackage.json": to_json({**metadata, **_describe(deployments, names)}),
    }
    return exported


def _read_deployments(path: Path) -> tuple[list[_Deployment], list[str]]:
    """Return the deployments, and a note on columns that Camtrap DP does not have."""
    remedy = f"a table of deployments has the columns {', '.join(_REQUIRED)}"
    require_file(path, remedy)
    with opened_csv(path) as reader:
        header, separator = next(iter(reader), []), reader.dialect.delimiter
    columns = (*_REQUIRED, *(name for name in (*_DEPLOYMENTS, _FOLDER) if name in header))
    columns = tuple(dict.fromkeys(columns))
    signs = DecimalSigns(path, separator)
    found: dict[str, _Deployment] = {}
    for values, where, line in read_records(path, columns, remedy):
        row = dict(zip(columns, (value.strip() for value in values), strict=True))
        place = signs.to_points([row["latitude"], row["longitude"]], line)
        row |= {"latitude": place[0], "longitude": place[1]}
        one = _parse_deployment(row, where)
        if one.id in found:
            raise DataError(f"{where}: the deployment {one.id!r} is in the table twice")
        found[one.id] = one
    if not found:
        raise DataError(f"{path}: has no deployments; {remedy}")
    others = [name for name in header if name and name not in columns]
    note = [f"{path}: left out columns that Camtrap DP does not have: {', '.join(others)}"] if others else []
    return list(found.values()), note


def _parse_deployment(row: dict[str, str], where: str) -> _Deployment:
    if missing := [name for name in _REQUIRED if not row[name]]:
        raise DataError(f"{where}: {missing[0]} is empty; Camtrap DP requires it")
    if any("\udc80" <= sign <= "\udcff" for sign in "".join(row.values())):
        raise DataError(f"{where}: is not UTF-8; save the file as UTF-8, which spreadsheets call CSV UTF-8")
    latitude = _parse_degrees(row, "latitude", 90, where)
    longitude = _parse_degrees(row, "longitude", 180, where)
    start, end = (_parse_time(row[name], f"{where}: {name}") for name in _REQUIRED[3:])
    if start.tzinfo is None or end.tzinfo is None:
        raise DataError(
            f"{where}: a date has no time zone; write it as 2026-01-31T12:00:00+01:00, or with Z for UTC"
        )
    if end < start:
        raise DataError(f"{where}: deploymentEnd is before deploymentStart")
    folder = with_slashes(row.pop(_FOLDER, "")).removeprefix("./").rstrip("/")
    row |= {"deploymentStart": _format_time(start), "deploymentEnd": _format_time(end)}
    return _Deployment(row, start, end, longitude, latitude, folder)


def _parse_degrees(row: Mapping[str, str], name: str, largest: float, where: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = largest + 1
    if not -largest <= value <= largest:
        raise DataError(f"{where}: {name} {row[name][:40]!r} is not a number from -{largest} to {largest}")
    return value


def _parse_time(text: str, where: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as e:
        raise DataError(f"{where} {text[:40]!r} is not a date such as 2026-01-31T12:00:00+01:00") from e


def _format_time(time: datetime) -> str:
    """Return a date as the specification demands, in whole seconds."""
    text = time.replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%S%z")
    if time.year < 1000:
        text = text.zfill(24)  # some systems write fewer digits
    zone = text[19:]
    return f"{text[:19]}Z" if zone == "+0000" else f"{text[:19]}{zone[:3]}:{zone[3:5]}"


class _Finder:
    """Finds the deployment of an image, by the folders in its path."""

    def __init__(self, deployments: Sequence[_Deployment]) -> None:
        self._only = deployments[0] if len(deployments) == 1 and not deployments[0].folder else None
        self._by_folder = {one.folder: one for one in deployments if one.folder}
        self._by_id = {one.id: one for one in deployments if not one.folder}

    def find(self, path: str) -> _Deployment:
        if self._only:
            return self._only
        parents = [str(parent) for parent in PurePosixPath(with_slashes(path)).parents]
        for parent in parents:  # the innermost folder first
            if found := self._by_folder.get(parent) or self._by_id.get(parent.rpartition("/")[2]):
                return found
        raise LeftOutError(
            "no folder in its path is a deploymentID; add a column folder to the table of deployments"
        )


def _medium(image: ExportedImage, finder: _Finder, options: ExportOptions) -> dict[str, Any]:
    path = str(PurePosixPath(with_slashes(image.path)))
    deployment = finder.find(path)
    address = options.url_of(path)
    try:
        address.encode()
    except UnicodeEncodeError as e:
        raise LeftOutError("its path is not UTF-8, as Camtrap DP requires") from e
    if not _ALLOWED_PATH.fullmatch(address):
        raise LeftOutError(
            "Camtrap DP allows no path with .. or with . or / or ~ at its beginning; run the command in a "
            "folder above the images, or give --url-prefix"
        )
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in _MEDIATYPES:
        raise LeftOutError("the media type is unknown, because the name does not end like an image")
    time = _find_time(image, deployment.start.tzinfo)
    return {
        "mediaID": path,
        "deploymentID": deployment.id,
        "timestamp": _format_time(time),
        "filePath": address,
        "filePublic": "false",
        "fileName": PurePosixPath(path).name,
        "fileMediatype": _MEDIATYPES[suffix],
    }


def _find_time(image: ExportedImage, zone: tzinfo | None) -> datetime:
    """Return when the image was captured; a camera that stores no time zone has the deployment's."""
    given = next((answer.timestamp for answer in image.answers if answer.timestamp), "")
    if given:
        time = _parse_time(given, f"{image.path}: the timestamp")
    elif image.header is None:
        raise LeftOutError(f"its capture date is unknown: {image.reason}")
    else:
        try:
            time = datetime.fromisoformat(image.header.date)
        except ValueError as e:
            raise LeftOutError("has no capture date; add a column timestamp to the predictions file") from e
    return time if time.tzinfo else time.replace(tzinfo=zone)


def _observation(image: ExportedImage, answer: ExportedAnswer, medium: Mapping[str, Any]) -> dict[str, Any]:
    box = _clip(image.relative_box(answer))
    unnamed = BLANK if answer.is_blank else "unclassified" if answer.failed else "unknown"
    kind = unnamed if answer.label is None else kind_of(answer.label)
    name = str(PurePosixPath(with_slashes(answer.name)))
    by = {} if answer.failed else {"classificationMethod": "machine", "classifiedBy": PROGRAM}
    if answer.is_corrected:
        by = {"classificationMethod": "human"}
    elif answer.label is not None and answer.probability is not None:
        by["classificationProbability"] = f"{answer.probability:.6g}"
    sides = ("bboxX", "bboxY", "bboxWidth", "bboxHeight")
    return {
        "observationID": name,
        "deploymentID": medium["deploymentID"],
        "mediaID": medium["mediaID"],
        "eventStart": medium["timestamp"],
        "eventEnd": medium["timestamp"],
        "observationLevel": "media",
        "observationType": kind,
        "scientificName": (answer.label or "") if kind == ANIMAL else "",
        **(dict(zip(sides, (f"{side:.9g}" for side in box), strict=True)) if box else {}),
        **by,
    }


def _clip(box: Rectangle | None) -> Rectangle | None:
    """Return the part of a box that is inside the image."""
    if box is None:
        return None
    left, top = max(box.x, 0.0), max(box.y, 0.0)
    right, bottom = min(box.x + box.width, 1.0), min(box.y + box.height, 1.0)
    if right - left < _SMALLEST_SIDE or bottom - top < _SMALLEST_SIDE:
        raise LeftOutError("the box is empty, or outside the image")
    is_inside = (left, top, right, bottom) == (box.x, box.y, box.x + box.width, box.y + box.height)
    return box if is_inside else Rectangle(left, top, right - left, bottom - top)


def _to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    lines: list[str] = []
    write_rows(lines.append, [columns, *([row.get(name, "") for name in columns] for row in rows)])
    return "".join(lines)


def _read_metadata(path: Path | None) -> dict[str, Any]:
    """Return the properties of the package that only its author knows."""
    if path is None:
        return dict(_METADATA)
    given = read_json_object(path, "give a JSON object with contributors and project")
    for name, value in _METADATA.items():
        if not isinstance(given.setdefault(name, value), type(value)) or not given[name]:
            raise DataError(f"{path}: {name} is not {'a list' if isinstance(value, list) else 'an object'}")
    project = _METADATA["project"]
    assert isinstance(project, dict)
    given["project"] = {**project, **given["project"]}
    return {name: value for name, value in given.items() if name not in _COMPUTED}


def _describe(deployments: Sequence[_Deployment], names: Iterable[str]) -> dict[str, Any]:
    """Return the properties that follow from the tables."""
    west, east = (end(one.longitude for one in deployments) for end in (min, max))
    south, north = (end(one.latitude for one in deployments) for end in (min, max))
    corners = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {
        "profile": f"{_HOME}/camtrap-dp-profile.json",
        "created": _format_time(datetime.now(UTC)),
        "spatial": {"type": "Polygon", "bbox": [west, south, east, north], "coordinates": [corners]},
        "temporal": {
            "start": min(one.start for one in deployments).date().isoformat(),
            "end": max(one.end for one in deployments).date().isoformat(),
        },
        "taxonomic": [{"scientificName": name} for name in names],
        "resources": [
            {
                "name": name,
                "path": f"{name}.csv",
                "profile": "tabular-data-resource",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": f"{_HOME}/{name}-table-schema.json",
            }
            for name in ("deployments", "media", "observations")
        ],
    }


EXPORTER = Exporter(
    _make_camtrap_dp,
    options=frozenset({"deployments", "metadata", "url_prefix"}),
    required=frozenset({"deployments"}),
    needs_headers=True,
    is_folder=True,
)
