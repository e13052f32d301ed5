"""Answers and explanations as typed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crnr_cli.arrays import Array, mapped
from crnr_cli.jobs.explain import ExplainReport, WeightedSample
from crnr_cli.results.decision import OK, Answers, predictions
from crnr_cli.results.json_lines import by_class
from crnr_cli.results.probability import rounded

STRONGEST = 8  # gallery samples of an explanation, as `crnr explain` shows them


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the gallery says about one input: a row of the CSV that `crnr classify` writes.

    An input that cannot be used has no label, a `status` that is the code of the reason, and an `error`.
    """

    path: str  # as it was named; for features, the name of the row
    truth: str | None  # the true class, if a folder or a label of the input names one
    label: str | None  # the best class; "unknown" if the input was rejected, None if it cannot be used
    residual: float | None  # of the best class
    runner_up: str | None  # the second-best class; for a rejected input, the best one
    margin: float | None  # 1 - best/second: 0 is a tie, 1 a perfect match
    status: str  # "ok", "rejected", or why there is no answer
    separation: float | None  # 1 - best/mean of the others
    probability: float | None  # that the best class is right; None if the gallery is not calibrated
    set: tuple[str, ...] | None  # the labels that cannot be excluded, the best first; None without `sets`
    residuals: dict[str, float] | None  # by class, in name order; with `top`, the best first
    probabilities: dict[str, float] | None  # likewise
    error: str | None  # why there is no answer, in words

    @property
    def ok(self) -> bool:
        """Whether there is a label, and it was not rejected."""
        return self.status == OK


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one part of a picture says by itself, in a gallery that was built with --parts."""

    row: int | None  # of the tile, counted from 1; None if the part is not a tile
    column: int | None
    name: str | None  # of a part that is not a tile
    label: str | None  # the class with the smallest residual; None if several have it
    margin: float  # how much the part speaks for the label of the query, from -1 to 1
    residuals: dict[str, float]  # by class, in name order


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why a query gets its label: what `crnr explain --json` prints."""

    query: str
    truth: str | None  # the true class, if a folder or a label of the query names one
    method: str
    parameters: dict[str, Any]  # of the method
    label: str
    runner_up: str
    margin: float
    residuals: dict[str, float]  # by class, in name order
    weight_shares: dict[str, float] | None  # of all positive weights; None for a method without weights
    nearest: WeightedSample | None  # for nn, the sample that decides
    strongest: list[WeightedSample]  # the gallery samples with the largest weights, the largest first
    parts: list[Part] | None  # None if the gallery has no parts
    against: Explanation | None = None  # by the other method, if one was named

    def record(self) -> dict[str, Any]:
        """The answer of this method as plain values, as in the JSON of `crnr explain`."""
        plain = asdict(self)
        for name in ("query", "truth", "against", *(() if self.parts else ("parts",))):
            del plain[name]
        for part in plain.get("parts", ()):
            for name in ("row", "column") if part["name"] else ("name",):
                del part[name]
        return plain


def explanations(report: ExplainReport, strongest: int = STRONGEST) -> list[Explanation]:
    """By the gallery's method, and by the one that it is compared with."""
    classes = report.gallery.classes
    found = []
    for one in report.explanations:
        shares = report.shares(one)
        first, second = one.order[:2].tolist()
        parts = [
            Part(
                row=part.row,
                column=part.column,
                name=part.name or None,
                label=None if part.label is None else classes[part.label],
                margin=part.margin,
                residuals=_by_name(classes, part.residuals),
            )
            for part in report.parts(one)
        ]
        found.append(
            Explanation(
                query=report.query,
                truth=report.truth,
                method=one.method.name,
                parameters=one.method.parameters,
                label=classes[first],
                runner_up=classes[second],
                margin=one.margin,
                residuals=_by_name(classes, one.residuals),
                weight_shares=None if shares is None else _by_name(classes, shares),
                nearest=report.nearest(one),
                strongest=report.strongest(one, strongest),
                parts=parts or None,
            )
        )
    return found


def _by_name(classes: Sequence[str], values: Array) -> dict[str, float]:
    return dict(zip(classes, values.tolist(), strict=True))


def answers_of(answers: Answers, classes: Sequence[str], top: int | None = None) -> list[Answer]:
    """Of a batch; with `top`, with the residuals of so many classes, the best first."""
    residuals, probabilities = answers.residuals, answers.probabilities
    top = None if top is None else min(top, len(classes))
    of_rows: list[dict[int, dict[str, float]]] = []
    for values in (residuals, None if probabilities is None else mapped(rounded, probabilities)):
        found = [] if values is None else by_class(values, residuals, classes, top)
        of_rows.append(dict(zip(answers.batch.rows.tolist(), found, strict=False)))
    return [
        Answer(
            **row._asdict(),
            residuals=of_rows[0].get(query),
            probabilities=of_rows[1].get(query),
            error=None if error is None else str(error),
        )
        for query, (row, error) in enumerate(
            zip(predictions(answers, classes), answers.batch.errors, strict=True)
        )
    ]
