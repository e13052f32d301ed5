"""Box files: MegaDetector's JSON and CSVs, the items that they make of a source, and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crnr_cli.errors import DataError, UsageError
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.sources.base import InputOptions
from crnr_cli.sources.boxes import BoxOptions
from crnr_cli.sources.images import Images
from crnr_cli.sources.label_table import LabelOptions
from crnr_cli.sources.opening import fingerprint, open_source
from helpers.samples import make_features, noise

CATEGORIES = {"1": "animal", "2": "person", "3": "vehicle"}


def detection(*bbox: Any, category: str = "1", conf: float = 0.9) -> dict[str, Any]:
    return {"category": category, "conf": conf, "bbox": list(bbox)}


def write_json(path: Path, images: Any, **more: Any) -> Path:
    content = {"info": {"format_version": "1.5"}, "detection_categories": CATEGORIES, "images": images}
    path.write_text(json.dumps(content | more))
    return path


def entry(file: str, *detections: Any) -> dict[str, Any]:
    return {"file": file, "detections": list(detections)}


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["fox/a.png", "fox/b.png", "deer/c.png"]):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(number, (40, 20)).save(path)
    return tmp_path / "photos"


def items(names: list[str], path: Path, **options: Any) -> list[tuple[str, str, str]]:
    """Return name, class and status of every item."""
    source = open_source(names, InputOptions(boxes=BoxOptions(path, **options)))
    assert isinstance(source, Images)
    return [
        (file.path, file.folders[0] if file.folders else "", file.error.status if file.error else "ok")
        for file in source.files
    ]


def test_every_box_is_an_item_and_an_image_without_one_has_a_status() -> None:
    path = write_json(
        Path("detections.json"),
        [
            entry("fox/a.png", detection(0.1, 0.25, 0.5, 0.3), detection(0, 0, 1, 1)),
            entry("deer/c.png", detection(0.1, 0.1, 0.2, 0.2, conf=0.1), detection(0, 0, 1, 1, category="2")),
        ],
    )
    assert items(["photos"], path) == [
        ("photos/deer/c.png", "deer", "no_box"),
        ("photos/fox/a.png#0.1,0.25,0.5,0.3", "fox", "ok"),
        ("photos/fox/a.png#0.0,0.0,1.0,1.0", "fox", "ok"),
        ("photos/fox/b.png", "fox", "no_box"),
    ]
    assert items(["photos"], path, min_confidence=0.05)[0] == (
        "photos/deer/c.png#0.1,0.1,0.2,0.2",
        "deer",
        "ok",
    )
    assert items(["photos"], path, category="person")[0][0] == "photos/deer/c.png#0.0,0.0,1.0,1.0"
    assert len(items(["photos"], path, category="any", min_confidence=0.0)) == 5


@pytest.mark.parametrize(
    ("bbox", "name"),
    [
        ([1.5, 0, 0.1, 0.1], "#1.5,0.0,0.1,0.1"),
        ([0.1, 0.1, 0, 0.1], "#0.1,0.1,0.0,0.1"),
        ([0.1, 0.1, -0.5, 0.1], "#0.1,0.1,-0.5,0.1"),
        ([float("nan"), 0, 1, 1], "#nan,0.0,1.0,1.0"),
        ([0, 0, float("inf"), 1], "#0.0,0.0,inf,1.0"),
        ([0, 0, 10**400, 1], "#nan,nan,nan,nan"),
        ([0, 0, 1e300, 1], "#0.0,0.0,1e+300,1.0"),
        ([0, 0, "1", 1], "#nan,nan,nan,nan"),
        ([0, 0, True, 1], "#nan,nan,nan,nan"),
        ([0, 0, 1], "#nan,nan,nan,nan"),
        (None, "#nan,nan,nan,nan"),
    ],
)
def test_a_bad_box_costs_its_item_alone(bbox: Any, name: str) -> None:
    bad = {"category": "1", "conf": 0.9, "bbox": bbox}
    path = write_json(Path("d.json"), [entry("fox/a.png", bad, detection(0.5, 0.5, 0.6, 0.6))])
    assert items(["photos/fox/a.png"], path, root=Path("photos")) == [
        ("photos/fox/a.png" + name, "fox", "bad_box"),
        ("photos/fox/a.png#0.5,0.5,0.5,0.5", "fox", "ok"),  # clipped at the edge
    ]


def test_without_a_source_all_files_of_the_box_file_are_read() -> None:
    images = [
        entry("photos/fox/a.png", detection(0, 0, 1, 1)),
        entry("photos/gone.png", detection(0, 0, 1, 1), detection(0, 0, 0.5, 0.5)),
        {"file": "photos/fox/b.png", "detections": None, "failure": "Failure image open"},
        {"file": "photos/deer/c.png", "detections": None},
    ]
    path = write_json(Path("d.json"), images)
    assert items([], path) == [
        ("photos/fox/a.png#0.0,0.0,1.0,1.0", "fox", "ok"),
        ("photos/gone.png#0.0,0.0,1.0,1.0", "photos", "vanished"),
        ("photos/gone.png#0.0,0.0,0.5,0.5", "photos", "vanished"),
        ("photos/fox/b.png", "fox", "detector_failed"),
        ("photos/deer/c.png", "deer", "detector_failed"),
    ]
    in_folder = items(["photos"], path)
    assert ("photos/gone.png#0.0,0.0,1.0,1.0", "", "vanished") in in_folder  # missing in the source
    of_part = items(["photos/fox"], path)
    assert not any("gone" in name for name, _, _ in of_part)  # it would be elsewhere
    source = open_source(["photos/fox"], InputOptions(boxes=BoxOptions(path)))
    assert source.notes() == ["2 images of d.json are not in the source: photos/gone.png, photos/deer/c.png"]


@pytest.mark.parametrize(
    "spelling",
    ["fox/a.png", "./fox//a.png", "fox\\a.png", "../photos/fox/a.png", "{absolute}"],
)
def test_paths_of_other_systems_and_spellings_are_found(spelling: str, photos: Path) -> None:
    spelling = spelling.format(absolute=photos / "fox" / "a.png")
    path = write_json(
        Path("d.json"),
        [
            entry(spelling, detection(0, 0, 1, 1)),
            entry("fox/a.png", detection(0, 0, 1, 1), detection(0, 0, 1, 0.5)),
        ],
    )
    found = [name for name, _, status in items(["photos"], path) if status == "ok"]
    assert found == ["photos/fox/a.png#0.0,0.0,1.0,1.0", "photos/fox/a.png#0.0,0.0,1.0,0.5"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; give MegaDetector's JSON"),
        ("{", "d.json: not readable as JSON"),
        ("[]", "d.json: is not an object with `images`"),
        ("{}", "d.json: has no `detection_categories`"),
        ("[" * 100000, "d.json: is nested too deeply"),
        ('{"detection_categories": {"1": "animal"}}', "d.json: has no list `images`"),
        ('{"info": {"format_version": "2.0"}}', "has the format version '2.0', and crnr reads version 1"),
        (
            '{"detection_categories": {"1": "bird"}, "images": []}',
            "no category animal, only bird; choose one",
        ),
        ('{"detection_categories": {"1": "animal"}, "images": [3]}', "images[0]: has no text `file`"),
    ],
)
def test_other_files_are_refused_with_a_remedy(content: str, message: str) -> None:
    path = Path("d.json")
    path.write_text(content)
    if not content:
        path = path.rename("d.csv")
    with pytest.raises(DataError) as raised:
        items(["photos"], path)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "names no images; give MegaDetector's JSON"),
        (
            [entry("other.png", detection(0, 0, 1, 1))],
            "the first one was looked for at other.png; use --box-root",
        ),
        ([{"file": "fox/a.png", "detections": {}}], "images[0]: `detections` is not a list"),
        ([entry("fox/a.png", 3)], "images[0]: has a detection that is not an object"),
        ([entry("fox/a.png", detection(0, 0, 1, 1, category="9"))], "images[0]: has the category '9', but"),
        ([entry("fox/a.png", {"category": "1"})], "images[0]: has a detection without a number `conf`"),
        ([entry("", detection(0, 0, 1, 1))], "images[0]: the path is empty"),
        ([entry("a\0b", detection(0, 0, 1, 1))], "images[0]: 'a\\x00b' is not the name of a file"),
        ([entry("a\ud800b", detection(0, 0, 1, 1))], "images[0]: 'a\\ud800b' is not the name of a file"),
    ],
)
def test_entries_of_another_form_are_refused(images: Any, message: str) -> None:
    path = write_json(Path("d.json"), images)
    with pytest.raises(DataError) as raised:
        items(["photos"], path)
    assert message in str(raised.value)


def test_limits_of_size_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from crnr_cli.sources import boxes

    path = write_json(Path("d.json"), [entry("fox/a.png", *[detection(0, 0, 1, 1)] * 3)])
    monkeypatch.setattr(boxes, "_MOST_BOXES", 2)
    with pytest.raises(DataError, match="more than 2 boxes; choose a higher --min-confidence"):
        items(["photos"], path)
    monkeypatch.setattr(boxes, "_LARGEST_FILE", 10)
    with pytest.raises(DataError, match=r"d\.json: is larger than 10\.0 bytes; divide"):
        items(["photos"], path)
    with pytest.raises(DataError, match=r"gone\.json: no such file; give a box file with --boxes"):
        items(["photos"], Path("gone.json"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("path,x,y,width,height\nfox/a.png,0.1,0.25,0.5,0.3\n", ["#0.1,0.25,0.5,0.3"]),
        ("path,x,y,width,height\nfox/a.png,0,0,1,1\n", ["#0.0,0.0,1.0,1.0"]),
        ("path,x,y,width,height\nfox/a.png,0,0,1,1\nfox/a.png,4,5,6.4,7\n", ["#0,0,1,1", "#4,5,6,7"]),
        ("path,x,y,width,height,unit\nfox/a.png,0,0,1,1,pixels\n", ["#0,0,1,1"]),
        ("path;x;y;width;height\nfox/a.png;0,1;0,25;0,5;0,3\n", ["#0.1,0.25,0.5,0.3"]),
        (
            "height,width,y,x,path,confidence\n1,1,0,0,fox/a.png,0.1\n.5,1,0,0,fox/a.png,0.3\n",
            ["#0.0,0.0,1.0,0.5"],
        ),
    ],
)
def test_a_csv_has_relative_boxes_or_pixels(text: str, expected: list[str]) -> None:
    Path("photos/boxes.csv").write_text(text)
    found = [name for name, _, status in items(["photos/fox"], Path("photos/boxes.csv")) if status == "ok"]
    assert found == [f"photos/fox/a.png{name}" for name in expected]


def test_a_csv_may_have_labels_and_images_without_a_box() -> None:
    text = "path,x,y,width,height,label\nfox/a.png,0,0,.5,1,cub\nfox/a.png,.5,0,.5,1,\ndeer/c.png,,,,,\n"
    Path("photos/boxes.csv").write_text(text)
    assert items([], Path("photos/boxes.csv")) == [
        ("photos/fox/a.png#0.0,0.0,0.5,1.0", "cub", "ok"),
        ("photos/fox/a.png#0.5,0.0,0.5,1.0", "", "ok"),
        ("photos/deer/c.png", "deer", "no_box"),
    ]
    Path("labels.csv").write_text("path,label\nphotos/fox/a.png,animal\n")
    Path("photos/boxes.csv").write_text("path,x,y,width,height\nfox/a.png,0,0,.5,1\nfox/a.png,.5,0,.5,1\n")
    boxes = BoxOptions(Path("photos/boxes.csv"))
    source = open_source([], InputOptions(boxes=boxes, labels=LabelOptions(Path("labels.csv"))))
    assert source.class_names() == ["animal"]
    assert len(source) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,x,y,w,h\n", "no column width or height; give MegaDetector's JSON"),
        ("path,x,x,y,width,height\n", "has two columns x; remove one"),
        ("path,x,y,width,height\nfox/a.png,a,0,1,1\n", "line 2: 'a' is not a number"),
        ("path,x,y,width,height\nfox/a.png,1,0,1\n", "line 2: 4 fields, but the header has 5"),
        (
            "path,x,y,width,height,unit\nfox/a.png,1,0,1,1,miles\n",
            "the unit is 'miles'; write relative or pixels",
        ),
        ("path,x,y,width,height\n", "names no images"),
    ],
)
def test_bad_csvs_are_refused_by_line(text: str, message: str) -> None:
    Path("boxes.csv").write_text(text)
    with pytest.raises(DataError) as raised:
        items(["photos"], Path("boxes.csv"))
    assert message in str(raised.value)


def test_named_folders_keep_their_classes() -> None:
    path = write_json(
        Path("photos/d.json"),
        [
            entry("fox/a.png", detection(0, 0, 1, 1), detection(0, 0, 1, 0.5)),
            entry("fox/b.png", detection(0, 0, 1, 1)),
            entry("deer/c.png", detection(0, 0, 1, 1)),
        ],
    )
    source = open_source(
        ["photos/deer", "photos/fox"], InputOptions(boxes=BoxOptions(path))
    ).with_named_classes()
    assert isinstance(source, Images)
    assert [file.folders for file in source.files] == [("deer",), ("fox",), ("fox",), ("fox",)]
    assert source.possible_classes()["photos/fox/a.png#0.0,0.0,1.0,0.5"] == "fox"


def test_the_margin_changes_stamps_and_pixels() -> None:
    path = write_json(Path("photos/d.json"), [entry("fox/a.png", detection(0.25, 0.25, 0.5, 0.5))])
    seen, stamps, prints = [], set(), set()
    for margin in (0.0, 0.1, 0.2):
        source = open_source(["photos/fox/a.png"], InputOptions(boxes=BoxOptions(path), box_margin=margin))
        assert isinstance(source, Images)
        (size,) = source.read_sizes(10**6, DecoderPool(1), lambda *_: None)
        seen.append(size)
        stamps.add(source.files[0].stamp)
        prints.add(fingerprint(source))
        (batch,) = (
            source.part((0, 1))
            .open(InputOptions().keys)
            .read_batches([(0, 1)], PixelRequest((4, 4)), DecoderPool(1))
        )
        assert batch.errors == [None]
    assert seen == [(20, 10), (24, 12), (28, 14)]
    assert len(stamps) == len(prints) == 3


def test_boxes_do_not_apply_to_feature_files() -> None:
    make_features(Path("f.npz"))
    path = write_json(Path("d.json"), [entry("fox/a.png")])
    with pytest.raises(UsageError, match=r"--boxes applies to images, but f\.npz"):
        open_source(["f.npz"], InputOptions(boxes=BoxOptions(path)))


def test_other_files_of_a_folder_are_no_images_without_a_box() -> None:
    """Sidecars are not listed, and notes next to the photographs are no images."""
    Path("photos/fox/a.png.xmp").write_text("<x/>")
    Path("photos/notes.txt").write_text("rain")
    path = write_json(Path("detections.json"), [entry("fox/a.png", detection(0, 0, 1, 1))])
    statuses = {name: status for name, _, status in items(["photos"], path)}
    assert statuses == {
        "photos/deer/c.png": "no_box",
        "photos/fox/a.png#0.0,0.0,1.0,1.0": "ok",
        "photos/fox/b.png": "no_box",
        "photos/notes.txt": "not_image",
    }


def test_pixels_in_place_of_shares_are_no_boxes() -> None:
    """Cut off at the edge of the image, such a box would be the whole image."""
    path = write_json(Path("detections.json"), [entry("fox/a.png", detection(0, 0, 30, 12))])
    source = open_source(["photos"], InputOptions(boxes=BoxOptions(path)))
    assert isinstance(source, Images)
    (error,) = (file.error for file in source.files if "#" in file.path)
    assert str(error) == "the numbers are too large for shares of the image; are they pixels?"


def test_shares_and_pixels_in_one_table_need_a_unit() -> None:
    """In pixels, the first box would be one pixel."""
    path = Path("boxes.csv")
    path.write_text("path,x,y,width,height\nfox/a.png,0.5,0.1,0.2,0.3\nfox/b.png,8,2,8,7\n")
    with pytest.raises(
        DataError, match="line 2: the numbers are shares, but other boxes have numbers larger than 1"
    ):
        items(["photos"], path)
    assert items(["photos"], path, unit="pixels")[-1] == ("photos/fox/b.png#8,2,8,7", "fox", "ok")
    path.write_text("path,x,y,width,height,unit\nfox/a.png,0.5,0.1,0.2,0.3,relative\nfox/b.png,8,2,8,7,\n")
    assert [name for name, _, _ in items(["photos"], path)][1:] == [
        "photos/fox/a.png#0.5,0.1,0.2,0.3",
        "photos/fox/b.png#8,2,8,7",
    ]


@pytest.mark.parametrize(
    ("file", "names", "message"),
    [
        (
            "cam/a.png",
            [],
            "none of its 1 image exists; the first one was looked for at cam/a.png; use --box-root",
        ),
        ("C:\\trap\\a.png", ["photos"], "the first one is C:.trap.a.png, a path from another place"),
        ("/mnt/trap/a.png", ["photos"], "run MegaDetector with --output_relative_filenames"),
    ],
)
def test_paths_that_lead_nowhere_have_a_remedy(file: str, names: list[str], message: str) -> None:
    path = write_json(Path("detections.json"), [entry(file, detection(0, 0, 1, 1))])
    with pytest.raises(DataError, match=message):
        items(names, path)


def test_an_empty_file_is_called_empty() -> None:
    for name in ("empty.json", "empty.csv"):
        Path(name).touch()
        with pytest.raises(DataError, match=f"{name}: is empty; give MegaDetector's JSON"):
            items(["photos"], Path(name))
