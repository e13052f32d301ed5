"""Samples that are held out of a gallery and labelled by the rest of it, to see how good the gallery is.

Copies of one sample are held out together, and one of them is asked: a copy that stayed in the gallery would
answer for the sample, which says nothing about new queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.methods.base import Samples, Split


def copies_of(rows: Array, hashes: Sequence[str] = ()) -> Array:
    """(n,): a number for every sample, the same for samples of equal values or of equal hashes."""
    seen: dict[object, int] = {}
    parents: list[int] = []  # the number of an earlier sample with the same content, or its own

    def root(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    for i, row in enumerate(rows):
        parents.append(i)
        contents: list[object] = [blake2b(row.tobytes(), digest_size=16).digest()]
        contents += [hashes[i]] if len(hashes) else []
        for content in contents:
            one, other = root(i), root(seen.setdefault(content, i))
            parents[max(one, other)] = min(one, other)
    return np.array([root(i) for i in range(len(parents))], dtype=np.int64)


def one_per_copies(class_index: Array, copies: Array) -> Array:
    """(n,): a mask with one sample of those that are copies of each other, in every class."""
    pairs = np.stack([class_index, copies], axis=1)
    mask = np.zeros(len(pairs), dtype=bool)
    mask[np.unique(pairs, axis=0, return_index=True)[1]] = True
    return mask


def stratified_folds(class_index: Array, count: int, seed: int = 0, copies: Array | None = None) -> Array:
    """The fold of every sample, 0 to count - 1, with each class spread evenly over them.

    Copies are in the same fold. If a class has no two different samples, they get -1: if they were held out,
    their class would be missing.
    """
    copies = np.arange(len(class_index)) if copies is None else copies
    rng = np.random.default_rng(seed)
    folds: dict[int, int] = {}  # by the number of the copies
    dealt = 0
    for k in np.unique(class_index):
        different = _in_order_of_first(copies[rng.permutation(np.flatnonzero(class_index == k))])
        if len(different) > 1:
            # Continue where the last class ended, so that all folds have about the same size.
            for position, group in enumerate(different, start=dealt):
                folds.setdefault(group, position % count)
            dealt += len(different)
        else:
            folds[different[0]] = -1
    for k in np.unique(class_index):  # copies in several classes may have brought a whole class into one fold
        groups = copies[class_index == k].tolist()
        if len({folds[group] for group in groups}) == 1:
            folds[groups[0]] = -1
    return np.array([folds[group] for group in copies.tolist()])


def held_out(class_index: Array, share: float, rng: np.random.Generator, copies: Array) -> Array:
    """A random mask with this share of every class, copies together; a class is never held out completely."""
    is_held: dict[int, bool] = {}
    for k in np.unique(class_index):
        different = _in_order_of_first(copies[rng.permutation(np.flatnonzero(class_index == k))])
        count = min(round(share * len(different)), len(different) - 1)
        for position, group in enumerate(different):
            is_held.setdefault(group, position < count)
    for k in np.unique(class_index):  # copies in several classes may have brought a whole class out
        groups = copies[class_index == k].tolist()
        if all(is_held[group] for group in groups):
            is_held[groups[0]] = False
    held = np.array([is_held[group] for group in copies.tolist()])
    if not held.any():
        raise UsageError(f"--holdout {share:g} leaves no sample to test with; hold out more, or give --test")
    return held


def _in_order_of_first(groups: Array) -> list[int]:
    return list(dict.fromkeys(groups.tolist()))


@dataclass(frozen=True)
class Fold(Split):
    """A split with the true classes of its queries."""

    truth: Array  # class index of every query

    @classmethod
    def of(cls, everything: Samples, is_held: Array, is_asked: Array) -> Fold:
        """From all samples, and masks; the queries are those held out that are to be asked."""
        vectors, class_index = everything.vectors, everything.class_index
        kept, asked = ~is_held, is_held & is_asked
        samples = Samples.of(vectors[kept], class_index[kept], everything.parts)
        return cls(samples, vectors[asked], class_index[asked])
