"""Read corrections.csv: what a person said about answers, as the page of `crnr review` saves it."""

from __future__ import annotations

import csv
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.system.names import existing
from crnr_cli.system.outputs import refuse_inputs
from crnr_cli.wording import counted

COLUMNS = ("path", "label", "corrected", "when")
_SHOWN = 40  # characters of a text that is no date


class Correction(NamedTuple):
    """One answer that a person looked at."""

    path: str  # as the predictions CSV has it
    label: str  # the answer; empty if there was none
    corrected: str  # what it is: the same if the answer was accepted
    when: float | None  # seconds since 1970; None if it is not known
    line: int

    @property
    def is_outsider(self) -> bool:
        """Whether it belongs to no class."""
        return self.corrected == UNKNOWN


@dataclass(frozen=True)
class Corrections:
    file: Path
    by_place: Mapping[str, Correction]

    def of(self, path: str) -> Correction | None:
        """The correction of a file, by whatever name it is known."""
        return self.by_place.get(_place(path))

    def __iter__(self) -> Iterator[Correction]:
        return iter(self.by_place.values())

    def __len__(self) -> int:
        return len(self.by_place)


def read_corrections(file: Path) -> Corrections:
    found = existing(file)
    if found is None:
        raise DataError(f"{file}: no such file; give the corrections that the page of `crnr review` saved")
    if not stat.S_ISREG(found.st_mode):  # a pipe would make us wait
        raise DataError(f"{file}: is not a file; give the corrections that the page of `crnr review` saved")
    refuse_inputs([file])
    by_place: dict[str, Correction] = {}
    for correction in _rows(file):
        other = by_place.setdefault(_place(correction.path), correction)
        if other.corrected != correction.corrected:
            raise DataError(
                f"{file}, line {correction.line}: {correction.path} is {correction.corrected!r} here, and "
                f"{other.corrected!r} in line {other.line}"
            )
    if not by_place:
        raise DataError(f"{file}: has no corrections; review some answers and save it again")
    return Corrections(file, by_place)


def _rows(file: Path) -> Iterator[Correction]:
    try:
        with file.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            header: list[str] = next(reader, [])
            missing = [column for column in COLUMNS if column not in header]
            if missing:
                raise DataError(
                    f"{file}: no column {' or '.join(missing)}; was it saved by the page of `crnr review`?"
                )
            if twice := [column for column in COLUMNS if header.count(column) > 1]:
                raise DataError(f"{file}: has two columns {twice[0]}; remove one")
            for row in filter(None, reader):
                line = reader.line_num
                if len(row) != len(header):
                    raise DataError(
                        f"{file}, line {line}: {counted(len(row), 'field')}, but the header has "
                        f"{len(header)}; is the file truncated?"
                    )
                values = [row[header.index(column)] for column in COLUMNS]
                yield _correction(values, line, f"{file}, line {line}")
    except OSError as e:
        raise DataError(f"{file}: cannot read it ({e.strerror})") from e
    except (csv.Error, UnicodeError) as e:
        raise DataError(f"{file}, line {reader.line_num}: not readable as CSV ({e})") from e


def _correction(values: Sequence[str], line: int, where: str) -> Correction:
    path, label, corrected, when = values
    if not path:
        raise DataError(f"{where}: the path is empty")
    if "\0" in path:
        raise DataError(f"{where}: the path contains NUL")
    if not corrected:
        raise DataError(f"{where}: the column corrected is empty; name the class, or remove the row")
    return Correction(path, label, corrected, _seconds(when, where), line)


def _seconds(text: str, where: str) -> float | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as e:
        raise DataError(
            f"{where}: the column when contains {text[:_SHOWN]!r}, which is not a date such as "
            "2026-01-31T12:00:00Z; leave it empty if it is not known"
        ) from e


def _place(path: str) -> str:
    """A path in one form, from whatever folder it is named; links are not followed."""
    return unicodedata.normalize("NFC", os.path.abspath(path))  # noqa: PTH100
