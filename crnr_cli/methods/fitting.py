"""Methods are fitted to samples and asked about queries: by whole vectors, or part by part.

Each part of the vectors is represented by the same part of the samples, independently of the others. The
residual of a class is the mean of its residuals over the parts. A blank part of a query, which is all zero,
has nothing to compare: its residuals are 0 for all classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from crnr_cli.arrays import Array, Values, dense
from crnr_cli.errors import DataError
from crnr_cli.methods.base import Method, Samples, Split, State
from crnr_cli.progress import Progress, silent
from crnr_cli.system import memory
from crnr_cli.wording import counted


def fitted(method: Method, samples: Samples) -> State:
    """The state of a method; DataError if there is too little memory, or the parameters are too extreme."""
    n, d = samples.vectors.shape
    memory.require(
        fit_bytes(method, samples),
        f"fitting {method.name} to {counted(n, 'sample')} of dimension {d}",
        f"use {'--neighbors, ' if method.supports_neighbors else ''}--pca or fewer samples",
    )
    try:
        with np.errstate(all="ignore"):  # what overflows gives no finite residuals, which is found later
            if samples.parts is None:
                return method.fit(samples)
            return {
                f"{key}.{number}": array
                for number in range(samples.n_parts)
                for key, array in method.fit(samples.part(number)).items()
            }
    except np.linalg.LinAlgError as e:
        given = ", ".join(f"{name} {value}" for name, value in method.parameters.items())
        raise DataError(
            f"{method.name} cannot be fitted to these samples with {given}: "
            "the matrix to invert is singular; choose less extreme parameters"
        ) from e


def indexed(method: Method, samples: Samples, progress: Progress = silent) -> State:
    """The index that finds neighbours faster, of every part its own; empty if the method has none."""
    if samples.parts is None:
        return method.make_index(samples, progress)
    return {
        f"{key}.{number}": array
        for number in range(samples.n_parts)
        for key, array in method.make_index(samples.part(number), progress).items()
    }


def fit_bytes(method: Method, samples: Samples) -> int:
    """About how much memory `fitted` needs at its peak."""
    if samples.parts is None:
        return method.fit_bytes(samples)
    return sum(method.fit_bytes(samples.part(number)) for number in range(samples.n_parts))


def states_of_parts(state: State, n_parts: int) -> list[State]:
    """The state of every part by itself."""
    states: list[State] = [{} for _ in range(n_parts)]
    for key, array in state.items():
        name, _, number = key.rpartition(".")
        states[int(number)][name] = array
    return states


def residuals(method: Method, samples: Samples, state: State, queries: Array) -> Values:
    """(m, K): the residual of each class for each query; the smallest wins. The mean over parts is dense."""
    if samples.parts is None:
        return method.residuals(samples, state, queries)
    total: Array = sum(part_residuals(method, samples, state, queries))  # type: ignore[assignment]
    total /= samples.n_parts
    return total


def part_residuals(method: Method, samples: Samples, state: State, queries: Array) -> Iterator[Array]:
    """(m, K), for one part after the other."""
    for number, of_part in enumerate(states_of_parts(state, samples.n_parts)):
        asked = samples.part_of(queries, number)
        found = dense(method.residuals(samples.part(number), of_part, asked))
        found[are_blank(asked)] = 0
        yield found


def residuals_in_batches(method: Method, split: Split, state: State) -> Iterator[Values]:
    """Of all queries of a split, so that memory does not grow with their number."""
    step = method.batch_size(split.samples)
    for start in range(0, len(split.queries), step):
        yield residuals(method, split.samples, state, split.queries[start : start + step])


def winners_after(method: Method, split: Split, iterations: Sequence[int]) -> Array:
    """(variants, m): the class that wins each query, for all variants of a method in one pass."""
    passes = (method.residuals_after(part, iterations) for part in split.parts)
    winners: list[Array] = []
    for batch, of_parts in zip(split.batches, zip(*passes, strict=True), strict=True):
        for part, found in zip(split.parts, of_parts, strict=True):
            found[:, are_blank(part.queries[batch])] = 0
        winners.append(sum(of_parts).argmin(axis=2))
    return np.concatenate(winners, axis=1)


def are_blank(rows: Array) -> Array:
    """(m,): which parts of queries have nothing to compare, and so say nothing about any class."""
    blank: Array = np.logical_not(np.any(rows, axis=1))
    return blank
