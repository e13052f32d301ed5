"""Review: list the answers that a person should check, the most doubtful first."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Batch, find_largest
from crnr_cli.errors import CrnrError, DataError, GalleryError
from crnr_cli.gallery.extraction import split_by_cache
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, queries_per_batch, with_model_at
from crnr_cli.gallery.reading import open_recipe
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import CodingMethod
from crnr_cli.methods.base import states_of_parts
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.results.decision import UNKNOWN, Prediction
from crnr_cli.results.edited import read_candidates
from crnr_cli.results.table import read_predictions
from crnr_cli.sources.images import Images, is_unrelated
from crnr_cli.sources.walk import list_named_images
from crnr_cli.system.csv_file import require_file
from crnr_cli.system.names import Spellings, stat_or_none
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.wording import format_count

_CANDIDATES = 5  # classes to choose from
_SAMPLES = 2  # of the gallery, for each of the two best classes


class ReviewItem(NamedTuple):
    """An answer to check."""

    number: int  # of its row in the CSV, counted from 0
    row: Prediction
    candidates: list[str]  # classes to choose from, the best first


@dataclass(frozen=True)
class ReviewReport:
    answers: list[ReviewItem]  # the most doubtful first; failures come last
    total: int  # of the answers in the CSV
    classes: list[str]  # all known classes
    identity: str  # equal for equal answers
    gallery: FittedGallery | None
    no_gallery: str = ""  # why there is no gallery


def review(
    table: Path, gallery_path: Path, limit: int, options: QueryOptions, *, is_named: bool
) -> ReviewReport:
    """Return the answers to check. Unless `is_named`, the gallery may be missing."""
    rows = _read_rows(table)
    shown = sorted(rows, key=lambda numbered: _doubt_key(numbered[1]))[:limit]
    best, named = read_candidates(table, {number for number, _ in shown}, _CANDIDATES)
    answers = [ReviewItem(number, row, _candidates(row, best.get(number, []))) for number, row in shown]
    gallery, why = _gallery(gallery_path, options, is_named=is_named)
    names = {name for _, row in rows for name in (row.label, row.runner_up) if name and name != UNKNOWN}
    names |= {name for answer in answers for name in answer.candidates}
    names.update(named, gallery.classes if gallery else [])
    return ReviewReport(answers, len(rows), sorted(names), _identity(rows), gallery, why)


def _read_rows(table: Path) -> list[tuple[int, Prediction]]:
    """Return the answers with their numbers, each file once, without unrelated files."""
    require_file(table, "give a predictions file written by `crnr classify`")
    rows: dict[str, tuple[int, Prediction]] = {}
    for number, row in enumerate(read_predictions(table)):
        if not row.path:
            raise DataError(f"{table}: row {number + 1} has no path; was it written by `crnr classify`?")
        if row.label or not is_unrelated(row.path, row.status):
            rows.setdefault(row.path, (number, row))
    if not rows:
        raise DataError(f"{table}: has no answers to review")
    refuse_mentioned(rows)
    return list(rows.values())


def _doubt_key(row: Prediction) -> tuple[bool, float]:
    """Return a sort key: least probable first, by margin without probabilities; failures come last."""
    sure = row.margin if row.probability is None else row.probability
    return row.label is None, math.inf if sure is None else sure


def _candidates(row: Prediction, best: Sequence[str]) -> list[str]:
    names = [row.label, row.runner_up, *(row.set or ()), *best]
    return [name for name in dict.fromkeys(names) if name and name != UNKNOWN][:_CANDIDATES]


def _identity(rows: Sequence[tuple[int, Prediction]]) -> str:
    digest = hashlib.sha256()
    for number, row in rows:
        digest.update(ascii((number, row)).encode())
    return digest.hexdigest()[:32]


def _gallery(path: Path, options: QueryOptions, *, is_named: bool) -> tuple[FittedGallery | None, str]:
    if not is_named and stat_or_none(path) is None:
        return None, f"{path}: no such gallery; name it with --gallery"
    try:
        gallery = load_gallery(path)
        if options.model is not None:
            gallery = with_model_at(options.model, gallery, path)
    except GalleryError as e:
        if is_named:
            raise
        return None, str(e)
    refuse_mentioned(gallery.names)
    return gallery, ""


class Supporters(NamedTuple):
    """The strongest samples by class, for each of several queries."""

    samples: list[Mapping[str, list[int]]]  # empty for an unreadable query
    note: str = ""  # why no samples are shown


def find_supporters(
    gallery: FittedGallery,
    files: Sequence[str],
    classes: Sequence[Sequence[str]],
    options: QueryOptions,
    progress: Progress = silent,
) -> Supporters:
    """Return the samples that most support these classes of each image; unknown classes have none."""
    nothing: list[Mapping[str, list[int]]] = [{} for _ in files]
    if gallery.recipe.kind != "pictures":
        return Supporters(nothing, "the gallery was built from features")
    parts = _divide_by_cache(list_named_images(files, options.box_margin), gallery, options)
    try:
        opened = [(part, open_recipe(gallery.recipe, part.source, options)) for part in parts]
    except CrnrError as e:  # the model is missing or has changed
        return Supporters(nothing, str(e))
    place = {name: k for k, name in enumerate(gallery.classes)}
    spellings = Spellings(gallery.classes)
    found = nothing
    done = 0
    for part, recipe in opened:
        for queries, vectors in _read_vectors(part, recipe, gallery, options):
            known = [[name for name in classes[query] if spellings.find(name)] for query in queries]
            places = [[place[spellings.spell(name)] for name in names] for names in known]
            strong = find_strongest_samples(gallery, vectors.values, places, _SAMPLES)
            for query, names, samples in zip(queries, known, strong, strict=True):
                found[query] = dict(zip(names, samples, strict=True))
            done += len(vectors.names)
            progress("comparing", done, len(files))
    return Supporters(found)


class _Part(NamedTuple):
    """Some of the queries: those with features in the cache, or those that have to be decoded."""

    source: Images
    queries: list[int]  # the number of each


def _divide_by_cache(source: Images, gallery: FittedGallery, options: QueryOptions) -> list[_Part]:
    if options.cache is None:
        return [_Part(source, list(range(len(source))))]
    is_cached, cached, others = split_by_cache(source, gallery.recipe, options.cache)
    parts = [
        _Part(cached, np.flatnonzero(is_cached).tolist()),
        _Part(others, np.flatnonzero(~is_cached).tolist()),
    ]
    return [part for part in parts if part.queries]


def _read_vectors(
    part: _Part, recipe: OpenRecipe, gallery: FittedGallery, options: QueryOptions
) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches of unit vectors, each with the numbers of the queries that have one."""
    spans = part.source.spans(queries_per_batch(gallery, recipe, options))
    with closing(part.source.read_batches(spans, recipe.request, DecoderPool(options.jobs))) as batches:
        for (start, _), read in zip(spans, batches, strict=True):
            batch = recipe.vectors(recipe.raw(read), gallery.dtype)
            yield [part.queries[start + row] for row in batch.rows.tolist()], batch


def limit_note(report: ReviewReport) -> str:
    """Return a note if some answers are not on the page."""
    shown = len(report.answers)
    if shown == report.total:
        return ""
    return (
        f"{shown} of {format_count(report.total, 'answer')} are on the page, the most doubtful first; "
        "--limit shows more"
    )


def find_strongest_samples(
    gallery: FittedGallery, vectors: Array, classes: Sequence[Sequence[int]], count: int
) -> list[list[list[int]]]:
    """Return, for each query and each of its classes, `count` samples of the class, the strongest first.

    Samples with equal weights, or of methods without weights, are ordered by their cosine.
    """
    samples = gallery.samples
    cosines = vectors @ samples.vectors.T
    weights = _weights(gallery, vectors)
    found = []
    for query, wanted in enumerate(classes):
        of_query = []
        for k in wanted:
            span = samples.class_span(k)
            values = [cosines[query, span]]
            if weights is not None:
                values.insert(0, np.maximum(weights[query, span], 0))
            of_query.append(find_largest(values, count, span.start))
        found.append(of_query)
    return found


def _weights(gallery: FittedGallery, vectors: Array) -> Array | None:
    """Return (m, n): the codes of the queries, averaged over parts; None if the method has none."""
    method, samples = gallery.method, gallery.samples
    if not isinstance(method, CodingMethod):
        return None
    if samples.parts is None:
        return method.codes(samples, gallery.state, vectors)
    total: Array = np.zeros((len(vectors), len(samples.vectors)))
    for number, state in enumerate(states_of_parts(gallery.state, samples.n_parts)):
        total += method.codes(samples.part(number), state, samples.part_of(vectors, number))
    return total / samples.n_parts
