"""Measure the cost and the gain of a threshold of the probability, and choose one that reaches an accuracy.

With a threshold, crnr answers the queries whose probability is at least as high. Thresholds have two digits
of the probability of an error, and at most four decimals: 0.83, 0.974, 0.9981. They do not depend on the
answers, and are dense near 1, as probabilities are.

Of many thresholds, one reaches an accuracy by chance. So they are tried in a fixed order, from the strictest
one that could reach it to looser ones, until one fails (fixed-sequence testing; Angelopoulos et al., Learn
then Test, 2021): then trying many costs no confidence. A mistake among the most probable answers would end
that at once, so there is a second start with more answers. At each start, the lower end of a 95 % interval is
too high in 2.5 % of cases; at one of the two, in at most 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.results.decision import BROADER, UNKNOWN, Prediction
from crnr_cli.results.probability import DECIMALS
from crnr_cli.results.reliability import best_guess
from crnr_cli.results.scores import Z95, Interval, guess_probability, wilson_interval
from crnr_cli.wording import format_count, is_or_are

_SHOWN_RATES = (1.0, 0.98, 0.95, 0.9, 0.8, 0.65, 0.5)  # answer rates of the steps in a short table


@dataclass(frozen=True)
class ThresholdStep:
    """The answers at a threshold, and at higher ones that have the same."""

    min_probability: float
    up_to: float  # the highest threshold with the same answers
    answered: int
    correct: int  # of these
    n: int  # queries, answered or not
    accepted: int = 0  # outsiders with an answer

    @property
    def answer_rate(self) -> float:
        return self.answered / self.n

    @property
    def accuracy(self) -> float:
        return self.correct / self.answered

    @cached_property
    def interval(self) -> Interval:
        """The 95 % interval of the accuracy."""
        return wilson_interval(self.correct, self.answered)

    def to_record(self) -> dict[str, Any]:
        return {
            "min_probability": self.min_probability,
            "answered": self.answered,
            "answer_rate": self.answer_rate,
            "correct": self.correct,
            "accuracy": self.accuracy,
            "interval": self.interval,
            "outsiders_accepted": self.accepted,
        }


@dataclass(frozen=True)
class ChosenThreshold:
    """The thresholds for a wanted accuracy; None where no threshold reaches it."""

    target: float
    answers: int  # at the threshold 0
    confident: ThresholdStep | None  # the lower end of the interval reaches the target, and not by chance
    estimate: ThresholdStep | None  # the lowest threshold at which the accuracy itself reaches the target
    closest: ThresholdStep  # the threshold with the highest lower end

    @property
    def step(self) -> ThresholdStep | None:
        """The threshold to use: if none reaches the target confidently, the closest, if it may reach it.

        The lowest estimate is no such threshold: it often reaches the target by chance.
        """
        return self.confident or (self.closest if self.closest.accuracy >= self.target else None)

    @property
    def fewest(self) -> int | None:
        """The number of answers that can show this accuracy, if all are right; None if no number can."""
        return math.ceil(_fewest_answers(self.target)) if self.target < 1 else None

    def describe(self) -> str:
        """Return whether the threshold to use reaches the target by chance, in a sentence."""
        if self.confident:
            return (
                "the lower end of the interval reaches the target: new queries like these reach it, with 95% "
                "confidence"
            )
        reason = "the lower end of every interval is below the target"
        if self.fewest is None:
            reason = "no number of answers shows that all answers will be right"
        elif self.answers < self.fewest:
            reason = (
                f"it takes {format_count(self.fewest, 'right answer')} to show such an accuracy, and there "
                f"{is_or_are(self.answers)} {self.answers}"
            )
        elif self.step is not None and self.step.interval[0] >= self.target:
            reason = "stricter thresholds miss it"
        return f"no threshold reaches the target with confidence: {reason}"

    def to_record(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "min_probability": self.step.min_probability if self.step else None,
            "confident": self.confident.to_record() if self.confident else None,
            "estimate": self.estimate.to_record() if self.estimate else None,
            "closest": self.closest.to_record(),
        }


@dataclass(frozen=True)
class ThresholdTable:
    """The answers at every threshold; a threshold with the same answers as a lower one is left out."""

    steps: list[ThresholdStep]  # the lowest threshold, 0, first; each has an answer
    kind: str = "known query"  # of the items that are counted
    failed: int = 0  # queries among `n` without an answer at any threshold
    rejected: int = 0  # rejected queries among `n`, which count by their best guess
    broader: int = 0  # queries among `n` with a broader answer, the same
    unplaced: int = 0  # answers without a probability, which are not among `n`
    outsiders: int = 0  # readable outsiders with a probability, which are not among `n`

    @property
    def n(self) -> int:
        return self.steps[0].n

    def describe(self) -> str:
        """Return which items are counted, and how."""
        parts = [format_count(self.n, self.kind)]
        if self.failed:
            parts.append(f"{self.failed} of them failed, which no threshold answers")
        if self.rejected:
            parts.append(f"{self.rejected} of them rejected, counted by the best guess")
        if self.broader:
            parts.append(f"{self.broader} of them with a broader answer, counted by the best guess")
        if self.unplaced:
            parts.append(f"{format_count(self.unplaced, 'answer')} without a probability not counted")
        if self.outsiders:
            parts.append(f"{format_count(self.outsiders, 'outsider')} counted apart")
        return "; ".join(parts)

    def choose_shown(self) -> list[ThresholdStep]:
        """Return a few steps: at each of some answer rates, the highest threshold that still has it."""
        shown = {}
        for rate in _SHOWN_RATES:
            reached = [step for step in self.steps if step.answered >= rate * self.steps[0].answered]
            shown[reached[-1].min_probability] = reached[-1]
        return [self.steps[0], *(step for step in shown.values() if step is not self.steps[0])]

    def choose_threshold(self, target: float) -> ChosenThreshold:
        """Return the lowest thresholds that reach an accuracy."""
        reached = (step for step in self.steps if step.accuracy >= target)
        return ChosenThreshold(
            target,
            self.steps[0].answered,
            confident=self._choose_confidently(target),
            estimate=next(reached, None),
            closest=max(self.steps, key=lambda step: step.interval[0]),
        )

    def _choose_confidently(self, target: float) -> ThresholdStep | None:
        """Return the loosest step of the two walks through the thresholds."""
        if target >= 1:
            return None
        fewest = _fewest_answers(target)
        found = []
        for least in (fewest, math.sqrt(fewest * max(fewest, self.steps[0].answered))):
            for step in reversed(self.steps):
                if step.answered < least:
                    continue
                if step.interval[0] < target:
                    break
                found.append(step)
        return min(found, key=lambda step: step.min_probability, default=None)

    def to_record(self) -> dict[str, Any]:
        return {
            "n": self.n,
            "failed": self.failed,
            "rejected": self.rejected,
            "without_probability": self.unplaced,
            "outsiders": self.outsiders,
            "steps": [step.to_record() for step in self.steps],
        }


def _fewest_answers(target: float) -> float:
    """Return the number of answers whose interval begins at the target if all of them are right."""
    return Z95**2 * target / (1 - target)


def list_thresholds() -> Array:
    """Return all thresholds, ascending from 0 to 1: two digits of the probability of an error."""
    errors = [np.arange(10, 100) / 10.0**digits for digits in range(2, DECIMALS + 1)]
    last = np.arange(10) / 10.0**DECIMALS
    return np.unique(np.concatenate([[0.0], *(1 - error for error in errors), 1 - last]).round(DECIMALS))


def measure_rows(known: Sequence[Prediction], outsiders: Sequence[Prediction]) -> ThresholdTable | None:
    """Return the table of known queries; None if no answer has a probability.

    A query that is rejected or has a broader answer counts by its best guess, as if the probability were the
    only reason.
    """
    placed = [row for row in known if guess_probability(row) is not None and best_guess(row)]
    if not placed:
        return None
    failed = sum(row.label is None for row in known)
    of_outsiders = list(map(guess_probability, outsiders))
    steps = measure_steps(
        np.array(list(map(guess_probability, placed)), dtype=np.float64),
        np.array([best_guess(row) == row.truth for row in placed]),
        failed=failed,
        outsiders=np.array([one for one in of_outsiders if one is not None]),
    )
    return ThresholdTable(
        steps,
        failed=failed,
        rejected=sum(row.label == UNKNOWN for row in placed),
        broader=sum(row.status == BROADER for row in placed),
        unplaced=len(known) - failed - len(placed),
        outsiders=sum(one is not None for one in of_outsiders),
    )


def measure_steps(
    probability: Array, right: Array, failed: int = 0, outsiders: Array | None = None
) -> list[ThresholdStep]:
    """Return the steps of answers with these probabilities (n,), of which some are right (n,)."""
    order = np.argsort(probability, kind="stable")
    of_outsiders = np.sort(np.zeros(0) if outsiders is None else outsiders)
    n, thresholds = len(order), list_thresholds()
    below = np.searchsorted(probability[order], thresholds)
    below_outside = np.searchsorted(of_outsiders, thresholds)
    # Both never decrease, so the sum is the same only if both are.
    _, places = np.unique(below + below_outside, return_index=True)
    last = np.append(places[1:], len(thresholds)) - 1
    has_answers = below[places] < n
    places, last = places[has_answers], last[has_answers]
    below, accepted = below[places], len(of_outsiders) - below_outside[places]
    correct = int(right.sum()) - np.append(0, np.cumsum(right[order]))[below]
    columns = (thresholds[places], thresholds[last], n - below, correct, accepted)
    return [
        ThresholdStep(threshold, up_to, answered, n_right, n + failed, n_accepted)
        for threshold, up_to, answered, n_right, n_accepted in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
