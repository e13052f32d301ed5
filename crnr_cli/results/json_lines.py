"""Write predictions as JSON Lines: one object per input, on a line of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from crnr_cli.results.decision import Answers, Prediction, best_classes, predictions
from crnr_cli.results.table import Writable


class JsonLinesWriter:
    """Writes the columns of the CSV by name, and `residuals` as an object; what is empty there is null."""

    def __init__(self, file: Writable, classes: Sequence[str], top: int | None = None) -> None:
        """With `top`, `residuals` has only the best classes of each query, the best first."""
        self._file, self._classes = file, classes
        self._top = None if top is None else min(top, len(classes))

    def write(self, answers: Answers) -> list[Prediction]:
        """Append a batch, and return its rows."""
        rows = predictions(answers, self._classes)
        records: list[dict[str, Any]] = [{**row._asdict(), "residuals": None} for row in rows]
        for query, found in zip(answers.batch.rows.tolist(), self._residuals(answers), strict=True):
            records[query]["residuals"] = found
        # ASCII, so that names which are not UTF-8 can be written too, as lone surrogates.
        self._file.write("".join(f"{json.dumps(record)}\n" for record in records).encode("ascii"))
        return rows

    def _residuals(self, answers: Answers) -> list[dict[str, float]]:
        residuals = answers.residuals
        if self._top is None:
            return [dict(zip(self._classes, values, strict=True)) for values in residuals.tolist()]
        order = best_classes(residuals, self._top)
        best = np.take_along_axis(residuals, order, axis=1)
        return [
            {self._classes[i]: residual for i, residual in zip(row, values, strict=True)}
            for row, values in zip(order.tolist(), best.tolist(), strict=True)
        ]
