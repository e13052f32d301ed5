"""The samples of a labelled source are read, checked, and turned into unit vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp
from crnr_cli.errors import DataError, SampleError, UsageError
from crnr_cli.pictures.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.base import Step
from crnr_cli.recipe.network_settings import NetworkOptions
from crnr_cli.recipe.raw_pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.base import InputOptions, Source
from crnr_cli.sources.folders import is_unrelated
from crnr_cli.sources.tables import row_hash
from crnr_cli.system import memory
from crnr_cli.wording import counted, have

_LARGEST_NATIVE = 64  # if all pictures have the same size, at most this, they keep it
_DEFAULT_SIZE = (32, 32)
BATCH = 1024
_WEAK_PIXELS = (
    "raw pixels work poorly on photographs; if these are photographs, use the features of a network with "
    "--extractor MODEL.onnx"
)


class Note(NamedTuple):
    """Something that the user should know. Only the first of many notes of one kind are shown."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Reading(InputOptions):
    """How a labelled source is read and turned into vectors."""

    size: tuple[int, int] | None = None
    color: bool = False
    network: NetworkOptions | None = None
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
    hashes: list[str] = field(default_factory=list)
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


def read_samples(source: Source, reading: Reading, progress: Progress = silent) -> LabelledVectors:
    """Read all usable samples of a source, fit the recipe to them, and apply it."""
    decoders = DecoderPool(reading.jobs)
    found = _new_gallery(source, reading, progress, decoders)
    if found.recipe.is_fitted:
        vectors = _read(found, source, reading, progress, decoders)
        _check_new(found, source)
        return LabelledVectors(vectors=vectors, **vars(found))
    raw = _read_raw(found, source, reading, progress, decoders)
    return raw.labelled_by(found.recipe.fitted(raw.values), reading.dtype)


def read_raw(source: Source, reading: Reading, progress: Progress = silent) -> RawSamples:
    """Read all usable samples of a source as raw values, for recipes that are fitted to parts of them."""
    decoders = DecoderPool(reading.jobs)
    found = _new_gallery(source, reading, progress, decoders)
    return _read_raw(found, source, reading, progress, decoders)


def read_by_recipe(
    recipe: Recipe,
    source: Source,
    reading: Reading,
    progress: Progress = silent,
    label_of: LabelOf = _first,
    total: int | None = None,
) -> LabelledVectors:
    """Read all usable samples of a source with the fitted recipe of a gallery; there may be none.

    The share of failures is of `total`, if only a part of a source is read.
    """
    found = Labelled(recipe=recipe, notes=_source_notes(source, needs_labels=reading.label is None))
    vectors = _read(
        found, source, reading, progress, DecoderPool(reading.jobs), label_of=label_of, total=total
    )
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


def refuse_mismatch(source: Source, recipe: Recipe) -> None:
    """Refuse queries, or samples to add, of another kind or dimension than the gallery was built from."""
    if source.kind != recipe.kind:
        raise DataError(f"the gallery was built from {recipe.kind}, but these are {source.kind}")
    if source.n_features not in (None, recipe.n_inputs):
        raise DataError(
            f"{next(source.listing())[0]}: {counted(source.n_features or 0, 'feature')} per sample, but the "
            f"gallery was built from {recipe.n_inputs}; use the same features for both"
        )


def _new_gallery(source: Source, reading: Reading, progress: Progress, decoders: DecoderPool) -> Labelled:
    """A gallery without samples yet: its recipe, with steps that are not yet fitted, and notes."""
    notes = _source_notes(source)
    if source.n_features is not None:
        given = {"--extractor": reading.network, "--size": reading.size, "--color": reading.color}
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} is for pictures, but these are features")
        recipe = Recipe(source.n_features, steps=reading.steps)
    elif reading.network:
        recipe = _network_recipe(reading.network, reading, notes)
    else:
        size = reading.size
        if size is None:
            size = _common_size(source.sizes(reading.max_pixels, decoders, progress), notes)
        recipe = Recipe.for_pictures(RawPixels(size, reading.color), reading.steps)
    if reading.on_notes and notes:
        reading.on_notes(notes)
    memory.require(
        recipe.fit_bytes(len(source), np.dtype(reading.dtype).itemsize),
        f"reading {counted(len(source), 'sample')} of {counted(recipe.n_inputs, 'number')}",
        "use a smaller --size or --pca",
    )
    return Labelled(recipe=recipe, notes=notes)


def _network_recipe(network: NetworkOptions, reading: Reading, notes: list[Note]) -> Recipe:
    from crnr_cli.recipe.network_model import make_network
    from crnr_cli.recipe.preset_guess import guess_preset

    if reading.color:
        raise UsageError("--color cannot be combined with --extractor: use --channels instead")
    made = make_network(replace(network, size=reading.size), reading.n_jobs)
    if network.needs_guess:
        guess = guess_preset(network.model)
        notes.append(
            Note(
                "preset",
                f"pictures are prepared with the preset {guess.preset}, a guess {guess.why}; "
                "if it expects another preparation, set --extractor-preset",
            )
        )
    return Recipe.for_pictures(made, reading.steps)


def _common_size(sizes: set[tuple[int, int]], notes: list[Note]) -> tuple[int, int]:
    """The common size of all pictures if there is one and it is small, else the default."""
    if len(sizes) == 1 and max(next(iter(sizes))) <= _LARGEST_NATIVE:
        return next(iter(sizes))
    if not sizes:  # no picture can be read, which is reported later
        return _DEFAULT_SIZE
    width, height = _DEFAULT_SIZE
    why = "differ in size" if len(sizes) > 1 else f"are larger than {_LARGEST_NATIVE}x{_LARGEST_NATIVE}"
    notes.append(
        Note("size", f"pictures {why}: all are resized to {width}x{height}; --size chooses another size")
    )
    if any(max(found) > _LARGEST_NATIVE for found in sizes):
        notes.append(Note("weak pixels", _WEAK_PIXELS))
    return _DEFAULT_SIZE


def _source_notes(source: Source, *, needs_labels: bool = True) -> list[Note]:
    """What the user should know about a source; it is refused if it needs labels and has none."""
    if needs_labels:
        source.require_labels()
    return [Note("source", text) for text in source.notes()]


def _read_raw(
    found: Labelled, source: Source, reading: Reading, progress: Progress, decoders: DecoderPool
) -> RawSamples:
    values = _read(found, source, reading, progress, decoders, raw=True)
    _check_new(found, source)
    return RawSamples(values=values, **vars(found))


def _check_new(found: Labelled, source: Source) -> None:
    """A new gallery needs at least one sample; notes are added on classes without any."""
    require_samples(found.names, found.left_out)
    found.notes += unusable_classes(source, found.labels)


def _read(
    found: Labelled,
    source: Source,
    reading: Reading,
    progress: Progress,
    decoders: DecoderPool,
    *,
    raw: bool = False,
    label_of: LabelOf = _first,
    total: int | None = None,
) -> Array:
    """The unit vectors, or raw values, of all usable samples; their names and labels go into `found`."""
    recipe = found.recipe
    kept: list[Array] = []
    spans = source.spans(recipe.batch_size(reading.batch_size or BATCH))
    extract = recipe.opened(reading.n_jobs)
    request = recipe.request(reading.max_pixels, with_hash=True)
    skipped: list[LeftOut] = []
    for batch in map(extract, source.batches(spans, request, decoders)):
        left_out_before = len(found.left_out)
        hashes = _hashes(batch)
        usable = recipe.screened(batch) if raw else recipe.applied(batch, reading.dtype)
        if reading.label is not None:
            usable = replace(usable, candidates=[(reading.label,)] * len(usable.names))
        kept.append(_collect(usable, hashes, found, label_of))
        skipped += [left for left in found.left_out[left_out_before:] if left.is_skipped]
        _refuse_too_many(skipped, total or len(source), reading.max_failure_rate)
        progress("reading", batch.end, len(source))
    if source.n_features is not None:  # NaN in a table means that something is wrong with the table
        _refuse_non_finite(found)
    return np.concatenate(kept)


def _hashes(batch: Batch) -> list[str]:
    """The SHA-256 of every sample's content: of its file or, in a table, of its row."""
    hashes = list(batch.hashes)
    for row, sample in enumerate(batch.rows.tolist()):
        hashes[sample] = hashes[sample] or row_hash(batch.values[row])
    return hashes


def _collect(batch: Batch, hashes: Sequence[str], found: Labelled, label_of: LabelOf) -> Array:
    """Add the samples of a batch to `found`, as usable or left out; returns the values of the usable ones."""
    row_of = {sample: row for row, sample in enumerate(batch.rows.tolist())}
    rows: list[int] = []
    for sample, name in enumerate(batch.names):
        error, candidates = batch.errors[sample], batch.candidates[sample]
        if not error and not candidates:
            error = SampleError("no_class", "not in a class folder")
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


def _refuse_too_many(skipped: Sequence[LeftOut], total: int, rate: float) -> None:
    if len(skipped) > rate * total:
        culprit = skipped[int(rate * total)]
        raise DataError(
            f"{culprit.name}: {culprit.error}; stopped: {len(skipped)} of {counted(total, 'sample')} "
            f"{have(len(skipped))} to be skipped, and at most {rate:.2%} is allowed"
        )


def _refuse_non_finite(found: Labelled) -> None:
    bad = [left.name for left in found.left_out if left.error.status == "non_finite"]
    if bad:
        shown = ", ".join(bad[:10]) + (", ..." if len(bad) > 10 else "")
        raise DataError(f"NaN or infinity in {counted(len(bad), 'row')}, to be fixed or removed: {shown}")
