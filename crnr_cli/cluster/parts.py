"""Parts of a source as tasks of a cluster: how large they are, and what a worker must be able to find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crnr_cli.arrays import Batch
from crnr_cli.cluster.dask import TASKS_PER_THREAD
from crnr_cli.errors import DataError
from crnr_cli.sources.base import Source, Span
from crnr_cli.sources.folders import Pictures
from crnr_cli.system.names import existing

MAX_BATCHES = 8  # per task. With more, decoders are started less often; with fewer, a dead worker costs less.


def groups(spans: Sequence[Span], threads: int) -> Iterator[Sequence[Span]]:
    """The batches of each task: so few that every thread gets several tasks."""
    size = max(1, min(MAX_BATCHES, len(spans) // (TASKS_PER_THREAD * threads)))
    for start in range(0, len(spans), size):
        yield spans[start : start + size]


def refuse_missing(paths: Sequence[Path]) -> None:
    for path in paths:
        if existing(path) is None:
            raise DataError(
                f"cannot find {path}; the gallery and the pictures must have the same paths on all workers"
            )


def refuse_missing_folders(source: Source, batch: Batch) -> None:
    """A single file may vanish; but if its folder is missing too, the file system is not mounted here."""
    base = source.base if isinstance(source, Pictures) else ""
    for sample, error in batch.failed():
        if error.status == "vanished":
            refuse_missing([Path(base, batch.names[sample]).parent])
