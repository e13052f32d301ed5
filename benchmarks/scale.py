"""How build and classify grow with the gallery: seconds, bytes, and the exponents fitted to them.

python benchmarks/scale.py [--sizes 10000,30000,100000] [--json]

Made-up unit vectors, d = 512, n/100 classes. Every size runs in a process of its own, so that its peak of
memory is its own.
"""

from __future__ import annotations

import json as json_module
import resource
import subprocess
import sys
import time
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from crnr_cli.jobs.classify import batch_size
from crnr_cli.methods import Samples, make_method

D, A_CLASS, QUERIES = 512, 100, 512


def measure(n: int) -> dict[str, float]:
    """Fit and classify at one size, in this process."""
    rng = np.random.default_rng(0)
    vectors = np.empty((n, D), np.float32)
    for start in range(0, n, A_CLASS):  # a class is a cloud about its own centre
        rows = rng.standard_normal(D, np.float32) + rng.standard_normal((A_CLASS, D), np.float32)
        vectors[start : start + A_CLASS] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    queries = rng.standard_normal((QUERIES, D), np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    samples = Samples(vectors, np.arange(0, n + 1, A_CLASS))
    method = make_method("crnr", {})
    started = time.perf_counter()
    state = method.fit(samples)
    built = time.perf_counter()
    size = batch_size(n)
    for start in range(0, QUERIES, size):
        method.residuals(samples, state, queries[start : start + size])
    classified = time.perf_counter()
    return {
        "n": n,
        "build_seconds": built - started,
        "query_milliseconds": 1e3 * (classified - built) / QUERIES,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "feature_bytes": vectors.nbytes,
    }


def exponent(rows: list[dict[str, float]], key: str) -> float:
    """The slope of log(value) over log(n)."""
    return float(np.polyfit(np.log([row["n"] for row in rows]), np.log([row[key] for row in rows]), 1)[0])


def main(
    sizes: Annotated[
        str, typer.Option(help="Samples in the gallery, with commas between.")
    ] = "10000,30000,100000",
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    one: Annotated[int | None, typer.Option(hidden=True, help="Measure this size here.")] = None,
) -> None:
    if one is not None:
        print(json_module.dumps(measure(one)))
        return
    rows = []
    for n in map(int, sizes.split(",")):
        command = [sys.executable, __file__, "--one", str(n)]
        rows.append(json_module.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
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


if __name__ == "__main__":
    typer.run(main)
