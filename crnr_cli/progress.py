"""How a job tells how far it is, without knowing who listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` parts of the step of this name are finished. May raise, to stop the job there."""


def silent(step: str, done: int, total: int) -> None:
    """For those who do not listen."""
