"""Which samples speak most for a class: those with the largest weights, or the nearest ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.methods import CodingMethod, Samples
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
            span = span_of(samples, k)
            values = [cosines[query, span]]
            if weights is not None:
                values.insert(0, np.maximum(weights[query, span], 0))
            of_query.append(largest(values, count, span.start))
        found.append(of_query)
    return found


def span_of(samples: Samples, class_number: int) -> slice:
    """Return where the samples of a class are."""
    return slice(int(samples.edges[class_number]), int(samples.edges[class_number + 1]))


def largest(values: Sequence[Array], count: int, first: int = 0) -> list[int]:
    """Return the places of the `count` largest values, counted from `first`; the first comes first of equals.

    Further arrays of values decide between places that are equal in those before.
    """
    order = np.lexsort([-one for one in reversed(values)])[:count]
    places: list[int] = (order + first).tolist()
    return places


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
