"""classify --update: 100,000 known files and 100 new ones, against listing the folder and classifying these.

    python benchmarks/nightly.py [--files N] [--new N] [--folder DIR]

The files are hard links to a few tiny images, made on the fly in a temporary folder, which can be put on
another disk with --folder. The ratio should be at most 3. Set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ant", "bee", "cow")
PER_FOLDER = 1000
RUNS = 3  # of each measurement; the shortest counts
LIST = (
    "import sys; from crnr_cli.sources.walk import list_images; print(len(list_images(sys.argv[1:], False)))"
)


def draw(path: Path, number: int, sample: int) -> None:
    random = np.random.default_rng([number, sample])
    pattern = np.linspace(0, 200, 64).reshape(8, 8) if number else np.full((8, 8), 100.0)
    values = (pattern.T if number == 2 else pattern) + 50 * random.random((8, 8))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)


def link_images(folder: Path, count: int) -> None:
    """Make this many names of some images of each class."""
    originals = sorted(Path("originals").iterdir())
    for i in range(count):
        place = folder / f"{i // PER_FOLDER:04}" / f"{i:07}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(originals[i % len(originals)], place)


def measure(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def classify(*arguments: str) -> float:
    return measure(sys.executable, "-m", "crnr_cli", "classify", *arguments, "-q")


def measure_update(new: int) -> float:
    """Return the seconds of an update that finds new files, which it does not know any more next time."""
    for path in (Path("out.csv"), Path("out.csv.crnr-state")):
        shutil.copy2(Path("known") / path.name, path)
    seconds = classify("inbox", "-o", "out.csv", "--update")
    known, now = (sum(1 for _ in path.open()) for path in (Path("known/out.csv"), Path("out.csv")))
    assert now == known + new, (known, now)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--new", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        os.chdir(folder)
        for number, name in enumerate(CLASSES):
            for sample in range(10):
                draw(Path("gallery") / name / f"{sample}.png", number, sample)
                draw(Path("originals") / f"{name}{sample}.png", number, 100 + sample)
        measure(sys.executable, "-m", "crnr_cli", "build", "gallery", "-q")
        link_images(Path("inbox"), given.files)
        first = classify("inbox", "-o", "out.csv", "--update")
        Path("known").mkdir()
        for name in ("out.csv", "out.csv.crnr-state"):
            shutil.copy2(name, Path("known") / name)
        link_images(Path("inbox/new"), given.new)
        link_images(Path("alone"), given.new)
        listing = min(measure(sys.executable, "-c", LIST, "inbox") for _ in range(RUNS))
        alone = min(classify("alone", "-o", "alone.csv") for _ in range(RUNS))
        update = min(measure_update(given.new) for _ in range(RUNS))
        quiet = min(classify("inbox", "-o", "out.csv", "--update") for _ in range(RUNS))
        record = Path("out.csv.crnr-state").stat().st_size / 2**20
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
        os.chdir("/")
    print(f"{given.files:,} known files: first run {first:.1f} s, record {record:.1f} MiB")
    print(f"listing {listing:.2f} s, classifying {given.new} files alone {alone:.2f} s")
    print(f"update with {given.new} new files {update:.2f} s, of a quiet night {quiet:.2f} s")
    print(f"ratio {update / (listing + alone):.2f} (at most 3); largest process {memory:.0f} MiB")


if __name__ == "__main__":
    main()
