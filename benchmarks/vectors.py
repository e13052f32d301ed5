"""How images become vectors: pixels, gradients, parts and tuned settings, with several methods on each.

    python benchmarks/vectors.py [DATA...] [--vectors KIND...] [--draws 10] [--compared 3] [--tuned 3]

crnr has its default parameters, lam 0.01, mu 0.1 and 5 iterations, except on tuned vectors. All settings are
fixed beforehand, or found by cross-validation on the gallery alone: those of tuned vectors by `crnr tune`, c
of the linear SVM, and c and gamma of the RBF SVM. Test images are used for the figures of the tables alone.

Every figure is appended to a file (--results), and is not measured again as long as it is there.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any, Protocol, cast

import datasets
import numpy as np

from crnr_cli.arrays import to_dense
from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError
from crnr_cli.gallery.gallery import SampleTable
from crnr_cli.gallery.reading import ImageSurvey, adapt_to_tiles, extractors_to_try, spread_runs
from crnr_cli.gallery.samples import Reading, ReadSamples, read_raw
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.jobs.tune import TuneOptions, tune_samples
from crnr_cli.methods import Method, Samples, fit_method, make_method
from crnr_cli.methods.base import Split, residuals_in_batches
from crnr_cli.methods.folds import stratified_folds
from crnr_cli.methods.nonnegative import Crnr, Nrc
from crnr_cli.progress import silent
from crnr_cli.recipe.base import Extractor
from crnr_cli.recipe.recipe import EXTRACTORS, STEPS, Recipe, make_steps
from crnr_cli.results.decision import best_classes
from crnr_cli.results.scores import mcnemar_p_value
from crnr_cli.sources.opening import open_source

METHODS = {"crnr": "crnr", "nrc": "nrc", "nn": "nn", "svm": "linear SVM", "rbf": "RBF SVM"}
CS = (0.1, 1.0, 10.0, 100.0)  # of the linear SVM
RBF_CS = (1.0, 10.0, 100.0)
GAMMAS = (0.1, 0.3, 1.0, 3.0, 10.0)
FOLDS = 5
SAMPLE_DATA = Path(__file__).parent.parent / "sample_data"
Right = dict[str, np.ndarray]  # which queries of each set are labelled correctly


# --- Data: images of a gallery, and of one or more sets of queries


@dataclass(frozen=True)
class Values:
    """Raw values by one extractor, with class numbers; those of the gallery are sorted by class."""

    recipe: Recipe  # without steps
    gallery: np.ndarray
    labels: np.ndarray
    queries: dict[str, np.ndarray]
    truths: dict[str, np.ndarray]


class Images(Protocol):
    def values(self, options: ExtractorOptions, parts: str | None = None) -> Values: ...

    def seen(self) -> ImageSurvey:
        """What an extractor may ask about the images of the gallery."""


@dataclass(frozen=True)
class Arrays:
    """Images in memory, all of one size. An extractor may ask it what it asks about a folder."""

    size: tuple[int, int]
    gallery: np.ndarray
    labels: np.ndarray
    queries: Mapping[str, np.ndarray]
    truths: Mapping[str, np.ndarray]
    jobs: int = 1
    provider: str = "cpu"

    @classmethod
    def of(cls, split: datasets.Split, size: tuple[int, int]) -> Arrays:
        return cls(size, split.train, split.train_labels, {"": split.test}, {"": split.test_labels})

    def sizes(self) -> set[tuple[int, int]]:
        return {self.size}

    def are_colored(self) -> bool:
        return False

    def seen(self) -> ImageSurvey:
        return cast(ImageSurvey, self)

    def labelled_vectors(self, recipes: Sequence[Recipe]) -> tuple[list[np.ndarray], list[str]]:
        order = np.argsort(self.labels, kind="stable")
        rows = np.concatenate([order[slice(*span)] for span in spread_runs(len(order))])
        extractors = [recipe.extractor.open(1).extract for recipe in recipes if recipe.extractor]
        vectors = [
            recipe.unit_vectors(extract(self.gallery[rows]), "float32")[0]
            for recipe, extract in zip(recipes, extractors, strict=True)
        ]
        return vectors, list(map(str, self.labels[rows]))

    def values(self, options: ExtractorOptions, parts: str | None = None) -> Values:
        extractor, _ = EXTRACTORS[options.name or ""].create(options.settings, self)
        extractor, _ = adapt_to_tiles(extractor, options, make_steps({"parts": parts}), self.seen())
        extract = extractor.open(1).extract
        order = np.argsort(self.labels, kind="stable")
        return Values(
            Recipe.for_images(extractor),
            np.asarray(extract(self.gallery[order])),
            self.labels[order],
            {name: np.asarray(extract(pixels)) for name, pixels in self.queries.items()},
            dict(self.truths),
        )


@dataclass(frozen=True)
class Folders:
    """A folder with a gallery and one with queries, read as the commands read them."""

    gallery: Path
    queries: Path

    def seen(self) -> ImageSurvey:
        here = Here(DecoderPool())
        return ImageSurvey(open_source([str(self.gallery)], Reading()), Reading(), silent, here)

    def values(self, options: ExtractorOptions, parts: str | None = None) -> Values:
        gallery = self._read(self.gallery, options, parts)
        assert gallery.recipe.extractor is not None
        queries = self._read(self.queries, same(gallery.recipe.extractor, options))
        classes = sorted(set(gallery.table.labels))
        labels = np.array([classes.index(label) for label in gallery.table.labels])
        order = np.argsort(labels, kind="stable")
        truth = np.array([classes.index(label) for label in queries.table.labels])
        recipe = gallery.recipe.without_steps()
        return Values(recipe, gallery.values[order], labels[order], {"": queries.values}, {"": truth})

    def _read(self, folder: Path, options: ExtractorOptions, parts: str | None = None) -> ReadSamples:
        reading = Reading(extractor=options, steps=make_steps({"parts": parts}))
        return read_raw(open_source([str(folder)], reading), reading)


def same(extractor: Extractor, options: ExtractorOptions) -> ExtractorOptions:
    """Options for exactly this extractor, whatever the images are."""
    if extractor.name == "network":  # whose options do not depend on the images
        return options
    return ExtractorOptions(extractor.name, {name: getattr(extractor, name) for name in extractor.settings})


@cache
def mnist(folder: Path) -> datasets.Split:
    return datasets.mnist(folder)


@cache
def usps(folder: Path) -> datasets.Split:
    return datasets.usps(folder)


def ar_occluded(folder: Path) -> Arrays:
    """The clean images of the first day are the gallery."""
    images, people = datasets.ar_occluded(folder)
    sets = {
        "clean, day 2": slice(13, 20),
        "sunglasses, day 1": slice(7, 10),
        "scarf, day 1": slice(10, 13),
        "sunglasses, day 2": slice(20, 23),
        "scarf, day 2": slice(23, 26),
    }
    return Arrays(
        (30, 42),
        images[:, :7].reshape(-1, images.shape[2]),
        people[:, :7].ravel(),
        {name: images[:, place].reshape(-1, images.shape[2]) for name, place in sets.items()},
        {name: people[:, place].ravel() for name, place in sets.items()},
    )


def ar(folder: Path) -> Arrays:
    split = datasets.ar(folder)
    train, test = (datasets.by_rows(pixels, 43, 60) for pixels in (split.train, split.test))
    return Arrays.of(datasets.Split(train, split.train_labels, test, split.test_labels), (43, 60))


# --- Vectors: fixed beforehand, or found on the gallery alone


@dataclass(frozen=True)
class Kind:
    """How images become vectors."""

    extractor: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    parts: str | None = None


@dataclass(frozen=True)
class Vectors:
    """Unit vectors, and the methods of crnr to use on them."""

    samples: Samples
    queries: dict[str, np.ndarray]
    truths: dict[str, np.ndarray]
    methods: dict[str, Method]  # those with parameters that are not tuned here
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def whole(self) -> Vectors:
        """Parts one after the other as a single unit vector, for methods that do not treat them apart."""
        if self.samples.parts is None:
            return self
        length = np.float32(np.sqrt(self.samples.n_parts))
        queries = {name: rows / length for name, rows in self.queries.items()}
        samples = Samples(self.samples.vectors / length, self.samples.edges)
        return Vectors(samples, queries, self.truths, self.methods)


DEFAULTS: dict[str, Method] = {name: make_method(name, {}) for name in ("crnr", "nrc", "nn")}


def made(values: Values, steps: Mapping[str, Any], methods: Mapping[str, Method], **settings: Any) -> Vectors:
    recipe = values.recipe.with_settings(steps).fit(values.gallery, values.labels)
    gallery, *queries = (
        recipe.unit_vectors(raw, "float32")[0] for raw in (values.gallery, *values.queries.values())
    )
    return Vectors(
        Samples.of(gallery, values.labels, recipe.part_edges),
        dict(zip(values.queries, queries, strict=True)),
        values.truths,
        dict(methods),
        settings,
    )


def fixed(images: Images, kind: Kind) -> Vectors:
    values = images.values(ExtractorOptions(kind.extractor, kind.settings), kind.parts)
    return made(
        values, {"parts": kind.parts}, DEFAULTS, vectors=values.recipe.describe()[0], parts=kind.parts
    )


def tuned(
    images: Images, parts: Sequence[str | None], budget: float | None, known: Mapping[str, Any] | None
) -> Vectors:
    """The vectors and the parameters that `crnr tune` finds on the gallery alone, or has found already."""
    first = images.values(ExtractorOptions("gradients")).recipe.extractor
    assert first is not None
    options = TuneOptions(steps={"parts": parts})
    tried = extractors_to_try(first, ExtractorOptions(), options.grids(), images.seen())
    read = [images.values(same(one, ExtractorOptions())) for one in tried]
    found = known or search(read, parts, budget)
    chosen = found["chosen"]
    values = next(
        one
        for one in read
        if one.recipe.extractor and is_part_of(one.recipe.extractor.tunable_settings(), chosen)
    )
    methods = {
        "crnr": make_method("crnr", {name: chosen[name] for name in Crnr.tunable}),
        "nrc": make_method("nrc", found["nrc"]),
        "nn": DEFAULTS["nn"],
    }
    return made(values, {name: chosen[name] for name in STEPS}, methods, **found)


def is_part_of(some: Mapping[str, Any], everything: Mapping[str, Any]) -> bool:
    return all(everything.get(name) == value for name, value in some.items())


def search(read: Sequence[Values], parts: Sequence[str | None], budget: float | None) -> dict[str, Any]:
    options = TuneOptions(steps={"parts": parts}, budget=budget)
    report = tune_samples([raw_samples(one) for one in read], options)
    chosen = report.chosen.setting
    assert chosen.method.name == "crnr"
    # nrc is crnr with lam 0: its best parameters on the same vectors, if there was time for any.
    alike = [trial.setting.method for trial in report.trials if trial.setting.vectors == chosen.vectors]
    of_nrc = [method for method in alike if method.parameters.get("lam") == 0] or [DEFAULTS["crnr"]]
    return {
        "chosen": chosen.parameters(),
        "nrc": {name: of_nrc[0].parameters[name] for name in Nrc.tunable},
        "cross-validated": report.chosen.accuracy,
        "default cross-validated": report.default.accuracy,
        "best cross-validated": report.trials[0].accuracy,
        "best": report.trials[0].setting.parameters(),
        "untried": report.untried,
        "seconds": round(report.seconds),
    }


def raw_samples(values: Values) -> ReadSamples:
    names = [str(row) for row in range(len(values.labels))]
    labels = [f"{label:03d}" for label in values.labels]
    table = SampleTable(names, labels, hashes=names)  # any hashes that differ
    return ReadSamples(recipe=values.recipe, table=table, values=values.gallery)


def hogs(images: Images) -> Vectors:
    """scikit-image's hog with cells of the same size as those of the gradients."""
    extractor = images.values(ExtractorOptions("gradients")).recipe.extractor
    assert extractor is not None
    settings = {"size": extractor.size, "color": extractor.color}  # type: ignore[attr-defined]
    values = images.values(ExtractorOptions("pixels", settings))
    cell = extractor.cell  # type: ignore[attr-defined]

    def by_hog(pixels: np.ndarray) -> np.ndarray:
        return hog_values(pixels, settings["size"], settings["color"], cell)

    queries = {name: by_hog(pixels) for name, pixels in values.queries.items()}
    gallery = by_hog(values.gallery)
    of_hog = Values(Recipe(gallery.shape[1]), gallery, values.labels, queries, values.truths)
    return made(of_hog, {}, {})


_HOGS: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of test images, which many draws share


def hog_values(pixels: np.ndarray, size: tuple[int, int], color: bool, cell: int) -> np.ndarray:
    from skimage.feature import hog

    if id(pixels) not in _HOGS:
        shape = (size[1], size[0], 3) if color else (size[1], size[0])
        rows = [
            hog(
                row.reshape(shape),
                orientations=9,
                pixels_per_cell=(cell, cell),
                cells_per_block=(2, 2),
                block_norm="L2-Hys",
                channel_axis=2 if color else None,
            )
            for row in pixels
        ]
        _HOGS[id(pixels)] = pixels, np.array(rows, np.float32)
    return _HOGS[id(pixels)][1]


# --- Methods


def by_method(name: str, vectors: Vectors) -> tuple[Right, dict[str, Any]]:
    """Which queries a method labels correctly, and its parameters."""
    if name == "rbf":
        return rbf(vectors.whole)
    if name == "svm":
        vectors = vectors.whole
        method = best_svm(vectors.samples)
    else:
        method = vectors.methods[name]
    state = fit_method(method, vectors.samples)
    right = {}
    for queries, rows in vectors.queries.items():
        batches = residuals_in_batches(method, Split(vectors.samples, rows), state)
        right[queries] = (
            np.concatenate([best_classes(batch, 1)[:, 0] for batch in batches]) == vectors.truths[queries]
        )
    return right, method.parameters


def best_svm(samples: Samples) -> Method:
    """A linear SVM, whose c is increased as long as cross-validation on the gallery gets better by it."""
    classes, best, most = samples.class_index, make_method("svm", {"c": CS[0]}), -1
    for c in CS:
        method, right = make_method("svm", {"c": c}), 0
        try:
            for train, test in folds(classes):
                kept = Samples.of(samples.vectors[train], classes[train])
                residuals = to_dense(method.residuals(kept, method.fit(kept), samples.vectors[test]))
                winners = residuals.argmin(axis=1)
                right += int((winners == classes[test]).sum())
        except DataError:  # it does not converge
            break
        if right <= most:
            break
        best, most = method, right
    return best


def folds(classes: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    fold_of = stratified_folds(classes, FOLDS)
    for number in range(FOLDS):
        yield np.flatnonzero(fold_of != number), np.flatnonzero(fold_of == number)


def rbf(vectors: Vectors) -> tuple[Right, dict[str, Any]]:
    """An SVM with exp(-gamma ||x - y||^2); c and gamma are the best by cross-validation on the gallery."""
    from sklearn.svm import SVC

    X, classes = vectors.samples.vectors, vectors.samples.class_index
    products, right = (X @ X.T).astype(np.float64), {}
    for gamma in GAMMAS:
        kernel = np.exp(2 * gamma * (products - 1))  # ||x - y||^2 = 2 - 2 x'y
        for c in RBF_CS:
            right[c, gamma] = 0
            for train, test in folds(classes):
                svc = SVC(C=c, kernel="precomputed").fit(kernel[np.ix_(train, train)], classes[train])
                right[c, gamma] += int((svc.predict(kernel[np.ix_(test, train)]) == classes[test]).sum())
    c, gamma = max(product(RBF_CS, GAMMAS), key=right.__getitem__)
    svc = SVC(C=c, kernel="precomputed").fit(np.exp(2 * gamma * (products - 1)), classes)
    found = {}
    for name, rows in vectors.queries.items():
        batches = (rows[start : start + 1000] for start in range(0, len(rows), 1000))
        answers = [
            svc.predict(np.exp(2 * gamma * ((batch @ X.T).astype(np.float64) - 1))) for batch in batches
        ]
        found[name] = np.concatenate(answers) == vectors.truths[name]
    return found, {"c": c, "gamma": gamma}


# --- What is measured


@dataclass(frozen=True)
class Data:
    title: str
    drawn: Callable[[Path, int], Images]  # from the folder of the data, by the number of the draw
    is_random: bool = False
    kinds: Mapping[str, Kind] = field(default_factory=dict)  # besides pixels and gradients
    tried_parts: Mapping[str, Sequence[str | None]] = field(
        default_factory=lambda: {"tuned": (None,)}
    )  # by the name of the tuned vectors


QUARTERS = {
    "gradients, 2x2 parts": Kind("gradients", parts="2x2"),
    "gradients, 4x4 parts": Kind("gradients", parts="4x4"),
}
FACE_PARTS = {
    "pixels, 7x5 parts": Kind("pixels", parts="7x5"),
    "gradients, 5x3 parts": Kind("gradients", parts="5x3"),
}
TRIED_ON_FACES = {"tuned": (None,), "tuned, parts too": (None, "3x2", "5x3", "7x5")}


def digits(title: str, load: Callable[[Path], datasets.Split], side: int, per_class: int) -> Data:
    def drawn(folder: Path, draw: int) -> Images:
        return Arrays.of(datasets.draw(load(folder), per_class, draw), (side, side))

    return Data(f"{title} {per_class}", drawn, is_random=True, kinds=QUARTERS)


def flowers12(folder: Path, draw: int) -> Images:
    datasets.find(folder, NETWORK)
    return Folders(*(datasets.find(folder, f"flowers12/{part}") for part in ("train", "test")))


NETWORK = "efficientnet_lite0_features.onnx"


def all_data(folder: Path) -> dict[str, Data]:
    return {
        "sample_data": Data(
            "`sample_data`", lambda _, draw: Folders(SAMPLE_DATA / "gallery", SAMPLE_DATA / "queries")
        ),
        "ar": Data(
            "AR 30x42", lambda folder, _: ar_occluded(folder), kinds=FACE_PARTS, tried_parts=TRIED_ON_FACES
        ),
        "ar-60": Data("AR 43x60", lambda folder, _: ar(folder), kinds=FACE_PARTS, tried_parts=TRIED_ON_FACES),
        "flowers12": Data(
            "flowers12", flowers12, kinds={"network": Kind("network", {"model": folder / NETWORK})}
        ),
        **{f"usps-{n}": digits("USPS", usps, 16, n) for n in (50, 300)},
        **{f"mnist-{n}": digits("MNIST", mnist, 28, n) for n in (50, 100, 300, 500)},
    }


@dataclass
class Results:
    """One figure for every data, kind of vectors, method, set of queries and draw, in a file."""

    path: Path
    records: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.records = [json.loads(line) for line in self.path.read_text().splitlines()]

    def find(self, data: str, vectors: str, draw: int, method: str | None = None) -> dict[str, Any] | None:
        wanted = {"data": data, "vectors": vectors, "draw": draw} | ({"method": method} if method else {})
        return next((record for record in self.records if is_part_of(wanted, record)), None)

    def add(self, right: Right, **record: Any) -> None:
        for queries, row in right.items():
            bits = base64.b64encode(np.packbits(row).tobytes()).decode()
            full = {
                **record,
                "queries": queries,
                "n": len(row),
                "accuracy": 100 * float(row.mean()),
                "bits": bits,
            }
            self.records.append(full)
            with self.path.open("a") as file:
                file.write(json.dumps(full, default=str) + "\n")
            shown = {key: value for key, value in full.items() if key != "bits"}
            print(json.dumps(shown, default=str), file=sys.stderr, flush=True)


def measure(name: str, data: Data, wanted: Sequence[str] | None, options: argparse.Namespace) -> None:
    """All figures of one data that are not among the results yet."""
    results: Results = options.found
    for draw in range(max(options.draws, options.compared, options.tuned) if data.is_random else 1):
        for kind in ("pixels", "gradients", *data.kinds, "hog", *data.tried_parts):
            if wanted and kind not in wanted:
                continue
            methods = [
                method
                for method in methods_of(kind, draw, data, options)
                if results.find(name, kind, draw, method) is None
            ]
            if not methods:
                continue
            images = data.drawn(options.data, draw)
            if kind == "hog":
                vectors = hogs(images)
            elif kind in data.tried_parts:
                known = (results.find(name, kind, draw) or {}).get("settings")
                vectors = tuned(images, data.tried_parts[kind], options.budget, known)
            else:
                vectors = fixed(images, data.kinds.get(kind) or Kind(kind))
            for method in methods:
                right, parameters = by_method(method, vectors)
                record = {"data": name, "vectors": kind, "method": method, "draw": draw}
                results.add(right, **record, parameters=parameters, settings=vectors.settings)


def methods_of(kind: str, draw: int, data: Data, options: argparse.Namespace) -> list[str]:
    """crnr on all draws, and all methods on those that are compared."""
    is_compared = draw < options.compared or not data.is_random
    if kind == "hog":
        return ["svm"] if is_compared else []
    if kind.startswith("tuned") and data.is_random and draw >= options.tuned:
        return []
    draws = options.tuned if kind.startswith("tuned") else options.draws
    first = ["crnr"] if draw < draws or not data.is_random else []
    names = first + ([name for name in METHODS if name != "crnr"] if is_compared else [])
    return [name for name in names if not options.methods or name in options.methods]


# --- Tables


def right_of(record: Mapping[str, Any]) -> np.ndarray:
    bits = np.frombuffer(base64.b64decode(record["bits"]), np.uint8)
    return np.unpackbits(bits, count=record["n"]).astype(bool)


def tables(results: Results, everything: Mapping[str, Data]) -> str:
    rows: dict[tuple[str, str, str], dict[str, dict[int, Mapping[str, Any]]]] = {}
    for record in results.records:
        key = record["data"], record["queries"], record["vectors"]
        rows.setdefault(key, {}).setdefault(record["method"], {})[record["draw"]] = record
    kinds = [kind for data in everything.values() for kind in ("pixels", "gradients", *data.kinds)]
    kinds += [kind for data in everything.values() for kind in data.tried_parts] + ["hog"]
    sets = [queries for _, queries, _ in rows]
    names = list(everything)

    def place(key: tuple[str, str, str]) -> tuple[int, ...]:
        return names.index(key[0]), sets.index(key[1]), kinds.index(key[2])

    lines = ["| data | vectors | draws | crnr |", "|---|---|---|---|"]
    compared = [
        "| data | vectors | draws | " + " | ".join(METHODS.values()) + " | p |",
        "|---|---|---" + "|---" * len(METHODS) + "|---|",
    ]
    for key in sorted(rows, key=place):
        (name, queries, kind), found = key, rows[key]
        title = ", ".join(filter(None, (everything[name].title, queries)))
        if "crnr" in found and everything[name].is_random:
            accuracies = [record["accuracy"] for record in found["crnr"].values()]
            error = (
                f" ± {np.std(accuracies, ddof=1) / np.sqrt(len(accuracies)):.2f}"
                if len(accuracies) > 1
                else ""
            )
            lines.append(f"| {title} | {kind} | {len(accuracies)} | {np.mean(accuracies):.2f}{error} |")
        if len(found) > 1 or kind == "hog":
            compared.append(f"| {title} | {kind} | {beside(found)} |")
    return "\n".join([*lines, "", *compared, "", *found_by_tune(results, everything)])


def found_by_tune(results: Results, everything: Mapping[str, Data]) -> Iterator[str]:
    """What was chosen for tuned vectors, and how it did in cross-validation on the gallery."""
    yield "| data | vectors | draw | chosen | cross-validated | default | best | not tried |"
    yield "|---|---|---|---|---|---|---|---|"
    once = {(record["data"], record["vectors"], record["draw"]): record for record in results.records}
    for (name, kind, draw), record in sorted(once.items(), key=lambda row: list(everything).index(row[0][0])):
        if "chosen" in (found := record["settings"]):
            left_out = {"method": "crnr", "extractor": "gradients", "power": 1.0, "pca": None, "parts": None}
            chosen = ", ".join(
                f"{key} {value}"
                for key, value in found["chosen"].items()
                if key not in left_out or value != left_out[key]
            )
            shares = ("cross-validated", "default cross-validated", "best cross-validated")
            accuracies = " | ".join(f"{100 * found[share]:.1f}" for share in shares)
            title = everything[name].title
            yield f"| {title} | {kind} | {draw + 1} | {chosen} | {accuracies} | {found['untried']} |"


def beside(found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """The methods on the draws that all have, the best in bold, and McNemar's p in the first of them."""
    draws = sorted(set.intersection(*(set(records) for records in found.values())))
    means = {
        name: float(np.mean([records[draw]["accuracy"] for draw in draws])) for name, records in found.items()
    }
    best = max(means.values())
    shown = {
        name: f"**{mean:.2f}**" if mean == best and len(means) > 1 else f"{mean:.2f}"
        for name, mean in means.items()
    }
    p = ""
    if "crnr" in means and len(means) > 1:
        other = max((name for name in means if name != "crnr"), key=means.__getitem__)
        ours, theirs = (right_of(found[name][draws[0]]) for name in ("crnr", other))
        p = (
            f"{mcnemar_p_value(int((ours > theirs).sum()), int((ours < theirs).sum())):.2g} "
            f"({METHODS[other]})"
        )
    return " | ".join([str(len(draws)), *(shown.get(name, "") for name in METHODS), p])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="DATA", help=", ".join(all_data(Path())))
    parser.add_argument(
        "--data", type=Path, default=datasets.DEFAULT_FOLDER, help="folder that holds the data"
    )
    parser.add_argument("--vectors", nargs="+", metavar="KIND", help="kinds of vectors (default: all)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, help="(default: all)")
    parser.add_argument("--draws", type=int, default=10, help="random galleries for crnr")
    parser.add_argument("--compared", type=int, default=3, help="random galleries for all methods")
    parser.add_argument("--tuned", type=int, default=3, help="random galleries to tune on")
    parser.add_argument("--budget", type=float, help="seconds for each search of tune (default: no limit)")
    parser.add_argument("--results", type=Path, default=Path(".vectors.jsonl"), help="file of all figures")
    parser.add_argument("--only-tables", action="store_true", help="measure nothing")
    options = parser.parse_args()
    everything = all_data(options.data)
    if unknown := set(options.names) - set(everything):
        parser.error(f"unknown data {', '.join(sorted(unknown))}; choose from {', '.join(everything)}")
    options.found = Results(options.results)
    if not options.only_tables:
        for name in options.names or everything:
            try:
                measure(name, everything[name], options.vectors, options)
            except SystemExit as e:  # its data is missing
                print(f"{name}: {e}", file=sys.stderr)
    print(tables(options.found, everything))


if __name__ == "__main__":
    main()
