"""How `classify` scales with workers: measured on small clusters, estimated for large ones, by scale.py.

The pictures are those of sample_data, shifted by some pixels: any number of different pictures of a realistic
size on disk.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from distributed.protocol.pickle import dumps, loads
from PIL import Image
from speed import CRNR, seconds

from crnr_cli import __version__
from crnr_cli.cluster.answer import MAX_BATCHES, Task, answer_part, answering
from crnr_cli.cluster.dask import connected
from crnr_cli.gallery.answer import QueryOptions, answer, queries_per_batch
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.jobs.classify import classify
from crnr_cli.results.table import CsvWriter
from crnr_cli.sources.base import InputOptions, Part
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.listing import fingerprint, open_source

SAMPLE_DATA = Path(__file__).parent.parent / "sample_data"
SHIFTS = 9  # in each direction, -4 to 4 pixels
NO_OPS = 2000
GALLERY, QUERIES, OUTPUT = Path("gallery.h5"), Path("queries"), Path("out.csv")


@dataclass(frozen=True)
class Run:
    """One way to classify the same pictures."""

    how: str
    seconds: float  # of the whole command
    working: float | None = None  # of the job alone, on a running cluster


@dataclass(frozen=True)
class Measured:
    """The measurements that the estimate is based on, in seconds and bytes."""

    queries_per_task: int
    task_bytes: int  # client to scheduler to worker
    answer_bytes: int  # and back
    task_seconds: float  # per task, on a worker that has loaded its gallery
    scheduler_seconds: float  # per task that does nothing
    gallery_seconds: float  # to load it, from the disk cache
    gallery_bytes: int
    picture_bytes: float  # per query
    listing_seconds: float  # per query, in the client
    listing_bytes: float  # of memory, per query, in the client
    row_seconds: float  # per query, in the client, to unpack and to write it
    row_bytes: float


def make_files(count: int) -> None:
    """Make a gallery, and this many pictures to classify, in the current folder."""
    subprocess.run([*CRNR, "build", "-q", str(SAMPLE_DATA / "gallery"), "-o", str(GALLERY)], check=True)
    originals = [np.asarray(Image.open(path)) for path in sorted((SAMPLE_DATA / "queries").rglob("*.png"))]
    if count > len(originals) * SHIFTS**2:
        sys.exit(f"at most {len(originals) * SHIFTS**2} pictures")
    QUERIES.mkdir()
    for number in range(count):
        shift, original = divmod(number, len(originals))
        down, right = divmod(shift, SHIFTS)
        moved = np.roll(originals[original], (down - SHIFTS // 2, right - SHIFTS // 2), axis=(0, 1))
        Image.fromarray(moved).save(QUERIES / f"{number:05}.png")


def runs() -> list[Run]:
    """Time every way as a command, and those with a cluster also as the job alone."""
    found = [
        Run("one process, --jobs 1", _command("--jobs", "1")),
        Run("one process", _command()),
    ]
    for count in (1, 2):
        with connected(f"local:{count}") as cluster:
            job = partial(classify, [str(QUERIES)], GALLERY, OUTPUT, QueryOptions())
            working = seconds(partial(job, answered_by=answering(cluster, GALLERY)))
        where = f"local:{count}"
        found.append(Run(f"--dask {where}", _command("--dask", where), working))
    return found


def measure() -> Measured:
    gallery = load_gallery(GALLERY)
    tracemalloc.start()
    source = open_source([str(QUERIES)], InputOptions())
    listing_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert isinstance(source, Pictures)
    listing_seconds = seconds(lambda: fingerprint(open_source([str(QUERIES)], InputOptions())))
    part = source.part((0, MAX_BATCHES * queries_per_batch(gallery, QueryOptions())))
    task = Task(GALLERY.resolve(), gallery.sha256, QueryOptions(jobs=1))
    with connected("local:1") as cluster:
        list(cluster.in_order(_timed, task, [Pictures(part.files[:1])]))  # so that it loads its gallery
        ((_, task_seconds),) = cluster.in_order(_timed, task, [part])
    with connected("local:2") as cluster:
        client = cluster._client
        client.gather(client.map(_nothing, range(10), pure=False))
        scheduled = seconds(lambda: client.gather(client.map(_nothing, range(NO_OPS), pure=False)))
    received = dumps(list(answer(gallery, Pictures(part.files), task.options)))
    row_seconds, row_bytes = _writing(gallery, received)
    size = len(part.files)
    return Measured(
        queries_per_task=size,
        task_bytes=len(dumps((__version__, answer_part, task, part))),
        answer_bytes=len(received),
        task_seconds=task_seconds,
        scheduler_seconds=scheduled / NO_OPS,
        gallery_seconds=seconds(lambda: load_gallery(GALLERY)),
        gallery_bytes=GALLERY.stat().st_size,
        picture_bytes=sum(Path(file.path).stat().st_size for file in part.files) / size,
        listing_seconds=listing_seconds / len(source),
        listing_bytes=listing_bytes / len(source),
        row_seconds=row_seconds / size,
        row_bytes=row_bytes / size,
    )


@dataclass(frozen=True)
class Estimate:
    """An estimate computed from the measurements, in seconds and bytes; none of it was run."""

    workers: int
    queries: int
    listing: float  # by the client, before anything else
    computing: float  # by every worker, loading the gallery included
    loading: float
    scheduling: float  # by the scheduler, at the same time
    writing: float  # by the client, at the same time
    scheduler_bytes: float  # through the scheduler, in both directions
    picture_bytes: float  # read by all workers
    gallery_bytes: float  # likewise
    csv_bytes: float
    client_memory: float
    limits: dict[str, float]  # what more workers do not shorten, and from how many on it dominates

    @property
    def spreading(self) -> float:
        """Work done at the same time takes as long as the longest part."""
        return max(self.computing, self.scheduling, self.writing)

    @property
    def limit(self) -> str:
        return min(self.limits, key=lambda name: self.limits[name])


def estimate(m: Measured, workers: int, queries: int) -> Estimate:
    tasks = queries / m.queries_per_task
    answered = tasks * m.task_seconds  # by one worker
    listing, writing = queries * m.listing_seconds, queries * m.row_seconds
    scheduling = tasks * m.scheduler_seconds
    return Estimate(
        workers=workers,
        queries=queries,
        listing=listing,
        computing=answered / workers + m.gallery_seconds,
        loading=m.gallery_seconds,
        scheduling=scheduling,
        writing=writing,
        scheduler_bytes=tasks * (m.task_bytes + m.answer_bytes),
        picture_bytes=queries * m.picture_bytes,
        gallery_bytes=workers * m.gallery_bytes,
        csv_bytes=queries * m.row_bytes,
        client_memory=queries * m.listing_bytes,
        limits={
            "the client's listing": answered / listing,
            "the client's writing": answered / writing,
            "the scheduler": answered / scheduling,
            "the gallery's load": answered / m.gallery_seconds,
        },
    )


def _timed(task: Task, part: Part) -> float:
    """Runs on a worker."""
    return seconds(lambda: answer_part(task, part))


def _nothing(number: int) -> int:
    """Runs on a worker too."""
    return number


def _writing(gallery: Gallery, received: bytes) -> tuple[float, int]:
    """Seconds and bytes of all rows, from the answers as they arrive from a worker."""
    file = io.BytesIO()
    writer = CsvWriter(file, gallery.classes, gallery.dtype, None)
    taken = seconds(lambda: [writer.write(answers) for answers in loads(received)])
    return taken, file.tell()


def _command(*options: str) -> float:
    command = [*CRNR, "classify", "-q", str(QUERIES), "-o", str(OUTPUT), *options]
    return seconds(lambda: subprocess.run(command, check=True))
