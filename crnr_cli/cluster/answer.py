"""Classify on a cluster: workers receive paths, read the pictures themselves, and return the answers.

The answers come in the same order and in the same batches as on a single machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

from crnr_cli.cluster.dask import TASKS_PER_THREAD, Cluster
from crnr_cli.errors import DataError, NotConverged
from crnr_cli.gallery.answer import (
    Answering,
    QueryOptions,
    answer,
    load_for,
    min_standout,
    queries_per_batch,
    sureness,
)
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers
from crnr_cli.sources.base import Part, Source, Span
from crnr_cli.system.names import existing

MAX_BATCHES = 8  # per task. With more, decoders are started less often; with fewer, a dead worker costs less.


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs besides its part of the queries."""

    gallery: Path
    sha256: str
    options: QueryOptions


def answering(cluster: Cluster, gallery_path: Path) -> Answering:
    """Classify on the workers of a cluster."""
    path = gallery_path.resolve()

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        model = options.model.resolve() if options.model else None
        size = queries_per_batch(gallery, options)
        # Queries are rejected here, so that workers do not have to calibrate the gallery.
        asked = replace(options, jobs=1, model=model, batch_size=size)
        task = Task(path, gallery.sha256, replace(asked, reject=None, min_probability=None, sets=None))
        standout, sure = min_standout(gallery, options), sureness(gallery, options)
        spans = source.spans(size)[first:]
        groups = _groups(spans, _batches_per_task(len(spans), cluster.n_threads))
        parts = (source.part((group[0][0], group[-1][1])) for group in groups)
        done = spans[0][0] if spans else len(source)
        progress("classifying", done, len(source))
        # Workers use absolute paths; here, the answers get the names that the user gave.
        names = (source.names(span) for span in spans)
        for _, (batches, unconverged) in cluster.in_order(answer_part, task, parts):
            for warning in unconverged:
                warnings.warn(warning, stacklevel=2)
            for answers in batches:
                done += len(answers.batch.names)
                batch = replace(answers.batch, names=next(names), end=done)
                yield replace(answers, batch=batch, min_standout=standout, sureness=sure)
                progress("classifying", done, len(source))

    return run


def answer_part(task: Task, part: Part) -> tuple[list[Answers], list[NotConverged]]:
    """Classify a part of the queries, on a worker, which loads the gallery only once.

    Warnings are returned, and the client issues them again.
    """
    with _loading:
        gallery = _gallery(task.gallery, task.sha256, task.options.model)
    _refuse_missing(part.paths)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NotConverged)
        answers = list(answer(gallery, part.opened(task.options.keys), task.options))
    _refuse_missing_folders(answers)
    return answers, [each.message for each in found if isinstance(each.message, NotConverged)]


_loading = Lock()  # only one thread of a worker loads the gallery; the others wait


@lru_cache(maxsize=1)
def _gallery(path: Path, sha256: str, model: Path | None) -> Gallery:
    _refuse_missing([path])
    gallery = load_for(QueryOptions(model=model), path)
    if gallery.sha256 != sha256:
        raise DataError(f"has a different gallery at {path}; restart the workers, or copy it to them again")
    return gallery


def _refuse_missing(paths: Sequence[Path]) -> None:
    for path in paths:
        if existing(path) is None:
            raise DataError(
                f"cannot find {path}; the gallery and the queries must have the same paths on all workers"
            )


def _refuse_missing_folders(answers: list[Answers]) -> None:
    """A single file may vanish; but if its folder is missing too, the file system is not mounted here."""
    for some in answers:
        for name, error in zip(some.batch.names, some.batch.errors, strict=True):
            if error and error.status == "vanished":
                _refuse_missing([Path(name).parent])


def _batches_per_task(n_batches: int, threads: int) -> int:
    """The number of batches per task, small enough for every thread to get several tasks."""
    return max(1, min(MAX_BATCHES, n_batches // (TASKS_PER_THREAD * threads)))


def _groups(spans: Sequence[Span], size: int) -> Iterator[Sequence[Span]]:
    for start in range(0, len(spans), size):
        yield spans[start : start + size]
