"""One test of many cases, which lists all that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def check_each(cases: Iterable[Case], check: Callable[[Case], None]) -> None:
    """Check every case; fail with a paragraph for each that fails."""
    failures: list[tuple[Case, Exception]] = []
    tried = 0
    for case in cases:
        tried += 1
        try:
            check(case)
        except Exception as e:
            failures.append((case, e))
    assert tried, "there is no case to check"
    if failures:
        shown = "\n".join(f"{case!r}: {type(e).__name__}: {e}" for case, e in failures)
        raise AssertionError(f"{len(failures)} of {tried} cases fail\n{shown}") from failures[0][1]
