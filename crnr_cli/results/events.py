"""Answer events: one answer for all images of a burst, from the finished rows of a predictions file.

The probabilities of a class are averaged over the members of an event. They come from the rows as written, so
the answer to an event can be repeated from the printed figures, and a stopped run can be continued. The rows
are read three times: to group them, to add up probabilities, and to append the columns. In memory are the
names and dates, and the probabilities of the events whose members are not all read yet.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from crnr_cli.arrays import Array, to_dense
from crnr_cli.images.events import group_by_gap, group_by_key
from crnr_cli.progress import Progress, silent
from crnr_cli.records import dataclass
from crnr_cli.results.decision import REJECTED, UNKNOWN
from crnr_cli.results.probability import DECIMALS, Calibrated
from crnr_cli.results.table import DATE, EVENT_COLUMNS, RESIDUAL, quote_name
from crnr_cli.system.csv_file import long_fields, split_rows

_BLOCK = 256  # rows that are read at once; 1024 and more took longer
_MAX_VALUES = 2**20  # probabilities in a block

_Block: TypeAlias = Mapping[str, Sequence[Any]]  # the values of some rows, by column
_Answer: TypeAlias = tuple[str | None, float | None]  # the label and the probability of an event


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

    def finish(self, rows: BinaryIO, output: BinaryIO, progress: Progress = silent) -> None:
        """Write the rows with the columns of EVENT_COLUMNS at their end."""
        events, answers = self.answer(rows, progress)
        lines = self._lines(rows)
        if self.is_csv:
            output.write(extend_header(next(lines)))
        extend = _extend_csv if self.is_csv else _extend_json
        for start in range(0, len(events), _BLOCK):
            numbers = events[start : start + _BLOCK].tolist()
            output.writelines(extend(next(lines), event, *answers[event - 1]) for event in numbers)
            progress("writing events", start + len(numbers), len(events))

    @long_fields()
    def answer(self, rows: BinaryIO, progress: Progress = silent) -> tuple[Array, list[_Answer]]:
        """Return the event of every row, and the label and the probability of every event.

        An event whose members all failed has neither.
        """
        events = self._group(rows)
        sizes = np.bincount(events).tolist()
        answers: list[_Answer] = [(None, None)] * (len(sizes) - 1)
        unfinished: dict[int, _Event] = {}
        remaining, done = list(sizes), 0
        for block in self._read(rows):
            labels = block["label"]
            numbers = events[done : done + len(labels)].tolist()
            # The answer to a single member is the answer to its event, whatever the other probabilities.
            wanted = [i for i, event in enumerate(numbers) if labels[i] and sizes[event] > 1]
            probabilities = iter(self._probabilities(block, wanted) if wanted else ())
            for i, event in enumerate(numbers):
                remaining[event] -= 1
                if labels[i]:
                    found = unfinished.get(event) or unfinished.setdefault(event, _Event())
                    self._add(found, block, i, next(probabilities) if sizes[event] > 1 else 0.0)
                if not remaining[event] and event in unfinished:
                    answers[event - 1] = self._decide(unfinished.pop(event))
            done += len(labels)
            progress("answering events", done, len(events))
        return events, answers

    def _group(self, rows: BinaryIO) -> Array:
        names: list[str] = []
        dates: list[str] = []
        for name, date in self._read_dates(rows):
            names.append(name)
            dates.append(date)
        if self.gap is not None:
            return group_by_gap(names, dates, self.gap)
        assert self.find_key is not None
        return group_by_key(names, self.find_key)

    def _read_dates(self, rows: BinaryIO) -> Iterator[tuple[str, str]]:
        """Yield the path and the date of every row; an unknown date is empty."""
        lines = self._lines(rows)
        if not self.is_csv:
            for record in map(json.loads, lines):
                yield record["path"], record.get(DATE) or ""
            return
        header = _split(next(lines))
        place = header.index(DATE) if DATE in header else None
        for line in lines:
            fields = _split(line, (place or 0) + 1)
            yield fields[0], "" if place is None else fields[place]

    def _add(self, event: _Event, block: _Block, i: int, probabilities: Array | float) -> None:
        """Add a row of a block to its event."""
        is_rejected = block["status"][i] == REJECTED
        probability = float(block["probability"][i])
        best = (block["runner_up"] if is_rejected else block["label"])[i]
        event.alone = None if event.n_members else (best, probability)
        event.n_members += 1
        # An improbable answer is weak evidence. A query that fits no class counts only if all are like it.
        if is_rejected and probability >= self.min_probability:
            event.of_rejected = event.of_rejected + probabilities
        else:
            event.of_accepted = event.of_accepted + probabilities
            event.n_accepted += 1

    def _decide(self, event: _Event) -> tuple[str, float]:
        if event.alone:
            label, probability = event.alone
        else:
            values = event.of_accepted if event.n_accepted else event.of_rejected
            mean = np.asarray(values / (event.n_accepted or event.n_members))
            best = int(mean.argmax())
            label, probability = self.classes[best], round(float(mean[best]), DECIMALS)
        is_rejected = not event.n_accepted or probability < self.min_probability
        return UNKNOWN if is_rejected else label, probability

    def _probabilities(self, block: _Block, rows: Sequence[int]) -> Array:
        """Return (m, K): the probabilities of the classes; classes that are not written share the rest."""
        if self.is_csv:
            residuals = [list(map(float, block[RESIDUAL][i])) for i in rows]
        else:
            written = [block["residuals"][i] for i in rows]
            is_complete = len(written[0]) == len(self.classes)
            residuals = [[one[name] for name in self.classes] for one in written] if is_complete else [[]]
        if residuals[0]:
            values = np.array(residuals, dtype=self.dtype)
            return to_dense(self.certainty.probabilities(values, self.signed))
        found = np.empty((len(rows), len(self.classes)))
        for row, best in zip(found, self._best_probabilities(block, rows), strict=True):
            row[:] = max(0.0, 1 - sum(best.values())) / max(1, len(self.classes) - len(best))
            row[[self._places[name] for name in best]] = list(best.values())
        return found

    def _best_probabilities(self, block: _Block, rows: Sequence[int]) -> list[dict[str, float]]:
        if not self.is_csv:
            return [block["probabilities"][i] for i in rows]
        numbers = [column.removeprefix("label_") for column in block if column.startswith("label_")]
        labels = list(zip(*(block[f"label_{one}"] for one in numbers), strict=True))
        values = list(zip(*(block[f"probability_{one}"] for one in numbers), strict=True))
        return [dict(zip(labels[i], map(float, values[i]), strict=True)) for i in rows]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.classes)}

    def _read(self, rows: BinaryIO) -> Iterator[_Block]:
        """Yield blocks of rows: the values of every column. The residuals of a CSV are in one column."""
        size = max(1, min(_BLOCK, _MAX_VALUES // len(self.classes)))
        rows.seek(0)
        if not self.is_csv:
            while records := [json.loads(line) for line in islice(rows, size)]:
                yield {name: [record[name] for record in records] for name in records[0]}
            return
        text = io.TextIOWrapper(rows, "utf-8", "surrogateescape", newline="\n")
        try:
            reader = csv.reader(text, strict=True)
            header = next(reader)
            first = next((i for i, name in enumerate(header) if name.startswith(RESIDUAL)), len(header))
            while found := list(islice(reader, size)):
                columns = {name: [row[place] for row in found] for place, name in enumerate(header[:first])}
                yield {**columns, RESIDUAL: [row[first:] for row in found]}
        finally:
            text.detach()  # which else would close the file

    def _lines(self, rows: BinaryIO) -> Iterator[bytes]:
        """Return all lines as they are written; of a CSV, the first is the header."""
        rows.seek(0)
        return split_rows(rows) if self.is_csv else iter(rows)


class _Event:
    """An event whose members are not all read yet."""

    def __init__(self) -> None:
        self.n_members = self.n_accepted = 0
        self.of_accepted: Array | float = 0.0  # sums of probabilities
        self.of_rejected: Array | float = 0.0
        self.alone: tuple[str, float] | None = None  # the answer to the only member so far


def _extend_csv(line: bytes, event: int, label: str | None, probability: float | None) -> bytes:
    shown = "" if probability is None else f"{probability:.{DECIMALS}f}"
    text = f",{event},{quote_name(label or '')},{shown}\n"
    return line[:-1] + text.encode("utf-8", "surrogateescape")


def _extend_json(line: bytes, event: int, label: str | None, probability: float | None) -> bytes:
    values = zip(EVENT_COLUMNS, (str(event), _dump(label), _dump(probability)), strict=True)
    text = "".join(f', "{name}": {value}' for name, value in values)
    return line[:-2] + f"{text}}}\n".encode("ascii")


def _split(line: bytes, n_first: int = -1) -> list[str]:
    """Return all fields of a row, or at least the first ones."""
    text = line.decode("utf-8", "surrogateescape")
    if '"' not in text:
        return text.removesuffix("\n").split(",", n_first)
    (fields,) = csv.reader([text], strict=True)
    return fields


_dump = lru_cache(maxsize=4096)(json.dumps)  # names and probabilities come again and again


def extend_header(line: bytes) -> bytes:
    """Return the first line of a CSV with the columns of events; an empty line has no columns."""
    return line and line[:-1] + f",{','.join(EVENT_COLUMNS)}\n".encode()
