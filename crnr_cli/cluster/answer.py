"""Classify on a cluster: workers receive paths, read the pictures themselves, and return the rows.

The rows come in the same order and in the same batches as on a single machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from crnr_cli.cluster.dask import Cluster
from crnr_cli.cluster.parts import groups, refuse_missing, refuse_missing_folders
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
from crnr_cli.gallery.formatted import Formatted, Formatter, Formatting
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers
from crnr_cli.results.probability import Sureness
from crnr_cli.sources.base import Part, Source

T = TypeVar("T")
Warned = tuple[list[T], list[NotConverged]]  # warnings are returned, and the client issues them again


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs besides its part of the queries."""

    gallery: Path
    sha256: str
    options: QueryOptions  # without those that need a calibrated gallery, which a worker may not have
    standout: float
    sureness: Sureness | None


def answering(cluster: Cluster, gallery_path: Path) -> Answering:
    """Classify on the workers of a cluster, and return the residuals."""
    path = gallery_path.resolve()

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Answers]:
        task = task_for(path, gallery, options)
        ends = (stop for _, stop in _spans(task, source, first))
        for answers in _batches(cluster, answer_part, task, source, progress, first):
            yield replace(answers, batch=replace(answers.batch, end=next(ends)))

    return run


def formatting(cluster: Cluster, gallery_path: Path) -> Formatting:
    """Classify on the workers of a cluster, which make the rows too."""
    path = gallery_path.resolve()

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Formatted]:
        return _batches(cluster, format_part, task_for(path, gallery, options), source, progress, first)

    return run


def task_for(path: Path, gallery: Gallery, options: QueryOptions) -> Task:
    model = options.model.resolve() if options.model else None
    size = queries_per_batch(gallery, options)
    asked = replace(options, jobs=1, model=model, batch_size=size, lister=None)
    sure = sureness(gallery, options)
    if sure:  # the level is decided: the samples that it was decided by need not be sent
        sure = replace(sure, certainty=replace(sure.certainty, of_truth=np.empty(0)))
    return Task(
        path,
        gallery.sha256,
        replace(asked, reject=None, min_probability=None, sets=None),
        min_standout(gallery, options),
        sure,
    )


def _spans(task: Task, source: Source, first: int) -> list[tuple[int, int]]:
    assert task.options.batch_size is not None
    return source.spans(task.options.batch_size)[first:]


def _batches(
    cluster: Cluster,
    work: Callable[[Task, Part], Warned[T]],
    task: Task,
    source: Source,
    progress: Progress,
    first: int,
) -> Iterator[T]:
    """What the workers make of every batch, in order."""
    spans = _spans(task, source, first)
    parts = (source.part((group[0][0], group[-1][1])) for group in groups(spans, cluster.n_threads))
    progress("classifying", spans[0][0] if spans else len(source), len(source))
    ends = (stop for _, stop in spans)
    for _, (batches, unconverged) in cluster.in_order(work, task, parts):
        for warning in unconverged:
            warnings.warn(warning, stacklevel=2)
        for batch in batches:
            yield batch
            progress("classifying", next(ends), len(source))


def answer_part(task: Task, part: Part) -> Warned[Answers]:
    """Classify a part of the queries, on a worker, which loads the gallery only once."""
    refuse_missing(part.paths)
    gallery = _loaded(task)
    source = part.opened(task.options.keys)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NotConverged)
        answers = list(answer(gallery, source, task.options))
    for some in answers:
        refuse_missing_folders(source, some.batch)
    decided = [replace(some, min_standout=task.standout, sureness=task.sureness) for some in answers]
    return decided, [each.message for each in found if isinstance(each.message, NotConverged)]


def format_part(task: Task, part: Part) -> Warned[Formatted]:
    """The same as rows."""
    answers, unconverged = answer_part(task, part)
    formatter = Formatter(_loaded(task), task.options, task.sureness.columns if task.sureness else ())
    return [formatter.formatted(some) for some in answers], unconverged


_loading = Lock()  # only one thread of a worker loads the gallery; the others wait


def _loaded(task: Task) -> Gallery:
    with _loading:
        return _gallery(task.gallery, task.sha256, task.options.model)


@lru_cache(maxsize=1)
def _gallery(path: Path, sha256: str, model: Path | None) -> Gallery:
    refuse_missing([path])
    gallery = load_for(QueryOptions(model=model), path)
    if gallery.sha256 != sha256:
        raise DataError(f"has a different gallery at {path}; restart the workers, or copy it to them again")
    return gallery
