"""Hold samples out of a gallery and classify them by the rest, to measure how good the gallery is.

Copies of one sample are held out together, and only one of them is classified: a copy that stayed in the
gallery would always match, which tells nothing about new queries. Photographs of one event are held out
together too, but all of them are classified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from hashlib import blake2b

import numpy as np

from crnr_cli.arrays import Array, Values, stack
from crnr_cli.errors import UsageError
from crnr_cli.images.events import join_groups
from crnr_cli.methods.base import (
    Method,
    RefittedSamples,
    Samples,
    Split,
    fit_bytes,
    fit_method,
    residuals_in_batches,
)
from crnr_cli.records import dataclass
from crnr_cli.system import memory
from crnr_cli.system.cores import pieces_at_once, run_side_by_side

_WORDS = 2**21  # words that are processed at once


def group_copies(rows: Array, hashes: Sequence[str] = ()) -> Array:
    """Return (n,): a number for every sample, the same for samples of equal values or of equal hashes."""
    first: dict[object, int] = {}
    parents = np.arange(len(rows))  # the number of an earlier sample with the same content, or its own

    def root(i: int) -> int:
        while parents[i] != i:
            i = int(parents[i])
        return i

    for i in _suspected_copies(rows, hashes):
        contents: list[object] = [blake2b(rows[i].tobytes(), digest_size=16).digest()]
        contents += [hashes[i]] if len(hashes) else []
        for content in contents:
            one, other = root(i), root(first.setdefault(content, i))
            parents[max(one, other)] = min(one, other)
    changed = np.flatnonzero(parents != np.arange(len(rows)))
    parents[changed] = [root(i) for i in changed.tolist()]
    return parents


def join_events(copies: Array, events: Array | None) -> Array:
    """Return (n,): a number for every sample, the same for samples that are held out together."""
    return copies if events is None else join_groups(copies.tolist(), events.tolist())


def _suspected_copies(rows: Array, hashes: Sequence[str]) -> list[int]:
    """Return all samples that have a copy, and hardly any other, in ascending order."""
    _, kinds, counts = np.unique(_keys(rows), return_inverse=True, return_counts=True)
    is_suspect = counts[kinds] > 1
    if len(hashes):
        _, kinds, counts = np.unique(_keys(np.asarray(hashes)), return_inverse=True, return_counts=True)
        is_suspect |= counts[kinds] > 1
    return np.flatnonzero(is_suspect).tolist()


def _keys(rows: Array) -> Array:
    """Return (n,): equal for equal rows, and for others with a probability of about 2 to the power of -60.

    These are the sums of the rows' words, each times a fixed random number, modulo 2 to the power of 64.
    """
    width = rows[:1].nbytes
    word = np.dtype(np.uint32 if width % 4 == 0 else np.uint8)
    factors = np.random.default_rng(0).integers(2**64, size=width // word.itemsize, dtype=np.uint64)
    keys = np.empty(len(rows), np.uint64)
    step = max(1, _WORDS // max(1, len(factors)))
    for start in range(0, len(rows), step):
        block = np.ascontiguousarray(rows[start : start + step])
        words = block.reshape(len(block), -1).view(word)
        keys[start : start + step] = np.einsum("nw,w->n", words, factors)
    return keys


def first_of_copies_mask(class_index: Array, copies: Array) -> Array:
    """Return (n,): a mask with one sample of each group of copies, in every class."""
    pairs = np.stack([class_index, copies], axis=1)
    mask = np.zeros(len(pairs), dtype=bool)
    mask[np.unique(pairs, axis=0, return_index=True)[1]] = True
    return mask


def stratified_folds(class_index: Array, count: int, seed: int = 0, copies: Array | None = None) -> Array:
    """Return the fold of every sample, 0 to count - 1, with each class spread evenly over the folds.

    Copies are in the same fold. The samples of a class without two different samples get -1: if they were
    held out, their class would be missing.
    """
    copies = np.arange(len(class_index)) if copies is None else copies
    turns = _ShuffledContents.of(class_index, copies, np.random.default_rng(seed))
    # Continue where the last class ended, so that all folds have about the same size.
    is_alone = turns.different == 1
    folds = turns.value_of_first_turn((np.cumsum(~is_alone) - 1) % count)
    folds[turns.contents[is_alone]] = -1
    # Copies in several classes may have brought a whole class into one fold.
    for contents in turns.of_classes(folds, lambda low, high: (low == high) & (low >= 0)):
        if len(np.unique(folds[contents])) == 1:
            folds[contents[0]] = -1
    return folds[turns.content_of]


def hold_out_share(class_index: Array, share: float, rng: np.random.Generator, copies: Array) -> Array:
    """Return a random mask with this share of every class; copies are held out together.

    A class is never held out completely.
    """
    turns = _ShuffledContents.of(class_index, copies, rng)
    # np.rint rounds as round() does: a half to the even number.
    counts = np.minimum(np.rint(share * turns.different), turns.different - 1)
    is_held = turns.value_of_first_turn(turns.positions < counts)
    # Copies in several classes may have taken out a whole class.
    for contents in turns.of_classes(is_held, lambda low, _: low):
        if is_held[contents].all():
            is_held[contents[0]] = False
    held: Array = is_held[turns.content_of]
    if not held.any():
        raise UsageError(f"--holdout {share:g} leaves no example to test with; hold out more, or give --test")
    return held


def hold_out_few(class_index: Array, count: int, copies: Array, seed: int = 0) -> Array:
    """Return a random mask with about `count` samples, spread over sorted classes by their sizes.

    Copies are held out together, and a class is never held out completely.
    """
    n = len(class_index)
    rng = np.random.default_rng(seed)
    shuffled = np.lexsort((rng.random(n), class_index))  # classes in order, each in random order
    taken = shuffled[((np.arange(count) + rng.random()) * n / count).astype(np.int64)]
    held: Array = np.isin(copies, copies[taken])
    left = np.bincount(class_index[~held], minlength=int(class_index.max()) + 1)
    firsts = np.searchsorted(class_index, np.flatnonzero(left == 0))
    return held & ~np.isin(copies, copies[firsts])


@dataclass(frozen=True)
class _ShuffledContents:
    """The different contents of every class, class by class, each class in a random order.

    There may be a million classes: only the shuffling is done class by class.
    """

    class_index: Array  # (n,), of the samples
    content_of: Array  # (n,): the number of each sample's content, from 0; the same for copies
    contents: Array  # (t,): the contents, in turn
    positions: Array  # (t,): the place within the class
    different: Array  # (t,): the number of different contents of the class

    @classmethod
    def of(cls, class_index: Array, copies: Array, rng: np.random.Generator) -> _ShuffledContents:
        numbers, content_of = np.unique(copies, return_inverse=True)
        order = np.argsort(class_index, kind="stable")
        starts = _starts(class_index[order])
        sizes = np.diff(starts, append=len(order))
        for start, size in np.column_stack([starts, sizes])[sizes > 1].tolist():
            rng.shuffle(order[start : start + size])
        pairs = class_index[order].astype(np.int64) * len(numbers) + content_of[order]
        first = np.sort(np.unique(pairs, return_index=True)[1])
        starts = _starts(class_index[order[first]])
        different = np.diff(starts, append=len(first))
        positions = np.arange(len(first)) - np.repeat(starts, different)
        return cls(
            class_index, content_of, content_of[order[first]], positions, np.repeat(different, different)
        )

    def value_of_first_turn(self, values: Array) -> Array:
        """Return, by content, the value of its first turn."""
        return values[np.unique(self.contents, return_index=True)[1]]

    def of_classes(self, values: Array, is_wanted: Callable[[Array, Array], Array]) -> Iterator[Array]:
        """Yield the contents of each wanted class, chosen by its smallest and largest value."""
        order = np.argsort(self.class_index, kind="stable")
        starts = _starts(self.class_index[order])
        if not len(starts):
            return
        of_samples = values[self.content_of[order]]
        low, high = np.minimum.reduceat(of_samples, starts), np.maximum.reduceat(of_samples, starts)
        stops = np.append(starts[1:], len(order))
        for k in np.flatnonzero(is_wanted(low, high)).tolist():
            yield self.content_of[order[starts[k] : stops[k]]]


def _starts(ordered: Array) -> Array:
    """Return where each run of equal numbers starts."""
    return np.unique(ordered, return_index=True)[1]


@dataclass(frozen=True, eq=False)
class Fold(Split):
    """A split with the true classes of its queries."""

    truth: Array  # class index of every query


def held_out_residuals(
    samples: Samples,
    method: Method,
    fold_of: Array,
    *,
    is_tested: Array | None = None,
    is_trusted: Array | None = None,
    result_bytes: int = 0,
    jobs: int,
    progress: Callable[[int, int], None],
) -> Iterator[tuple[Array, Values]]:
    """Yield, one fold at a time, the places of its samples and their residuals by the other folds.

    Samples with a fold below 0 are never held out. Of the others, the tested samples get residuals; samples
    that are not trusted are never used to classify others. Up to `jobs` folds are computed at the same time,
    if there is enough memory, `result_bytes` of which the caller needs.
    """
    everyone = np.ones(len(fold_of), dtype=bool)
    is_tested = everyone if is_tested is None else is_tested
    is_trusted = everyone if is_trusted is None else is_trusted

    def answer(number: int) -> tuple[Array, Values]:
        is_held = fold_of == number
        kept, places = ~is_held & is_trusted, np.flatnonzero(is_held & is_tested)
        vectors = samples.vectors_by(kept)
        rest = Samples.of(vectors[kept], samples.class_index[kept], samples.parts)
        split = Split(rest, vectors[places])
        return places, stack(list(residuals_in_batches(method, split, fit_method(method, rest))))

    copies = 6 if isinstance(samples, RefittedSamples) else 2
    needed = fit_bytes(method, samples) + copies * samples.vectors.nbytes
    memory.require_memory(
        needed + result_bytes, "holding examples out of the gallery", "use --pca or fewer examples"
    )
    threads = min(pieces_at_once(jobs), memory.room_for(needed))
    held = fold_of[(fold_of >= 0) & is_tested]
    done, total = 0, len(held)
    progress(0, total)
    with closing(run_side_by_side(answer, np.unique(held).tolist(), threads, wait=False)) as answered:
        for places, residuals in answered:
            yield places, residuals
            done += len(places)
            progress(done, total)
