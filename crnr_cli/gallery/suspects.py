"""What looks wrong in a gallery, by the residuals of its samples, each answered by the others.

The score of a sample compares the class that it is said to have with the best other class. A label looks
wrong if the other class wins and leads at least half as far as it usually does for its own samples: a close
race between two classes says little about the label.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.gallery.crossed import Folds, crossed
from crnr_cli.gallery.strongest import largest, span_of
from crnr_cli.methods import Method, Samples
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import margins

_USUAL = 0.5  # of the median margin of a class
_SUPPORTERS = 3
_FEW = 5  # different samples: a class with fewer is small
_ALIKE = 0.1  # share of the samples of two classes that are taken for the other


@dataclass(frozen=True)
class Suspect:
    """A sample whose label looks wrong."""

    sample: int
    suggested: int  # class
    score: float  # 0 to 1: how much better the suggested class represents it
    supporters: list[int]  # samples of the suggested class that are most similar to it


@dataclass(frozen=True)
class AlikeClasses:
    """Two classes, some of whose samples are taken for the other."""

    classes: tuple[int, int]
    confused: tuple[int, int]  # samples of the first taken for the second, and of the second for the first
    share: float  # of the samples of both that have an answer


def doubts(residuals: Array, class_index: Array, signed: bool) -> tuple[Array, Array]:
    """(n,), (n,): the score of every sample, above 0 if another class wins, and the best other class.

    The score is NaN for samples that have no answer.
    """
    rows = np.arange(len(class_index))
    others = residuals.astype(np.float64)
    own = others[rows, class_index].copy()
    others[rows, class_index] = np.inf
    best = np.argmin(np.where(np.isnan(others), np.inf, others), axis=1)
    return margins(others[rows, best], own, signed), best


def answers_of(
    samples: Samples, method: Method, folds: Folds, jobs: int = 1, progress: Progress = silent
) -> Array:
    """(n, K): residuals by galleries in which only labels are left that the others agree with.

    A wrong label among the samples speaks for its wrong class, and so hides others of its kind.
    """
    first = crossed(samples, method, folds, jobs=jobs, progress=progress)
    score, _ = doubts(first, samples.class_index, method.signed)
    distrusted = folds.distrusted(samples, score > 0)
    if not distrusted.any():
        return first
    return crossed(samples, method, folds, distrusted, jobs, progress)


def suspects(residuals: Array, samples: Samples, signed: bool) -> list[Suspect]:
    """All samples whose labels look wrong, the clearest first."""
    class_index = samples.class_index
    score, other = doubts(residuals, class_index, signed)
    agreed = score <= 0
    usual = np.full(samples.n_classes, np.inf)  # how far a class leads, if it wins and the label says so too
    for k, (start, stop) in enumerate(pairwise(samples.edges.tolist())):
        own = start + np.flatnonzero(agreed[start:stop])
        if len(own):
            usual[k] = np.median(lead(residuals[own], signed))
    found = np.flatnonzero(score > 0)
    wins = lead(residuals[found], signed) >= _USUAL * usual[other[found]]
    found = found[wins]
    found = found[np.argsort(-score[found], kind="stable")]
    return [
        Suspect(i, int(other[i]), float(score[i]), _nearest(samples, i, int(other[i])))
        for i in found.tolist()
    ]


def lead(residuals: Array, signed: bool) -> Array:
    """(m,): the margin between the best class and the second best."""
    two = np.partition(residuals.astype(np.float64), 1, axis=1)[:, :2]
    return margins(two[:, 0], two[:, 1], signed)


def _nearest(samples: Samples, sample: int, of_class: int) -> list[int]:
    span = span_of(samples, of_class)
    similarity = samples.vectors[span] @ samples.vectors[sample]
    return largest([similarity], _SUPPORTERS, span.start)


def small_classes(samples: Samples, copies: Array) -> list[tuple[int, int]]:
    """Classes with few different samples, and how many they have."""
    edges = zip(samples.edges[:-1].tolist(), samples.edges[1:].tolist(), strict=True)
    counts = [len(np.unique(copies[start:stop])) for start, stop in edges]
    return [(k, count) for k, count in enumerate(counts) if count < _FEW]


def alike_classes(residuals: Array, class_index: Array) -> list[AlikeClasses]:
    """Pairs of classes that are often taken for each other, the worst first."""
    answered = ~np.isnan(residuals).any(axis=1)
    truth, label = class_index[answered], residuals[answered].argmin(axis=1)
    counts = np.bincount(truth, minlength=residuals.shape[1])
    pairs, times = np.unique(np.stack([truth, label])[:, truth != label], axis=1, return_counts=True)
    confused = {(int(a), int(b)): int(n) for (a, b), n in zip(pairs.T, times, strict=True)}
    found = []
    for one, two in sorted({(min(pair), max(pair)) for pair in confused}):
        both = (confused.get((one, two), 0), confused.get((two, one), 0))
        share = sum(both) / int(counts[one] + counts[two])
        if sum(both) > 1 and share >= _ALIKE:
            found.append(AlikeClasses((one, two), both, share))
    return sorted(found, key=lambda pair: -pair.share)
