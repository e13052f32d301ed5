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
from crnr_cli.gallery.workers import Here
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe, Recipe
from crnr_cli.sources.base import Keys, Part, Source, Span

_MEASURED_AT_ONCE = 1024  # pictures, of which only the headers are read


@dataclass(frozen=True)
class ReadTask:
    """Everything that a worker needs besides its part of the samples."""

    recipes: tuple[Recipe, ...]  # without steps, which are applied to raw values later
    provider: str
    max_pixels: int


@dataclass(frozen=True)
class Piece:
    """What a task reads."""

    part: Part
    spans: Sequence[Span]  # of the part


def measure_on(cluster: Cluster, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
    """Return the sizes of all readable pictures."""
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
    source = piece.part.opened(Keys())
    with _opening:
        recipes = _open_recipes(task)
    read = list(Here(DecoderPool(1)).read_raw(source, piece.spans, recipes))
    for batches in read:
        refuse_missing_folders(source, batches[0])
    return read


_opening = Lock()  # only one thread of a worker loads a model; the others wait


@lru_cache(maxsize=1)
def _open_recipes(task: ReadTask) -> list[OpenRecipe]:
    """Open the recipes of a task. A worker keeps them for the next one, as loading a model takes long."""
    return [
        recipe.open(provider=task.provider, max_pixels=task.max_pixels, with_hash=True)
        for recipe in task.recipes
    ]


def measure_part(max_pixels: int, part: Part) -> set[tuple[int, int]]:
    """Return the sizes of a part of the pictures, on a worker. What cannot be read is reported later."""
    return part.opened(Keys()).sizes(max_pixels, DecoderPool(1), silent)
