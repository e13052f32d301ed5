"""Plain models of what a nightly job has to write, which soak.py compares with the files.

The predictions file: rows stay in place, rows of unchanged files stay as they are, rows of changed files are
replaced, new rows follow in the order of the listing, rows of files that are gone stay (without --prune), and
each row is the row of a plain `classify` of all files. Another gallery makes all rows new.

The sorted files: each image is copied when it is new, changed or relabelled, and never else.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

TOLERANCE = 1e-5  # between residuals that were computed in other batches
Rows = dict[str, list[str]]  # by path, in the order of the file
Copy = tuple[str, str]  # the folder of a sorted file, and its hash


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def largest_difference(row: list[str], other: list[str]) -> float:
    """Return the largest difference of two numbers in these rows; infinity if texts differ."""
    try:
        pairs = [(one, two) for one, two in zip(row, other, strict=True) if one != two]
        return max((abs(float(one) - float(two)) for one, two in pairs), default=0.0)
    except ValueError:
        return math.inf


@dataclass
class RowModel:
    """The predictions file after the last finished run."""

    work: Path  # where the job runs, and paths begin
    complain: Callable[[str], None]
    rows: Rows = field(default_factory=dict)
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)  # size and mtime of the files
    gallery: str = ""  # its hash
    stopped: list[tuple[str, Rows]] = field(default_factory=list)  # gallery and right rows of stopped runs
    galleries: int = 0  # that the file was made with
    drifted: int = 0  # rows whose numbers differ in the last digits from a plain classify
    largest: float = 0.0  # of these differences

    def read(self, path: Path) -> tuple[list[str], Rows]:
        with path.open(newline="", errors="surrogateescape") as file:
            header, *lines = csv.reader(file)
        rows = {line[0]: line for line in lines}
        if len(rows) < len(lines):
            self.complain(f"{path.name} has {len(lines) - len(rows)} paths twice")
        return header, rows

    def compare(self, path: Path, plain: tuple[list[str], Rows], gallery: str, *, prune: bool) -> None:
        """Compare the file of a finished run with the model, which then has its rows."""
        header, now = plain
        found_header, found = self.read(path)
        if found_header != header:
            self.complain("another header")
        if gallery != self.gallery:
            self.galleries += 1
            self.rows = {}
        kept = [name for name in self.rows if name in now or not prune]
        order, new = list(found), [name for name in now if name not in set(kept)]
        if order[: len(kept)] != kept:
            self.complain("rows did not stay in place")
        rest = order[len(kept) :]
        # A run that was stopped may have added other files of its night first, some of which are gone now.
        stopped = [rows for its_gallery, rows in self.stopped if its_gallery == gallery]
        possible = {name for rows in stopped for name in rows}
        if rest != new and not (stopped and set(new) <= set(rest) <= {*new, *possible}):
            missing, more = set(new) - set(rest), set(rest) - set(new)
            self.complain(f"new rows: {len(missing)} missing, {len(more)} too many, or in another order")
        stamps = {name: self._stamp_of(name) for name in now}
        for name, row in found.items():
            if name in now:
                self._compare_row(row, [now[name]])
            else:
                earlier = [rows[name] for rows in (self.rows, *stopped) if name in rows]
                self._compare_row(row, earlier or [[]])
            is_unchanged = name in self.rows and stamps.get(name) == self.stamps.get(name, ())
            if is_unchanged and row != self.rows[name]:
                self.complain(f"the row of {name}, which has not changed, is another one")
        self.rows, self.stamps, self.gallery, self.stopped = found, stamps, gallery, []

    def _stamp_of(self, name: str) -> tuple[int, int]:
        status = (self.work / name).stat()
        return status.st_size, status.st_mtime_ns

    def _compare_row(self, row: list[str], allowed: Sequence[list[str]]) -> None:
        if row in allowed:
            return
        difference = min(largest_difference(row, other) for other in allowed)
        if difference <= TOLERANCE:
            self.drifted += 1
            self.largest = max(self.largest, difference)
        else:
            self.complain(f"wrong row {row[:5]} instead of {allowed[0][:5]}")


@dataclass
class SortModel:
    """The sorted files after the last finished run."""

    work: Path
    folder: Path
    complain: Callable[[str], None]
    placed: dict[str, Copy] = field(default_factory=dict)  # the last copy of each image, by its path
    copies: dict[str, Copy] = field(default_factory=dict)  # by the name of the copy
    pending: Counter[Copy] = field(
        default_factory=Counter
    )  # copies that stopped runs may have made or undone
    lists: int = 0  # undo files that may exist

    def find_wanted(self, header: list[str], rows: Rows) -> dict[str, Copy]:
        """Return the copies that have to be made, by the path of the image."""
        label = header.index("label")
        there = {name: self.work / name for name in rows if (self.work / name).exists()}
        copies = {name: (rows[name][label] or "_failed", hash_of(path)) for name, path in there.items()}
        return {name: copy for name, copy in copies.items() if self.placed.get(name) != copy}

    def stop(self, wanted: dict[str, Copy]) -> None:
        """Note that a run was stopped."""
        self.pending.update(wanted.values())
        # If the next run wants the last copy again, a copy of the stopped run has taken its place.
        self.pending.update(self.placed[name] for name in wanted if name in self.placed)
        self.lists += bool(wanted)

    def compare(self, wanted: dict[str, Copy]) -> None:
        """Compare the sorted files with the model, which then has them."""
        files = [path for path in self.folder.glob("*/**/*") if path.is_file()]
        copies = {str(path): (path.relative_to(self.folder).parts[0], hash_of(path)) for path in files}
        if not self.copies.items() <= copies.items():
            self.complain("sorted files are gone or changed")
        new = Counter(copy for name, copy in copies.items() if name not in self.copies)
        needed = Counter(wanted.values())
        if needed - new or new - needed - self.pending:
            self.complain(f"sort made {new.total()} copies, and {needed.total()} were needed")
        self.lists += bool(wanted)
        own = {path.name for path in self.folder.iterdir() if path.is_file()}
        numbered = {f".crnr-sort-{number}.jsonl" for number in range(1, len(own) + 1)}
        if own != numbered or len(own) > self.lists:
            self.complain(f"{self.lists} sorts with new files left {sorted(own)}")
        self.copies, self.pending = copies, Counter()
        self.placed.update(wanted)
