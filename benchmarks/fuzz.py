"""Opens many damaged files of every kind that crnr reads. Run it before a release.

    python benchmarks/fuzz.py                              # a million files, on all cores
    python benchmarks/fuzz.py --mutations 50000            # fewer
    python benchmarks/fuzz.py npz gallery --seed 7         # two kinds, other damage
    python benchmarks/fuzz.py npz --only 123456            # one file again, with its traceback

Each file has to be refused in words or opened: no traceback, no crash, not more than 5 s of processor time or
20 s in all, and not more memory than 1 GB. Less than half of the damage is done to bytes. The rest is done to
what the bytes mean, which is packed again with the right lengths and checksums, to get past the first checks.

A file that fails is kept in --failures (by default fuzz-failures/), named after its kind and its number; the
exit code is then 1. Numbers are drawn from --seed: the same command makes the same files.

Files are opened in a process that has loaded all libraries and is forked for some thousand files at a time.
What crnr does in a process of its own (MATLAB files) is mostly done in the fork too, by the same function; if
that ends it, the file is opened again as crnr opens it. Some hundred files go all the way, and all Parquet
files, which one process reads after the other. The table at the
end has, for each kind, the number of files, how many of them were refused, how many were tried per second of
processor time, and the largest memory that a process took.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np

from crnr_cli.errors import CrnrError, SampleError
from crnr_cli.system import spares
from helpers import damage
from helpers.hostile import KINDS, Kind

CPU_SECONDS = 5.0
WALL_SECONDS = 20.0
MEGABYTES = 1024
BLOCK = 2000  # files per fork
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a folder, if there is one
REFUSED, OPENED, PEAK, NUMBER = range(4)  # what a fork reports, as numbers in shared memory


@dataclass
class Tally:
    """What happened to the files of one kind."""

    files: int = 0
    refused: int = 0
    opened: int = 0
    seconds: float = 0.0  # of processor time
    megabytes: float = 0.0
    failures: list[str] = field(default_factory=list)


def damaged(kind: Kind, whole: bytes, number: int, seed: int) -> bytes:
    """The file of this number; equal numbers of two seeds are different files."""
    chance = Random(f"{seed}/{number}")
    how = kind.damage if kind.damage and chance.random() < kind.deep else damage.bytes_changed
    content: bytes = how(whole, chance)
    return content


class Report:
    """Shared by a fork, which writes it, and its parent."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 64)

    def __getitem__(self, at: int) -> int:
        return int(struct.unpack_from("q", self._memory, 8 * at)[0])

    def __setitem__(self, at: int, value: int) -> None:
        struct.pack_into("q", self._memory, 8 * at, value)


def peak_kilobytes() -> int:
    """Of this process since the last reset, and of the processes that it started and waited for."""
    status = Path("/proc/self/status").read_text()
    own = int(status.partition("VmHWM:")[2].split()[0])
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def open_one(kind: Kind, path: Path) -> bool:
    """Whether the file opens; False if it is refused in words. Anything else is raised."""
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with np.errstate(all="ignore"):
            kind.open(path)
    except (CrnrError, SampleError) as e:
        if not str(e):
            raise ValueError("refused without a word") from e
        return False
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def work(kind: Kind, whole: bytes, first: int, last: int, seed: int, report: Report) -> None:
    """In a fork: open the files of these numbers; a failure ends the process."""
    for limit in (signal.SIGALRM, signal.SIGPROF):  # the end of the process, even inside a C library
        signal.signal(limit, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins here, not with the parent's
    path = Path("damaged" + kind.suffix)
    with spares.kept():  # the processes that read Parquet files
        for number in range(first, last):
            report[NUMBER] = number
            path.write_bytes(damaged(kind, whole, number, seed))
            report[OPENED if open_one(kind, path) else REFUSED] += 1
            check_memory(report)
    check_memory(report)  # of these processes too


def check_memory(report: Report) -> None:
    report[PEAK] = peak_kilobytes()
    if report[PEAK] > 1024 * MEGABYTES:
        raise MemoryError(f"took {report[PEAK] / 1024:.0f} MB")


class Block:
    """A fork that opens some files of one kind."""

    def __init__(self, name: str, first: int, last: int, seed: int, whole: bytes) -> None:
        self.name, self.first, self.last = name, first, last
        self.report = Report()
        self.report[NUMBER] = first
        self.folder = tempfile.TemporaryDirectory(dir=IN_MEMORY)
        self.errors = Path(self.folder.name) / "errors"
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                os.setsid()
                os.chdir(self.folder.name)
                os.dup2(os.open(self.errors, os.O_WRONLY | os.O_CREAT), 2)
                os.dup2(os.open(os.devnull, os.O_RDWR), 1)
                work(KINDS[name], whole, first, last, seed, self.report)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def end(self, status: int, usage: resource.struct_rusage, tally: Tally) -> str | None:
        """Add to the tally; returns what went wrong, if anything did."""
        tally.refused += self.report[REFUSED]
        tally.opened += self.report[OPENED]
        tally.files += self.report[NUMBER] + 1 - self.first
        tally.seconds += usage.ru_utime + usage.ru_stime
        tally.megabytes = max(tally.megabytes, self.report[PEAK] / 1024)
        words = self.errors.read_text(errors="replace") if self.errors.exists() else ""
        self.folder.cleanup()
        if os.WIFSIGNALED(status):
            caught = signal.Signals(os.WTERMSIG(status))
            limits = {signal.SIGPROF: f"more than {CPU_SECONDS} s of processor time"}
            limits[signal.SIGALRM] = f"more than {WALL_SECONDS} s"
            return f"{limits.get(caught, f'ended by {caught.name}')}\n{words}"
        return words or "ended without a word" if status else None


def run(names: list[str], count: int, seed: int, jobs: int, failures: Path) -> dict[str, Tally]:
    wholes = {name: KINDS[name].made() for name in names}
    total = sum(KINDS[name].weight for name in names)
    tallies = {name: Tally() for name in names}
    waiting = []
    for name in names:
        files = max(1, round(count * KINDS[name].weight / total))
        waiting += [(name, first, min(first + BLOCK, files)) for first in range(0, files, BLOCK)]
    Random(0).shuffle(waiting)  # so that all kinds are met early
    running: dict[int, Block] = {}
    began, shown = time.monotonic(), 0.0
    while waiting or running:
        while waiting and len(running) < jobs:
            name, first, last = waiting.pop()
            block = Block(name, first, last, seed, wholes[name])
            running[block.pid] = block
        pid, status, usage = os.wait3(0)
        block = running.pop(pid)
        tally = tallies[block.name]
        if wrong := block.end(status, usage, tally):
            number = block.report[NUMBER]
            if is_failure(block.name, wholes[block.name], number, seed, wrong):
                tally.failures.append(keep(block.name, wholes[block.name], number, seed, wrong, failures))
            if number + 1 < block.last:
                waiting.append((block.name, number + 1, block.last))
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            done = sum(each.files for each in tallies.values())
            bad = sum(len(each.failures) for each in tallies.values())
            rate = done / (shown - began)
            print(f"{done} files, {rate:.0f} per second, {bad} failures", file=sys.stderr, flush=True)
    return tallies


def is_failure(name: str, whole: bytes, number: int, seed: int, wrong: str) -> bool:
    """A parser that may crash, as crnr runs it in a process of its own, has failed only if crnr does too."""
    whole_way = KINDS[name].whole_way
    if whole_way is None:
        return True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"damaged{KINDS[name].suffix}"
        path.write_bytes(damaged(KINDS[name], whole, number, seed))
        child = os.fork()
        if not child:
            code = 1
            try:
                os.dup2(os.open(os.devnull, os.O_RDWR), 2)
                signal.alarm(60)
                with contextlib.suppress(CrnrError):
                    whole_way(path)
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(child, 0)[1] != 0


def keep(name: str, whole: bytes, number: int, seed: int, wrong: str, failures: Path) -> str:
    failures.mkdir(exist_ok=True, parents=True)
    path = failures / f"{name.replace(' ', '-')}-{seed}-{number}{KINDS[name].suffix}"
    path.write_bytes(damaged(KINDS[name], whole, number, seed))
    with (failures / "failures.jsonl").open("a") as file:
        file.write(json.dumps({"kind": name, "seed": seed, "number": number, "words": wrong}) + "\n")
    print(f"FAILED {path}: {wrong.strip().splitlines()[-1]}", flush=True)
    return str(path)


def table(tallies: dict[str, Tally]) -> str:
    lines = [
        "| kind | files | refused | opened | per second and core | peak MB | failures |",
        "|---" * 7 + "|",
    ]
    for name, t in tallies.items():
        rate = t.files / max(t.seconds, 1e-9)
        cells = (name, t.files, t.refused, t.opened, f"{rate:.0f}", f"{t.megabytes:.0f}", len(t.failures))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=f"by default all: {', '.join(KINDS)}")
    parser.add_argument("--mutations", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--only", type=int, metavar="NUMBER", help="open one file, and show what happens")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds {', '.join(sorted(unknown))}; choose from {', '.join(KINDS)}")
    names = options.kinds or list(KINDS)
    if options.only is not None:
        path = Path(tempfile.mkdtemp()) / f"damaged{KINDS[names[0]].suffix}"
        path.write_bytes(damaged(KINDS[names[0]], KINDS[names[0]].made(), options.only, options.seed))
        print(path, flush=True)
        print(KINDS[names[0]].open(path))
        return
    began = time.monotonic()
    tallies = run(names, options.mutations, options.seed, options.jobs, options.failures)
    seconds = time.monotonic() - began
    done = sum(tally.files for tally in tallies.values())
    failed = sum(len(tally.failures) for tally in tallies.values())
    print(table(tallies))
    print(f"{done} files in {seconds:.0f} s, {done / seconds:.0f} per second with {options.jobs} processes")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
