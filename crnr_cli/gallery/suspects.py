"""Find wrong labels and outliers in a gallery, by the residuals of held-out samples.

The score of a sample compares its labelled class with the best other class. A label looks wrong if the other
class wins and leads at least half as far as it usually does for its own samples: a close race between two
classes tells little about the label.

In a large gallery, each sample is first represented by its nearest samples alone. Only the most doubtful
labels are compared again, by all samples, and a few typical ones to see how far a class usually leads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from crnr_cli.arrays import Array, find_largest, to_dense
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Neighbors, Samples
from crnr_cli.methods.by_neighbors import LocalMethod
from crnr_cli.methods.folds import (
    group_copies,
    held_out_residuals,
    hold_out_few,
    join_events,
    stratified_folds,
)
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import margins
from crnr_cli.solvers.neighbors import product_blocks, rounding_of_products

_USUAL = 0.5  # of the median margin of a class
_SUPPORTERS = 3
_CANDIDATES = 5  # classes to choose from
_FEW = 5  # different samples: a class with fewer is small
_ALIKE = 0.1  # share of the samples of two classes that are confused with the other class
FOLDS = 10
_NEAREST = 3  # near samples of a class that a sample needs, so that one other outlier in it is not enough
_FENCE = 1.5  # times the range between the quartiles: the usual fence of a box plot
_BLOCK = 2**24  # values in the products of one block
_JUDGED = 2**20  # residuals that are judged at once: with many classes, copies of all take too much memory
LARGE = 5000  # samples: a gallery with more is large
NEIGHBORS = 50  # of each sample of a large gallery in the first round
_AGAIN = 0.1  # of the samples of a large gallery are compared again, at least
_AGAIN_PER_DOUBT = 2  # labels compared again for each label that the first round doubts
_TYPICAL = 2000  # samples of a large gallery that show how far a class usually leads


@dataclass(frozen=True)
class Suspect:
    """A sample whose label looks wrong."""

    sample: int
    suggested: int  # class
    score: float  # 0 to 1: how much better the suggested class represents it
    supporters: list[int]  # samples of the suggested class that are most similar to it


@dataclass(frozen=True)
class RankedLabel:
    """The label of a sample in the ranking of all labels."""

    sample: int
    suggested: int | None = None  # the best other class; None if the sample could not be compared
    score: float | None = None  # above 0 if that class represents it better than its own
    candidates: Sequence[int] = ()  # classes, the best first


@dataclass(frozen=True)
class AlikeClasses:
    """Two classes, some of whose samples are confused with the other class."""

    classes: tuple[int, int]
    confused: tuple[int, int]  # samples of the first confused with the second, and vice versa
    share: float  # of the samples of both classes that have an answer


@dataclass(frozen=True)
class Comparison:
    """The residuals of all samples, each held out of the gallery."""

    residuals: Array  # (n, K)
    typical: Array | None = (
        None  # (n,): a mask of samples that show how far a class usually leads; None for all
    )
    neighbors: int = 0  # by which the labels that are not doubtful were compared; 0 for all


def score_doubts(residuals: Array, class_index: Array, signed: bool) -> tuple[Array, Array]:
    """Return (n,), (n,): each sample's score, above 0 if another class wins, and the best other class.

    The score is NaN for samples without an answer.
    """
    scores, best = np.empty(len(class_index)), np.empty(len(class_index), np.int64)
    for these in _row_slices(residuals):
        others, own_class = residuals[these].astype(np.float64), class_index[these]
        rows = np.arange(len(others))
        own = others[rows, own_class].copy()
        others[rows, own_class] = np.inf
        best[these] = np.argmin(np.where(np.isnan(others), np.inf, others), axis=1)
        with np.errstate(over="ignore"):  # where the own class is far better, the score is minus infinity
            scores[these] = margins(others[rows, best[these]], own, signed)
    return scores, best


def _row_slices(residuals: Array) -> Iterator[slice]:
    """Yield slices of rows, few enough that their copies in float64 need little memory."""
    step = max(1, _JUDGED // residuals.shape[1])
    return (slice(start, start + step) for start in range(0, len(residuals), step))


def residuals_without_doubtful_labels(
    samples: Samples, method: Method, folds: Folds, jobs: int = 1, progress: Progress = silent
) -> Array:
    """Return (n, K): residuals by galleries without doubtful labels.

    A wrong label among the samples supports its wrong class, and so hides others of its kind.
    """
    first = cross_validated_residuals(samples, method, folds, jobs=jobs, progress=progress)
    score, _ = score_doubts(first, samples.class_index, method.signed)
    ignored_as_samples = folds.doubtful_mask(samples, score > 0)
    if not ignored_as_samples.any():
        return first
    return cross_validated_residuals(samples, method, folds, ignored_as_samples, jobs, progress)


def compare_samples(
    samples: Samples, method: Method, folds: Folds, jobs: int = 1, progress: Progress = silent
) -> Comparison:
    """Compare every sample with the others, except for doubtful ones.

    In a large gallery, neighbours decide which labels are compared by all others: the time of codes by all
    samples grows with the square of their number.
    """
    if len(samples.vectors) <= LARGE or not isinstance(method, LocalMethod):
        return Comparison(residuals_without_doubtful_labels(samples, method, folds, jobs, progress))
    local = Neighbors(method=method, neighbors=NEIGHBORS)
    residuals = cross_validated_residuals(samples, local, folds, jobs=jobs, progress=progress)
    score, _ = score_doubts(residuals, samples.class_index, method.signed)
    is_doubtful = score > 0
    # Samples without an answer come last.
    order = np.argsort(np.where(np.isnan(score), np.inf, -score), kind="stable")
    count = max(round(_AGAIN * len(score)), _AGAIN_PER_DOUBT * int(is_doubtful.sum()))
    typical = hold_out_few(samples.class_index, min(_TYPICAL, len(score)), folds.copies) & folds.is_held
    is_tested = typical.copy()
    is_tested[order[:count]] = True
    ignored = folds.doubtful_mask(samples, is_doubtful)
    cross_validated_residuals(samples, method, folds, ignored, jobs, progress, is_tested, residuals)
    return Comparison(residuals, typical, NEIGHBORS)


def find_suspects(
    residuals: Array, samples: Samples, signed: bool, typical: Array | None = None
) -> list[Suspect]:
    """Return all samples whose labels look wrong, the clearest first.

    The samples of the mask `typical` show how far each class usually leads; without it, all samples do.
    """
    class_index = samples.class_index
    score, other = score_doubts(residuals, class_index, signed)
    agreed = score <= 0
    if typical is not None:
        agreed &= typical
    # The usual lead of a class, if it wins and is also the label. Some of very many classes have no typical
    # sample: what is usual for all classes counts for them.
    whole = np.median(lead(residuals[agreed], signed)) if typical is not None and agreed.any() else np.inf
    usual = np.full(samples.n_classes, whole)
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


def rank_labels(
    residuals: Array, samples: Samples, signed: bool, suspects: Sequence[Suspect]
) -> list[RankedLabel]:
    """Return all labels, the most doubtful first: labels that look wrong, then the others by their score."""
    score, other = score_doubts(residuals, samples.class_index, signed)
    # From -1 to 0 where the own class is better, even if it is infinitely better; the order stays the same.
    score = np.where(score < 0, 1 / (1 - np.minimum(score, 0)) - 1, score)
    first = [suspect.sample for suspect in suspects]
    is_first = np.zeros(len(score), dtype=bool)
    is_first[first] = True
    # Samples without an answer come last, in their order.
    rest = np.argsort(np.where(np.isnan(score), np.inf, -score), kind="stable")
    order = [*first, *rest[~is_first[rest]].tolist()]
    count = min(_CANDIDATES, samples.n_classes)
    best = np.empty((len(residuals), count), np.int64)
    for these in _row_slices(residuals):
        known = np.where(np.isnan(residuals[these]), np.inf, residuals[these])
        nearest = np.argpartition(known, count - 1, axis=1)[:, :count]
        by_residual = np.argsort(np.take_along_axis(known, nearest, axis=1), axis=1, kind="stable")
        best[these] = np.take_along_axis(nearest, by_residual, axis=1)
    return [
        RankedLabel(i)
        if np.isnan(score[i])
        else RankedLabel(i, int(other[i]), float(score[i]), best[i].tolist())
        for i in order
    ]


def lead(residuals: Array, signed: bool) -> Array:
    """Return (m,): the margin between the best class and the second best."""
    two = np.empty((len(residuals), 2))
    for these in _row_slices(residuals):
        two[these] = np.partition(residuals[these].astype(np.float64), 1, axis=1)[:, :2]
    return margins(two[:, 0], two[:, 1], signed)


def _nearest(samples: Samples, sample: int, of_class: int) -> list[int]:
    span = samples.class_span(of_class)
    similarity = samples.vectors[span] @ samples.vectors[sample]
    return find_largest([similarity], _SUPPORTERS, span.start)


def find_small_classes(samples: Samples, copies: Array) -> list[tuple[int, int]]:
    """Return classes with few different samples, and how many they have."""
    edges = zip(samples.edges[:-1].tolist(), samples.edges[1:].tolist(), strict=True)
    counts = [len(np.unique(copies[start:stop])) for start, stop in edges]
    return [(k, count) for k, count in enumerate(counts) if count < _FEW]


def find_alike_classes(residuals: Array, class_index: Array) -> list[AlikeClasses]:
    """Return pairs of classes that are often confused with each other, the worst first."""
    parts = [~np.isnan(residuals[these]).any(axis=1) for these in _row_slices(residuals)]
    answered = np.concatenate(parts)
    truth, label = class_index[answered], residuals.argmin(axis=1)[answered]
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


@dataclass(frozen=True)
class Folds:
    """Samples that are held out together, and copies of each other."""

    fold_of: Array  # (n,); -1 for samples that cannot be held out, because their class would be missing
    copies: Array  # (n,): the same number for samples of the same content

    @classmethod
    def of(
        cls, samples: Samples, hashes: Sequence[str], count: int = FOLDS, events: Array | None = None
    ) -> Folds:
        copies = group_copies(samples.vectors, hashes)
        fold_of = stratified_folds(samples.class_index, count, copies=join_events(copies, events))
        if samples.n_classes < 2 or not (fold_of >= 0).any():
            raise DataError(
                "there must be two classes, and two different examples in one of them, "
                "so that examples can be compared with others; add examples"
            )
        return cls(fold_of, copies)

    @property
    def is_held(self) -> Array:
        """(n,): a mask of the samples that are held out at some time, and so have an answer."""
        held: Array = self.fold_of >= 0
        return held

    def doubtful_mask(self, samples: Samples, doubtful: Array) -> Array:
        """Return a mask of the doubtful samples, except in classes that would keep too few others."""
        mask = doubtful & self.is_held
        for start, stop in zip(samples.edges[:-1].tolist(), samples.edges[1:].tolist(), strict=True):
            left = ~mask[start:stop]
            folds = self.fold_of[start:stop][left]
            if 2 * left.sum() < stop - start or len(np.unique(folds)) < 2:
                mask[start:stop] = False
        return mask


def cross_validated_residuals(
    samples: Samples,
    method: Method,
    folds: Folds,
    ignored_as_samples: Array | None = None,
    jobs: int = 1,
    progress: Progress = silent,
    is_tested: Array | None = None,
    earlier: Array | None = None,
) -> Array:
    """Return (n, K): each sample's residuals by a gallery without its fold; NaN if never held out.

    Samples in `ignored_as_samples` are classified, but never used to classify others. With the mask
    `is_tested`, only its samples are classified; `earlier` residuals are overwritten with theirs. Up to
    `jobs` folds are classified at the same time, if there is enough memory.
    """
    shape, dtype = (len(samples.vectors), samples.n_classes), samples.vectors.dtype
    found = np.full(shape, np.nan, dtype) if earlier is None else earlier
    parts = held_out_residuals(
        samples,
        method,
        folds.fold_of,
        is_tested=is_tested,
        is_trusted=None if ignored_as_samples is None else ~ignored_as_samples,
        result_bytes=found.nbytes if earlier is None else 0,
        jobs=jobs,
        progress=partial(progress, "comparing" if ignored_as_samples is None else "comparing again"),
    )
    for places, residuals in parts:
        found[places] = to_dense(residuals)
    return found


@dataclass(frozen=True)
class Outlier:
    sample: int
    similarity: float  # to its most similar class


def find_outliers(
    unit_vectors: Array, edges: Array, copies: Array, progress: Progress = silent
) -> list[Outlier]:
    """Return samples that are much less like any class than almost all others, the clearest first.

    Samples are ordered by class, with the bounds `edges`; `copies` are equal numbers for equal content.
    """
    found = similarity_to_classes(unit_vectors, edges, copies, progress)
    low, high = np.quantile(found, [0.25, 0.75])
    # If most similarities are equal, the quartiles are too, and rounding alone must not make an outlier.
    places = np.flatnonzero(found < low - _FENCE * (high - low) - rounding_of_products(unit_vectors))
    places = places[np.argsort(found[places], kind="stable")]
    return [Outlier(i, float(found[i])) for i in places.tolist()]


def similarity_to_classes(
    unit_vectors: Array, edges: Array, copies: Array, progress: Progress = silent
) -> Array:
    """Return (n,): the cosine with the third nearest sample of the class where that is highest.

    Of equally near samples, each counts. In a class with fewer samples, the last one counts. Copies of a
    sample do not count.
    """
    n = len(unit_vectors)
    found = np.empty(n, dtype=np.float32)
    counts = np.diff(edges)
    class_index = np.repeat(np.arange(len(counts)), counts)
    step = max(1, _BLOCK // n)
    for start, products in product_blocks(unit_vectors, unit_vectors.T, step):
        these = slice(start, start + step)
        products[copies[these, None] == copies] = -np.inf
        nearest = np.maximum.reduceat(products, edges[:-1], axis=1)
        for _ in range(_NEAREST - 1):
            rows, columns = np.nonzero(products == np.repeat(nearest, counts, axis=1))
            # Only the first of equally near samples of a class is taken away.
            is_first = np.ones(len(rows), dtype=bool)
            is_first[1:] = (np.diff(rows) > 0) | (np.diff(class_index[columns]) > 0)
            products[rows[is_first], columns[is_first]] = -np.inf
            following = np.maximum.reduceat(products, edges[:-1], axis=1)
            nearest = np.where(np.isfinite(following), following, nearest)
        found[these] = nearest.max(axis=1)
        progress("looking for outliers", min(start + step, n), n)
    return found
