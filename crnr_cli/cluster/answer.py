"""Classify on a cluster: workers get paths, read the pictures themselves, and send answers back.

Answers arrive in the order and in the batches of a single machine, so whoever writes them need not know.
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
    least_standout,
    load_for,
    queries_per_batch,
)
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers
from crnr_cli.sources.base import Part, Source, Span

MAX_BATCHES = 8  # per task. More saves starting decoders, fewer loses less when a worker dies.


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs to know besides its part of the queries."""

    gallery: Path
    sha256: str
    options: QueryOptions


def answering(cluster: Cluster, gallery_path: Path) -> Answering:
    """Answer on the workers of a cluster."""
    path = gallery_path.resolve()

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        model = options.model.resolve() if options.model else None
        size = queries_per_batch(gallery, options)
        # Queries are rejected here, so that workers need not calibrate the gallery.
        task = Task(path, gallery.sha256, replace(options, jobs=1, reject=None, model=model, batch_size=size))
        standout = least_standout(gallery, options)
        spans = source.spans(size)[first:]
        groups = _groups(spans, _batches_per_task(len(spans), cluster.n_threads))
        parts = (source.part((group[0][0], group[-1][1])) for group in groups)
        done = spans[0][0] if spans else len(source)
        progress("classifying", done, len(source))
        # Workers know the queries by absolute paths; the answers get the names that the user gave.
        names = (source.names(span) for span in spans)
        for _, (batches, unconverged) in cluster.in_order(answer_part, task, parts):
            for warning in unconverged:
                warnings.warn(warning, stacklevel=2)
            for answers in batches:
                done += len(answers.batch.names)
                batch = replace(answers.batch, names=next(names), end=done)
                yield replace(answers, batch=batch, least_standout=standout)
                progress("classifying", done, len(source))

    return run


def answer_part(task: Task, part: Part) -> tuple[list[Answers], list[NotConverged]]:
    """Runs on a worker, which reads the gallery only once. The client repeats the warnings."""
    with _loading:
        gallery = _gallery(task.gallery, task.sha256, task.options.model)
    _refuse_missing(part.paths)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NotConverged)
        answers = list(answer(gallery, part.opened(task.options.keys), task.options))
    _refuse_missing_folders(answers)
    return answers, [each.message for each in found if isinstance(each.message, NotConverged)]


_loading = Lock()  # threads of one worker wait for the one that loads


@lru_cache(maxsize=1)
def _gallery(path: Path, sha256: str, model: Path | None) -> Gallery:
    _refuse_missing([path])
    gallery = load_for(QueryOptions(model=model), path)
    if gallery.sha256 != sha256:
        raise DataError(f"sees another gallery at {path}; restart the workers, or copy it to them again")
    return gallery


def _refuse_missing(paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.exists():
            raise DataError(
                f"does not see {path}; all workers must see the gallery and the queries under the same paths"
            )


def _refuse_missing_folders(answers: list[Answers]) -> None:
    """One file may vanish; if its folder is missing too, this machine lacks the file system."""
    for some in answers:
        for name, error in zip(some.batch.names, some.batch.errors, strict=True):
            if error and error.status == "vanished":
                _refuse_missing([Path(name).parent])


def _batches_per_task(n_batches: int, threads: int) -> int:
    """Few enough that every thread gets several tasks."""
    return max(1, min(MAX_BATCHES, n_batches // (TASKS_PER_THREAD * threads)))


def _groups(spans: Sequence[Span], size: int) -> Iterator[Sequence[Span]]:
    for start in range(0, len(spans), size):
        yield spans[start : start + size]
