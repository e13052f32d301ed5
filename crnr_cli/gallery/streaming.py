"""Build a gallery whose vectors never have to be in memory at once.

The labels of feature files are known before their values are read, so the place of every vector among the
vectors of its class is known too. Blocks of rows are read, turned into unit vectors, and written to their
places.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256

import numpy as np

from crnr_cli.arrays import Array, Batch, Stamp, take_rows
from crnr_cli.errors import DataError, SampleError, refuse_too_many
from crnr_cli.gallery.file import NewGallery
from crnr_cli.gallery.fit import sort_by_class
from crnr_cli.gallery.gallery import LazyTexts, SampleTable
from crnr_cli.gallery.hdf5_output import PlacedRows
from crnr_cli.gallery.reading import ImageSurvey
from crnr_cli.gallery.samples import (
    LeftOut,
    Reading,
    ReadSamples,
    check_new,
    content_hashes,
    refuse_non_finite,
    require_samples,
    start_reading,
)
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import Method
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.base import Block
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.tables import Features
from crnr_cli.system import memory
from crnr_cli.system.cores import pieces_at_once, run_side_by_side
from crnr_cli.wording import format_count

_BLOCK = 2**20  # values that are read at once


def can_stream(source: Features, reading: Reading, method: Method) -> bool:
    """Return whether neither the method nor the recipe needs all samples in memory."""
    # With fewer samples than values in each, a step is fitted to the products of the samples.
    has_enough = len(source) > source.n_features or not any(step.learns for step in reading.steps)
    return method.needs_few_samples and has_enough


def stream_samples(
    source: Features, reading: Reading, new: NewGallery, progress: Progress = silent
) -> ReadSamples:
    """Read samples like `read_samples`, but write the vectors to a new file by class, and map them."""
    seen = ImageSurvey(source, reading, progress, Here(DecoderPool(reading.jobs)))
    unfitted, notes = start_reading(source, reading, seen)
    stream = _Stream(source, reading, progress, _labels(source, reading))
    recipe = unfitted
    if any(step.learns for step in recipe.steps):
        covariance = 3 * 8 * source.n_features**2
        means = 8 * len(set(stream.labels)) * source.n_features if recipe.whitening else 0
        steps = " and ".join(f"--{step.name}" for step in recipe.steps if step.learns)
        memory.require_memory(
            covariance + means,
            f"{steps} of {format_count(source.n_features, 'feature')}",
            "use fewer features",
        )
    if not recipe.is_fitted:
        recipe = recipe.fit_to_blocks(lambda: stream.raw_blocks(unfitted))
    rows, vectors = stream.write_vectors(recipe, new, was_fitted=recipe is not unfitted)
    table = SampleTable(source.names(), stream.labels, LazyTexts(stream.hashes), stream.stamps).take(rows)
    read = ReadSamples(recipe=recipe, table=table, values=vectors, left_out=stream.left_out(), notes=notes)
    return check_new(read, source)


def _labels(source: Features, reading: Reading) -> list[str | None]:
    """Return the class of every sample; None for samples without one."""
    if reading.label is not None:
        return [reading.label] * len(source)
    labels = [next(iter(found), None) for found in source.all_candidates()]
    if "" in labels:
        row = labels.index("")
        raise DataError(f"{source.names((row, row + 1))[0]}: the label is empty")
    return labels


def _hashes(batch: Batch) -> Array:
    """Return (m,): like `content_hashes`, for batches in which all samples have values."""
    if any(batch.hashes):
        return np.array(content_hashes(batch), "S64")
    rows = np.ascontiguousarray(batch.values)
    digests = b"".join([sha256(row).digest() for row in rows])
    return np.frombuffer(digests.hex().encode(), "S64")


class _Stream:
    """The samples of a source, whose values are read block by block, as often as necessary."""

    def __init__(
        self, source: Features, reading: Reading, progress: Progress, labels: Sequence[str | None]
    ) -> None:
        self._source, self._reading, self._progress = source, reading, progress
        unlabelled = SampleError("no_class", source.why_unlabelled)
        self._errors: dict[int, SampleError] = {}
        self._n_skipped = 0  # of the failed samples, without unrelated files
        self._add_errors((row, unlabelled) for row, label in enumerate(labels) if label is None)
        self.labels = [label or "" for label in labels]
        numbers = {label: number for number, label in enumerate(dict.fromkeys(self.labels))}
        self._class_index = np.array([numbers[label] for label in self.labels])
        self.hashes = np.zeros(len(source), "S64")  # a list of a million texts would take twice the memory
        self.stamps = [Stamp()] * len(source)

    def left_out(self) -> list[LeftOut]:
        """Return the failed samples, and the reasons."""
        return [self._left_out(row) for row in sorted(self._errors)]

    def raw_blocks(self, recipe: Recipe) -> Iterator[Block]:
        """Yield the raw values of the usable samples, to fit the recipe to; record the others."""
        for batch in self._batches():
            screened = recipe.drop_unusable(batch)
            self._note(screened)
            self._progress("fitting", batch.end, len(self._source))
            rows = [self._row(batch, sample) for sample in screened.rows.tolist()]
            is_labelled = [row not in self._errors for row in rows]
            if any(is_labelled):
                values = screened.values if all(is_labelled) else screened.values[is_labelled]
                yield Block(values, self._class_index[rows][is_labelled])
        self._refuse_bad()

    def write_vectors(self, recipe: Recipe, new: NewGallery, *, was_fitted: bool) -> tuple[Array, Array]:
        """Return which rows are in the gallery, in its order, and their vectors.

        At first, all are assumed to be usable. If some fail, the others are written once more, because their
        places change.
        """
        threads = self._reading.n_jobs
        if any(step.learns for step in recipe.steps):  # it multiplies matrices, in threads of its own
            threads = pieces_at_once(threads)
        while True:
            rows = np.array([row for row in range(len(self._source)) if row not in self._errors], np.int64)
            require_samples(rows.tolist(), self.left_out())
            _, order, _ = sort_by_class(take_rows(self.labels, rows), recipe.kind)
            places = np.full(len(self._source), -1)
            places[rows[order]] = np.arange(len(rows))
            target = new.place_vectors((len(rows), recipe.n_outputs), self._reading.dtype)
            work = partial(self._write, recipe, target, places)
            with (
                closing(self._batches()) as batches,
                closing(run_side_by_side(work, batches, threads)) as done,
            ):
                for batch in done:
                    self._note(batch)
                    self._progress("reading", batch.end, len(self._source))
            if len(rows) == len(self._source) - len(self._errors):
                return rows[order], target.map_rows()
            self._refuse_bad()
            if was_fitted:  # to samples that it reduces to nothing
                lost = next(row for row in rows.tolist() if row in self._errors)  # others failed before
                raise DataError(f"{self._left_out(lost).name}: the vector is all zero; remove this example")

    def _batches(self) -> Generator[Batch]:
        spans = self._source.spans(self._reading.batch_size or max(1, _BLOCK // self._source.n_features))
        return self._source.read_batches(spans, None, DecoderPool(self._reading.jobs))

    def _write(self, recipe: Recipe, target: PlacedRows, places: Array, read: Batch) -> Batch:
        """Write the vectors of a batch, and return it without values."""
        start = self._row(read, 0)
        if not self.hashes[start]:
            self.hashes[start : read.end] = _hashes(read)
            self.stamps[start : read.end] = read.stamps
        batch = recipe.apply(read, self._reading.dtype)
        places = places[start + batch.rows]
        target.write(places[places >= 0], batch.values[places >= 0])
        return replace(batch, values=np.empty((len(batch.rows), 0)))

    def _note(self, batch: Batch) -> None:
        if failures := batch.failures():
            self._add_errors((self._row(batch, sample), error) for sample, error in failures)
            total, allowed = len(self._source), self._reading.max_failure_rate
            if self._n_skipped > allowed * total:  # listing all that failed so far is slow
                skipped = [left for left in self.left_out() if left.is_skipped]
                refuse_too_many(skipped, total, allowed, "example")

    def _add_errors(self, errors: Iterable[tuple[int, SampleError]]) -> None:
        for row, error in errors:
            if row not in self._errors:
                self._errors[row] = error
                self._n_skipped += self._left_out(row).is_skipped

    def _left_out(self, row: int) -> LeftOut:
        return LeftOut(self._source.names((row, row + 1))[0], self._errors[row])

    def _refuse_bad(self) -> None:
        if self._source.kind == "features":
            refuse_non_finite(self.left_out())

    def _row(self, batch: Batch, sample: int) -> int:
        return batch.end - len(batch.names) + sample
