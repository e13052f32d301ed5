"""The small tree of errors a user can cause; anything else is a bug and keeps its traceback.

CrnrError                 exit 1: one line on stderr, earlier output untouched
├── UsageError            exit 2: options that cannot be combined
├── DataError             a source that cannot be used
├── GalleryError          a gallery file that cannot be used
├── OutputError           an output that cannot be written
└── SampleError           one bad input: its row has no answer, and its `status` says why
"""


class CrnrError(Exception):
    """Something the user can fix; the message names the file and the remedy."""

    exit_code = 1


class UsageError(CrnrError):
    exit_code = 2


class DataError(CrnrError):
    pass


class GalleryError(CrnrError):
    pass


class OutputError(CrnrError):
    pass


class SampleError(CrnrError):
    """One input that has no answer. `status` is the reason code, the message the detail."""

    def __init__(self, status: str, detail: str = "") -> None:
        super().__init__(detail or status)
        self.status = status
        self.detail = detail


class NotConverged(UserWarning):
    """Queries whose iterations ended at their limit: a longer run may change their answers."""

    def __init__(self, count: int, advice: str) -> None:
        super().__init__(count, advice)
        self.count, self.advice = count, advice

    def __str__(self) -> str:
        return f"{self.count} {'query' if self.count == 1 else 'queries'} did not converge: {self.advice}"
