"""How many more queries get an answer with broader classes, and how many of the answers are right.

    python benchmarks/taxa.py [DATA...] [--data FOLDER] [--draws 5] [--min-probability 0.9]

The tables of parents were written before any query was classified: digits by their shape, and flowers by
their botanical family. No class of any table contains all classes of the gallery, so queries can still be
rejected. crnr has its default settings, and is calibrated by the gallery alone. A tree with the same sizes,
but with the classes in random places, shows what the meaning of the tree is worth. The data is described in
probability.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import datasets
import h5py
import numpy as np
from probability import DATA, FIXED, Vectors

from crnr_cli.arrays import stack, to_dense
from crnr_cli.gallery.calibration import calibrate
from crnr_cli.methods import Samples, fit_method, make_method
from crnr_cli.methods.base import Split, residuals_in_batches
from crnr_cli.results.probability import round_probabilities
from crnr_cli.results.taxa import BroaderClasses, Taxa

CHOSEN = ("mnist-50", "mnist-50-gradients", "flowers-20")
DIGITS = {"loop": "0 6 8 9", "bow": "2 3 5", "straight": "1 4 7"}
# Families with two or more of the flowers; the others have no broader class.
FAMILIES = {
    "Amaryllidaceae": "cape flower, daffodil, hippeastrum",
    "Apiaceae": "alpine sea holly, great masterwort",
    "Apocynaceae": "desert-rose, frangipani",
    "Araceae": "anthurium, giant white arum lily",
    "Asteraceae": "artichoke, barbeton daisy, bishop of llandaff, black-eyed susan, blanket flower, "
    "colt's foot, common dandelion, english marigold, gazania, globe thistle, marigold, mexican aster, "
    "orange dahlia, osteospermum, oxeye daisy, pink-yellow dahlia, purple coneflower, spear thistle, "
    "sunflower",
    "Brassicaceae": "wallflower, watercress",
    "Bromeliaceae": "ball moss, bromelia",
    "Campanulaceae": "balloon flower, canterbury bells",
    "Caryophyllaceae": "carnation, sweet william",
    "Convolvulaceae": "morning glory, silverbush",
    "Gentianaceae": "bolero deep blue, stemless gentian",
    "Geraniaceae": "geranium, pelargonium",
    "Iridaceae": "bearded iris, blackberry lily, spring crocus, sword lily, yellow iris",
    "Liliaceae": "fire lily, fritillary, tiger lily, toad lily",
    "Malvaceae": "hibiscus, mallow, tree mallow",
    "Onagraceae": "gaura, pink primrose",
    "Orchidaceae": "hard-leaved pocket orchid, moon orchid, ruby-lipped cattleya",
    "Papaveraceae": "californian poppy, corn poppy, tree poppy",
    "Plantaginaceae": "foxglove, snapdragon",
    "Primulaceae": "cyclamen, primula",
    "Ranunculaceae": "buttercup, clematis, columbine, globe-flower, japanese anemone, lenten rose, "
    "love in the mist, monkshood, windflower",
    "Solanaceae": "petunia, thorn apple",
    "Zingiberaceae": "cautleya spicata, red ginger, siam tulip",
}


def name_classes(data: str, folder: Path) -> list[str]:
    """The names of the classes by their numbers."""
    if data.startswith("mnist"):
        return list("0123456789")
    with h5py.File(datasets.find(folder, "flower102_features.h5")) as file:
        _, places = np.unique(file["class_id"][()], return_index=True)
        return list(file["labels"].asstr()[()][places])


def make_table(data: str, classes: list[str]) -> Taxa:
    groups = (
        {name: below.split() for name, below in DIGITS.items()}
        if data.startswith("mnist")
        else {name: below.split(", ") for name, below in FAMILIES.items()}
    )
    parents = {one: name for name, below in groups.items() for one in below}
    assert set(parents) <= set(classes), set(parents) - set(classes)
    return Taxa(Path("taxa.csv"), {**dict.fromkeys(groups, ""), **parents})


def shuffle(taxa: Taxa, classes: list[str], seed: int) -> Taxa:
    """The same tree with the classes in random places."""
    order = np.random.default_rng(seed).permutation(classes).tolist()
    other = dict(zip(classes, order, strict=True))
    return Taxa(taxa.path, {other.get(name, name): parent for name, parent in taxa.parents.items()})


def find_probabilities(vectors: Vectors, jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of the queries, and their true classes."""
    gallery, labels, queries, truth = vectors
    method, samples = make_method("crnr", {}), Samples.of(gallery, labels)
    certainty = calibrate(samples, method, [], jobs).certainty
    assert certainty is not None
    batches = residuals_in_batches(method, Split(samples, queries), fit_method(method, samples))
    return to_dense(certainty.probabilities(stack(list(batches)), method.signed)), truth


def count_answers(
    probabilities: np.ndarray, truth: np.ndarray, broader: BroaderClasses, least: float
) -> list[float]:
    """Shares: exact answers, right ones among them; broader answers, right ones; both, right ones."""
    n = len(truth)
    is_exact = round_probabilities(probabilities.max(axis=1)) >= least
    exact_right = (probabilities.argmax(axis=1) == truth)[is_exact]
    places, _ = broader.choose(probabilities[~is_exact], least)
    has_broader = places >= 0
    below = broader.membership.toarray()[truth[~is_exact][has_broader], places[has_broader]] > 0
    right = np.concatenate([exact_right, below])
    return [
        *(len(exact_right) / n, exact_right.mean()),
        *(len(below) / n, below.mean() if len(below) else np.nan),
        *(len(right) / n, right.mean()),
    ]


def lines(options: argparse.Namespace) -> Iterator[str]:
    yield "| data | tree | exact: answer rate, accuracy | broader: answer rate, accuracy | both |"
    yield "|---|---|---|---|---|"
    for name in options.data_names or CHOSEN:
        classes = name_classes(name, options.data)
        taxa = make_table(name, classes)
        figures: dict[str, list[list[float]]] = {"by shape or family": [], "random": []}
        for seed in range(1 if name in FIXED else options.draws):
            found = find_probabilities(DATA[name](options.data, seed), options.jobs)
            for tree, table in zip(figures, (taxa, shuffle(taxa, classes, seed)), strict=True):
                broader = BroaderClasses.of(table, classes)
                figures[tree].append(count_answers(*found, broader, options.min_probability))
        for tree, draws in figures.items():
            shares = [f"{100 * share:.1f}" for share in np.nanmean(draws, axis=0)]
            yield (
                f"| {name} | {tree} | "
                + " | ".join(map(", ".join, zip(shares[::2], shares[1::2], strict=True)))
                + " |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data_names", nargs="*", metavar="DATA", help=f"of {', '.join(DATA)}")
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--min-probability", type=float, default=0.9)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    for line in lines(options):
        print(line, flush=True)


if __name__ == "__main__":
    main()
