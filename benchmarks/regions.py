"""How long `crnr classify --boxes` takes, and how much more accurate boxes are than whole images.

    OPENBLAS_NUM_THREADS=1 python benchmarks/regions.py --images 2000 --per-image 5
    python benchmarks/regions.py scenes --data DIR

The first command compares boxes with the same crops saved as files, in turns. The images are small JPEGs of
noise and stripes. The crops are saved as JPEGs too, with the same margin. crnr is measured as a process, with
its start. The answers differ only as far as JPEG does.

`scenes` needs the photographs flowers12 in DIR. It pastes photographs of 8 kinds of flowers into larger
scenes. Their ground is a photograph of one of the other 4 kinds, cut into blocks and shuffled. All settings
are the defaults. Without the extra photos, only gradients are measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import datasets
import numpy as np
from PIL import Image

from crnr_cli.errors import CrnrError
from crnr_cli.images.regions import MARGIN, Box
from crnr_cli.jobs.model import get_model

CLASSES = 4
QUALITY = 90
KINDS = 8  # of flowers that are pasted; the other kinds are the ground
SCENE = 1024, 768  # pixels
SIDE = 160, 260  # the longer side of a pasted photograph
BLOCK = 32  # pixels of the ground that stay together
NETWORK = "efficientnet-lite0"


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


def draw_ground(photograph: Path, random: np.random.Generator) -> Image.Image:
    """Return a texture: the blocks of a photograph in another order."""
    with Image.open(photograph) as image:
        values = np.asarray(image.convert("RGB").resize(SCENE))
    rows, columns = SCENE[1] // BLOCK, SCENE[0] // BLOCK
    blocks = values.reshape(rows, BLOCK, columns, BLOCK, 3).swapaxes(1, 2).reshape(-1, BLOCK, BLOCK, 3)
    shuffled = blocks[random.permutation(len(blocks))].reshape(rows, columns, BLOCK, BLOCK, 3)
    return Image.fromarray(shuffled.swapaxes(1, 2).reshape(SCENE[1], SCENE[0], 3))


def paste_photographs(photographs: Path, folder: Path, seed: int) -> None:
    """Write a scene for each photograph of the first kinds, in class folders, and boxes.json."""
    random = np.random.default_rng(seed)
    kinds = sorted(path.name for path in photographs.iterdir())
    grounds = [path for kind in kinds[KINDS:] for path in sorted((photographs / kind).iterdir())]
    entries = []
    for kind in kinds[:KINDS]:
        (folder / "images" / kind).mkdir(parents=True)
        for path in sorted((photographs / kind).iterdir()):
            scene = draw_ground(grounds[random.integers(len(grounds))], random)
            with Image.open(path) as image:
                photograph = image.convert("RGB")
            side = int(random.integers(*SIDE))
            photograph.thumbnail((side, side))
            x, y = (int(random.integers(SCENE[i] - photograph.size[i])) for i in (0, 1))
            scene.paste(photograph, (x, y))
            scene.save(folder / "images" / kind / f"{path.stem}.jpg", quality=QUALITY)
            width, height = photograph.size
            bbox = [x / SCENE[0], y / SCENE[1], width / SCENE[0], height / SCENE[1]]
            detections = [{"category": "1", "conf": 0.9, "bbox": bbox}]
            entries.append({"file": f"images/{kind}/{path.stem}.jpg", "detections": detections})
    content = {"info": {"format_version": "1.5"}, "detection_categories": {"1": "animal"}, "images": entries}
    (folder / "boxes.json").write_text(json.dumps(content))


def score_scenes(data: Path, folder: Path) -> None:
    """Print the accuracy of boxes and of whole images, for galleries of photographs and of scenes."""
    flowers = datasets.find(data, "flowers12")
    for part, seed in (("train", 0), ("test", 1)):
        paste_photographs(flowers / part, folder / part, seed)
    boxes = {part: ("--boxes", str(folder / part / "boxes.json")) for part in ("train", "test")}
    galleries = {
        "photographs": (str(_copy_kinds(flowers / "train", folder / "photographs")),),
        "boxes in scenes": (str(folder / "train" / "images"), *boxes["train"]),
        "whole scenes": (str(folder / "train" / "images"),),
    }
    print("| extractor | examples | queries: boxes | queries: whole scenes |")
    print("|---|---|---|---|")
    for extractor in _extractors():
        for name, source in galleries.items():
            run(folder, "build", *source, "--extractor", extractor, "-o", "g.h5")
            cells = [
                _score(folder, str(folder / "test" / "images"), *boxes["test"]),
                _score(folder, str(folder / "test" / "images")),
            ]
            print(f"| {extractor} | {name} | {' | '.join(cells)} |", flush=True)


def _copy_kinds(photographs: Path, folder: Path) -> Path:
    """Copy the photographs of the kinds that are pasted into scenes."""
    for kind in sorted(path.name for path in photographs.iterdir())[:KINDS]:
        shutil.copytree(photographs / kind, folder / kind)
    return folder


def _extractors() -> list[str]:
    """Return gradients and, if it can be made, the network."""
    try:
        get_model(NETWORK)
    except CrnrError as e:
        print(f"without {NETWORK}: {e}", file=sys.stderr)
        return ["gradients"]
    return ["gradients", NETWORK]


def _score(folder: Path, *queries: str) -> str:
    """Return the correct answers of `crnr evaluate`."""
    command = [sys.executable, "-m", "crnr_cli", "evaluate", *queries, "-g", "g.h5", "--json", "-q"]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE)
    scores = json.loads(done.stdout)
    correct, n = scores["correct"], scores["n"]
    return f"{correct} of {n}, {correct / n:.1%}"


def run(folder: Path, *arguments: str) -> float:
    """Run a command, and return its seconds."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "crnr_cli", *arguments, "-q"], cwd=folder, check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("speed", "scenes"), default="speed")
    parser.add_argument(
        "--data", type=Path, default=datasets.DEFAULT_FOLDER, help="folder of flowers12, for scenes"
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--per-image", type=int, default=5, help="boxes")
    parser.add_argument("--size", type=int, default=256, help="side of an image in pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="for the files; by default a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.what == "scenes":
            os.environ.setdefault("CRNR_MODELS", str(folder / "models"))
            score_scenes(options.data, folder)
            return
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
