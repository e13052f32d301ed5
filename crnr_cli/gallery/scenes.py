"""Find images of the same scene: one is a part of the other, mirrored, turned a little, or partly covered.

Candidates are the nearest samples by their vectors. A small version of one image is laid over the other in 40
ways; the details of the same scene agree at the best place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.duplicates import Looks, find_mirrored_pairs, nearest_pairs
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers.overlay import details, overlay

_CANDIDATES = 10  # per sample: a cover may make other covered images more similar
_MIN_COSINE = 0.6  # of a candidate
_MIN_SIMILARITY = 0.55  # of details
_MIN_RATIO = 2.0  # of the similarity to the typical one of unrelated images: plain shapes look alike anywhere
_FEW = 8  # images
_UNRELATED = 100  # pairs to find the typical one


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
        found = [SameScene(*pair, True) for pair in find_mirrored_pairs(looks, others)]
    else:
        found = _find_by_vectors(looks, others, progress)
    return sorted(found, key=lambda pair: (-pair.similarity, pair.one, pair.other))


def _find_by_vectors(looks: Looks, others: Looks | None, progress: Progress) -> list[SameScene]:
    right = looks if others is None else others
    pairs = nearest_pairs(looks.vectors, right.vectors, _MIN_COSINE, others is None, silent, _CANDIDATES)
    pairs = np.unique(np.sort(pairs, axis=1) if others is None else pairs, axis=0)
    places = np.stack([looks.image_of[pairs[:, 0]], right.image_of[pairs[:, 1]]], axis=1)
    seen = (places >= 0).all(axis=1)
    pairs, places = pairs[seen], places[seen]
    if not len(pairs):
        return []
    left, opposite = details(looks.images), details(right.images)
    least = max(_MIN_SIMILARITY, _MIN_RATIO * _typical_similarity(left, opposite))
    similarity, is_mirrored = _overlay_pairs(left, opposite, places, progress)
    return [
        SameScene(int(pairs[i, 0]), int(pairs[i, 1]), float(similarity[i]), bool(is_mirrored[i]))
        for i in np.flatnonzero(similarity >= least)
    ]


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
