"""What `crnr tune` finds from the gallery alone, and what that gives on the test set it never saw.

    python benchmarks/tune.py [--data FOLDER] [mnist-50] [mnist-100] [ar-300] [flowers-10]

The settings are chosen by cross-validation within the gallery; the test set is used once, for the settings
chosen and, beside them, for the paper's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np

from crnr_cli.arrays import to_dense
from crnr_cli.gallery.fit import make_gallery
from crnr_cli.gallery.gallery import SampleTable
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.jobs.tune import Setting, TuneOptions, tune_samples
from crnr_cli.recipe.recipe import Recipe

DRAWS = 3


def mnist(folder: Path, per_class: int) -> list[datasets.Split]:
    """Draws of this many images per class from the 60,000, each tested on all 10,000."""
    everything = datasets.mnist(folder)
    return [datasets.draw(everything, per_class, seed) for seed in range(DRAWS)]


# The test images of AR are of another day, which no cross-validation sees.
TASKS: dict[str, tuple[Callable[[Path], list[datasets.Split]], TuneOptions]] = {
    "mnist-50": (lambda folder: mnist(folder, 50), TuneOptions()),
    "mnist-100": (lambda folder: mnist(folder, 100), TuneOptions()),
    "ar-300": (lambda folder: [datasets.ar(folder)], TuneOptions(steps={"pca": (300,)})),
    "flowers-10": (lambda folder: [datasets.flowers(folder, 10)], TuneOptions()),
}


def raw_samples(raw: np.ndarray, labels: np.ndarray) -> ReadSamples:
    names = [str(row) for row in range(len(raw))]
    texts = [f"{label:03d}" for label in labels]
    table = SampleTable(names, texts, hashes=names)  # any hashes that differ
    return ReadSamples(recipe=Recipe(raw.shape[1]), table=table, values=raw)


def accuracy(setting: Setting, split: datasets.Split) -> float:
    """Percent of the test set, with a gallery built as `tune -o` builds it."""
    raw, queries, truth = split.train, split.test, split.test_labels
    samples = raw_samples(raw, split.train_labels)
    recipe = samples.recipe.with_settings(dict(setting.vectors.steps)).fit(raw, split.train_labels)
    gallery, _ = make_gallery(samples.apply(recipe, "float32"), setting.method)
    classes = np.array([int(name) for name in gallery.classes])
    right = 0
    for start in range(0, len(queries), 500):
        vectors, _ = gallery.recipe.unit_vectors(queries[start : start + 500], "float32")
        winners = classes[to_dense(gallery.residuals(vectors)).argmin(axis=1)]
        right += int((winners == truth[start : start + 500]).sum())
    return 100 * right / len(queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    arguments = parser.parse_args()
    if unknown := set(arguments.tasks) - set(TASKS):
        parser.error(f"unknown task {', '.join(sorted(unknown))}; choose from {', '.join(TASKS)}")
    for task in arguments.tasks or TASKS:
        splits, options = TASKS[task]
        tuned, papers = [], []
        for split in splits(arguments.data):
            report = tune_samples([raw_samples(split.train, split.train_labels)], options)
            tuned.append(accuracy(report.chosen.setting, split))
            papers.append(accuracy(report.default.setting, split))
            print(
                f"{task}: chosen {report.chosen.setting.parameters()}, "
                f"cross-validated {100 * report.chosen.accuracy:.1f} "
                f"(paper's {100 * report.default.accuracy:.1f}, best {100 * report.trials[0].accuracy:.1f}), "
                f"test {tuned[-1]:.2f} (paper's {papers[-1]:.2f}), {report.seconds:.0f} s",
                flush=True,
            )
        print(f"{task}: test {np.mean(tuned):.2f} tuned, {np.mean(papers):.2f} paper's setting", flush=True)


if __name__ == "__main__":
    main()
