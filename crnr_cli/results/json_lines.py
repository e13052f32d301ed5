"""Write and read predictions as JSON Lines: one object per input, on a line of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from crnr_cli.arrays import Values, at, dense, mapped
from crnr_cli.errors import DataError
from crnr_cli.results.decision import Answers, Prediction, best_classes, predictions
from crnr_cli.results.probability import rounded
from crnr_cli.results.records import prediction_of
from crnr_cli.results.table import COLUMNS


class JsonLinesFormatter:
    """Makes lines of the columns of the CSV by name, and `residuals` as an object; what is empty is null."""

    def __init__(self, classes: Sequence[str], top: int | None = None, more: Sequence[str] = ()) -> None:
        """With `top`, `residuals` has only the best classes of each query, the best first.

        `more` names the columns of MORE_COLUMNS that the answers have; then there are `probabilities` too.
        """
        self._classes = classes
        self._columns = (*COLUMNS, *more)
        self._objects = ("residuals", "probabilities") if more else ("residuals",)
        self._top = None if top is None else min(top, len(classes))

    def header(self) -> bytes:
        """Return nothing: every line has the names of its values."""
        return b""

    def format(self, answers: Answers) -> tuple[list[Prediction], bytes]:
        """Return the rows of a batch, as values and as lines."""
        rows = predictions(answers, self._classes)
        empty = dict.fromkeys(self._objects)
        records: list[dict[str, Any]] = [
            {**{name: getattr(row, name) for name in self._columns}, **empty} for row in rows
        ]
        probabilities = None if answers.probabilities is None else mapped(rounded, answers.probabilities)
        for name, values in zip(self._objects, (answers.residuals, probabilities), strict=False):
            found = [] if values is None else by_class(values, answers.residuals, self._classes, self._top)
            for query, of_query in zip(answers.batch.rows.tolist(), found, strict=True):
                records[query][name] = of_query
        # ASCII, so that names which are not UTF-8 can be written too, as lone surrogates.
        return rows, "".join(f"{json.dumps(record)}\n" for record in records).encode("ascii")


def by_class(
    values: Values, residuals: Values, classes: Sequence[str], top: int | None = None
) -> list[dict[str, float]]:
    """The values of every query by the names of the classes; with `top`, of so many, the best first."""
    if top is None:
        return [dict(zip(classes, row, strict=True)) for row in dense(values).tolist()]
    order = best_classes(residuals, top)
    best = at(values, order)
    return [
        {classes[i]: value for i, value in zip(row, of_query, strict=True)}
        for row, of_query in zip(order.tolist(), best.tolist(), strict=True)
    ]


def parse_json_lines(lines: Iterable[str], name: str) -> list[Prediction]:
    """The rows of a file written by classify, or of any other one with the keys truth and label."""
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as e:  # the latter for brackets within brackets, thousands deep
            raise DataError(f"{name}, line {number}: not readable as JSON ({e}); is it complete?") from e
        rows.append(prediction_of(record, f"{name}, line {number}"))
    return rows
