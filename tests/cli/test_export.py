"""crnr export: exit codes, stdout and stderr, and files that other programs' formats demand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli import __version__
from crnr_cli.exports.base import BoxedName, Rectangle, split_box
from helpers.runner import Outcome, Runner, read_rows

PROGRAM = f"crnr {__version__}"
HEADER = ("path", "truth", "label", "status", "probability", "corrected")
ROWS = (
    ("q/a.jpg#0.1,0.25,0.5,0.3", "", "fox", "ok", "0.9", ""),
    ("q/a.jpg#20,10,40,50", "", "wolf", "ok", "0.8", "bear"),
    ("q/b.jpg", "", "fox", "ok", "0.7", ""),
    ("q/c.jpg", "", "unknown", "rejected", "0.2", ""),
    ("q/d.jpg", "", "", "truncated", "", ""),
    ("q/e.jpg", "", "blank", "ok", "0.99", ""),
    ("q/README.txt", "", "", "not_image", "", ""),
)


def write_table(rows: Any = ROWS, header: Any = HEADER) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    Path("out.csv").write_text(text.getvalue())


def make_photo(
    path: str, date: str = "2026:03:04 05:06:07", zone: str = "", size: tuple[int, int] = (200, 100)
) -> None:
    exif = Image.Exif()
    if date:
        exif.get_ifd(0x8769)[0x9003] = date
    if zone:
        exif.get_ifd(0x8769)[0x9011] = zone
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path, exif=exif)


def make(rows: Any = ROWS, header: Any = HEADER) -> None:
    write_table(rows, header)
    for name in "abce":
        make_photo(f"q/{name}.jpg")
    Path("q/d.jpg").write_bytes(b"\xff\xd8")


def export(crnr: Runner, to: str, *more: object) -> Any:
    outcome = crnr("export", "out.csv", "--to", to, "-o", "new.json", *more)
    assert outcome == Outcome(0, "", "wrote new.json: 6 answers for 5 images\n")
    return json.loads(Path("new.json").read_text())


def test_megadetector_has_boxes_and_whole_images(crnr: Runner) -> None:
    make()
    animal = {"category": "1", "conf": 1.0}
    whole = [0.0, 0.0, 1.0, 1.0]
    assert export(crnr, "megadetector") == {
        "info": {"format_version": "1.6", "classifier": PROGRAM},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "classification_categories": {"0": "fox", "1": "bear"},
        "images": [
            {
                "file": "q/a.jpg",
                "detections": [
                    {**animal, "bbox": [0.1, 0.25, 0.5, 0.3], "classifications": [["0", 0.9]]},
                    {**animal, "bbox": [0.1, 0.1, 0.2, 0.5], "classifications": [["1", 1.0]]},
                ],
            },
            {"file": "q/b.jpg", "detections": [{**animal, "bbox": whole, "classifications": [["0", 0.7]]}]},
            {"file": "q/c.jpg", "detections": [{**animal, "bbox": whole}]},
            {"file": "q/d.jpg", "detections": None, "failure": "truncated"},
            {"file": "q/e.jpg", "detections": []},
        ],
    }


DETECTIONS: dict[str, Any] = {
    "info": {"format_version": "1.5", "detector": "md_v5a.0.0.pt", "own": {"deep": [1, 2.50, None]}},
    "detection_categories": {"7": "animal", "9": "boat"},
    "classification_categories": {"4": "bear", "5": "elk"},
    "unknown key": True,
    "images": [
        {
            "file": "a.jpg",
            "own": "kept",
            "detections": [
                {"category": "9", "conf": 0.011, "bbox": [0.5, 0.5, 0.1, 0.1], "own": 1},
                {
                    "category": "7",
                    "conf": 0.95,
                    "bbox": [0.10001, 0.25, 0.5, 0.3],
                    "classifications": [["5", 0.3]],
                },
                {"category": "7", "conf": 0.85, "bbox": [0.1, 0.1, 0.2, 0.5]},
            ],
        },
        {"file": "another.jpg", "failure": "Failure image access", "detections": None},
        {"file": "video.mp4", "frame_rate": 20, "frames_processed": [0, 20], "detections": []},
    ],
}


def test_the_detectors_file_keeps_everything(crnr: Runner) -> None:
    make(ROWS[:2])
    Path("md.json").write_text(json.dumps(DETECTIONS))
    outcome = crnr("export", "out.csv", "--to", "megadetector", "--boxes", "md.json", "-o", "new.json")
    assert outcome == Outcome(0, "", "wrote new.json: 2 answers for 1 image\n")
    expected = json.loads(json.dumps(DETECTIONS))
    expected["info"]["classifier"] = PROGRAM
    expected["classification_categories"]["6"] = "fox"
    expected["images"][0]["detections"][1]["classifications"] = [["6", 0.9]]
    expected["images"][0]["detections"][2]["classifications"] = [["4", 1.0]]
    assert json.loads(Path("new.json").read_text()) == expected


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(more=JSON, in_image=JSON, in_detection=JSON, confidence=st.floats(0, 1))
def test_unknown_fields_of_any_kind_come_back(
    tmp_path_factory: pytest.TempPathFactory, more: Any, in_image: Any, in_detection: Any, confidence: float
) -> None:
    here = tmp_path_factory.mktemp("here")
    document = json.loads(json.dumps(DETECTIONS)) | {"more": more}
    document["images"][1]["more"] = in_image
    document["images"][0]["detections"][0] |= {"more": in_detection, "conf": confidence}
    (here / "md.json").write_text(json.dumps(document))
    (here / "out.csv").write_text("path,truth,label,status,probability\nz.jpg,,unknown,rejected,0.1\n")
    done = Runner(here)("export", "out.csv", "--to", "megadetector", "--boxes", "md.json", "-o", "new.json")
    assert done.exit == 0
    found = json.loads((here / "new.json").read_text())
    assert found["images"].pop()["file"] == "z.jpg"
    assert found == document


def test_label_studio_has_rectangles_and_choices(crnr: Runner) -> None:
    make()
    tasks = export(crnr, "label-studio", "--url-prefix", "/data/local-files/?d=")
    assert [task["data"]["image"] for task in tasks] == [
        f"/data/local-files/?d=q/{name}.jpg" for name in "abcde"
    ]
    rectangle = {"from_name": "label", "to_name": "image", "type": "rectanglelabels"}
    size = {"original_width": 200, "original_height": 100}
    assert tasks[0]["predictions"] == [
        {
            "model_version": PROGRAM,
            "score": 0.9,
            "result": [
                {
                    **{"id": "crnr-1", **rectangle, **size, "score": 0.9},
                    "value": {
                        **{"x": 10, "y": 25, "width": 50, "height": 30},
                        **{"rotation": 0, "rectanglelabels": ["fox"]},
                    },
                },
                {
                    **{"id": "crnr-2", **rectangle, **size, "score": 1.0},
                    "value": {
                        **{"x": 10, "y": 10, "width": 20, "height": 50},
                        **{"rotation": 0, "rectanglelabels": ["bear"]},
                    },
                },
            ],
        }
    ]
    choice = {"id": "crnr-1", "from_name": "choice", "to_name": "image", "type": "choices"}
    (prediction,) = tasks[1]["predictions"]
    assert prediction["result"] == [{**choice, "value": {"choices": ["fox"]}, "score": 0.7}]
    assert [task["predictions"] for task in tasks[2:4]] == [[], []]


def test_coco_has_pixels(crnr: Runner) -> None:
    make()
    document = export(crnr, "coco")
    size = {"width": 200, "height": 100}
    assert document["images"] == [
        *({"id": number, "file_name": f"q/{name}.jpg", **size} for number, name in enumerate("abc", 1)),
        {"id": 4, "file_name": "q/d.jpg"},
        {"id": 5, "file_name": "q/e.jpg", **size},
    ]
    assert document["categories"] == [
        {"id": 1, "name": "bear"},
        {"id": 2, "name": "blank"},
        {"id": 3, "name": "fox"},
    ]
    boxed = {"image_id": 1, "iscrowd": 0}
    assert document["annotations"] == [
        {"id": 1, **boxed, "category_id": 3, "bbox": [20, 25, 100, 30], "area": 3000, "score": 0.9},
        {"id": 2, **boxed, "category_id": 1, "bbox": [20, 10, 40, 50], "area": 2000, "score": 1.0},
        {"id": 3, "image_id": 2, "category_id": 3, "score": 0.7},
        {"id": 4, "image_id": 5, "category_id": 2, "score": 0.99},
    ]


def test_json_lines_have_the_same_columns(crnr: Runner) -> None:
    make()
    expected = export(crnr, "coco")
    lines = [
        json.dumps(dict(zip(HEADER, row, strict=True)) | {"probability": float(row[4] or 0)}) for row in ROWS
    ]
    Path("out.csv").write_text("\n".join(lines))
    assert export(crnr, "coco") == expected


def test_corrections_take_precedence_over_labels(crnr: Runner) -> None:
    make(ROWS[:3])
    Path("corrections.csv").write_text(
        'path,label,corrected,when\nq/b.jpg,fox,unknown,\n"q/a.jpg#0.1,0.25,0.5,0.3",fox,elk,\n'
    )
    outcome = crnr("export", "out.csv", "--to", "coco", "-o", "new.json", "--corrections", "corrections.csv")
    assert outcome == Outcome(0, "", "wrote new.json: 3 answers for 2 images\n")
    document = json.loads(Path("new.json").read_text())
    names = {one["id"]: one["name"] for one in document["categories"]}
    found = [(names[one["category_id"]], one["score"]) for one in document["annotations"]]
    assert found == [("elk", 1.0), ("bear", 1.0)]


def test_answers_that_cannot_be_exported_are_left_out(crnr: Runner) -> None:
    make([*ROWS[:3], ROWS[2], ("q/gone.jpg#1,2,3,4", "", "fox", "ok", "0.9", "")])
    outcome = crnr("export", "out.csv", "--to", "coco", "-o", "new.json")
    assert outcome == Outcome(
        3,
        "",
        "left out: q/b.jpg: the predictions file names it twice\nwrote new.json: 4 answers for 3 images\n",
    )
    outcome = crnr("export", "out.csv", "--to", "megadetector", "-o", "new.json", "--json", "-q")
    assert (outcome.exit, outcome.err) == (3, "")
    assert json.loads(outcome.out) == {
        "output": "new.json",
        "to": "megadetector",
        "images": 3,
        "answers": 3,
        "passed_over": 0,
        "left_out": [
            {"name": "q/b.jpg", "reason": "the predictions file names it twice"},
            {"name": "q/gone.jpg#1,2,3,4", "reason": "its size is unknown: no such file"},
        ],
        "notes": [],
    }
    Path("new.json").unlink()
    outcome = crnr("export", "out.csv", "--to", "megadetector", "-o", "new.json", "--strict")
    assert outcome == Outcome(
        1,
        "",
        "error: q/b.jpg: the predictions file names it twice; stopped: 2 of 5 answers in out.csv have to be "
        "left out, and no failure is allowed (--strict)\n",
    )
    assert not Path("new.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--to coco -o out.csv", 1, "out.csv: is an input of this run; write to another file"),
        ("--to coco -o q/a.jpg", 1, "q/a.jpg: is an input of this run; write to another file"),
        ("--to coco -o q", 1, "q: is a folder; give a file name"),
        ("--to coco -o new --boxes out.csv", 2, "--boxes has no effect on --to coco; leave it out"),
        ("--to camtrap-dp -o new", 2, "--to camtrap-dp needs --deployments"),
        (
            "--to camtrap-dp -o q --deployments d.csv",
            1,
            "q: is a folder with content; choose a new one, or remove it first",
        ),
        (
            "--to camtrap-dp -o out.csv --deployments d.csv",
            1,
            "out.csv: is a file; --output is a new folder for this format",
        ),
        (
            "--to camtrap-dp -o no/new --deployments d.csv",
            1,
            "no/new: the folder no does not exist; create it first",
        ),
    ],
)
def test_wrong_arguments_are_refused(crnr: Runner, arguments: str, code: int, message: str) -> None:
    make()
    before = Path("out.csv").read_bytes()
    assert crnr("export", "out.csv", *arguments.split()) == Outcome(code, "", f"error: {message}\n")
    assert Path("out.csv").read_bytes() == before
    assert crnr.files() == {"out.csv", "q"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "path,truth,label\nx.npz#3,,cat\n",
            "out.csv: row 1: x.npz#3 is a row of a feature file; classify images instead",
        ),
        ("path,truth,label\n,,cat\n", "out.csv: row 1 has no path; was it written by `crnr classify`?"),
        ("path,truth,label\n", "out.csv: has no rows"),
        (
            "path,truth,label\na.jpg,,cat\n",
            "a.jpg: has no probability, which MegaDetector's format requires; classify with a gallery that "
            "was built with --calibrate",
        ),
    ],
)
def test_predictions_that_cannot_be_used_are_refused(crnr: Runner, text: str, message: str) -> None:
    Path("out.csv").write_text(text)
    outcome = crnr("export", "out.csv", "--to", "megadetector", "-o", "new.json")
    assert outcome == Outcome(1, "", f"error: {message}\n")
    assert crnr.files() == {"out.csv"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "not a JSON object"),
        ("{}", "has no list images"),
        ('{"images": [{}]}', "image 1 has no text file"),
        (
            '{"images": [{"file": "a", "detections": [{}]}]}',
            "image 1 has detections without a bbox of four numbers",
        ),
        ('{"images": [], "info": 1}', "info is not an object"),
        (
            '{"images": [], "detection_categories": {"1": 1}}',
            "detection_categories is not an object of texts",
        ),
    ],
)
def test_a_file_that_is_not_the_detectors_is_refused(crnr: Runner, text: str, problem: str) -> None:
    write_table()
    Path("md.json").write_text(text)
    outcome = crnr("export", "out.csv", "--to", "megadetector", "--boxes", "md.json", "-o", "new.json")
    assert outcome == Outcome(1, "", f"error: md.json: {problem}; give the JSON that MegaDetector wrote\n")


@pytest.mark.parametrize("text", ['{"images": NaN}', '{"images": 1e999}', "{", "[" * 100_000])
def test_json_that_cannot_be_read_is_refused(crnr: Runner, text: str) -> None:
    write_table()
    Path("md.json").write_text(text)
    outcome = crnr("export", "out.csv", "--to", "megadetector", "--boxes", "md.json", "-o", "new.json")
    assert outcome.exit == 1
    assert outcome.err.startswith("error: md.json: not readable as JSON")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jpg", BoxedName("a.jpg")),
        ("a.jpg#0.1,0.25,0.5,0.3", BoxedName("a.jpg", Rectangle(0.1, 0.25, 0.5, 0.3))),
        ("a.jpg#0.0,0.0,1.0,1.0", BoxedName("a.jpg", Rectangle(0, 0, 1, 1))),
        ("a#b.jpg#1,2,30,40", BoxedName("a#b.jpg", Rectangle(1, 2, 30, 40), True)),
        ("a#1.jpg", BoxedName("a#1.jpg")),
        ("a.jpg#1,2,3", BoxedName("a.jpg#1,2,3")),
        ("#1,2,3,4", BoxedName("#1,2,3,4")),
    ],
)
def test_names_are_divided(name: str, expected: BoxedName) -> None:
    assert split_box(name) == expected


@given(st.text(min_size=1), st.tuples(*[st.integers(0, 10_000)] * 4))
def test_every_relative_box_comes_back(image: str, box: tuple[int, int, int, int]) -> None:
    shares = [value / 10_000 for value in box]
    assert split_box(f"{image}#{','.join(map('{:.4f}'.format, shares))}") == BoxedName(
        image, Rectangle(*shares)
    )


def test_a_whole_package_of_a_camera_trap(crnr: Runner) -> None:
    """With the rows by hand; tests/exports checks packages against the specification."""
    make()
    Path("d.csv").write_text(
        "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\n"
        "dep1,52.1,4.3,2026-03-01T00:00:00+01:00,2026-04-01T00:00:00+02:00\n"
    )
    arguments = ("export", "out.csv", "--to", "camtrap-dp", "--deployments", "d.csv", "-o", "new")
    assert crnr(*arguments) == Outcome(
        3,
        "",
        "note: datapackage.json has placeholders for contributors and project; give yours with --metadata, "
        "or edit it\n"
        "left out: q/d.jpg: its capture date is unknown: not an image in a supported format\n"
        "wrote new: 5 answers for 5 images\n",
    )
    assert {path.name for path in Path("new").iterdir()} == {
        *("deployments.csv", "media.csv", "observations.csv", "datapackage.json")
    }
    rows = read_rows(Path("new/observations.csv"))
    wanted = (
        "observationID",
        "eventStart",
        "observationType",
        "scientificName",
        "bboxX",
        "classificationMethod",
    )
    assert [tuple(row[name] for name in (*wanted, "classificationProbability")) for row in rows] == [
        ("q/a.jpg#0.1,0.25,0.5,0.3", "2026-03-04T05:06:07+01:00", "animal", "fox", "0.1", "machine", "0.9"),
        ("q/a.jpg#20,10,40,50", "2026-03-04T05:06:07+01:00", "animal", "bear", "0.1", "human", ""),
        ("q/b.jpg", "2026-03-04T05:06:07+01:00", "animal", "fox", "", "machine", "0.7"),
        ("q/c.jpg", "2026-03-04T05:06:07+01:00", "unknown", "", "", "machine", ""),
        ("q/e.jpg", "2026-03-04T05:06:07+01:00", "blank", "", "", "machine", "0.99"),
    ]
    again = crnr(*arguments)
    assert again.err == "error: new: is a folder with content; choose a new one, or remove it first\n"
