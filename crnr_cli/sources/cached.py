"""Pictures whose values have been extracted before: they are listed as they are, but not decoded again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crnr_cli.arrays import Batch, Stamp
from crnr_cli.errors import DataError, SampleError
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.sources.base import Kind, Source, Span
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.tables import FeatureFile


@dataclass
class CachedPictures(Source):
    pictures: Pictures
    file: FeatureFile  # has the values of all pictures, and may have those of others
    recipe: Mapping[str, Any]  # the description of the extractor
    errors: Mapping[str, SampleError]  # by name: why a picture has no values

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def kind(self) -> Kind:
        return "pictures"

    @property
    def n_features(self) -> int:
        return self.file.n_features

    @property
    def recipes(self) -> list[tuple[Path, Mapping[str, Any] | None]]:
        return [(self.file.path, self.recipe)]

    @cached_property
    def _row_of(self) -> dict[tuple[str, Stamp], int]:
        assert self.file.origins is not None
        keys = zip(self.file.names, self.file.origins.stamps, strict=True)
        return {key: row for row, key in enumerate(keys)}

    def names(self, span: Span | None = None) -> list[str]:
        return self.pictures.names(span)

    def spans(self, batch_size: int) -> list[Span]:
        return self.pictures.spans(batch_size)

    def batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        for start, stop in spans:
            files = self.pictures.files[start:stop]
            errors = [file.error or self.errors.get(file.path) for file in files]
            usable = [file for file, error in zip(files, errors, strict=True) if error is None]
            try:
                rows = iter([self._row_of[file.path, file.stamp] for file in usable])
            except KeyError as e:
                raise DataError(f"{self.file.path}: was changed meanwhile; run the command again") from e
            places = [None if error else next(rows) for error in errors]
            found = self.file.picked([place for place in places if place is not None])
            origins = self.file.origins
            assert origins is not None
            yield Batch(
                names=[file.path for file in files],
                errors=errors,
                values=found.rows(0, len(found)),
                end=stop,
                candidates=[file.folders for file in files],
                hashes=["" if place is None else origins.hashes[place] for place in places],
                stamps=[file.stamp for file in files],
                scales=[1.0 if place is None else origins.scales[place] for place in places]
                if origins.scales
                else [],
            )

    def part(self, span: Span) -> Pictures:
        return self.pictures.part(span)

    def listing(self) -> Iterator[tuple[Any, ...]]:
        return self.pictures.listing()

    def only(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Source:
        return self.pictures.only(is_wanted)

    def contents(self) -> Iterator[tuple[str, str, str]]:
        return self.pictures.contents()

    def require_labels(self) -> None:
        self.pictures.require_labels()

    def class_names(self) -> list[str]:
        return self.pictures.class_names()

    def notes(self) -> list[str]:
        return self.pictures.notes()
