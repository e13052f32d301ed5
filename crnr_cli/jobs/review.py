"""Review: list the answers that a person should check, the most doubtful first."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Batch, find_largest
from crnr_cli.errors import CrnrError, DataError, GalleryError, UsageError
from crnr_cli.gallery.extraction import split_by_cache
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.gallery.queries import QueryOptions, queries_per_batch, with_model_at
from crnr_cli.gallery.reading import open_recipe
from crnr_cli.gallery.samples import BATCH
from crnr_cli.images.pool import DecoderPool
from crnr_cli.methods import CodingMethod
from crnr_cli.methods.base import states_of_parts
from crnr_cli.progress import Progress, silent
from crnr_cli.recipe.recipe import OpenRecipe
from crnr_cli.records import dataclass
from crnr_cli.results.decision import UNKNOWN, Prediction
from crnr_cli.results.edited import read_candidates
from crnr_cli.results.table import read_predictions
from crnr_cli.sources.images import Images, is_unrelated
from crnr_cli.sources.walk import list_named_images
from crnr_cli.system.csv_file import require_file
from crnr_cli.system.names import Spellings, stat_or_none
from crnr_cli.system.outputs import refuse_mentioned
from crnr_cli.system.parquet import MAGIC
from crnr_cli.wording import format_count

_CANDIDATES = 5  # classes to choose from
_SAMPLES = 2  # of the gallery, for each of them
_DIVERSE = 200  # answers that `--order diverse` chooses; the others follow by doubt
_POOL = 4  # each is chosen among this many times as many of the most doubtful answers

Numbered = tuple[int, Prediction]  # an answer, and the number of its row in the CSV, counted from 0
FileOf = Callable[[str], str | None]  # the file of a path in the CSV, or None if it may not be read


class ReviewItem(NamedTuple):
    """An answer to check."""

    number: int  # of its row in the CSV, counted from 0
    row: Prediction
    candidates: list[str]  # classes to choose from, the best first


@dataclass(frozen=True)
class ReviewReport:
    answers: list[ReviewItem]  # in the order of the page; failures come last
    total: int  # of the answers in the CSV
    classes: list[str]  # all known classes
    identity: str  # of the CSV: the same when it is written again with newer answers
    content: str  # equal for equal answers
    gallery: FittedGallery | None
    no_gallery: str = ""  # why there is no gallery
    is_diverse: bool = False  # whether the first answers are chosen to differ from each other
    vectors: Mapping[str, Array] = field(default_factory=dict)  # of queries that were read already, by file


def review(
    table: Path,
    gallery_path: Path,
    limit: int,
    options: QueryOptions,
    *,
    is_named: bool,
    diverse_by: FileOf | None = None,
    progress: Progress = silent,
) -> ReviewReport:
    """Return the answers to check, the most doubtful first. Unless `is_named`, the gallery may be missing.

    With the files of the queries in `diverse_by`, the first answers are doubtful and differ from each other.
    """
    rows = _read_rows(table)
    gallery, why = _gallery(gallery_path, options, is_named=is_named)
    shown = sorted(rows, key=lambda numbered: _doubt_key(numbered[1]))
    vectors: dict[str, Array] = {}
    if diverse_by is not None:
        if gallery is None or gallery.recipe.kind != "pictures":
            reason = why or f"{gallery_path}: was built from features"
            raise UsageError(f"--order diverse compares images with a gallery of images; {reason}")
        shown, vectors = _put_diverse_first(shown, limit, gallery, diverse_by, options, progress)
    shown = shown[:limit]
    best, named = read_candidates(table, {number for number, _ in shown}, _CANDIDATES)
    answers = [ReviewItem(number, row, _candidates(row, best.get(number, []))) for number, row in shown]
    names = {name for _, row in rows for name in (row.label, row.runner_up) if name and name != UNKNOWN}
    names |= {name for answer in answers for name in answer.candidates}
    names.update(named, gallery.classes if gallery else [])
    return ReviewReport(
        answers=answers,
        total=len(rows),
        classes=sorted(names),
        identity=_identity(table),
        content=_content_digest(rows),
        gallery=gallery,
        no_gallery=why,
        is_diverse=diverse_by is not None,
        vectors=vectors,
    )


def _read_rows(table: Path) -> list[Numbered]:
    """Return the answers with their numbers, each file once, without unrelated files."""
    require_file(table, "give a predictions file written by `crnr classify`")
    start = b""
    with suppress(OSError), table.open("rb") as file:  # an error is reported below
        start = file.read(len(MAGIC))
    if other := "a Parquet file" if start == MAGIC else "JSON Lines" if start[:1] == b"{" else None:
        raise DataError(f"{table}: is {other}, but `crnr review` reads CSV; classify with -o out.csv")
    rows: dict[str, Numbered] = {}
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


def _identity(table: Path) -> str:
    return hashlib.sha256(os.fsencode(table.resolve())).hexdigest()[:32]


def _content_digest(rows: Sequence[Numbered]) -> str:
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


def _put_diverse_first(
    ordered: Sequence[Numbered],
    limit: int,
    gallery: FittedGallery,
    file_of: FileOf,
    options: QueryOptions,
    progress: Progress,
) -> tuple[list[Numbered], dict[str, Array]]:
    """Return the answers, the chosen ones first, and the vectors of the files that were read."""
    count = min(limit, _DIVERSE)
    pool = [(place, row) for place, (_, row) in enumerate(ordered[: _POOL * count]) if row.label]
    found = [(place, file) for place, row in pool if (file := file_of(row.path)) is not None]
    places, files = [place for place, _ in found], [file for _, file in found]
    vectors: dict[int, Array] = {}
    for part, recipe in _open_parts(_divide_by_cache(files, gallery, options), gallery, options):
        for queries, batch in _read_vectors(part, recipe, gallery, options):
            vectors.update(zip(queries, batch.values, strict=True))
            progress("comparing", len(vectors), len(files))
    readable = sorted(vectors)
    if not readable:
        return list(ordered), {}
    chosen = choose_diverse(np.stack([vectors[i] for i in readable]), count)
    first = [places[readable[i]] for i in chosen]
    others = sorted(set(range(len(ordered))).difference(first))
    return [ordered[place] for place in [*first, *others]], {files[i]: vectors[i] for i in readable}


def choose_diverse(vectors: Array, count: int) -> list[int]:
    """Return `count` of these unit vectors, given by falling doubt, that are doubtful and differ.

    A greedy k-centre search: the first is the most doubtful; each next one, of a pool of the most doubtful
    that grows with the choice, is the one whose nearest chosen vector is farthest. Takes one product of the
    matrix with a vector per choice.
    """
    nearest = np.full(len(vectors), -np.inf)  # the cosine with the nearest of the chosen
    chosen: list[int] = []
    while len(chosen) < min(count, len(vectors)):
        best = int(nearest[: _POOL * len(chosen) + 1].argmin())
        chosen.append(best)
        np.maximum(nearest, vectors @ vectors[best], out=nearest)
        nearest[chosen] = np.inf
    return chosen


class Supporters(NamedTuple):
    """The strongest samples by class, for each of several queries."""

    samples: list[Mapping[str, list[int]]]  # empty for an unreadable query
    note: str = ""  # why no samples are shown


def find_supporters(
    gallery: FittedGallery,
    files: Sequence[str],
    classes: Sequence[Sequence[str]],
    options: QueryOptions,
    known: Mapping[str, Array],
    progress: Progress = silent,
) -> Supporters:
    """Return the samples that most support these classes of each image; unknown classes have none.

    Files with `known` vectors are not read.
    """
    found: list[Mapping[str, list[int]]] = [{} for _ in files]
    if gallery.recipe.kind != "pictures":
        return Supporters(found, "the gallery was built from features")
    unread = [i for i, file in enumerate(files) if file not in known]
    parts = _divide_by_cache([files[i] for i in unread], gallery, options)
    try:
        opened = _open_parts(parts, gallery, options)
    except CrnrError as e:  # the model is missing or has changed
        return Supporters(found, str(e))
    place = {name: k for k, name in enumerate(gallery.classes)}
    spellings = Spellings(gallery.classes)
    done = 0

    def compare(queries: Sequence[int], vectors: Array) -> None:
        nonlocal done
        names = [[name for name in classes[query] if spellings.find(name)] for query in queries]
        places = [[place[spellings.spell(name)] for name in of_query] for of_query in names]
        strong = find_strongest_samples(gallery, vectors, places, _SAMPLES)
        for query, of_query, samples in zip(queries, names, strong, strict=True):
            found[query] = dict(zip(of_query, samples, strict=True))
        done += len(queries)
        progress("comparing", done, len(files))

    read = [i for i, file in enumerate(files) if file in known]
    for start in range(0, len(read), BATCH):
        some = read[start : start + BATCH]
        compare(some, np.stack([known[files[i]] for i in some]))
    for part, recipe in opened:
        for queries, batch in _read_vectors(part, recipe, gallery, options):
            compare([unread[query] for query in queries], batch.values)
    return Supporters(found)


class _Part(NamedTuple):
    """Some of the queries: those with features in the cache, or those that have to be decoded."""

    source: Images
    queries: list[int]  # the number of each


def _open_parts(
    parts: Sequence[_Part], gallery: FittedGallery, options: QueryOptions
) -> list[tuple[_Part, OpenRecipe]]:
    return [(part, open_recipe(gallery.recipe, part.source, options)) for part in parts]


def _divide_by_cache(files: Sequence[str], gallery: FittedGallery, options: QueryOptions) -> list[_Part]:
    source = list_named_images(files, options.box_margin)
    if options.cache is None:
        return [_Part(source, list(range(len(source))))] if files else []
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
    order = "doubtful and different ones" if report.is_diverse else "the most doubtful"
    return (
        f"{shown} of {format_count(report.total, 'answer')} are on the page, {order} first; "
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
