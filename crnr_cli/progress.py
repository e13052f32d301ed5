"""How a job reports its progress, without knowing who displays it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` parts of this step are finished. An exception raised here stops the job."""


def silent(step: str, done: int, total: int) -> None:
    """Show nothing."""
