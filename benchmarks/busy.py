"""What every command takes on a quiet machine, and beside as many busy loops as there are cores.

    python benchmarks/busy.py [--repeats 5] [--limit 2.5]

A loop on a core leaves a fair half of it to us, so that a ratio of 2 is the best for work on all cores.
Threads that spin while they wait for a lost core make it far more. Quiet and busy runs take turns, and the
medians are compared. Exits with 1 if a command takes more than `--limit` times its time on the quiet machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SAMPLE_DATA = Path(__file__).resolve().parent.parent / "sample_data"
CRNR = (sys.executable, "-m", "crnr_cli")
GALLERY, QUERIES = str(SAMPLE_DATA / "gallery"), str(SAMPLE_DATA / "queries")
COMMANDS = {
    "build": ["build", GALLERY, "-o", "new.h5"],
    "build --pca 30": ["build", GALLERY, "-o", "new.h5", "--pca", "30"],
    "build --calibrate": ["build", GALLERY, "-o", "new.h5", "--calibrate"],
    "build --update": ["build", GALLERY, "-o", "g.h5", "--update"],
    "classify": ["classify", QUERIES, "-g", "g.h5", "-o", "out.csv"],
    "classify --reject 0.05": ["classify", QUERIES, "-g", "g.h5", "-o", "out.csv", "--reject", "0.05"],
    "evaluate": ["evaluate", QUERIES, "-g", "g.h5"],
    "evaluate --html": ["evaluate", QUERIES, "-g", "g.h5", "--html", "page.html"],
    "explain": ["explain", f"{QUERIES}/0/0050.png", "-g", "g.h5"],
    "tune": ["tune", GALLERY],
    "compare": ["compare", GALLERY, "--draws", "2"],
    "add": ["add", "added.h5", QUERIES],
    "remove": ["remove", "removed.h5", "--class", "7"],
    "info": ["info", "g.h5"],
    "verify": ["verify", "g.h5", "--source", GALLERY],
}


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(arguments: list[str], folder: Path) -> float:
    for name in ("added.h5", "removed.h5"):
        shutil.copy(folder / "g.h5", folder / name)
    started = time.perf_counter()
    command = [*CRNR, *arguments]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=2.5)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    slow = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([*CRNR, "build", GALLERY, "-o", "g.h5", "-q"], cwd=folder, check=True)
        print(f"{cores} cores, beside {cores} busy loops; medians of {options.repeats}")
        print(f"{'command':24} {'quiet s':>8} {'busy s':>8} {'ratio':>6}")
        for command, arguments in COMMANDS.items():
            quiet, busy = [], []
            for _ in range(options.repeats):
                quiet.append(seconds(arguments, folder))
                with busy_loops(cores):
                    busy.append(seconds(arguments, folder))
            ratio = statistics.median(busy) / statistics.median(quiet)
            slow |= ratio > options.limit
            print(
                f"{command:24} {statistics.median(quiet):8.2f} {statistics.median(busy):8.2f} {ratio:6.2f}",
                flush=True,
            )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
