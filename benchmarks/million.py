"""A gallery of a million: what `build` and `classify` take with --neighbors, next to what nobody can avoid.

Everything is measured in one run, in processes of their own. Files are read from the disk, not from the
cache: before every measurement, the kernel is asked to drop the pages. Memory is that of the process and of
all its children, sampled; a page that several of them share counts once.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
from rich.console import Console
from rich.table import Table
from speed import CRNR, apart, in_turns, seconds

from crnr_cli.arrays import to_dense
from crnr_cli.gallery.file import load_gallery
from crnr_cli.methods import Samples, make_method
from crnr_cli.methods.base import residuals
from crnr_cli.solvers.neighbors import find_nearest
from crnr_cli.system.cores import available_cores, run_side_by_side

D, PER_CLASS, NEIGHBORS = 512, 100, 50
QUERIES = 1024
LATENT = 64  # the dimension of what differs between samples, as features of real data have one
NOISE = 1.0  # of a sample, if the coordinates of its class's centre have a standard deviation of 1
_CHUNK = 16_384  # rows that are made, read or multiplied at once
_EVERY = 0.2  # seconds between two looks at the memory, which take time from what is measured


@dataclass(frozen=True)
class Line:
    what: str
    ours: str
    against: str
    ratio: float
    demand: float
    at_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.ratio >= self.demand if self.at_least else self.ratio <= self.demand


@dataclass(frozen=True)
class Clusters:
    """Samples around the centres of classes, in a subspace, with a little noise in all directions."""

    centers: np.ndarray
    axes: np.ndarray
    rng: np.random.Generator

    @classmethod
    def of(cls, n_classes: int, rng: np.random.Generator) -> Clusters:
        axes = rng.standard_normal((LATENT, D), np.float32) / np.float32(np.sqrt(LATENT))
        return cls(rng.standard_normal((n_classes, LATENT), np.float32), axes, rng)

    def near(self, labels: np.ndarray) -> np.ndarray:
        """A sample of each of these classes."""
        noise = np.float32(NOISE) * self.rng.standard_normal((len(labels), LATENT), np.float32)
        everywhere = np.float32(0.1) * self.rng.standard_normal((len(labels), D), np.float32)
        return np.asarray((self.centers[labels] + noise) @ self.axes + everywhere)


def make_features(path: Path, n: int, clusters: Clusters) -> None:
    """A file of samples, in random order."""
    labels = clusters.rng.permutation(np.arange(n) % len(clusters.centers))
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", (n, D), np.float32)
        for start in range(0, n, _CHUNK):
            features[start : start + _CHUNK] = clusters.near(labels[start : start + _CHUNK])
        file["labels"] = labels


def forget(path: Path) -> None:
    """Ask the kernel to drop the cached pages of a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_once(path: Path) -> None:
    with h5py.File(path) as file:
        for start in range(0, len(file["features"]), _CHUNK):
            file["features"][start : start + _CHUNK]


def copy_once(path: Path, to: Path) -> None:
    """Read a file, write its copy, and wait until it is on the disk, as a gallery is."""
    with path.open("rb") as source, to.open("wb") as target:
        while block := source.read(2**22):
            target.write(block)
        target.flush()
        os.fsync(target.fileno())


def tree_of(process: int) -> Iterator[int]:
    yield process
    try:
        for thread in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208
            for child in Path(f"/proc/{process}/task/{thread}/children").read_text().split():
                yield from tree_of(int(child))
    except OSError:  # it has ended
        return


def resident(process: int) -> int:
    """The bytes in memory of a process: its share of every page that it shares with others."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError):
        return 0


class Ran(NamedTuple):
    """What a command took, and what it printed."""

    seconds: float
    peak: int  # bytes
    output: str


def run(*arguments: object) -> Ran:
    started = time.perf_counter()
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen([*CRNR, *map(str, arguments)], stdout=words, stderr=words)
        peaks = [0]

        def watch() -> None:
            while process.returncode is None:
                peaks.append(sum(map(resident, tree_of(process.pid))))
                time.sleep(_EVERY)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        status = process.wait()
        elapsed = time.perf_counter() - started
        watcher.join()
        words.seek(0)
        output = words.read().decode()
        if status:
            sys.exit(output)
    return Ran(elapsed, max(peaks), output)


def unit(rows: np.ndarray) -> np.ndarray:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def per_query(path: Path, queries: np.ndarray) -> tuple[float, float, float]:
    """Seconds for all queries: search and coding, search alone, and the product alone.

    Side by side on all cores, as `classify` does it; the product is made block by block, without a matrix
    that holds all of it, which would have to be written to memory.
    """
    gallery = load_gallery(path)
    cores = available_cores()
    size = gallery.method.batch_size(gallery.samples)
    batches = [queries[start : start + size] for start in range(0, len(queries), size)]
    X = gallery.samples.vectors

    def answered(batch: np.ndarray) -> None:
        gallery.method.residuals(gallery.samples, gallery.state, batch)

    def searched(batch: np.ndarray) -> None:
        find_nearest(X.T, batch.T, NEIGHBORS)

    def multiplied(batch: np.ndarray) -> None:
        Y, out = np.ascontiguousarray(batch.T), np.empty((_CHUNK, len(batch)), X.dtype)
        for start in range(0, len(X), _CHUNK):
            block = X[start : start + _CHUNK]
            np.matmul(block, Y, out=out[: len(block)])

    def timed(work: Callable[[np.ndarray], None]) -> Callable[[], float]:
        return lambda: seconds(lambda: list(run_side_by_side(work, batches, cores)))

    found = in_turns(timed(answered), timed(searched), timed(multiplied))
    return found[0], found[1], found[2]


def others(path: Path, queries: np.ndarray) -> tuple[float, float]:
    """Seconds that faiss and scikit-learn need to find the neighbours of all queries, with all cores."""
    from sklearn.neighbors import KNeighborsClassifier

    gallery = load_gallery(path)
    X, y = gallery.samples.vectors, gallery.samples.class_index
    of_faiss = _by_faiss(X, queries)
    few = queries[:256]
    neighbours = KNeighborsClassifier(NEIGHBORS, algorithm="brute").fit(X, y)
    return of_faiss, seconds(lambda: neighbours.predict(few)) * len(queries) / len(few)


def _by_faiss(X: np.ndarray, queries: np.ndarray) -> float:
    import faiss

    index = faiss.IndexFlatIP(D)
    index.add(X)
    return min(seconds(lambda: index.search(queries, NEIGHBORS)) for _ in range(3))


def answering(path: Path, queries: np.ndarray) -> float:
    """Seconds for all queries, side by side on all cores."""
    gallery = load_gallery(path)
    size = gallery.method.batch_size(gallery.samples)
    batches = [queries[start : start + size] for start in range(0, len(queries), size)]

    def answered(batch: np.ndarray) -> None:
        gallery.method.residuals(gallery.samples, gallery.state, batch)

    return min(
        seconds(lambda: list(run_side_by_side(answered, batches, available_cores()))) for _ in range(3)
    )


def agreement(rng: np.random.Generator, n: int = 20_000) -> float:
    """The share of queries that get the same label by their neighbours as by all of n samples.

    Both have the default parameters: what tune finds for neighbours does not suit coding by all samples.
    The classes are as many, and as large, as the gallery of a million has per 50.
    """
    n_classes = n // PER_CLASS
    clusters = Clusters.of(n_classes, rng)
    index = np.repeat(np.arange(n_classes), PER_CLASS)
    samples = Samples.of(unit(clusters.near(index)), index)
    queries = unit(clusters.near(rng.integers(0, n_classes, QUERIES)))
    winners = []
    for neighbors in (0, NEIGHBORS):
        method = make_method("crnr", {"neighbors": neighbors})
        state = method.fit(samples)
        batches = [queries[i : i + 128] for i in range(0, QUERIES, 128)]
        parts = [to_dense(residuals(method, samples, state, batch)) for batch in batches]
        winners.append(np.concatenate(parts).argmin(axis=1))
    return float((winners[0] == winners[1]).mean())


def tuned(features: Path) -> tuple[dict[str, object], int]:
    """The parameters that `crnr tune` finds on the samples of the gallery alone, and its peak memory."""
    ran = run("tune", features, "--try-neighbors", NEIGHBORS, "--try-power", 1, "--json", "--quiet")
    chosen = json.loads(ran.output)["chosen"]
    return {name: chosen[name] for name in ("lam", "mu", "iterations", "neighbors")}, ran.peak


def measured(
    folder: Path, n: int, *, is_largest: bool, with_index: bool
) -> tuple[list[Line], dict[str, float]]:
    """All figures for n samples; and seconds and bytes, for the exponents."""
    rng = np.random.default_rng(0)
    n_classes = n // PER_CLASS
    features, gallery, copy = folder / "features.h5", folder / "gallery.h5", folder / "copy"
    clusters = Clusters.of(n_classes, rng)
    make_features(features, n, clusters)
    truth = rng.integers(0, n_classes, QUERIES)
    asked = clusters.near(truth)
    np.savez(folder / "queries.npz", features=asked, labels=truth)
    matrix = 4 * n * D
    parameters, of_tune = tuned(features)
    print(f"{n:,} samples: tune chooses {parameters}")
    forget(features)
    reading = seconds(lambda: read_once(features))
    forget(features)
    copying = seconds(lambda: copy_once(features, copy))
    copy.unlink()
    forget(features)
    building, of_build, _ = run("build", features, "-o", gallery, *as_options(parameters))
    _, of_classify, _ = run("classify", folder / "queries.npz", "-g", gallery, "-o", folder / "exact.csv")
    figures = {"build seconds": building, "build memory": of_build, "classify memory": of_classify}
    lines = [
        Line("build", f"{building:.1f} s", f"reading the file once, {reading:.1f} s", building / reading, 3),
        Line("", "", f"copying it to the disk, {copying:.1f} s", building / copying, 3),
        _memory("tune, peak memory", of_tune, matrix, 3),
        _memory("build, peak memory", of_build, matrix, 1.3),
        _memory("classify, peak memory", of_classify, matrix, 1.2),
    ]
    queries = unit(asked)
    ours, search, product = apart(per_query, gallery, queries, side_by_side=True)
    lines.append(_times("search and coding", ours, "sgemm", product, 1.5))
    of_faiss, of_sklearn = apart(others, gallery, queries, side_by_side=False)
    lines += [
        _times("search alone", search, "faiss, flat", of_faiss, 1.3),
        _times("search and coding", ours, "KNeighborsClassifier", of_sklearn, 1),
    ]
    if with_index:
        lines += _of_index(folder, ours, queries, parameters)
    if is_largest:
        same = agreement(np.random.default_rng(1))
        what = f"{same:.2%} the same", "by all of 20,000"
        lines.append(Line("labels by neighbours", *what, same, 0.99, at_least=True))
    return lines, figures


def as_options(parameters: Mapping[str, object]) -> list[object]:
    return [word for name, value in parameters.items() for word in (f"--{name}", value)]


def _of_index(
    folder: Path, exact: float, queries: np.ndarray, parameters: Mapping[str, object]
) -> list[Line]:
    indexed = folder / "indexed.h5"
    options = (*as_options(parameters), "--index", "hnsw")
    building, memory, _ = run("build", folder / "features.h5", "-o", indexed, *options)
    run("classify", folder / "queries.npz", "-g", indexed, "-o", folder / "hnsw.csv")
    same = np.mean([a == b for a, b in zip(*map(_labels, ("exact", "hnsw"), (folder, folder)), strict=True)])
    found = apart(answering, indexed, queries, side_by_side=True)
    print(f"hnsw: build {building:.0f} s, peak memory {memory / 1e9:.2f} GB")
    return [
        _times("search by hnsw, and coding", found, "the exact search, and coding", exact, 0.1),
        Line("labels by hnsw", f"{same:.2%} the same", "the exact search", float(same), 0.99, at_least=True),
    ]


def _labels(name: str, folder: Path) -> list[str]:
    with (folder / f"{name}.csv").open(newline="") as file:
        return [row["label"] for row in csv.DictReader(file)]


def _memory(what: str, used: int, matrix: int, demand: float) -> Line:
    against = f"the features, {matrix / 1e9:.2f} GB"
    return Line(what, f"{used / 1e9:.2f} GB", against, used / matrix, demand)


def _times(what: str, ours: float, other: str, theirs: float, demand: float) -> Line:
    mine, its = (f"{1e3 * value / QUERIES:.3g} ms per query" for value in (ours, theirs))
    return Line(what, mine, f"{other}, {its}", ours / theirs, demand)


def report(sizes: Sequence[int], *, with_index: bool, folder: Path | None = None) -> None:
    """The figures of the largest size, and how seconds and bytes grow with the size."""
    grown: list[dict[str, float]] = []
    for n in sorted(sizes):
        with tempfile.TemporaryDirectory(dir=folder) as where:
            is_last = n == max(sizes)
            lines, figures = measured(Path(where), n, is_largest=is_last, with_index=with_index and is_last)
        grown.append({"n": n} | figures)
    table = Table(title=f"n = {max(sizes):,}, d = {D}, {NEIGHBORS} neighbours", title_justify="left")
    for column in ("what", "ours", "against", "ratio", "demand", ""):
        table.add_column(column, justify="right" if column in ("ratio", "demand") else "left")
    for line in lines:
        demand = f"{'>=' if line.at_least else '<='} {line.demand:g}"
        shown = ("yes" if line.is_met else "NO") if line.demand else ""
        table.add_row(line.what, line.ours, line.against, f"{line.ratio:.3g}", demand, shown)
    Console().print(table)
    for row in grown:
        print(", ".join(f"{name} {value:.4g}" for name, value in row.items()))
    if len(grown) > 1:
        for name in list(grown[0])[1:]:
            slope = np.polyfit(np.log([row["n"] for row in grown]), np.log([row[name] for row in grown]), 1)[
                0
            ]
            print(f"{name}: exponent {slope:.2f} (at most 1.05)")
