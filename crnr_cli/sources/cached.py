"""Pictures whose values have been extracted before: they are listed as they are, but not decoded again."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crnr_cli.arrays import Batch, Stamp
from crnr_cli.errors import DataError, SampleError
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.sources.base import Span
from crnr_cli.sources.extracted import Origins
from crnr_cli.sources.folders import Pictures
from crnr_cli.sources.tables import FeatureFile
from crnr_cli.system.names import Spellings, path_key


@dataclass(kw_only=True)
class CachedPictures(Pictures):
    cache: FeatureFile  # has the values of all these pictures, and may have those of others
    origins: Origins  # those of the cache
    recipe: Mapping[str, Any]  # the description of the extractor
    errors: Mapping[str, SampleError]  # by name: why a picture has no values

    @property
    def n_features(self) -> int:
        return self.cache.n_features

    @property
    def recipes(self) -> list[tuple[Path, Mapping[str, Any] | None]]:
        return [(self.cache.path, self.recipe)]

    @cached_property
    def _row_of(self) -> dict[tuple[str, Stamp], int]:
        keys = zip(self.cache.names, self.origins.stamps, strict=True)
        return {key: row for row, key in enumerate(keys)}

    @cached_property
    def _spellings(self) -> Spellings:
        return Spellings(self.cache.names, path_key)

    def batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        return (self._batch(span) for span in spans)

    def _batch(self, span: Span) -> Batch:
        files = self.files[slice(*span)]
        errors = [file.error or self.errors.get(file.path) for file in files]
        try:
            rows = [
                None if error else self._row_of[self._spellings.spell(file.path), file.stamp]
                for file, error in zip(files, errors, strict=True)
            ]
        except KeyError as e:
            raise DataError(f"{self.cache.path}: was changed meanwhile; run the command again") from e
        found = self.cache.take([row for row in rows if row is not None])
        hashes, scales = self.origins.hashes, self.origins.scales
        return Batch(
            names=[file.path for file in files],
            errors=errors,
            values=found.rows(0, len(found)),
            end=span[1],
            candidates=[file.folders for file in files],
            hashes=["" if row is None else hashes[row] for row in rows],
            stamps=[file.stamp for file in files],
            scales=[1.0 if row is None else scales[row] for row in rows] if scales else [],
        )
