"""Read and check the samples of a labelled source, and turn them into unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from crnr_cli.arrays import Array, Batch, take_rows
from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError, SampleError, refuse_too_many
from crnr_cli.gallery.gallery import SampleTable
from crnr_cli.gallery.reading import (
    WHOLE,
    Grid,
    ImageSurvey,
    extractors_to_try,
    new_recipe,
    open_recipe,
)
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.base import Step
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.images import is_unrelated
from crnr_cli.sources.tables import row_hash
from crnr_cli.system import memory
from crnr_cli.system.names import class_key
from crnr_cli.wording import Note, format_count

BATCH = 1024


@dataclass(frozen=True, kw_only=True)
class Reading(InputOptions):
    """How a labelled source is read and turned into vectors."""

    extractor: ExtractorOptions = field(default_factory=ExtractorOptions)
    steps: tuple[Step, ...] = ()  # not yet fitted
    dtype: str = "float32"
    event_gap: float | None = None  # seconds between the photographs of an event, which have dates then
    label: str | None = None  # the class of all samples, instead of their folders or labels
    command: str = "build"  # that reads the source, for remedies
    # Called with the notes that are known before the samples are read, which may take long.
    on_notes: Callable[[Sequence[Note]], None] | None = None


@dataclass(frozen=True)
class LeftOut:
    """A failed sample or query, and the reason."""

    name: str
    error: SampleError

    def __str__(self) -> str:
        return f"{self.name}: {self.error}"

    @property
    def is_skipped(self) -> bool:
        """Whether this counts as skipped; an unrelated file, such as a README among images, does not."""
        return not is_unrelated(self.name, self.error.status)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The notes and failures of every command that reads samples or queries."""

    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def skipped(self) -> int:
        """The number of failed inputs, not counting unrelated files."""
        return sum(left.is_skipped for left in self.left_out)


@dataclass(frozen=True, kw_only=True)
class ReadSamples:
    """The usable samples of a source, in its order."""

    recipe: Recipe
    table: SampleTable
    values: Array  # (n, d): unit vectors or, for a recipe that is fitted later, raw values
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    event_gap: float | None = None  # seconds between the photographs of an event; None: no events

    @property
    def events(self) -> Array | None:
        """(n,): the event of every sample; None: no events."""
        return self.table.group_events(self.event_gap)

    def take(self, rows: Sequence[int] | Array) -> ReadSamples:
        """Return these samples, in this order; all samples in their order are not copied."""
        table = self.table.take(rows)
        return self if table is self.table else replace(self, table=table, values=self.values[rows])

    def class_index(self) -> Array:
        """Return (n,): the class of every sample, as a number in name order."""
        return np.unique(list(self.table.labels), return_inverse=True)[1]

    def vectors_by(self, recipe: Recipe, dtype: str) -> Array:
        """Return (n, d): the unit vectors of the raw values by a fitted recipe."""
        vectors = np.empty((len(self.values), recipe.n_outputs), dtype)  # to join blocks would copy all
        for start in range(0, len(self.values), BATCH):
            batch = slice(start, start + BATCH)
            vectors[batch], faults = recipe.unit_vectors(self.values[batch], dtype)
            for row, fault in enumerate(faults, start=start):
                if fault:
                    raise DataError(f"{self.table.names[row]}: the vector is all zero; remove this example")
        return vectors

    def apply(self, recipe: Recipe, dtype: str) -> ReadSamples:
        """Return the samples as unit vectors, made of raw values by a fitted recipe."""
        return replace(self, recipe=recipe, values=self.vectors_by(recipe, dtype))


LabelOf = Callable[[tuple[str, ...]], str]  # from the folders or the label of a sample to its class


def _first_candidate(candidates: tuple[str, ...]) -> str:
    return candidates[0]


def read_samples(
    source: Source, reading: Reading, progress: Progress = silent, workers: Workers | None = None
) -> ReadSamples:
    """Read all usable samples of a source, fit the recipe to them, and apply it."""
    workers = workers or Here(DecoderPool(reading.jobs))
    recipe, notes = start_reading(source, reading, ImageSurvey(source, reading, progress, workers))
    _require_memory([recipe], len(source), reading)
    collector = _Collector(recipe, source, reading, raw=not recipe.is_fitted)
    read = check_new(_read(collector, workers, progress, notes), source)
    if recipe.is_fitted:
        return read
    return read.apply(recipe.fit(read.values, read.class_index()), reading.dtype)


def read_raw(source: Source, reading: Reading, progress: Progress = silent) -> ReadSamples:
    """Read all usable samples of a source as raw values, for recipes that are fitted to parts of them."""
    here = Here(DecoderPool(reading.jobs))
    recipe, notes = start_reading(source, reading, ImageSurvey(source, reading, progress, here))
    _require_memory([recipe], len(source), reading)
    read = _read(_Collector(recipe, source, reading, raw=True), here, progress, notes)
    return check_new(read, source)


def read_raw_by_all(
    source: Source, reading: Reading, progress: Progress = silent, grids: Sequence[Grid] = (WHOLE,)
) -> list[ReadSamples]:
    """Read the same samples as raw values of each extractor that `tune` tries on one of the grids.

    The chosen or default extractor of the first grid is the first. Images are decoded once for all extractors
    that need the same pixels.
    """
    here = Here(DecoderPool(reading.jobs))
    seen = ImageSurvey(source, reading, progress, here)
    first, notes = start_reading(source, reading, seen)
    recipes = [first]
    if source.n_features is None and first.extractor:
        tried = extractors_to_try(first.extractor, reading.extractor, grids, seen)
        recipes = [*map(Recipe.for_images, tried)]
    by_request: dict[PixelRequest | None, list[int]] = {}
    for number, recipe in enumerate(recipes):
        by_request.setdefault(recipe.request(reading.max_pixels), []).append(number)
    read: dict[int, ReadSamples] = {}
    for numbers in by_request.values():
        alike = _read_raw_alike([recipes[number] for number in numbers], source, reading, here, progress)
        read |= zip(numbers, alike, strict=True)
    read[0] = replace(read[0], notes=notes + read[0].notes)
    return _keep_common_samples([read[number] for number in range(len(recipes))])


def _read_raw_alike(
    recipes: Sequence[Recipe], source: Source, reading: Reading, workers: Workers, progress: Progress
) -> list[ReadSamples]:
    """Read samples as raw values of several recipes at once, which need the same pixels."""
    _require_memory(recipes, len(source), reading)
    collectors = [_Collector(recipe, source, reading, raw=True) for recipe in recipes]
    for batches in _batches(recipes, source, reading, workers):
        for collector, batch in zip(collectors, batches, strict=True):
            collector.add(batch)
        progress("reading", batches[0].end, len(source))
    return [check_new(collector.finish(), source) for collector in collectors]


def _keep_common_samples(read: list[ReadSamples]) -> list[ReadSamples]:
    """Leave out samples that fail for one of the extractors, so that all can be compared."""
    usable = set.intersection(*(set(one.table.names) for one in read))
    first, *others = [
        one.take([row for row, name in enumerate(one.table.names) if name in usable]) for one in read
    ]
    if any(one.table.hashes != first.table.hashes for one in others):
        raise DataError("files changed while they were read; try again")
    known = {left.name for left in first.left_out}
    further = [left for one in others for left in one.left_out if left.name not in known]
    return [replace(first, left_out=first.left_out + further), *others]


def read_by_recipe(
    recipe: Recipe,
    source: Source,
    reading: Reading,
    progress: Progress = silent,
    label_of: LabelOf = _first_candidate,
    total: int | None = None,
    workers: Workers | None = None,
) -> ReadSamples:
    """Read all usable samples of a source with the fitted recipe of a gallery; there may be none.

    The share of failures is of `total`, if only a part of a source is read.
    """
    workers = workers or Here(DecoderPool(reading.jobs))
    notes = _source_notes(source, needs_labels=reading.label is None)
    collector = _Collector(recipe, source, reading, label_of=label_of, total=total)
    return _read(collector, workers, progress, notes)


def unusable_classes(source: Source, labels: Sequence[str]) -> list[Note]:
    """Return a note for every class that has files, but no usable sample."""
    usable = set(map(class_key, labels))
    return [
        Note("unusable class", f"class {name}: left out, because none of its files can be used")
        for name in source.class_names()
        if class_key(name) not in usable
    ]


class NothingUsableError(DataError):
    """Not one sample of a source can be used."""


def require_samples(samples: Sequence[object], left_out: Sequence[LeftOut]) -> None:
    """Raise NothingUsableError if there are no samples, with the first of the reasons."""
    if not samples:
        others = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        first = f": {left_out[0]}{others}" if left_out else ""
        raise NothingUsableError(f"no usable images or rows of features{first}")


def _source_notes(source: Source, *, needs_labels: bool = True) -> list[Note]:
    """Return notes for the user about a source; raise an error if it needs labels and has none."""
    if needs_labels:
        source.require_labels()
    return [Note("source", text) for text in source.notes()]


def start_reading(source: Source, reading: Reading, seen: ImageSurvey) -> tuple[Recipe, list[Note]]:
    """Choose the recipe, whose steps are not yet fitted, and collect notes; no sample is read yet."""
    notes = [Note("classes", text) for text in source.check_classes(reading.command)]
    notes += _source_notes(source)
    recipe, of_recipe = new_recipe(source, reading.extractor, reading.steps, seen)
    notes += of_recipe
    if reading.on_notes and notes:
        reading.on_notes(notes)
    return recipe, notes


def _require_memory(recipes: Sequence[Recipe], n_samples: int, reading: Reading) -> None:
    itemsize = np.dtype(reading.dtype).itemsize
    memory.require_memory(
        sum(recipe.fit_bytes(n_samples, itemsize) for recipe in recipes),
        f"reading {format_count(n_samples, 'example')} with "
        f"{format_count(recipes[0].n_inputs, 'feature')} each",
        "use a smaller --size or --pca",
    )


def check_new(read: ReadSamples, source: Source) -> ReadSamples:
    """Refuse a new gallery without samples; return it with notes on the classes that have none."""
    require_samples(read.table.names, read.left_out)
    return replace(read, notes=read.notes + unusable_classes(source, read.table.labels))


def _batches(
    recipes: Sequence[Recipe], source: Source, reading: Reading, workers: Workers
) -> Iterator[list[Batch]]:
    """Yield the batches of the source, each as raw values of every recipe, which need the same pixels."""
    opened = [open_recipe(recipe, source, reading, with_hash=True) for recipe in recipes]
    spans = source.spans(opened[0].batch_size(reading.batch_size or BATCH))
    return workers.read_raw(source, spans, opened)


def _read(collector: _Collector, workers: Workers, progress: Progress, notes: list[Note]) -> ReadSamples:
    """Read all usable samples by one recipe."""
    source = collector.source
    for (batch,) in _batches([collector.recipe], source, collector.reading, workers):
        collector.add(batch)
        progress("reading", batch.end, len(source))
    return collector.finish(notes)


@dataclass
class _Collector:
    """The samples that have been read by one recipe so far, as unit vectors or as raw values."""

    recipe: Recipe
    source: Source
    reading: Reading
    raw: bool = False
    label_of: LabelOf = _first_candidate
    total: int | None = None
    _tables: list[SampleTable] = field(default_factory=list)
    _values: Array | None = None  # a row for every sample of the source, the first `_count` of which are set
    _count: int = 0
    _left_out: list[LeftOut] = field(default_factory=list)
    _skipped: list[LeftOut] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Apply the recipe to a batch of raw values, and keep usable samples; refuse too many failures."""
        hashes, reading = content_hashes(batch), self.reading
        usable = self.recipe.drop_unusable(batch) if self.raw else self.recipe.apply(batch, reading.dtype)
        if reading.label is not None:
            usable = replace(usable, candidates=[(reading.label,)] * len(usable.names))
        table, values, left_out = _divide(usable, hashes, self.label_of, self.source.why_unlabelled)
        self._tables.append(table)
        self._keep(values)
        self._left_out += left_out
        self._skipped += [left for left in left_out if left.is_skipped]
        refuse_too_many(self._skipped, self.total or len(self.source), reading.max_failure_rate, "example")

    def _keep(self, values: Array) -> None:
        """Keep rows where they stay: to join blocks in the end would take the memory of all of them twice."""
        if self._values is None:
            self._values = np.empty((len(self.source), *values.shape[1:]), values.dtype)
        dtype = np.result_type(self._values, values)
        self._values = self._values.astype(dtype, copy=False)
        self._values[self._count : self._count + len(values)] = values
        self._count += len(values)

    def finish(self, notes: Sequence[Note] = ()) -> ReadSamples:
        """Return all samples; NaN in a table raises an error."""
        if self.source.kind == "features":
            refuse_non_finite(self._left_out)
        return ReadSamples(
            recipe=self.recipe,
            table=SampleTable.concatenate(self._tables),
            values=np.empty((0, 0), self.reading.dtype)
            if self._values is None
            else self._values[: self._count],
            left_out=self._left_out,
            notes=list(notes),
            event_gap=self.reading.event_gap,
        )


def content_hashes(batch: Batch) -> list[str]:
    """Return the SHA-256 of every sample's content: of its file or, in a table, of its row."""
    hashes = list(batch.hashes)
    for row, sample in enumerate(batch.rows.tolist()):
        hashes[sample] = hashes[sample] or row_hash(batch.values[row])
    return hashes


def _divide(
    batch: Batch, hashes: Sequence[str], label_of: LabelOf, why_unlabelled: str
) -> tuple[SampleTable, Array, list[LeftOut]]:
    """Return the usable samples of a batch, their values, and the other samples."""
    row_of = {sample: row for row, sample in enumerate(batch.rows.tolist())}
    usable: list[int] = []
    left_out: list[LeftOut] = []
    for sample, name in enumerate(batch.names):
        error, candidates = batch.errors[sample], batch.candidates[sample]
        if not error and not candidates:
            error = SampleError("no_class", why_unlabelled)
        if error:
            left_out.append(LeftOut(name, error))
        elif not candidates[0]:
            raise DataError(f"{name}: the label is empty")
        else:
            usable.append(sample)
    table = SampleTable(
        names=take_rows(batch.names, usable),
        labels=[label_of(batch.candidates[sample]) for sample in usable],
        hashes=take_rows(hashes, usable),
        stamps=take_rows(batch.stamps, usable),
        dates=take_rows(batch.dates, usable) if batch.dates else [],
    )
    return table, batch.values[[row_of[sample] for sample in usable]], left_out


def refuse_non_finite(left_out: Iterable[LeftOut]) -> None:
    """Raise DataError for NaN in a table: something is wrong with the table."""
    bad = [left.name for left in left_out if left.error.status == "non_finite"]
    if bad:
        shown = ", ".join(bad[:10]) + (", ..." if len(bad) > 10 else "")
        raise DataError(f"NaN or infinity in {format_count(len(bad), 'row')}; correct or remove {shown}")
