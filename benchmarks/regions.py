"""How long `crnr classify --boxes` takes, against the same crops saved as files, in turns.

    OPENBLAS_NUM_THREADS=1 python benchmarks/regions.py --images 2000 --per-image 5

The images are small JPEGs of noise and stripes. The crops are saved as JPEGs too, with the same margin. crnr
is measured as a process, with its start. The answers differ only as far as JPEG does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from crnr_cli.images.regions import MARGIN, Box

CLASSES = 4
QUALITY = 90


def draw(random: np.random.Generator, size: int, per_image: int) -> tuple[Image.Image, list[Box], list[int]]:
    """Return an image with objects of stripes, their boxes and their classes."""
    values = random.integers(0, 256, (size, size, 3))
    boxes, classes = [], []
    for _ in range(per_image):
        side = int(random.integers(size // 8, size // 4))
        x, y = random.integers(0, size - side, 2).tolist()
        kind = int(random.integers(CLASSES))
        stripes = np.sin(np.arange(side) * (kind + 1) * 12 / side) > 0
        values[y : y + side, x : x + side] = stripes[:, None, None] * 200 + random.integers(
            0, 50, (side, side, 3)
        )
        boxes.append(Box(x / size, y / size, side / size, side / size).clip())
        classes.append(kind)
    return Image.fromarray(values.astype(np.uint8)), boxes, classes


def make(folder: Path, count: int, per_image: int, size: int, seed: int, *, by_class: bool) -> None:
    """Write images with their boxes, as MegaDetector does, and the same crops."""
    random = np.random.default_rng(seed)
    entries = []
    for number in range(count):
        image, boxes, classes = draw(random, size, per_image)
        above = folder / (f"images/{classes[0]}" if by_class else "images")
        above.mkdir(parents=True, exist_ok=True)
        path = above / f"{number:05}.jpg"
        image.save(path, quality=QUALITY)
        decoded = Image.open(path)
        detections = []
        for i, (box, kind) in enumerate(zip(boxes, classes, strict=True)):
            detections.append({"category": "1", "conf": 0.9, "bbox": list(box[:4])})
            crops = folder / (f"crops/{kind}" if by_class else "crops")
            crops.mkdir(parents=True, exist_ok=True)
            crop = decoded.crop(box.edges(size, size, MARGIN))
            crop.save(crops / f"{number:05}-{i}.jpg", quality=QUALITY)
        entries.append({"file": str(path.relative_to(folder)), "detections": detections})
    content = {"info": {"format_version": "1.5"}, "detection_categories": {"1": "animal"}, "images": entries}
    (folder / "boxes.json").write_text(json.dumps(content))


def run(folder: Path, *arguments: str) -> float:
    """Run a command, and return its seconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "crnr_cli", *arguments, "-q"], cwd=folder, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--per-image", type=int, default=5, help="boxes")
    parser.add_argument("--size", type=int, default=256, help="side of an image in pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the files; by default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        make(folder / "gallery", 40, 1, options.size, 0, by_class=True)
        make(folder / "queries", options.images, options.per_image, options.size, 1, by_class=False)
        run(folder, "build", "gallery/images", "--boxes", "gallery/boxes.json", "--size", "32")
        commands = {
            "boxes": ("queries/images", "--boxes", "queries/boxes.json"),
            "crops": ("queries/crops",),
        }
        seconds: dict[str, list[float]] = {what: [] for what in commands}
        for _ in range(options.rounds):
            for what, arguments in commands.items():
                seconds[what].append(run(folder, "classify", *arguments, "-o", f"{what}.csv"))
                os.sync()
        boxes, crops = (statistics.median(seconds[what]) for what in commands)
        count = options.images * options.per_image
        print("| images | boxes | seconds with --boxes | seconds with the crops as files | ratio |")
        print("|---|---|---|---|---|")
        print(
            f"| {options.images} of {options.size}x{options.size} | {count} | {boxes:.1f} | {crops:.1f} | ",
            end="",
        )
        print(f"{boxes / crops:.2f} |")


if __name__ == "__main__":
    main()
