"""How the processor time and the memory of every command grow with its input.

    python benchmarks/growth.py [--only TEXT] [--scale 1] [--runs 2] [--folder DIR]

Each command runs on made-up data of the sizes n, 4n and 16n, and of a tiny size, whose time and memory are
the start-up and are subtracted. The exponent is the slope of a line through the logarithms: 1 if twice the
input takes twice as long, 2 if it takes four times as long. An exponent above 1.15 is marked. A command that
takes less than a tenth of a second beyond its start-up at 16n has no exponent. `--scale 4` makes all sizes
four times as large, and `--only audit` measures the commands with this text in their names. Of several runs,
the smallest figures count. Set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

TINY, STEPS = 100, (1, 4, 16)
STEEP = 1.15
LEAST_SECONDS, LEAST_BYTES = 0.1, 2**21  # beyond the start-up, for an exponent
FEATURES, CLASSES = 32, 4  # so a class of the tiny size has 25 examples, too many for whitening
CRNR = [sys.executable, "-m", "crnr_cli"]
COLUMNS = ("path", "truth", "label", "residual", "runner_up", "margin", "status", "probability")


@dataclass(frozen=True)
class Task:
    """A command, and what grows."""

    command: str
    grows: str
    n: int
    prepare: Callable[[int], None]  # makes files in the current folder
    arguments: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.command}: {self.grows}"


@dataclass(frozen=True)
class Used:
    seconds: float  # of the processor
    peak: int  # bytes


def run(arguments: Sequence[str]) -> None:
    subprocess.run([*CRNR, *arguments, "-q"], check=True, stdout=subprocess.DEVNULL)


def make_features(path: str, n: int, n_classes: int = CLASSES, seed: int = 0) -> None:
    """Write labelled features: a cloud around a centre for every class."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(9).normal(size=(n_classes, FEATURES))
    labels = np.arange(n) % n_classes
    features = (centres[labels] + 0.7 * rng.normal(size=(n, FEATURES))).astype(np.float32)
    np.savez(path, features=features, labels=np.array([f"class{k}" for k in labels]))


def make_images(folder: str, n: int, n_classes: int = CLASSES, side: int = 12) -> None:
    """Write tiny images, no two of which are equal, in class folders."""
    rng, centres = (
        np.random.default_rng(0),
        np.random.default_rng(9).uniform(40, 215, (n_classes, side, side)),
    )
    for k in range(n_classes):
        (Path(folder) / f"class{k}").mkdir(parents=True)
    for i in range(n):
        values = np.clip(centres[i % n_classes] + 40 * rng.normal(size=(side, side)), 0, 255)
        Image.fromarray(values.astype(np.uint8)).save(Path(folder) / f"class{i % n_classes}" / f"{i}.png")


def make_answers(paths: Sequence[str]) -> None:
    """Write a predictions file with these paths."""
    rng = np.random.default_rng(1)
    with Path("out.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for i, path in enumerate(paths):
            truth, label, other = (f"class{k}" for k in (i % 4, (i + (i % 7 == 0)) % 4, (i + 3) % 4))
            residual, margin = rng.uniform(0.2, 0.8), rng.uniform(0, 0.5)
            writer.writerow([path, truth, label, f"{residual:.6f}", other, f"{margin:.6f}", "ok", "0.9"])


def image_names(n: int) -> list[str]:
    return [f"images/class{i % CLASSES}/{i}.png" for i in range(n)]


def box_names(n: int, per_image: int) -> list[str]:
    """Return the paths of boxes, with this many in every image, no two of which are alike."""
    places = ((f"images/class0/{i // per_image}.png", i % per_image) for i in range(n))
    return [
        f"{image}#{box % 100 / 200},{box // 100 % 100 / 200},{0.3 + box // 10_000 / 100},0.4"
        for image, box in places
    ]


def build_features(n: int, n_classes: int = CLASSES, *options: str) -> None:
    make_features("examples.npz", n, n_classes)
    make_features("queries.npz", TINY, n_classes, seed=1)
    run(["build", "examples.npz", *options])


def classify_more(n: int) -> None:
    build_features(200)
    make_features("queries.npz", n, seed=1)


def build_images(n: int) -> None:
    make_images("images", n)
    run(["build", "images"])


def answer_images(n: int) -> None:
    """Make images and answers, and a gallery of a few of them."""
    make_images("images", n)
    make_answers(image_names(n))
    make_images("few", TINY)
    run(["build", "few"])


def answer_rows(n: int) -> None:
    make_answers([f"queries.npz#{i}" for i in range(n)])


def answer_boxes(n: int, per_image: int) -> None:
    names = box_names(n, per_image)
    make_answers(names)
    images: dict[str, list[list[float]]] = {}
    for name in names:
        file, _, box = name.partition("#")
        images.setdefault(file, []).append([float(number) for number in box.split(",")])
        if not Path(file).exists():
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(len(images)).integers(0, 256, (64, 64), dtype=np.uint8)
            Image.fromarray(pixels).save(file)
    detections = [
        {"file": file, "detections": [{"category": "1", "conf": 0.9, "bbox": box} for box in boxes]}
        for file, boxes in images.items()
    ]
    about = {"format_version": "1.4", "detector": "made up"}
    found = {"info": about, "detection_categories": {"1": "animal"}, "images": detections}
    Path("detections.json").write_text(json.dumps(found))


def classify_boxes(n: int, per_image: int) -> None:
    answer_boxes(n, per_image)
    make_images("few", TINY)
    run(["build", "few"])


def mark(n: int, column: str, value: str) -> None:
    """Build a gallery, and mark half of its examples in a CSV of audit."""
    build_images(n)
    with Path("marked.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label", "corrected", "remove"], restval="")
        writer.writeheader()
        for i, name in enumerate(image_names(n)[: n // 2]):
            writer.writerow({"path": name, "label": f"class{i % CLASSES}", column: value})


def tasks() -> list[Task]:
    half, export = ["marked.csv"], ["out.csv", "-o", "exported", "--to"]
    of_classes = ["examples.npz"]
    return [
        Task("build", "examples", 2000, lambda n: make_features("examples.npz", n), ["examples.npz"]),
        Task("build", "classes", 1000, lambda n: make_features("examples.npz", 2 * n, n), of_classes),
        Task("build", "files", 250, lambda n: make_images("images", n), ["images"]),
        Task("classify", "queries", 2000, classify_more, ["queries.npz", "-o", "out.csv"]),
        Task("classify", "examples", 2000, build_features, ["queries.npz", "-o", "out.csv"]),
        Task(
            "classify", "classes", 1000, lambda n: build_features(2 * n, n), ["queries.npz", "-o", "out.csv"]
        ),
        Task("classify", "files", 250, answer_images, ["images", "-o", "new.csv"]),
        Task(
            "classify",
            "boxes of an image",
            250,
            lambda n: classify_boxes(n, n),
            ["--boxes", "detections.json", "-o", "new.csv"],
        ),
        Task(
            "classify",
            "boxes, 4 an image",
            250,
            lambda n: classify_boxes(n, 4),
            ["--boxes", "detections.json", "-o", "new.csv"],
        ),
        Task("evaluate", "answers", 4000, answer_rows, ["out.csv", "--html", "report.html"]),
        Task("evaluate", "queries", 2000, classify_more, ["queries.npz"]),
        Task("review", "answers", 500, answer_images, ["out.csv", "--limit", "1000000"]),
        Task("review", "answers, 100 shown", 500, answer_images, ["out.csv", "--limit", "100"]),
        Task("sort", "files", 250, answer_images, ["out.csv", "sorted"]),
        Task("explain", "examples", 2000, build_features, ["queries.npz#3"]),
        Task("audit", "examples", 500, lambda n: make_features("examples.npz", n), ["examples.npz"]),
        Task("audit", "files", 250, lambda n: make_images("images", n), ["images", "--html", "audit.html"]),
        Task("audit", "classes", 100, lambda n: make_features("examples.npz", 4 * n, n), of_classes),
        Task("info", "examples", 2000, build_features, ["gallery.h5", "--list-examples"]),
        Task("verify", "files", 250, build_images, ["gallery.h5", "--source", "images"]),
        Task("add", "examples", 2000, lambda n: _add(n), ["gallery.h5", "more.npz"]),
        Task("correct", "examples", 250, lambda n: mark(n, "corrected", "class3"), ["gallery.h5", *half]),
        Task(
            "remove", "examples", 250, lambda n: mark(n, "remove", "x"), ["gallery.h5", "--marked-in", *half]
        ),
        Task("rename", "examples", 2000, build_features, ["gallery.h5", "class3", "other"]),
        Task("rename", "classes", 1000, lambda n: build_features(2 * n, n), ["gallery.h5", "class3", "x"]),
        Task(
            "tune",
            "examples, by all others",
            100,
            lambda n: make_features("examples.npz", n),
            ["examples.npz", "--try-neighbors", "0", "--try-power", "1"],
        ),
        Task(
            "tune",
            "examples, by neighbours",
            25_000,  # all above the size from which a fixed number is held out
            lambda n: make_features("examples.npz", n),
            ["examples.npz", "--try-neighbors", "50", "--try-power", "1,0.5"],
        ),
        Task("compare", "examples", 100, lambda n: make_features("examples.npz", n), ["examples.npz"]),
        Task(
            "split",
            "files",
            250,
            lambda n: make_images("images", n),
            ["images", "--train", "train", "--test", "test"],
        ),
        Task("extract", "files", 250, lambda n: make_images("images", n), ["images", "-o", "features.h5"]),
        Task("export", "answers", 2000, lambda n: make_answers(image_names(n)), [*export, "label-studio"]),
        Task(
            "export",
            "boxes, 100 an image",
            1000,
            lambda n: answer_boxes(n, 100),
            [*export, "megadetector", "--boxes", "detections.json"],
        ),
        Task(
            "export",
            "boxes, 4 an image",
            1000,
            lambda n: answer_boxes(n, 4),
            [*export, "megadetector", "--boxes", "detections.json"],
        ),
        Task("tag", "files", 250, answer_images, ["out.csv"]),
        Task("tag", "boxes of an image", 2000, lambda n: answer_boxes(n, n), ["out.csv"]),
    ]


def _add(n: int) -> None:
    build_features(200)
    make_features("more.npz", n, seed=2)


def measure(task: Task, n: int, folder: Path, runs: int) -> Used:
    """Run a command in a process of its own, in a new folder, and return what it used."""
    found = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            before = Path.cwd()
            os.chdir(place)
            try:
                task.prepare(n)
                found.append(_use([*CRNR, task.command, *task.arguments]))
            finally:
                os.chdir(before)
    return Used(min(one.seconds for one in found), min(one.peak for one in found))


def _use(command: Sequence[str]) -> Used:
    with Path("messages.txt").open("w") as messages:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise SystemExit(
            f"{' '.join(command)} exits with {process.returncode}: {Path('messages.txt').read_text()}"
        )
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def fit_exponent(sizes: Sequence[int], values: Sequence[float], least: float) -> float | None:
    """Return the slope of the logarithms, of the values that are large enough; None if fewer than two are."""
    pairs = [(size, value) for size, value in zip(sizes, values, strict=True) if value >= least]
    if len(pairs) < 2:
        return None
    x, y = np.log(np.array(pairs)).T
    return float(np.polyfit(x, y, 1)[0])


def describe(exponent: float | None) -> str:
    if exponent is None:
        return "-"
    return f"**{exponent:.2f}**" if exponent > STEEP else f"{exponent:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    print(
        "| command | grows | n | CPU s: start-up | n | 4n | 16n | exponent | MB beyond the start | exponent |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    steep = []
    for task in tasks():
        if arguments.only not in task.name:
            continue
        sizes = [round(task.n * arguments.scale) * step for step in STEPS]
        start, *used = (measure(task, n, arguments.folder, arguments.runs) for n in (TINY, *sizes))
        beyond = [one.seconds - start.seconds for one in used]
        more = [one.peak - start.peak for one in used]
        of_time = fit_exponent(sizes, beyond, LEAST_SECONDS / 4 if beyond[-1] >= LEAST_SECONDS else np.inf)
        of_memory = fit_exponent(sizes, more, LEAST_BYTES)
        if max(of_time or 0, of_memory or 0) > STEEP:
            steep.append(task.name)
        print(
            f"| `{task.command}` | {task.grows} | {sizes[0]:,} | {start.seconds:.2f} | "
            + " | ".join(f"{one.seconds:.2f}" for one in used)
            + f" | {describe(of_time)} | {more[-1] / 1e6:.0f} | {describe(of_memory)} |",
            flush=True,
        )
    print(f"\nabove {STEEP}: {', '.join(steep) or 'none'}")


if __name__ == "__main__":
    main()
