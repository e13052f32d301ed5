"""Answers as rows of the output, with what a report needs to know about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from crnr_cli.results.decision import Answers, Prediction
from crnr_cli.results.json_lines import JsonLinesFormatter
from crnr_cli.results.table import CsvFormatter
from crnr_cli.sources.folders import is_unrelated

MAX_FAILURES = 10  # kept for the report; the output has all of them


@dataclass(frozen=True)
class RowBatch:
    """The rows of a batch of queries."""

    data: bytes
    statuses: Counter[str]  # number of queries by status
    missing: int  # queries without an answer, except unrelated files
    first_missing: tuple[str, str] | None  # the path and the status of the first of them
    failures: list[tuple[str, str]]  # the first queries without an answer, and the reasons

    @classmethod
    def of(cls, answers: Answers, rows: Sequence[Prediction], data: bytes = b"") -> RowBatch:
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


@dataclass(frozen=True)
class RowFormatter:
    """Makes rows of CSV or of JSON Lines."""

    lines: CsvFormatter | JsonLinesFormatter

    def format(self, answers: Answers) -> RowBatch:
        rows, data = self.lines.format(answers)
        return RowBatch.of(answers, rows, data)
