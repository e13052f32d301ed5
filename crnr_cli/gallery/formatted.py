"""Answers as the bytes of the output, with what a report needs to know about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crnr_cli.gallery.answer import Answering, QueryOptions, best_written, sureness
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.progress import Progress
from crnr_cli.results.decision import Answers, Prediction
from crnr_cli.results.json_lines import JsonLinesWriter
from crnr_cli.results.table import CsvWriter, Writable
from crnr_cli.sources.base import Source
from crnr_cli.sources.folders import is_unrelated

MAX_FAILURES = 10  # kept for the report; the output has all of them


@dataclass(frozen=True)
class Formatted:
    """A batch of rows."""

    data: bytes
    statuses: Counter[str]  # number of queries by status
    missing: int  # queries without an answer, except unrelated files
    first_missing: tuple[str, str] | None  # the path and the status of the first of them
    failures: list[tuple[str, str]]  # the first queries without an answer, and the reasons

    @classmethod
    def of(cls, answers: Answers, rows: Sequence[Prediction], data: bytes = b"") -> Formatted:
        missing = [row for row in rows if row.label is None and not is_unrelated(row.path, row.status)]
        names = answers.batch.names
        failed = [(names[query], f"{error.status}, {error}") for query, error in answers.batch.failed()]
        return cls(
            data,
            Counter(row.status for row in rows),
            len(missing),
            (missing[0].path, missing[0].status) if missing else None,
            failed[:MAX_FAILURES],
        )


# Classifies all queries of a source, in order, starting with the batch of the given number.
Formatting = Callable[[Gallery, Source, QueryOptions, Progress, int], Iterator[Formatted]]


def formatting(answered_by: Answering) -> Formatting:
    """Make rows of answers in this process."""

    def run(
        gallery: Gallery, source: Source, options: QueryOptions, progress: Progress, first: int
    ) -> Iterator[Formatted]:
        sure = sureness(gallery, options)
        formatter = Formatter(gallery, options, sure.columns if sure else ())
        for answers in answered_by(gallery, source, options, progress, first):
            yield formatter.formatted(answers)

    return run


class Formatter:
    """Makes rows of CSV, without the header, or of JSON Lines."""

    def __init__(self, gallery: Gallery, options: QueryOptions, more: Sequence[str]) -> None:
        """`more` names the columns of MORE_COLUMNS that the answers have."""
        self._buffer = _Buffer()
        self._writer = row_writer(self._buffer, gallery, options, more)

    def formatted(self, answers: Answers) -> Formatted:
        rows = self._writer.write(answers)
        return Formatted.of(answers, rows, self._buffer.taken())


def row_writer(
    file: Writable,
    gallery: Gallery,
    options: QueryOptions,
    more: Sequence[str],
    *,
    header: bool = False,
) -> CsvWriter | JsonLinesWriter:
    """What writes batches in a format that can be written batch by batch."""
    top = best_written(gallery, options)
    if options.format == "jsonl":
        return JsonLinesWriter(file, gallery.classes, top, more)
    return CsvWriter(file, gallery.classes, gallery.dtype, top, header=header, more=more)


class _Buffer:
    """A file that is emptied after every batch."""

    def __init__(self) -> None:
        self._data = bytearray()

    def write(self, data: bytes) -> None:
        self._data += data

    def taken(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data
