"""The workers of a cluster: they list folders, read pictures and classify in place of this process.

To classify, workers receive paths, read the pictures themselves, and return the rows. These come in the same
order and in the same batches as on a single machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np

from crnr_cli.arrays import Batch
from crnr_cli.cluster.dask import Cluster
from crnr_cli.cluster.list import list_on
from crnr_cli.cluster.parts import groups, refuse_missing, refuse_missing_folders
from crnr_cli.cluster.read import measure_on, read_on
from crnr_cli.errors import DataError, NotConverged
from crnr_cli.gallery.answer import QueryOptions, Run, load_for
from crnr_cli.gallery.formatted import RowBatch
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.gallery.workers import Here
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.results.decision import Answers
from crnr_cli.results.probability import Sureness
from crnr_cli.sources.base import Part, Source, Span
from crnr_cli.sources.walk import Lister
from crnr_cli.system.spread import Item, Result, Shared

T = TypeVar("T")
Warned = tuple[list[T], list[NotConverged]]  # warnings are returned, and the client issues them again


@dataclass(frozen=True)
class OnCluster:
    """The workers of a cluster. They classify by the gallery at this path.

    Files of features are read here to build a gallery, as sending their values would take longer.
    """

    cluster: Cluster
    gallery: Path | None = None

    @property
    def lister(self) -> Lister:
        return partial(list_on, self.cluster)

    def picture_sizes(self, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
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
        self, work: Callable[[SentRun, Part], Warned[T]], run: Run, progress: Progress
    ) -> Iterator[T]:
        """Yield what the workers make of every batch, in order."""
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
    sureness: Sureness | None

    @classmethod
    def of(cls, run: Run, gallery_path: Path) -> SentRun:
        model = run.options.model.resolve() if run.options.model else None
        sure = run.sureness
        if sure:  # the level is decided: the samples that it was decided by need not be sent
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

    def on_part(self, part: Part) -> Run:
        """Return the run for a part of the queries, on a worker, which loads the gallery only once."""
        refuse_missing(part.paths)
        options = self.options
        source = part.opened(options.keys)
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


def answer_part(sent: SentRun, part: Part) -> Warned[Answers]:
    """Classify a part of the queries, on a worker."""
    return _answer(sent.on_part(part))


def format_part(sent: SentRun, part: Part) -> Warned[RowBatch]:
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


_loading = Lock()  # only one thread of a worker loads the gallery and the model; the others wait


@lru_cache(maxsize=1)
def _load(
    path: Path, sha256: str, model: Path | None, provider: str, max_pixels: int, has_values: bool
) -> tuple[Gallery, OpenRecipe]:
    """Load the gallery and its model. A worker keeps them for the next task."""
    refuse_missing([path])
    gallery = load_for(QueryOptions(model=model), path)
    if gallery.sha256 != sha256:
        raise DataError(f"has a different gallery at {path}; restart the workers, or copy it to them again")
    recipe = gallery.recipe.open(has_values=has_values, provider=provider, max_pixels=max_pixels)
    return gallery, recipe
