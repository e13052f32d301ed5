"""Scores of answers: of known classes, and of outsiders."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass
from crnr_cli.results.decision import BROADER, UNKNOWN, Prediction
from crnr_cli.system.names import Spellings

Interval = tuple[float, float]
Z95 = 1.959963984540054  # a normal variable is within this many standard deviations in 95 % of cases


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class. Precision is None without such a label, recall without such a truth."""

    name: str
    support: int  # queries whose true class this is
    precision: float | None
    recall: float | None
    f1: float


@dataclass(frozen=True)
class Average:
    """The mean over the classes for which a score is defined; None without any."""

    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Scores:
    n: int  # queries, answered or failed
    correct: int
    macro: Average
    weighted: Average
    classes: list[ClassScore]  # every class that is the truth or the label of a query, in natural order
    cells: Array  # (m, 3): the confusion matrix without its zeros, as truth, label and count

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        return wilson_interval(self.correct, self.n) if self.n else None

    def confusion_rows(self) -> Iterator[list[int]]:
        """Yield the confusion matrix: for every true class, in order, the number of queries by label."""
        ends = np.searchsorted(self.cells[:, 0], np.arange(len(self.classes)), side="right")
        start = 0
        for end in ends.tolist():
            row = [0] * len(self.classes)
            for _, label, count in self.cells[start:end].tolist():
                row[label] = count
            yield row
            start = end


def score(truths: Sequence[str], labels: Sequence[str | None]) -> Scores:
    """Return the scores. A label of None is a failure: it counts as wrong for its class, and for no other."""
    names = sorted({*truths, *(name for name in labels if name is not None)}, key=natural_key)
    k = len(names)
    position = {name: i for i, name in enumerate(names)}
    truth = np.array([position[name] for name in truths], dtype=np.int64)
    label = np.array([-1 if name is None else position[name] for name in labels], dtype=np.int64)
    answered = label >= 0
    cells, counts = np.unique(truth[answered] * k + label[answered], return_counts=True)
    hits = np.bincount(truth[truth == label], minlength=k)
    support, predicted = np.bincount(truth, minlength=k), np.bincount(label[answered], minlength=k)
    precision, recall = _ratio(hits, predicted), _ratio(hits, support)
    f1 = _ratio(2 * hits, predicted + support)
    return Scores(
        n=len(truths),
        correct=int(hits.sum()),
        macro=_average(precision, recall, f1, np.ones(k)),
        weighted=_average(precision, recall, f1, support.astype(float)),
        classes=[
            ClassScore(
                name, int(support[i]), _none_if_nan(precision[i]), _none_if_nan(recall[i]), float(f1[i])
            )
            for i, name in enumerate(names)
        ],
        cells=np.column_stack((*np.divmod(cells, max(1, k)), counts)),
    )


def natural_key(name: str) -> tuple[list[str | tuple[int, str]], str]:
    """Return a key to sort names by as people do, with 2 before 10, and ant before Bee."""
    parts = re.split("([0-9]+)", name.casefold())
    key: list[str | tuple[int, str]] = [*parts]
    for i in range(1, len(parts), 2):  # every second part is a number, which may have any number of digits
        digits = parts[i].lstrip("0")
        key[i] = len(digits), digits
    return key, name


def wilson_interval(successes: float, n: float) -> Interval:
    """Return the 95 % Wilson score interval of a proportion, which is always within 0 and 1."""
    share, z2 = successes / n, Z95**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def mcnemar_p_value(only_first: int, only_second: int) -> float:
    """Return the two-sided p value of McNemar's exact test.

    The arguments count the queries that only one of two methods got right. The result is the probability of a
    split at least this uneven if both methods were equally good.
    """
    from scipy.special import bdtr  # slow to import, and only comparisons need it

    n = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), n, 0.5)))


def most_confused_pairs(scores: Scores) -> list[tuple[str, str, int]]:
    """Return (truth, label, count) of every kind of mistake, the most frequent first."""
    wrong = scores.cells[scores.cells[:, 0] != scores.cells[:, 1]]
    wrong = wrong[np.argsort(-wrong[:, 2], kind="stable")]
    return [(scores.classes[i].name, scores.classes[j].name, count) for i, j, count in wrong.tolist()]


def _ratio(part: Array, whole: Array) -> Array:
    ratio: Array = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return ratio


def _average(precision: Array, recall: Array, f1: Array, weights: Array) -> Average:
    return Average(*(_weighted_mean(values, weights) for values in (precision, recall, f1)))


def _weighted_mean(values: Array, weights: Array) -> float | None:
    defined = ~np.isnan(values)
    total = weights[defined].sum()
    return float(values[defined] @ weights[defined] / total) if total > 0 else None


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True)
class OpenSet:
    outsiders: int  # outsiders that could be read
    rejected: int  # of these
    accepted: int  # of these: wrongly labelled as a class
    failed: int  # failed outsiders, which are neither accepted nor rejected
    given: dict[str, int]  # the accepted outsiders by label, the most frequent label first
    true_classes: dict[str, int]  # all outsiders by true class: unknown, or a class that the gallery lacks
    answers: int  # queries with a true class that are labelled as a class, outsiders among them
    correct: int  # of these
    auroc: float | None  # of `separation`; None without values to compare
    auroc_of_probability: float | None

    @property
    def share(self) -> float | None:
        """The share of the outsiders that were rejected."""
        return self.rejected / self.outsiders if self.outsiders else None

    @property
    def interval(self) -> Interval | None:
        return wilson_interval(self.rejected, self.outsiders) if self.outsiders else None

    @property
    def share_accepted(self) -> float | None:
        """The share of the outsiders that were wrongly labelled as a class."""
        return self.accepted / self.outsiders if self.outsiders else None

    @property
    def interval_accepted(self) -> Interval | None:
        return wilson_interval(self.accepted, self.outsiders) if self.outsiders else None

    @property
    def accuracy(self) -> float | None:
        """The share of the answers that are right; an answer to an outsider is wrong."""
        return self.correct / self.answers if self.answers else None

    @property
    def accuracy_interval(self) -> Interval | None:
        return wilson_interval(self.correct, self.answers) if self.answers else None


@dataclass(frozen=True)
class EventScores:
    """The scores of events with a known true class, each counted once."""

    n: int
    correct: int
    mixed: int  # events whose members have several true classes, which are not among the n

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.n if self.n else None

    @property
    def interval(self) -> Interval | None:
        return wilson_interval(self.correct, self.n) if self.n else None


def score_events(known: Iterable[Prediction], outsiders: Iterable[Prediction]) -> EventScores | None:
    """Return the scores of events; None if no event has an answer. Else an event without one is wrong."""
    truths: dict[str, set[str]] = {}
    labels: dict[str, str | None] = {}
    for row in known:
        if row.event and row.truth:
            truths.setdefault(row.event, set()).add(row.truth)
            labels[row.event] = row.event_label
    if not any(labels.values()):  # none, or a column of another program
        return None
    for row in outsiders:
        if row.event in truths and row.truth:
            truths[row.event].add(row.truth)
    single = {event: next(iter(found)) for event, found in truths.items() if len(found) == 1}
    return EventScores(
        n=len(single),
        correct=sum(labels[event] == truth for event, truth in single.items()),
        mixed=len(truths) - len(single),
    )


def unify_spellings(rows: list[Prediction], classes: Sequence[str]) -> list[Prediction]:
    """Return the rows with one spelling per class: the gallery's, or else the answers'."""
    answers = (name for row in rows for name in (row.label, row.runner_up, row.event_label, *(row.set or ())))
    spellings, others = Spellings(), {}
    for name in dict.fromkeys(chain(classes, answers, (row.truth for row in rows))):
        if name and (spelling := spellings.learn(name)) != name:
            others[name] = spelling
    if not others:
        return rows

    def spell(name: str | None) -> str | None:
        return others.get(name, name) if name else name

    return [
        row._replace(
            truth=spell(row.truth),
            label=spell(row.label),
            runner_up=spell(row.runner_up),
            event_label=spell(row.event_label),
            set=None if row.set is None else tuple(others.get(name, name) for name in row.set),
        )
        for row in rows
    ]


def divide_by_truth(
    rows: Iterable[Prediction], classes: Iterable[str] = ()
) -> tuple[list[Prediction], list[Prediction]]:
    """Return the known queries and the outsiders; rows without a true class are neither.

    An outsider is of the class `unknown` or, if all `classes` of the gallery are given, of no class in them.
    """
    listed = set(classes)
    known: list[Prediction] = []
    outsiders: list[Prediction] = []
    for row in rows:
        if row.truth:
            is_outsider = row.truth == UNKNOWN or (bool(listed) and row.truth not in listed)
            (outsiders if is_outsider else known).append(row)
    return known, outsiders


def has_answer(row: Prediction) -> bool:
    """Return whether the row is labelled as a class: it did not fail, and is neither rejected nor broader."""
    return row.label is not None and row.label != UNKNOWN and row.status != BROADER


def guess_probability(row: Prediction) -> float | None:
    """Return the probability of the best class, if it is known."""
    return row.class_probability if row.status == BROADER else row.probability


def score_open_set(known: Sequence[Prediction], outsiders: Sequence[Prediction]) -> OpenSet | None:
    """Return the scores of outsiders; None without any."""
    if not outsiders:
        return None
    failed = sum(row.label is None for row in outsiders)
    accepted = [row.label for row in outsiders if row.label not in (None, UNKNOWN)]
    return OpenSet(
        outsiders=len(outsiders) - failed,
        rejected=len(outsiders) - failed - len(accepted),
        accepted=len(accepted),
        failed=failed,
        given=_count(accepted),
        true_classes=_count(row.truth for row in outsiders if row.truth),
        answers=len(accepted) + sum(map(has_answer, known)),
        correct=sum(row.label == row.truth for row in known if has_answer(row)),
        auroc=auroc(
            _without_none(row.separation for row in known),
            _without_none(row.separation for row in outsiders),
        ),
        auroc_of_probability=auroc(
            _without_none(map(guess_probability, known)),
            _without_none(map(guess_probability, outsiders)),
        ),
    )


def _count(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name occurs, the most frequent first, equally frequent ones in natural order."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], natural_key(item[0]))))


def auroc(others: Array, outsiders: Array) -> float | None:
    """Return the probability that an outsider has a smaller value than an insider; ties count as half."""
    if not len(others) or not len(outsiders):
        return None
    ordered = np.sort(others)
    not_larger = np.searchsorted(ordered, outsiders, side="right")
    smaller = np.searchsorted(ordered, outsiders)
    pairs = len(others) * len(outsiders)
    return float((2 * pairs - (not_larger + smaller).sum()) / (2 * pairs))


def _without_none(values: Iterable[float | None]) -> Array:
    return np.array([value for value in values if value is not None])
