"""Find images of the same scene: one is a part of the other, mirrored, turned a little, or partly covered.

Candidates are the nearest samples by their vectors. A small version of one image is laid over the other in 40
ways, at every place where they share half of their area; details of the same scene agree at the best place.
Details are the rest of an image without its local brightness and contrast: colours and light do not matter,
and a cover costs its own area only.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.duplicates import SIDE, Looks, find_mirrored_pairs, nearest_pairs
from crnr_cli.progress import Progress, silent

_CANDIDATES = 10  # per sample: a cover may make other covered images more similar
_MIN_COSINE = 0.6  # of a candidate
_MIN_SIMILARITY = 0.55  # of details
_MIN_RATIO = 2.0  # of the similarity to the typical one of unrelated images: plain shapes look alike anywhere
_FEW = 8  # images
_UNRELATED = 100  # pairs to find the typical one
_ANGLES = (-10, -5, 0, 5, 10)  # degrees
_SIZES = (1.0, 0.9, 0.8, 0.7)  # of the image that is laid over the other
_WINDOW = 7  # pixels of the small image, for local brightness and contrast
_NOISE = 25.0  # variance of the brightness where there is no detail
_MIN_SHARED = 0.5  # of the area
_PADDED = SIDE + SIDE // 2  # images that are farther apart than half a side share too little
_LEAST_ENERGY = 1e-3


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


def details(images: Array) -> Array:
    """Return (m, SIDE, SIDE): images without their local brightness and contrast."""
    from scipy.ndimage import uniform_filter  # slow to import, and only audit needs it

    def local_mean(values: Array) -> Array:
        mean: Array = uniform_filter(values, (0, _WINDOW, _WINDOW), mode="nearest")
        return mean

    values = images.astype(np.float32)
    rest = values - local_mean(values)
    found: Array = rest / np.sqrt(local_mean(rest * rest) + np.float32(_NOISE))
    return found


class _Ways(NamedTuple):
    """The ways to lay one image over another: mirrored or not, turned, smaller."""

    pixels: Array  # (4, ways * SIDE * SIDE): the four pixels that each laid pixel is mixed from
    shares: Array  # (4, ways * SIDE * SIDE): their shares; 0 beyond the image
    covers: Array  # (ways, P, P / 2 + 1): the conjugate transform of the covered area
    is_shared: Array  # (ways, P, P): the places where enough area is shared
    is_mirrored: Array  # (ways,)


@cache
def _list_ways() -> _Ways:
    ways = list(product((1, -1), _ANGLES, _SIZES))
    centre = (SIDE - 1) / 2
    grid = np.moveaxis(np.indices((SIDE, SIDE)), 0, -1) - centre
    where: Array = np.empty((len(ways), SIDE, SIDE, 2))
    for number, (sign, angle, size) in enumerate(ways):
        cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        where[number] = grid @ np.array([[cosine, -sine], [sine, cosine]]) / size * (1, sign) + centre
    where = where.reshape(-1, 2)
    inside = ((where >= 0) & (where <= SIDE - 1)).all(axis=1)
    low = np.clip(where.astype(np.int64), 0, SIDE - 2)
    down, right = (where - low).T
    corners = list(product((0, 1), repeat=2))
    pixels = [(low[:, 0] + i) * SIDE + low[:, 1] + j for i, j in corners]
    shares = [(down if i else 1 - down) * (right if j else 1 - right) * inside for i, j in corners]
    covers = np.conj(_transform(inside.reshape(-1, SIDE, SIDE)))
    shared = _transform_back(_transform(np.ones((SIDE, SIDE))) * covers)
    return _Ways(
        np.stack(pixels),
        np.stack(shares).astype(np.float32),
        covers,
        shared >= _MIN_SHARED * SIDE**2 - 0.5,
        np.array([sign < 0 for sign, *_ in ways]),
    )


def overlay(over: Array, under: Array) -> tuple[Array, Array]:
    """Lay the details of one image over those of several.

    Return (m,) the correlation where both are, in the best way and at the best place, and (m,) whether the
    image is mirrored for it.
    """
    ways = _list_ways()
    laid = (over.reshape(-1)[ways.pixels] * ways.shares).sum(axis=0).reshape(-1, SIDE, SIDE)
    energy = _transform_back(_transform(np.ones((SIDE, SIDE))) * np.conj(_transform(laid * laid)))
    energy_under = _transform_back(_transform(under * under)[:, np.newaxis] * ways.covers)
    products = _transform_back(_transform(under)[:, np.newaxis] * np.conj(_transform(laid)))
    products /= np.sqrt(np.maximum(energy, _LEAST_ENERGY) * np.maximum(energy_under, _LEAST_ENERGY))
    best = np.where(ways.is_shared, products, -1).max(axis=(2, 3))
    chosen = best.argmax(axis=1)
    return best[np.arange(len(under)), chosen], ways.is_mirrored[chosen]


def _transform(images: Array) -> Array:
    from scipy.fft import rfft2

    found: Array = rfft2(images.astype(np.float32), (_PADDED, _PADDED))
    return found


def _transform_back(spectra: Array) -> Array:
    from scipy.fft import irfft2

    found: Array = irfft2(spectra, (_PADDED, _PADDED))
    return found
