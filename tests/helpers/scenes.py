"""Photographs of a camera trap, made up: a small animal before a ground of leaves and grass, and its box."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from scipy.ndimage import gaussian_filter

SPECIES = (
    "Capreolus capreolus",
    "Erinaceus europaeus",
    "Lepus europaeus",
    "Martes martes",
    "Meles meles",
    "Sciurus vulgaris",
    "Sus scrofa",
    "Vulpes vulpes",
)
CAMERAS = ("pond", "ridge")
EXAMPLES = 6  # of each species
BURSTS = 3, 2  # photographs of an animal that passes one camera, and later the other one
SIZE = 320, 240
DATE_TIME_ORIGINAL = 0x9003
EMPTY = "ridge/0021.jpg"
Edges = tuple[int, int, int, int]


def draw_ground(random: np.random.Generator) -> Image.Image:
    """Return shapes of several sizes, such as leaves and stems."""
    width, height = SIZE
    total = np.zeros((height, width))
    for breadth in ((1, 6), (8, 2), (20, 20)):
        waves = gaussian_filter(random.normal(size=(height, width)), breadth)
        total += waves / waves.std()
    return Image.fromarray(np.clip(120 + 22 * total, 0, 255).astype(np.uint8)).convert("RGB")


def draw_animal(ground: Image.Image, species: int, random: np.random.Generator) -> Edges:
    """Draw an animal on the ground, and return the edges of its box; every species has its outline."""
    outline = np.random.default_rng([7, species])
    waves = outline.normal(size=(2, 7)) / np.arange(1.5, 8.5) + 0.12 * random.normal(size=(2, 7)) / 3
    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    turns = np.arange(1, 8)[:, None] * angles
    radius = 1 + 0.45 * (waves[0] @ np.cos(turns) + waves[1] @ np.sin(turns)).clip(-1.6, 1.6)
    points = np.stack([1.3 * radius * np.cos(angles), radius * np.sin(angles)])
    points -= points.min(axis=1, keepdims=True)
    points *= random.integers(55, 90) / points.max()
    sides = np.ceil(points.max(axis=1)).astype(int) + 1
    corner = random.integers(4, np.array(SIZE) - sides - 4)
    tone = int(random.integers(15, 60)) if random.random() < 0.5 else int(random.integers(200, 245))
    drawn = (points + corner[:, None]).T
    ImageDraw.Draw(ground).polygon([(float(x), float(y)) for x, y in drawn], fill=(tone, tone, tone))
    left, top = corner.tolist()
    across, down = sides.tolist()
    return left, top, across, down


def save(image: Image.Image, path: Path, minute: int, second: int = 0) -> None:
    """Save a photograph that was taken at this time after midnight."""
    exif = Image.Exif()
    exif.get_ifd(0x8769)[DATE_TIME_ORIGINAL] = (
        f"2026:03:{4 + minute // 1440:02} {minute // 60 % 24:02}:{minute % 60:02}:{second:02}"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, quality=92, exif=exif)


def entry(path: str, edges: Edges | None, random: np.random.Generator) -> dict[str, Any]:
    """Return what MegaDetector writes about an image: shares, and also boxes that it doubts."""
    found = [{"category": "1", "conf": 0.11, "bbox": [0.7, 0.05, 0.08, 0.1]}] if random.random() < 0.2 else []
    if edges:
        left, top, across, down = edges
        bbox = [left / SIZE[0], top / SIZE[1], across / SIZE[0], down / SIZE[1]]
        rounded = [round(value, 4) for value in bbox]
        found.insert(
            0, {"category": "1", "conf": round(float(random.uniform(0.6, 0.98)), 3), "bbox": rounded}
        )
    return {"file": path, "detections": found}


def make_scenes(folder: Path) -> None:
    """Write examples/ with a folder per species, trap/ with a folder per camera, and what the page needs."""
    random = np.random.default_rng(11)
    examples = []
    for number, name in enumerate(SPECIES):
        for i in range(EXAMPLES):
            image = draw_ground(random)
            edges = draw_animal(image, number, random)
            path = f"{name}/{i:04}.jpg"
            save(image, folder / "examples" / path, 60 * number + i)
            examples.append(entry(path, edges, random))
    write_detections(folder / "examples.json", examples)
    detections, checked = [], []
    for path, number, minute, second in place_queries():
        image = draw_ground(random)
        edges = draw_animal(image, number, random)
        save(image, folder / "trap" / path, minute, second)
        detections.append(entry(path, edges, random))
        x, y, width, height = detections[-1]["detections"][0]["bbox"]
        checked.append((f"trap/{path}", x, y, width, height, SPECIES[number]))
    save(draw_ground(random), folder / "trap" / EMPTY, 2000)
    detections.append(entry(EMPTY, None, random))
    write_detections(folder / "detections.json", detections)
    with (folder / "checked.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("path", "x", "y", "width", "height", "label"), *checked])
    dates = "2026-03-01T12:00:00+01:00,2026-04-01T12:00:00+01:00"
    places = [f"{name},{52 + i / 10},4.3,{dates}\n" for i, name in enumerate(CAMERAS)]
    header = "deploymentID,latitude,longitude,deploymentStart,deploymentEnd\n"
    (folder / "deployments.csv").write_text(header + "".join(places), encoding="utf-8")


def place_queries() -> Iterator[tuple[str, int, int, int]]:
    """Yield the path, the species, the minute and the second of every photograph with an animal.

    Every species passes each camera once, in an order of the camera's own. A camera takes a photograph every
    four seconds while it sees the animal.
    """
    random = np.random.default_rng(5)
    for camera, name in enumerate(CAMERAS):
        photograph = 0
        for visit, species in enumerate(random.permutation(len(SPECIES)).tolist()):
            for place in range(BURSTS[(species + camera) % len(BURSTS)]):
                photograph += 1
                yield f"{name}/{photograph:04}.jpg", species, 1500 + 200 * camera + 23 * visit, 4 * place


def write_detections(path: Path, images: list[dict[str, Any]]) -> None:
    content = {
        "info": {"format_version": "1.5", "detector": "md_v5a.0.0"},
        "detection_categories": {"1": "animal", "2": "person", "3": "vehicle"},
        "images": images,
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
