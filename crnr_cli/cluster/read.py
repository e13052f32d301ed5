"""Read pictures on a cluster: workers receive paths, decode the pictures, and return their raw values.

The values come in the same order and in the same batches as on a single machine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock

from crnr_cli.arrays import Batch
from crnr_cli.cluster.dask import Cluster
from crnr_cli.cluster.parts import groups, refuse_missing, refuse_missing_folders
from crnr_cli.gallery.reader import ReadHere
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe, Recipe
from crnr_cli.sources.base import InputOptions, Part, Source, Span

_MEASURED_AT_ONCE = 1024  # pictures, of which only the headers are read


@dataclass(frozen=True)
class Task:
    """Everything that a worker needs besides its part of the samples."""

    recipes: tuple[Recipe, ...]  # without steps, which are applied to raw values later
    options: InputOptions


@dataclass(frozen=True)
class Piece:
    """What a task reads."""

    part: Part
    spans: Sequence[Span]  # of the part


@dataclass(frozen=True)
class ReadOnCluster:
    """A `Reader`. Files of features are read here, as sending their values would take longer."""

    cluster: Cluster

    def sizes(self, source: Source, options: InputOptions, progress: Progress) -> set[tuple[int, int]]:
        if source.n_features is not None:
            return ReadHere().sizes(source, options, progress)
        spans = source.spans(_MEASURED_AT_ONCE)
        found: set[tuple[int, int]] = set()
        measured = self.cluster.in_order(measure_part, _sent(options), map(source.part, spans))
        for (_, done), (_, sizes) in zip(spans, measured, strict=True):
            found |= sizes
            progress("measuring", done, len(source))
        return found

    def raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe], options: InputOptions
    ) -> Generator[list[Batch]]:
        if source.n_features is not None:
            return ReadHere().raw(source, spans, recipes, options)
        task = Task(tuple(replace(ready.recipe, steps=()) for ready in recipes), _sent(options))
        return self._batches(source, spans, task)

    def _batches(self, source: Source, spans: Sequence[Span], task: Task) -> Generator[list[Batch]]:
        ends = (stop for _, stop in spans)
        for _, read in self.cluster.in_order(read_part, task, _pieces(source, spans, self.cluster.n_threads)):
            for batches in read:
                end = next(ends)
                yield [replace(batch, end=end) for batch in batches]


def _sent(options: InputOptions) -> InputOptions:
    """What workers need to know of the options; each of their threads has one core."""
    return InputOptions(max_pixels=options.max_pixels, jobs=1, provider=options.provider)


def _pieces(source: Source, spans: Sequence[Span], threads: int) -> Iterator[Piece]:
    for group in groups(spans, threads):
        first = group[0][0]
        part = source.part((first, group[-1][1]))
        yield Piece(part, [(start - first, stop - first) for start, stop in group])


def read_part(task: Task, piece: Piece) -> list[list[Batch]]:
    """Read a part of the samples, on a worker."""
    refuse_missing(piece.part.paths)
    source = piece.part.opened(task.options.keys)
    with _opening:
        recipes = _open_recipes(task)
    read = list(ReadHere().raw(source, piece.spans, recipes, task.options))
    for batches in read:
        refuse_missing_folders(source, batches[0])
    return read


_opening = Lock()  # only one thread of a worker loads a model; the others wait


@lru_cache(maxsize=1)
def _open_recipes(task: Task) -> list[OpenRecipe]:
    """Open the recipes of a task. A worker keeps them for the next one, as loading a model takes long."""
    options = task.options
    return [
        recipe.open(
            jobs=options.n_jobs,
            provider=options.provider,
            max_pixels=options.max_pixels,
            with_hash=True,
        )
        for recipe in task.recipes
    ]


def measure_part(options: InputOptions, part: Part) -> set[tuple[int, int]]:
    """The sizes of a part of the pictures, on a worker. What cannot be read is reported later."""
    return part.opened(options.keys).sizes(options.max_pixels, DecoderPool(options.jobs), silent)
