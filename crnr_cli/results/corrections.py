"""Read corrections.csv: what a person said about answers, as the page of `crnr review` saves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.system.csv_file import records, require_file, require_utf_8
from crnr_cli.system.names import class_key, place_of

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
        return self.by_place.get(place_of(path))

    def __iter__(self) -> Iterator[Correction]:
        return iter(self.by_place.values())

    def __len__(self) -> int:
        return len(self.by_place)


def read_corrections(file: Path) -> Corrections:
    require_file(file, "give the corrections that the page of `crnr review` saved")
    by_place: dict[str, Correction] = {}
    rows = records(file, COLUMNS, "was it saved by the page of `crnr review`?")
    for correction in (_correction(values, line, where) for values, where, line in rows):
        other = by_place.setdefault(place_of(correction.path), correction)
        if class_key(other.corrected) != class_key(correction.corrected):
            raise DataError(
                f"{file}, line {correction.line}: {correction.path} is {correction.corrected!r} here, and "
                f"{other.corrected!r} in line {other.line}"
            )
    if not by_place:
        raise DataError(f"{file}: has no corrections; review some answers and save it again")
    return Corrections(file, by_place)


def _correction(values: Sequence[str], line: int, where: str) -> Correction:
    path, label, corrected, when = values
    if not path:
        raise DataError(f"{where}: the path is empty")
    if "\0" in path:
        raise DataError(f"{where}: the path contains NUL")
    if not corrected:
        raise DataError(f"{where}: the column corrected is empty; name the class, or remove the row")
    require_utf_8(corrected, where, "the column corrected")
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
