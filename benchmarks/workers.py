"""How `classify` scales with workers: measured on small clusters, estimated for large ones, by scale.py.

The images are those of sample_data, shifted by some pixels: any number of different images of a realistic
size on disk.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from distributed.protocol.pickle import dumps, loads
from PIL import Image
from speed import CRNR, best, seconds

from crnr_cli import __version__
from crnr_cli.cluster.dask import connected
from crnr_cli.cluster.work import MAX_BATCHES, OnCluster, SentRun, Warned, format_part
from crnr_cli.gallery import queries
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import QueryOptions, RowBatch
from crnr_cli.jobs.classify import classify
from crnr_cli.results.journal import resumable
from crnr_cli.sources.base import InputOptions, SourcePart
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import fingerprint, open_source
from crnr_cli.sources.walk import Folder, FolderListing, list_some_folders

SAMPLE_DATA = Path(__file__).parent.parent / "sample_data"
SHIFTS = 9  # in each direction, -4 to 4 pixels
NO_OPS = 2000
TASKS_WRITTEN = 100  # so that what a file takes once counts for little
PER_FOLDER = 100  # images
GALLERY, QUERIES, OUTPUT = Path("gallery.h5"), Path("queries"), Path("out.csv")


@dataclass(frozen=True)
class Run:
    """One way to classify the same images."""

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
    image_bytes: float  # per query
    folders_seconds: float  # per query, on a worker, to list its folder
    listing_seconds: float  # per query, in the client, to unpack, join and hash what workers list
    listing_bytes: float  # of memory, per query, in the client
    sending_seconds: float  # per query, in the client, to pack it into a task
    row_seconds: float  # per query, in the client, to unpack and to write it, journal included
    row_bytes: float


def make_files(count: int) -> None:
    """Make a gallery, and this many images to classify, in the current folder."""
    subprocess.run([*CRNR, "build", "-q", str(SAMPLE_DATA / "gallery"), "-o", str(GALLERY)], check=True)
    originals = [np.asarray(Image.open(path)) for path in sorted((SAMPLE_DATA / "queries").rglob("*.png"))]
    if count > len(originals) * SHIFTS**2:
        sys.exit(f"at most {len(originals) * SHIFTS**2} images")
    QUERIES.mkdir()
    for number in range(count):
        shift, original = divmod(number, len(originals))
        down, right = divmod(shift, SHIFTS)
        moved = np.roll(originals[original], (down - SHIFTS // 2, right - SHIFTS // 2), axis=(0, 1))
        folder = QUERIES / f"{number // PER_FOLDER:03}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(moved).save(folder / f"{number:05}.png")


def runs() -> list[Run]:
    """Time every way as a command, and those with a cluster also as the job alone."""
    found = [
        Run("one process, --jobs 1", _command("--jobs", "1")),
        Run("one process", _command()),
    ]
    for count in (1, 2):
        with connected(f"local:{count}") as cluster:
            job = partial(classify, [str(QUERIES)], GALLERY, OUTPUT, QueryOptions())
            working = seconds(partial(job, workers=OnCluster(cluster, GALLERY)))
        where = f"local:{count}"
        found.append(Run(f"--dask {where}", _command("--dask", where), working))
    return found


def measure() -> Measured:
    gallery = load_gallery(GALLERY)
    received_listing = Received()
    source = open_source([str(QUERIES)], InputOptions(), lister=received_listing.listed)
    assert isinstance(source, Images)
    folders_seconds = received_listing.seconds
    received_listing.again = True
    listing = partial(open_source, [str(QUERIES)], InputOptions(), lister=received_listing.listed)
    tracemalloc.start()
    source = listing()
    listing_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert isinstance(source, Images)
    listing_seconds = best(lambda: fingerprint(listing()))
    run = queries.Run.prepare(gallery, source, QueryOptions())
    part = source.part((0, MAX_BATCHES * run.batch_size))
    task = SentRun.of(run, GALLERY)
    with connected("local:1") as cluster:
        list(cluster.in_order(_timed, task, [source.part((0, 1))]))  # so that it loads its gallery
        ((_, task_seconds),) = cluster.in_order(_timed, task, [part])
    with connected("local:2") as cluster:
        client = cluster._client
        client.gather(client.map(_nothing, range(10), pure=False))
        scheduled = seconds(lambda: client.gather(client.map(_nothing, range(NO_OPS), pure=False)))
    received = dumps(format_part(task, part))
    row_seconds, row_bytes = _writing(received)
    size = len(part)
    span = (0, size)
    sending_seconds = best(lambda: dumps((__version__, format_part, task, source.part(span))))
    return Measured(
        queries_per_task=size,
        task_bytes=len(dumps((__version__, format_part, task, part))),
        answer_bytes=len(received),
        task_seconds=task_seconds,
        scheduler_seconds=scheduled / NO_OPS,
        gallery_seconds=seconds(lambda: load_gallery(GALLERY)),
        gallery_bytes=GALLERY.stat().st_size,
        image_bytes=sum(Path(file.path).stat().st_size for file in part.files) / size,
        folders_seconds=folders_seconds / len(source),
        listing_seconds=listing_seconds / len(source),
        listing_bytes=listing_bytes / len(source),
        sending_seconds=sending_seconds / size,
        row_seconds=row_seconds / size,
        row_bytes=row_bytes / size,
    )


@dataclass(frozen=True)
class Estimate:
    """An estimate computed from the measurements, in seconds and bytes; none of it was run."""

    workers: int
    queries: int
    listing: float  # by the client, before anything else
    folders: float  # listed by every worker, at the same time
    computing: float  # by every worker, loading the gallery included
    loading: float
    scheduling: float  # by the scheduler, at the same time
    writing: float  # by the client, which also sends the tasks, at the same time
    scheduler_bytes: float  # through the scheduler, in both directions
    image_bytes: float  # read by all workers
    gallery_bytes: float  # likewise
    csv_bytes: float
    client_memory: float
    limits: dict[str, float]  # what more workers do not shorten, and from how many on it dominates

    @property
    def spreading(self) -> float:
        """Work done at the same time takes as long as the longest part."""
        return max(self.computing, self.scheduling, self.writing)

    @property
    def seconds(self) -> float:
        return max(self.listing, self.folders) + self.spreading

    @property
    def limit(self) -> str:
        return min(self.limits, key=lambda name: self.limits[name])


def estimate(m: Measured, workers: int, queries: int) -> Estimate:
    tasks = queries / m.queries_per_task
    answered = tasks * m.task_seconds  # by one worker
    listing, writing = queries * m.listing_seconds, queries * (m.sending_seconds + m.row_seconds)
    scheduling = tasks * m.scheduler_seconds
    return Estimate(
        workers=workers,
        queries=queries,
        listing=listing,
        folders=queries * m.folders_seconds / workers,
        computing=answered / workers + m.gallery_seconds,
        loading=m.gallery_seconds,
        scheduling=scheduling,
        writing=writing,
        scheduler_bytes=tasks * (m.task_bytes + m.answer_bytes),
        image_bytes=queries * m.image_bytes,
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


class Received:
    """What workers list, as it arrives from them: the first time, it is listed here instead."""

    def __init__(self) -> None:
        self.again = False
        self.seconds = 0.0
        self._pickles: list[bytes] = []

    def listed(self, root: str, groups: Iterable[Sequence[Folder]]) -> Iterator[FolderListing]:
        if self.again:
            yield from map(loads, self._pickles)
            return
        for group in groups:
            started = time.perf_counter()
            found = list_some_folders(str(Path.cwd()), root, group)
            self._pickles.append(dumps(found))
            self.seconds += time.perf_counter() - started
            yield found


def _timed(task: SentRun, part: SourcePart) -> float:
    """Runs on a worker."""
    return seconds(lambda: format_part(task, part))


def _nothing(number: int) -> int:
    """Runs on a worker too."""
    return number


def _writing(received: bytes) -> tuple[float, int]:
    """Seconds and bytes of all rows, from the rows as they arrive from a worker to the journal's hashes."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out.csv"

        def write() -> None:
            with resumable(output, {}, resume=False) as file:
                for _ in range(TASKS_WRITTEN):
                    batches: Warned[RowBatch] = loads(received)
                    for batch in batches[0]:
                        file.write(batch.data)
                        file.end_batch(batch.statuses, batch.missing)

        return best(write, 5) / TASKS_WRITTEN, output.stat().st_size // TASKS_WRITTEN


def _command(*options: str) -> float:
    command = [*CRNR, "classify", "-q", str(QUERIES), "-o", str(OUTPUT), *options]
    return seconds(lambda: subprocess.run(command, check=True))
