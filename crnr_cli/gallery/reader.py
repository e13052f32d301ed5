"""Who reads the samples of a source and makes raw values of them: this process, or others in its place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from crnr_cli.arrays import Batch
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.sources.base import InputOptions, Source, Span


class Reader(Protocol):
    def sizes(self, source: Source, options: InputOptions, progress: Progress) -> set[tuple[int, int]]:
        """The sizes of all readable pictures."""

    def raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe], options: InputOptions
    ) -> Generator[list[Batch]]:
        """Read these spans in order, each as one batch of raw values per recipe, with the files' hashes.

        The recipes need the same pixels.
        """


@dataclass(frozen=True)
class ReadHere:
    """Reads in this process, with decoders on its cores."""

    def sizes(self, source: Source, options: InputOptions, progress: Progress) -> set[tuple[int, int]]:
        return source.sizes(options.max_pixels, DecoderPool(options.jobs), progress)

    def raw(
        self, source: Source, spans: Sequence[Span], recipes: Sequence[OpenRecipe], options: InputOptions
    ) -> Generator[list[Batch]]:
        with closing(source.batches(spans, recipes[0].request, DecoderPool(options.jobs))) as batches:
            for read in batches:
                yield [recipe.raw(read) for recipe in recipes]
