"""Who reads the samples of a source and makes raw values of them: this process, or others in its place."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from crnr_cli.arrays import Batch
from crnr_cli.gallery.raw_values import raw_values
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.base import InputOptions, Source, Span


class Reader(Protocol):
    def sizes(self, source: Source, options: InputOptions, progress: Progress) -> set[tuple[int, int]]:
        """The sizes of all readable pictures."""

    def raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[Recipe], options: InputOptions
    ) -> Generator[list[Batch]]:
        """Read these spans in order, each as one batch of raw values per recipe, with the files' hashes.

        The recipes need the same pixels. A model that is missing or has changed is reported now, before any
        work.
        """


@dataclass(frozen=True)
class ReadHere:
    """Reads in this process, with decoders on its cores."""

    def sizes(self, source: Source, options: InputOptions, progress: Progress) -> set[tuple[int, int]]:
        return source.sizes(options.max_pixels, DecoderPool(options.jobs), progress)

    def raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[Recipe], options: InputOptions
    ) -> Generator[list[Batch]]:
        extract = [raw_values(recipe, source, options) for recipe in recipes]
        request = recipes[0].request(options.max_pixels, with_hash=True)
        return _extracted(source, spans, request, extract, DecoderPool(options.jobs))


def _extracted(
    source: Source,
    spans: Sequence[Span],
    request: PixelRequest | None,
    extract: Sequence[Callable[[Batch], Batch]],
    decoders: DecoderPool,
) -> Generator[list[Batch]]:
    with closing(source.batches(spans, request, decoders)) as batches:
        for read in batches:
            yield [raw_of(read) for raw_of in extract]
