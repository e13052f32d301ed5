"""The answers of boxes find their detections: as in a search of the whole list, but in linear time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.exports import megadetector
from crnr_cli.exports.base import ExportedAnswer, ExportedImage, ExportOptions, split_box


def find_in_list(boxes: list[list[float]], wanted: list[list[float]]) -> list[int | None]:
    """Return the place of the nearest box that is still free, if it is near, for one name after the other."""
    free = dict(enumerate(boxes))
    found: list[int | None] = []
    for name in wanted:
        far = {place: max(abs(a - b) for a, b in zip(box, name, strict=True)) for place, box in free.items()}
        nearest = min(far, key=lambda place: far[place], default=None)
        if nearest is not None and far[nearest] > 5e-4:
            nearest = None
        found.append(nearest)
        free.pop(-1 if nearest is None else nearest, None)
    return found


def export_boxes(folder: Path, boxes: list[list[float]], wanted: list[list[float]]) -> list[dict[str, Any]]:
    """Return the detections after the answers a0, a1, ... to the wanted boxes were added to them."""
    detections = [{"category": "1", "conf": 0.5, "bbox": box} for box in boxes]
    images = [{"file": "a.jpg", "detections": detections}]
    path = folder / "md.json"
    path.write_text(json.dumps({"detection_categories": {"1": "animal"}, "images": images}))
    image = ExportedImage("a.jpg")
    for number, box in enumerate(wanted):
        name = f"a.jpg#{','.join(map(str, box))}"
        image.answers.append(ExportedAnswer(name, split_box(name), f"a{number}", "ok", 0.5))
    exported = megadetector.EXPORTER.make([image], ExportOptions(boxes=path))
    document = json.loads(exported.files[""])
    names = document["classification_categories"]
    return [
        {**one, "label": names[one["classifications"][0][0]] if "classifications" in one else None}
        for one in document["images"][0]["detections"]
    ]


@pytest.mark.parametrize("seed", range(40))
def test_answers_find_the_detections_of_a_search_through_the_list(tmp_path: Path, seed: int) -> None:
    """Also equal boxes, boxes on the borders of cells, and boxes as near as two roundings."""
    rng = np.random.default_rng(seed)
    step = [1e-4, 2.5e-4, 5e-4, 2e-3][seed % 4]
    corners = (0.1 + step * rng.integers(0, 4, (30, 4))).round(5)
    boxes = corners.tolist()
    wanted = [
        list(map(float, row)) for row in (corners + rng.choice([0, 3e-4, -6e-4], (30, 1))).round(4).tolist()
    ]
    wanted = [list(box) for box in dict.fromkeys(map(tuple, wanted))]  # a row per name
    found = export_boxes(tmp_path, boxes, wanted)
    places = find_in_list(boxes, wanted)
    of_place = {place: f"a{number}" for number, place in enumerate(places) if place is not None}
    assert [one["label"] for one in found[: len(boxes)]] == [of_place.get(i) for i in range(len(boxes))]
    new = [(f"a{number}", wanted[number]) for number, place in enumerate(places) if place is None]
    assert [(one["label"], one["bbox"]) for one in found[len(boxes) :]] == new


def test_the_comparisons_grow_with_the_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare, calls = megadetector._distance, []
    monkeypatch.setattr(megadetector, "_distance", lambda *boxes: calls.append(0) or compare(*boxes))
    for count in (500, 1000):
        boxes = np.random.default_rng(count).uniform(0.1, 0.5, (count, 4))
        found = export_boxes(tmp_path, boxes.tolist(), boxes.round(4).tolist())
        assert [one["label"] for one in found] == [f"a{i}" for i in range(count)]
        assert count <= len(calls) <= 1.2 * count
        calls.clear()


def test_numbers_that_no_box_can_have_are_refused(tmp_path: Path) -> None:
    """A whole number in JSON may have any number of digits, more than a float can hold."""
    with pytest.raises(DataError, match=r"image 1 has detections without a bbox of four numbers; give the"):
        export_boxes(tmp_path, [[0.1, 0.1, 0.2, 10**400]], [[0.1, 0.1, 0.2, 0.2]])
