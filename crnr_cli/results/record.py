"""The record next to a predictions file: which queries its rows belong to, and how they were made.

It has lines of JSON: the settings of the run and the hash of the predictions file; then the rows in order,
many in a line; and last, the hash of all lines before. docs/reference/output.md describes them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from crnr_cli.errors import OutputError
from crnr_cli.records import dataclass
from crnr_cli.results.journal import Identity, describe_differences
from crnr_cli.system.csv_file import long_fields
from crnr_cli.system.files import partial_of, sha256_of, state_of
from crnr_cli.wording import format_count, has_or_have

_FORMAT = "crnr-state"  # the first key of a record; its value is the version of the format
_VERSION = 1
_ROWS_PER_LINE = 1024

Key = (
    str | tuple[str, int]
)  # the name of a query; from its second listing on, with the number of those before


class Listed(NamedTuple):
    """A query as it is listed: everything that its row depends on, besides the settings."""

    name: str
    size: int
    mtime_ns: int
    about: tuple[str, ...]  # its true class, if known, or the files that its features come from


class Rows:
    """The rows of the predictions file in order, by columns: there may be millions."""

    def __init__(self) -> None:
        self.places: dict[Key, int] = {}
        self.keys: list[Key] = []
        self.sizes, self.mtimes = array("q"), array("q")
        self.abouts: list[tuple[str, ...]] = []
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}  # many queries are in the same folders
        # Where the row is, in the file of new rows or in the predictions file; a row to come has length 0.
        self.starts, self.lengths = array("q"), array("q")
        self.are_new, self.are_failed, self.are_listed = bytearray(), bytearray(), bytearray()

    def __len__(self) -> int:
        return len(self.keys)

    def place_of(self, key: Key) -> int:
        """Return the place of a row; a new one is put at the end."""
        place = self.places.setdefault(key, len(self.keys))
        if place == len(self.keys):
            self.keys.append(key)
            self.abouts.append(())
            for numbers in (self.sizes, self.mtimes, self.starts, self.lengths):
                numbers.append(0)
            for flags in (self.are_new, self.are_failed, self.are_listed):
                flags.append(0)
        return place

    def describe(self, place: int, size: int, mtime_ns: int, about: tuple[str, ...]) -> None:
        self.sizes[place], self.mtimes[place] = size, mtime_ns
        self.abouts[place] = self._shared.setdefault(about, about)

    def store(self, place: int, start: int, length: int, *, is_new: bool, is_failed: bool) -> None:
        self.starts[place], self.lengths[place] = start, length
        self.are_new[place], self.are_failed[place] = is_new, is_failed

    def find(self, query: Listed) -> tuple[int, bool]:
        """Return the place of a query's row, and whether the query has to be classified."""
        name, *described = query
        key: Key = name
        for earlier in count(1):
            place = self.place_of(key)
            if not self.are_listed[place]:
                break
            key = name, earlier
        self.are_listed[place] = 1
        known = [self.sizes[place], self.mtimes[place], self.abouts[place]]
        is_wanted = described != known or not self.lengths[place] or bool(self.are_failed[place])
        self.describe(place, *query[1:])
        return place, is_wanted

    def to_record(self, place: int) -> list[Any]:
        key = self.keys[place]
        name, earlier = (key, 0) if isinstance(key, str) else key
        about, is_failed = self.abouts[place], self.are_failed[place]
        return [
            *(name, earlier, self.sizes[place], self.mtimes[place], about),
            *(is_failed, self.lengths[place]),
        ]

    def add(self, record: object, start: int, *, is_new: bool) -> int:
        """Store a row that `to_record` described, and return its length; ValueError if it did not."""
        match record:
            case [
                str(name),
                int(earlier),
                int(size),
                int(mtime_ns),
                [*about],
                0 | 1 as is_failed,
                int(length),
            ] if earlier >= 0 < length:
                place = self.place_of((name, earlier) if earlier else name)
                self.describe(place, size, mtime_ns, tuple(map(str, about)))
                self.store(place, start, length, is_new=is_new, is_failed=bool(is_failed))
                return length
        raise ValueError("not a row")


@dataclass(frozen=True)
class State:
    """The record of a predictions file."""

    settings: Identity
    size: int
    sha256: str
    header: int  # bytes before the first row
    rows: Rows

    @classmethod
    def read(cls, place: Path) -> State | None:
        """Return a record; None if it is missing, damaged or of a later version."""
        try:
            with place.open("rb") as file:
                return cls._parse(file)
        except FileNotFoundError:
            return None
        except OSError as e:
            remedy = "make it readable, or remove it to classify all queries again"
            raise OutputError(f"{place}: cannot read it ({e.strerror}); {remedy}") from e
        except (ValueError, RecursionError, OverflowError):
            return None

    @classmethod
    def _parse(cls, file: BinaryIO) -> State:
        digest, rows = hashlib.sha256(), Rows()
        match json.loads(first := file.readline()):
            case {
                "crnr-state": 1,
                "settings": dict(settings),
                "output": {"size": int(size), "sha256": str(sha256), "header": int(header)},
            }:
                digest.update(first)
            case _:
                raise ValueError("not a record")
        start = header
        for line in file:
            match json.loads(line):
                case {"sha256": str(found)} if found == digest.hexdigest() and start == size:
                    return cls(settings, size, sha256, header, rows)
                case [*records]:
                    digest.update(line)
                    for record in records:
                        start += rows.add(record, start, is_new=False)
                case _:
                    break
        raise ValueError("incomplete")

    def write(self, file: BinaryIO, places: Iterable[int]) -> None:
        """Write the record of these rows."""
        output = {"size": self.size, "sha256": self.sha256, "header": self.header}
        head = {_FORMAT: _VERSION, "settings": self.settings, "output": output}
        digest = hashlib.sha256()
        remaining = iter(places)
        lines: Iterator[object] = iter(
            lambda: [self.rows.to_record(place) for place in islice(remaining, _ROWS_PER_LINE)], []
        )
        for content in (head, *lines):
            line = json.dumps(content).encode() + b"\n"
            digest.update(line)
            file.write(line)
        file.write(json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n")


class Finished(NamedTuple):
    """An output that exists before a run, and a note on it."""

    is_complete: bool  # it is the output of this run
    note: str


def find_finished(
    path: Path, settings: Identity, header: bytes, queries: Iterable[Listed], gallery_mtime_ns: int
) -> Finished | None:
    """Return whether an output belongs to a run with these settings; None without a finished output.

    Without a record, it belongs to the run if it has a row for every query, and nothing has changed since.
    """
    target = Path(os.path.realpath(path))
    if not target.is_file() or partial_of(target).exists():
        return None
    again = "all queries are classified again"
    state, names = State.read(state_of(target)), Counter[str]()
    if state is not None and state.sha256 == sha256_of(target):
        if different := describe_differences(state.settings, settings):
            return Finished(False, f"{path}: was made by a different run: {', '.join(different)}; {again}")
        rows = state.rows
        rows.are_failed = bytearray(len(rows))  # a failed query has a row, too

        def is_new(query: Listed) -> bool:
            return rows.find(query)[1]

    else:
        made = target.stat().st_mtime_ns
        try:
            names = _count_names(target, header, is_csv=settings["--format"] == "csv")
        except (ValueError, csv.Error, RecursionError):
            return Finished(False, f"{path}: has other columns than this run writes; {again}")
        if gallery_mtime_ns > made:
            return Finished(False, f"{path}: is older than the gallery; {again}")

        def is_new(query: Listed) -> bool:
            names[query.name] -= 1
            return names[query.name] < 0 or query.mtime_ns > made

    answers = list(map(is_new, queries))
    if n_new := sum(answers):
        new = f"{n_new} of {format_count(len(answers), 'query')} {has_or_have(n_new)} no row yet or changed"
        return Finished(False, f"{path}: {new}; {again} (--update classifies only those)")
    if any(number > 0 for number in names.values()):
        return Finished(False, f"{path}: has rows of other queries; {again}")
    rows_of = f"a row for each of {format_count(len(answers), 'query')}"
    return Finished(True, f"{path}: is complete, with {rows_of}; to classify them again, leave out --resume")


def _count_names(target: Path, header: bytes, *, is_csv: bool) -> Counter[str]:
    """Return how many rows each query has; ValueError if the file has other columns."""
    with target.open("rb") as file:
        if file.read(len(header)) != header:
            raise ValueError("another header")
        text = io.TextIOWrapper(file, "utf-8", "surrogateescape", newline="")
        if is_csv:
            with long_fields():
                return Counter(row[0] for row in csv.reader(text, strict=True) if row)
        found = Counter[str]()
        for line in text:
            match json.loads(line):
                case {"path": str(name)}:
                    found[name] += 1
                case _:
                    raise ValueError("no path")
        return found
