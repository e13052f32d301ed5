"""The errors that a user can cause."""

from __future__ import annotations

from collections.abc import Sequence

from crnr_cli.wording import format_count, has_or_have


class CrnrError(Exception):
    """Something the user can fix; the message names the file and the remedy."""

    exit_code = 1


class UsageError(CrnrError):
    exit_code = 2


class DataError(CrnrError):
    pass


class NotANumberError(DataError):
    """Text in a table where numbers are expected, so that it may not hold features at all."""


class GalleryError(CrnrError):
    pass


class NotAGalleryError(GalleryError):
    """A file of another kind, not a damaged gallery."""


class OutputError(CrnrError):
    pass


class SampleError(CrnrError):
    """A failed input. `status` is the code of the reason, and the message explains it."""

    def __init__(self, status: str, detail: str = "") -> None:
        super().__init__(detail or status)
        self.status = status
        self.detail = detail


class NotConverged(UserWarning):
    """Queries that reached the maximum number of iterations; more of them might change the answers."""

    def __init__(self, count: int, advice: str) -> None:
        super().__init__(count, advice)
        self.count, self.advice = count, advice

    def __str__(self) -> str:
        return f"{format_count(self.count, 'query')} did not converge: {self.advice}"


class NothingToCompare(UserWarning):
    """Rows of an estimator that are all zero, and so similar to no class."""

    def __init__(self, count: int, first: int, why: str) -> None:
        super().__init__(count, first, why)
        self.count, self.first, self.why = count, first, why

    def __str__(self) -> str:
        return (
            f"{format_count(self.count, 'row')} cannot be compared with others; "
            f"the first is row {self.first}: {self.why}"
        )


def refuse_too_many(
    failed: Sequence[object] | int,
    total: int,
    allowed: float,
    noun: str,
    remedy: str = "",
    *,
    fate: str = "to be skipped",
    where: str = "",
    latest: object = None,
) -> None:
    """Raise DataError if more than the allowed share of all inputs failed, and name one of them.

    The failed inputs print as "name: reason". If only their number is known, the `latest` one is named.
    """
    count = failed if isinstance(failed, int) else len(failed)
    if count <= allowed * total:
        return
    culprit = latest if isinstance(failed, int) else failed[int(allowed * total)]
    limit = f"at most {allowed:.2%} is allowed" if allowed else "no failure is allowed (--strict)"
    raise DataError(
        f"{'' if culprit is None else f'{culprit}; '}stopped: {count} of {format_count(total, noun)}{where} "
        f"{has_or_have(count)} {fate}, and {limit}{remedy}"
    )


def first_line(error: Exception) -> str:
    """Return the message of another library's exception, short enough for one of ours."""
    return (str(error) or type(error).__name__).strip().split("\n", 1)[0]
