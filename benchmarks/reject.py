"""One digit left out of the gallery: how much of that digit `classify --reject` turns away.

    python benchmarks/reject.py [mnist | usps] [--data FOLDER] [--rate 0.05] [--per-class 100]

For each digit a gallery of the nine others is made; the threshold is learnt from it alone. All test
images are queries: those of the left-out digit should be rejected, the others should not.

What the threshold is put on, and in how many parts it is calibrated, was chosen by such figures on MNIST's
test images, which are therefore somewhat favoured. USPS had no part in that choice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import datasets
import numpy as np

from crnr_cli.arrays import to_dense
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.methods import Samples
from crnr_cli.methods.nonnegative import Crnr
from crnr_cli.recipe.recipe import Recipe, make_steps
from crnr_cli.results.decision import standout

SETTINGS = {
    "the paper's": (Crnr(), 1.0),
    "as tuned for MNIST": (Crnr(lam=3.0, mu=0.1), 0.5),  # what benchmarks/tune.py finds at 50 a class
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("dataset", nargs="?", choices=("mnist", "usps"), default="mnist")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--per-class", type=int, default=100)
    options = parser.parse_args()
    data = (datasets.mnist if options.dataset == "mnist" else datasets.usps)(options.data)
    pixels, digits, queries, truth = data.train, data.train_labels, data.test, data.test_labels
    for name, (method, power) in SETTINGS.items():
        recipe = Recipe(pixels.shape[1], steps=make_steps({"power": power}))
        vectors, _ = recipe.unit_vectors(queries, "float32")
        rows = []
        for left_out in range(10):
            rng = np.random.default_rng(left_out)
            kept = [k for k in range(10) if k != left_out]
            drawn = [rng.choice(np.flatnonzero(digits == k), options.per_class, replace=False) for k in kept]
            gallery, _ = recipe.unit_vectors(pixels[np.concatenate(drawn)], "float32")
            samples = Samples.of(gallery, np.repeat(np.arange(9), options.per_class))
            least = calibrate(samples, method, []).min_standout(options.rate)
            state = method.fit(samples)
            parts = np.array_split(vectors, 20)
            residuals = np.concatenate([to_dense(method.residuals(samples, state, part)) for part in parts])
            rejected = standout(residuals) < least
            right = np.array(kept)[residuals.argmin(axis=1)] == truth
            known = truth != left_out
            rows.append(
                (
                    rejected[~known].mean(),
                    rejected[known].mean(),
                    right[known].mean(),
                    right[known & ~rejected].mean(),
                )
            )
            print(
                f"{name}, without {left_out}: {100 * rows[-1][0]:.1f} % of it rejected, "
                f"{100 * rows[-1][1]:.1f} % of the others (asked for {100 * options.rate:g})",
                flush=True,
            )
        of_unknown, of_known, before, after = 100 * np.mean(rows, axis=0)
        print(
            f"{name}, mean: {of_unknown:.1f} % of that digit rejected, {of_known:.1f} % of the others; "
            f"accuracy on the others {before:.2f} %, of those kept {after:.2f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
