"""The work that a cluster does: listing, reading and classifying images."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from crnr_cli.arrays import Batch
from crnr_cli.cluster.dask import TASKS_PER_THREAD, Cluster
from crnr_cli.errors import DataError, NotConverged
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, RowBatch, Run, load_for_queries
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe, Recipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import Answers
from crnr_cli.results.probability import Thresholds
from crnr_cli.sources.base import Source, SourcePart, Span
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.images import Images
from crnr_cli.sources.walk import Folder, FolderListing, Lister, list_some_folders
from crnr_cli.system.cores import Item, Result, Shared
from crnr_cli.system.names import stat_or_none

T = TypeVar("T")
Warned = tuple[list[T], list[NotConverged]]  # warnings are returned, and the client issues them again
_loading = Lock()  # only one thread of a worker loads the gallery and the model; the others wait
_MEASURED_AT_ONCE = 1024  # images, of which only the headers are read
_opening = Lock()  # only one thread of a worker loads a model; the others wait
MAX_BATCHES = 8  # per task. With more, decoders are started less often; with fewer, a dead worker costs less.


@dataclass(frozen=True)
class OnCluster:
    """The workers of a cluster. They classify by the gallery at this path.

    Feature files are read here to build a gallery, because sending their values would take longer.
    """

    cluster: Cluster
    gallery: Path | None = None

    @property
    def lister(self) -> Lister:
        return partial(list_on, self.cluster)

    def image_sizes(self, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
        if source.n_features is not None:
            return set()
        return measure_on(self.cluster, source, max_pixels, progress)

    def read_raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe]
    ) -> Generator[list[Batch]]:
        if source.n_features is not None:
            return Here(DecoderPool(1)).read_raw(source, spans, recipes)
        return read_on(self.cluster, source, spans, recipes)

    def answer(self, run: Run, progress: Progress) -> Iterator[Answers]:
        ends = (stop for _, stop in run.spans)
        for answers in self._batches(answer_part, run, progress):
            yield replace(answers, batch=replace(answers.batch, end=next(ends)))

    def answer_rows(self, run: Run, progress: Progress) -> Iterator[RowBatch]:
        return self._batches(format_part, run, progress)

    def spread(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        return self.cluster.spread(work, shared, items)

    def _batches(
        self, work: Callable[[SentRun, SourcePart], Warned[T]], run: Run, progress: Progress
    ) -> Iterator[T]:
        """Yield the workers' result for every batch, in order."""
        assert self.gallery is not None
        spans, source, total = run.spans, run.source, len(run.source)
        parts = (source.part((group[0][0], group[-1][1])) for group in groups(spans, self.cluster.n_threads))
        progress("classifying", spans[0][0] if spans else total, total)
        ends = (stop for _, stop in spans)
        sent = SentRun.of(run, self.gallery)
        for _, (batches, unconverged) in self.cluster.in_order(work, sent, parts):
            for warning in unconverged:
                warnings.warn(warning, stacklevel=2)
            for batch in batches:
                yield batch
                progress("classifying", next(ends), total)


@dataclass(frozen=True)
class SentRun:
    """A run without its gallery, model and queries, which a worker opens itself."""

    gallery: Path
    sha256: str
    options: QueryOptions
    batch_size: int
    top: int | None
    min_separation: float
    sureness: Thresholds | None

    @classmethod
    def of(cls, run: Run, gallery_path: Path) -> SentRun:
        model = run.options.model.resolve() if run.options.model else None
        sure = run.sureness
        if sure:  # the level is decided: its samples need not be sent
            sure = replace(sure, certainty=replace(sure.certainty, of_truth=np.empty(0)))
        return cls(
            gallery=gallery_path.resolve(),
            sha256=run.gallery.sha256,
            options=replace(run.options, jobs=1, model=model),  # each thread of a worker has one core
            batch_size=run.batch_size,
            top=run.top,
            min_separation=run.min_separation,
            sureness=sure,
        )

    def on_part(self, part: SourcePart) -> Run:
        """Return the run for a part of the queries, on a worker, which loads the gallery only once."""
        refuse_missing(part.paths)
        options = self.options
        source = part.open(options.keys)
        has_values = source.n_features is not None
        with _loading:
            gallery, recipe = _load(
                self.gallery, self.sha256, options.model, options.provider, options.max_pixels, has_values
            )
        return Run(
            gallery=gallery,
            source=source,
            recipe=recipe,
            options=options,
            batch_size=self.batch_size,
            top=self.top,
            min_separation=self.min_separation,
            sureness=self.sureness,
        )


def answer_part(sent: SentRun, part: SourcePart) -> Warned[Answers]:
    """Classify a part of the queries, on a worker."""
    return _answer(sent.on_part(part))


def format_part(sent: SentRun, part: SourcePart) -> Warned[RowBatch]:
    """Classify a part of the queries, on a worker, and make rows of the answers."""
    run = sent.on_part(part)
    answers, unconverged = _answer(run)
    return list(map(run.row_formatter.format, answers)), unconverged


def _answer(run: Run) -> Warned[Answers]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NotConverged)
        answers = list(run.answer(DecoderPool(1)))
    for some in answers:
        refuse_missing_folders(run.source, some.batch)
    return answers, [each.message for each in caught if isinstance(each.message, NotConverged)]


@lru_cache(maxsize=1)
def _load(
    path: Path, sha256: str, model: Path | None, provider: str, max_pixels: int, has_values: bool
) -> tuple[FittedGallery, OpenRecipe]:
    """Load the gallery and its model. A worker keeps them for the next task."""
    refuse_missing([path])
    gallery = load_for_queries(QueryOptions(model=model), path)
    if gallery.sha256 != sha256:
        raise DataError(f"has a different gallery at {path}; restart the workers, or copy it to them again")
    recipe = gallery.recipe.open(has_values=has_values, provider=provider, max_pixels=max_pixels)
    return gallery, recipe


@dataclass(frozen=True)
class ReadTask:
    """Everything that a worker needs besides its part of the samples."""

    recipes: tuple[Recipe, ...]  # without steps, which are applied to raw values later
    provider: str
    max_pixels: int


@dataclass(frozen=True)
class Piece:
    """The input of a read task."""

    part: SourcePart
    spans: Sequence[Span]  # of the part


def measure_on(cluster: Cluster, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
    """Return the sizes of all readable images."""
    spans = source.spans(_MEASURED_AT_ONCE)
    sizes: set[tuple[int, int]] = set()
    measured = cluster.in_order(measure_part, max_pixels, map(source.part, spans))
    for (_, done), (_, some) in zip(spans, measured, strict=True):
        sizes |= some
        progress("measuring", done, len(source))
    return sizes


def read_on(
    cluster: Cluster, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe]
) -> Generator[list[Batch]]:
    """Read these spans in order, each as one batch of raw values per recipe."""
    request = recipes[0].request
    assert request is not None
    without_steps = tuple(replace(ready.recipe, steps=()) for ready in recipes)
    task = ReadTask(without_steps, recipes[0].provider, request.max_pixels)
    ends = (stop for _, stop in spans)
    for _, read in cluster.in_order(read_part, task, _pieces(source, spans, cluster.n_threads)):
        for batches in read:
            end = next(ends)
            yield [replace(batch, end=end) for batch in batches]


def _pieces(source: Source, spans: Sequence[Span], threads: int) -> Iterator[Piece]:
    for group in groups(spans, threads):
        first = group[0][0]
        part = source.part((first, group[-1][1]))
        yield Piece(part, [(start - first, stop - first) for start, stop in group])


def read_part(task: ReadTask, piece: Piece) -> list[list[Batch]]:
    """Read a part of the samples, on a worker, each of whose threads has one core."""
    refuse_missing(piece.part.paths)
    source = piece.part.open(Keys())
    with _opening:
        recipes = _open_recipes(task)
    read = list(Here(DecoderPool(1)).read_raw(source, piece.spans, recipes))
    for batches in read:
        refuse_missing_folders(source, batches[0])
    return read


@lru_cache(maxsize=1)
def _open_recipes(task: ReadTask) -> list[OpenRecipe]:
    """Open the recipes of a task. A worker keeps them for the next task, because loading a model is slow."""
    return [
        recipe.open(provider=task.provider, max_pixels=task.max_pixels, with_hash=True)
        for recipe in task.recipes
    ]


def measure_part(max_pixels: int, part: SourcePart) -> set[tuple[int, int]]:
    """Return the sizes of a part of the images, on a worker. Unreadable images are reported later."""
    return part.open(Keys()).read_sizes(max_pixels, DecoderPool(1), silent)


@dataclass(frozen=True)
class Root:
    """A folder that the user named."""

    path: str
    base: str  # the folder of relative paths


@dataclass(frozen=True)
class Group:
    """Folders for one task: in a class of its own, because Dask would look for tasks in a list."""

    folders: Sequence[Folder]


def list_on(cluster: Cluster, root: str, groups: Iterable[Sequence[Folder]]) -> Iterator[FolderListing]:
    """Yield the listings of groups of subfolders of a named folder, in their order."""
    for _, found in cluster.in_order(list_folders, Root(root, str(Path.cwd())), map(Group, groups)):
        yield found


def list_folders(root: Root, group: Group) -> FolderListing:
    """List some folders of the root, on a worker."""
    refuse_missing([Path(os.path.join(root.base, root.path))])  # noqa: PTH118
    return list_some_folders(root.base, root.path, group.folders)


def groups(spans: Sequence[Span], threads: int) -> Iterator[Sequence[Span]]:
    """Yield the batches of each task: so few that every thread gets several tasks."""
    size = max(1, min(MAX_BATCHES, len(spans) // (TASKS_PER_THREAD * threads)))
    for start in range(0, len(spans), size):
        yield spans[start : start + size]


def refuse_missing(paths: Sequence[Path]) -> None:
    for path in paths:
        if stat_or_none(path) is None:
            raise DataError(
                f"cannot find {path}; the gallery and the images must have the same paths on all workers"
            )


def refuse_missing_folders(source: Source, batch: Batch) -> None:
    """Refuse a batch with a missing folder: a single file may vanish, but the folder may not be mounted."""
    base = source.base if isinstance(source, Images) else ""
    for sample, error in batch.failures():
        if error.status == "vanished":
            refuse_missing([Path(base, batch.names[sample]).parent])
