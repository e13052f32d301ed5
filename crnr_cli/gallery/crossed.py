"""Every sample of a gallery, answered by the other samples: cross-validation of the gallery itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crnr_cli.arrays import Array, dense, stacked
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Samples, Split, fitted
from crnr_cli.methods.fitting import fit_bytes, residuals_in_batches
from crnr_cli.methods.folds import copies_of, stratified_folds
from crnr_cli.progress import Progress, silent
from crnr_cli.system import memory
from crnr_cli.system.cores import pieces_at_once, side_by_side

FOLDS = 10


@dataclass(frozen=True)
class Folds:
    """Samples that are held out together, and copies of each other."""

    fold_of: Array  # (n,); -1 for samples that cannot be held out, as their class would be missing
    copies: Array  # (n,): the same number for samples of the same content

    @classmethod
    def of(cls, samples: Samples, hashes: Sequence[str], count: int = FOLDS) -> Folds:
        copies = copies_of(samples.vectors, hashes)
        fold_of = stratified_folds(samples.class_index, count, copies=copies)
        if samples.n_classes < 2 or not (fold_of >= 0).any():
            raise DataError(
                "there must be two classes, and two different samples in one of them, "
                "so that samples can be compared with others; add samples"
            )
        return cls(fold_of, copies)

    @property
    def is_held(self) -> Array:
        """(n,): a mask of the samples that are held out at some time, and so have an answer."""
        held: Array = self.fold_of >= 0
        return held

    def distrusted(self, samples: Samples, doubtful: Array) -> Array:
        """A mask of the doubtful samples, except in classes of which too few others would be left."""
        mask = doubtful & self.is_held
        for start, stop in zip(samples.edges[:-1].tolist(), samples.edges[1:].tolist(), strict=True):
            left = ~mask[start:stop]
            folds = self.fold_of[start:stop][left]
            if 2 * left.sum() < stop - start or len(np.unique(folds)) < 2:
                mask[start:stop] = False
        return mask


def crossed(
    samples: Samples,
    method: Method,
    folds: Folds,
    distrusted: Array | None = None,
    jobs: int = 1,
    progress: Progress = silent,
) -> Array:
    """(n, K): the residuals of every sample, by a gallery without its fold; NaN if it is never held out.

    Samples that are `distrusted` are answered, but answer for no other. Up to `jobs` folds are answered at
    the same time, if there is enough memory.
    """
    vectors, class_index = samples.vectors, samples.class_index
    trusted = np.ones(len(vectors), dtype=bool) if distrusted is None else ~distrusted
    needed = fit_bytes(method, samples) + 2 * vectors.nbytes
    found = np.full((len(vectors), samples.n_classes), np.nan, dtype=vectors.dtype)
    memory.require(needed + found.nbytes, "holding samples out of the gallery", "use --pca or fewer samples")

    def answered(number: int) -> tuple[int, Array]:
        held = folds.fold_of == number
        kept = ~held & trusted
        split = Split(Samples.of(vectors[kept], class_index[kept], samples.parts), vectors[held])
        batches = residuals_in_batches(method, split, fitted(method, split.samples))
        return number, dense(stacked(list(batches)))

    threads = min(pieces_at_once(jobs), memory.room_for(needed))
    total, done = int(folds.is_held.sum()), 0
    step = "comparing" if distrusted is None else "comparing again"
    progress(step, 0, total)
    numbers = np.unique(folds.fold_of[folds.is_held]).tolist()
    for number, part in side_by_side(answered, numbers, threads, wait=False):
        found[folds.fold_of == number] = part
        done += len(part)
        progress(step, done, total)
    return found
