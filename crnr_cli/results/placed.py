"""What became of files that a command put in other places: a row per file, for CSV, JSON and messages."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crnr_cli.errors import OutputError

THERE, LEFT_OUT = "there", "left out"
_STOPPING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # every other file would fail too


class Placed(NamedTuple):
    """What becomes of one file."""

    path: str
    target: str  # with the folder; empty if the file is left out
    result: str  # how, or THERE, or LEFT_OUT
    reason: str = ""  # why it is left out

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass
class PlacingReport:
    how: str
    rows: list[Placed] = field(default_factory=list)
    passed_over: int = 0  # unrelated files, which stay where they are

    @property
    def left_out(self) -> Sequence[Placed]:
        return [row for row in self.rows if row.result == LEFT_OUT]

    def count(self, result: str) -> int:
        return sum(1 for row in self.rows if row.result == result)

    def leave_out(self, number: int, target: Path, error: OSError) -> None:
        """Record that a file could not be put in its place; OutputError if no other one could be either."""
        if error.errno in _STOPPING:
            raise OutputError(
                f"{target}: cannot write ({os.strerror(error.errno)}); the same command continues from here"
            ) from error
        taken = "there is another file of this name now"
        reason = taken if isinstance(error, FileExistsError) else str(error.strerror)
        if error.errno == errno.EINVAL:
            reason += "; if the file system does not take this name, use --portable-names"
        self.rows[number] = Placed(self.rows[number].path, "", LEFT_OUT, reason)


def refuse_other_device(path: str, folder: Path, status: os.stat_result, device: int) -> None:
    if status.st_dev != device:
        raise OutputError(
            f"{path}: is on another file system than {folder}, and hard links cannot lead there; "
            "use --how copy or --how link"
        )
