"""Write and read predictions as Parquet: the columns of the CSV, with types."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crnr_cli.arrays import at, dense
from crnr_cli.errors import DataError
from crnr_cli.results.decision import Answers, Prediction, best_classes, predictions
from crnr_cli.results.probability import rounded
from crnr_cli.results.records import prediction_of
from crnr_cli.results.table import COLUMNS, MORE_COLUMNS
from crnr_cli.system.parquet import ParquetFile, TableWriter

_NUMBERS = ("residual", "margin", "separation", "probability")


def parquet_schema(
    classes: Sequence[str], dtype: str, top: int | None = None, more: Sequence[str] = ()
) -> dict[str, str]:
    """The columns in their order, each with its kind; residuals are in the precision of the gallery."""
    schema = {name: "float64" if name in _NUMBERS else "text" for name in (*COLUMNS, *more)}
    schema |= {"set": "texts"} if "set" in more else {}
    if top is None:
        return schema | {f"residual:{name}": dtype for name in classes}
    of_best = {"label": "text", "residual": dtype} | ({"probability": "float64"} if more else {})
    numbers = range(1, min(top, len(classes)) + 1)
    return schema | {f"{what}_{i}": kind for i in numbers for what, kind in of_best.items()}


class ParquetRows:
    """Writes the columns of the CSV; what is empty there is null, and `set` is a list."""

    def __init__(
        self, writer: TableWriter, classes: Sequence[str], top: int | None = None, more: Sequence[str] = ()
    ) -> None:
        self._writer, self._classes, self._columns = writer, classes, (*COLUMNS, *more)
        self._top = None if top is None else min(top, len(classes))

    def write(self, answers: Answers) -> list[Prediction]:
        """Append a batch, and return its rows."""
        rows = predictions(answers, self._classes)
        columns = [[getattr(row, name) for row in rows] for name in self._columns]
        extras = self._extra_columns(answers)
        places = answers.batch.rows.tolist()
        for values in extras:
            column: list[Any] = [None] * len(rows)
            for place, value in zip(places, values, strict=True):
                column[place] = value
            columns.append(column)
        self._writer.write(columns)
        return rows

    def _extra_columns(self, answers: Answers) -> list[list[Any]]:
        """The values after the fixed columns, for every query with an answer."""
        residuals, probabilities = answers.residuals, answers.probabilities
        if self._top is None:
            return list(dense(residuals).T.tolist())
        order = best_classes(residuals, self._top)
        names = [[self._classes[k] for k in column] for column in order.T.tolist()]
        of_best = [names, at(residuals, order).T.tolist()]
        if probabilities is not None:
            of_best.append(rounded(at(probabilities, order)).T.tolist())
        return [values[i] for i in range(self._top) for values in of_best]


def has_parquet_predictions(path: Path) -> bool:
    """Whether a Parquet file has predictions, and not features."""
    return {"truth", "label"} <= {column.name for column in ParquetFile(path).columns}


def read_parquet_rows(path: Path) -> list[Prediction]:
    """The rows of a file written by classify, or of any other one with the columns truth and label."""
    file = ParquetFile(path)
    names = [column.name for column in file.columns]
    missing = [name for name in ("truth", "label") if name not in names]
    if missing:
        raise DataError(f"{path}: no column {' or '.join(missing)}; was it written by `crnr classify`?")
    wanted = [name for name in (*COLUMNS, *MORE_COLUMNS) if name in names]
    values = [file.values(name) for name in wanted]
    return [
        prediction_of(dict(zip(wanted, row, strict=True)), f"{path}, row {number}")
        for number, row in enumerate(zip(*values, strict=True))
    ]
