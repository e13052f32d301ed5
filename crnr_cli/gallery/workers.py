"""The workers of a command: this process or, instead, the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, Protocol

from crnr_cli.arrays import Batch
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import Answers
from crnr_cli.sources.base import Source, Span
from crnr_cli.sources.walk import Lister
from crnr_cli.system.cores import Item, Result, Shared, pieces_at_once, spread_over_threads

if TYPE_CHECKING:
    from crnr_cli.gallery.queries import RowBatch, Run


class Workers(Protocol):
    @property
    def lister(self) -> Lister | None:
        """The lister of subfolders; None: this process, in one walk."""

    def image_sizes(self, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
        """Return the sizes of all readable images."""

    def read_raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe]
    ) -> Generator[list[Batch]]:
        """Read these spans in order, each as one batch of raw values per recipe, with the files' hashes.

        The recipes need the same pixels.
        """

    def answer(self, run: Run, progress: Progress) -> Iterator[Answers]:
        """Classify the queries of a run, batch by batch."""

    def answer_rows(self, run: Run, progress: Progress) -> Iterator[RowBatch]:
        """Classify the queries of a run, and make rows of the answers."""

    def spread(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        """Yield (item, work(shared, item)) in order. Items are taken only when a worker is free.

        `work` must be a module-level function; `shared` is sent to each worker once.
        """


@dataclass(frozen=True)
class Here:
    """This process, with decoders on its cores."""

    lister: ClassVar[None] = None

    decoders: DecoderPool

    def image_sizes(self, source: Source, max_pixels: int, progress: Progress) -> set[tuple[int, int]]:
        return source.read_sizes(max_pixels, self.decoders, progress)

    def read_raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe]
    ) -> Generator[list[Batch]]:
        with closing(source.read_batches(spans, recipes[0].request, self.decoders)) as batches:
            for read in batches:
                yield [recipe.raw(read) for recipe in recipes]

    def answer(self, run: Run, progress: Progress) -> Generator[Answers]:
        return run.answer(self.decoders, progress)

    def answer_rows(self, run: Run, progress: Progress) -> Iterator[RowBatch]:
        return map(run.row_formatter.format, run.answer(self.decoders, progress))

    def spread(
        self, work: Callable[[Shared, Item], Result], shared: Shared, items: Iterable[Item]
    ) -> Iterator[tuple[Item, Result]]:
        return spread_over_threads(pieces_at_once(self.decoders.jobs), work, shared, items)
