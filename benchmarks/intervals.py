"""How often the 95 % intervals of macro scores contain the true score, by simulation.

    python benchmarks/intervals.py [--replicates 1000] [--methods crnr,delta,bootstrap] [--other] [--all]

The true score is that of a known table of confusion probabilities, with equally many queries of every class.
Each replicate draws a test set from the table, and an interval is computed from it. Cells of the grid are
classes x queries per class x accuracy x kind of confusions. A good interval has a coverage near 95 % in all
cells. `crnr` is the interval of the reports; the others are common alternatives.

The form of `crnr` was chosen on nearly this grid: among 16 candidates that differ in the weight of the
smoothing (half a query per class to 4) and in what is corrected. `--other` has a grid with no part in it.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
from scipy.stats import norm

from crnr_cli.arrays import Array
from crnr_cli.results.intervals import macro_intervals
from crnr_cli.results.scores import Interval, score

CLASSES = (2, 3, 5, 10, 20, 50, 100, 200)
QUERIES = (2, 3, 5, 10, 30, 100)
ACCURACIES = (0.5, 0.7, 0.9, 0.97)
OTHER = ((4, 7, 15, 40, 150), (2, 4, 7, 20, 50), (0.6, 0.8, 0.95))  # another grid
MAX_QUERIES = 2000  # in a test set; with more, cells take long and are easy
SCORES = ("recall", "f1")
DRAWS = 300  # of a bootstrap
Z = 1.959963984540054


def uniform(k: int, accuracy: float) -> Array:
    """Every wrong label is equally likely."""
    return _with_errors(np.full(k, 1 - accuracy))


def hard(k: int, accuracy: float) -> Array:
    """A fifth of the classes have three times as many errors."""
    error, n_hard = 1 - accuracy, max(1, k // 5)
    of_hard = min(0.9, 3 * error, (error * k - (k - n_hard) * error / 4) / n_hard)
    errors = np.full(k, (error * k - n_hard * of_hard) / (k - n_hard))
    errors[:n_hard] = of_hard
    return _with_errors(errors)


def sink(k: int, accuracy: float) -> Array:
    """Every wrong label is the first class."""
    table = uniform(k, accuracy)
    table[1:] = 0
    table[1:, 0] = 1 - accuracy
    table[range(k), range(k)] = accuracy
    return table


def twins(k: int, accuracy: float) -> Array:
    """Every class is confused with one other."""
    table = np.eye(k) * accuracy
    for i in range(k):
        table[i, i ^ 1 if i ^ 1 < k else 0] += 1 - accuracy
    return table


def _with_errors(errors: Array) -> Array:
    k = len(errors)
    table = np.repeat((errors / (k - 1))[:, None], k, axis=1)
    table[range(k), range(k)] = 1 - errors
    return table


KINDS: dict[str, Callable[[int, float], Array]] = {
    "uniform": uniform,
    "hard": hard,
    "sink": sink,
    "twins": twins,
}


def macro(counts: Array, name: str) -> Array:
    """The macro score of a table of counts or probabilities, or of many tables."""
    hits = np.diagonal(counts, axis1=-2, axis2=-1)
    support, predicted = counts.sum(axis=-1), counts.sum(axis=-2)
    part, whole = (2 * hits, support + predicted) if name == "f1" else (hits, support)
    values = np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)
    mean: Array = np.nanmean(values, axis=-1)
    return mean


Found = dict[tuple[str, str], Interval]  # by method and score


def crnr(counts: Array, rng: np.random.Generator) -> Found:
    rows, columns = np.nonzero(counts)
    times = counts[rows, columns]
    truths, labels = (np.repeat(part, times).astype(str).tolist() for part in (rows, columns))
    found = macro_intervals(score(truths, labels))
    return {("crnr", name): getattr(found, name) for name in SCORES}


def delta(counts: Array, rng: np.random.Generator) -> Found:
    """The delta method of Takahashi et al. (queries drawn from all classes), also on the logit scale."""
    n = counts.sum()
    value = float(macro(counts, "f1"))
    slope = np.zeros(counts.shape)
    for i, j in np.argwhere(counts > 0):
        step = np.zeros(counts.shape)
        step[i, j] = 1e-4
        slope[i, j] = (macro(counts + step, "f1") - macro(counts - step, "f1")) / 2e-4
    shares = counts / n
    variance = n * float((shares * slope**2).sum() - (shares * slope).sum() ** 2)
    half = Z * math.sqrt(max(0.0, variance))
    logit = (value, value)
    if 0 < value < 1:
        centre, width = math.log(value / (1 - value)), half / (value * (1 - value))
        logit = 1 / (1 + math.exp(width - centre)), 1 / (1 + math.exp(-width - centre))
    return {("delta", "f1"): (value - half, value + half), ("delta, logit", "f1"): logit}


def bootstrap(counts: Array, rng: np.random.Generator) -> Found:
    """Queries drawn again with replacement, from all (percentile, basic, BCa) or by class (stratified)."""
    n, value = int(counts.sum()), float(macro(counts, "f1"))
    cells = np.flatnonzero(counts)
    drawn = np.zeros((DRAWS, counts.size))
    drawn[:, cells] = rng.multinomial(n, counts.ravel()[cells] / n, size=DRAWS)
    values = np.sort(macro(drawn.reshape(DRAWS, *counts.shape), "f1"))
    by_class = [rng.multinomial(row.sum(), row / row.sum(), size=DRAWS) for row in counts]
    stratified = macro(np.stack(by_class, axis=1), "f1")
    low, high = np.quantile(values, [0.025, 0.975]).tolist()
    left_out = []
    for cell in cells:
        less = counts.ravel().copy()
        less[cell] -= 1
        left_out += [float(macro(less.reshape(counts.shape), "f1"))] * int(counts.ravel()[cell])
    away = np.mean(left_out) - np.array(left_out)
    spread = 6 * float((away**2).sum()) ** 1.5
    acceleration = float((away**3).sum()) / spread if spread else 0.0
    below = ((values < value).mean() + (values <= value).mean()) / 2
    shift = norm.ppf(np.clip(below, 0.5 / DRAWS, 1 - 0.5 / DRAWS))
    ends = [norm.cdf(shift + (shift + z) / (1 - acceleration * (shift + z))) for z in (-Z, Z)]
    return {
        ("percentile", "f1"): (low, high),
        ("basic", "f1"): (2 * value - high, 2 * value - low),
        ("BCa", "f1"): tuple(np.quantile(values, ends).tolist()),
        ("stratified", "f1"): tuple(np.quantile(stratified, [0.025, 0.975]).tolist()),
    }


METHODS = {"crnr": crnr, "delta": delta, "bootstrap": bootstrap}


def drawn_sets(table: Array, n: int, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """Confusion matrices of test sets with `n` queries per class."""
    for _ in range(count):
        yield np.stack([rng.multinomial(n, row) for row in table])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--methods", default="crnr", help=f"some of {','.join(METHODS)}")
    parser.add_argument("--other", action="store_true", help="another grid")
    parser.add_argument("--all", action="store_true", help="print every cell of the grid")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    covered: dict[tuple[str, str], list[float]] = defaultdict(list)
    excluded: dict[tuple[str, str], int] = defaultdict(int)
    classes, queries, accuracies = OTHER if options.other else (CLASSES, QUERIES, ACCURACIES)
    by_size: dict[tuple[int, int], list[float]] = defaultdict(list)  # of our macro F1
    cells = [
        (kind, k, n, accuracy)
        for kind in KINDS
        for k in classes
        for n in queries
        for accuracy in accuracies
        if k * n <= MAX_QUERIES
    ]
    for kind, k, n, accuracy in cells:
        table = KINDS[kind](k, accuracy)
        true = {name: float(macro(table, name)) for name in SCORES}
        hits: dict[tuple[str, str], int] = defaultdict(int)
        observed = []
        for counts in drawn_sets(table, n, options.replicates, rng):
            values = {name: float(macro(counts, name)) for name in SCORES}
            observed.append(values["f1"])
            for method in options.methods.split(","):
                for key, (low, high) in METHODS[method](counts, rng).items():
                    hits[key] += low - 1e-12 <= true[key[1]] <= high + 1e-12
                    excluded[key] += not low - 1e-12 <= values[key[1]] <= high + 1e-12
        for key, count in hits.items():
            share = count / options.replicates
            covered[key].append(share)
            if key == ("crnr", "f1"):
                by_size[k, n].append(share)
            if options.all or (key == ("crnr", "f1") and not 0.93 <= share <= 0.97):
                cell = f"{key[0]}, {key[1]}: {kind:8s} {k:4d} classes x {n:3d}, accuracy {accuracy:.2f}"
                bias, deviation = np.mean(observed) - true["f1"], np.std(observed)
                facts = f"F1 {true['f1']:.3f}, bias {bias:+.4f}, deviation {deviation:.4f}"
                print(f"{cell}: {100 * share:5.1f} %   ({facts})", flush=True)
    print("\nmacro F1, mean over accuracies and kinds of confusions, by classes and queries per class, in %")
    print(f"{'':8}" + "".join(f"{n:8d}" for n in queries))
    for k in classes:
        shares = [f"{100 * np.mean(by_size[k, n]):.1f}" if (k, n) in by_size else "" for n in queries]
        print(f"{k:8d}" + "".join(f"{share:>8}" for share in shares))
    print(f"\n{len(cells)} cells, {options.replicates} replicates each")
    for key, found in covered.items():
        each = np.array(found)
        print(
            f"{key[0]:12s} {key[1]:9s} mean {100 * each.mean():5.1f} %, lowest {100 * each.min():5.1f}, "
            f"highest {100 * each.max():5.1f}; below 93 in {100 * (each < 0.93).mean():.0f} % of cells, "
            f"above 97 in {100 * (each > 0.97).mean():.0f} %; "
            f"the score itself excluded {excluded[key]} times"
        )


if __name__ == "__main__":
    main()
