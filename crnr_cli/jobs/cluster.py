"""Classify on a cluster: Dask's workers get paths, read the pictures themselves, and send answers back.

Answers come in the order and in the batches of a single machine, so whoever writes them need not know.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any

from crnr_cli import __version__
from crnr_cli.errors import CrnrError, DataError, UsageError
from crnr_cli.extras import require
from crnr_cli.features import FeatureFile, Keys
from crnr_cli.gallery import Gallery
from crnr_cli.jobs.classify import QueryOptions, answer, least_standout, load_for, queries_at_once
from crnr_cli.jobs.progress import Progress
from crnr_cli.results import Answers
from crnr_cli.sources import Features, PictureFile, Pictures, Source

TASKS_A_THREAD = 4  # waiting or at work, for each thread of the cluster: none is idle, and memory is bounded
MOST_BATCHES = 8  # a task: decoders are started once a task, and what a dying worker had done is lost
SECONDS_TO_CONNECT = 20


@dataclass(frozen=True)
class Part:
    """Consecutive queries, small to send: files by path, rows of features by number."""

    files: list[PictureFile]
    table: Path | None = None
    rows: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Task:
    """All that a worker needs to know beside its part."""

    version: str
    gallery: Path
    sha256: str
    options: QueryOptions


class Cluster:
    """Answers queries as `jobs.classify.answer` does, by the workers of a cluster."""

    def __init__(self, client: Any, gallery: Path) -> None:
        self._client, self._gallery = client, gallery.resolve()

    @property
    def dashboard(self) -> str:
        """The address of a page that shows what the cluster does."""
        return str(self._client.dashboard_link or "")

    @property
    def n_workers(self) -> int:
        return len(self._client.nthreads())

    def answer(
        self, gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        """The answers from the `first` batch on, in order; what a dead worker had is done by another."""
        extractor = options.extractor.resolve() if options.extractor else None
        # Whether a query is unknown is judged here: workers need not calibrate the gallery each.
        told = replace(options, jobs=1, reject=None, extractor=extractor)
        task = Task(__version__, self._gallery, gallery.sha256, told)
        standout = least_standout(gallery, options)
        size = queries_at_once(gallery)
        threads = max(1, sum(self._client.nthreads().values()))
        parts = _parts(source, size, first, _batches_a_part(len(source) // size, threads))
        names = _names(source, size, first)
        waiting: deque[Any] = deque()
        done = min(first * size, len(source))
        progress("classifying", done, len(source))
        try:
            while True:
                for part in islice(parts, TASKS_A_THREAD * threads - len(waiting)):
                    waiting.append(self._client.submit(answer_part, task, part, pure=False))
                if not waiting:
                    return
                for answers in self._result(waiting.popleft()):
                    yield replace(answers, paths=next(names), least_standout=standout)
                    done += len(answers.paths)
                    progress("classifying", done, len(source))
        finally:
            with contextlib.suppress(Exception):  # the cluster may be gone
                self._client.cancel(list(waiting))

    def _result(self, future: Any) -> list[Answers]:
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        try:
            answers: list[Answers] = future.result()
        except KilledWorker as e:
            raise DataError(
                "workers died again and again on the same queries; see their logs; often memory is short"
            ) from e
        except (FutureCancelledError, OSError) as e:
            raise DataError(f"the cluster is lost ({e}); --resume goes on once it is there again") from e
        except ImportError as e:
            raise DataError(f"a worker cannot load crnr ({e}); install crnr-cli[dask] on every worker") from e
        return answers


@contextlib.contextmanager
def connected(where: str, gallery: Path) -> Iterator[Cluster]:
    """A cluster by the address of its scheduler, or `local:N` for N processes of this machine."""
    require("dask", "--dask", "distributed")
    from distributed import Client, LocalCluster

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters comes as an exception
    with contextlib.ExitStack() as stack:
        address: Any = where
        if where.startswith("local:"):
            count = where.removeprefix("local:")
            if not count.isdecimal() or int(count) < 1:
                raise UsageError(f"--dask {where}: write local:N for N processes, as in local:4")
            address = stack.enter_context(
                LocalCluster(
                    n_workers=int(count),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = stack.enter_context(Client(address, timeout=SECONDS_TO_CONNECT))
            client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
        except (OSError, ValueError) as e:
            raise DataError(
                f"--dask {where}: no scheduler with a worker answers there ({_first_line(e)})"
            ) from e
        yield Cluster(client, gallery)


def answer_part(task: Task, part: Part) -> list[Answers]:
    """Runs on a worker. The gallery is read once in its life."""
    from distributed import get_worker

    try:
        if task.version != __version__:
            raise DataError(
                f"has crnr {__version__}, and {task.version} was started; install the same on all"
            )
        with _loading:
            gallery = _gallery(task.gallery, task.sha256, task.options.extractor)
        source = _source(part, task.options.keys)
        answers = list(answer(gallery, source, task.options))
        _refuse_blindness(part, answers)
        return answers
    except CrnrError as e:
        raise DataError(f"worker {get_worker().address}: {e}") from e


_loading = Lock()  # threads of one worker wait for the one that loads


@lru_cache(maxsize=1)
def _gallery(path: Path, sha256: str, extractor: Path | None) -> Gallery:
    if not path.exists():
        raise DataError(
            f"does not see {path}; all workers must see the gallery and the queries under the same paths"
        )
    gallery = load_for(QueryOptions(extractor=extractor), path)
    if gallery.sha256 != sha256:
        raise DataError(f"sees another gallery at {path}; restart the workers, or copy it to them again")
    return gallery


@lru_cache(maxsize=4)
def _table(path: Path, keys: Keys) -> FeatureFile:
    if not path.exists():
        raise DataError(
            f"does not see {path}; all workers must see the gallery and the queries under the same paths"
        )
    return FeatureFile.open(path, keys)


def _source(part: Part, keys: Keys) -> Source:
    if part.table is None:
        return Pictures(part.files)
    table, (start, stop) = _table(part.table, keys), part.rows
    labels = table.labels[start:stop] if table.labels is not None else None
    return Features(
        [replace(table, values=table.rows(start, stop), labels=labels, names=table.names[start:stop])]
    )


def _refuse_blindness(part: Part, answers: list[Answers]) -> None:
    """A file may vanish; a folder that is not there at all means that this machine lacks the file system."""
    errors = [error for some in answers for error in some.errors]
    for file, error in zip(part.files, errors, strict=False):
        if error and error.status == "vanished" and not Path(file.path).parent.exists():
            raise DataError(
                f"does not see {Path(file.path).parent}; all workers must see the gallery and the queries "
                "under the same paths"
            )


def _batches_a_part(n_batches: int, threads: int) -> int:
    """Few enough that every thread has several parts to do."""
    return max(1, min(MOST_BATCHES, n_batches // (TASKS_A_THREAD * threads)))


def _parts(source: Source, size: int, first: int, batches: int) -> Iterator[Part]:
    """The listing from the `first` batch on, some batches a part."""
    if isinstance(source, Pictures):
        step = size * batches
        for start in range(first * size, len(source.files), step):
            files = source.files[start : start + step]
            absolute = [replace(file, path=str(Path(file.path).absolute())) for file in files]
            yield Part(absolute)
        return
    for file in source.files:
        n_batches = -(-len(file) // size)
        for start in range(first * size, len(file), size * batches):
            stop = min(start + size * batches, len(file))
            yield Part([], file.path.absolute(), (start, stop))
        first = max(0, first - n_batches)


def _names(source: Source, size: int, first: int) -> Iterator[list[str]]:
    """The names of each batch's queries as the user gave them; workers know them by absolute paths."""
    tables = (
        [[file.path for file in source.files]]
        if isinstance(source, Pictures)
        else [file.names for file in source.files]
    )
    starts = [(names, start) for names in tables for start in range(0, len(names), size)]
    for names, start in starts[first:]:
        yield names[start : start + size]


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().split("\n", 1)[0]
