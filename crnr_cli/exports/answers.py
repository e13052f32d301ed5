"""Read a predictions file for another program: the answers of each image, with corrections."""

from __future__ import annotations

from pathlib import Path

from crnr_cli.errors import DataError
from crnr_cli.exports.base import ExportedAnswer, ExportedImage, split_box
from crnr_cli.records import dataclass
from crnr_cli.results.decision import OK, UNKNOWN, Prediction
from crnr_cli.results.edited import Corrections, read_corrections
from crnr_cli.results.formats import read_answers, read_columns
from crnr_cli.sources.formats import is_table
from crnr_cli.sources.images import NO_BOX, is_unrelated
from crnr_cli.system.csv_file import require_file, require_utf_8
from crnr_cli.system.names import with_slashes
from crnr_cli.wording import format_count

CORRECTED, TIMESTAMP = "corrected", "timestamp"
_TWICE = "the predictions file names it twice"


@dataclass(frozen=True)
class AnswersByImage:
    images: list[ExportedImage]
    twice: list[tuple[str, str]]  # rows that repeat another one, and the reason to leave them out
    unrelated: int  # files that are not images


def read_images(table: Path, corrections: Path | None = None) -> AnswersByImage:
    """Return the answers by image, in the order of the file.

    The column `corrected` replaces the label, and a row of `corrections` replaces both.
    """
    require_file(table, "give a predictions file written by `crnr classify`")
    rows = read_answers(table)
    if not rows:
        raise DataError(f"{table}: has no rows")
    more = read_columns(table, (CORRECTED, TIMESTAMP))
    corrected = more.get(CORRECTED) or [""] * len(rows)
    timestamps = more.get(TIMESTAMP) or [""] * len(rows)
    reviewed = read_corrections(corrections) if corrections else None
    if reviewed is not None:
        corrected = _apply_corrections(rows, corrected, reviewed)
    images: dict[str, ExportedImage] = {}
    seen: set[str] = set()
    twice: list[tuple[str, str]] = []
    unrelated = 0
    for number, row in enumerate(rows):
        where = f"{table}: row {number + 1}"
        _check_path(row.path, where)
        has_label = row.label or corrected[number] or row.status == NO_BOX
        if not has_label and is_unrelated(row.path, row.status):
            unrelated += 1
        elif row.path in seen:
            twice.append((row.path, _TWICE))
        else:
            seen.add(row.path)
            require_utf_8(corrected[number], where, f"the column {CORRECTED}")
            answer = _answer(row, corrected[number].strip(), timestamps[number].strip() or row.date or "")
            path = answer.query.image
            images.setdefault(path, ExportedImage(path)).answers.append(answer)
    if not images:
        raise DataError(f"{table}: names no images")
    return AnswersByImage(list(images.values()), twice, unrelated)


def _check_path(path: str, where: str) -> None:
    if not path:
        raise DataError(f"{where} has no path; was it written by `crnr classify`?")
    name, hash, _ = path.rpartition("#")
    if hash and is_table(name):
        raise DataError(f"{where}: {path} is a row of a feature file; classify images instead")


def _apply_corrections(rows: list[Prediction], corrected: list[str], reviewed: Corrections) -> list[str]:
    found = [reviewed.of(row.path) if row.path else None for row in rows]
    if not any(found):
        raise DataError(
            f"{reviewed.file}: has none of the {format_count(len(rows), 'row')}, such as {rows[0].path}; "
            "paths are relative to the current folder, so run the command where `crnr classify` ran"
        )
    return [one.corrected if one else before for one, before in zip(found, corrected, strict=True)]


def _answer(row: Prediction, corrected: str, timestamp: str) -> ExportedAnswer:
    label, status = (corrected, OK) if corrected else (row.label, row.status)
    if label == UNKNOWN:
        label, status = None, "rejected"
    name = with_slashes(row.path)
    return ExportedAnswer(name, split_box(name), label, status, row.probability, bool(corrected), timestamp)
