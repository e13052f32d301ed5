"""Whether two pictures show the same, by small grey versions of them: perceptual hashes and correlation.

The hash finds candidates fast. A candidate is confirmed if the small pictures are equal up to brightness and
contrast, after a few percent of one of them may have been cut off at its sides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import SampleError
from crnr_cli.pictures.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.pictures.pool import DecoderPool

SIDE = 32
_LOW = 8  # frequencies of the hash, in each direction
_CUTS = (0.01, 0.02, 0.03, 0.04)  # shares of a side that may have been cut off
_SWEEPS = 2


def small_pictures(
    paths: Sequence[str], hashes: Sequence[str], decoders: DecoderPool, max_pixels: int = MAX_PIXELS
) -> tuple[Array, Array]:
    """(m, SIDE, SIDE) bytes of the pictures that still have these SHA-256, and (m,) their places."""
    request = PixelRequest((SIDE, SIDE), max_pixels=max_pixels, with_hash=True, eight_bit=True)
    places: list[int] = []
    found = [np.empty((0, SIDE, SIDE), np.uint8)]
    for i, pixels in enumerate(decoders.decode(paths, request)):
        if not isinstance(pixels, SampleError) and pixels.sha256 == hashes[i]:
            places.append(i)
            found.append(np.frombuffer(pixels.data, np.uint8).reshape(1, SIDE, SIDE))
    return np.concatenate(found), np.array(places, dtype=np.int64)


def perceptual_hashes(pictures: Array) -> Array:
    """(m, 64) of -1 and 1: whether each of the lowest frequencies is above their median."""
    # The first rows of a discrete cosine transform (DCT-II).
    cosines = np.cos(np.pi / SIDE * np.outer(np.arange(_LOW), np.arange(SIDE) + 0.5))
    low = (cosines @ pictures.astype(np.float64) @ cosines.T).reshape(-1, _LOW * _LOW)
    above = low > np.median(low, axis=1, keepdims=True)
    return np.where(above, 1, -1).astype(np.float32)


def correlation(one: Array, other: Array) -> Array:
    """(m,): that of pairs of small pictures as they are."""
    found: Array = np.einsum("nij,nij->n", standardized(one), standardized(other))
    return found


def likeness(one: Array, other: Array) -> Array:
    """(m,): the correlation of pairs of small pictures, at most 1, at the best cut of either of them."""
    return np.maximum(_cut_to_fit(one, other), _cut_to_fit(other, one))


def _cut_to_fit(cut: Array, whole: Array) -> Array:
    """The best correlation as the first of each pair is cut: along one axis, then along the other."""
    cut, target = cut.astype(np.float32), standardized(whole)
    matrices = np.array([_cutting(*ends) for ends in _ends()])
    ways = np.zeros((2, len(cut)), dtype=np.int64)  # the chosen matrix by axis; 0 cuts nothing
    best = np.full(len(cut), -np.inf, dtype=np.float32)
    for _ in range(_SWEEPS):
        for axis in (0, 1):
            others = matrices[ways[1 - axis]]
            # Columns are cut by a product from the right, rows by one from the left.
            half = cut @ others.transpose(0, 2, 1) if axis == 0 else others @ cut
            for way, matrix in enumerate(matrices):
                tried = matrix @ half if axis == 0 else half @ matrix.T
                found = np.einsum("nij,nij->n", standardized(tried), target)
                better = found > best
                best[better], ways[axis, better] = found[better], way
    return best


def _ends() -> list[tuple[float, float]]:
    """What is cut off at the beginning and the end of an axis."""
    return [(0.0, 0.0), *(ends for cut in _CUTS for ends in ((cut, 0.0), (0.0, cut), (cut / 2, cut / 2)))]


def _cutting(begin: float, end: float) -> Array:
    """(SIDE, SIDE): a matrix that cuts off these shares of an axis and stretches the rest."""
    places = SIDE * (begin + (np.arange(SIDE) + 0.5) / SIDE * (1 - begin - end)) - 0.5
    places = np.clip(places, 0, SIDE - 1)
    before = np.minimum(places.astype(np.int64), SIDE - 2)
    matrix = np.zeros((SIDE, SIDE), dtype=np.float32)
    rows = np.arange(SIDE)
    matrix[rows, before] = 1 - (places - before)
    matrix[rows, before + 1] = places - before
    return matrix


def standardized(pictures: Array) -> Array:
    """With mean 0 and length 1, so that the product of two is their correlation."""
    pictures = pictures.astype(np.float32)
    centred = pictures - pictures.mean(axis=(1, 2), keepdims=True)
    lengths = np.sqrt(np.einsum("nij,nij->n", centred, centred))
    scaled: Array = centred / np.maximum(lengths, 1e-6)[:, None, None]
    return scaled
