"""Whether a nightly job stays right: many nights in a row on a folder that grows and changes.

    python benchmarks/soak.py [--nights 300] [--seed 0] [--folder /tmp] [--disk auto|limit]

Each night some images of an inbox are new, changed, renamed, gone or broken, and the mtimes of some jump
backwards. Then the job runs: `classify inbox -o out.csv --update`, `sort`, and in some nights `add`. Some
runs are killed at a random moment, some find a full disk, some have a second run beside them, and some have
`--prune`. A killed run is started again at once, or not before the next night.

After each night the predictions file is compared with a plain model: rows stay in place, rows of changed
files are replaced, new rows follow in the order of the listing, rows of files that are gone stay (without
--prune), and each row is the row of a plain `classify` of the whole inbox. Another gallery makes all rows
new.

The disk is a small tmpfs if the system permits one; else a limit of the size of files (RLIMIT_FSIZE) stands
for a full disk. Exits with 1 if the job was wrong in a night.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

CRNR = (sys.executable, "-m", "crnr_cli")
CLASSES = ("ant", "bee", "cow", "Dog")
SIDE = 24
DONE = (0, 3)  # the exit codes of a finished run; 3 if files failed
DAY = 86_400 * 10**9
TOLERANCE = 1e-4  # between residuals that were computed in other batches
TMPFS_BYTES = 32 << 20
LIMIT = 2048  # bytes that a file may have on a full disk
SHARES = {"kill": 0.3, "full": 0.1, "two": 0.1, "prune": 0.08, "add": 0.08, "quiet": 0.1}  # of the nights
Rows = dict[str, list[str]]  # by path, in the order of the file


def draw(rng: random.Random, label: int) -> Image.Image:
    """Return an image of a class: a pattern, with noise."""
    noise = np.random.default_rng(rng.randrange(2**32))
    pattern = np.random.default_rng(label).random((SIDE, SIDE))
    values = 150 * pattern + 100 * noise.random((SIDE, SIDE))
    return Image.fromarray(values.astype(np.uint8))


@dataclass
class Ran:
    """A process that has ended."""

    exit: int  # negative if it was killed
    seconds: float
    megabytes: float
    err: str


@dataclass
class Started:
    process: subprocess.Popen[bytes]
    began: float
    messages: Path

    def end(self) -> Ran:
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - self.began
        err = self.messages.read_text(errors="replace")
        self.messages.unlink()
        return Ran(self.process.returncode, seconds, usage.ru_maxrss / 1024, err)


@dataclass
class Soak:
    """The folder, the model of the predictions file, and everything that was noticed."""

    work: Path
    disk: Path  # holds the predictions file; small if it is a tmpfs
    is_tmpfs: bool
    rng: random.Random
    rows: Rows = field(default_factory=dict)  # the model
    earlier: list[Rows] = field(default_factory=list)  # the right rows of each unfinished run
    is_new_gallery: bool = False
    made: int = 0  # images, for their names
    wrong: list[str] = field(default_factory=list)
    drifted: int = 0  # rows whose numbers differ in the last digits from a plain classify
    largest: float = 0.0  # of these differences
    events: Counter[str] = field(default_factory=Counter)
    leftovers: Counter[str] = field(default_factory=Counter)
    table: list[tuple[int, int, float, float, float, int]] = field(default_factory=list)
    seconds: float = 1.0  # of the last finished update
    night: int = 0

    @property
    def inbox(self) -> Path:
        return self.work / "inbox"

    @property
    def csv(self) -> Path:
        return self.disk / "out.csv"

    def complain(self, text: str) -> None:
        self.wrong.append(f"night {self.night}: {text}")
        print(self.wrong[-1], flush=True)

    def start(self, *arguments: str | Path, limit: int | None = None) -> Started:
        messages = self.work / f"stderr{time.perf_counter_ns()}"
        environment = {**os.environ, "TMPDIR": str(self.work / "tmp"), "OPENBLAS_NUM_THREADS": "1"}

        def restrict() -> None:
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with messages.open("wb") as err:
            process = subprocess.Popen(
                [*CRNR, *map(str, arguments)],
                cwd=self.work,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=environment,
                start_new_session=True,
                preexec_fn=restrict,
            )
        return Started(process, time.perf_counter(), messages)

    def run(self, *arguments: str | Path) -> Ran:
        return self.start(*arguments).end()

    # --- The inbox ---------------------------------------------------------------------------------------

    def make_images(self, folder: Path, count: int) -> None:
        for _ in range(count):
            label = self.rng.randrange(len(CLASSES))
            place = folder / self.rng.choice(["", "Camera 1", "é"]) if folder == self.inbox else folder
            if folder != self.inbox:
                place = folder / CLASSES[label]
            place.mkdir(parents=True, exist_ok=True)
            draw(self.rng, label).save(place / f"{self.rng.randrange(100):02} {self.made}.png")
            self.made += 1

    def change_inbox(self) -> None:
        rng = self.rng
        self.make_images(self.inbox, rng.randrange(7))
        files = sorted(path for path in self.inbox.rglob("*.png"))
        for path in rng.sample(files, min(len(files), rng.randrange(6))):
            kind = rng.choice(["changed", "older", "gone", "renamed", "broken", "touched"])
            self.events[kind] += 1
            before = path.stat().st_mtime_ns
            if kind == "gone":
                path.unlink()
            elif kind == "renamed":
                path.rename(path.with_name(f"{rng.randrange(100):02} again {self.made}.png"))
                self.made += 1
            elif kind == "touched":
                os.utime(path, ns=(before, before - rng.randrange(1, DAY)))
            elif kind == "broken":
                path.write_bytes(path.read_bytes()[: rng.randrange(1, 60)])
            else:
                draw(rng, rng.randrange(len(CLASSES))).save(path)
                if kind == "older":
                    os.utime(path, ns=(before, before - rng.randrange(1, 30 * DAY)))

    # --- The model ---------------------------------------------------------------------------------------

    def read(self, path: Path) -> tuple[list[str], Rows]:
        with path.open(newline="", errors="surrogateescape") as file:
            header, *lines = csv.reader(file)
        rows = {line[0]: line for line in lines}
        if len(rows) < len(lines):
            self.complain(f"{path.name} has {len(lines) - len(rows)} paths twice")
        return header, rows

    def plain(self) -> tuple[list[str], Rows]:
        ran = self.run("classify", "inbox", "-g", self.disk / "gallery.h5", "-o", "plain.csv", "-q")
        if ran.exit not in DONE:
            self.complain(f"a plain classify exits with {ran.exit}: {ran.err}")
        return self.read(self.work / "plain.csv")

    def compare(self, plain: tuple[list[str], Rows], *, prune: bool) -> None:
        """Compare the predictions file of a finished run with the model, which then has its rows."""
        header, now = plain
        found_header, found = self.read(self.csv)
        if found_header != header:
            self.complain("another header")
        kept = [] if self.is_new_gallery else [path for path in self.rows if path in now or not prune]
        order, new = list(found), [path for path in now if path not in set(kept)]
        if order[: len(kept)] != kept:
            self.complain("rows did not stay in place")
        rest = order[len(kept) :]
        # A run that was stopped may have added other files of its night first, some of which are gone now.
        possible = {path for rows in self.earlier for path in rows}
        if rest != new and not (self.earlier and set(new) <= set(rest) <= {*new, *possible}):
            missing, more = set(new) - set(rest), set(rest) - set(new)
            self.complain(f"new rows: {len(missing)} missing, {len(more)} too many, or in another order")
        for path, row in found.items():
            allowed = [now[path]] if path in now else [self.rows.get(path, row)]
            if path not in now:
                allowed += [rows[path] for rows in self.earlier if path in rows]
            if row not in allowed:
                difference = min(largest_difference(row, other) for other in allowed)
                if difference <= TOLERANCE:
                    self.drifted += 1
                    self.largest = max(self.largest, difference)
                else:
                    self.complain(f"wrong row {row[:5]} instead of {allowed[0][:5]}")
        self.rows, self.earlier, self.is_new_gallery = found, [], False

    # --- The job -----------------------------------------------------------------------------------------

    def update(self, *options: str, limit: int | None = None) -> Started:
        fixed = ("-g", self.disk / "gallery.h5", "-o", self.csv, "--update", "--batch-size", "8")
        return self.start("classify", "inbox", *fixed, *options, limit=limit)

    def run_unlucky(self, kind: str, plain: tuple[list[str], Rows]) -> None:
        """Run an update that is killed, or finds a full disk: the old file stays, or the new one is there."""
        before = self.csv.read_bytes() if self.csv.exists() else None
        if kind == "kill":
            started = self.update()
            time.sleep(self.rng.uniform(0, 1.2 * self.seconds))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.process.pid, signal.SIGKILL)
            ran = started.end()
        else:
            with self.full_disk() as limit:
                ran = self.update(limit=limit).end()
            if ran.exit not in DONE and ("Traceback" in ran.err or "error: " not in ran.err):
                self.complain(f"a full disk: exit {ran.exit}, {ran.err}")
        finished = ran.exit in DONE
        self.events[f"{kind}: {'finished before' if finished else 'stopped'}"] += 1
        after = self.csv.read_bytes() if self.csv.exists() else None
        if not finished:
            self.earlier.append(plain[1])
        if finished or after != before:
            self.compare(plain, prune=False)

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[int | None]:
        if not self.is_tmpfs:
            yield LIMIT
            return
        filler = self.disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        os.truncate(filler, max(0, filler.stat().st_size - self.rng.choice([0, 4096, 16384])))
        try:
            yield None
        finally:
            filler.unlink()

    def run_night(self) -> None:
        rng = self.rng
        happens = {name: rng.random() < share for name, share in SHARES.items()}
        if not happens["quiet"]:
            self.change_inbox()
        if happens["add"]:
            self.make_images(self.work / "more", 2)
            added = self.run("add", self.disk / "gallery.h5", "more", "-q")
            self.events[f"add: exit {added.exit}"] += 1
            self.is_new_gallery = True
        plain = self.plain()
        for kind in ("kill", "full"):
            if happens[kind]:
                self.run_unlucky(kind, plain)
        if (happens["kill"] or happens["full"]) and rng.random() < 0.5:
            return  # the job goes on in the next night
        prune = ["--prune"] if happens["prune"] else []
        started = [self.update(*prune) for _ in range(2 if happens["two"] else 1)]
        ran = [one.end() for one in started]
        good = [one for one in ran if one.exit in DONE]
        for one in ran:
            self.events[f"{'two: ' if happens['two'] else ''}exit {one.exit}"] += 1
            if one.exit not in DONE and (not happens["two"] or "error: " not in one.err):
                self.complain(f"an update exits with {one.exit}: {one.err}")
        if not good:
            self.complain("no run has finished")
            self.earlier.append(plain[1])
            return
        self.seconds = good[0].seconds
        self.compare(plain, prune=bool(prune))
        self.run_sort()
        self.look_around(max(one.megabytes for one in good))

    def run_sort(self) -> None:
        ran = self.run("sort", self.csv, "sorted", "-q", "--allow-skipped")
        self.events[f"sort: exit {ran.exit}"] += 1
        if ran.exit != 0:
            self.complain(f"sort exits with {ran.exit}: {ran.err}")

    def look_around(self, megabytes: float) -> None:
        record = 0
        for path in self.disk.iterdir():
            if path.name in ("out.csv", "gallery.h5") or path.name.startswith("out.old"):
                continue
            self.leftovers[path.name] += 1
            record += path.stat().st_size
        for path in (self.work / "tmp").iterdir():
            self.leftovers[f"tmp/{path.name}"] += 1
        per_row = record / max(1, len(self.rows))
        n_sorted = sum(path.is_file() for path in (self.work / "sorted").glob("*/**/*"))
        self.table.append((self.night, len(self.rows), self.seconds, megabytes, per_row, n_sorted))

    def report(self) -> None:
        print("\nnight  rows  seconds     MB  bytes next to the file per row  sorted files")
        step = max(1, len(self.table) // 15)
        for night, rows, seconds, megabytes, per_row, n_sorted in self.table[::step]:
            print(f"{night:5} {rows:5} {seconds:8.2f} {megabytes:6.1f} {per_row:31.0f} {n_sorted:13}")
        print(f"\nevents: {dict(sorted(self.events.items()))}")
        print(f"files next to the predictions file, and in how many nights: {dict(self.leftovers)}")
        digits = f"{self.drifted}, by {self.largest:.1g} at most"
        undo = [path.stat().st_size for path in (self.work / "sorted").glob(".*")]
        print(f"undo files of sort: {len(undo)}, of {sum(undo)} bytes")
        print(f"rows that differ from a plain classify in the last digits: {digits}")
        print(f"wrong: {len(self.wrong)}")


def largest_difference(row: list[str], other: list[str]) -> float:
    """Return the largest difference of two numbers in these rows; infinity if texts differ."""
    try:
        pairs = [(one, two) for one, two in zip(row, other, strict=True) if one != two]
        return max((abs(float(one) - float(two)) for one, two in pairs), default=0.0)
    except ValueError:
        return math.inf


@contextlib.contextmanager
def small_disk(folder: Path, kind: str) -> Iterator[bool]:
    """Mount a small tmpfs at the folder if the system permits it; yield whether it did."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)]
    try:
        is_mounted = (
            kind == "auto" and subprocess.run(mount, capture_output=True, check=False).returncode == 0
        )
    except OSError:
        is_mounted = False
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nights", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, help="for the files of the run; the default is a temporary one"
    )
    parser.add_argument("--disk", choices=["auto", "limit"], default="auto")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as made,
        small_disk(Path(made) / "disk", options.disk) as is_tmpfs,
    ):
        work = Path(made)
        soak = Soak(work, work / "disk", is_tmpfs, random.Random(options.seed))
        (work / "tmp").mkdir()
        print(f"{options.nights} nights, seed {options.seed}, {'tmpfs' if is_tmpfs else 'limit'}", flush=True)
        soak.make_images(work / "gallery", 40)
        soak.make_images(soak.inbox, 40)
        built = soak.run("build", "gallery", "-o", soak.disk / "gallery.h5", "-q")
        assert built.exit == 0, built.err
        for soak.night in range(1, options.nights + 1):
            soak.run_night()
        soak.report()
        sys.exit(bool(soak.wrong))


if __name__ == "__main__":
    main()
