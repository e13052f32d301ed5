"""The table of thresholds against plain counting, its intervals against SciPy, its choice by trying all."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from crnr_cli.results.decision import Prediction
from crnr_cli.results.scores import wilson_interval
from crnr_cli.results.thresholds import (
    ChosenThreshold,
    ThresholdStep,
    ThresholdTable,
    list_thresholds,
    measure_rows,
    measure_steps,
)

# Many equal probabilities, and probabilities that are thresholds themselves.
PROBABILITY = st.one_of(
    st.sampled_from([0.0, 0.2, 0.83, 0.9, 0.974, 0.9999, 1.0]),
    st.integers(0, 10_000).map(lambda tenth: tenth / 10_000),
    st.floats(0, 1),  # of other programs
)


def row(
    truth: str | None, label: str | None, probability: float | None = None, runner_up: str | None = None
) -> Prediction:
    return Prediction("", truth, label, None, runner_up, None, "ok", None, probability)


@st.composite
def drawn_rows(draw: st.DrawFn) -> list[Prediction]:
    kind = st.sampled_from(["right", "wrong", "rejected right", "rejected wrong", "failed", "no probability"])
    made = {
        "right": lambda p: row("a", "a", p, "b"),
        "wrong": lambda p: row("a", "b", p, "a"),
        "rejected right": lambda p: row("a", "unknown", p, "a"),
        "rejected wrong": lambda p: row("a", "unknown", p, "b"),
        "failed": lambda p: row("a", None),
        "no probability": lambda p: row("a", "a"),
    }
    return [made[draw(kind)](draw(PROBABILITY)) for _ in range(draw(st.integers(0, 60)))]


def table_of(right: list[float], wrong: list[float]) -> ThresholdTable:
    probability = np.array([*right, *wrong])
    return ThresholdTable(measure_steps(probability, np.arange(len(probability)) < len(right)))


def test_thresholds_have_two_digits_of_the_probability_of_an_error() -> None:
    found = list_thresholds().tolist()
    assert found == sorted({round(float(f"{t:.4f}"), 4) for t in found})
    assert (found[0], found[-1]) == (0.0, 1.0)
    expected = {0.0, 1.0}
    for ten_thousandths in range(1, 10_000):  # of the error
        digits = f"{ten_thousandths:d}".rstrip("0")
        if len(digits) <= 2:
            expected.add(round(1 - ten_thousandths / 10_000, 4))
    assert set(found) == expected


@settings(max_examples=200)
@given(drawn_rows(), st.lists(PROBABILITY, max_size=10))
def test_the_table_is_what_counting_row_by_row_gives(rows: list[Prediction], outside: list[float]) -> None:
    outsiders = [row("unknown", "a", p) for p in outside]
    found = measure_rows(rows, [*outsiders, row("unknown", None)])
    guesses = [
        (r.probability, (r.runner_up if r.label == "unknown" else r.label) == "a")
        for r in rows
        if r.probability is not None
    ]
    failed = sum(r.label is None for r in rows)
    if not guesses:
        assert found is None
        return
    assert found is not None
    expected: list[ThresholdStep] = []
    for threshold in list_thresholds().tolist():
        kept = [ok for p, ok in guesses if p >= threshold]
        if kept:
            accepted = sum(p >= threshold for p in outside)
            n = len(guesses) + failed
            step = ThresholdStep(threshold, threshold, len(kept), sum(kept), n, accepted)
            last = expected[-1] if expected else None
            if last is None or (last.answered, last.accepted) != (step.answered, step.accepted):
                expected.append(step)
            else:
                expected[-1] = replace(last, up_to=threshold)
    assert found.steps == expected
    assert found.n == len(guesses) + failed
    assert found.failed == failed
    assert found.rejected == sum(r.label == "unknown" for r in rows)
    assert found.unplaced == len(rows) - failed - len(guesses)
    assert found.outsiders == len(outside)
    shown = found.choose_shown()
    assert 1 <= len(shown) <= 7
    assert shown[0] == found.steps[0]
    assert shown == sorted(shown, key=lambda step: step.min_probability)
    assert set(map(id, shown)) <= set(map(id, found.steps))


@settings(max_examples=60)
@given(st.lists(st.tuples(PROBABILITY, st.booleans()), min_size=1, max_size=80))
def test_intervals_are_those_of_scipy(answers: list[tuple[float, bool]]) -> None:
    found = measure_steps(np.array([p for p, _ in answers]), np.array([ok for _, ok in answers]))
    for step in found:
        expected = binomtest(step.correct, step.answered).proportion_ci(0.95, "wilson")
        assert step.interval == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert step.accuracy == step.correct / step.answered
        assert step.answer_rate == step.answered / len(answers)


def walk(steps: list[ThresholdStep], target: float, least: float) -> ThresholdStep | None:
    """Go from strict to loose, from the first threshold with this many answers, until the bound fails."""
    best = None
    for step in sorted(steps, key=lambda one: -one.min_probability):
        if step.answered >= least:
            low = binomtest(step.correct, step.answered).proportion_ci(0.95, "wilson").low
            if low < target:
                return best
            best = step
    return best


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 900),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
    st.floats(0.05, 1),
)
def test_the_choice_is_what_trying_all_thresholds_gives(
    seed: int, n: int, target: float, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    probability = rng.beta(4, spread, size=n).round(4)
    table = ThresholdTable(measure_steps(probability, rng.random(n) < probability))
    choice = table.choose_threshold(target)
    # The lower end of n right answers of n is n / (n + z²).
    needed = next(k for k in range(1, 10**6) if binomial_low(k) >= target)
    assert choice.fewest == needed
    starts = [needed, math.sqrt(1.959963984540054**2 * target / (1 - target) * max(needed, n))]
    reached = [step for step in (walk(table.steps, target, least) for least in starts) if step]
    assert choice.confident == min(reached, key=lambda step: step.min_probability, default=None)
    estimates = [step for step in table.steps if step.correct >= target * step.answered - 1e-12]
    assert choice.estimate == (estimates[0] if estimates else None)
    assert choice.closest.interval[0] == max(step.interval[0] for step in table.steps)
    if choice.confident:
        assert choice.step == choice.confident
        assert choice.confident.interval[0] >= target
        assert choice.estimate is not None
        assert choice.estimate.min_probability <= choice.confident.min_probability
    else:
        assert choice.step == (choice.closest if choice.closest.accuracy >= target else None)


def binomial_low(n: int) -> float:
    return n / (n + 1.959963984540054**2)


@pytest.mark.parametrize(("target", "n"), [(0.9, 1000), (0.95, 1000), (0.99, 2000)])
def test_chance_alone_seldom_reaches_the_target(target: float, n: int) -> None:
    """Worthless probabilities, and an accuracy just below the target: every choice is wrong."""
    rng, wrong, draws = np.random.default_rng(1), 0, 400
    by_chance = 0
    for _ in range(draws):
        right = rng.random(n) < target - 0.001
        table = ThresholdTable(measure_steps(rng.random(n).round(4), right))
        wrong += table.choose_threshold(target).confident is not None
        by_chance += any(step.interval[0] >= target for step in table.steps)
    # 5 % and three standard deviations; without the fixed order, it is more than twice as often.
    assert wrong <= draws * (0.05 + 3 * math.sqrt(0.05 * 0.95 / draws))
    assert by_chance > 1.5 * wrong


def test_a_mistake_among_the_most_probable_answers_does_not_end_the_search() -> None:
    table = table_of([0.9999] * 400 + [0.95] * 3000, [1.0] * 2)
    choice = table.choose_threshold(0.99)
    assert choice.confident is not None
    assert choice.confident.min_probability == 0


def test_the_steps_of_a_few_answers() -> None:
    assert table_of([0.9], [0.5]).steps == [
        ThresholdStep(min_probability=0.0, up_to=0.5, answered=2, correct=1, n=2, accepted=0),
        ThresholdStep(min_probability=0.51, up_to=0.9, answered=1, correct=1, n=2, accepted=0),
    ]


def test_rows_are_counted_by_what_became_of_them() -> None:
    broader = row("a", "above", 0.9, "b")._replace(status="broader", class_probability=0.6)
    others = [row("a", "unknown", 0.3, "a"), row("a", None), row("a", "a"), row("a", "b", 0.8)]
    found = measure_rows([broader, *others], [row("unknown", "a", 0.7), row("unknown", None)])
    assert found is not None
    # The broader answer counts by the best class, which is wrong, and its probability.
    assert [(step.up_to, step.answered, step.correct, step.accepted) for step in found.steps] == [
        (0.3, 3, 1, 1),
        (0.6, 2, 0, 1),
        (0.7, 1, 0, 1),
        (0.8, 1, 0, 0),
    ]
    assert (found.n, found.failed, found.rejected) == (4, 1, 1)
    assert (found.broader, found.unplaced, found.outsiders) == (1, 1, 1)


def test_the_answer_rates_of_a_short_table() -> None:
    """Of a hundred answers, with the probabilities 0, 0.01 and so on."""
    shown = table_of([i / 100 for i in range(100)], []).choose_shown()
    assert [step.answered for step in shown] == [100, 98, 95, 90, 80, 65, 50]


def test_the_record_of_a_choice() -> None:
    step = ThresholdStep(0.5, 0.6, 8, 6, 10)
    of_step = {
        **{"min_probability": 0.5, "answered": 8, "answer_rate": 0.8, "correct": 6, "accuracy": 0.75},
        **{"interval": wilson_interval(6, 8), "outsiders_accepted": 0},
    }
    assert ChosenThreshold(0.9, 10, None, None, step).to_record() == {
        **{"target": 0.9, "min_probability": None, "confident": None, "estimate": None, "closest": of_step}
    }
    stricter = ThresholdStep(0.7, 0.7, 4, 4, 10, accepted=2)
    of_stricter = {
        **{"min_probability": 0.7, "answered": 4, "answer_rate": 0.4, "correct": 4, "accuracy": 1.0},
        **{"interval": wilson_interval(4, 4), "outsiders_accepted": 2},
    }
    assert ChosenThreshold(0.5, 10, stricter, step, stricter).to_record() == {
        **{"target": 0.5, "min_probability": 0.7, "confident": of_stricter, "estimate": of_step},
        "closest": of_stricter,
    }


def test_a_target_that_is_reached_exactly_is_reached() -> None:
    closest = table_of([0.9] * 3, [0.9]).choose_threshold(0.75)
    assert closest.confident is None
    assert closest.step == closest.closest == closest.estimate
    table = table_of([0.9] * 30, [0.9])
    choice = table.choose_threshold(wilson_interval(30, 31)[0])
    assert choice.confident == table.steps[0]


def test_the_reasons_for_doubt() -> None:
    few = table_of([0.9] * 50, []).choose_threshold(0.99)
    assert (few.confident, few.fewest) == (None, 381)
    assert few.step == few.closest == few.estimate
    doubt = "no threshold reaches the target with confidence: "
    words = "it takes 381 right answers to show such an accuracy, and there are 50"
    assert few.describe() == doubt + words
    one = table_of([0.9], []).choose_threshold(0.99)
    assert one.describe().endswith("to show such an accuracy, and there is 1")
    certain = table_of([0.9] * 50, [0.1]).choose_threshold(1)
    assert certain.estimate is not None
    assert (certain.confident, certain.fewest) == (None, None)
    assert certain.describe() == doubt + "no number of answers shows that all answers will be right"
    none = table_of([0.9] * 500, [0.9] * 500).choose_threshold(0.99)
    assert (none.step, none.closest.accuracy) == (None, 0.5)
    assert none.describe() == doubt + "the lower end of every interval is below the target"
    # As many answers as it takes, but not all of them are right.
    enough = table_of([0.9] * 3, [0.9]).choose_threshold(0.5)
    assert (enough.answers, enough.fewest, enough.step) == (4, 4, enough.closest)
    assert enough.describe() == doubt + "the lower end of every interval is below the target"
    sure = table_of([0.9] * 400, [0.1] * 100).choose_threshold(0.99)
    assert sure.describe() == (
        "the lower end of the interval reaches the target: new queries like these reach it, with 95% "
        "confidence"
    )
    assert sure.step is not None
    assert sure.step.min_probability == 0.11


def test_a_table_describes_what_it_counts() -> None:
    table = table_of([0.9] * 3, [0.1])
    assert table.describe() == "4 known queries"
    assert table_of([0.9] * 3, []).describe() == "3 known queries"  # with one threshold
    assert replace(table, kind="example", failed=1).describe() == (
        "4 examples; 1 of them failed, which no threshold answers"
    )
    everything = replace(table, failed=2, rejected=3, broader=4, unplaced=1, outsiders=6)
    assert everything.describe() == (
        "4 known queries; 2 of them failed, which no threshold answers; 3 of them rejected, counted by the "
        "best guess; 4 of them with a broader answer, counted by the best guess; 1 answer without a "
        "probability not counted; 6 outsiders counted apart"
    )


def test_the_lowest_estimate_is_not_recommended() -> None:
    """At 0.5, 61 of 66 answers are right, which may be chance; at 0.9, all 30 are."""
    choice = table_of([0.9] * 30 + [0.5] * 31, [0.5] * 5 + [0.2] * 10).choose_threshold(0.9)
    assert choice.confident is None
    assert choice.estimate is not None
    assert choice.estimate.min_probability == 0.21
    assert choice.step == choice.closest
    assert choice.closest.min_probability == 0.51


def test_a_threshold_without_stricter_ones_that_reach_the_target_is_not_confident() -> None:
    """The most probable answers are the worst: 25 of 40, then 210 of 225, then 1210 of 1225 are right."""
    choice = table_of([0.99] * 25 + [0.9] * 185 + [0.5] * 1000, [0.99] * 15).choose_threshold(0.9)
    assert choice.confident is None
    assert choice.step == choice.closest == choice.estimate
    assert choice.closest.interval[0] > 0.95
    assert choice.describe() == (
        "no threshold reaches the target with confidence: stricter thresholds miss it"
    )
    assert replace(choice, target=choice.closest.interval[0]).describe() == choice.describe()
