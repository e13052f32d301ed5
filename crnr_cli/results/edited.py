"""Read the CSVs that people edit, corrections and marks, and the classes to choose from."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.results.decision import UNKNOWN
from crnr_cli.results.table import RESIDUAL
from crnr_cli.system.csv_file import (
    DecimalSigns,
    long_fields,
    opened_csv,
    read_records,
    require_file,
    require_utf_8,
)
from crnr_cli.system.names import class_key, normalize_path

_RANKED = re.compile(r"label_[1-9][0-9]*")
PATH, MARK, LABEL, CORRECTED = "path", "remove", "label", "corrected"
_OF_AUDIT = "was it written by `crnr audit --csv`, or saved by its page?"
_YES = {"x", "yes", "y", "1", "true"}
_NO = {"", "no", "n", "0", "false"}
COLUMNS = ("path", "label", "corrected", "when")
_SHOWN = 40  # characters of a text that is not a date


def read_candidates(path: Path, wanted: Container[int], count: int) -> tuple[dict[int, list[str]], list[str]]:
    """Return, for the wanted rows from 0, the classes with the smallest residuals, the smallest first.

    Also return all classes in the header.
    """
    with long_fields(), opened_csv(path) as reader:
        header = next(iter(reader), [])
        ranked = [i for i, name in enumerate(header) if _RANKED.fullmatch(name)][:count]
        by_class = [
            (i, name.removeprefix(RESIDUAL)) for i, name in enumerate(header) if name.startswith(RESIDUAL)
        ]
        found: dict[int, list[str]] = {}
        signs = DecimalSigns(path, reader.dialect.delimiter)
        for number, row in enumerate(filter(None, reader)):
            if number in wanted:
                residuals = signs.to_points([row[i] for i, _ in by_class], reader.line_num)
                found[number] = (
                    [row[i] for i in ranked if row[i]]
                    if ranked
                    else _best(residuals, [name for _, name in by_class], count)
                )
        return found, [name for _, name in by_class]


def _best(texts: list[str], classes: list[str], count: int) -> list[str]:
    residuals = ((float(text), name) for text, name in zip(texts, classes, strict=True) if text)
    return [name for _, name in heapq.nsmallest(count, (r for r in residuals if math.isfinite(r[0])))]


def read_marked_samples(path: Path) -> list[str]:
    """Return the names in the column `path` of all rows marked in the column `remove`, each once."""
    require_file(path, "give the CSV that `crnr audit --csv` wrote")
    rows = read_records(path, (PATH, MARK), "was it written by `crnr audit --csv`?")
    marked = {name: None for (name, text), where, _ in rows if _is_marked(text, where)}
    if not marked:
        raise DataError(f"{path}: no row is marked; write x into the column {MARK} of the examples to remove")
    return list(marked)


def count_corrected(path: Path) -> int:
    """Return the number of rows with a class in the column `corrected`."""
    rows = read_records(path, (PATH,), _OF_AUDIT, optional=(CORRECTED,))
    return sum(corrected.strip() != "" for (_, corrected), _, _ in rows)


def _is_marked(text: str, where: str) -> bool:
    mark = text.strip().lower()
    if mark not in _YES | _NO:
        raise DataError(f"{where}: the column {MARK} contains {mark!r}; write x, or leave it empty")
    return mark in _YES


class Mark(NamedTuple):
    """A row of an audit CSV in which a person decided on an example."""

    path: str
    label: str  # at the time of the audit; empty if the CSV has no such column
    corrected: str  # the true class; empty if the example is to be removed
    where: str  # the file and the line

    @property
    def text(self) -> str:
        """The decision, for messages."""
        return f"to become {self.corrected!r}" if self.corrected else "to be removed"


def read_marks(path: Path) -> list[Mark]:
    """Return the rows with a class in the column `corrected`, or a mark in the column `remove`."""
    require_file(path, "give the CSV that `crnr audit --csv` wrote, or that its page saved")
    marks = []
    for (name, text, label, corrected), where, _ in read_records(
        path, (PATH, MARK), _OF_AUDIT, optional=(LABEL, CORRECTED)
    ):
        corrected = corrected.strip()
        if (is_removed := _is_marked(text, where)) and corrected:
            raise DataError(
                f"{where}: {name} has x in the column {MARK} and {corrected!r} in the column {CORRECTED}; "
                "empty one of them"
            )
        if not name and (is_removed or corrected):
            raise DataError(f"{where}: the path is empty")
        require_utf_8(corrected, where, f"the column {CORRECTED}")
        if is_removed or corrected:
            marks.append(Mark(name, label, corrected, where))
    if not marks:
        raise DataError(
            f"{path}: no row is marked; write the right class into the column {CORRECTED}, or x into the "
            f"column {MARK}"
        )
    return marks


class Correction(NamedTuple):
    """One answer that a person checked."""

    path: str  # as in the predictions CSV
    label: str  # the answer; empty if it failed
    corrected: str  # the true class: the same if the answer was accepted
    when: float | None  # seconds since 1970; None if unknown
    line: int

    @property
    def is_outsider(self) -> bool:
        """Whether it is an outsider."""
        return self.corrected == UNKNOWN


@dataclass(frozen=True)
class Corrections:
    file: Path
    by_place: Mapping[str, Correction]

    def of(self, path: str) -> Correction | None:
        """Return the correction of a file, by any of its names."""
        return self.by_place.get(normalize_path(path))

    def __iter__(self) -> Iterator[Correction]:
        return iter(self.by_place.values())

    def __len__(self) -> int:
        return len(self.by_place)


def read_corrections(file: Path) -> Corrections:
    require_file(file, "give the corrections saved by the page of `crnr review`")
    by_place: dict[str, Correction] = {}
    rows = read_records(file, COLUMNS, "was it saved by the page of `crnr review`?")
    for correction in (_correction(values, line, where) for values, where, line in rows):
        other = by_place.setdefault(normalize_path(correction.path), correction)
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
