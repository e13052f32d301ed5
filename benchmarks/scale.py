"""How crnr scales: with the gallery, with workers, and with the number of classes.

python benchmarks/scale.py                 the gallery and workers
python benchmarks/scale.py gallery [--sizes 10000,30000,100000] [--json]
python benchmarks/scale.py million [--sizes 10000,100000,1000000] [--no-index]
python benchmarks/scale.py workers [--images 8000] [--json]
python benchmarks/scale.py classes [--sizes 20000x5,1000000x1] [--dimension 128] [--json]

gallery: how build and classify grow, in seconds and bytes, and the exponents fitted to them. Made-up unit
vectors, d = 512, n/100 classes. Every size is built and classified in processes of their own, so that a peak
of memory is that of one of them.

workers: `classify` of a folder of small images by one process, and on clusters of 1 and 2 processes of this
machine; what is sent, and how long its steps take; and from these figures, on paper, 100 workers and 100
million queries.

classes: build, classify, evaluate and info of galleries with very many classes, by their 50 nearest samples
and, up to 100,000 samples, by all of them.
"""

from __future__ import annotations

import json as json_module
import resource
import tempfile
import time
from contextlib import chdir
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import many_classes
import million as million_part
import numpy as np
import typer
import workers as workers_part
from rich.console import Console
from rich.table import Table
from speed import Task, apart, best, classify_all

from crnr_cli.methods import Samples, make_method

D, A_CLASS, QUERIES = 512, 100, 1024
WORKERS, MANY_QUERIES = 100, 100_000_000
MOST_BY_ALL = 100_000  # samples of a gallery that is coded by all of them

app = typer.Typer(add_completion=False)


def made_up(n: int) -> Samples:
    """Every class is a cloud around its own centre."""
    rng = np.random.default_rng(0)
    vectors = np.empty((n, D), np.float32)
    for start in range(0, n, A_CLASS):
        rows = rng.standard_normal(D, np.float32) + rng.standard_normal((A_CLASS, D), np.float32)
        vectors[start : start + A_CLASS] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return Samples(vectors, np.arange(0, n + 1, A_CLASS))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def building(n: int) -> tuple[float, int]:
    """Seconds to fit, and the peak memory."""
    samples = made_up(n)
    started = time.perf_counter()
    make_method("crnr", {}).fit(samples)
    return time.perf_counter() - started, peak_bytes()


def querying(n: int) -> tuple[float, int]:
    """Milliseconds per query on all cores, and the peak memory."""
    samples, method = made_up(n), make_method("crnr", {})
    queries = np.random.default_rng(1).standard_normal((QUERIES, D), np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    task = Task(samples, method, method.fit(samples), queries)
    return 1e3 * best(lambda: classify_all(task)) / QUERIES, peak_bytes()


def measure(n: int) -> dict[str, float]:
    build_seconds, build_peak = apart(building, n, side_by_side=False)
    query_milliseconds, query_peak = apart(querying, n, side_by_side=True)
    return {
        "n": n,
        "build_seconds": build_seconds,
        "query_milliseconds": query_milliseconds,
        "peak_bytes": max(build_peak, query_peak),
        "feature_bytes": 4 * n * D,
    }


def exponent(rows: list[dict[str, float]], key: str) -> float:
    """The slope of log(value) over log(n)."""
    return float(np.polyfit(np.log([row["n"] for row in rows]), np.log([row[key] for row in rows]), 1)[0])


Json = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]


@app.callback(invoke_without_command=True)
def both(context: typer.Context) -> None:
    """How crnr scales: with the gallery, and with workers. Without a command, both are measured."""
    if context.invoked_subcommand is None:
        gallery()
        workers()


@app.command()
def gallery(
    sizes: Annotated[
        str, typer.Option(help="Samples in the gallery, with commas between.")
    ] = "10000,30000,100000",
    json: Json = False,
) -> None:
    """How build, query and memory grow with the gallery."""
    rows = [measure(int(n)) for n in sizes.split(",")]
    exponents = {key: exponent(rows, key) for key in ("build_seconds", "query_milliseconds", "peak_bytes")}
    if json:
        print(json_module.dumps({"rows": rows, "exponents": exponents}, indent=2))
        return
    table = Table()
    for column in ("n", "build", "a query", "peak memory", "of the feature matrix"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['n']:,}",
            f"{row['build_seconds']:.1f} s",
            f"{row['query_milliseconds']:.2f} ms",
            f"{row['peak_bytes'] / 1e9:.2f} GB",
            f"{row['peak_bytes'] / row['feature_bytes']:.1f} times",
        )
    table.add_section()
    table.add_row("exponent", *(f"{value:.2f}" for value in exponents.values()), "")
    Console().print(table)


@app.command()
def million(
    sizes: Annotated[
        str, typer.Option(help="Samples in the gallery, with commas between.")
    ] = "10000,100000,1000000",
    index: Annotated[
        bool, typer.Option(help="Measure the index hnsw too, which takes long to build.")
    ] = True,
    folder: Annotated[Path | None, typer.Option(help="For the files, of 5 GB per million samples.")] = None,
) -> None:
    """Build and classify with --neighbors: time, memory, and the search next to that of others."""
    million_part.report([int(n) for n in sizes.split(",")], with_index=index, folder=folder)


@app.command()
def workers(
    images: Annotated[int, typer.Option(help="To classify, at most 8,100.")] = 8000,
    json: Json = False,
) -> None:
    """One process, clusters of 1 and 2 workers, and an estimate for 100 workers and 100 million queries."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        workers_part.make_files(images)
        # Dask's threads, once started, would count as memory of the listing.
        measured, runs = workers_part.measure(), workers_part.runs()
    estimate = workers_part.estimate(measured, WORKERS, MANY_QUERIES)
    if json:
        records = {
            "images": images,
            "runs": [asdict(run) for run in runs],
            "measured": asdict(measured),
            "estimate": asdict(estimate) | {"limit": estimate.limit},
        }
        print(json_module.dumps(records, indent=2))
        return
    table = Table(title=f"{images:,} images", title_justify="left")
    for column in ("classify", "command", "cluster there", "images a second"):
        table.add_column(column, justify="left" if column == "classify" else "right", no_wrap=True)
    for run in runs:
        working = run.working or run.seconds
        table.add_row(
            run.how,
            f"{run.seconds:.1f} s",
            "" if run.working is None else f"{run.working:.1f} s",
            f"{images / working:,.0f}",
        )
    Console().print(table)
    print("Measured, in seconds and bytes:")
    for name, value in asdict(measured).items():
        print(f"  {name.replace('_', ' '):<20}{value:,.7g}")
    _tell(estimate)


@app.command()
def classes(
    sizes: Annotated[
        str, typer.Option(help="Classes x samples of each, with commas between.")
    ] = "20000x5,1000000x1",
    dimension: Annotated[int, typer.Option(help="Of the features.")] = 128,
    json: Json = False,
) -> None:
    """Galleries of very many classes: 1,000 queries, with the peak of memory of every command."""
    found = []
    for n_classes, per_class in (map(int, size.split("x")) for size in sizes.split(",")):
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            # Apart, as a command counts the memory of the process that starts it.
            apart(many_classes.make_files, n_classes, per_class, dimension, side_by_side=False)
            found.append(many_classes.measure(n_classes, per_class, dimension, "--neighbors", "50"))
            if n_classes * per_class <= MOST_BY_ALL:
                found.append(many_classes.measure(n_classes, per_class, dimension))
    if json:
        print(json_module.dumps([asdict(gallery) for gallery in found], indent=2))
        return
    for gallery in found:
        title = f"{gallery.n_classes:,} classes of {gallery.per_class}, dimension {dimension}, {gallery.by}"
        table = Table(title=title, title_justify="left")
        for column in ("command", "seconds", "of the cores", "peak", "of features"):
            table.add_column(column, justify="left" if column == "command" else "right", no_wrap=True)
        for run in gallery.runs:
            table.add_row(
                run.command,
                f"{run.seconds:.1f}",
                f"{run.processor_seconds:.1f}",
                f"{run.peak_bytes / 1e6:,.0f} MB",
                f"{run.peak_bytes / gallery.feature_bytes:.1f} times",
            )
        Console().print(table)


def _tell(e: workers_part.Estimate) -> None:
    """The estimate, by the formulas of `workers.estimate`."""
    hours = 3600
    print(f"On paper, {e.workers} workers and {e.queries:,} queries:")
    for what, figure in (
        ("first every worker lists", f"{e.folders / hours:.3f} h"),
        ("while the client joins", f"{e.listing / hours:.3f} h"),
        (
            "then every worker computes",
            f"{e.computing / hours:.3f} h, {e.loading:.2f} s of it its gallery's load",
        ),
        ("while the scheduler is busy", f"{e.scheduling / hours:.3f} h"),
        ("and the client sends and writes", f"{e.writing / hours:.3f} h"),
        ("all of it takes", f"{e.seconds / hours:.2f} h"),
        ("through the scheduler", f"{e.scheduler_bytes / 1e9:.1f} GB, {_rate(e.scheduler_bytes, e)}"),
        ("images read", f"{e.image_bytes / 1e9:.1f} GB, {_rate(e.image_bytes, e)}"),
        ("files opened", f"{e.queries / e.spreading:,.0f} a second"),
        ("galleries read", f"{e.gallery_bytes / 1e9:.2f} GB, once at the start"),
        ("the CSV", f"{e.csv_bytes / 1e9:.1f} GB, {_rate(e.csv_bytes, e)}"),
        ("the listing in the client", f"{e.client_memory / 1e9:.1f} GB of memory"),
    ):
        print(f"  {what:<32}{figure}")
    for name, count in e.limits.items():
        print(f"  {name} takes longer than the workers compute from {count:,.0f} workers on")
    print(f"  so the first limit is {e.limit}; what a shared file system gives is not measured here")


def _rate(size: float, e: workers_part.Estimate) -> str:
    return f"{size / e.spreading / 1e6:.1f} MB/s"


if __name__ == "__main__":
    app()
