"""What `crnr tune` finds from the gallery alone, and what that gives on the test set it never saw.

    python benchmarks/tune.py [--data FOLDER] [mnist-50] [mnist-100] [ar-300] [flowers-10]

The settings are chosen by cross-validation within the gallery; the test set is used once, for the settings
chosen and, beside them, for the paper's.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat

from crnr_cli.jobs.build import LabelledVectors, apply_recipe, make_gallery
from crnr_cli.jobs.tune import Setting, TuneOptions, tune_samples
from crnr_cli.recipe import Recipe, principal_axes
from crnr_cli.solvers import Array

Split = tuple[Array, Array, Array, Array]  # gallery, its labels, queries, their labels
DRAWS = 3


def idx(path: Path) -> Array:
    """An IDX file; pictures become rows."""
    data = gzip.decompress(path.read_bytes())
    n_axes = data[3]
    count = int.from_bytes(data[4:8], "big")
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * n_axes)
    return values.reshape(count, -1) if n_axes > 1 else values


def mnist(folder: Path, a_class: int) -> Iterator[Split]:
    """Draws of so many pictures a class from the 60,000, tested on all 10,000."""
    pixels, digits = (idx(folder / f"mnist/train-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    queries, truth = (idx(folder / f"mnist/t10k-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        members = [np.flatnonzero(digits == k) for k in range(10)]
        rows = np.concatenate([rng.choice(rows, a_class, replace=False) for rows in members])
        yield pixels[rows], digits[rows], queries, truth


def ar(folder: Path) -> Iterator[Split]:
    """Faces of 100 people; those of the test set were taken on another day."""
    data = loadmat(folder / "AR_DAT.mat")
    yield (
        data["NewTrain_DAT"].T,
        data["trainlabels"].ravel(),
        data["NewTest_DAT"].T,
        data["testlabels"].ravel(),
    )


def flowers(folder: Path) -> Iterator[Split]:
    """The official split: 10 a class to learn from, 6,149 to test."""
    with h5py.File(folder / "flower102_features.h5") as file:
        features, classes, split = (file[key][:] for key in ("features", "class_id", "official_split"))
    train, test = split == b"train", split == b"test"
    yield features[train], classes[train], features[test], classes[test]


TASKS = {
    "mnist-50": (lambda folder: mnist(folder, 50), TuneOptions()),
    "mnist-100": (lambda folder: mnist(folder, 100), TuneOptions()),
    "ar-300": (ar, TuneOptions(pcas=(300,))),
    "flowers-10": (flowers, TuneOptions()),
}


def labelled(raw: Array, labels: Array) -> LabelledVectors:
    names = [str(row) for row in range(len(raw))]
    texts = [f"{label:03d}" for label in labels]
    return LabelledVectors(Recipe("features", raw.shape[1]), names, texts, [""] * len(raw), raw)


def accuracy(setting: Setting, split: Split) -> float:
    """Percent of the test set, with a gallery built as `tune -o` builds it."""
    raw, labels, queries, truth = split
    samples = labelled(raw, labels)
    axes = None if setting.pca is None else principal_axes(raw, setting.pca, setting.power)
    apply_recipe(samples, replace(samples.recipe, pca=axes, power=setting.power), "float32")
    gallery = make_gallery(samples, setting.method)
    classes = np.array([int(name) for name in gallery.classes])
    right = 0
    for start in range(0, len(queries), 500):
        vectors, _ = gallery.recipe.unit_vectors(queries[start : start + 500], "float32")
        winners = classes[gallery.residuals(vectors).argmin(axis=1)]
        right += int((winners == truth[start : start + 500]).sum())
    return 100 * right / len(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[[], *TASKS], default=list(TASKS), metavar="TASK")
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared/data")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        raise SystemExit(f"skipped: there is no folder {arguments.data}; name it with --data")
    for task in arguments.tasks:
        splits, options = TASKS[task]
        tuned, papers = [], []
        for split in splits(arguments.data):
            report = tune_samples(labelled(split[0], split[1]), options)
            tuned.append(accuracy(report.chosen.setting, split))
            papers.append(accuracy(report.paper.setting, split))
            print(
                f"{task}: chosen {report.chosen.setting.parameters()}, "
                f"cross-validated {100 * report.chosen.accuracy:.1f} "
                f"(paper's {100 * report.paper.accuracy:.1f}, best {100 * report.trials[0].accuracy:.1f}), "
                f"test {tuned[-1]:.2f} (paper's {papers[-1]:.2f}), {report.seconds:.0f} s",
                flush=True,
            )
        print(f"{task}: test {np.mean(tuned):.2f} tuned, {np.mean(papers):.2f} paper's setting", flush=True)


if __name__ == "__main__":
    main()
