"""Every sample of a gallery, answered by the other samples: cross-validation of the gallery itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from crnr_cli.arrays import Array, dense
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Samples
from crnr_cli.methods.folds import copies_of, held_out_residuals, stratified_folds
from crnr_cli.progress import Progress, silent

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
    found = np.full((len(samples.vectors), samples.n_classes), np.nan, dtype=samples.vectors.dtype)
    parts = held_out_residuals(
        samples,
        method,
        folds.fold_of,
        is_trusted=None if distrusted is None else ~distrusted,
        result_bytes=found.nbytes,
        jobs=jobs,
        progress=partial(progress, "comparing" if distrusted is None else "comparing again"),
    )
    for places, residuals in parts:
        found[places] = dense(residuals)
    return found
