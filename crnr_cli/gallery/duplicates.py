"""Find near duplicates: the same image recompressed, resized, cut by a few percent, or brightened.

Candidates are the nearest samples by the cosine of their vectors, and by the perceptual hashes of the images.
The images confirm or refute them: they must be much more alike than each of them is to others, because all
images of a plain shape look alike. Without the images, only a cosine close to 1 counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import SampleError
from crnr_cli.images.pixels import MAX_PIXELS, PixelRequest
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.solvers.neighbors import product_blocks

_CANDIDATES = 5  # per sample, by the vectors and by the hashes
_BLOCK = 2**24  # values in the products of one block
_PAIRS = 2048  # images compared at a time
MIN_COSINE = 0.95  # of a candidate
_MIN_HASH_COSINE = 1 - 2 * 8 / 64  # of a candidate by its hash: at most 8 of 64 bits differ
_MIN_ROUGH = 0.7  # correlation without any cut
_SAME = 0.995  # likeness that is enough, whatever others look like
_MIN_LIKENESS = 0.965
NEIGHBOURS = 10  # the rank of the neighbour that shows how alike other images are
_MAX_RATIO = 0.12  # of 1 - likeness to 1 - the correlation with that neighbour
MIN_COSINE_ALONE = 0.995  # without images
SIDE = 32
_LOW = 8  # frequencies of the hash, in each direction
_CUTS = (0.01, 0.02, 0.03, 0.04)  # shares of a side that may have been cut off
_SWEEPS = 2


@dataclass(frozen=True)
class Looks:
    """The unit vectors of samples, and small versions of the images that exist."""

    vectors: Array  # (n, d), rows of unit length
    images: Array  # (m, SIDE, SIDE)
    image_of: Array  # (n,): the place of a sample's image, or -1

    @classmethod
    def of(cls, vectors: Array, images: Array | None = None, places: Array | None = None) -> Looks:
        image_of = np.full(len(vectors), -1, dtype=np.int64)
        if images is None or places is None:
            return cls(_unit(vectors), np.empty((0, SIDE, SIDE), np.uint8), image_of)
        image_of[places] = np.arange(len(places))
        return cls(_unit(vectors), images, image_of)

    @property
    def with_images(self) -> Array:
        """The samples that have an image, in the order of the images."""
        return np.flatnonzero(self.image_of >= 0)

    def pick(self, chosen: Array) -> Looks:
        """Return only some samples, by their places in ascending order."""
        here = self.image_of[chosen]
        return Looks.of(self.vectors[chosen], self.images[here[here >= 0]], np.flatnonzero(here >= 0))


def read_looks(
    vectors: Array,
    names: Sequence[str],
    hashes: Sequence[str],
    decoders: DecoderPool,
    max_pixels: int = MAX_PIXELS,
) -> Looks:
    """Return the looks of samples, with the images whose content is unchanged."""
    return Looks.of(vectors, *read_small_images(names, hashes, decoders, max_pixels))


def find_near_pairs(looks: Looks, others: Looks | None = None, progress: Progress = silent) -> Array:
    """Return (p, 2): pairs of near duplicates, the first below the second.

    With `others`, the second of each pair is one of the others.
    """
    within = others is None
    right = looks if others is None else others
    found = [nearest_pairs(looks.vectors, right.vectors, MIN_COSINE, within, progress)]
    if len(looks.images) and len(right.images):
        hashes = perceptual_hashes(looks.images) / 8, perceptual_hashes(right.images) / 8
        by_hash = nearest_pairs(*hashes, _MIN_HASH_COSINE, within, progress)
        found.append(np.stack([looks.with_images[by_hash[:, 0]], right.with_images[by_hash[:, 1]]], axis=1))
    pairs = np.unique(_sort_pairs(np.concatenate(found), within), axis=0)
    places = np.stack([looks.image_of[pairs[:, 0]], right.image_of[pairs[:, 1]]], axis=1)
    seen = (places >= 0).all(axis=1)
    is_near = np.zeros(len(pairs), dtype=bool)
    if seen.any():
        is_near[seen] = are_near(looks.images, right.images, places[seen], within, progress)
    left, opposite = looks.vectors[pairs[~seen, 0]], right.vectors[pairs[~seen, 1]]
    is_near[~seen] = np.einsum("pd,pd->p", left, opposite) >= MIN_COSINE_ALONE
    return pairs[is_near]


def find_mirrored_pairs(
    looks: Looks, others: Looks | None = None, progress: Progress = silent
) -> list[tuple[int, int, float]]:
    """Return pairs like `find_near_pairs`, one of which is mirrored, with their likeness."""
    within = others is None
    right = looks if others is None else others
    mirrored = looks.images[:, :, ::-1]
    if not len(mirrored) or not len(right.images):
        return []
    hashes = perceptual_hashes(mirrored) / 8, perceptual_hashes(right.images) / 8
    pairs = nearest_pairs(*hashes, _MIN_HASH_COSINE, within, progress)
    pairs = np.unique(_sort_pairs(pairs, within), axis=0)
    one, other = pairs.T
    same = are_near(mirrored, right.images, pairs, progress=progress)
    found = likeness(mirrored[one[same]], right.images[other[same]])
    return list(
        zip(
            looks.with_images[one[same]].tolist(),
            right.with_images[other[same]].tolist(),
            found.tolist(),
            strict=True,
        )
    )


def are_near(
    images: Array, others: Array, places: Array, within: bool = False, progress: Progress = silent
) -> Array:
    """Return (p,): whether pairs of an image and another are much more alike than either is to other images.

    `within` means that both are the same images.
    """
    one, other = places.T
    found = _likeness_of_pairs(images, others, places, progress)
    is_near: Array = found >= _SAME
    # The distance from other images takes long, and only matters between the bounds of the likeness.
    is_open = np.flatnonzero((found >= _MIN_LIKENESS) & ~is_near)
    if len(is_open):
        one, other = one[is_open], other[is_open]
        far = np.minimum(
            _to_neighbour(images, others, within, one), _to_neighbour(others, others, True, other)
        )
        is_near[is_open] = found[is_open] >= _required_likeness(far)
    return is_near


def _sort_pairs(pairs: Array, within: bool) -> Array:
    """Return pairs with the smaller number first, if both numbers count the same samples."""
    return np.sort(pairs, axis=1) if within else pairs


def group_pairs(pairs: Array) -> list[list[int]]:
    """Return groups of samples that are connected by pairs, directly or through others."""
    parents = {sample: sample for sample in np.unique(pairs).tolist()}

    def root(sample: int) -> int:
        while parents[sample] != sample:
            parents[sample] = parents[parents[sample]]  # shortens the path for the next time
            sample = parents[sample]
        return sample

    for one, other in pairs.tolist():
        first, second = sorted((root(one), root(other)))
        parents[second] = first
    groups: dict[int, list[int]] = {}
    for sample in parents:
        groups.setdefault(root(sample), []).append(sample)
    return sorted(groups.values())


def find_exact_copies(hashes: Sequence[str]) -> list[list[int]]:
    """Return groups of samples with the same content."""
    by_hash: dict[str, list[int]] = {}
    for sample, digest in enumerate(hashes):
        by_hash.setdefault(digest, []).append(sample)
    return [group for group in by_hash.values() if len(group) > 1]


def nearest_pairs(
    one: Array,
    other: Array,
    at_least: float,
    within: bool,
    progress: Progress,
    most: int = _CANDIDATES,
) -> Array:
    """Return (p, 2): for every row of the first, the `most` nearest rows of the other above `at_least`.

    The products are computed block by block, so memory does not grow with the number of pairs.
    """
    found = [np.empty((0, 2), dtype=np.int64)]
    step = max(1, _BLOCK // max(1, len(other)))
    for start, products in product_blocks(one, other.T, step):
        rows = np.arange(len(products))
        if within:
            products[rows, start + rows] = -np.inf
        here, columns = _largest_above(products, at_least, most)
        found.append(np.stack([start + here, columns], axis=1))
        progress("looking for duplicates", min(start + step, len(one)), len(one))
    return np.concatenate(found)


def _largest_above(products: Array, at_least: float, most: int) -> tuple[Array, Array]:
    """Return the rows and the columns of the largest products of each row, at most `most`, above a bound."""
    rows, columns = np.nonzero(products >= at_least)
    counts = np.bincount(rows, minlength=len(products))
    many = np.flatnonzero(counts > most)  # hardly any: ordering all products would take longer than computing
    few = counts[rows] <= most
    largest = np.argpartition(products[many], -most, axis=1)[:, -most:] if len(many) else many
    return np.concatenate([rows[few], np.repeat(many, most)]), np.concatenate([columns[few], largest.ravel()])


def _to_neighbour(images: Array, others: Array, within: bool, places: Array) -> Array:
    """Return (p,): 1 - the correlation of the images at these places with their tenth nearest; 1 if there
    are fewer.
    """
    rows, where = np.unique(places, return_inverse=True)
    one, other = (standardize(some).reshape(len(some), SIDE * SIDE) for some in (images[rows], others))
    found = np.ones(len(one), dtype=np.float32)
    rank = NEIGHBOURS + within  # each image is its own nearest
    if len(other) >= rank:
        step = max(1, _BLOCK // len(other))
        for start, products in product_blocks(one, other.T, step):
            found[start : start + step] = 1 - np.partition(products, -rank, axis=1)[:, -rank]
    return found[where]


def _likeness_of_pairs(images: Array, others: Array, places: Array, progress: Progress) -> Array:
    """Return (p,): the likeness of each pair, or its correlation without cuts where that decides."""
    found = np.empty(len(places), dtype=np.float32)
    for start in range(0, len(places), _PAIRS):
        these = slice(start, start + _PAIRS)
        one, other = images[places[these, 0]], others[places[these, 1]]
        rough = correlation(one, other)
        is_open = (rough >= _MIN_ROUGH) & (rough < _SAME)
        rough[is_open] = np.maximum(rough[is_open], likeness(one[is_open], other[is_open]))
        found[these] = rough
        progress("comparing images", min(start + _PAIRS, len(places)), len(places))
    return found


def _required_likeness(far: Array) -> Array:
    """Return (p,): the likeness that a pair needs."""
    return np.clip(1 - _MAX_RATIO * far, _MIN_LIKENESS, _SAME)


def _unit(vectors: Array) -> Array:
    """Return vectors of length 1, for cosines: a vector of parts is longer."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: Array = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return unit


def read_small_images(
    paths: Sequence[str], hashes: Sequence[str] | None, decoders: DecoderPool, max_pixels: int = MAX_PIXELS
) -> tuple[Array, Array]:
    """Return (m, SIDE, SIDE) bytes of the images that still have these SHA-256, and (m,) their places.

    Without `hashes`, the content may be any.
    """
    has_hash = hashes is not None
    request = PixelRequest((SIDE, SIDE), max_pixels=max_pixels, with_hash=has_hash, eight_bit=True)
    places: list[int] = []
    found = [np.empty((0, SIDE, SIDE), np.uint8)]
    for i, pixels in enumerate(decoders.decode(paths, request)):
        if not isinstance(pixels, SampleError) and (hashes is None or pixels.sha256 == hashes[i]):
            places.append(i)
            found.append(np.frombuffer(pixels.data, np.uint8).reshape(1, SIDE, SIDE))
    return np.concatenate(found), np.array(places, dtype=np.int64)


def perceptual_hashes(images: Array) -> Array:
    """Return (m, 64) of -1 and 1: whether each of the lowest frequencies is above their median."""
    # The first rows of a discrete cosine transform (DCT-II).
    cosines = np.cos(np.pi / SIDE * np.outer(np.arange(_LOW), np.arange(SIDE) + 0.5))
    low = (cosines @ images.astype(np.float64) @ cosines.T).reshape(-1, _LOW * _LOW)
    above = low > np.median(low, axis=1, keepdims=True)
    return np.where(above, 1, -1).astype(np.float32)


def correlation(one: Array, other: Array) -> Array:
    """Return (m,): the correlation of pairs of small images, without cuts."""
    found: Array = np.einsum("nij,nij->n", standardize(one), standardize(other))
    return found


def likeness(one: Array, other: Array) -> Array:
    """Return (m,): the correlation of pairs of small images, at most 1, at the best cut of either image."""
    return np.maximum(_cut_to_fit(one, other), _cut_to_fit(other, one))


def _cut_to_fit(cut: Array, whole: Array) -> Array:
    """Return the best correlation when the first of each pair is cut, along one axis, then the other."""
    cut, target = cut.astype(np.float32), standardize(whole)
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
                found = np.einsum("nij,nij->n", standardize(tried), target)
                better = found > best
                best[better], ways[axis, better] = found[better], way
    return best


def _ends() -> list[tuple[float, float]]:
    """Return the shares to cut off at the beginning and the end of an axis."""
    return [(0.0, 0.0), *(ends for cut in _CUTS for ends in ((cut, 0.0), (0.0, cut), (cut / 2, cut / 2)))]


def _cutting(begin: float, end: float) -> Array:
    """Return (SIDE, SIDE): a matrix that cuts off these shares of an axis and stretches the rest."""
    places = SIDE * (begin + (np.arange(SIDE) + 0.5) / SIDE * (1 - begin - end)) - 0.5
    places = np.clip(places, 0, SIDE - 1)
    before = np.minimum(places.astype(np.int64), SIDE - 2)
    matrix = np.zeros((SIDE, SIDE), dtype=np.float32)
    rows = np.arange(SIDE)
    matrix[rows, before] = 1 - (places - before)
    matrix[rows, before + 1] = places - before
    return matrix


def standardize(images: Array) -> Array:
    """Return images with mean 0 and length 1, so that the product of two is their correlation."""
    images = images.astype(np.float32)
    centred = images - images.mean(axis=(1, 2), keepdims=True)
    lengths = np.sqrt(np.einsum("nij,nij->n", centred, centred))
    scaled: Array = centred / np.maximum(lengths, 1e-6)[:, None, None]
    return scaled
