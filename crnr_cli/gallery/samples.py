"""The samples of a labelled source are read, checked, and turned into unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp
from crnr_cli.errors import DataError, SampleError
from crnr_cli.gallery.columns import Texts
from crnr_cli.gallery.new_recipe import Seen, alternatives, new_recipe
from crnr_cli.gallery.raw_values import open_recipe
from crnr_cli.gallery.workers import Here, Workers
from crnr_cli.pictures.pixels import PixelRequest
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.base import Step
from crnr_cli.recipe.extractor_options import ExtractorOptions
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.folders import is_unrelated
from crnr_cli.sources.tables import row_hash
from crnr_cli.system import memory
from crnr_cli.wording import Note, counted, have

BATCH = 1024
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reading(InputOptions):
    """How a labelled source is read and turned into vectors."""

    extractor: ExtractorOptions = field(default_factory=ExtractorOptions)
    steps: tuple[Step, ...] = ()  # not yet fitted
    dtype: str = "float32"
    label: str | None = None  # the class of all samples, whatever their folders or labels say
    # Called with the notes that are known before the samples are read, which may take long.
    on_notes: Callable[[Sequence[Note]], None] | None = None


@dataclass(frozen=True)
class LeftOut:
    """A sample that cannot be part of the gallery, and the reason."""

    name: str
    error: SampleError

    @property
    def is_skipped(self) -> bool:
        """Whether this counts as skipped; an unrelated file, such as a README among pictures, does not."""
        return not is_unrelated(self.name, self.error.status)


def count_skipped(left_out: Iterable[LeftOut]) -> int:
    return sum(left.is_skipped for left in left_out)


@dataclass(kw_only=True)
class Labelled:
    """The usable samples of a source, in its order, without their values."""

    recipe: Recipe
    names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    hashes: list[str] | Texts = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


@dataclass(kw_only=True)
class LabelledVectors(Labelled):
    """Samples as unit vectors, for a gallery or for a test."""

    vectors: Array


@dataclass(kw_only=True)
class RawSamples(Labelled):
    """Samples as raw values, to which the steps of a recipe can be fitted."""

    values: Array

    def vectors_by(self, recipe: Recipe, dtype: str) -> Array:
        """(n, d): the unit vectors that a fitted recipe makes of the values."""
        parts = []
        for start in range(0, len(self.values), BATCH):
            vectors, faults = recipe.unit_vectors(self.values[start : start + BATCH], dtype)
            for row, fault in enumerate(faults, start=start):
                if fault:
                    raise DataError(f"{self.names[row]}: is all zero after the recipe; remove it")
            parts.append(vectors)
        return np.concatenate(parts)

    def labelled_by(self, recipe: Recipe, dtype: str) -> LabelledVectors:
        shared = {name: value for name, value in vars(self).items() if name not in ("values", "recipe")}
        return LabelledVectors(recipe=recipe, vectors=self.vectors_by(recipe, dtype), **shared)


LabelOf = Callable[[tuple[str, ...]], str]  # the class of a sample, of its folders or its label


def _first(candidates: tuple[str, ...]) -> str:
    return candidates[0]


def read_samples(
    source: Source, reading: Reading, progress: Progress = silent, workers: Workers | None = None
) -> LabelledVectors:
    """Read all usable samples of a source, fit the recipe to them, and apply it."""
    workers = workers or Here(DecoderPool(reading.jobs))
    seen = Seen(source, reading, progress, workers)
    found = begun(source, reading, seen)
    _require_memory([found.recipe], len(source), reading)
    if found.recipe.is_fitted:
        (vectors,) = _read([found], source, reading, progress, workers)
        check_new(found, source)
        return LabelledVectors(vectors=vectors, **vars(found))
    raw = _read_raw([found], source, reading, progress, workers)[0]
    return raw.labelled_by(found.recipe.fitted(raw.values), reading.dtype)


def read_raw(source: Source, reading: Reading, progress: Progress = silent) -> RawSamples:
    """Read all usable samples of a source as raw values, for recipes that are fitted to parts of them."""
    here = Here(DecoderPool(reading.jobs))
    found = begun(source, reading, Seen(source, reading, progress, here))
    return _read_raw([found], source, reading, progress, here)[0]


def read_raw_by_all(source: Source, reading: Reading, progress: Progress = silent) -> list[RawSamples]:
    """The same samples as raw values of each extractor that `tune` tries, the chosen or default one first.

    Pictures are decoded once for all extractors that need the same pixels.
    """
    here = Here(DecoderPool(reading.jobs))
    seen = Seen(source, reading, progress, here)
    first = begun(source, reading, seen)
    others = alternatives(first.recipe, reading.extractor, seen) if source.n_features is None else ()
    recipes = [Recipe.for_pictures(other) for other in others]
    everything = [first, *(Labelled(recipe=recipe) for recipe in recipes)]
    by_request: dict[PixelRequest | None, list[Labelled]] = {}
    for found in everything:
        by_request.setdefault(found.recipe.request(reading.max_pixels), []).append(found)
    read = [raw for alike in by_request.values() for raw in _read_raw(alike, source, reading, progress, here)]
    read.sort(key=lambda raw: [found.recipe for found in everything].index(raw.recipe))
    return _with_the_same_samples(read)


def _with_the_same_samples(read: list[RawSamples]) -> list[RawSamples]:
    """Leave out samples that are unusable for one of the extractors, so that all can be compared."""
    usable = set.intersection(*(set(raw.names) for raw in read))
    for raw in read:
        rows = [i for i, name in enumerate(raw.names) if name in usable]
        if len(rows) < len(raw.names):
            raw.values = raw.values[rows]
            raw.names, raw.labels = _only(rows, raw.names), _only(rows, raw.labels)
            raw.hashes, raw.stamps = _only(rows, raw.hashes), _only(rows, raw.stamps)
    first, *others = read
    known = {left.name for left in first.left_out}
    first.left_out += [left for raw in others for left in raw.left_out if left.name not in known]
    if any(raw.hashes != first.hashes for raw in others):
        raise DataError("files changed while they were read; try again")
    return read


def _only(rows: Sequence[int], column: Sequence[T]) -> list[T]:
    return [column[i] for i in rows]


def read_by_recipe(
    recipe: Recipe,
    source: Source,
    reading: Reading,
    progress: Progress = silent,
    label_of: LabelOf = _first,
    total: int | None = None,
    workers: Workers | None = None,
) -> LabelledVectors:
    """Read all usable samples of a source with the fitted recipe of a gallery; there may be none.

    The share of failures is of `total`, if only a part of a source is read.
    """
    found = Labelled(recipe=recipe, notes=_source_notes(source, needs_labels=reading.label is None))
    workers = workers or Here(DecoderPool(reading.jobs))
    (vectors,) = _read([found], source, reading, progress, workers, label_of=label_of, total=total)
    return LabelledVectors(vectors=vectors, **vars(found))


def unusable_classes(source: Source, labels: Sequence[str]) -> list[Note]:
    """A note for every class that has files, but no usable sample."""
    usable = set(labels)
    return [
        Note("unusable class", f"class {name}: left out, as none of its files can be used")
        for name in source.class_names()
        if name not in usable
    ]


def require_samples(samples: Sequence[object], left_out: Sequence[LeftOut]) -> None:
    if not samples:
        reasons = "; ".join(f"{left.name}: {left.error}" for left in left_out[:3])
        raise DataError(f"nothing to do: no sample can be used; {reasons}")


def _source_notes(source: Source, *, needs_labels: bool = True) -> list[Note]:
    """What the user should know about a source; it is refused if it needs labels and has none."""
    if needs_labels:
        source.require_labels()
    return [Note("source", text) for text in source.notes()]


def begun(source: Source, reading: Reading, seen: Seen) -> Labelled:
    """A gallery without samples yet: its recipe, with steps that are not yet fitted, and notes."""
    notes = _source_notes(source)
    recipe, of_recipe = new_recipe(source, reading.extractor, reading.steps, seen)
    notes += of_recipe
    if reading.on_notes and notes:
        reading.on_notes(notes)
    return Labelled(recipe=recipe, notes=notes)


def _require_memory(recipes: Sequence[Recipe], n_samples: int, reading: Reading) -> None:
    itemsize = np.dtype(reading.dtype).itemsize
    memory.require(
        sum(recipe.fit_bytes(n_samples, itemsize) for recipe in recipes),
        f"reading {counted(n_samples, 'sample')} of {counted(recipes[0].n_inputs, 'number')}",
        "use a smaller --size or --pca",
    )


def _read_raw(
    found: Sequence[Labelled], source: Source, reading: Reading, progress: Progress, workers: Workers
) -> list[RawSamples]:
    _require_memory([one.recipe for one in found], len(source), reading)
    values = _read(found, source, reading, progress, workers, raw=True)
    for one in found:
        check_new(one, source)
    return [RawSamples(values=array, **vars(one)) for one, array in zip(found, values, strict=True)]


def check_new(found: Labelled, source: Source) -> None:
    """A new gallery needs at least one sample; notes are added on classes without any."""
    require_samples(found.names, found.left_out)
    found.notes += unusable_classes(source, found.labels)


def _read(
    found: Sequence[Labelled],
    source: Source,
    reading: Reading,
    progress: Progress,
    workers: Workers,
    *,
    raw: bool = False,
    label_of: LabelOf = _first,
    total: int | None = None,
) -> list[Array]:
    """The unit vectors, or raw values, of all usable samples, by each of several recipes.

    These need the same pixels. The names and labels of the samples go into `found`, one for each recipe.
    """
    recipes = [open_recipe(one.recipe, source, reading, with_hash=True) for one in found]
    kept: list[list[Array]] = [[] for _ in recipes]
    skipped: list[list[LeftOut]] = [[] for _ in recipes]
    spans = source.spans(recipes[0].batch_size(reading.batch_size or BATCH))
    for batches in workers.read_raw(source, spans, recipes):
        for i, (one, recipe, batch) in enumerate(zip(found, recipes, batches, strict=True)):
            left_out_before = len(one.left_out)
            hashes = content_hashes(batch)
            usable = one.recipe.screened(batch) if raw else recipe.vectors(batch, reading.dtype)
            if reading.label is not None:
                usable = replace(usable, candidates=[(reading.label,)] * len(usable.names))
            kept[i].append(_collect(usable, hashes, one, label_of, source.why_unlabelled))
            skipped[i] += [left for left in one.left_out[left_out_before:] if left.is_skipped]
            refuse_too_many(skipped[i], total or len(source), reading.max_failure_rate)
        progress("reading", batches[0].end, len(source))
    if source.kind == "features":
        refuse_non_finite(found[0].left_out)
    return [np.concatenate(arrays) for arrays in kept]


def content_hashes(batch: Batch) -> list[str]:
    """The SHA-256 of every sample's content: of its file or, in a table, of its row."""
    hashes = list(batch.hashes)
    for row, sample in enumerate(batch.rows.tolist()):
        hashes[sample] = hashes[sample] or row_hash(batch.values[row])
    return hashes


def _collect(
    batch: Batch, hashes: Sequence[str], found: Labelled, label_of: LabelOf, why_unlabelled: str
) -> Array:
    """Add the samples of a batch to `found`, as usable or left out; returns the values of the usable ones."""
    assert isinstance(found.hashes, list)
    row_of = {sample: row for row, sample in enumerate(batch.rows.tolist())}
    rows: list[int] = []
    for sample, name in enumerate(batch.names):
        error, candidates = batch.errors[sample], batch.candidates[sample]
        if not error and not candidates:
            error = SampleError("no_class", why_unlabelled)
        if error:
            found.left_out.append(LeftOut(name, error))
            continue
        if not candidates[0]:
            raise DataError(f"{name}: its label is empty")
        rows.append(row_of[sample])
        found.names.append(name)
        found.labels.append(label_of(candidates))
        found.hashes.append(hashes[sample])
        found.stamps.append(batch.stamps[sample])
    return batch.values[rows]


def refuse_too_many(skipped: Sequence[LeftOut], total: int, rate: float) -> None:
    if len(skipped) > rate * total:
        culprit = skipped[int(rate * total)]
        raise DataError(
            f"{culprit.name}: {culprit.error}; stopped: {len(skipped)} of {counted(total, 'sample')} "
            f"{have(len(skipped))} to be skipped, and at most {rate:.2%} is allowed"
        )


def refuse_non_finite(left_out: Iterable[LeftOut]) -> None:
    """NaN in a table means that something is wrong with the table."""
    bad = [left.name for left in left_out if left.error.status == "non_finite"]
    if bad:
        shown = ", ".join(bad[:10]) + (", ..." if len(bad) > 10 else "")
        raise DataError(f"NaN or infinity in {counted(len(bad), 'row')}, to be fixed or removed: {shown}")
