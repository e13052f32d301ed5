"""Write and read the predictions CSV, which has one row per input. The README describes its columns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from crnr_cli.arrays import take_columns, to_dense
from crnr_cli.errors import DataError
from crnr_cli.results.decision import OK, Answers, Prediction, best_classes, make_predictions
from crnr_cli.results.probability import DECIMALS
from crnr_cli.wording import format_count

if TYPE_CHECKING:
    from crnr_cli.system.csv_file import DecimalSigns

COLUMNS = ("path", "truth", "label", "residual", "runner_up", "margin", "status", "separation")
MORE_COLUMNS = ("probability", "set", "rank", "class_probability")  # if the gallery holds probabilities
DATE = "date"  # on request
EVENT, EVENT_LABEL, _ = EVENT_COLUMNS = ("event", "event_label", "event_probability")  # the last, on request
RESIDUAL = "residual:"  # with the name of a class, the column of its residuals
_NUMBERS = ("residual", "margin", "separation", "probability", "class_probability")
_PROBABILITY = f"%.{DECIMALS}f"
_MORE_FORMATS = {
    **{"probability": _PROBABILITY, "set": "%s", "rank": "%s", "class_probability": _PROBABILITY},
    DATE: "%s",
}
_LABEL = re.compile(r"(?:[^|\\]|\\.)+", re.DOTALL)  # in a set; a backslash makes the next character ordinary
_QUOTED = re.compile('[,"\n\r]')  # a field with one of these characters needs quotes


class Predictions(list[Prediction]):
    """The rows of a predictions file."""

    def __init__(self, rows: Iterable[Prediction], classes: Iterable[str] = ()) -> None:
        """Keep the rows, and the gallery's classes if the file lists all of them."""
        super().__init__(rows)
        self.classes = list(classes)


class CsvFormatter:
    """Makes rows of RFC 4180 CSV with LF line ends; numbers have enough digits to be read back exactly."""

    def __init__(
        self, classes: Sequence[str], dtype: str, top: int | None = None, more: Sequence[str] = ()
    ) -> None:
        """Set up the rows. With `top`, rows have only the best classes of each query, not all residuals.

        `more` names the columns of MORE_COLUMNS, and DATE, that the answers have.
        """
        self._classes, self._more = classes, more
        self._has_more = [name in more for name in (*MORE_COLUMNS, DATE)]
        self._is_sure, self._is_dated = "probability" in more, DATE in more
        self._top = None if top is None else min(top, len(classes))
        number = number_format(dtype)
        if self._top is None:
            extras = f",{number}" * len(classes)
        else:
            extras = (f",%s,{number}" + (f",{_PROBABILITY}" if self._is_sure else "")) * self._top
        always = f"%s,%s,%s,{number},%s,{number},%s,{number}"
        self._answered = always + "".join(f",{_MORE_FORMATS[name]}" for name in more) + extras
        empty = "".join(",%s" if name == DATE else "," for name in more)
        self._unanswered = "%s,%s,,,,,%s," + empty + "," * extras.count(",")

    def header(self) -> bytes:
        """Return the first line."""
        if self._top is None:
            extra = [f"{RESIDUAL}{name}" for name in self._classes]
        else:
            of_best = ("label", "residual", "probability") if self._is_sure else ("label", "residual")
            extra = [f"{what}_{i + 1}" for i in range(self._top) for what in of_best]
        return _encode([",".join([*COLUMNS, *self._more, *map(_field, extra)])])

    def format(self, answers: Answers) -> tuple[list[Prediction], bytes]:
        """Return the rows of a batch, as values and as lines."""
        rows = make_predictions(answers, self._classes)
        lines = [""] * len(rows)
        extras = self._extra_values(answers)
        for query, extra in zip(answers.batch.rows.tolist(), extras, strict=True):
            row = rows[query]
            path, truth, label, residual, runner_up, margin, status, separation, *_ = row
            more = self._more_values(row) if self._more else ()
            start = (_field(path), self._name(truth), self._name(label), residual, self._name(runner_up))
            lines[query] = self._answered % (*start, margin, status, separation, *more, *extra)
        for query, error in answers.batch.failures():
            row = rows[query]
            date = (row.date or "",) if self._is_dated else ()
            lines[query] = self._unanswered % (_field(row.path), self._name(row.truth), error.status, *date)
        return rows, _encode(lines)

    def _more_values(self, row: Prediction) -> Iterator[Any]:
        """Yield the values of the columns of MORE_COLUMNS, and DATE, that the answers have."""
        labels = _field(join_labels(row.set or ()))
        values = (row.probability, labels, self._name(row.rank), row.class_probability, row.date or "")
        return compress(values, self._has_more)

    def _name(self, name: str | None) -> str:
        return quote_name(name) if name else ""

    def _extra_values(self, answers: Answers) -> list[list[Any]]:
        """Return the values after the fixed columns, for every query with an answer."""
        residuals, probabilities = answers.residuals, answers.probabilities
        if self._top is None:
            return to_dense(residuals).tolist()  # type: ignore[no-any-return]
        order = best_classes(residuals, self._top)
        columns = [[[quote_name(self._classes[i]) for i in row] for row in order.tolist()]]
        for values in (residuals, probabilities):
            if values is not None:
                columns.append(take_columns(values, order).tolist())
        return [
            [value for of_class in zip(*of_query, strict=True) for value in of_class]
            for of_query in zip(*columns, strict=True)
        ]


def _encode(lines: list[str]) -> bytes:
    """Return the bytes of lines; names that are not UTF-8 become the original bytes."""
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape") if lines else b""


def join_labels(labels: Sequence[str]) -> str:
    """Return a set of labels as one text, which `split_labels` splits again."""
    return "|".join(re.sub(r"[|\\]", r"\\\g<0>", label) for label in labels)


def split_labels(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in _LABEL.findall(text))


def number_format(dtype: str) -> str:
    """Return a format with enough digits to read a number back exactly."""
    return "%.9g" if dtype == "float32" else "%r"


def _field(text: str) -> str:
    if _QUOTED.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text


# The same few class names come again and again; there may be a million others.
quote_name = lru_cache(maxsize=4096)(_field)


def read_predictions(path: Path) -> Predictions:
    """Return the rows of a CSV written by classify, or of any CSV with columns truth and label."""
    from crnr_cli.system.csv_file import wrap_as_text  # here and below, as only reading needs it

    try:
        with path.open("rb") as binary, wrap_as_text(binary, path) as file:
            return parse_predictions(file, str(path))
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e


def listed_classes(columns: Iterable[str]) -> list[str]:
    """Return the classes that have a column of residuals: all of the gallery, or none."""
    return [column.removeprefix(RESIDUAL) for column in columns if column.startswith(RESIDUAL)]


def parse_predictions(file: TextIO, name: str) -> Predictions:
    import csv

    from crnr_cli.system.csv_file import DecimalSigns, long_fields, refuse_separators, split_head

    separator, lines = split_head(file)
    reader = csv.reader(lines, strict=True, delimiter=separator)
    signs = DecimalSigns(name, separator)
    try:
        header = next(reader, [])
        missing = [column for column in ("truth", "label") if column not in header]
        if missing:
            refuse_separators(header, name, separator)
            raise DataError(f"{name}: no column {' or '.join(missing)}; was it written by `crnr classify`?")
        where = {column: header.index(column) for column in COLUMNS if column in header}
        if "probability" in header:  # without it, a set does not hold labels
            where |= {column: header.index(column) for column in MORE_COLUMNS if column in header}
        where |= {column: header.index(column) for column in (DATE, EVENT, EVENT_LABEL) if column in header}
        rows = (_prediction(row, where, name, reader.line_num, len(header), signs) for row in reader if row)
        with long_fields():
            return Predictions(rows, listed_classes(header))
    except (csv.Error, UnicodeError) as e:
        raise DataError(f"{name}, line {reader.line_num}: not readable as CSV ({e})") from e


def _finite(text: str | None) -> float | None:
    """Return a number; None for empty text, and for nan and inf, which other programs write."""
    value = float(text) if text else math.nan
    return value if math.isfinite(value) else None


def _prediction(
    row: list[str], where: dict[str, int], name: str, line: int, width: int, signs: DecimalSigns
) -> Prediction:
    if len(row) != width:
        raise DataError(
            f"{name}, line {line}: {format_count(len(row), 'field')}, but the header has {width}; "
            "is the file truncated?"
        )
    values = {column: row[index] or None for column, index in where.items()}
    numeric = [column for column in _NUMBERS if values.get(column)]
    points = signs.to_points([values[column] or "" for column in numeric], line)
    values |= zip(numeric, points, strict=True)
    try:
        numbers = {name: _finite(values.get(name)) for name in ("residual", "margin", "separation")}
    except ValueError as e:
        raise DataError(f"{name}, line {line}: {e}") from e
    return Prediction(
        path=values.get("path") or "",
        truth=values["truth"],
        label=values["label"],
        runner_up=values.get("runner_up"),
        status=values.get("status") or (OK if values["label"] else "no_label"),
        probability=_probability(values.get("probability")),
        set=split_labels(values["set"] or "") if values["label"] and "set" in values else None,
        date=values.get(DATE),
        rank=values.get("rank"),
        class_probability=_probability(values.get("class_probability")),
        event=values.get(EVENT),
        event_label=values.get(EVENT_LABEL),
        **numbers,
    )


def _probability(text: str | None) -> float | None:
    """Return a probability; None for other values: another program may use this column name."""
    try:
        value = _finite(text)
    except ValueError:
        return None
    return value if value is not None and 0 <= value <= 1 else None
