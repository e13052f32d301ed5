"""Classify on a cluster: workers get paths, read the pictures themselves, and send answers back.

Answers come in the order and in the batches of a single machine, so whoever writes them need not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

from crnr_cli.cluster.dask import TASKS_A_THREAD, Cluster
from crnr_cli.errors import DataError
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.jobs.classify import Answering, QueryOptions, answer, least_standout, load_for, queries_at_once
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers
from crnr_cli.sources.base import Keys
from crnr_cli.sources.folders import Features, PictureFile, Pictures, Source
from crnr_cli.sources.tables import FeatureFile

MOST_BATCHES = 8  # a task: decoders are started once a task, and what a dying worker had done is lost


@dataclass(frozen=True)
class Part:
    """Consecutive queries, small to send: files by path, rows of features by number."""

    files: list[PictureFile]
    table: Path | None = None
    rows: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Task:
    """All that a worker needs to know beside its part."""

    gallery: Path
    sha256: str
    options: QueryOptions


def answering(cluster: Cluster, gallery_path: Path) -> Answering:
    """`jobs.classify.answer`, done by the workers of a cluster."""
    path = gallery_path.resolve()

    def answered(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        extractor = options.extractor.resolve() if options.extractor else None
        # Whether a query is unknown is judged here: workers need not calibrate the gallery each.
        told = replace(options, jobs=1, reject=None, extractor=extractor)
        task = Task(path, gallery.sha256, told)
        standout = least_standout(gallery, options)
        size = queries_at_once(gallery)
        parts = _parts(source, size, first, _batches_a_part(len(source) // size, cluster.n_threads))
        names = _names(source, size, first)
        done = min(first * size, len(source))
        progress("classifying", done, len(source))
        for _, batches in cluster.in_order(answer_part, task, parts):
            for answers in batches:
                yield replace(answers, paths=next(names), least_standout=standout)
                done += len(answers.paths)
                progress("classifying", done, len(source))

    return answered


def answer_part(task: Task, part: Part) -> list[Answers]:
    """Runs on a worker. The gallery is read once in its life."""
    with _loading:
        gallery = _gallery(task.gallery, task.sha256, task.options.extractor)
    answers = list(answer(gallery, _source(part, task.options.keys), task.options))
    _refuse_blindness(part, answers)
    return answers


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
            absolute = [file._replace(path=str(Path(file.path).absolute())) for file in files]
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
