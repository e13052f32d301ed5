"""Galleries of very many classes, as commands of their own, by scale.py: seconds, and the peak of memory.

The features are made up: every class is a cloud around its own centre, and every query is of a class of the
gallery. A peak is that of the process that does the work, as the system counts it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from speed import CRNR

QUERIES, SPREAD = 1000, 0.7
AT_ONCE = 100_000  # samples that are made together
GALLERY, QUERY_FILE = Path("gallery.hdf5"), Path("queries.h5")


@dataclass(frozen=True)
class Run:
    """One command on one gallery."""

    command: str
    seconds: float
    processor_seconds: float  # of all cores, whatever else the machine does
    peak_bytes: int


@dataclass(frozen=True)
class Measured:
    """One gallery."""

    n_classes: int
    per_class: int
    feature_bytes: int
    by: str  # what queries are coded by
    runs: list[Run]


def make_files(n_classes: int, per_class: int, d: int) -> None:
    """Labelled features for a gallery, and queries, in the current folder."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, d), np.float32)
    labels = np.array([f"class{k:07}".encode() for k in range(n_classes)])
    step = AT_ONCE // per_class
    with h5py.File(GALLERY, "w") as file:
        features = file.create_dataset("features", (n_classes * per_class, d), np.float32)
        for start in range(0, n_classes, step):
            clouds = np.repeat(centres[start : start + step], per_class, axis=0)
            clouds += SPREAD * rng.standard_normal(clouds.shape, np.float32)
            features[start * per_class : start * per_class + len(clouds)] = clouds
        file["labels"] = np.repeat(labels, per_class)
    asked = rng.choice(n_classes, QUERIES, replace=False)
    with h5py.File(QUERY_FILE, "w") as file:
        file["features"] = centres[asked] + SPREAD * rng.standard_normal((QUERIES, d), np.float32)
        file["labels"] = labels[asked]


def measure(n_classes: int, per_class: int, d: int, *build_options: str) -> Measured:
    """All commands, on the files in the current folder."""
    queries, output = str(QUERY_FILE), "out.csv"
    runs = [
        run("build", str(GALLERY), "-q", *build_options),
        run("classify", queries, "-q", "-o", output),
        run("evaluate", output),
        run("evaluate", queries, "-q", "--html", "page.html"),
        run("info"),
    ]
    by = "by the nearest samples" if build_options else "by all samples"
    return Measured(n_classes, per_class, 4 * n_classes * per_class * d, by, runs)


def run(name: str, *arguments: str) -> Run:
    """Run one command, and ask the system what it took."""
    command = [*CRNR, name, *arguments]
    started = time.perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        places = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1)]
        child = os.posix_spawn(command[0], command, os.environ, file_actions=places)
        _, status, usage = os.wait4(child, 0)
    taken = time.perf_counter() - started
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)} failed")
    told = " ".join([name, *(argument for argument in arguments if argument not in ("-q", str(GALLERY)))])
    return Run(told, taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
