"""Which samples speak most for a class: those with the largest weights, or the nearest ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.methods import CodingMethod
from crnr_cli.methods.fitting import states_of_parts


def strongest(
    gallery: Gallery, vectors: Array, classes: Sequence[Sequence[int]], count: int
) -> list[list[list[int]]]:
    """For each query and each of its classes, `count` samples of the class, the strongest first.

    Samples with the same weight, such as none, and those of methods without weights, go by their cosine.
    """
    samples = gallery.samples
    cosines = vectors @ samples.vectors.T
    weights = _weights(gallery, vectors)
    found = []
    for query, wanted in enumerate(classes):
        of_query = []
        for k in wanted:
            span = slice(int(samples.edges[k]), int(samples.edges[k + 1]))
            keys = [-cosines[query, span]]
            if weights is not None:
                keys.append(-np.maximum(weights[query, span], 0))
            of_query.append((np.lexsort(keys)[:count] + span.start).tolist())
        found.append(of_query)
    return found


def _weights(gallery: Gallery, vectors: Array) -> Array | None:
    """(m, n): the codes of the queries, with parts the means over them; None if the method has none."""
    method, samples = gallery.method, gallery.samples
    if not isinstance(method, CodingMethod):
        return None
    if samples.parts is None:
        return method.codes(samples, gallery.state, vectors)
    total: Array = np.zeros((len(vectors), len(samples.vectors)))
    for number, state in enumerate(states_of_parts(gallery.state, samples.n_parts)):
        total += method.codes(samples.part(number), state, samples.part_of(vectors, number))
    return total / samples.n_parts
