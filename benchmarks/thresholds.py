"""Whether a threshold that was chosen on the gallery alone reaches its accuracy on test data.

    python benchmarks/thresholds.py [DATA...] [--data FOLDER] [--draws 10] [--targets 0.9,0.95,0.98,0.99]

The threshold is the choice of `crnr info --target-accuracy`, from examples held out of the gallery; crnr has
its default settings. Test images are used for the figures alone. The rule of the confident choice was fixed
by simulations (`--simulate`), before any test image was used. The data is described in probability.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import datasets
import numpy as np
from probability import DATA, FIXED, Vectors

from crnr_cli.arrays import stack, to_dense
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.methods import Samples, fit_method, make_method
from crnr_cli.methods.base import Split, residuals_in_batches
from crnr_cli.results.probability import round_probabilities
from crnr_cli.results.thresholds import ThresholdStep, ThresholdTable, measure_steps

CHOSEN = ("mnist-50", "mnist-50-gradients", "mnist-500-gradients", "flowers-20-mixed", "flowers-20")
Figures = tuple[float, float, float, float, float]  # threshold; promised accuracy, rate; achieved ones
_N = 1000  # answers in a simulation
_DRAWS = 2000  # simulations


def measure_galleries(vectors: Vectors, jobs: int) -> tuple[ThresholdTable, np.ndarray, np.ndarray]:
    """The thresholds by the gallery alone; the probabilities of the queries, and which answers are right."""
    gallery, labels, queries, truth = vectors
    method, samples = make_method("crnr", {}), Samples.of(gallery, labels)
    calibration = calibrate(samples, method, [], jobs)
    assert calibration.certainty is not None
    assert calibration.answers is not None
    batches = residuals_in_batches(method, Split(samples, queries), fit_method(method, samples))
    residuals = to_dense(stack(list(batches)))
    probabilities = to_dense(calibration.certainty.probabilities(residuals, method.signed))
    right = residuals.argmin(axis=1) == truth
    return calibration.answers.measure(), round_probabilities(probabilities.max(axis=1)), right


def achieved(step: ThresholdStep | None, probability: np.ndarray, right: np.ndarray) -> Figures | None:
    if step is None:
        return None
    kept = probability >= step.min_probability
    return (
        step.min_probability,
        step.accuracy,
        step.answer_rate,
        float(right[kept].mean()),
        float(kept.mean()),
    )


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield (
        "| data | target | choice | draws with one | threshold | promised accuracy, answer rate | achieved | "
        "achieved accuracy, lowest | target reached |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in options.data_names or CHOSEN:
        draws = 1 if name in FIXED else options.draws
        found = [measure_galleries(DATA[name](options.data, seed), options.jobs) for seed in range(draws)]
        for target in map(float, options.targets.split(",")):
            for kind in ("confident", "estimate", "closest"):
                all_figures = [
                    achieved(getattr(table.choose_threshold(target), kind), *queries)
                    for table, *queries in found
                ]
                figures = [one for one in all_figures if one is not None]
                count = f"{len(figures)} of {draws}"
                yield f"| {name} | {target:g} | {kind} | {count} | {_cells(figures, target)} |"


def _cells(figures: list[Figures], target: float) -> str:
    if not figures:
        return "- | - | - | - | -"
    threshold, promised, rate, got, got_rate = np.mean(figures, axis=0).tolist()
    lowest = min(one[3] for one in figures)
    reached = sum(one[3] >= target for one in figures)
    return (
        f"{threshold:.3f} | {100 * promised:.2f}, {100 * rate:.1f} | {100 * got:.2f}, {100 * got_rate:.1f} | "
        f"{100 * lowest:.2f} | {reached} of {len(figures)}"
    )


def simulate(targets: list[float]) -> Iterator[str]:
    """How often the choice misses the target, if it is known which answers will be right."""
    rng = np.random.default_rng(0)

    def worthless(target: float) -> tuple[np.ndarray, np.ndarray]:
        return rng.random(_N), np.full(_N, target - 0.001)

    def calibrated(target: float) -> tuple[np.ndarray, np.ndarray]:
        probability = rng.beta(4, 0.3, size=_N)
        return probability, probability

    yield "| probabilities | target | draws with a choice | target missed | missed by the lowest threshold |"
    yield "|---|---|---|---|---|"
    draw: Callable[[float], tuple[np.ndarray, np.ndarray]]
    for draw in (worthless, calibrated):
        for target in targets:
            counts = np.zeros(3)
            for _ in range(_DRAWS):
                probability, chance = draw(target)
                table = ThresholdTable(measure_steps(probability.round(4), rng.random(_N) < chance))
                lowest = next((step for step in table.steps if step.interval[0] >= target), None)
                chosen = table.choose_threshold(target).confident
                missed = [
                    step is not None and chance[probability.round(4) >= step.min_probability].mean() < target
                    for step in (chosen, lowest)
                ]
                counts += (chosen is not None, *missed)
            has, missed_one, missed_lowest = (100 * counts / _DRAWS).tolist()
            yield (
                f"| {draw.__name__} | {target:g} | {has:.1f} % | {missed_one:.1f} % | {missed_lowest:.1f} % |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data_names", nargs="*", metavar="DATA", help=f"of {', '.join(DATA)}")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--targets", default="0.9,0.95,0.98,0.99")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    if options.simulate:
        found = simulate([float(target) for target in options.targets.split(",")])
    else:
        found = lines(options)
    for line in found:
        print(line, flush=True)


if __name__ == "__main__":
    main()
