"""How a job reports its progress, whoever displays it."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def __call__(self, step: str, done: int, total: int) -> None:
        """Report that `done` of `total` parts of this step are finished. An exception here stops the job."""


def silent(step: str, done: int, total: int) -> None:
    """Show nothing."""
