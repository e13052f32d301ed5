"""Decide when to reject a query, and the probability of an answer, from samples held out of the gallery.

The criterion for rejecting is the separation: 1 minus the ratio of the best class's residual to the mean of
the others. All classes represent an outsider about equally badly. (The margin compares the best class with
the second best only: it separates two similar classes, but does not detect outsiders.) `results.probability`
computes probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crnr_cli.arrays import Array, Values, take_columns
from crnr_cli.errors import DataError
from crnr_cli.methods import Method, Samples
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import best_classes, standout
from crnr_cli.results.probability import Calibrated, fit_probabilities, round_probabilities
from crnr_cli.results.table import number_format
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.results.thresholds import ThresholdTable

_FOLDS = 20  # many, so each gallery is nearly complete: with 5, up to half too many were rejected
_PERFECT = 1 - 1e-12  # separation that no held-out sample reaches by finite residuals of crc
_ENOUGH = 1000  # held-out samples, for a rate accurate to about one percent


class HeldOutAnswers(NamedTuple):
    """The probabilities of the answers to held-out samples, each ascending."""

    right: Array
    wrong: Array

    @classmethod
    def read_from(cls, arrays: Mapping[str, Array], count: int) -> HeldOutAnswers | None:
        """Return the answers of an untrusted file, or None without any; ValueError if they are invalid."""
        names = [name for name in cls._fields if name in arrays]
        if not names:
            return None
        if len(names) < 2:
            raise ValueError("the calibration does not have both right and wrong answers")
        found = cls(arrays["right"], arrays["wrong"])
        if not all(_is_share_list(values, may_be_empty=True) for values in found):
            raise ValueError("the answers of the calibration are not ascending from 0 to 1")
        if len(found.right) + len(found.wrong) != count:
            raise ValueError("the calibration has another number of answers than of probabilities")
        return found

    def measure(self) -> ThresholdTable:
        """Return how many of the answers each threshold keeps, and how many of these are right."""
        from crnr_cli.results.thresholds import ThresholdTable, measure_steps  # here, as classify needs none

        is_right = np.repeat([True, False], [len(self.right), len(self.wrong)])
        return ThresholdTable(measure_steps(np.concatenate(self), is_right), "held-out example")


@dataclass(frozen=True)
class Calibration:
    """The separations of samples that were held out of the gallery and classified by the rest."""

    standouts: Array  # ascending
    origin: str  # the number and kind of held-out samples, as text
    certainty: Calibrated | None = None  # None in a gallery of an earlier crnr
    answers: HeldOutAnswers | None = None  # the same

    @classmethod
    def from_stored(cls, arrays: Mapping[str, Array], attributes: Mapping[str, Any]) -> Calibration | None:
        """Return the calibration of an untrusted file, or None without one; ValueError if it is invalid."""
        values, probabilities = arrays.get("standouts"), arrays.get("probabilities")
        if values is None:
            return None
        if not _is_ascending(values):
            raise ValueError("the calibration is not an ascending list of numbers")
        certainty = answers = None
        if probabilities is not None:
            certainty = Calibrated(float(attributes["sharpness"]), probabilities)
            if not _is_share_list(probabilities):
                raise ValueError("the probabilities of the calibration are not ascending from 0 to 1")
            if not 0 < certainty.sharpness < math.inf:
                raise ValueError(f"the calibration has a sharpness of {certainty.sharpness:g}")
            answers = HeldOutAnswers.read_from(arrays, len(probabilities))
        return cls(values, attributes["origin"].decode(), certainty, answers)

    def stored(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return the arrays and attributes that `from_stored` takes."""
        arrays, attributes = {"standouts": self.standouts}, {"origin": self.origin}
        if self.certainty is None:
            return arrays, attributes
        return (
            arrays
            | {"probabilities": self.certainty.of_truth}
            | (self.answers._asdict() if self.answers else {}),
            attributes | {"sharpness": self.certainty.sharpness},
        )

    def min_standout(self, rate: float) -> float:
        """Return a threshold: queries of known classes are below it with a probability of at most `rate`.

        A new value is below the k-th smallest of n with a probability of k / (n + 1), whatever the
        distribution. The result is 0, which rejects nothing, if even k = 1 exceeds the rate.
        """
        n = len(self.standouts)
        k = min(n, math.floor(rate * (n + 1) + 1e-9))
        return float(self.standouts[k - 1]) if k else 0.0

    def is_outdated(self, method: Method) -> bool:
        """Return whether an earlier crnr made it, with a residual of 1/eps for classes without weight in crc.

        The best class stood out perfectly then, so all queries of today would be rejected.
        """
        return method.name == "crc" and bool(self.standouts[-1] > _PERFECT)

    def describe_rule(self, rate: float, dtype: str) -> str:
        """Describe when a query is rejected; the threshold has all digits of the column `separation`."""
        limit = number_format(dtype) % float(np.dtype(dtype).type(self.min_standout(rate)))
        return f"separation below {limit}; expected false rejections: {100 * rate:g}%"


def _is_ascending(values: Array) -> bool:
    is_list = values.ndim == 1 and values.dtype.kind == "f" and len(values) > 0
    return is_list and bool(np.all(np.diff(values) >= 0))


def _is_share_list(values: Array, may_be_empty: bool = False) -> bool:
    if may_be_empty and values.shape == (0,):
        return values.dtype.kind == "f"
    return _is_ascending(values) and bool(values[0] >= 0) and bool(values[-1] <= 1)


def calibrate(
    samples: Samples,
    method: Method,
    hashes: Sequence[str],
    jobs: int = 1,
    progress: Progress = silent,
    events: Array | None = None,
) -> Calibration:
    """Hold out a part of every class and classify it by the rest, until there are enough values.

    Samples of one event, if there are `events`, are held out together. Up to `jobs` parts are classified at
    the same time, if there is enough memory.
    """
    from crnr_cli.methods.folds import (  # here, because few runs need it
        first_of_copies_mask,
        group_copies,
        held_out_residuals,
        join_events,
        stratified_folds,
    )

    class_index = samples.class_index
    copies = group_copies(samples.vectors, hashes)
    is_tested = first_of_copies_mask(class_index, copies)
    count = max(_FOLDS, -(-int(is_tested.sum()) // _ENOUGH))
    fold_of = stratified_folds(class_index, count, copies=join_events(copies, events))
    tested = np.bincount(fold_of[is_tested & (fold_of >= 0)], minlength=count)
    if not tested.any():
        raise DataError(
            "every class has only one example, apart from copies: "
            "rejecting queries and probabilities need at least two in some class"
        )
    enough = 1 + int(np.searchsorted(np.cumsum(tested), min(_ENOUGH, tested.sum())))

    parts = held_out_residuals(
        samples,
        method,
        np.where(fold_of < enough, fold_of, -1),
        is_tested=is_tested,
        jobs=jobs,
        progress=partial(progress, "calibrating"),
    )
    found = [(residuals, class_index[places]) for places, residuals in parts]
    standouts = np.sort(np.concatenate([standout(residuals, method.signed) for residuals, _ in found]))
    origin = (
        f"{format_count(len(standouts), 'example')}, "
        f"classified with 1/{count} of the gallery held out at a time"
    )
    certainty = fit_probabilities(found, method.signed)
    return Calibration(standouts, origin, certainty, _answer(found, certainty, method.signed))


def _answer(held_out: Sequence[tuple[Values, Array]], certainty: Calibrated, signed: bool) -> HeldOutAnswers:
    """Return the answers from batches of held-out residuals (m, K) and true classes (m,)."""
    of_right, of_wrong = [], []
    for residuals, truth in held_out:
        best = best_classes(residuals, 1)
        of_best = take_columns(certainty.probabilities(residuals, signed), best)[:, 0]
        probability, is_right = round_probabilities(of_best), best[:, 0] == truth
        of_right.append(probability[is_right])
        of_wrong.append(probability[~is_right])
    return HeldOutAnswers(np.sort(np.concatenate(of_right)), np.sort(np.concatenate(of_wrong)))
