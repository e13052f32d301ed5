"""Which answers to review first: how much a gallery gains from the first 20, 50 and 100 of each order.

    python benchmarks/review.py [--data FOLDER] [--draws 10]

A gallery with few examples per class answers queries. A reviewer gives the first answers of an order their
true class, they become examples, and other images are classified. The orders are those of `crnr review
--order doubtful` (smallest margin first) and `--order diverse`, and a random one. "Bursts" repeats every
query five times with slight noise, as a camera trap does; the copies count as answers of their own.

Settings are the defaults. The number of examples and the pool of `--order diverse` were fixed before the
first run. Flowers 102 are features of EfficientNet-Lite0; the other two are gradients.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import datasets
import numpy as np
from vectors import Arrays, Folders

from crnr_cli.arrays import to_dense
from crnr_cli.choices import ExtractorOptions
from crnr_cli.jobs.review import choose_diverse
from crnr_cli.methods import Samples, fit_method, make_method
from crnr_cli.recipe.recipe import Recipe

REVIEWED = (20, 50, 100)
ORDERS = ("random", "doubtful", "diverse")
BURST, NOISE = 5, 0.02  # copies of a query, and the norm of the noise that tells them apart
METHOD = make_method("crnr", {})


@dataclass(frozen=True)
class Task:
    """Unit vectors and their classes: the gallery, the answers to review, and the images to score on."""

    gallery: np.ndarray
    labels: np.ndarray
    queries: np.ndarray
    truths: np.ndarray
    test: np.ndarray
    test_truths: np.ndarray

    def in_bursts(self, rng: np.random.Generator) -> Task:
        queries = np.repeat(self.queries, BURST, axis=0)
        noise = rng.normal(size=queries.shape) * NOISE / np.sqrt(queries.shape[1])
        queries = queries + noise
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        return replace(self, queries=queries.astype(np.float32), truths=np.repeat(self.truths, BURST))


@dataclass(frozen=True)
class Pictures:
    """Unit vectors of all images of a data set; those to score on may be a set of their own."""

    vectors: np.ndarray
    labels: np.ndarray
    test: np.ndarray | None
    test_labels: np.ndarray | None
    per_class: int  # examples of each class in the gallery
    n_queries: int

    def draw(self, rng: np.random.Generator) -> Task:
        chosen = np.concatenate(
            [
                rng.choice(np.flatnonzero(self.labels == label), self.per_class, replace=False)
                for label in np.unique(self.labels)
            ]
        )
        others = rng.permutation(np.setdiff1d(np.arange(len(self.labels)), chosen))
        asked, rest = np.split(others, [self.n_queries])
        test, test_labels = self.vectors[rest], self.labels[rest]
        if self.test is not None and self.test_labels is not None:
            test, test_labels = self.test, self.test_labels
        return Task(
            self.vectors[chosen],
            self.labels[chosen],
            self.vectors[asked],
            self.labels[asked],
            test,
            test_labels,
        )


def residuals(vectors: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> np.ndarray:
    order = np.argsort(labels, kind="stable")
    samples = Samples.of(vectors[order], labels[order])
    state = fit_method(METHOD, samples)
    parts = np.array_split(queries, max(1, len(queries) // 500))
    return np.concatenate([to_dense(METHOD.residuals(samples, state, part)) for part in parts])


def reviewed_first(task: Task, order: str, rng: np.random.Generator) -> np.ndarray:
    if order == "random":
        return rng.permutation(len(task.queries))[: REVIEWED[-1]]
    best, second = np.sort(residuals(task.gallery, task.labels, task.queries), axis=1)[:, :2].T
    doubtful = np.argsort(1 - best / second, kind="stable")
    if order == "doubtful":
        return doubtful[: REVIEWED[-1]]
    return doubtful[choose_diverse(task.queries[doubtful], REVIEWED[-1])]


def accuracies(task: Task, order: str, rng: np.random.Generator) -> list[float]:
    """Return the accuracy before the review, and after each number of reviewed answers."""
    first = reviewed_first(task, order, rng)
    found = []
    for count in (0, *REVIEWED):
        some = first[:count]
        vectors = np.concatenate([task.gallery, task.queries[some]])
        labels = np.concatenate([task.labels, task.truths[some]])
        winners = residuals(vectors, labels, task.test).argmin(axis=1)
        found.append(100 * float((winners == task.test_truths).mean()))
    return found


def mnist(folder: Path) -> Pictures:
    split = datasets.mnist(folder)
    rows = slice(None, None, 10)  # 6,000 to draw from, 2,000 to score on
    few = datasets.Split(split.train[rows], split.train_labels[rows], split.test[::5], split.test_labels[::5])
    values = Arrays.of(few, (28, 28)).values(ExtractorOptions("gradients"))
    vectors, test = (
        values.recipe.unit_vectors(one, "float32")[0] for one in (values.gallery, values.queries[""])
    )
    return Pictures(vectors, values.labels, test, values.truths[""], per_class=5, n_queries=1000)


def flowers12(folder: Path) -> Pictures:
    parts = (datasets.find(folder, f"flowers12/{part}") for part in ("train", "test"))
    values = Folders(*parts).values(ExtractorOptions("gradients"))
    raw = np.concatenate([values.gallery, values.queries[""]])
    labels = np.concatenate([values.labels, values.truths[""]])
    return Pictures(
        values.recipe.unit_vectors(raw, "float32")[0], labels, None, None, per_class=3, n_queries=132
    )


def flowers102(folder: Path) -> Pictures:
    split = datasets.flowers(folder, 20)
    recipe = Recipe(split.train.shape[1])
    vectors, test = (recipe.unit_vectors(one, "float32")[0] for one in (split.train, split.test[::3]))
    return Pictures(vectors, split.train_labels, test, split.test_labels[::3], per_class=3, n_queries=1000)


SETS: dict[str, Callable[[Path], Pictures]] = {
    "MNIST": mnist,
    "flowers12": flowers12,
    "flowers 102": flowers102,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--draws", type=int, default=10)
    arguments = parser.parse_args()
    print(f"| images | order | before | {' | '.join(map(str, REVIEWED))} |")
    print("|---|---|---|" + "---|" * len(REVIEWED))
    for name, read in SETS.items():
        pictures = read(arguments.data)
        for is_burst in (False, True):
            found: dict[str, list[list[float]]] = {order: [] for order in ORDERS}
            for draw in range(arguments.draws):
                task = pictures.draw(np.random.default_rng(draw))
                if is_burst:
                    task = task.in_bursts(np.random.default_rng(draw))
                for order in ORDERS:
                    found[order].append(accuracies(task, order, np.random.default_rng(draw)))
            doubtful = np.array(found["doubtful"])
            for order, values in found.items():
                means = np.mean(values, axis=0)
                # The error of the mean difference from the same draws with the order doubtful.
                errors = np.std(np.array(values) - doubtful, axis=0, ddof=1) / np.sqrt(arguments.draws)
                cells = [f"{mean:.2f}" for mean in means]
                if order != "doubtful":
                    cells[1:] = [f"{m:.2f} ± {e:.2f}" for m, e in zip(means[1:], errors[1:], strict=True)]
                print(
                    f"| {name}{', bursts' if is_burst else ''} | {order} | {' | '.join(cells)} |", flush=True
                )


if __name__ == "__main__":
    main()
