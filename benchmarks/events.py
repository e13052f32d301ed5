"""Events: simulated bursts of photographs, split, classified and scored with and without their events.

    python benchmarks/events.py --data ../shared/data

The folder of the data has `flowers12/train` and `flowers12/test`, with a folder per kind of flower, and
`efficientnet_lite0_features.onnx`. Every photograph becomes a burst of 2 to 6 images: each is cut at random
to 80 to 100 % of each side, brighter or darker by up to a fifth, and noisy, with an EXIF date 5 seconds after
the one before. Photographs are ten minutes apart.

The bursts of `train` are split into gallery and test side. The bursts of `test` are photographs that no
gallery has seen. The ways to combine probabilities are compared on the test side of the split by events,
which is the half to choose by, and on the bursts of `test`.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image

from crnr_cli.gallery.file import load_gallery

START = datetime(2026, 7, 1, 6)
GAP = "60s"
SIDE = 320  # pixels, of the longer side before cutting
NOISE = 8  # grey levels
SMALLEST = 1e-12  # probability, before its logarithm is taken
COMBINE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "mean": lambda rows: rows.mean(axis=0),
    "mean of logarithms": lambda rows: np.exp(np.log(np.maximum(rows, SMALLEST)).mean(axis=0)),
    "maximum": lambda rows: rows.max(axis=0),
    "product": lambda rows: np.exp(np.log(np.maximum(rows, SMALLEST)).sum(axis=0)),
}


def crnr(*arguments: str | Path) -> str:
    """Run a command, and return what it printed."""
    command = [sys.executable, "-m", "crnr_cli", *map(str, arguments)]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def make_bursts(photographs: Path, target: Path, rng: np.random.Generator) -> None:
    for kind in sorted(photographs.iterdir()):
        (target / kind.name).mkdir(parents=True)
        for number, path in enumerate(sorted(kind.iterdir())):
            with Image.open(path) as opened:
                image = opened.convert("RGB")
            image.thumbnail((SIDE, SIDE))
            for shot in range(int(rng.integers(2, 7))):
                time = START + timedelta(minutes=10 * number, seconds=5 * shot)
                exif = Image.Exif()
                exif[0x8769] = {0x9003: f"{time:%Y:%m:%d %H:%M:%S}"}
                name = f"{path.stem}_{shot}.jpg"
                vary(image, rng).save(target / kind.name / name, quality=88, exif=exif.tobytes())


def vary(image: Image.Image, rng: np.random.Generator) -> Image.Image:
    width, height = (int(side * rng.uniform(0.8, 1)) for side in image.size)
    left, top = (int(rng.integers(0, a - b + 1)) for a, b in zip(image.size, (width, height), strict=True))
    values = np.asarray(image.crop((left, top, left + width, top + height)), dtype=float)
    values = values * rng.uniform(0.8, 1.2) + rng.normal(0, NOISE, values.shape)
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def accuracies(gallery: Path, queries: Path, folder: Path) -> dict[str, float]:
    """Return the accuracy over inputs and over events."""
    out = folder / "out.csv"
    crnr("classify", queries, "-g", gallery, "--event-gap", GAP, "-o", out, "-q")
    found = json.loads(crnr("evaluate", out, "--json", "-q"))
    return {"inputs": found["accuracy"], "events": found["events"]["accuracy"]}


def held_out(gallery: Path) -> float:
    """Return the accuracy on examples held out of the gallery, when it was calibrated."""
    calibration = load_gallery(gallery).calibration
    assert calibration is not None
    answers = calibration.answers
    assert answers is not None
    return len(answers.right) / (len(answers.right) + len(answers.wrong))


def compare_combinations(gallery_path: Path, queries: Path, folder: Path) -> None:
    out = folder / "out.csv"
    crnr("classify", queries, "-g", gallery_path, "--event-gap", GAP, "-o", out, "-q")
    gallery = load_gallery(gallery_path)
    assert gallery.calibration is not None
    certainty = gallery.calibration.certainty
    assert certainty is not None
    events = defaultdict(list)
    with out.open(newline="") as file:
        for row in csv.DictReader(file):
            residuals = np.array([[float(row[f"residual:{name}"]) for name in gallery.classes]])
            probabilities = np.asarray(certainty.probabilities(residuals))[0]
            events[row["event"]].append((probabilities, gallery.classes.index(row["truth"])))
    for name, combine in COMBINE.items():
        right, surprise, sure = [], [], []
        for members in events.values():
            found = combine(np.array([probabilities for probabilities, _ in members]))
            found = found / found.sum()
            truth = members[0][1]
            right.append(found.argmax() == truth)
            surprise.append(-np.log(max(found[truth], SMALLEST)))
            sure.append(found.max())
        print(
            f"    {name:19} accuracy {100 * np.mean(right):.1f}  mean probability {100 * np.mean(sure):.1f}  "
            f"log loss {np.mean(surprise):.3f}"
        )


def measure(extractor: list[str], bursts: Path, folder: Path) -> None:
    for way, options in (("files", []), ("events", ["--event-gap", GAP])):
        train, test = folder / f"{way}-train", folder / f"{way}-test"
        if not train.exists():
            crnr(
                *("split", bursts / "train", "--train", train, "--test", test, "--share", "0.5", "-q"),
                *options,
            )
        gallery = folder / f"{way}.h5"
        for grouped in ([], ["--event-gap", GAP]):
            crnr("build", train, *extractor, "--calibrate", "-o", gallery, "-q", *grouped)
            together = "events" if grouped else "files"
            print(f"  split by {way}: held out by {together} {100 * held_out(gallery):.1f}")
        for what, queries in (("test side", test), ("new photographs", bursts / "test")):
            found = accuracies(gallery, queries, folder)
            inputs, events = 100 * found["inputs"], 100 * found["events"]
            print(f"  split by {way}: {what}: inputs {inputs:.1f}, events {events:.1f}")
    for what, queries in (("test side", test), ("new photographs", bursts / "test")):
        print(f"  {what}")
        compare_combinations(gallery, queries, folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    if not (data / "flowers12").is_dir():
        sys.exit(f"skipped: {data} has no folder flowers12")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        bursts = Path(name, "bursts")
        for side in ("train", "test"):
            make_bursts(data / "flowers12" / side, bursts / side, rng)
        print("gradients")
        measure([], bursts, Path(name))
        if (network := data / "efficientnet_lite0_features.onnx").exists():
            print("efficientnet-lite0")
            measure(
                ["--extractor", str(network), "--extractor-preset", "efficientnet-lite"], bursts, Path(name)
            )


if __name__ == "__main__":
    main()
