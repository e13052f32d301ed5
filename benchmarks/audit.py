"""How well `crnr audit` finds wrong labels, beside cleanlab, and near duplicates that were planted.

    python benchmarks/audit.py labels [--data-set mnist] [--draws 5]
    python benchmarks/audit.py round [--data-set mnist] [--draws 3]
    python benchmarks/audit.py large [--data-set mnist] [--draws 3]
    python benchmarks/audit.py whole
    python benchmarks/audit.py duplicates [--choosing]

Wrong labels: 100 images per class, a share of which gets another class at random. Average precision of the
ranking of all samples, on the same vectors: crnr with its default parameters, and cleanlab's self-confidence
and normalized margin with the probabilities of a logistic regression by scikit-learn. Both use 10 folds. The
rule for the ranking of crnr was chosen on USPS.

A round of `audit --all` and `crnr correct`: of a gallery with 5% wrong labels, a person who knows the truth
checks the first 5% of the ranking. The share of the wrong labels that are right afterwards, and the
accuracy on 1,000 test images before, after, and with the true labels.

Large galleries: 400 and 800 images per class, 5% and 20% of whose labels are wrong. The ranking by all
samples, beside the ranking by neighbours, where only the most doubtful labels are compared by all. The number
of neighbours and the shares were chosen on USPS.

The whole: the time and memory of `crnr audit --all --csv` for all 60,000 training images of MNIST as PNG
files, 5% of whose labels are wrong, and how well they are ranked.

Duplicates: up to 200 altered copies among the images of a data set, in the default vectors. The thresholds
were chosen on MNIST's test images and on the first 6 classes of the flowers (--choosing), and are tested on
MNIST's training images and on the other 6 classes.
"""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import datasets
import numpy as np
from neighbors import crnr, write_images
from PIL import Image, ImageEnhance
from vectors import Arrays, Vectors, made

from crnr_cli.arrays import to_dense
from crnr_cli.choices import ExtractorOptions
from crnr_cli.gallery import suspects
from crnr_cli.gallery.duplicates import find_near_pairs, group_pairs, read_looks
from crnr_cli.gallery.samples import Reading, read_samples
from crnr_cli.gallery.suspects import (
    Comparison,
    Folds,
    compare_samples,
    find_suspects,
    rank_labels,
    residuals_without_doubtful_labels,
    score_doubts,
)
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import Samples, fit_method
from crnr_cli.methods.base import Split, residuals_in_batches
from crnr_cli.methods.nonnegative import Crnr
from crnr_cli.sources.opening import open_source

PER_CLASS = 100
SHARES = (0.05, 0.1, 0.2)
SIZES = {"mnist": (28, 28), "usps": (16, 16)}
KINDS = ("recompressed", "resized", "cropped", "brightness")
PLANTED = 200
TESTED = 1000


def spoilt(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """The labels, of which this share is replaced by another class at random."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(labels), round(share * len(labels)), replace=False)
    n_classes = int(labels.max()) + 1
    wrong = labels.copy()
    wrong[rows] = (wrong[rows] + rng.integers(1, n_classes, len(rows))) % n_classes
    return wrong


def by_crnr(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """The score of every sample, and a mask of the labels that look wrong."""
    method = Crnr()
    found = residuals_without_doubtful_labels(
        samples, method, Folds.of(samples, [str(i) for i in range(len(samples.vectors))])
    )
    mask = np.zeros(len(samples.vectors), dtype=bool)
    mask[[suspect.sample for suspect in find_suspects(found, samples, method.signed)]] = True
    return score_doubts(found, samples.class_index, method.signed)[0], mask


def by_cleanlab(samples: Samples) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    labels = samples.class_index
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    model = LogisticRegression(max_iter=1000)
    shares = cross_val_predict(model, samples.vectors, labels, cv=folds, method="predict_proba")
    return {
        kind: (-get_label_quality_scores(labels, shares, method=kind), find_label_issues(labels, shares))
        for kind in ("self_confidence", "normalized_margin")
    }


def read_split(folder: Path, data_set: str) -> datasets.Split:
    split = {"mnist": datasets.mnist, "usps": datasets.usps}[data_set](folder)
    if data_set == "usps":  # whose values are from 0 to 1
        pixels = ((some * 255).astype(np.uint8) for some in (split.train, split.test))
        train, test = pixels
        split = datasets.Split(train, split.train_labels, test, split.test_labels)
    return split


def wrong_labels(folder: Path, data_set: str, draws: int) -> None:
    from sklearn.metrics import average_precision_score

    split = read_split(folder, data_set)
    print("| vectors | wrong | ranking | average precision | listed | of these wrong | found | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for extractor in ("gradients", "pixels"):
        for share in SHARES:
            rows: dict[str, list[tuple[float, ...]]] = {}
            for seed in range(draws):
                drawn = datasets.draw(split, PER_CLASS, seed)
                labels = spoilt(drawn.train_labels, share, seed)
                images = Arrays(SIZES[data_set], drawn.train, labels, {}, {})
                samples = made(images.values(ExtractorOptions(extractor)), {}, {}).samples
                is_wrong = (labels != drawn.train_labels)[np.argsort(labels, kind="stable")]
                started = time.perf_counter()
                found = {"crnr": by_crnr(samples)}
                seconds = {"crnr": time.perf_counter() - started}
                started = time.perf_counter()
                found |= by_cleanlab(samples)
                for name, (score, listed) in found.items():
                    taken = seconds.get(name, time.perf_counter() - started)
                    hits = int((listed & is_wrong).sum())
                    precision = hits / max(1, int(listed.sum()))
                    average = float(average_precision_score(is_wrong, score))
                    figures = (average, float(listed.sum()), precision, hits / int(is_wrong.sum()), taken)
                    rows.setdefault(name, []).append(figures)
            for name, drawn_figures in rows.items():
                average, listed_, precision, recall, taken = np.mean(drawn_figures, axis=0)
                spread = np.std([figures[0] for figures in drawn_figures])
                print(
                    f"| {extractor} | {share:.0%} | {name} | {average:.3f} ± {spread:.3f} | {listed_:.0f} | "
                    f"{precision:.0%} | {recall:.0%} | {taken:.1f} |",
                    flush=True,
                )


def rank(samples: Samples) -> list[int]:
    """All samples, the most doubtful label first, as `audit --all` lists them."""
    method = Crnr()
    found = residuals_without_doubtful_labels(
        samples, method, Folds.of(samples, [str(i) for i in range(len(samples.vectors))])
    )
    suspects = find_suspects(found, samples, method.signed)
    return [one.sample for one in rank_labels(found, samples, method.signed, suspects)]


def accuracy(vectors: Vectors, labels: np.ndarray) -> float:
    """The accuracy on the queries if the samples have these labels."""
    order = np.argsort(labels, kind="stable")
    samples = Samples.of(vectors.samples.vectors[order], labels[order])
    method, split = Crnr(), Split(samples, vectors.queries[""])
    batches = residuals_in_batches(method, split, fit_method(method, samples))
    found = np.concatenate([to_dense(batch) for batch in batches])
    return float(np.mean(found.argmin(axis=1) == vectors.truths[""]))


def correct_a_round(folder: Path, data_set: str, draws: int, checked: float = 0.05) -> None:
    """Print the wrong labels that a round finds, and the accuracy before and after it."""
    split = read_split(folder, data_set)
    print(
        "| vectors | images | wrong | corrected | accuracy before | after | with the true labels | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for extractor in ("gradients", "pixels"):
        for per_class in (PER_CLASS, 5 * PER_CLASS):
            figures = []
            for seed in range(draws):
                drawn = datasets.draw(split, per_class, seed)
                labels = spoilt(drawn.train_labels, checked, seed)
                rows = np.random.default_rng(seed).choice(len(drawn.test), TESTED, replace=False)
                tests = {"": drawn.test[rows]}, {"": drawn.test_labels[rows]}
                images = Arrays(SIZES[data_set], drawn.train, labels, *tests)
                values = images.values(ExtractorOptions(extractor))
                truth = drawn.train_labels[np.argsort(labels, kind="stable")]  # in the order of the values
                vectors = made(values, {}, {})
                started = time.perf_counter()
                first = rank(vectors.samples)[: round(checked * len(labels))]
                seconds = time.perf_counter() - started
                corrected = values.labels.copy()
                corrected[first] = truth[first]
                wrong, left = (np.sum(some != truth) for some in (values.labels, corrected))
                accuracies = [accuracy(vectors, some) for some in (values.labels, corrected, truth)]
                figures.append((len(labels), wrong, 1 - left / wrong, *accuracies, seconds))
            n, wrong, share, before, after, best, seconds = np.mean(figures, axis=0)
            spread = np.std([one[2] for one in figures])
            print(
                f"| {extractor} | {n:.0f} | {wrong:.0f} | {share:.1%} ± {spread:.1%} | {before:.1%} "
                f"| {after:.1%} | {best:.1%} | {seconds:.0f} |",
                flush=True,
            )


def compare_rankings(folder: Path, data_set: str, draws: int) -> None:
    """Print how well the labels of large galleries are ranked by all samples, and by neighbours."""
    from sklearn.metrics import average_precision_score

    suspects.LARGE = 0  # also galleries below that size are large here
    split = read_split(folder, data_set)
    print("| vectors | images | wrong | by | average precision | listed | of these wrong | found | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for extractor, per_class, share in itertools.product(("gradients", "pixels"), (400, 800), (0.05, 0.2)):
        rows: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(draws):
            drawn = datasets.draw(split, per_class, seed)
            labels = spoilt(drawn.train_labels, share, seed)
            images = Arrays(SIZES[data_set], drawn.train, labels, {}, {})
            samples = made(images.values(ExtractorOptions(extractor)), {}, {}).samples
            is_wrong = (labels != drawn.train_labels)[np.argsort(labels, kind="stable")]
            folds = Folds.of(samples, [str(i) for i in range(len(labels))])
            for name in ("all", "neighbours"):
                started = time.process_time()
                if name == "all":
                    compared = Comparison(residuals_without_doubtful_labels(samples, Crnr(), folds))
                else:
                    compared = compare_samples(samples, Crnr(), folds)
                taken = time.process_time() - started
                found = find_suspects(compared.residuals, samples, False, compared.typical)
                ranking = rank_labels(compared.residuals, samples, False, found)
                order = np.array([one.sample for one in ranking])
                places = np.empty(len(order))
                places[order] = np.arange(len(order))
                hits = int(is_wrong[[one.sample for one in found]].sum())
                average = float(average_precision_score(is_wrong, -places))
                figures = (average, len(found), hits / max(1, len(found)), hits / int(is_wrong.sum()), taken)
                rows.setdefault(name, []).append(figures)
        for name, drawn_figures in rows.items():
            average, listed, precision, recall, taken = np.mean(drawn_figures, axis=0)
            print(
                f"| {extractor} | {10 * per_class:,} | {share:.0%} | {name} | {average:.4f} | {listed:.0f} "
                f"| {precision:.1%} | {recall:.1%} | {taken:.1f} |",
                flush=True,
            )


def audit_whole(folder: Path) -> None:
    """Print what the command takes for all digits, and how well it ranks their labels."""
    from sklearn.metrics import average_precision_score

    split = datasets.mnist(folder)
    labels = spoilt(split.train_labels, 0.05, 0)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        write_images(place / "g", split.train, labels)
        ran = crnr("audit", place / "g", "--all", "--csv", place / "ranking.csv", "-q")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        print(f"{len(labels)} images: {ran}, {peak:.1f} GB at most", flush=True)
        with (place / "ranking.csv").open(newline="") as file:
            found = [row for row in csv.DictReader(file) if row["finding"] in ("wrong_label", "ranked")]
        order = [int(Path(row["path"]).stem) for row in found]
    is_wrong = (labels != split.train_labels)[order]
    average = average_precision_score(is_wrong, -np.arange(len(order)))
    first = is_wrong[: is_wrong.sum()].mean()
    print(f"average precision {average:.4f}; {first:.1%} of the wrong labels are among as many first ones")


def altered(image: Image.Image, kind: str, rng: np.random.Generator) -> Image.Image:
    if kind == "recompressed":
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(rng.integers(50, 91)))
        return Image.open(io.BytesIO(file.getvalue()))
    if kind == "resized":
        factor = rng.choice([rng.uniform(0.75, 0.9), rng.uniform(1.1, 1.5)])
        return image.resize((round(factor * image.width), round(factor * image.height)))
    if kind == "cropped":  # at a corner; at least one pixel
        width, height = (max(1, round(0.02 * side)) for side in image.size)
        left, top = width * int(rng.integers(2)), height * int(rng.integers(2))
        return image.crop((left, top, left + image.width - width, top + image.height - height))
    factor = rng.choice([rng.uniform(0.7, 0.9), rng.uniform(1.1, 1.3)])
    return ImageEnhance.Brightness(image).enhance(float(factor))


def planted(images: Sequence[tuple[str, Image.Image]], folder: Path, seed: int) -> dict[str, tuple[str, str]]:
    """Write all images, and altered copies of some; returns original and kind by the name of the copy."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(images), min(PLANTED, len(images)), replace=False).tolist()
    copies: dict[str, tuple[str, str]] = {}
    for i, (label, image) in enumerate(images):
        (folder / label).mkdir(exist_ok=True, parents=True)
        image.save(folder / label / f"{i}.png")
    for place, i in enumerate(chosen):
        label, image = images[i]
        kind = KINDS[place % len(KINDS)]
        name = folder / label / f"{i}-copy.png"
        altered(image, kind, rng).save(name)
        copies[str(name)] = (str(folder / label / f"{i}.png"), kind)
    return copies


def duplicates(folder: Path, *, choosing: bool) -> None:
    mnist = datasets.mnist(folder)
    pixels, labels = (mnist.test, mnist.test_labels) if choosing else (mnist.train, mnist.train_labels)
    rng = np.random.default_rng(2)
    sets: dict[str, list[tuple[str, Image.Image]]] = {}
    for count in (1000, 5000):
        rows = rng.choice(len(pixels), count, replace=False).tolist()
        sets[f"MNIST, {count}"] = [(str(labels[i]), Image.fromarray(pixels[i].reshape(28, 28))) for i in rows]
    flowers = datasets.find(folder, "flowers12")
    names = sorted(path.name for path in (flowers / "train").iterdir())
    wanted = names[:6] if choosing else names[6:]
    files = sorted(path for path in flowers.glob("*/*/*.jpg") if path.parent.name in wanted)
    sets["flowers12, 6 classes"] = [(path.parent.name, Image.open(path)) for path in files]
    print("| images | planted | found | " + " | ".join(KINDS) + " | other groups | seconds |")
    print("|---|---|---|" + "---|" * len(KINDS) + "---|---|")
    for name, images in sets.items():
        with tempfile.TemporaryDirectory() as place:
            copies = planted(images, Path(place), 0)
            reading = Reading()
            read = read_samples(open_source([place], reading), reading)
            started = time.perf_counter()
            looks = read_looks(read.values, read.table.names, read.table.hashes, DecoderPool())
            pairs = find_near_pairs(looks)
            seconds = time.perf_counter() - started
            groups = [{read.table.names[i] for i in group} for group in group_pairs(pairs)]
            together = {one: group for group in groups for one in group}
            hits: dict[str, list[bool]] = {kind: [] for kind in KINDS}
            right = set()
            for copy, (original, kind) in copies.items():
                hits[kind].append(original in together.get(copy, ()))
                right |= {copy, original}
            others = [sorted(group) for group in groups if len(group & right) < 2]
            found = sum(map(sum, hits.values()))
            shares = " | ".join(f"{sum(of_kind)} of {len(of_kind)}" for of_kind in hits.values())
            print(
                f"| {name} | {len(copies)} | {found / len(copies):.1%} | {shares} | {len(others)} "
                f"| {seconds:.1f} |"
            )
            for group in others:
                print("   other group:", *(Path(one).relative_to(place) for one in group))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["labels", "round", "large", "whole", "duplicates"])
    parser.add_argument("--data", type=Path, default=datasets.DEFAULT_FOLDER)
    parser.add_argument("--data-set", choices=sorted(SIZES), default="mnist")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--choosing", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "labels":
        wrong_labels(arguments.data, arguments.data_set, arguments.draws)
    elif arguments.what == "round":
        correct_a_round(arguments.data, arguments.data_set, arguments.draws)
    elif arguments.what == "large":
        compare_rankings(arguments.data, arguments.data_set, arguments.draws)
    elif arguments.what == "whole":
        audit_whole(arguments.data)
    else:
        duplicates(arguments.data, choosing=arguments.choosing)


if __name__ == "__main__":
    main()
