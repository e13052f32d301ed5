"""Camtrap DP: packages against the tables and the profile of the specification, version 1.0.

The schemas are not on PyPI, so the rules are written out here, and frictionless checks them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from frictionless import Package, Resource, Schema
from PIL import Image

from helpers.runner import Runner, read_rows

TIME = {"type": "datetime", "format": "%Y-%m-%dT%H:%M:%S%z"}
SHARE = {"minimum": 0, "maximum": 1}
SIDE = {"minimum": 1e-15, "maximum": 1}


@pytest.fixture(autouse=True)
def _csv_limit_is_kept() -> Iterator[None]:
    """frictionless raises the limit of the csv module for the whole process."""
    limit = csv.field_size_limit()
    yield
    csv.field_size_limit(limit)


def text(name: str, **constraints: Any) -> dict[str, Any]:
    return {"name": name, "type": "string", "constraints": constraints}


def number(name: str, kind: str = "number", **constraints: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "constraints": constraints}


def time(name: str, *, required: bool = True) -> dict[str, Any]:
    return {"name": name, **TIME, "constraints": {"required": required}}


FEATURES = (
    *("roadPaved", "roadDirt", "trailHiking", "trailGame", "roadUnderpass", "roadOverpass", "roadBridge"),
    *("culvert", "burrow", "nestSite", "carcass", "waterSource", "fruitingTree"),
)
TABLES: dict[str, list[dict[str, Any]]] = {
    "deployments": [
        text("deploymentID", required=True, unique=True),
        *(text("locationID"), text("locationName")),
        number("latitude", required=True, minimum=-90, maximum=90),
        number("longitude", required=True, minimum=-180, maximum=180),
        number("coordinateUncertainty", "integer", minimum=1),
        *(time("deploymentStart"), time("deploymentEnd")),
        *(text("setupBy"), text("cameraID"), text("cameraModel")),
        number("cameraDelay", "integer", minimum=0),
        *(number("cameraHeight", minimum=0), number("cameraDepth", minimum=0)),
        number("cameraTilt", "integer", minimum=-90, maximum=90),
        number("cameraHeading", "integer", minimum=0, maximum=360),
        number("detectionDistance", minimum=0),
        *(number("timestampIssues", "boolean"), number("baitUse", "boolean")),
        text("featureType", enum=list(FEATURES)),
        *(text("habitat"), text("deploymentGroups"), text("deploymentTags"), text("deploymentComments")),
    ],
    "media": [
        text("mediaID", required=True, unique=True),
        text("deploymentID", required=True),
        text("captureMethod", enum=["activityDetection", "timeLapse"]),
        time("timestamp"),
        text("filePath", required=True, pattern=r"^(?=^[^./~])(^((?!\.{2}).)*$).*$"),
        number("filePublic", "boolean", required=True),
        text("fileName"),
        text("fileMediatype", required=True, pattern="^(image|video|audio)/.*$"),
        *({"name": "exifData", "type": "object"}, number("favorite", "boolean"), text("mediaComments")),
    ],
    "observations": [
        text("observationID", required=True, unique=True),
        text("deploymentID", required=True),
        *(text("mediaID"), text("eventID"), time("eventStart"), time("eventEnd")),
        text("observationLevel", required=True, enum=["media", "event"]),
        text(
            "observationType",
            required=True,
            enum=["animal", "human", "vehicle", "blank", "unknown", "unclassified"],
        ),
        text("cameraSetupType", enum=["setup", "calibration"]),
        text("scientificName"),
        number("count", "integer", minimum=1),
        text("lifeStage", enum=["adult", "subadult", "juvenile"]),
        text("sex", enum=["female", "male"]),
        *(text("behavior"), text("individualID"), number("individualPositionRadius", minimum=0)),
        number("individualPositionAngle", minimum=-90, maximum=90),
        number("individualSpeed", minimum=0),
        *(number("bboxX", **SHARE), number("bboxY", **SHARE)),
        *(number("bboxWidth", **SIDE), number("bboxHeight", **SIDE)),
        text("classificationMethod", enum=["human", "machine"]),
        text("classifiedBy"),
        time("classificationTimestamp", required=False),
        number("classificationProbability", **SHARE),
        *(text("observationTags"), text("observationComments")),
    ],
}
KEYS = {
    "media": [("deploymentID", "deployments")],
    "observations": [("deploymentID", "deployments"), ("mediaID", "media")],
}
HOME = "https://raw.githubusercontent.com/tdwg/camtrap-dp/1.0"
DEPLOYMENTS = (
    "deploymentID,latitude,longitude,deploymentStart,deploymentEnd,cameraModel,notes\n"
    'north,52.5,4.25,2026-03-01T00:00:00+01:00,2026-04-01T00:00:00+01:00,"Make, Model",x\n'
    "south,-1,120,2026-01-01T00:00:00Z,2026-01-02T12:30:00Z,,\n"
)
PREDICTIONS = (
    "path,truth,label,status,probability\n"
    '"north/a.jpg#0.0,0.25,0.4,0.3",,Vulpes vulpes,ok,0.91234567\n'
    '"north/a.jpg#150,10,500,50",,person,ok,0.8\n'
    "south/é b.png,,Empty,ok,0.7\n"
    "south/d.jpg,,unknown,rejected,0.2\n"
    "south/e.jpg,,,truncated,\n"
    "south/f.jpg,,vehicle,ok,1\n"
)


def make(predictions: str = PREDICTIONS, deployments: str = DEPLOYMENTS) -> None:
    Path("out.csv").write_text(predictions, encoding="utf-8")
    Path("d.csv").write_text(deployments, encoding="utf-8")
    exif = Image.Exif()
    exif[0x0112] = 1  # upright; Pillow writes no block into a PNG that has only blocks in it
    exif.get_ifd(0x8769)[0x9003] = "2026:03:04 05:06:07"
    for folder in ("north", "south"):
        Path(folder).mkdir()
    for path in ("north/a.jpg", "south/d.jpg", "south/e.jpg", "south/é b.png"):
        Image.new("RGB", (200, 100)).save(path, exif=exif)
    exif.get_ifd(0x8769)[0x9011] = "-03:30"
    Image.new("RGB", (20, 10)).save("south/f.jpg", exif=exif)


def run(crnr: Runner, *more: str) -> Any:
    return crnr("export", "out.csv", "--to", "camtrap-dp", "--deployments", "d.csv", "-o", "new", *more)


def validate(folder: Path) -> dict[str, Any]:
    """Check a package against the tables above, the keys between them, and the properties of the profile."""
    package = json.loads((folder / "datapackage.json").read_text())
    resources = []
    for one in package["resources"]:
        assert one["profile"] == "tabular-data-resource"
        assert one["schema"] == f"{HOME}/{one['name']}-table-schema.json"
        fields = TABLES[one["name"]]
        foreign = [
            {"fields": [name], "reference": {"resource": other, "fields": [name]}}
            for name, other in KEYS.get(one["name"], [])
        ]
        schema = Schema.from_descriptor(
            {
                "fields": fields,
                "missingValues": [""],
                "primaryKey": [fields[0]["name"]],
                "foreignKeys": foreign,
            }
        )
        resources.append(
            Resource(
                name=one["name"],
                path=one["path"],
                schema=schema,
                encoding=one["encoding"],
                basepath=str(folder),
            )
        )
    assert [one.name for one in resources] == list(TABLES)
    report = Package(resources=resources, basepath=str(folder)).validate()
    assert report.valid, report.flatten(["title", "message"])
    assert package["profile"] == f"{HOME}/camtrap-dp-profile.json"
    assert package["created"].endswith("Z")
    assert all(one["title"] for one in package["contributors"])
    project = package["project"]
    assert isinstance(project["title"], str)
    assert project["samplingDesign"] in (
        *("simpleRandom", "systematicRandom", "clusteredRandom", "experimental", "targeted", "opportunistic"),
    )
    assert set(project["captureMethod"]) <= {"activityDetection", "timeLapse"}
    assert isinstance(project["individualAnimals"], bool)
    assert project["observationLevel"] == ["media"]
    names = {row["scientificName"] for row in read_rows(folder / "observations.csv")} - {""}
    assert {one["scientificName"] for one in package["taxonomic"]} == names
    return dict(package)


def test_a_package_follows_the_specification(crnr: Runner) -> None:
    make()
    outcome = run(crnr)
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.splitlines() == [
        "note: d.csv: left out columns that Camtrap DP does not have: notes",
        "note: datapackage.json has placeholders for contributors and project; give yours with --metadata, "
        "or edit it",
        "wrote new: 6 answers for 5 images",
    ]
    package = validate(Path("new"))
    assert package["temporal"] == {"start": "2026-01-01", "end": "2026-04-01"}
    assert package["spatial"]["bbox"] == [4.25, -1.0, 120.0, 52.5]
    assert package["spatial"]["coordinates"][0][0] == package["spatial"]["coordinates"][0][-1]
    media = {row["filePath"]: row for row in read_rows(Path("new/media.csv"))}
    assert {path: (row["deploymentID"], row["timestamp"]) for path, row in media.items()} == {
        "north/a.jpg": ("north", "2026-03-04T05:06:07+01:00"),
        "south/é b.png": ("south", "2026-03-04T05:06:07Z"),
        "south/d.jpg": ("south", "2026-03-04T05:06:07Z"),
        "south/e.jpg": ("south", "2026-03-04T05:06:07Z"),
        "south/f.jpg": ("south", "2026-03-04T05:06:07-03:30"),
    }
    observations = read_rows(Path("new/observations.csv"))
    kinds = ["animal", "human", "blank", "unknown", "unclassified", "vehicle"]
    assert [row["observationType"] for row in observations] == kinds
    boxes = [tuple(row[f"bbox{side}"] for side in ("X", "Y", "Width", "Height")) for row in observations[:2]]
    assert boxes == [("0", "0.25", "0.4", "0.3"), ("0.75", "0.1", "0.25", "0.5")]
    assert read_rows(Path("new/deployments.csv"))[0]["cameraModel"] == "Make, Model"


def test_metadata_of_the_author_is_kept(crnr: Runner) -> None:
    make()
    given = {
        "contributors": [{"title": "Ann", "role": "contact"}],
        "project": {"title": "P"},
        "name": "p",
        "spatial": 1,
    }
    Path("m.json").write_text(json.dumps(given))
    assert "placeholders" not in run(crnr, "--metadata", "m.json", "--url-prefix", "https://example.org/").err
    package = validate(Path("new"))
    assert (package["contributors"], package["name"]) == (given["contributors"], "p")
    assert package["project"]["title"] == "P"
    media = read_rows(Path("new/media.csv"))
    assert media[1]["filePath"] == "https://example.org/south/%C3%A9%20b.png"


def test_a_folder_column_and_a_timestamp_column_are_used(crnr: Runner) -> None:
    rows = "./north/none.jpg,,fox,ok,2026-03-05T01:02:03\nsouth/d.jpg,,fox,ok,\n"
    table = DEPLOYMENTS.replace("notes", "folder").replace(",x\n", ",./south/\n").replace(",,\n", ",,north\n")
    make(f"path,truth,label,status,timestamp\n{rows}", table)
    assert run(crnr).exit == 0
    validate(Path("new"))
    media = [
        (row["mediaID"], row["deploymentID"], row["timestamp"]) for row in read_rows(Path("new/media.csv"))
    ]
    assert media == [
        ("north/none.jpg", "south", "2026-03-05T01:02:03Z"),
        ("south/d.jpg", "north", "2026-03-04T05:06:07+01:00"),
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "latitude,",
            "lat,",
            "d.csv: no column latitude; a table of deployments has the columns deploymentID,",
        ),
        ("52.5", "95", "d.csv, line 2: latitude '95' is not a number from -90 to 90"),
        ("52.5", "nan", "d.csv, line 2: latitude 'nan' is not a number from -90 to 90"),
        (
            "+01:00",
            "",
            "d.csv, line 2: a date has no time zone; write it as 2026-01-31T12:00:00+01:00, or with Z",
        ),
        (
            "2026-03-01T00:00:00+01:00",
            "1.3.2026",
            "d.csv, line 2: deploymentStart '1.3.2026' is not a date such as",
        ),
        ("2026-03-01", "2027-03-01", "d.csv, line 2: deploymentEnd is before deploymentStart"),
        ("south", "north", "d.csv, line 3: the deployment 'north' is in the table twice"),
        ("south", "", "d.csv, line 3: deploymentID is empty; Camtrap DP requires it"),
    ],
)
def test_a_wrong_table_of_deployments_is_refused(crnr: Runner, before: str, after: str, message: str) -> None:
    make(deployments=DEPLOYMENTS.replace(before, after))
    outcome = run(crnr)
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err.startswith(f"error: {message}")
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/tmp/north/a.jpg", "Camtrap DP allows no path with .."),
        ("north/../north/a.jpg", "Camtrap DP allows no path with .."),
        ("elsewhere/a.jpg", "no folder in its path is a deploymentID; add a column folder"),
        ("north/a.xyz", "the media type is unknown"),
        ("north/plain.jpg", "has no capture date; add a column timestamp"),
        ("north/gone.jpg", "its capture date is unknown: no such file"),
    ],
)
def test_images_that_a_package_cannot_have_are_left_out(crnr: Runner, path: str, reason: str) -> None:
    make(f"path,truth,label\nsouth/d.jpg,,fox\n{path},,fox\n")
    Image.new("RGB", (3, 3)).save("north/plain.jpg")
    outcome = run(crnr, "--below", "/")
    assert outcome.exit == 3
    assert f"left out: {path}: {reason}" in outcome.err
    validate(Path("new"))
    assert [row["mediaID"] for row in read_rows(Path("new/media.csv"))] == ["south/d.jpg"]


def test_what_a_killed_run_left_is_removed(crnr: Runner) -> None:
    make()
    Path("new.crnr-part").mkdir()
    Path("new.crnr-part/media.csv").write_text("half")
    Path("new").mkdir()
    assert run(crnr).exit == 0
    validate(Path("new"))
    assert not Path("new.crnr-part").exists()


def test_a_folder_of_another_program_is_not_touched(crnr: Runner) -> None:
    make()
    Path("new.crnr-part").mkdir()
    Path("new.crnr-part/mine").write_text("mine")
    outcome = run(crnr)
    assert outcome.exit == 1
    assert outcome.err.endswith("new.crnr-part: is in the way, and contains other files; remove it\n")
    assert Path("new.crnr-part/mine").read_text() == "mine"
    assert not Path("new").exists()
