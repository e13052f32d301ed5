"""Whether a nightly job stays right: many nights in a row on a folder that grows and changes.

    python benchmarks/soak.py [--nights 300] [--seed 0] [--folder /tmp] [--disk auto|limit]

Each night some images of an inbox are new, changed, renamed, gone or broken, and the mtimes of some jump
backwards. Then the job runs: in some nights `add`, then `classify inbox -o out.csv --update`, and `sort`.
Some runs are killed at a random moment, alone or with their child processes, some find a full disk, some have
a second run at the same time, and some have `--prune`. A killed run is started again at once, or in a later
night. The clock jumps between nights and during runs: crnr reads the wrong time, and files get wrong mtimes.

After each night, the predictions file and the sorted files are compared with the plain models of
soak_model.py; after the last night, also with a gallery that is built at once from all examples. No run may
leave a file, a lock or a process, and neither the memory nor the record per row may grow.

The disk is a small tmpfs if the system permits one; else a limit of the size of files (RLIMIT_FSIZE) stands
for a full disk. It needs Linux. Exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image
from soak_machine import SECOND, Clock, Ran, Started, processes_of, small_disk, start_crnr
from soak_model import RowModel, Rows, SortModel, hash_of

CLASSES = ("ant", "bee", "cow", "Dog")
SIDE = 24
DONE = (0, 3)  # the exit codes of a finished run; 3 if files failed
DAY = 86_400 * SECOND
LIMITS = {"classify": 2048, "add": 2048, "sort": 512}  # bytes that a file may have on a full disk
SHARES = {  # of the nights
    **{"kill": 0.3, "full": 0.1, "two": 0.1, "prune": 0.08, "add": 0.1, "quiet": 0.1},
    **{"jump": 0.15, "jump in a run": 0.1, "strike add": 0.5, "kill sort": 0.12, "full sort": 0.05},
}
FOLDERS = {"disk", "gallery", "inbox", "more", "plain.csv", "tmp"}  # where the job runs
REFUSED = "another crnr is writing it"
# How much larger these may be in the last nights than in the first ones, and by how much for each more row.
GROWTH = {"MB, update": (1.01, 0.003), "MB, sort": (1.01, 0.003), "record per row": (1.05, 0.0)}
Command = tuple[str | Path, ...]
N_COMPARED = 10  # first and last nights


def draw(rng: random.Random, label: int) -> Image.Image:
    """Return an image of a class: a pattern, with noise."""
    noise = np.random.default_rng(rng.randrange(2**32))
    pattern = np.random.default_rng(label).random((SIDE, SIDE))
    values = 150 * pattern + 100 * noise.random((SIDE, SIDE))
    return Image.fromarray(values.astype(np.uint8))


@dataclass
class Soak:
    """The folder, the models, and everything that was noticed."""

    work: Path
    disk: Path  # holds the gallery, the predictions file and the sorted files; small if it is a tmpfs
    is_tmpfs: bool
    rng: random.Random
    clock: Clock = field(default_factory=Clock)
    mtimes: dict[Path, int] = field(default_factory=dict)  # the wrong ones that files got
    is_adding: bool = False  # an `add` was stopped
    made: int = 0  # images, for their names
    wrong: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    table: list[dict[str, float]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)  # of the last finished run, by command
    night: int = 0

    def __post_init__(self) -> None:
        self.rows = RowModel(self.work, self.complain)
        self.sorted = SortModel(self.work, self.disk / "sorted", self.complain)

    @property
    def inbox(self) -> Path:
        return self.work / "inbox"

    @property
    def csv(self) -> Path:
        return self.disk / "out.csv"

    @property
    def gallery(self) -> Path:
        return self.disk / "gallery.h5"

    def complain(self, text: str) -> None:
        self.wrong.append(f"night {self.night}: {text}")
        print(self.wrong[-1], flush=True)

    # --- Runs and the clock ------------------------------------------------------------------------------

    def start(self, *arguments: str | Path, limit: int | None = None) -> Started:
        return start_crnr(list(map(str, arguments)), self.work, self.clock, limit)

    def run(self, *arguments: str | Path, count: int = 1) -> list[Ran]:
        """Run a command to its end, or several times at once."""
        began = time.time_ns()
        ran = [started.end() for started in [self.start(*arguments) for _ in range(count)]]
        self.stamp(began)
        return ran

    def stamp(self, began: int) -> None:
        """Give files on the disk that were written since then the mtimes of the clock."""
        for path in self.disk.iterdir():
            mtime = path.stat().st_mtime_ns
            if path.is_file() and mtime >= began - SECOND // 100 and self.mtimes.get(path) != mtime:
                self.mtimes[path] = self.clock.show(mtime)
                os.utime(path, ns=(mtime, self.mtimes[path]))

    def jump(self, *, within: float = 0.0) -> None:
        """Let the clock jump at a random moment within some seconds."""
        rng, now = self.rng, time.time_ns()
        right = ["right"] if self.clock.after else []
        kind = rng.choice(["hours back", "days back", "years ahead", "to 1970", *right])
        hours = {"hours back": -rng.uniform(1, 24), "days back": -24 * rng.uniform(1, 40)}
        hours["years ahead"] = 24 * 365 * rng.uniform(1, 30)
        ahead = -now if kind == "to 1970" else round(3600 * SECOND * hours.get(kind, 0.0))
        self.events[f"jump{' in a run' if within else ''}: {kind}"] += 1
        self.clock = Clock(self.clock.after, ahead, now + round(within * rng.random() * SECOND))

    # --- The inbox ---------------------------------------------------------------------------------------

    def save(self, image: Image.Image, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        now = self.clock.show(time.time_ns())
        os.utime(path, ns=(now, now))

    def make_images(self, folder: Path, count: int) -> None:
        for _ in range(count):
            label = self.rng.randrange(len(CLASSES))
            below = self.rng.choice(["", "Camera 1", "é"]) if folder == self.inbox else CLASSES[label]
            name = f"{self.rng.randrange(100):02} {self.made}.png"
            self.save(draw(self.rng, label), folder / below / name)
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
                self.save(draw(rng, rng.randrange(len(CLASSES))), path)
                if kind == "older":
                    os.utime(path, ns=(before, before - rng.randrange(1, 30 * DAY)))

    # --- The job -----------------------------------------------------------------------------------------

    def strike(self, kind: str, *command: str | Path) -> Ran:
        """Run a command that is killed, or finds a full disk."""
        name, began = str(command[0]), time.time_ns()
        if kind == "kill":
            signals = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
            started, number = self.start(*command), self.rng.choice(signals)
            time.sleep(self.rng.uniform(0, 1.2 * self.seconds.get(name, 1.0)))
            kill = self.rng.choice([os.kill, os.killpg])  # the process alone, or with its children
            with contextlib.suppress(ProcessLookupError):
                kill(started.process.pid, number)
            ran = started.end()
            self.look_for_processes(started.process.pid)
            if "Traceback" in ran.err or ran.exit not in (*DONE, -number, 128 + number):
                self.complain(f"{name} with signal {number}: exit {ran.exit}, {ran.err}")
        else:
            with self.full_disk(LIMITS[name]) as limit:
                ran = self.start(*command, limit=limit).end()
            if ran.exit not in DONE and ("Traceback" in ran.err or "error: " not in ran.err):
                self.complain(f"{name} on a full disk: exit {ran.exit}, {ran.err}")
        self.stamp(began)
        self.events[f"{name} {kind}: {'finished before' if ran.exit in DONE else 'stopped'}"] += 1
        return ran

    def look_for_processes(self, session: int) -> None:
        """Complain about processes that a killed run has left behind."""
        end = time.monotonic() + 60
        while left := processes_of(session):
            if time.monotonic() > end:
                self.complain(f"processes {left} outlive a killed run")
                os.killpg(session, signal.SIGKILL)
                return
            time.sleep(0.05)

    @contextlib.contextmanager
    def full_disk(self, limit: int) -> Iterator[int | None]:
        if not self.is_tmpfs:
            yield limit
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

    def add(self, *, is_struck: bool) -> None:
        """Add two examples; after an `add` that was stopped, only those that it was to add."""
        command, before = ("add", self.gallery, "more", "-q"), hash_of(self.gallery)
        if not self.is_adding:
            self.make_images(self.work / "more", 2)
        self.is_adding = True
        if is_struck:
            ran = self.strike(self.rng.choice(["kill", "full"]), *command)
            if ran.exit not in DONE and self.rng.random() < 0.5:
                return  # the next `add` adds them
        (ran,) = self.run(*command)
        self.is_adding = False
        if ran.exit != 0 or (not is_struck and hash_of(self.gallery) == before):
            self.complain(f"add exits with {ran.exit}: {ran.err}")

    def plain(self, gallery: Path) -> tuple[list[str], Rows]:
        (ran,) = self.run("classify", "inbox", "-g", gallery, "-o", "plain.csv", "-q")
        if ran.exit not in DONE:
            self.complain(f"a plain classify exits with {ran.exit}: {ran.err}")
        return self.rows.read(self.work / "plain.csv")

    def compare(self, plain: tuple[list[str], Rows], *, prune: bool = False) -> None:
        self.rows.compare(self.csv, plain, hash_of(self.gallery), prune=prune)

    def strike_update(self, kind: str, update: Command, plain: tuple[list[str], Rows]) -> None:
        """Run an update that is stopped: the old file stays, or the new one is there."""
        before = self.csv.read_bytes() if self.csv.exists() else None
        ran = self.strike(kind, *update)
        after = self.csv.read_bytes() if self.csv.exists() else None
        if ran.exit not in DONE:
            self.rows.stopped.append((hash_of(self.gallery), plain[1]))
        if ran.exit in DONE or after != before:
            self.compare(plain)

    def run_job(self, command: Command, *, twice: bool) -> list[Ran]:
        """Run a command, maybe twice at once; return the runs that have finished."""
        name, ran = str(command[0]), self.run(*command, count=1 + twice)
        for one in ran:
            is_refused = twice and one.exit == 1 and REFUSED in one.err
            self.events[f"{name}{' twice' * twice}: {'refused' if is_refused else f'exit {one.exit}'}"] += 1
            if one.exit not in DONE and not is_refused:
                self.complain(f"{name} exits with {one.exit}: {one.err}")
        good = [one for one in ran if one.exit in DONE]
        if not good:
            self.complain(f"no {name} has finished")
        return good

    def run_night(self, *, is_last: bool) -> None:
        rng = self.rng
        happens = {name: rng.random() < share and not is_last for name, share in SHARES.items()}
        if happens["jump"]:
            self.jump()
        if not happens["quiet"]:
            self.change_inbox()
        if happens["add"] or is_last:
            self.add(is_struck=happens["strike add"])
        plain = self.plain(self.gallery)
        if happens["jump in a run"]:
            self.jump(within=self.seconds.get("classify", 1.0))
        fixed = ("-g", self.gallery, "-o", self.csv, "--update", "--batch-size", "8")
        update: Command = ("classify", "inbox", *fixed)
        for kind in ("kill", "full"):
            if happens[kind]:
                self.strike_update(kind, update, plain)
        if (happens["kill"] or happens["full"]) and rng.random() < 0.5:
            return  # the job goes on in the next night
        prune: Command = ("--prune",) if happens["prune"] else ()
        updated = self.run_job((*update, *prune), twice=happens["two"])
        self.compare(plain, prune=happens["prune"])
        wanted = self.sorted.find_wanted(*self.rows.read(self.csv))
        sort: Command = ("sort", self.csv, self.disk / "sorted", "-q", "--allow-skipped")
        for kind in ("kill", "full"):
            if happens[f"{kind} sort"]:
                self.strike(kind, *sort)
                self.sorted.stop(wanted)
        if (happens["kill sort"] or happens["full sort"]) and rng.random() < 0.5:
            return
        sorts = self.run_job(sort, twice=happens["two"])
        self.sorted.compare(wanted)
        self.look_around(updated, sorts)

    # --- The end -----------------------------------------------------------------------------------------

    def look_around(self, updates: list[Ran], sorts: list[Ran]) -> None:
        """Look for files that should not be there, and measure."""
        found = {path.name for path in self.disk.iterdir()}
        old = {name for name in found if name.startswith("out.old")}
        own = {"gallery.h5", "out.csv", "out.csv.crnr-state", "sorted"}
        adding = {"gallery.h5.crnr-part", "gallery.h5.crnr-lock"} if self.is_adding else set[str]()
        # A new gallery makes crnr keep the rows of files that are gone in another file.
        if not own <= found <= own | old | adding or len(old) >= self.rows.galleries:
            self.complain(f"next to the predictions file: {sorted(found)}")
        if left := {path.name for path in self.work.iterdir()} - FOLDERS:
            self.complain(f"left where the job runs: {sorted(left)}")
        if left := {path.name for path in (self.work / "tmp").iterdir()}:
            self.complain(f"left among temporary files: {sorted(left)}")
        n_rows = len(self.rows.rows)
        record = self.csv.with_name("out.csv.crnr-state").stat().st_size
        lists = [path.stat().st_size for path in (self.disk / "sorted").glob(".*")]
        good = updates[-1:] and sorts[-1:]
        self.table.append(
            {
                "night": self.night,
                "images": sum(path.is_file() for path in self.inbox.rglob("*")),
                "rows": n_rows,
                "seconds": updates[-1].seconds if good else 0.0,
                "MB, update": max(one.megabytes for one in updates) if good else 0.0,
                "MB, sort": max(one.megabytes for one in sorts) if good else 0.0,
                "record per row": record / max(1, n_rows),
                "sorted": len(self.sorted.copies),
                "undo files": len(lists),
                "undo bytes": sum(lists),
                "old files": len(old),
            }
        )
        self.seconds |= {"classify": updates[-1].seconds, "sort": sorts[-1].seconds} if good else {}

    def judge(self) -> None:
        """Compare with a gallery that is built at once, and the first nights with the last ones."""
        (built,) = self.run("build", "gallery", "more", "-o", "built.h5", "-q")
        if built.exit != 0:
            self.complain(f"a build of all examples exits with {built.exit}: {built.err}")
        else:
            plain = self.plain(self.work / "built.h5")
            self.rows.compare(self.csv, plain, hash_of(self.gallery), prune=False)
        first, last = self.table[:N_COMPARED], self.table[-N_COMPARED:]
        more_rows = last[-1]["rows"] - first[0]["rows"]
        for name, (share, per_row) in GROWTH.items():
            before, after = (median(night[name] for night in nights) for nights in (first, last))
            print(f"{name}: {before:.1f} in the first {len(first)} nights, {after:.1f} in the last ones")
            if not 0 < after <= share * before + per_row * more_rows:
                self.complain(f"{name} grows from {before} to {after}")
        if self.night >= 10 * N_COMPARED and last[-1]["images"] < 2 * first[0]["images"]:
            self.complain("the inbox has hardly grown, so this proves little")

    def report(self) -> None:
        print("\n" + "  ".join(f"{name:>10}" for name in self.table[0]))
        nights = [*self.table[:: max(1, len(self.table) // 15)], self.table[-1]]
        for night in nights:
            print("  ".join(f"{value:10.1f}" for value in night.values()))
        print(f"\nevents: {dict(sorted(self.events.items()))}")
        digits = f"{self.rows.drifted}, by {self.rows.largest:.1g} at most"
        print(f"rows that differ from a plain classify in the last digits: {digits}")
        self.judge()
        print(f"wrong: {len(self.wrong)}")


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
        (built,) = soak.run("build", "gallery", "-o", soak.gallery, "-q")
        assert built.exit == 0, built.err
        for soak.night in range(1, options.nights + 1):
            soak.run_night(is_last=soak.night == options.nights)
        soak.report()
        sys.exit(bool(soak.wrong))


if __name__ == "__main__":
    main()
