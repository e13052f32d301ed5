"""Evaluate: predictions with known truth become scores."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.answer import QueryOptions, answer, load_for, open_queries
from crnr_cli.gallery.gallery import Gallery
from crnr_cli.progress import Progress, silent
from crnr_cli.results.decision import OK, UNKNOWN, Prediction, predictions
from crnr_cli.results.scores import Scores, score, wilson
from crnr_cli.results.table import parse_predictions, read_predictions
from crnr_cli.sources.folders import is_unrelated
from crnr_cli.system import memory
from crnr_cli.wording import counted, have


@dataclass(frozen=True)
class EvaluateReport:
    scores: Scores  # of the rows with truth and label
    rows: list[Prediction]
    without_truth: int
    failed: Counter[str]  # rows without an answer, by status
    passed_over: int  # rows of unrelated files, which are ignored
    gallery: Gallery | None = None  # the one that classified the queries; None if the rows are from a CSV

    @property
    def skipped(self) -> int:
        """Queries without an answer; none if the rows are from a CSV."""
        return sum(self.failed.values()) if self.gallery else 0

    @property
    def rejected(self) -> list[Prediction]:
        """Rows labelled as unknown; they are neither right nor wrong, and are counted separately."""
        return [row for row in self.rows if row.label == UNKNOWN]

    @property
    def rejected_guess_right(self) -> int:
        """Rejected rows whose best guess is the truth: the cost of rejecting."""
        return sum(1 for row in self.rejected if row.truth and row.runner_up == row.truth)

    @property
    def mistakes(self) -> list[Prediction]:
        """Wrong answers, the most confident first."""
        wrong = [row for row in self.rows if row.truth and _has_answer(row) and row.truth != row.label]
        return sorted(wrong, key=lambda row: -(row.margin or 0.0))

    @property
    def n_with_failures(self) -> int:
        """Rows with a true class that were not rejected, with or without an answer."""
        return self.scores.n + sum(1 for row in self.rows if row.truth and not row.label)

    @property
    def accuracy_with_failures(self) -> float | None:
        """The accuracy if rows without an answer count as wrong."""
        return self.scores.correct / self.n_with_failures if self.n_with_failures else None

    @property
    def interval_with_failures(self) -> tuple[float, float] | None:
        return wilson(self.scores.correct, self.n_with_failures) if self.n_with_failures else None


def evaluate(
    names: Sequence[str], gallery_path: Path, options: QueryOptions, progress: Progress = silent
) -> EvaluateReport:
    """Score predictions CSVs (`-` is one on stdin), or classify labelled queries and score the answers."""
    tables = [name for name in names if name == "-" or name.lower().endswith(".csv")]
    if tables and len(tables) < len(names):
        raise UsageError("give predictions CSVs or labelled queries, not both at once")
    if tables:
        _refuse_query_options(options, tables[0])
        return evaluate_rows([row for name in tables for row in _read(name)], ", ".join(names))
    gallery = load_for(options, gallery_path, progress)
    source = open_queries(names, gallery, options)
    rows: list[Prediction] = []
    failed: list[Prediction] = []
    for answers in answer(gallery, source, options, progress):
        batch = predictions(answers, gallery.classes)
        rows += batch
        failed += [row for row in batch if row.label is None and not is_unrelated(row.path, row.status)]
        _refuse_too_many(failed, len(source), options)
    return replace(evaluate_rows(rows, ", ".join(names)), gallery=gallery)


def _refuse_too_many(failed: Sequence[Prediction], total: int, options: QueryOptions) -> None:
    if len(failed) > options.max_failure_rate * total:
        culprit = failed[int(options.max_failure_rate * total)]
        raise DataError(
            f"{culprit.path}: {culprit.status}; stopped: {len(failed)} of {counted(total, 'input')} "
            f"{have(len(failed))} no answer, "
            f"and at most {options.max_failure_rate:.2%} is allowed"
        )


def _refuse_query_options(options: QueryOptions, table: str) -> None:
    """Options for classifying would have no effect on a CSV, and the scores would be misleading."""
    given = {
        "--reject": options.reject,
        "--extractor": options.model,
        "--features-key": options.keys.features,
        "--labels-key": options.keys.labels,
        "--samples": options.keys.samples,
        "--strict or --max-failure-rate": None if options.max_failure_rate == 1 else options.max_failure_rate,
    }
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is for queries to classify now, but {table} already has answers")


def evaluate_rows(rows: list[Prediction], name: str) -> EvaluateReport:
    # An unrelated file among the pictures is not a query.
    n_inputs = len(rows)
    rows = [row for row in rows if row.label or not row.path or not is_unrelated(row.path, row.status)]
    if not any(row.truth for row in rows):
        raise DataError(
            f"{name}: no row has a true class to compare with; put the queries into folders "
            "named after the gallery's classes"
        )
    known = [(row.truth, row.label or "") for row in rows if row.truth and _has_answer(row)]
    k = len({name for pair in known for name in pair})
    memory.require(
        3 * 8 * k * k,
        f"{name}: the confusion matrix of {counted(k, 'class')}",
        "check that truth and label are names of classes",
    )
    return EvaluateReport(
        scores=score([truth for truth, _ in known], [label for _, label in known]),
        rows=rows,
        without_truth=sum(1 for row in rows if not row.truth),
        failed=Counter(row.status for row in rows if row.status != OK and row.label != UNKNOWN),
        passed_over=n_inputs - len(rows),
    )


def _has_answer(row: Prediction) -> bool:
    return row.label is not None and row.label != UNKNOWN


def _read(name: str) -> list[Prediction]:
    if name != "-":
        return read_predictions(Path(name))
    if sys.stdin is None:
        raise DataError("-: stdin is closed; give it a predictions CSV")
    sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape", newline="")  # type: ignore[union-attr]
    return parse_predictions(sys.stdin, "stdin")
