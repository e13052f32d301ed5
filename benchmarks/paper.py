"""The paper's tables, measured here, with the paper's figures beside ours.

python benchmarks/paper.py ar | mnist | usps | flowers [--draws 10] [--methods crnr,nrc] [--json]

The settings are those of the paper where it states them, and never chosen by looking at the test set but
where the table says so. The data is not part of the project: --data names the folder that holds it. What
is not there is skipped, and the skip is said.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import datasets
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from crnr_cli.arrays import to_dense
from crnr_cli.methods import Samples, make_method
from crnr_cli.methods.base import CodingMethod
from crnr_cli.recipe.recipe import Recipe, make_steps
from crnr_cli.results.scores import score

BATCH = 512
app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console(width=None if Console().is_terminal else 120)

Data = Annotated[Path, typer.Option("--data", help="Folder that holds the data.")]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Draws = Annotated[int, typer.Option(min=1, help="Random galleries a size.")]
Methods = Annotated[
    str | None, typer.Option(help="Methods to measure, with commas between.", show_default="all")
]


@dataclass(frozen=True)
class Job:
    """One method in one column of a table."""

    method: str
    parameters: Mapping[str, float]
    column: str
    paper: float | None = None  # per cent, as the paper has it
    paper_f1: float | None = None
    note: str = ""
    variant: str = ""  # where one method stands in a table more than once
    decided_as: str = ""  # the method whose decision is taken from the codes, if not its own


@dataclass
class Figure:
    job: Job
    accuracies: list[float] = field(default_factory=list)  # per cent, one per draw
    f1s: list[float] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        return {
            "method": " ".join([self.job.method, self.job.variant]).strip(),
            "parameters": dict(self.job.parameters),
            "column": self.job.column,
            "draws": len(self.accuracies),
            "accuracy": float(np.mean(self.accuracies)),
            "deviation": float(np.std(self.accuracies)),
            "paper_accuracy": self.job.paper,
            "macro_f1": float(np.mean(self.f1s)),
            "paper_macro_f1": self.job.paper_f1,
            "note": self.job.note,
        }


def unit(split: datasets.Split, dtype: str, pca: int | None = None) -> datasets.Split:
    """Unit vectors, the training part by class, as a gallery has them."""
    recipe = Recipe(split.train.shape[1], steps=make_steps({"pca": pca}))
    recipe = recipe.fit(split.train, split.train_labels)
    order = np.argsort(split.train_labels, kind="stable")
    return datasets.Split(
        recipe.unit_vectors(split.train[order], dtype)[0],
        split.train_labels[order],
        recipe.unit_vectors(split.test, dtype)[0],
        split.test_labels,
    )


def residuals(
    method_name: str, parameters: Mapping[str, float], split: datasets.Split, decided_as: str = ""
) -> np.ndarray:
    """Fit on the training part of unit vectors, code the test part."""
    method = make_method(method_name, parameters)
    samples = Samples.of(split.train, split.train_labels)
    state = method.fit(samples)
    batches = [split.test[start : start + BATCH] for start in range(0, len(split.test), BATCH)]
    if not decided_as:
        return np.concatenate([to_dense(method.residuals(samples, state, batch)) for batch in batches])
    other = make_method(decided_as, {})
    assert isinstance(method, CodingMethod)
    assert isinstance(other, CodingMethod)
    X, edges = samples.vectors.T, samples.edges
    return np.concatenate(
        [other.decision(X, edges, method.codes(samples, state, batch).T, batch.T).T for batch in batches]
    )


def measure(
    columns: Iterator[tuple[str, datasets.Split]], jobs: Sequence[Job], methods: str | None, n_columns: int
) -> list[Figure]:
    """Every job on every split of its column; a column that comes again is another draw."""
    chosen = methods.split(",") if methods else list(dict.fromkeys(job.method for job in jobs))
    figures = [Figure(job) for job in jobs if job.method in chosen]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=n_columns)
        for column, split in columns:
            for figure in figures:
                job = figure.job
                if job.column != column:
                    continue
                progress.update(task, description=f"{job.method}, {column}")
                labels = residuals(job.method, job.parameters, split, job.decided_as).argmin(axis=1)
                scores = score([str(t) for t in split.test_labels], [str(p) for p in labels])
                assert scores.accuracy is not None
                assert scores.macro.f1 is not None
                figure.accuracies.append(100 * scores.accuracy)
                figure.f1s.append(100 * scores.macro.f1)
            progress.advance(task)
    return figures


def show(title: str, figures: Sequence[Figure], json: bool) -> None:
    """One row a method and figure, one column a size; the paper's own figures after ours."""
    records = [figure.record() for figure in figures]
    if json:
        print(json_module.dumps({"title": title, "figures": records}, indent=2))
        return
    table = Table(title=f"{title}: per cent, ours / the paper's", title_justify="left")
    table.add_column("method")
    table.add_column("setting")
    columns = list(dict.fromkeys(row["column"] for row in records))
    for column in columns:
        table.add_column(column, justify="right")
    notes = []
    for method in dict.fromkeys(row["method"] for row in records):
        rows = {row["column"]: row for row in records if row["method"] == method}
        settings = list(dict.fromkeys(_setting(row) for row in rows.values()))
        table.add_row(method, "; ".join(settings), *(_beside(rows.get(c), "accuracy") for c in columns))
        if any(row["paper_macro_f1"] for row in rows.values()):
            table.add_row(method, "macro F1", *(_beside(rows.get(c), "macro_f1") for c in columns))
        notes += [f"{method}: {note}" for note in dict.fromkeys(row["note"] for row in rows.values()) if note]
    console.print(table)
    for note in notes:
        console.print(note)


def _setting(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in row["parameters"].items())


def _beside(row: Mapping[str, Any] | None, key: str) -> str:
    if row is None:
        return ""
    papers = row[f"paper_{key}"]
    return f"{row[key]:.2f}" + ("" if papers is None else f" / {papers:.1f}")


AR_DIMENSIONS = (54, 120, 300)
AR_LAM = {54: 1e-3, 120: 1e-2, 300: 1e-3}  # the paper's, for crnr
DECIDED_NOTE = (
    "its codes with the decision of crc, r_i / norm c_i; best of the same settings. It gives the paper's "
    "figures where its own decision does not, at 120: it may be what the paper ran"
)
AR_PAPER = {
    "nsc": (70.7, 75.5, 76.1),
    "crc": (80.3, 90.1, 93.8),
    "src": (82.1, 88.3, 90.3),
    "procrc": (81.4, 90.7, 93.7),
}
PROCRC_GRID = [(gamma, lam) for gamma in (1e-4, 1e-3, 1e-2) for lam in (1e-4, 1e-3, 1e-2)]
PROCRC_NOTE = f"best of {len(PROCRC_GRID)} settings on the test set, as the paper does not state its own"


@app.command()
def ar(data: Data = datasets.DEFAULT_FOLDER, methods: Methods = None, json: Json = False) -> None:
    """AR faces after PCA; for crnr also the authors' program's own answers, query by query."""
    split = datasets.ar(data)
    if methods is None or "crnr" in methods.split(","):
        _ar_reference(split, data, json)
    jobs: list[Job] = []
    for i, dimension in enumerate(AR_DIMENSIONS):
        column = str(dimension)
        paper = {name: values[i] for name, values in AR_PAPER.items()}
        jobs += [
            Job("crnr", {"lam": AR_LAM[dimension]}, column),
            Job("nrc", {}, column),
            Job("nsc", {}, column, paper["nsc"]),
            Job("crc", {"lam": 1e-3}, column, paper["crc"]),
            Job("src", {"lam": 1e-3}, column, paper["src"]),
            Job("croc", {"lam": 1e-3, "weight": 0.1}, column),
            *(
                Job("procrc", {"gamma": gamma, "lam": lam}, column, paper["procrc"], note=PROCRC_NOTE)
                for gamma, lam in PROCRC_GRID
            ),
            *(
                Job(
                    "procrc",
                    {"gamma": gamma, "lam": lam},
                    column,
                    paper["procrc"],
                    note=DECIDED_NOTE,
                    variant="as crc",
                    decided_as="crc",
                )
                for gamma, lam in PROCRC_GRID
            ),
            Job("nn", {}, column),
            Job("svm", {"c": 1}, column),
            Job("softmax", {}, column),
        ]
    columns = ((str(dimension), unit(split, "float64", dimension)) for dimension in AR_DIMENSIONS)
    figures = measure(columns, jobs, methods, len(AR_DIMENSIONS))
    show("AR, PCA, by dimension", _best_of_grid(figures), json)


def _best_of_grid(figures: Sequence[Figure]) -> list[Figure]:
    """One figure a method and column; the best on the test set where there is a grid, and this is said."""
    best: dict[tuple[str, str, str], Figure] = {}
    for figure in sorted(figures, key=lambda figure: figure.accuracies):
        best[figure.job.method, figure.job.variant, figure.job.column] = figure
    return [figure for figure in figures if figure in best.values()]


def _ar_reference(split: datasets.Split, data: Path, json: bool) -> None:
    reference = np.load(datasets.find(data, "ar_reference.npz"))
    records = []
    for dtype in ("float64", "float32"):
        for dimension in AR_DIMENSIONS:
            ours = residuals("crnr", {"lam": AR_LAM[dimension]}, unit(split, dtype, dimension))
            theirs = reference[f"residuals_{dimension}"]
            records.append(
                {
                    "dtype": dtype,
                    "dimension": dimension,
                    "lam": AR_LAM[dimension],
                    "accuracy": float((ours.argmin(axis=1) == split.test_labels).mean()),
                    "authors_accuracy": float((theirs.argmin(axis=1) == split.test_labels).mean()),
                    "largest_residual_difference": float(np.abs(ours - theirs).max()),
                }
            )
    if json:
        print(json_module.dumps({"title": "AR reference", "figures": records}, indent=2))
        return
    table = Table(title="AR, crnr, against the answers of the authors' program")
    for column in ("type", "dimension", "lam", "accuracy", "authors'", "largest residual difference"):
        table.add_column(column, justify="right")
    for row in records:
        table.add_row(
            str(row["dtype"]),
            str(row["dimension"]),
            f"{row['lam']:g}",
            f"{row['accuracy']:.4f}",
            f"{row['authors_accuracy']:.4f}",
            f"{row['largest_residual_difference']:.1e}",
        )
    console.print(table)


MNIST_SIZES = (50, 100, 300, 500)
MNIST_PAPER = {
    "crnr": (89.2, 92.1, 94.4, 95.1),
    "nrc": (86.1, 88.5, 90.7, 91.7),
    "nsc": (91.6, 92.7, 84.8, 71.3),
    "crc": (86.3, 88.2, 89.2, 89.4),
    "procrc": (86.6, 89.5, 92.5, 93.5),
    "svm": (86.6, 88.5, 90.8, 91.1),
    "src": (82.4, 86.7),  # measured here at 50 and 100 alone, where the paper's table is compared
}
MNIST_PAPER_F1 = {"crnr": (89.0, 92.0, 94.3, 95.0)}
MNIST_SETTINGS: dict[str, dict[str, float]] = {
    "crnr": {"lam": 0.1},
    "nrc": {},
    "nsc": {},
    "crc": {"lam": 0.1},
    "procrc": {"gamma": 0.01, "lam": 0.1},
    "svm": {"c": 1},
    "src": {"lam": 1e-3},
}
MNIST_NOTES = {
    "nsc": "at 500 per class the samples of a class nearly span the space, and exact least squares leaves "
    "mostly noise of a query; with a ridge of 1e-5 in each class, which the paper does not mention, the same "
    "three draws give 91.46, 92.58, 84.31 and 70.86",
    "src": "solved to the minimum (duality gap) of ||y - X c||^2 + lam ||c||_1",
}
HALVED = (
    "lam 1e-3 with half of the square, 1/2 ||y - X c||^2 + lam ||c||_1, as many write it: the paper does not "
    "state which, and this one gives its figures"
)


@app.command()
def mnist(
    data: Data = datasets.DEFAULT_FOLDER,
    draws: Draws = 10,
    methods: Methods = "crnr,nrc",
    dtype: str = "float32",
    json: Json = False,
) -> None:
    """MNIST, raw pixels, random galleries, all 10,000 test images: means over the draws."""
    split = datasets.mnist(data)
    jobs = [
        Job(name, MNIST_SETTINGS[name], str(size), paper, f1, MNIST_NOTES.get(name, ""))
        for name, papers in MNIST_PAPER.items()
        for size, paper, f1 in zip(MNIST_SIZES, papers, MNIST_PAPER_F1.get(name, [None] * 4), strict=False)
    ] + [
        Job("src", {"lam": 2e-3}, str(size), paper, note=HALVED, variant="halved")
        for size, paper in zip(MNIST_SIZES, MNIST_PAPER["src"], strict=False)
    ]
    columns = (
        (str(size), unit(datasets.draw(split, size, seed), dtype))
        for seed in range(draws)
        for size in MNIST_SIZES
    )
    figures = measure(columns, jobs, methods, draws * len(MNIST_SIZES))
    show(f"MNIST, raw pixels, samples per class, {draws} draws, {dtype}", figures, json)


USPS_SIZES = (50, 100, 200, 300)
USPS_PAPER = {"crnr": (92.3, 93.6, 94.6, 94.6), "nrc": (90.3, 91.6, 92.7, 93.0)}


@app.command()
def usps(
    data: Data = datasets.DEFAULT_FOLDER, draws: Draws = 10, methods: Methods = None, json: Json = False
) -> None:
    """USPS, raw pixels and after PCA to 50, random galleries, the whole test set."""
    split = datasets.usps(data)
    for pca, title in ((None, "raw pixels"), (50, "PCA to 50")):
        jobs = [
            Job(name, {"lam": 0.1} if name == "crnr" else {}, str(size), paper)
            for name, papers in USPS_PAPER.items()
            for size, paper in zip(USPS_SIZES, papers, strict=True)
        ]
        columns = (
            (str(size), unit(datasets.draw(split, size, seed), "float32", pca))
            for seed in range(draws)
            for size in USPS_SIZES
        )
        figures = measure(columns, jobs, methods, draws * len(USPS_SIZES))
        show(f"USPS, {title}, samples per class, {draws} draws", figures, json)


FLOWERS_SETTINGS: dict[str, dict[str, float]] = {
    "crnr": {"lam": 0.1},
    "nrc": {},
    "crc": {},
    "nsc": {},
    "src": {},
    "croc": {},
    "procrc": {},
    "nn": {},
    "svm": {"c": 10},
    "softmax": {},
}


@app.command()
def flowers(data: Data = datasets.DEFAULT_FOLDER, methods: Methods = None, json: Json = False) -> None:
    """Oxford 102 Flowers, deep features, official split, 10 and 20 a class: all methods."""
    sizes = (10, 20)
    jobs = [Job(name, settings, str(size)) for name, settings in FLOWERS_SETTINGS.items() for size in sizes]
    columns = ((str(size), unit(datasets.flowers(data, size), "float32")) for size in sizes)
    figures = measure(columns, jobs, methods, len(sizes))
    show("Flowers, EfficientNet-Lite0 features, samples per class", figures, json)


if __name__ == "__main__":
    app()
