"""Outliers: samples that look like no class, by the cosines of their vectors.

Residuals do not show them: a picture of something else altogether is represented badly by all classes, but so
are some ordinary samples. How near the nearest samples of a class are does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.progress import Progress, silent
from crnr_cli.solvers.search import product_blocks

_NEAREST = 3  # samples of a class that have to be near, so that one other outlier in it does not suffice
_FENCE = 1.5  # times the range between the quartiles: the usual fence of a box plot
_BLOCK = 2**24  # numbers in the products of one block


@dataclass(frozen=True)
class Outlier:
    sample: int
    similarity: float  # to the class that it is most like


def outliers(unit_vectors: Array, edges: Array, copies: Array, progress: Progress = silent) -> list[Outlier]:
    """Samples that are much less like any class than almost all others, the clearest first.

    Samples are ordered by class, whose bounds are `edges`; `copies` are numbers, the same for the same
    content.
    """
    found = similarity_to_classes(unit_vectors, edges, copies, progress)
    low, high = np.quantile(found, [0.25, 0.75])
    places = np.flatnonzero(found < low - _FENCE * (high - low))
    places = places[np.argsort(found[places], kind="stable")]
    return [Outlier(i, float(found[i])) for i in places.tolist()]


def similarity_to_classes(
    unit_vectors: Array, edges: Array, copies: Array, progress: Progress = silent
) -> Array:
    """(n,): the cosine with the third nearest sample of the class where that is highest.

    A class with fewer samples counts by its last. Copies of a sample do not speak for it.
    """
    n = len(unit_vectors)
    found = np.empty(n, dtype=np.float32)
    counts = np.diff(edges)
    step = max(1, _BLOCK // n)
    for start, products in product_blocks(unit_vectors, unit_vectors.T, step):
        these = slice(start, start + step)
        products[copies[these, None] == copies] = -np.inf
        nearest = np.maximum.reduceat(products, edges[:-1], axis=1)
        for _ in range(_NEAREST - 1):
            products[products == np.repeat(nearest, counts, axis=1)] = -np.inf
            following = np.maximum.reduceat(products, edges[:-1], axis=1)
            nearest = np.where(np.isfinite(following), following, nearest)
        found[these] = nearest.max(axis=1)
        progress("looking for outliers", min(start + step, n), n)
    return found
