"""Whether probabilities and sets of labels keep their promises: calibration error and coverage.

    python benchmarks/probability.py [DATA...] [--data FOLDER] [--draws 3] [--methods crnr,...]

Probabilities are calibrated on the gallery alone, as `crnr build --calibrate` does; test images are used
for the figures alone. All methods have their default settings. What the softmax is taken of, logarithms of
the residuals, was chosen with training images of MNIST, USPS and AR, and with flowers of train and valid.

Where a name ends in "elsewhere", the queries are known to differ from the gallery: other writers (USPS), or
another day (AR). "mixed" is the same data, divided at random: half of every class or, if there is a number in
the name, so many samples of every class. The official split of the flowers has the same number of samples of
every class in the gallery, but not among the queries.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import datasets
import numpy as np
from vectors import Arrays

from crnr_cli.arrays import stack, to_dense
from crnr_cli.choices import ExtractorOptions
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.methods import Samples, fit_method, make_method
from crnr_cli.methods.base import Split, residuals_in_batches
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.reliability import bin_indexes, calibration_error

LEVELS = (0.9, 0.95)
Vectors = tuple[
    np.ndarray, np.ndarray, np.ndarray, np.ndarray
]  # of the gallery, by class, and of the queries


def of_rows(split: datasets.Split) -> Vectors:
    recipe, order = Recipe(split.train.shape[1]), np.argsort(split.train_labels, kind="stable")
    gallery, _ = recipe.unit_vectors(split.train[order], "float32")
    queries, _ = recipe.unit_vectors(split.test, "float32")
    return gallery, split.train_labels[order], queries, split.test_labels


def of_gradients(split: datasets.Split, side: int) -> Vectors:
    values = Arrays.of(split, (side, side)).values(ExtractorOptions("gradients"))
    gallery, _ = values.recipe.unit_vectors(values.gallery, "float32")
    queries, _ = values.recipe.unit_vectors(values.queries[""], "float32")
    return gallery, values.labels, queries, split.test_labels


def mixed(split: datasets.Split, seed: int) -> datasets.Split:
    """Half of every class in the gallery, the others as queries, wherever they come from."""
    rows = np.concatenate([split.train, split.test])
    labels = np.concatenate([split.train_labels, split.test_labels])
    rng = np.random.default_rng(seed)
    is_kept = np.zeros(len(rows), dtype=bool)
    for label in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == label))
        is_kept[own[: len(own) // 2]] = True
    return datasets.Split(rows[is_kept], labels[is_kept], rows[~is_kept], labels[~is_kept])


def redrawn(split: datasets.Split, per_class: int, seed: int) -> datasets.Split:
    """As many samples per class in the gallery, drawn from all; the others are queries."""
    rows = np.concatenate([split.train, split.test])
    labels = np.concatenate([split.train_labels, split.test_labels])
    rng = np.random.default_rng(seed)
    is_kept = np.zeros(len(rows), dtype=bool)
    for label in np.unique(labels):
        is_kept[rng.permutation(np.flatnonzero(labels == label))[:per_class]] = True
    return datasets.Split(rows[is_kept], labels[is_kept], rows[~is_kept], labels[~is_kept])


def part(folder: Path, name: str) -> datasets.Split:
    """Only the flowers that the official split has for training (train and valid), or those for tests."""
    split = datasets.flowers(folder, 20)
    rows, labels = getattr(split, name), getattr(split, f"{name}_labels")
    return datasets.Split(rows, labels, rows[:0], labels[:0])


def usps_pixels(folder: Path) -> datasets.Split:
    split = datasets.usps(folder)
    return datasets.Split(_grey(split.train), split.train_labels, _grey(split.test), split.test_labels)


def _grey(values: np.ndarray) -> np.ndarray:
    return np.round(255 * values).astype(np.uint8)


DATA: dict[str, Callable[[Path, int], Vectors]] = {
    "mnist-50": lambda folder, seed: of_rows(datasets.draw(datasets.mnist(folder), 50, seed)),
    "mnist-500": lambda folder, seed: of_rows(datasets.draw(datasets.mnist(folder), 500, seed)),
    "mnist-50-gradients": lambda folder, seed: of_gradients(
        datasets.draw(datasets.mnist(folder), 50, seed), 28
    ),
    "mnist-500-gradients": lambda folder, seed: of_gradients(
        datasets.draw(datasets.mnist(folder), 500, seed), 28
    ),
    "flowers-10": lambda folder, seed: of_rows(datasets.flowers(folder, 10)),
    "flowers-20": lambda folder, seed: of_rows(datasets.flowers(folder, 20)),
    "flowers-mixed": lambda folder, seed: of_rows(mixed(datasets.flowers(folder, 20), seed)),
    "flowers-20-mixed": lambda folder, seed: of_rows(redrawn(datasets.flowers(folder, 20), 20, seed)),
    "flowers-10-of-train": lambda folder, seed: of_rows(redrawn(part(folder, "train"), 10, seed)),
    "flowers-10-of-test": lambda folder, seed: of_rows(redrawn(part(folder, "test"), 10, seed)),
    "ar-mixed": lambda folder, seed: of_rows(mixed(datasets.ar(folder), seed)),
    "ar-elsewhere": lambda folder, seed: of_rows(datasets.ar(folder)),
    "usps-mixed": lambda folder, seed: of_rows(mixed(datasets.usps(folder), seed)),
    "usps-elsewhere": lambda folder, seed: of_rows(datasets.draw(datasets.usps(folder), 100, seed)),
    "usps-elsewhere-gradients": lambda folder, seed: of_gradients(
        datasets.draw(usps_pixels(folder), 100, seed), 16
    ),
}
FIXED = {"flowers-10", "flowers-20", "ar-elsewhere"}  # without anything random


def measured(vectors: Vectors, method_name: str, jobs: int) -> tuple[list[float], str]:
    """The figures of one gallery, and the interval of the calibration error."""
    gallery, labels, queries, truth = vectors
    method, samples = make_method(method_name, {}), Samples.of(gallery, labels)
    certainty = calibrate(samples, method, [], jobs).certainty
    assert certainty is not None
    batches = residuals_in_batches(method, Split(samples, queries), fit_method(method, samples))
    residuals = to_dense(stack(list(batches)))
    probabilities = to_dense(certainty.probabilities(residuals, method.signed))
    best = residuals.argmin(axis=1)
    right, of_best = best == truth, np.round(probabilities.max(axis=1), 4)
    error, (low, high) = calibration_error(of_best, right, bin_indexes(of_best))
    figures = [float(right.mean()), float(of_best.mean()), error]
    for level in LEVELS:
        kept = probabilities >= certainty.least_probability(level)
        has_truth = kept[np.arange(len(truth)), truth]
        by_class = [float(has_truth[truth == label].mean()) for label in np.unique(truth)]
        figures += [float(has_truth.mean()), float(kept.sum(axis=1).mean()), float(np.mean(by_class))]
    return figures, f"{low:.4f} to {high:.4f}"


def lines(options: argparse.Namespace) -> Iterator[str]:
    sets = "sets at 90 %: coverage, labels (coverage if every class counts the same) | at 95 %"
    yield f"| data | method | accuracy | mean probability | calibration error | {sets} |"
    yield "|---|---|---|---|---|---|---|"
    for name in options.data_names or DATA:
        for method in options.methods.split(","):
            draws = 1 if name in FIXED else options.draws
            found = [measured(DATA[name](options.data, seed), method, options.jobs) for seed in range(draws)]
            figures = np.array([one for one, _ in found])
            right, said, error, *of_sets = figures.mean(axis=0).tolist()
            low, high = figures[:, 2].min(), figures[:, 2].max()
            spread = f"95 % {found[0][1]}" if draws == 1 else f"{low:.4f} to {high:.4f} in {draws} draws"
            yield (
                f"| {name} | {method} | {100 * right:.2f} | {100 * said:.2f} | {error:.4f} ({spread}) | "
                f"{_cell(of_sets[:3])} | {_cell(of_sets[3:])} |"
            )


def _cell(figures: Sequence[float]) -> str:
    coverage, labels, by_class = figures
    return f"{100 * coverage:.1f}, {labels:.2f} ({100 * by_class:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data_names", nargs="*", metavar="DATA", help=f"of {', '.join(DATA)}; all by default")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", default="crnr")
    parser.add_argument("--jobs", type=int, default=1)
    for line in lines(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
