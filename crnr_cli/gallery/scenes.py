"""Find images of the same scene: one is a part of the other, mirrored, turned a little, or partly covered.

Candidates are the nearest samples by their vectors. A small version of one image is laid over the other in 30
ways; the details of the same scene agree at the best place.

Leaks are queries that are near duplicates of samples or show the same scene. Only the images of the most
similar queries are read for them, so the search takes little time, however many queries there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Batch
from crnr_cli.gallery.duplicates import (
    MIN_COSINE,
    MIN_COSINE_ALONE,
    NEIGHBOURS,
    SIDE,
    Looks,
    are_near,
    find_mirrored_pairs,
    nearest_pairs,
    read_small_images,
)
from crnr_cli.gallery.gallery import FittedGallery
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import Nearest
from crnr_cli.solvers.neighbors import find_nearest
from crnr_cli.solvers.overlay import details, overlay
from crnr_cli.wording import format_count

_CANDIDATES = 10  # per sample: a cover may make other covered images more similar
_MIN_COSINE = 0.6  # of a candidate
_MIN_SIMILARITY = 0.55  # of details
_MIN_RATIO = 2.0  # of the similarity to the typical one of unrelated images: plain shapes look alike anywhere
_FEW = 8  # images
_UNRELATED = 100  # pairs to find the typical one
# Of a query to its nearest sample. All cut, mirrored and turned copies of photographs reach it, and half of
# the covered ones.
_MIN_QUERY_COSINE = 0.8
MAX_COMPARED = 500  # queries, the most similar ones
_MAX_NEIGHBOURS = 500  # further samples, to see how alike other images are


class SameScene(NamedTuple):
    """Two samples, or a sample and one of others, that show the same scene."""

    one: int
    other: int
    similarity: float  # of their details, at most 1
    is_mirrored: bool


def find_same_scenes(
    looks: Looks, others: Looks | None = None, *, by_vectors: bool, progress: Progress = silent
) -> list[SameScene]:
    """Return pairs of images, the most similar first; the second is one of the others, if they are given.

    Vectors of a network are near if images show the same scene. Other vectors (`by_vectors` is false) only
    allow a search for whole images that are mirrored.
    """
    if not by_vectors:
        found = [SameScene(*pair, True) for pair in find_mirrored_pairs(looks, others, progress)]
    else:
        found = _find_by_vectors(looks, others, progress)
    return sorted(found, key=lambda pair: (-pair.similarity, pair.one, pair.other))


def _find_by_vectors(looks: Looks, others: Looks | None, progress: Progress) -> list[SameScene]:
    right = looks if others is None else others
    pairs = nearest_pairs(looks.vectors, right.vectors, _MIN_COSINE, others is None, progress, _CANDIDATES)
    pairs = np.unique(np.sort(pairs, axis=1) if others is None else pairs, axis=0)
    places = np.stack([looks.image_of[pairs[:, 0]], right.image_of[pairs[:, 1]]], axis=1)
    seen = (places >= 0).all(axis=1)
    pairs, places = pairs[seen], places[seen]
    if not len(pairs):
        return []
    is_same, similarity, is_mirrored = _compare_scenes(looks.images, right.images, places, progress)
    return [
        SameScene(int(pairs[i, 0]), int(pairs[i, 1]), float(similarity[i]), bool(is_mirrored[i]))
        for i in np.flatnonzero(is_same)
    ]


def _compare_scenes(
    images: Array, others: Array, places: Array, progress: Progress
) -> tuple[Array, Array, Array]:
    """Return (p,): whether pairs show the same scene, how similar they are, and whether one is mirrored."""
    left, right = details(images), details(others)
    similarity, is_mirrored = _overlay_pairs(left, right, places, progress)
    is_same = similarity >= _MIN_SIMILARITY
    if is_same.any():
        is_same &= similarity >= _MIN_RATIO * _typical_similarity(left, right)
    return is_same, similarity, is_mirrored


def _typical_similarity(left: Array, right: Array) -> float:
    """Return the lower quartile among unrelated images: some of the others may share a cover or a frame.

    Nothing is typical of a few images, which may all be of one scene.
    """
    if len(right) < _FEW:
        return 0.0
    one = np.linspace(0, len(left) - 1, min(_UNRELATED, len(left))).astype(np.int64)
    places = np.stack([one, (one + len(right) // 2) % len(right)], axis=1)
    return float(np.quantile(_overlay_pairs(left, right, places, silent)[0], 0.25))


def _overlay_pairs(left: Array, right: Array, places: Array, progress: Progress) -> tuple[Array, Array]:
    """Return (p,) the best similarity of each pair, and (p,) whether one is mirrored.

    Either image may be the part, so each is laid over the other.
    """
    similarity = np.full(len(places), -1.0, dtype=np.float32)
    is_mirrored = np.zeros(len(places), dtype=bool)
    for side, (over, under) in enumerate(((left, right), (right, left))):
        order = np.argsort(places[:, side], kind="stable")
        samples, starts = np.unique(places[order, side], return_index=True)
        for number, (sample, those) in enumerate(zip(samples, np.split(order, starts[1:]), strict=True)):
            found, mirrored = overlay(over[sample], under[places[those, 1 - side]])
            better = found > similarity[those]
            similarity[those[better]], is_mirrored[those[better]] = found[better], mirrored[better]
            progress("comparing scenes", side * len(samples) + number + 1, 2 * len(samples))
    return similarity, is_mirrored


def find_candidates(queries: Batch, gallery: FittedGallery, copies: Iterable[str]) -> list[Nearest]:
    """Return the queries of a batch that may be leaks, by their vectors, except for copies of samples."""
    vectors, samples = queries.values, gallery.samples.vectors
    if not len(vectors):
        return []
    places = find_nearest(samples.T, vectors.T, 1)[:, 0]
    nearest = samples[places]
    # A vector of parts is longer than 1.
    lengths = np.linalg.norm(nearest, axis=1) * np.linalg.norm(vectors, axis=1)
    cosines = np.einsum("md,md->m", nearest, vectors) / np.where(lengths > 0, lengths, 1)
    least = _MIN_QUERY_COSINE if gallery.recipe.has_network else MIN_COSINE
    names, known = [queries.names[row] for row in queries.rows.tolist()], set(copies)
    return [
        Nearest(float(cosines[i]), names[i], int(places[i]))
        for i in np.flatnonzero(cosines >= least).tolist()
        if names[i] not in known
    ]


@dataclass
class Leaks:
    """The most similar candidates among the queries, and later the leaks among them."""

    candidates: list[Nearest] = field(default_factory=list)  # at most MAX_COMPARED, the most similar first
    n_candidates: int = 0
    pairs: list[tuple[str, str]] = field(default_factory=list)  # a query and a sample, the most similar first

    def add(self, found: Sequence[Nearest]) -> None:
        self.n_candidates += len(found)
        both = [*self.candidates, *found]
        self.candidates = heapq.nsmallest(MAX_COMPARED, both, key=lambda one: (-one.cosine, one.query))

    def compare_images(self, gallery: FittedGallery, decoders: DecoderPool, max_pixels: int) -> None:
        """Find the leaks among the candidates; without the images, only a cosine close to 1 counts."""
        found = _without_tiny_images(self.candidates, decoders, max_pixels)
        if not found:
            return
        images, seen = read_small_images([one.query for one in found], None, decoders, max_pixels)
        nearest = np.array([one.sample for one in found])
        samples = _SampleImages(gallery, decoders, max_pixels)
        samples.read(nearest.tolist())
        is_leak = np.array([one.cosine >= MIN_COSINE_ALONE for one in found])
        image_of = np.full(len(found), -1)
        image_of[seen] = np.arange(len(seen))
        places = np.stack([image_of, samples.places(nearest.tolist())], axis=1)
        both = np.flatnonzero((places >= 0).all(axis=1))
        by_vectors = gallery.recipe.has_network
        is_leak[both] = _are_leaks(images, samples.images, places[both], by_vectors)
        again = both[is_leak[both]]
        if len(
            again
        ):  # plain shapes look alike: these pairs must stand out from neighbours of the sample too
            samples.read(_neighbours(gallery.samples.vectors, nearest[again]))
            is_leak[again] = _are_leaks(images, samples.images, places[again], by_vectors)
        self.pairs = [(found[i].query, gallery.names[nearest[i]]) for i in np.flatnonzero(is_leak).tolist()]

    def describe(self, n_queries: int, command: str) -> str:
        """Return a note on the leaks, with the command that lists them."""
        count, (query, sample) = len(self.pairs), self.pairs[0]
        what = "is a near duplicate of an example or shows"
        if count > 1:
            what = "are near duplicates of examples or show"
        left = self.n_candidates - len(self.candidates)
        rest = f" ({format_count(left, 'less similar query')} not compared)" if left else ""
        return (
            f"{count} of {format_count(n_queries, 'query')} {what} the same scene, such as {query} and "
            f"{sample}, so the scores are too high{rest}; `{command}` lists all"
        )


def _without_tiny_images(
    candidates: Sequence[Nearest], decoders: DecoderPool, max_pixels: int
) -> list[Nearest]:
    """Leave out queries smaller than the images that are compared: they have too few details."""
    request = PixelRequest(None, max_pixels=max_pixels, header_only=True)
    headers = decoders.decode([one.query for one in candidates], request)
    return [
        one
        for one, header in zip(candidates, headers, strict=True)
        if not isinstance(header, Pixels) or min(header.width, header.height) >= SIDE
    ]


def _neighbours(vectors: Array, samples: Array) -> list[int]:
    """Return the nearest samples of some samples, at most _MAX_NEIGHBOURS, the nearest of each first."""
    count = max(NEIGHBOURS + 1, _MAX_NEIGHBOURS // len(samples))
    by_rank = find_nearest(vectors.T, vectors[samples].T, count).T
    return list(dict.fromkeys(by_rank.ravel().tolist()))[:_MAX_NEIGHBOURS]


class _SampleImages:
    """Small images of some samples of a gallery; images that are gone or have changed are missing."""

    def __init__(self, gallery: FittedGallery, decoders: DecoderPool, max_pixels: int) -> None:
        self._gallery, self._decoders, self._max_pixels = gallery, decoders, max_pixels
        self._place_of: dict[int, int] = {}  # of a sample that was read; -1 without its image
        self.images = np.empty((0, SIDE, SIDE), np.uint8)

    def read(self, samples: Iterable[int]) -> None:
        """Read the images of samples that were not read before."""
        new = [sample for sample in dict.fromkeys(samples) if sample not in self._place_of]
        names, hashes = ([column[i] for i in new] for column in (self._gallery.names, self._gallery.hashes))
        images, seen = read_small_images(names, hashes, self._decoders, self._max_pixels)
        self._place_of |= dict.fromkeys(new, -1)
        self._place_of |= {new[i]: len(self.images) + row for row, i in enumerate(seen.tolist())}
        self.images = np.concatenate([self.images, images])

    def places(self, samples: Iterable[int]) -> Array:
        """Return the place of each sample's image, or -1."""
        return np.array([self._place_of[sample] for sample in samples], dtype=np.int64)


def _are_leaks(images: Array, others: Array, places: Array, by_vectors: bool) -> Array:
    """Return (p,): whether pairs of images are near duplicates or show the same scene."""
    if not len(places):
        return np.zeros(0, dtype=bool)
    is_leak = are_near(images, others, places)
    rest = np.flatnonzero(~is_leak)
    if not len(rest):
        return is_leak
    if by_vectors:
        is_leak[rest] = _compare_scenes(images, others, places[rest], silent)[0]
    else:
        is_leak[rest] = are_near(images[:, :, ::-1], others, places[rest])
    return is_leak
