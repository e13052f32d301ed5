"""Feature files as a source: samples are rows, with labels and names if the file has them."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp, take_rows
from crnr_cli.errors import DataError
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.records import dataclass
from crnr_cli.sources.base import Kind, Source, Span
from crnr_cli.sources.formats import Keys, reader_of
from crnr_cli.sources.formats.choice import choose_arrays
from crnr_cli.sources.formats.extracted import Origins, PickedRows
from crnr_cli.sources.formats.labels import read_texts, require_room
from crnr_cli.system import spares
from crnr_cli.system.names import class_key, with_slashes
from crnr_cli.wording import format_count

_ROWS_PER_READ = 1024  # when all rows of a table are hashed
_BYTES_PER_NAME = 100
_NO_FILE = Path("the array")  # instead of a path, in messages


@dataclass(frozen=True)
class FeatureFile:
    path: Path
    stamp: Stamp
    values: Any  # (n, d): an array, or a dataset that is read by slices
    labels: list[str] | None
    names: list[str]
    origins: Origins | None = None  # in a file that `crnr extract` wrote
    notes: tuple[str, ...] = ()  # the assumptions about the file
    beside: tuple[tuple[Path, Stamp], ...] = ()  # further files with its labels

    @classmethod
    @spares.kept()
    def open(cls, path: Path, keys: Keys) -> FeatureFile:
        stamp = _stamp(path)  # before reading, so that later changes are noticed
        reader = reader_of(path)
        found = choose_arrays(path, reader, keys)
        arrays, values = found.arrays, found.values
        require_room(path, len(values), _BYTES_PER_NAME, "rows")
        stored = with_slashes(str(path))
        names = [f"{stored}#{row}" for row in range(len(values))]
        if found.names_from is not None:
            names = read_texts(path, arrays[found.names_from])
        # The description belongs to the default dataset only.
        recipe = reader.recipe(path) if reader.recipe and found.features == "features" else None
        origins = None if recipe is None else Origins.read(path, arrays, recipe, len(values))
        beside = tuple((other, _stamp(other)) for other in found.beside)
        return cls(path, stamp, values, found.labels, names, origins, found.notes, beside)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def n_features(self) -> int:
        return int(self.values.shape[1])

    def read_rows(self, start: int, stop: int) -> Array:
        """Return rows as numbers in the machine's own byte order."""
        try:
            values = np.asarray(self.values[start:stop])
            now = Stamp.of(self.path.stat())
        except OSError as e:
            raise DataError(f"{self.path}: cannot read rows {start} to {stop} ({e})") from e
        if now != self.stamp:  # HDF5 returns zeros for the missing part of a truncated file
            raise DataError(f"{self.path}: was changed while it was being read; run the command again")
        return values.astype(values.dtype.newbyteorder("="), copy=False)

    def cut(self, start: int, stop: int) -> FeatureFile:
        """Return some of the rows, which are read now."""
        return replace(self.take(range(start, stop)), values=self.read_rows(start, stop))

    def take(self, rows: Sequence[int]) -> FeatureFile:
        """Return some of the rows, in any order."""
        return replace(
            self,
            values=PickedRows(self.values, np.asarray(rows, dtype=np.int64)),
            labels=None if self.labels is None else take_rows(self.labels, rows),
            names=take_rows(self.names, rows),
            origins=self.origins and self.origins.take(rows),
        )

    @property
    def are_images(self) -> bool:
        """Whether the values were extracted from images in a known way."""
        return self.origins is not None and self.origins.are_images

    def stamp_of(self, row: int) -> Stamp:
        return self.stamp if self.origins is None else self.origins.stamps[row]

    def candidates(
        self, start: int, stop: int, classes: Mapping[str, str] | None = None
    ) -> list[tuple[str, ...]]:
        labels = self.labels[start:stop] if self.labels is not None else None
        if self.origins is not None and self.origins.are_images:
            texts = labels or [""] * (stop - start)
            rows = enumerate(texts, start=start)
            return [self.origins.candidates(row, label, classes or {}) for row, label in rows]
        return [()] * (stop - start) if labels is None else [(label,) for label in labels]


@dataclass(frozen=True)
class Features(Source):
    files: list[FeatureFile]
    # The gallery's classes by their Unicode form: a named folder may be named after one of them.
    classes: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return "pictures" if any(file.are_images for file in self.files) else "features"

    @property
    def recipes(self) -> list[tuple[Path, Mapping[str, Any] | None]]:
        return [(file.path, file.origins.recipe if file.origins else None) for file in self.files]

    def __len__(self) -> int:
        return self._edges[-1]

    @cached_property
    def _edges(self) -> list[int]:
        """Where each file begins in the listing, and where the last one ends."""
        return list(accumulate((len(file) for file in self.files), initial=0))

    def _cuts(self, span: Span) -> Iterator[tuple[FeatureFile, int, int]]:
        """Yield the rows of each file that a span of the listing covers."""
        first = bisect_right(self._edges, span[0]) - 1
        for file, before in zip(self.files[first:], self._edges[first:], strict=False):
            if before >= span[1]:
                break
            start, stop = max(span[0] - before, 0), min(span[1] - before, len(file))
            if start < stop:
                yield file, start, stop

    @property
    def n_features(self) -> int:
        return self.files[0].n_features

    def names(self, span: Span | None = None) -> list[str]:
        cuts = self._cuts(span or (0, len(self)))
        return [name for file, start, stop in cuts for name in file.names[start:stop]]

    def spans(self, batch_size: int) -> list[Span]:
        """Return the spans of batches; no batch contains rows of two files."""
        return [
            (before + start, before + min(start + batch_size, len(file)))
            for file, before in zip(self.files, self._edges, strict=False)
            for start in range(0, len(file), batch_size)
        ]

    def read_batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        for span in spans:
            number = bisect_right(self._edges, span[0]) - 1
            file, before = self.files[number], self._edges[number]
            start, stop = span[0] - before, span[1] - before
            yield Batch(
                names=file.names[start:stop],
                errors=[None] * (stop - start),
                values=file.read_rows(start, stop),
                end=span[1],
                candidates=file.candidates(start, stop, self.classes),
                hashes=file.origins.hashes[start:stop] if file.origins else [""] * (stop - start),
                stamps=[file.stamp_of(row) for row in range(start, stop)],
                scales=file.origins.scales[start:stop] if file.origins and file.origins.scales else [],
            )

    def part(self, span: Span) -> FeaturesPart:
        cuts = list(self._cuts(span))
        return FeaturesPart(
            tuple((file.path.absolute(), start, stop) for file, start, stop in cuts),
            [file.names[start:stop] for file, start, stop in cuts],
            self.classes,
            tuple(path.absolute() for file, _, _ in cuts for path, _ in file.beside),
        )

    def listing(self) -> Iterator[tuple[Any, ...]]:
        for file in self.files:
            for path, stamp in ((file.path, file.stamp), *file.beside):
                yield with_slashes(str(path)), (), *stamp

    def notes(self) -> list[str]:
        return [note for file in self.files for note in file.notes]

    def filter(self, is_wanted: Callable[[str, Stamp, tuple[str, ...]], bool]) -> Features:
        """Return only the wanted files; in a file of `crnr extract`, only the wanted rows."""
        wanted: list[FeatureFile] = []
        for file in self.files:
            columns = zip(file.names, file.candidates(0, len(file), self.classes), strict=True)
            rows = [
                row
                for row, (name, candidates) in enumerate(columns)
                if is_wanted(name, file.stamp_of(row), candidates)
            ]
            if rows:
                wanted.append(file if file.origins is None or len(rows) == len(file) else file.take(rows))
        return Features(wanted, self.classes)

    def pick(self, is_wanted: Sequence[bool]) -> Features:
        """Return only the wanted samples, by their places in the listing."""
        wanted: list[FeatureFile] = []
        for file, before in zip(self.files, self._edges, strict=False):
            rows = [row for row in range(len(file)) if is_wanted[before + row]]
            if rows:
                wanted.append(file if len(rows) == len(file) else file.take(rows))
        return Features(wanted, self.classes)

    @property
    def is_picked(self) -> bool:
        """Whether only some rows of a file are listed."""
        return any(isinstance(file.values, PickedRows) for file in self.files)

    def read_contents(self) -> Iterator[tuple[str, str, str]]:
        for file in self.files:
            labels = [next(iter(found), "") for found in file.candidates(0, len(file), self.classes)]
            if file.origins is not None:
                yield from zip(file.names, labels, file.origins.hashes, strict=True)
                continue
            for start in range(0, len(file), _ROWS_PER_READ):
                rows = file.read_rows(start, start + _ROWS_PER_READ)
                for row, values in enumerate(rows, start=start):
                    yield file.names[row], labels[row], row_hash(values)

    def all_candidates(self) -> Iterator[tuple[str, ...]]:
        return (found for file in self.files for found in file.candidates(0, len(file), self.classes))

    def with_classes(self, classes: Collection[str], *, strict: bool = False) -> Features:
        return replace(self, classes={class_key(name): name for name in classes})

    def folder_of_no_class(self) -> str | None:
        named = self.possible_classes()
        known = zip(self.names(), self.all_candidates(), strict=True)
        alone = next((name for name, found in known if name in named and not found), None)
        return None if alone is None else os.path.dirname(alone) or os.curdir  # noqa: PTH120

    def possible_classes(self) -> dict[str, str]:
        known = [(file.names, file.origins.named or []) for file in self.files if file.origins]
        return {
            name: folder
            for names, named in known
            for name, folder in zip(names, named, strict=False)
            if folder
        }

    def require_labels(self) -> None:
        for file in self.files:
            if file.labels is None and not file.are_images:  # an image without a class is left out later
                word = reader_of(file.path).word
                raise DataError(
                    f"{file.path}: no labels; choose the {word} that contains them with --labels-key"
                )


@dataclass(frozen=True)
class FeaturesPart:
    """Rows of feature files, by number, so that little is sent."""

    cuts: tuple[tuple[Path, int, int], ...]  # path, first row, end
    names: list[Sequence[str]]  # of the rows of each cut, as the user gave them
    classes: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[Path, ...] = ()  # further files with labels

    def open(self, keys: Keys) -> Features:
        files = [_open_once(path, keys, _stamp(path)).cut(start, stop) for path, start, stop in self.cuts]
        named = zip(files, self.names, strict=True)
        return Features([replace(file, names=list(names)) for file, names in named], self.classes)

    @property
    def paths(self) -> list[Path]:
        return [*(path for path, _, _ in self.cuts), *self.beside]


@lru_cache(maxsize=4)
def _open_once(path: Path, keys: Keys, stamp: Stamp) -> FeatureFile:
    """Open a feature file, cached until it changes: a cluster's worker reads many parts of one file."""
    return FeatureFile.open(path, keys)


def _stamp(path: Path) -> Stamp:
    try:
        return Stamp.of(path.stat())
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def open_tables(paths: list[Path], keys: Keys) -> Features:
    files = [FeatureFile.open(path, keys) for path in paths]
    for file in files[1:]:
        if file.n_features != files[0].n_features:
            raise DataError(
                f"{file.path}: {format_count(file.n_features, 'feature')} per example, but {files[0].path} "
                f"has {files[0].n_features}; give files with the same features"
            )
    return Features(files)


def row_hash(values: Array) -> str:
    """Return the SHA-256 of a row of features."""
    return hashlib.sha256(values.tobytes()).hexdigest()


@dataclass(frozen=True)
class _Rows(FeatureFile):
    def read_rows(self, start: int, stop: int) -> Array:
        values: Array = self.values[start:stop]
        return values.astype(values.dtype.newbyteorder("="), copy=False)


def rows_as_source(values: Array) -> Features:
    """Return a source of the rows of a table, named "row 0" and so on, without labels."""
    if values.ndim != 2 or values.dtype.kind not in "fiub" or 0 in values.shape[1:]:
        raise DataError(
            f"{_NO_FILE}: features must be a table of numbers with one row per query, "
            f"but are {values.dtype} of shape {values.shape}"
        )
    return Features([_Rows(_NO_FILE, Stamp(), values, None, [f"row {row}" for row in range(len(values))])])
