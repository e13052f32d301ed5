"""Whitening within classes: accuracy with and without it, and whether calibrations keep their promises.

    python benchmarks/whiten.py [TABLE...] [--data FOLDER] [--draws 10]

The tables are accuracy, covered, mu, calibration, tiles and updates.

Vectors are gradients with their default settings. crnr has lam 0.01 and 5 iterations, with mu 0.1 on plain
vectors and mu 1 on whitened ones. rho 0.9 was chosen with galleries and queries of MNIST and USPS in view,
and with sets of faces and objects that are not measured here, but without AR and flowers12. Queries are every
fifth test image of MNIST and USPS, the clean images of day 2 of AR, and the images of flowers12 that are not
in the gallery. A line of AR has all choices of so many of the seven clean images of day 1, and the divisions
of flowers12 are random, twice as many as the draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations, pairwise
from pathlib import Path

import datasets
import numpy as np
from vectors import SAMPLE_DATA, Arrays, Folders, Images, Values, ar_occluded

from crnr_cli.arrays import stack, to_dense
from crnr_cli.choices import ExtractorOptions
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.methods import Method, Samples, fit_method, make_method
from crnr_cli.methods.base import RefittedSamples, Split, residuals_in_batches
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.results.decision import standout
from crnr_cli.results.reliability import bin_indexes, calibration_error

RHO = 0.9
PLAIN, WHITENED = make_method("crnr", {}), make_method("crnr", {"mu": 1.0})
REJECTED = 0.05


@dataclass(frozen=True)
class Problem:
    """Gradients of a gallery and of queries, with their classes as numbers."""

    recipe: Recipe  # without steps
    gallery: np.ndarray
    labels: np.ndarray
    queries: np.ndarray
    truths: np.ndarray

    @classmethod
    def of(cls, values: Values, queries: str = "") -> Problem:
        return cls(
            values.recipe, values.gallery, values.labels, values.queries[queries], values.truths[queries]
        )

    def of_rows(self, rows: np.ndarray) -> Problem:
        """The same queries with some samples of the gallery."""
        return Problem(self.recipe, self.gallery[rows], self.labels[rows], self.queries, self.truths)

    def fit(self, rho: float) -> Recipe:
        return self.recipe.with_settings({"whiten": rho}).fit(self.gallery, self.labels)

    def residuals(self, recipe: Recipe, method: Method) -> np.ndarray:
        samples = Samples.of(recipe.unit_vectors(self.gallery, "float32")[0], self.labels)
        split = Split(samples, recipe.unit_vectors(self.queries, "float32")[0])
        return to_dense(stack(list(residuals_in_batches(method, split, fit_method(method, samples)))))

    def accuracy(self, recipe: Recipe, method: Method) -> float:
        return 100 * float((self.residuals(recipe, method).argmin(axis=1) == self.truths).mean())


# --- Data


def gradients_of(images: Images) -> Values:
    return images.values(ExtractorOptions("gradients"))


@cache
def digits(name: str, folder: Path) -> datasets.Split:
    split = {"MNIST": datasets.mnist, "USPS": datasets.usps}[name](folder)
    return datasets.Split(split.train, split.train_labels, split.test[::5], split.test_labels[::5])


def drawn_digits(name: str, side: int, folder: Path, per_class: int, draws: int) -> Iterator[Problem]:
    for draw in range(draws):
        drawn = datasets.draw(digits(name, folder), per_class, draw)
        yield Problem.of(gradients_of(Arrays.of(drawn, (side, side))))


def chosen_faces(folder: Path, per_class: int, draws: int) -> Iterator[Problem]:
    whole = Problem.of(gradients_of(ar_occluded(folder)), "clean, day 2")
    place = np.arange(len(whole.labels)) % 7  # of the image among those of its person
    for chosen in combinations(range(7), per_class):
        yield whole.of_rows(np.isin(place, chosen))


def divided_flowers(folder: Path, per_class: int, draws: int) -> Iterator[Problem]:
    """Random divisions of all images."""
    parts = (datasets.find(folder, f"flowers12/{part}") for part in ("train", "test"))
    whole = Problem.of(gradients_of(Folders(*parts)))
    values = np.concatenate([whole.gallery, whole.queries])
    labels = np.concatenate([whole.labels, whole.truths])
    for draw in range(2 * draws):
        rng = np.random.default_rng(draw)
        rows = np.concatenate(
            [
                rng.choice(np.flatnonzero(labels == label), per_class, replace=False)
                for label in np.unique(labels)
            ]
        )
        is_query = ~np.isin(np.arange(len(labels)), rows)
        yield Problem(whole.recipe, values[rows], labels[rows], values[is_query], labels[is_query])


def one_division(gallery: Path, queries: Path) -> Iterator[Problem]:
    yield Problem.of(gradients_of(Folders(gallery, queries)))


def all_problems(folder: Path, draws: int) -> Iterator[tuple[str, Callable[[], Iterator[Problem]]]]:
    for name, side in (("MNIST", 28), ("USPS", 16)):
        for n in (2, 3, 5, 10, 20, 50):
            yield f"{name} {n}", partial(drawn_digits, name, side, folder, n, draws)
    for n in (2, 3, 5, 7):
        yield f"AR 30x42 {n}", partial(chosen_faces, folder, n, draws)
    for n in (2, 5, 10, 12):
        yield f"flowers12, divided again, {n}", partial(divided_flowers, folder, n, draws)
    flowers = folder / "flowers12"
    yield "flowers12 12", lambda: one_division(flowers / "train", flowers / "test")
    yield "`sample_data` 50", lambda: one_division(SAMPLE_DATA / "gallery", SAMPLE_DATA / "queries")


# --- Measurements


def show_accuracy(folder: Path, draws: int) -> None:
    print("| data, examples per class | galleries | plain | whitened | difference |\n|---|---|---|---|---|")
    for title, problems in all_problems(folder, draws):
        found = np.array(
            [[one.accuracy(one.fit(0), PLAIN), one.accuracy(one.fit(RHO), WHITENED)] for one in problems()]
        )
        plain, whitened = found.mean(axis=0)
        lead = found[:, 1] - found[:, 0]
        error = f" ± {lead.std(ddof=1) / np.sqrt(len(lead)):.2f}" if len(lead) > 1 else ""
        print(
            f"| {title} | {len(found)} | {plain:.2f} | {whitened:.2f} | {lead.mean():+.2f}{error} |",
            flush=True,
        )


def show_covered(folder: Path, draws: int) -> None:
    """Queries that are unlike the gallery: the seven clean images of day 1 of AR."""
    values = gradients_of(ar_occluded(folder))
    print(f"| AR 30x42 | {' | '.join(values.queries)} |\n|---|{'---|' * len(values.queries)}")
    for title, rho, method in (
        ("plain, mu 0.1", 0.0, PLAIN),
        ("plain, mu 1", 0.0, WHITENED),
        ("whitened, mu 0.1", RHO, PLAIN),
        ("whitened, mu 1", RHO, WHITENED),
    ):
        problems = [Problem.of(values, name) for name in values.queries]
        recipe = problems[0].fit(rho)
        shares = [f"{one.accuracy(recipe, method):.1f}" for one in problems]
        print(f"| {title} | {' | '.join(shares)} |", flush=True)


def show_mu(folder: Path, draws: int) -> None:
    """What whitening gains on digits without the larger mu."""
    print("| whitened, mu 0.1 | difference |\n|---|---|")
    for name, side in (("MNIST", 28), ("USPS", 16)):
        for n in (2, 5, 10):
            problems = drawn_digits(name, side, folder, n, draws)
            leads = [one.accuracy(one.fit(RHO), PLAIN) - one.accuracy(one.fit(0), PLAIN) for one in problems]
            error = np.std(leads, ddof=1) / np.sqrt(len(leads))
            print(f"| {name} {n} | {np.mean(leads):+.2f} ± {error:.2f} |", flush=True)


def show_calibration(folder: Path, draws: int) -> None:
    """With the whitening fitted to held-out examples too, and as crnr does it, without them."""
    columns = "rejected", "mean probability", "right", "calibration error"
    print(f"| data | whitening | {' | '.join(columns)} |\n|---|---|{'---|' * len(columns)}")
    for name, side in (("MNIST", 28), ("USPS", 16)):
        for n in (5, 10, 20):
            for kind in ("none", "of all", "without the held out"):
                rows = [calibrated(one, kind) for one in drawn_digits(name, side, folder, n, draws)]
                shown = " | ".join(f"{value:.1f}" for value in np.mean(rows, axis=0))
                print(f"| {name} {n} | {kind} | {shown} |", flush=True)


def calibrated(problem: Problem, kind: str) -> tuple[float, ...]:
    """All in percent: the columns of the table."""
    recipe, method = (problem.fit(0), PLAIN) if kind == "none" else (problem.fit(RHO), WHITENED)
    samples = Samples.of(recipe.unit_vectors(problem.gallery, "float32")[0], problem.labels)
    refit = recipe.refitter(samples.vectors, samples.class_index)
    if refit and kind != "of all":
        samples = RefittedSamples(samples.vectors, samples.edges, refit=refit)
    calibration = calibrate(samples, method, [])
    assert calibration.certainty is not None
    residuals = problem.residuals(recipe, method)
    best = to_dense(calibration.certainty.probabilities(residuals, method.signed)).max(axis=1)
    right = residuals.argmin(axis=1) == problem.truths
    rejected = standout(residuals, method.signed) < calibration.min_standout(REJECTED)
    error, _ = calibration_error(best, right, bin_indexes(best))
    return tuple(100 * float(value) for value in (rejected.mean(), best.mean(), right.mean(), error))


def show_tiles(folder: Path, draws: int) -> None:
    """Each tile of AR whitened by itself, compared with plain tiles."""
    values = ar_occluded(folder).values(ExtractorOptions("gradients"), "5x3")
    recipe = values.recipe.with_settings({"parts": "5x3"}).fit(values.gallery, values.labels)
    edges = recipe.part_edges
    assert edges is not None
    gallery = recipe.unit_vectors(values.gallery, "float64")[0]
    tiles = [slice(start, stop) for start, stop in pairwise(edges)]
    print(f"| tiles | {' | '.join(values.queries)} |\n|---|{'---|' * len(values.queries)}")
    for title, rho, method in (("plain", 0.0, PLAIN), ("whitened", RHO, WHITENED)):
        fitted = [
            Recipe(tile.stop - tile.start).with_settings({"whiten": rho}).fit(gallery[:, tile], values.labels)
            for tile in tiles
        ]

        def vectors(rows: np.ndarray, fitted: list[Recipe] = fitted) -> np.ndarray:
            whole = zip(fitted, tiles, strict=True)
            return np.hstack([one.unit_vectors(rows[:, tile], "float32")[0] for one, tile in whole])

        samples = Samples.of(vectors(gallery), values.labels, edges)
        state = fit_method(method, samples)
        shares = []
        for name, raw in values.queries.items():
            split = Split(samples, vectors(recipe.unit_vectors(raw, "float64")[0]))
            found = to_dense(stack(list(residuals_in_batches(method, split, state))))
            shares.append(100 * float((found.argmin(axis=1) == values.truths[name]).mean()))
        print(f"| {title} | {' | '.join(f'{share:.1f}' for share in shares)} |", flush=True)


def show_updates(folder: Path, draws: int) -> None:
    """A whitening that was fitted to half of the examples, to which the others were added later."""
    found = []
    for problem in drawn_digits("MNIST", 28, folder, 10, draws):
        half = problem.of_rows(np.arange(len(problem.labels)) % 10 < 5)
        found.append(
            [
                problem.accuracy(problem.fit(0), PLAIN),
                problem.accuracy(half.fit(RHO), WHITENED),
                problem.accuracy(problem.fit(RHO), WHITENED),
            ]
        )
    print("| MNIST 10 | plain | fitted to 5, 5 added | fitted to all |\n|---|---|---|---|")
    print(f"| | {' | '.join(f'{share:.2f}' for share in np.mean(found, axis=0))} |")


TABLES = {
    "accuracy": show_accuracy,
    "covered": show_covered,
    "mu": show_mu,
    "calibration": show_calibration,
    "tiles": show_tiles,
    "updates": show_updates,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER, help="folder with the data")
    parser.add_argument("--draws", type=int, default=10, help="random galleries of digits")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"unknown tables {', '.join(sorted(unknown))}; choose from {', '.join(TABLES)}")
    for name in options.tables or TABLES:
        TABLES[name](options.data, options.draws)
        print()


if __name__ == "__main__":
    main()
