"""How long `crnr sort` takes, against cp, ln and mv on the same files, in turns.

    python benchmarks/sort.py --files 100000 --folder /tmp

cp, ln and mv get the files of each label at once, through xargs, so that they start only a few times. They
keep no list to undo, and overwrite what is there. crnr is measured as a process, with its start.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LABELS = [f"class {number}" for number in range(10)]
PER_FOLDER = 1000
COMMANDS = {
    "copy": ["cp", "-p", "-t"],
    "hardlink": ["ln", "-t"],
    "link": ["ln", "-s", "-t"],
    "move": ["mv", "-t"],
}


def make(folder: Path, count: int, size: int) -> dict[str, list[str]]:
    """Files and their CSV; returns the files by label."""
    files: dict[str, list[str]] = {label: [] for label in LABELS}
    with (folder / "out.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "truth", "label", "status"])
        for number in range(count):
            above = folder / "queries" / str(number // PER_FOLDER)
            if number % PER_FOLDER == 0:
                above.mkdir(parents=True)
            path = above / f"{number}.png"
            path.write_bytes(number.to_bytes(8) * (size // 8))
            label = LABELS[number % len(LABELS)]
            files[label].append(str(path))
            writer.writerow([path, "", label, "ok"])
    return files


def by_tools(how: str, files: dict[str, list[str]], folder: Path) -> None:
    for label, paths in files.items():
        target = folder / "sorted" / label
        target.mkdir(parents=True)
        command = ["xargs", "-0", *COMMANDS[how], str(target)]
        subprocess.run(command, input="\0".join(paths).encode(), check=True)


def by_crnr(how: str, folder: Path) -> None:
    command = [sys.executable, "-m", "crnr_cli", "sort", "out.csv", "sorted", "--how", how, "-q"]
    subprocess.run(command, cwd=folder, check=True)


def seconds(
    work: Callable[[], None], how: str, folder: Path, files: dict[str, list[str]]
) -> tuple[float, float]:
    """Of the work, which is undone afterwards: by the clock, and of the processors."""
    start, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    processors = after.children_user + after.children_system - before.children_user - before.children_system
    took = time.perf_counter() - start, processors
    if how == "move":
        for label, paths in files.items():
            for path in paths:
                Path(folder, "sorted", label, Path(path).name).rename(path)
    shutil.rmtree(folder / "sorted")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", nargs="*", choices=[*COMMANDS, []], default=[], help="all if none is named")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=8192, help="bytes of a file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where to work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        files = make(folder, options.files, options.size)
        print(f"{options.files} files of {options.size} bytes; medians of {options.rounds} rounds")
        for how in options.how or COMMANDS:
            tool = COMMANDS[how]
            tools, ours = [], []
            for _ in range(options.rounds):
                tools.append(seconds(lambda how=how: by_tools(how, files, folder), how, folder, files))  # type: ignore[misc]
                ours.append(seconds(lambda how=how: by_crnr(how, folder), how, folder, files))  # type: ignore[misc]
            named = " ".join(tool[:-1])
            for i, what in enumerate(("clock", "processors")):
                theirs, own = (statistics.median(took[i] for took in all_took) for all_took in (tools, ours))
                ratio = own / theirs
                print(f"{how:9} {what:10} {named:6} {theirs:6.2f} s   crnr {own:6.2f} s   ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
