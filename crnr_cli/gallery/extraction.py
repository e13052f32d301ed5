"""Extract the raw values of a source to a file, in batches, so that a stopped run can continue.

Finished batches are kept next to the file, each with the facts about its rows. The file itself is made of
them at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crnr_cli import __version__
from crnr_cli.arrays import Array, Batch, Stamp
from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError, SampleError, UsageError, refuse_too_many
from crnr_cli.gallery.entries import sample_names
from crnr_cli.gallery.features_file import (
    FeatureRows,
    has_content,
    open_extracted_file,
    require_ending,
    write_features,
)
from crnr_cli.gallery.reading import (
    ImageSurvey,
    describe_difference,
    is_same,
    new_recipe,
    open_recipe,
    restore_recipe,
)
from crnr_cli.gallery.samples import (
    BATCH,
    LeftOut,
    NothingUsableError,
    Reading,
    Report,
    content_hashes,
    refuse_non_finite,
    require_samples,
)
from crnr_cli.gallery.workers import Workers
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress
from crnr_cli.recipe.base import Extractor
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.records import dataclass
from crnr_cli.results.journal import Identity, Journal, describe_differences
from crnr_cli.sources.base import InputOptions, Source, Span
from crnr_cli.sources.formats.extracted import Origins
from crnr_cli.sources.formats.hdf5 import close_files
from crnr_cli.sources.images import Images
from crnr_cli.sources.opening import fingerprint
from crnr_cli.sources.tables import FeatureFile, Features
from crnr_cli.system.files import Claim, claimed, disk_errors
from crnr_cli.system.names import Spellings, path_key
from crnr_cli.wording import Note, format_count


@dataclass(frozen=True)
class Extraction:
    """The source, the output and the workers of an extraction."""

    path: Path
    source: Source
    recipe: Recipe  # without steps
    reading: Reading
    workers: Workers
    old: FeatureFile | None = None  # the previous file, if it is updated

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored values: float32 for images, the original dtype for feature files."""
        files = self.source.files if isinstance(self.source, Features) else []
        types = [file.values.dtype for file in (*files, *([self.old] if self.old else []))]
        if self.source.kind == "pictures":
            return np.dtype(np.float32)
        found: np.dtype[Any] = np.result_type(*types)
        return np.dtype(np.uint8) if found.kind == "b" else found.newbyteorder("=")


@dataclass(frozen=True)
class ExtractReport(Report):
    """A feature file that was written, with notes for the user."""

    recipe: Recipe
    n_samples: int
    n_classes: int
    added: int
    changed: int
    gone: int  # samples of the file that have left the source
    seconds: float
    file_bytes: int


@contextmanager
def claimed_features(path: Path) -> Iterator[Claim]:
    """Lock the file for writing. If the block fails, the extracted values are kept for another run."""
    with (
        claimed(path, keep=True) as claim,
        disk_errors(path, "finished batches are kept: the same command continues after them"),
    ):
        try:
            yield claim
        except BaseException:
            if not claim.has_rows():
                claim.discard()
            raise


def extract_to(claim: Claim, work: Extraction, progress: Progress) -> ExtractReport:
    """Extract everything that the old file, if any, does not have; its other rows are kept."""
    started = time.perf_counter()
    spellings = sample_names(work.old.names if work.old else (), work.source.kind)
    fresh = work if work.old is None else replace(work, source=_suspects(work.source, work.old, spellings))
    found = _Found()
    notes: list[Note] = []
    with claim.open_journal() as lines, claim.open_rows() as file:
        if len(fresh.source):
            notes = _collect(fresh, work.source, Journal(file, lines), found, progress)
        fresh_rows = FeatureRows.concatenate(found.rows)
        kept = _rows_to_keep(work, set(map(spellings.spell, fresh_rows.names)))
        rows = _spell_classes(work, kept, fresh_rows, spellings) if kept else fresh_rows
        try:
            if work.source.kind == "features":
                refuse_non_finite(found.left_out)
            require_samples(rows.names, found.left_out)
        except DataError:  # a second run would fail with it too
            claim.discard()
            raise
        same = work.old is not None and rows == FeatureRows.of(work.old)
        if not same:
            claim.file.truncate(0)
            write_features(claim.file, work.recipe, rows, _blocks(fresh, kept, file, found), work.dtype)
    if same:
        claim.discard()
    else:
        close_files()  # the old file may be open
        claim.put_in_place()
    before = set(work.old.names) if work.old else set()
    now = list(map(spellings.spell, fresh_rows.names))
    return ExtractReport(
        recipe=work.recipe,
        n_samples=len(rows),
        n_classes=len({candidates[0] for candidates in rows.candidates if candidates}),
        added=sum(name not in before for name in now),
        changed=len(before.intersection(now)),
        gone=len(before.difference(map(spellings.spell, work.source.names()))),
        left_out=found.left_out,
        notes=notes,
        seconds=time.perf_counter() - started,
        file_bytes=os.stat(work.path).st_size,  # noqa: PTH116
    )


@dataclass
class _Found:
    """The batches extracted so far."""

    batches: int = 0
    done: int = 0  # inputs
    rows: list[FeatureRows] = field(default_factory=list)  # of each batch
    places: list[int] = field(default_factory=list)  # where the values of each batch begin
    left_out: list[LeftOut] = field(default_factory=list)

    def add(self, place: int, rows: FeatureRows, left_out: list[LeftOut]) -> None:
        self.batches += 1
        self.done += len(rows) + len(left_out)
        self.places.append(place)
        self.rows.append(rows)
        self.left_out += left_out


def _suspects(source: Source, old: FeatureFile, spellings: Spellings) -> Source:
    """Return the samples that are new, or whose files may have changed."""
    assert old.origins is not None
    known = dict(zip(old.names, old.origins.stamps, strict=True))

    def is_suspect(name: str, stamp: Stamp, candidates: tuple[str, ...]) -> bool:
        return known.get(spellings.spell(name)) != stamp

    return source.filter(is_suspect)


def _rows_to_keep(work: Extraction, fresh: set[str]) -> FeatureFile | None:
    """Return the rows of the old file that are not replaced."""
    if work.old is None:
        return None
    return work.old.take([row for row, name in enumerate(work.old.names) if name not in fresh])


def _spell_classes(
    work: Extraction, kept: FeatureFile, fresh: FeatureRows, spellings: Spellings
) -> FeatureRows:
    """Return the kept rows and the fresh rows, with the old spellings of classes."""
    old = FeatureRows.of(kept)
    classes = Spellings(name for candidates in old.candidates for name in candidates)
    rows = _renew_classes(old, work.source, spellings) + fresh
    return replace(rows, candidates=[tuple(map(classes.spell, candidates)) for candidates in rows.candidates])


def _renew_classes(rows: FeatureRows, source: Source, spellings: Spellings) -> FeatureRows:
    """Return rows with new classes: unchanged images may have moved to other folders."""
    if not isinstance(source, Images):
        return rows
    folders = {spellings.spell(file.path): file.folders for file in source.files}
    named = {spellings.spell(name): folder for name, folder in source.possible_classes().items()}
    columns = list(zip(rows.names, rows.candidates, rows.named, strict=True))
    return replace(
        rows,
        candidates=[folders.get(name, before) for name, before, _ in columns],
        named=[named.get(name, "") if name in folders else before for name, _, before in columns],
    )


def _collect(
    work: Extraction, whole: Source, journal: Journal, found: _Found, progress: Progress
) -> list[Note]:
    """Extract all batches that an earlier run did not finish; return notes about that run.

    Only a part of the `whole` source may have to be read.
    """
    recipe, source, reading = work.recipe, work.source, work.reading
    ready = open_recipe(recipe, source, reading, with_hash=True)  # before an unfinished run is given up
    size = ready.batch_size(reading.batch_size or BATCH)
    identity = _identity(work, size)
    notes = _resume(work, journal, identity, found)
    if reading.on_notes and notes:
        reading.on_notes(notes)
    journal.start(identity)
    named, total = whole.possible_classes(), len(whole)
    skipped = [left for left in found.left_out if left.is_skipped]
    refuse_too_many(skipped, total, reading.max_failure_rate, "example")
    progress("extracting", found.done, len(source))
    spans = source.spans(size)[found.batches :]
    with closing(work.workers.read_raw(source, spans, [ready])) as batches:
        for (raw,) in batches:
            hashes = content_hashes(raw)
            batch = recipe.drop_unusable(replace(raw, scales=[]))
            rows, left_out = _usable_rows(replace(batch, scales=raw.scales), hashes, named)
            values = batch.values.astype(work.dtype, copy=False).tobytes()
            place = journal.size
            journal.add(values + _as_json(rows, left_out), {"values": len(values)})
            found.add(place, rows, left_out)
            skipped += [left for left in left_out if left.is_skipped]
            refuse_too_many(skipped, total, reading.max_failure_rate, "example")
            progress("extracting", raw.end, len(source))
    return notes


def _usable_rows(batch: Batch, hashes: list[str], named: dict[str, str]) -> tuple[FeatureRows, list[LeftOut]]:
    """Return the usable samples of a batch, and the others."""
    every = FeatureRows(
        names=batch.names,
        candidates=batch.candidates,
        named=[named.get(name, "") for name in batch.names],
        hashes=hashes,
        stamps=batch.stamps,
        scales=batch.scales or [1.0] * len(batch.names),
        dates=batch.dates or [""] * len(batch.names),
    )
    return every.take(batch.rows), [LeftOut(batch.names[sample], error) for sample, error in batch.failures()]


def _identity(work: Extraction, size: int) -> Identity:
    """Return everything that the bytes of the file depend on, by names for messages."""
    described = json.dumps(work.recipe.to_stored().attributes, sort_keys=True)
    keys = work.reading.keys
    return {
        "crnr": __version__,
        "extractor": hashlib.sha256(described.encode()).hexdigest(),
        "--provider": work.reading.provider if work.recipe.has_network else None,
        "--max-pixels": work.reading.max_pixels,
        "--features-key": keys.features,
        "--labels-key": keys.labels,
        "--samples-axis": keys.samples,
        "--dates": work.reading.dates,
        "number of inputs": len(work.source),
        "list of inputs": fingerprint(work.source),
        "file before": None if work.old is None else " ".join(map(str, work.old.stamp)),
        "batch": size,
    }


def _resume(work: Extraction, journal: Journal, identity: Identity, found: _Found) -> list[Note]:
    """Take over the batches of an earlier run, unless its settings were different."""
    if (earlier := journal.read_earlier()) is None:
        journal.forget()
        return []
    if different := describe_differences(earlier, identity):
        journal.forget()
        changes = ", ".join(different)
        text = f"{work.path}: starting over, because the unfinished run was a different one: {changes}"
        return [Note("started again", text)]
    width = work.recipe.n_inputs * work.dtype.itemsize
    for record, data in journal.finished_batches():
        try:
            n_values = record["values"]
            rows, left_out = _from_json(data[n_values:])
        except (ArithmeticError, ValueError, LookupError, TypeError, RecursionError):
            break
        if n_values != len(rows) * width:
            break
        found.add(journal.size, rows, left_out)
    if not found.batches:
        return []
    text = f"{work.path}: continuing after {found.done} of {format_count(len(work.source), 'row')}"
    return [Note("continued", text)]


def _as_json(rows: FeatureRows, left_out: list[LeftOut]) -> bytes:
    """Return the facts about a batch, to store next to its values."""
    others = [(left.name, left.error.status, str(left.error)) for left in left_out]
    return json.dumps({"rows": rows.as_plain(), "left_out": others}).encode()


def _from_json(data: bytes) -> tuple[FeatureRows, list[LeftOut]]:
    """Return the facts of a batch; invalid data raises any of several errors."""
    found = json.loads(data)
    left_out = [
        LeftOut(str(name), SampleError(str(status), str(text))) for name, status, text in found["left_out"]
    ]
    return FeatureRows.from_plain(found["rows"]), left_out


def _blocks(work: Extraction, kept: FeatureFile | None, file: BinaryIO, found: _Found) -> Iterator[Array]:
    """Yield the values of all rows, the rows of the old file first."""
    for start in range(0, len(kept) if kept else 0, BATCH):
        assert kept is not None
        yield kept.read_rows(start, min(start + BATCH, len(kept)))
    width = work.recipe.n_inputs * work.dtype.itemsize
    for place, rows in zip(found.places, found.rows, strict=True):
        file.seek(place)
        yield np.frombuffer(file.read(len(rows) * width), work.dtype).reshape(len(rows), work.recipe.n_inputs)


@dataclass(kw_only=True)
class CachedImages(Images):
    cache: FeatureFile  # contains the values of all these images, and perhaps of others
    origins: Origins  # of the cache
    recipe: Mapping[str, Any]  # the description of the extractor
    errors: Mapping[str, SampleError]  # by name: why an image has no values

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

    def has_values(self, name: str, stamp: Stamp) -> bool:
        """Return whether the cache contains the values of this image, and the image has not changed since."""
        return (self._spellings.spell(name), stamp) in self._row_of

    def read_batches(
        self, spans: Sequence[Span], request: PixelRequest | None, decoders: DecoderPool
    ) -> Generator[Batch]:
        for span in spans:
            batch = self._batch(span)
            if self.dates is not None:
                batch = replace(batch, dates=self.read_dates(self.files[slice(*span)], MAX_PIXELS, decoders))
            yield batch

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
            values=found.read_rows(0, len(found)),
            end=span[1],
            candidates=[file.folders for file in files],
            hashes=["" if row is None else hashes[row] for row in rows],
            stamps=[file.stamp for file in files],
            scales=[1.0 if row is None else scales[row] for row in rows] if scales else [],
        )


def read_through_cache(
    source: Source, reading: Reading, path: Path, progress: Progress, workers: Workers
) -> tuple[Source, Reading, list[Note]]:
    """Return the same images with values from the cache, how to read them, and notes for the user."""
    images = _require_images(source, path)
    seen = ImageSurvey(source, reading, progress, workers)
    recipe, notes = new_recipe(source, reading.extractor, reading.steps, seen)
    if reading.on_notes and notes:
        reading.on_notes(notes)
    found, more = _update_cache(path, images, recipe, reading, progress, workers)
    return found, replace(reading, extractor=ExtractorOptions()), notes + more


def read_queries_through_cache(
    source: Source, recipe: Recipe, options: InputOptions, path: Path, progress: Progress, workers: Workers
) -> tuple[Source, list[Note]]:
    """Return the same images with values from the cache, for a gallery with this recipe, and notes."""
    images = _require_images(source, path)
    given = {name: getattr(options, name) for name in InputOptions.__dataclass_fields__}
    reading = Reading(**given | {"max_failure_rate": 1.0})  # the command itself counts its failed queries
    try:
        return _update_cache(path, images, recipe, reading, progress, workers)
    except NothingUsableError:  # the queries are answered by their errors
        return source, []


def split_by_cache(source: Images, recipe: Recipe, path: Path) -> tuple[Array, CachedImages, Images]:
    """Return which images have values in the cache and are unchanged, these images, and the others."""
    known = _open_cached(path, source, recipe)
    is_known = np.array([known.has_values(file.path, file.stamp) for file in source.files], dtype=bool)
    cached, others = (
        [source.files[place] for place in np.flatnonzero(chosen).tolist()] for chosen in (is_known, ~is_known)
    )
    return is_known, replace(known, files=cached), replace(source, files=others)


def _require_images(source: Source, path: Path) -> Images:
    require_ending(path)
    if not isinstance(source, Images):
        raise UsageError("--cache only applies to images; leave it out for feature files")
    return source


def _update_cache(
    path: Path, source: Images, recipe: Recipe, reading: Reading, progress: Progress, workers: Workers
) -> tuple[CachedImages, list[Note]]:
    """Add the images that the cache does not contain; return all with values from it, and notes."""
    recipe = recipe.without_steps()
    with claimed_features(path) as claim:
        old = None
        if has_content(path):
            old = open_extracted_file(path)
            _refuse_another(old, recipe.extractor)
        report = extract_to(claim, Extraction(path, source, recipe, reading, workers, old), progress)
        found = _open_cached(path, source, recipe)
    return replace(found, errors={left.name: left.error for left in report.left_out}), report.notes


def _open_cached(path: Path, source: Images, recipe: Recipe) -> CachedImages:
    file = open_extracted_file(path)
    _refuse_another(file, recipe.extractor)
    assert file.origins is not None
    return CachedImages(
        **vars(source),
        cache=file,
        origins=file.origins,
        recipe=recipe.without_steps().to_stored().attributes,
        errors={},
    )


def _refuse_another(old: FeatureFile, wanted: Extractor | None) -> None:
    assert old.origins is not None
    extractor = restore_recipe(old.path, old.origins.recipe, old.n_features).extractor
    if not is_same(extractor, wanted):
        raise DataError(
            f"{old.path}: its features come from another extractor than this gallery needs: "
            f"{describe_difference(extractor, wanted)}; name another file with --cache, or remove this one"
        )
