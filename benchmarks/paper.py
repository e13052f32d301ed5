"""The paper's tables, measured here, with the paper's figures beside ours.

python benchmarks/paper.py ar
python benchmarks/paper.py mnist [--draws 10] [--methods crnr,nrc] [--json]

The data is not part of the project: --data names the folder that holds it. What is not there is skipped,
and the skip is said.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import datasets
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from crnr_cli.methods import Samples, make_method
from crnr_cli.metrics import score
from crnr_cli.recipe import Recipe, principal_axes

BATCH = 512
app = typer.Typer(help=__doc__, no_args_is_help=True)
console = Console()

Data = Annotated[Path, typer.Option("--data", help="Folder that holds the data.")]
Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
Methods = Annotated[
    str | None, typer.Option(help="Methods to measure, with commas between.", show_default="all")
]


@dataclass(frozen=True)
class Measured:
    accuracy: float
    macro_f1: float
    residuals: np.ndarray


def unit(split: datasets.Split, dtype: str, pca: int | None = None) -> datasets.Split:
    """Unit vectors in the gallery's order: by class."""
    recipe = Recipe("features", split.train.shape[1])
    if pca:
        recipe = replace(recipe, pca=principal_axes(split.train, pca))
    order = np.argsort(split.train_labels, kind="stable")
    return datasets.Split(
        recipe.unit_vectors(split.train[order], dtype)[0],
        split.train_labels[order],
        recipe.unit_vectors(split.test, dtype)[0],
        split.test_labels,
    )


def measure(name: str, parameters: Mapping[str, object], split: datasets.Split) -> Measured:
    """Fit on the training part of unit vectors, classify the test part."""
    method = make_method(name, parameters)
    samples = Samples.of(split.train, split.train_labels)
    state = method.fit(samples)
    batches = [split.test[start : start + BATCH] for start in range(0, len(split.test), BATCH)]
    residuals = np.concatenate([method.residuals(samples, state, batch) for batch in batches])
    labels = residuals.argmin(axis=1)
    scores = score([str(t) for t in split.test_labels], [str(p) for p in labels])
    assert scores.accuracy is not None
    assert scores.macro.f1 is not None
    return Measured(scores.accuracy, scores.macro.f1, residuals)


AR_DIMENSIONS = (54, 120, 300)
AR_PAPER = {"crnr": (85.69, 91.27, 93.99)}
AR_SETTINGS: dict[str, tuple[dict[str, float], ...]] = {
    "crnr": ({"lam": 1e-3}, {"lam": 1e-2}, {"lam": 1e-3}),
}


@app.command()
def ar(data: Data = datasets.DEFAULT_FOLDER, json: Json = False) -> None:
    """AR faces after PCA: the authors' program's answers, query by query."""
    split = datasets.ar(data)
    reference = np.load(datasets.find(data, "ar_reference.npz"))
    figures = []
    for dtype in ("float64", "float32"):
        for dimension, settings in zip(AR_DIMENSIONS, AR_SETTINGS["crnr"], strict=True):
            measured = measure("crnr", settings, unit(split, dtype, dimension))
            theirs = reference[f"residuals_{dimension}"]
            figures.append(
                {
                    "dtype": dtype,
                    "dimension": dimension,
                    **settings,
                    "accuracy": measured.accuracy,
                    "authors_accuracy": float((theirs.argmin(axis=1) == split.test_labels).mean()),
                    "largest_residual_difference": float(np.abs(measured.residuals - theirs).max()),
                }
            )
    if json:
        print(json_module.dumps(figures, indent=2))
        return
    table = Table(title="AR, crnr, against the answers of the authors' program")
    for column in ("type", "dimension", "lam", "accuracy", "authors'", "largest residual difference"):
        table.add_column(column, justify="right")
    for row in figures:
        table.add_row(
            str(row["dtype"]),
            str(row["dimension"]),
            f"{row['lam']:g}",
            f"{row['accuracy']:.4f}",
            f"{row['authors_accuracy']:.4f}",
            f"{row['largest_residual_difference']:.1e}",
        )
    console.print(table)


A_CLASS = (50, 100, 300, 500)
MNIST_PAPER = {
    "crnr": (89.2, 92.1, 94.4, 95.1),
    "nrc": (86.1, 88.5, 90.7, 91.7),
}
MNIST_PAPER_F1 = {"crnr": (89.0, 92.0, 94.3, 95.0)}
MNIST_SETTINGS: dict[str, dict[str, float]] = {"crnr": {"lam": 0.1}, "nrc": {}}


@app.command()
def mnist(
    data: Data = datasets.DEFAULT_FOLDER,
    draws: Annotated[int, typer.Option(min=1, help="Random galleries a size.")] = 10,
    methods: Methods = None,
    dtype: str = "float32",
    json: Json = False,
) -> None:
    """MNIST, raw pixels, random galleries, all 10,000 test pictures: means over the draws."""
    split = datasets.mnist(data)
    chosen = methods.split(",") if methods else list(MNIST_SETTINGS)
    found: dict[tuple[str, int], list[Measured]] = {}
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("mnist", total=draws * len(A_CLASS) * len(chosen))
        for seed in range(draws):
            for a_class in A_CLASS:
                drawn = unit(datasets.draw(split, a_class, seed), dtype)
                for name in chosen:
                    progress.update(task, description=f"draw {seed + 1}, {a_class} a class, {name}")
                    found.setdefault((name, a_class), []).append(measure(name, MNIST_SETTINGS[name], drawn))
                    progress.advance(task)
    figures = [
        {
            "method": name,
            "a_class": a_class,
            "accuracy": 100 * float(np.mean([m.accuracy for m in measured])),
            "accuracy_deviation": 100 * float(np.std([m.accuracy for m in measured])),
            "paper_accuracy": MNIST_PAPER[name][A_CLASS.index(a_class)],
            "macro_f1": 100 * float(np.mean([m.macro_f1 for m in measured])),
            "paper_macro_f1": MNIST_PAPER_F1[name][A_CLASS.index(a_class)]
            if name in MNIST_PAPER_F1
            else None,
        }
        for (name, a_class), measured in sorted(found.items(), key=lambda item: chosen.index(item[0][0]))
    ]
    if json:
        print(json_module.dumps({"draws": draws, "dtype": dtype, "figures": figures}, indent=2))
        return
    table = Table(title=f"MNIST, raw pixels, {draws} draws, {dtype}: per cent")
    for column in ("method", "a class", "accuracy", "paper", "difference", "macro F1", "paper", "difference"):
        table.add_column(column, justify="right")
    for row in figures:
        table.add_row(
            str(row["method"]), str(row["a_class"]), *_beside(row, "accuracy"), *_beside(row, "macro_f1")
        )
    console.print(table)


def _beside(row: Mapping[str, object], key: str) -> tuple[str, str, str]:
    ours, papers = row[key], row[f"paper_{key}"]
    assert isinstance(ours, float)
    if not isinstance(papers, float):
        return f"{ours:.2f}", "-", "-"
    return f"{ours:.2f}", f"{papers:.1f}", f"{ours - papers:+.2f}"


if __name__ == "__main__":
    app()
