"""A listing becomes raw vectors, batch by batch: pictures through the decoders, features by slices."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice

import numpy as np

from crnr_cli.arrays import Array, Stamp
from crnr_cli.errors import SampleError
from crnr_cli.pictures.pixels import Form, Pixels
from crnr_cli.pictures.pool import decode
from crnr_cli.recipe.network import Extractor
from crnr_cli.sources.folders import Features, PictureFile, Pictures, Source


@dataclass(frozen=True)
class RawBatch:
    """Some consecutive samples of a listing. `values` has a row for each of them without an error."""

    names: list[str]
    labels: list[tuple[str, ...]]  # names that may be the class, the best first
    values: Array
    errors: list[SampleError | None]
    hashes: list[str]  # of the file's content; empty unless the form asks for it
    stamps: list[Stamp]  # of the file
    end: int  # samples of the listing up to the end of this batch


def raw_batches(
    source: Source, form: Form | None, batch_size: int, jobs: int, first: int = 0
) -> Generator[RawBatch]:
    """Fixed batches of the listing, in its order, from the `first` on. `form` is for pictures."""
    if isinstance(source, Features):
        return _feature_batches(source, batch_size, first)
    assert form is not None
    return _picture_batches(source, form, batch_size, jobs, first)


def _feature_batches(source: Features, batch_size: int, first: int) -> Generator[RawBatch]:
    before = accumulate((len(file) for file in source.files), initial=0)
    starts = (
        (file, start, n)
        for file, n in zip(source.files, before, strict=False)
        for start in range(0, len(file), batch_size)
    )
    for file, start, n_before in islice(starts, first, None):
        stop = min(start + batch_size, len(file))
        labels = (
            [(label,) for label in file.labels[start:stop]]
            if file.labels is not None
            else [()] * (stop - start)
        )
        yield RawBatch(
            names=file.names[start:stop],
            labels=list(labels),
            values=file.rows(start, stop),
            errors=[None] * (stop - start),
            hashes=[""] * (stop - start),
            stamps=[file.stamp] * (stop - start),
            end=n_before + stop,
        )


def _picture_batches(
    source: Pictures, form: Form, batch_size: int, jobs: int, first: int
) -> Generator[RawBatch]:
    files = source.files
    begin = first * batch_size
    extractor = Extractor(form.extraction, jobs) if form.extraction else None
    form = form._replace(extraction=None)
    decoded = decode([file.path for file in files[begin:] if file.error is None], form, jobs)
    try:
        for start in range(begin, len(files), batch_size):
            stop = min(start + batch_size, len(files))
            yield _picture_batch(files[start:stop], decoded, form, extractor, stop)
    finally:
        decoded.close()


def _picture_batch(
    files: list[PictureFile],
    decoded: Iterator[Pixels | SampleError],
    form: Form,
    extractor: Extractor | None,
    end: int,
) -> RawBatch:
    assert form.size is not None  # of one size: they are rows of one table
    fresh = islice(decoded, sum(file.error is None for file in files))
    answers = [file.error or next(fresh) for file in files]
    if extractor:
        answers = [_refused_if_blank(answer) for answer in answers]
    pixels = [answer for answer in answers if isinstance(answer, Pixels)]
    if extractor:
        values = extractor.vectors([p.data for p in pixels])
    elif pixels:
        values = np.array([np.frombuffer(p.data, np.float32 if p.is_float else np.uint8) for p in pixels])
    else:
        values = np.empty((0, math.prod(form.size) * (3 if form.color else 1)))
    return RawBatch(
        names=[file.path for file in files],
        labels=[file.folders for file in files],
        values=values,
        errors=[answer if isinstance(answer, SampleError) else None for answer in answers],
        hashes=[answer.sha256 if isinstance(answer, Pixels) else "" for answer in answers],
        stamps=[file.stamp for file in files],
        end=end,
    )


def _refused_if_blank(answer: Pixels | SampleError) -> Pixels | SampleError:
    """A network has features for a picture of one colour too, but there is nothing in it to compare."""
    if isinstance(answer, Pixels) and answer.data == answer.data[: answer.bands] * (
        answer.width * answer.height
    ):
        return SampleError("zero_norm", "nothing to compare: all of one colour")
    return answer
