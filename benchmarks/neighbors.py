"""Coding by the nearest samples (--neighbors): accuracy on all 70,000 digits of MNIST.

    python benchmarks/neighbors.py [--data FOLDER]

The commands tune, build, classify and evaluate run on PNG files, with gradients; the setting is chosen by
`crnr tune` from the 60,000 training images alone. `scale.py million` measures the speed of the search.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
from PIL import Image


class Ran(NamedTuple):
    """What a command took, and what it printed."""

    seconds: float
    core_seconds: float  # of all its processes, which says more on a busy machine
    stdout: str
    stderr: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.core_seconds:.1f} s of one core"


def crnr(*arguments: str | Path) -> Ran:
    command = [sys.executable, "-m", "crnr_cli", *map(str, arguments)]
    started, before = time.perf_counter(), sum(os.times()[2:4])
    done = subprocess.run(command, check=True, text=True, capture_output=True)
    seconds, used = time.perf_counter() - started, sum(os.times()[2:4]) - before
    return Ran(seconds, used, done.stdout, done.stderr)


def write_images(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    for name in np.unique(labels):
        (folder / str(name)).mkdir(parents=True)
    for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        image = Image.fromarray(pixels.astype(np.uint8).reshape(28, 28))
        image.save(folder / str(label) / f"{number:05d}.png", compress_level=1)


def mnist(data: Path) -> None:
    split = datasets.mnist(data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "train", split.train, split.train_labels)
        write_images(folder / "test", split.test, split.test_labels)
        tuned = crnr("tune", folder / "train", "--extractor", "gradients")
        print(tuned.stdout)
        chosen = tuned.stderr.partition("to build a gallery with it: crnr ")[2].splitlines()[0]
        print(f"tune: {tuned}; {chosen.replace(str(folder), '')}", flush=True)
        built = crnr(*shlex.split(chosen), "-o", folder / "g.h5", "-q")
        print(f"build: {built} for {len(split.train)} images", flush=True)
        asked = crnr("classify", folder / "test", "-g", folder / "g.h5", "-o", folder / "o.csv", "-q")
        each = 1000 * asked.core_seconds / len(split.test)
        print(f"classify: {asked} ({each:.2f} ms of one core per query, start included)")
        scores = json.loads(crnr("evaluate", folder / "o.csv", "--json").stdout)
        print(f"accuracy: {100 * scores['accuracy']:.2f} % of {len(split.test)} (demanded: 99.2 %)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    mnist(parser.parse_args().data)


if __name__ == "__main__":
    main()
