"""--boxes: every command that reads images, or their names, with regions of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.runner import Outcome, Runner, assert_same_rows, read_rows, rows
from helpers.samples import draw_image, noise
from helpers.templates import Templates

GALLERY = {"fox": 0, "deer": 1}


def draw_scene(path: Path, kinds: list[str], first: int) -> dict[str, Any]:
    """Draw animals of 20 x 20 pixels next to each other on noise, and return MegaDetector's entry."""
    scene = noise(first, (120, 60)).convert("RGB")
    detections = []
    for number, kind in enumerate(kinds):
        x, y = 5 + 30 * number, 10 + 2 * number
        scene.paste(draw_image(GALLERY[kind], first + number, (20, 20)).convert("RGB"), (x, y))
        bbox = [x / 120, y / 60, 20 / 120, 20 / 60]
        detections.append({"category": "1", "conf": 0.9, "bbox": bbox})
    path.parent.mkdir(parents=True, exist_ok=True)
    scene.save(path)
    return {"file": str(path), "detections": detections}


def write_json(path: Path, images: list[dict[str, Any]]) -> None:
    content = {"info": {"format_version": "1.6"}, "detection_categories": {"1": "animal"}, "images": images}
    path.write_text(json.dumps(content))


def make_scenes(crnr: Runner) -> None:
    examples = [
        draw_scene(Path(f"g/{kind}/{i}.png"), [kind], 10 * i + GALLERY[kind])
        for kind in GALLERY
        for i in range(4)
    ]
    write_json(Path("g.json"), examples)
    queries = [
        draw_scene(Path("q/0.png"), ["fox", "deer"], 100),
        draw_scene(Path("q/1.png"), ["deer", "deer"], 200),
        draw_scene(Path("q/2.png"), [], 300),
    ]
    write_json(Path("q.json"), queries)
    built = crnr("build", "g", "--boxes", "g.json", "--extractor", "pixels", "-q")
    assert built == Outcome(0, "", "")


@pytest.fixture
def scenes(crnr: Runner, templates: Templates) -> list[str]:
    """Return the names of all queries, of a gallery in gallery.h5."""
    templates.copy(make_scenes, crnr.here)
    return [
        "q/0.png#0.0417,0.1667,0.1667,0.3333",
        "q/0.png#0.2917,0.2,0.1667,0.3333",
        "q/1.png#0.0417,0.1667,0.1667,0.3333",
        "q/1.png#0.2917,0.2,0.1667,0.3333",
        "q/2.png",
    ]


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5])
def test_boxes_are_classified_like_crops_saved_as_files(
    crnr: Runner, margin: float, monkeypatch: Any
) -> None:
    """Property: the boxes equal the same crops of the upright images, saved as PNG."""
    monkeypatch.chdir(crnr.here)
    random = np.random.default_rng(int(margin * 10))
    table = ["path,x,y,width,height,label"]
    for number in range(12):
        label = "ab"[number % 2]
        image = noise(number, (60, 50)).convert("RGB")
        folder = Path("photos") / label
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{number}.png")
        for _ in range(2):
            x, y = random.integers(0, 40, 2).tolist()
            width, height = random.integers(4, 20, 2).tolist()
            table.append(f"photos/{label}/{number}.png,{x},{y},{width},{height},{label}")
            name = f"{label}/{number:02}-{x},{y}.png"
            # Python rounds halves to even numbers, as the names of pixels are whole.
            edges = (
                max(0, round(x - margin * width)),
                max(0, round(y - margin * height)),
                min(60, round(x + width + margin * width)),
                min(50, round(y + height + margin * height)),
            )
            Path("crops", label).mkdir(parents=True, exist_ok=True)
            image.crop(edges).save(Path("crops") / name)
    Path("boxes.csv").write_text("\n".join(table) + "\n")
    given = ("--boxes", "boxes.csv", "--box-margin", str(margin))
    assert crnr("build", *given, "-o", "boxes.h5", "-q").exit == 0
    assert crnr("build", "crops", "-o", "crops.h5", "-q").exit == 0
    assert crnr("classify", *given, "-g", "boxes.h5", "-o", "boxes.out.csv", "-q").exit == 0
    assert crnr("classify", "crops", "-g", "crops.h5", "-o", "crops.out.csv", "-q").exit == 0

    def key(row: dict[str, str]) -> tuple[str, str]:
        return row["truth"], row["residual"]

    found, expected = (read_rows(Path(name)) for name in ("boxes.out.csv", "crops.out.csv"))
    assert len(found) == len(expected) == 24
    found, expected = sorted(found, key=key), sorted(expected, key=key)
    for row in found + expected:
        del row["path"]
    assert_same_rows(found, expected)


def test_classify_writes_a_row_per_box(crnr: Runner, scenes: list[str]) -> None:
    outcome = crnr("classify", "q", "--boxes", "q.json")
    assert outcome.exit == 0
    assert outcome.err == "labelled 4 of 5 queries\nwithout a box: 1 image\n"
    found = rows(outcome.out)
    assert [row["path"] for row in found] == scenes
    assert [row["label"] for row in found] == ["fox", "deer", "deer", "deer", ""]
    assert [row["status"] for row in found] == ["ok"] * 4 + ["no_box"]
    same = crnr("classify", "-", stdin="\n".join(scenes[:4]))
    assert_same_rows(rows(same.out), found[:4])


def test_a_night_without_animals_is_no_failure(crnr: Runner, scenes: list[str]) -> None:
    write_json(Path("none.json"), [{"file": "q/2.png", "detections": []}])
    outcome = crnr("classify", "q/2.png", "--boxes", "none.json", "--strict")
    assert outcome.exit == 0
    assert outcome.err == "labelled 0 of 1 query\nwithout a box: 1 image\n"


def test_explain_and_review_take_regions(crnr: Runner, scenes: list[str]) -> None:
    explained = crnr("explain", scenes[0], "--json")
    assert json.loads(explained.out)["query"] == scenes[0]
    several = crnr("explain", "q/0.png", "--boxes", "q.json")
    assert several == Outcome(2, "", f"error: q/0.png: explain takes one image, such as {scenes[0]}\n")
    assert crnr("classify", "q", "--boxes", "q.json", "-o", "out.csv").exit == 0
    reviewed = crnr("review", "out.csv")
    assert reviewed.exit == 0
    assert "not shown" not in reviewed.err
    page = Path("review.html").read_text()
    assert 4 + 4 <= page.count("data:image/png") <= 4 + 8  # queries, and at least two examples per class
    assert crnr("explain", scenes[1], "-o", "why.html").exit == 0
    assert "data:image/" in Path("why.html").read_text()


def test_corrections_add_regions_and_audit_reads_them(crnr: Runner, scenes: list[str]) -> None:
    lines = ["path,label,corrected,when", f'"{scenes[0]}",deer,fox,', f'"{scenes[1]}",deer,deer,']
    Path("corrections.csv").write_text("\n".join(lines) + "\n")
    added = crnr("add", "gallery.h5", "--corrections", "corrections.csv", "--json")
    assert added.exit == 0
    assert json.loads(added.out)["n_samples"] == 10
    listed = rows(crnr("info", "gallery.h5", "--list-examples").out)
    assert {row["sample"]: row["class"] for row in listed}[scenes[0]] == "fox"
    audited = crnr("audit", "gallery.h5")
    assert audited.exit == 0
    assert "note" not in audited.err  # all images were found


def test_the_same_boxes_are_not_read_again(crnr: Runner, scenes: list[str]) -> None:
    updated = crnr("build", "g", "--boxes", "g.json", "--update")
    assert "0 added, 0 changed, 0 removed, 8 unchanged" in updated.err
    verified = crnr("verify", "gallery.h5", "--source", "g", "--boxes", "g.json")
    assert verified.exit == 0
    extracted = ("extract", "g", "--boxes", "g.json", "-o", "f.h5", "--extractor", "pixels")
    assert crnr(*extracted).exit == 0
    again = crnr("extract", "g", "--boxes", "g.json", "-o", "f.h5", "--update", "--json")
    assert {name: json.loads(again.out)[name] for name in ("added", "changed", "n_samples")} == {
        "added": 0,
        "changed": 0,
        "n_samples": 8,
    }
    other = crnr(
        "extract", "g", "--boxes", "g.json", "--box-margin", "0.3", "-o", "f.h5", "--update", "--json"
    )
    assert json.loads(other.out)["changed"] == 8


def test_sort_puts_an_image_into_one_folder(crnr: Runner, scenes: list[str]) -> None:
    assert crnr("classify", "q", "--boxes", "q.json", "-o", "out.csv").exit == 0
    outcome = crnr("sort", "out.csv", "sorted", "--how", "move")
    assert outcome.exit == 0
    assert outcome.err.startswith(
        "note: not touched, because not named like images or without a box: 1 file\n"
        "note: 1 image with boxes of several labels: each goes to the folder of its surest box\n"
        "sorted: 2 files moved into "
    )
    surest = max(read_rows(Path("out.csv"))[:2], key=lambda row: float(row["margin"]))
    assert Path("sorted", surest["label"], "0.png").exists()
    assert Path("sorted/deer/1.png").exists()
    again = crnr("sort", "out.csv", "sorted", "--how", "move")
    assert "no files to place, 2 are already there" in again.err


def test_options_of_boxes_need_boxes(crnr: Runner) -> None:
    for given in (
        ["--min-confidence", "0.3"],
        ["--category", "any"],
        ["--box-root", "q"],
        ["--box-unit", "pixels"],
    ):
        outcome = crnr("classify", "q", *given)
        message = f"error: {given[0]} is for a file of boxes; name it with --boxes\n"
        assert outcome == Outcome(2, "", message)


def test_a_box_file_is_no_output(crnr: Runner, scenes: list[str]) -> None:
    outcome = crnr("classify", "q", "--boxes", "q.json", "-o", "q.json", "--format", "csv")
    assert outcome == Outcome(1, "", "error: q.json: is an input of this run; write to another file\n")
    with Image.open("q/0.png") as image:
        image.load()


def test_evaluate_scores_boxes_by_their_labels(crnr: Runner, scenes: list[str]) -> None:
    """A source is not needed; an image without a box is no unrelated file."""
    lines = ["path,x,y,width,height,label", "q/2.png,,,,,"]
    for name, label in zip(scenes[:4], ("fox", "deer", "deer", "fox"), strict=True):
        lines.append(f"{name.replace('#', ',')},{label}")
    Path("checked.csv").write_text("\n".join(lines) + "\n")
    alone = crnr("evaluate", "--boxes", "checked.csv")
    assert alone.exit == 0
    assert "3 of 4 correct" in alone.out
    assert "without a box  1" in " ".join(alone.out.split()).replace("box 1", "box  1")
    assert "neither images" not in alone.out
    assert crnr("evaluate", "q", "--boxes", "checked.csv").out == alone.out
    assert json.loads(crnr("evaluate", "--boxes", "checked.csv", "--json").out)["passed_over"] == 1
    lines = ["path,x,y,width,height", "q/2.png,,,,"]
    Path("none.csv").write_text("\n".join(lines) + "\n")
    assert crnr("evaluate", "--boxes", "none.csv").err.startswith(
        "error: none.csv: no query has a true class"
    )
    nothing = crnr("evaluate")
    assert (nothing.exit, nothing.err.partition(",")[0]) == (2, "error: missing argument: SOURCE...")


def test_images_without_a_box_are_exported(crnr: Runner, scenes: list[str]) -> None:
    """A camera trap's empty photographs count: without them, no rate of detections can be computed."""
    assert crnr("classify", "q", "--boxes", "q.json", "-o", "out.csv").exit == 0
    table = "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\n"
    day = "2026-03-01T00:00:00Z"
    Path("deployments.csv").write_text(f"{table}q,50,4,{day},{day}\n")
    dated = [
        f"{line},{'timestamp' if not i else day}"
        for i, line in enumerate(Path("out.csv").read_text().split())
    ]
    Path("dated.csv").write_text("\n".join(dated) + "\n")
    to_package = ("--to", "camtrap-dp", "--deployments", "deployments.csv", "-o", "package")
    exported = crnr("export", "dated.csv", *to_package)
    assert (exported.exit, exported.err.splitlines()[-1]) == (0, "wrote package: 5 answers for 3 images")
    assert [row["mediaID"] for row in read_rows(Path("package/media.csv"))] == [
        "q/0.png",
        "q/1.png",
        "q/2.png",
    ]
    blank = read_rows(Path("package/observations.csv"))[-1]
    assert (blank["mediaID"], blank["observationType"], blank["bboxX"]) == ("q/2.png", "blank", "")
    assert crnr("export", "out.csv", "--to", "coco", "-o", "coco.json").exit == 0
    coco = json.loads(Path("coco.json").read_text())
    assert (len(coco["images"]), len(coco["annotations"])) == (3, 4)
    tagged = crnr("tag", "out.csv")
    assert tagged.err.startswith("note: 1 image without a label to write\n2 new sidecars")


def test_megadetector_keeps_images_without_a_box(crnr: Runner, scenes: list[str]) -> None:
    assert crnr("build", "g", "--boxes", "g.json", "--extractor", "pixels", "--calibrate", "-q").exit == 0
    assert crnr("classify", "q", "--boxes", "q.json", "-o", "out.csv").exit == 0
    assert crnr("export", "out.csv", "--to", "megadetector", "-o", "labels.json").exit == 0
    images = json.loads(Path("labels.json").read_text())["images"]
    assert images[2] == {"file": "q/2.png", "detections": []}
    assert [len(image["detections"]) for image in images] == [2, 2, 0]


def test_sidecars_are_no_queries(crnr: Runner, scenes: list[str]) -> None:
    """After `crnr tag`, the same commands give the same answers."""
    for source in (("q", "--boxes", "q.json"), ("q",)):
        before = crnr("classify", *source, "-o", "out.csv")
        assert crnr("tag", "out.csv").exit == 0
        assert list(Path("q").glob("*.xmp"))
        assert crnr("classify", *source, "-o", "out.csv") == before
        assert crnr("tag", "--undo", sorted(Path().glob(".crnr-tag-*.jsonl"))[-1]).exit == 0
    Path("q/0.XMP").touch()
    assert crnr("classify", "q", "-o", "out.csv") == before
