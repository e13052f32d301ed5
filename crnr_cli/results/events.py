"""Answer events: one answer for all images of a burst, from the finished rows of a predictions file.

The probabilities of a class are averaged over the members of an event. They come from the rows as written, so
the answer to an event can be repeated from the printed figures, and a stopped run can be continued. The rows
are read three times: to group them, to add up probabilities, and to append the columns. In memory are the
names and dates, and the probabilities of the events whose members are not all read yet.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from crnr_cli.arrays import Array, to_dense
from crnr_cli.images.events import group_by_gap, group_by_key
from crnr_cli.results.decision import REJECTED, UNKNOWN
from crnr_cli.results.probability import DECIMALS, Calibrated
from crnr_cli.results.table import DATE, EVENT_COLUMNS, RESIDUAL, quote_name
from crnr_cli.system.csv_file import split_rows


@dataclass(frozen=True)
class EventOptions:
    """How inputs are grouped into events: by capture times, or by a column of the label table."""

    gap: float | None = None  # seconds
    column: str | None = None

    @property
    def option(self) -> str:
        """The option that the user gave."""
        return "--event-by" if self.gap is None else "--event-gap"

    @property
    def value(self) -> float | str | None:
        """The value of the option."""
        return self.column if self.gap is None else self.gap


@dataclass(frozen=True)
class EventAnswers:
    """Answers the events of finished rows, which have probabilities."""

    gap: float | None  # seconds between members
    find_key: Callable[[str], str | None] | None  # without a gap, the event of an image
    is_csv: bool  # the rows are CSV, not JSON Lines
    classes: Sequence[str]
    certainty: Calibrated
    dtype: str  # of the residuals
    signed: bool
    min_probability: float  # a less probable event is rejected

    def finish(self, rows: BinaryIO, output: BinaryIO) -> None:
        """Write the rows with the columns of EVENT_COLUMNS at their end."""
        events, answers = self.answer(rows)
        lines = self._lines(rows)
        if self.is_csv:
            output.write(extend_header(next(lines)))
        for line, event in zip(lines, events.tolist(), strict=True):
            output.write(self._extend(line, event, *answers[event - 1]))

    def answer(self, rows: BinaryIO) -> tuple[Array, list[tuple[str | None, float | None]]]:
        """Return the event of every row, and the label and the probability of every event."""
        events = self._group(rows)
        return events, self._answer(rows, events)

    def _group(self, rows: BinaryIO) -> Array:
        names, dates = [], []
        for record in self._read(rows):
            names.append(record["path"])
            dates.append(record.get(DATE) or "")
        if self.gap is not None:
            return group_by_gap(names, dates, self.gap)
        assert self.find_key is not None
        return group_by_key(names, self.find_key)

    def _answer(self, rows: BinaryIO, events: Array) -> list[tuple[str | None, float | None]]:
        """Return the label and the probability of every event; None if all its members failed."""
        remaining = np.bincount(events)
        answers: list[tuple[str | None, float | None]] = [(None, None)] * (len(remaining) - 1)
        unfinished: dict[int, _Event] = {}
        for record, event in zip(self._read(rows), events.tolist(), strict=True):
            remaining[event] -= 1
            if record["label"]:
                self._add(unfinished.setdefault(event, _Event()), record)
            if not remaining[event] and event in unfinished:
                answers[event - 1] = self._decide(unfinished.pop(event))
        return answers

    def _add(self, event: _Event, record: Mapping[str, Any]) -> None:
        is_rejected = record["status"] == REJECTED
        best = record["runner_up"] if is_rejected else record["label"]
        event.alone = None if event.n_members else (best, float(record["probability"]))
        event.n_members += 1
        # An improbable answer is weak evidence. A query that fits no class counts only if all are like it.
        if is_rejected and float(record["probability"]) >= self.min_probability:
            event.of_rejected = event.of_rejected + self._probabilities(record)
        else:
            event.of_accepted = event.of_accepted + self._probabilities(record)
            event.n_accepted += 1

    def _decide(self, event: _Event) -> tuple[str, float]:
        if event.alone:
            label, probability = event.alone
        else:
            values = event.of_accepted if event.n_accepted else event.of_rejected
            mean = values / (event.n_accepted or event.n_members)
            best = int(mean.argmax())
            label, probability = self.classes[best], round(float(mean[best]), DECIMALS)
        is_rejected = not event.n_accepted or probability < self.min_probability
        return UNKNOWN if is_rejected else label, probability

    def _probabilities(self, record: Mapping[str, Any]) -> Array:
        """Return (K,): the probabilities of the classes; classes that are not written share the rest."""
        residuals, best = self._written_values(record)
        if residuals:
            row = np.array([residuals], dtype=self.dtype)
            found: Array = to_dense(self.certainty.probabilities(row, self.signed))[0]
            return found
        rest = max(0.0, 1 - sum(best.values())) / max(1, len(self.classes) - len(best))
        return np.array([best.get(name, rest) for name in self.classes])

    def _written_values(self, record: Mapping[str, Any]) -> tuple[list[float], dict[str, float]]:
        """Return the residuals of all classes or, if only some are written, the best probabilities."""
        if not self.is_csv:
            residuals = record["residuals"]
            if len(residuals) == len(self.classes):
                return [residuals[name] for name in self.classes], {}
            return [], record["probabilities"]
        if f"{RESIDUAL}{self.classes[0]}" in record:
            return [float(record[f"{RESIDUAL}{name}"]) for name in self.classes], {}
        numbers = [column.removeprefix("label_") for column in record if column.startswith("label_")]
        return [], {record[f"label_{i}"]: float(record[f"probability_{i}"]) for i in numbers}

    def _read(self, rows: BinaryIO) -> Iterator[Mapping[str, Any]]:
        """Yield the values of all rows by column."""
        lines = self._lines(rows)
        if not self.is_csv:
            yield from map(json.loads, lines)
            return
        header = _split(next(lines))
        for line in lines:
            yield dict(zip(header, _split(line), strict=True))

    def _lines(self, rows: BinaryIO) -> Iterator[bytes]:
        """Return all lines as they are written; of a CSV, the first is the header."""
        rows.seek(0)
        return split_rows(rows) if self.is_csv else iter(rows)

    def _extend(self, line: bytes, event: int, label: str | None, probability: float | None) -> bytes:
        if not self.is_csv:
            values = dict(zip(EVENT_COLUMNS, (event, label, probability), strict=True))
            return line[:-2] + f", {json.dumps(values)[1:]}\n".encode("ascii")
        shown = "" if probability is None else f"{probability:.{DECIMALS}f}"
        text = f",{event},{quote_name(label or '')},{shown}\n"
        return line[:-1] + text.encode("utf-8", "surrogateescape")


class _Event:
    """An event whose members are not all read yet."""

    def __init__(self) -> None:
        self.n_members = self.n_accepted = 0
        self.of_accepted = self.of_rejected = np.zeros(1)  # sums of probabilities
        self.alone: tuple[str, float] | None = None  # the answer to the only member so far


def extend_header(line: bytes) -> bytes:
    """Return the first line of a CSV with the columns of events; an empty line has no columns."""
    return line and line[:-1] + f",{','.join(EVENT_COLUMNS)}\n".encode()


def _split(line: bytes) -> list[str]:
    (fields,) = csv.reader([line.decode("utf-8", "surrogateescape")], strict=True)
    return fields
