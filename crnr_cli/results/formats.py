"""Answers as JSON Lines and Parquet, and the formats that predictions are read from."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from crnr_cli.arrays import Values, map_values, take_columns, to_dense
from crnr_cli.errors import DataError
from crnr_cli.results.decision import OK, Answers, Prediction, best_classes, make_predictions
from crnr_cli.results.probability import round_probabilities
from crnr_cli.results.table import (
    COLUMNS,
    DATE,
    EVENT,
    EVENT_LABEL,
    MORE_COLUMNS,
    RESIDUAL,
    Predictions,
    listed_classes,
    parse_predictions,
)
from crnr_cli.system.csv_file import long_fields, opened_csv, wrap_as_text
from crnr_cli.system.names import stat_or_none
from crnr_cli.system.parquet import MAGIC, ParquetFile

if TYPE_CHECKING:
    from crnr_cli.system.parquet_writer import TableWriter

_RECORD_NUMBERS = ("residual", "margin", "separation")
_TEXTS = ("path", "truth", "label", "runner_up", "status")
_PARQUET_NUMBERS = ("residual", "margin", "separation", "probability", "class_probability")


def read_answers(path: Path) -> Predictions:
    """Return the rows of a file that classify wrote in any format."""
    if stat_or_none(path) is None:
        raise DataError(f"{path}: no such file; give a predictions file written by `crnr classify`")
    try:
        with path.open("rb") as file:
            if file.peek(len(MAGIC))[: len(MAGIC)] == MAGIC:
                return read_parquet_rows(path)
            return parse_stream(file, str(path))
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def parse_stream(file: BinaryIO, name: str) -> Predictions:
    """Return the rows of a CSV, or of JSON Lines, which begin with a brace."""
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))
    text = wrap_as_text(buffered, name)
    try:
        if buffered.peek(1)[:1] == b"{":
            return parse_json_lines(text, name)
        return parse_predictions(text, name)
    finally:
        text.detach()  # so the stream is not closed
        if buffered is not file:
            buffered.detach()


class JsonLinesFormatter:
    """Makes lines of the CSV's columns by name, and `residuals` as an object; empty values are null."""

    def __init__(self, classes: Sequence[str], top: int | None = None, more: Sequence[str] = ()) -> None:
        """Set up the lines. With `top`, `residuals` has only the best classes of each query, the best first.

        `more` names the columns of MORE_COLUMNS, and DATE, that the answers have; with a probability, there
        are `probabilities` too.
        """
        self._classes = classes
        self._columns = (*COLUMNS, *more)
        self._objects = ("residuals", "probabilities") if "probability" in more else ("residuals",)
        self._top = None if top is None else min(top, len(classes))

    def header(self) -> bytes:
        """Return nothing: every line has the names of its values."""
        return b""

    def format(self, answers: Answers) -> tuple[list[Prediction], bytes]:
        """Return the rows of a batch, as values and as lines."""
        rows = make_predictions(answers, self._classes)
        empty = dict.fromkeys(self._objects)
        records: list[dict[str, Any]] = [
            {**{name: getattr(row, name) for name in self._columns}, **empty} for row in rows
        ]
        probabilities = (
            None if answers.probabilities is None else map_values(round_probabilities, answers.probabilities)
        )
        for name, values in zip(self._objects, (answers.residuals, probabilities), strict=False):
            found = (
                [] if values is None else values_by_class(values, answers.residuals, self._classes, self._top)
            )
            for query, of_query in zip(answers.batch.rows.tolist(), found, strict=True):
                records[query][name] = of_query
        # ASCII, so that names that are not UTF-8 can be written too, as lone surrogates.
        return rows, "".join(f"{json.dumps(record)}\n" for record in records).encode("ascii")


def values_by_class(
    values: Values, residuals: Values, classes: Sequence[str], top: int | None = None
) -> list[dict[str, float]]:
    """Return the values of every query by class name; with `top`, only the best classes, best first."""
    if top is None:
        return [dict(zip(classes, row, strict=True)) for row in to_dense(values).tolist()]
    order = best_classes(residuals, top)
    best = take_columns(values, order)
    return [
        {classes[i]: value for i, value in zip(row, of_query, strict=True)}
        for row, of_query in zip(order.tolist(), best.tolist(), strict=True)
    ]


def parse_json_lines(lines: Iterable[str], name: str) -> Predictions:
    """Return the rows of a file written by classify, or of any file with the keys truth and label."""
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as e:  # the latter: nested too deeply
            raise DataError(f"{name}, line {number}: not readable as JSON ({e}); is it complete?") from e
        rows.append(parse_prediction(record, f"{name}, line {number}"))
    return Predictions(rows)


def parse_prediction(record: Any, where: str) -> Prediction:
    """Return the prediction in a record; `where` is the place of the record in messages."""
    if not isinstance(record, dict):
        raise DataError(f"{where}: not an object with the keys truth and label")
    missing = [key for key in ("truth", "label") if key not in record]
    if missing:
        raise DataError(f"{where}: no {' or '.join(missing)}; was it written by `crnr classify`?")
    texts = {key: _text(record.get(key), key, where) for key in _TEXTS}
    numbers = {key: _number(record.get(key), key, where) for key in _RECORD_NUMBERS}
    labels = record.get("set") if "probability" in record and texts["label"] else None
    if labels is not None and not (isinstance(labels, list) and all(isinstance(one, str) for one in labels)):
        raise DataError(f"{where}: set is not a list of labels")
    rank: Any = record.get("rank")
    return Prediction(
        path=texts["path"] or "",
        truth=texts["truth"],
        label=texts["label"],
        residual=numbers["residual"],
        runner_up=texts["runner_up"],
        margin=numbers["margin"],
        status=texts["status"] or (OK if texts["label"] else "no_label"),
        separation=numbers["separation"],
        probability=_probability(record.get("probability")),
        set=None if labels is None else tuple(labels),
        date=date if isinstance(date := record.get(DATE), str) else None,
        rank=rank if isinstance(rank, str) else None,
        class_probability=_probability(record.get("class_probability")),
        event=_text_or_none(record.get(EVENT)),
        event_label=_text_or_none(record.get(EVENT_LABEL)),
    )


def _probability(value: Any) -> float | None:
    """Return a probability; None for other values: another program may use this key."""
    return float(value) if _is_number(value) and 0 <= value <= 1 else None


def _text(value: Any, key: str, where: str) -> str | None:
    """Return a text; numbers are labels too, if another program wrote them."""
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{where}: {key} is not a text")


def _text_or_none(value: Any) -> str | None:
    """Return a text, or the text of a whole number; None for other values, which another program wrote."""
    return str(value) if value and isinstance(value, str | int) and not isinstance(value, bool) else None


def _number(value: Any, key: str, where: str) -> float | None:
    """Return a number; None if missing, and for nan and inf, which other programs write instead."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if not _is_number(value):
        raise DataError(f"{where}: {key} is not a number")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308


def parquet_schema(
    classes: Sequence[str], dtype: str, top: int | None = None, more: Sequence[str] = ()
) -> dict[str, str]:
    """Return the columns in order, each with its kind; residuals are in the precision of the gallery."""
    schema = {name: "float64" if name in _PARQUET_NUMBERS else "text" for name in (*COLUMNS, *more)}
    schema |= {"set": "texts"} if "set" in more else {}
    if top is None:
        return schema | {f"{RESIDUAL}{name}": dtype for name in classes}
    of_best = {"label": "text", "residual": dtype} | (
        {"probability": "float64"} if "probability" in more else {}
    )
    numbers = range(1, min(top, len(classes)) + 1)
    return schema | {f"{what}_{i}": kind for i in numbers for what, kind in of_best.items()}


class ParquetRows:
    """Writes the columns of the CSV; empty values are null, and `set` is a list."""

    def __init__(
        self, writer: TableWriter, classes: Sequence[str], top: int | None = None, more: Sequence[str] = ()
    ) -> None:
        self._writer, self._classes, self._columns = writer, classes, (*COLUMNS, *more)
        self._top = None if top is None else min(top, len(classes))

    def write(self, answers: Answers) -> list[Prediction]:
        """Append a batch, and return its rows."""
        rows = make_predictions(answers, self._classes)
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
        """Return the values after the fixed columns, for every query with an answer."""
        residuals, probabilities = answers.residuals, answers.probabilities
        if self._top is None:
            return list(to_dense(residuals).T.tolist())
        order = best_classes(residuals, self._top)
        names = [[self._classes[k] for k in column] for column in order.T.tolist()]
        of_best = [names, take_columns(residuals, order).T.tolist()]
        if probabilities is not None:
            of_best.append(round_probabilities(take_columns(probabilities, order)).T.tolist())
        return [values[i] for i in range(self._top) for values in of_best]


def has_parquet_predictions(path: Path) -> bool:
    """Return whether a Parquet file has predictions, and not features."""
    return {"truth", "label"} <= {column.name for column in ParquetFile(path).columns}


def read_parquet_rows(path: Path) -> Predictions:
    """Return the rows of a file written by classify, or of any file with columns truth and label."""
    file = ParquetFile(path)
    names = [column.name for column in file.columns]
    missing = [name for name in ("truth", "label") if name not in names]
    if missing:
        raise DataError(f"{path}: no column {' or '.join(missing)}; was it written by `crnr classify`?")
    wanted = [name for name in (*COLUMNS, *MORE_COLUMNS, DATE, EVENT, EVENT_LABEL) if name in names]
    values = [file.values(name) for name in wanted]
    rows = (
        parse_prediction(dict(zip(wanted, row, strict=True)), f"{path}, row {number}")
        for number, row in enumerate(zip(*values, strict=True), 1)
    )
    return Predictions(rows, listed_classes(names))


def read_columns(path: Path, names: Sequence[str]) -> dict[str, list[str]]:
    """Return further columns of a predictions file, row by row as `read_answers` returns them.

    Only columns that the file has are returned; empty values are empty texts.
    """
    try:
        with path.open("rb") as file:
            start = file.peek(len(MAGIC))
            if start[: len(MAGIC)] == MAGIC:
                return _parquet_columns(ParquetFile(path), names)
            if start[:1] == b"{":
                with wrap_as_text(file, path) as lines:
                    return _json_columns(lines, names, path)
        with long_fields(), opened_csv(path) as reader:
            header = next(iter(reader), [])
            places = {name: header.index(name) for name in names if name in header}
            rows = list(filter(None, reader)) if places else []
            return {name: [row[place] for row in rows] for name, place in places.items()}
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def _parquet_columns(file: ParquetFile, names: Sequence[str]) -> dict[str, list[str]]:
    known = {column.name for column in file.columns}
    return {
        name: ["" if value is None else str(value) for value in file.values(name)]
        for name in names
        if name in known
    }


def _json_columns(lines: Iterable[str], names: Sequence[str], path: Path) -> dict[str, list[str]]:
    """Return the values of keys that at least one line has."""
    records = [json.loads(line) for line in lines if line.strip()]
    return {
        name: [_text(record.get(name), name, f"{path}, row {i}") or "" for i, record in enumerate(records, 1)]
        for name in names
        if any(name in record for record in records)
    }
