"""Bring a finished predictions file up to date: keep, replace and append rows.

New rows are collected in a file with a journal, see results/journal.py, which describes them like the record
of the predictions file, see results/record.py. A run that was stopped is continued by its journal, even if
other files are listed by then. In the end, the predictions file is replaced, and then its record.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import count
from pathlib import Path
from typing import BinaryIO

from crnr_cli.errors import OutputError
from crnr_cli.records import dataclass
from crnr_cli.results.journal import Done, Identity, Journal, describe_differences
from crnr_cli.results.record import Listed, Rows, State
from crnr_cli.system import descriptors
from crnr_cli.system.csv_file import split_rows
from crnr_cli.system.files import (
    Claim,
    claimed,
    disk_errors,
    next_state_of,
    occupied_error,
    sha256_of,
    state_of,
)
from crnr_cli.wording import Note, format_count, is_or_are

_COPIED_AT_ONCE = 1 << 20  # bytes
_KIND = {"run": "update"}  # in the journal, besides the settings


class Update:
    """The new rows of a predictions file, which is replaced in the end."""

    remedy = (
        "; finished batches are kept: run the command again, without --strict or with a higher "
        "--max-failure-rate"
    )

    def __init__(
        self, claim: Claim, settings: Identity, base: _Base, files: tuple[BinaryIO, BinaryIO]
    ) -> None:
        """Continue a run that was stopped. The files are the file of new rows and its journal."""
        self._claim, self._settings, self._base = claim, settings, base
        self.rows, self.notes, self.done = base.rows, list(base.notes), Done()
        self._new_rows, self._journal = files[0], Journal(*files)
        self._resume()
        self._wanted = array("q")  # the places of the rows to come, in the order of the queries
        self._n_replaced = self._n_stored = 0
        self._header, self._batch = b"", bytearray()

    def _resume(self) -> None:
        """Accept the finished batches of a run that was stopped, whatever was listed in that run."""
        identity: Identity = {**self._settings, **_KIND}
        found = 0
        if self._journal.read_earlier() == identity:
            for record, data in self._journal.finished_batches():
                try:
                    found += self._accept(record.get("rows"), len(data))
                except (ValueError, OverflowError):
                    break
        else:
            self._journal.forget()
        self._journal.start(identity)
        if found:
            rows = format_count(found, "row")
            used = f"{rows} of the earlier run, which was stopped, {is_or_are(found)} used"
            self.notes.append(Note("resumed", used))

    def _accept(self, records: object, length: int) -> int:
        """Add the rows of a finished batch, and return their number; ValueError if these are not its rows."""
        rows = records if isinstance(records, list) else [None]
        alone, end = Rows(), 0
        for each in rows:
            end += alone.add(each, end, is_new=True)
        if end != length:
            raise ValueError("not the rows of the batch")
        start = self._journal.size
        for each in rows:  # only now: none of the rows is used if one is damaged
            start += self.rows.add(each, start, is_new=True)
        return len(rows)

    def choose(self, queries: Iterable[Listed]) -> list[bool]:
        """Return for every listed query whether it has to be classified, and expect its row if so."""
        chosen = []
        for query in queries:
            place, is_wanted = self.rows.find(query)
            if is_wanted:
                self._wanted.append(place)
                self._n_replaced += bool(self.rows.lengths[place])
            chosen.append(is_wanted)
        return chosen

    def begin(self, header: bytes) -> None:
        self._header = header

    def write(self, data: bytes) -> None:
        self._batch += data

    def end_batch(self, statuses: Counter[str], skipped: int, failed: Sequence[int] = ()) -> None:
        """Store everything written since the last call as one finished batch."""
        is_csv = self._settings["--format"] == "csv"
        places, start = [], self._journal.size
        lines = io.BytesIO(self._batch)
        for number, row in enumerate(split_rows(lines) if is_csv else lines):
            place = self._wanted[self._n_stored]
            self.rows.store(place, start, len(row), is_new=True, is_failed=number in failed)
            places.append(place)
            start += len(row)
            self._n_stored += 1
        self._journal.add(self._batch, {"rows": [self.rows.to_record(place) for place in places]})
        self.done.batches += 1
        self.done.statuses += statuses
        self.done.skipped += skipped
        self._batch.clear()

    def clean_up(self) -> None:
        """Remove the files for the next run, if no batch is finished."""
        if not self._journal.size:
            self._claim.remove_kept()

    @property
    def has_answers(self) -> bool:
        """Whether any row, old or new, has an answer."""
        return 0 in self.rows.are_failed

    def finish(self, prune: bool) -> None:
        """Replace the predictions file and its record, if anything is new, and add notes on the rows."""
        assert self._n_stored == len(self._wanted)
        rows = self.rows
        n_gone = len(rows) - sum(rows.are_listed)
        kept = [place for place in range(len(rows)) if rows.are_listed[place] or not prune]
        self._describe_rows(n_gone, prune)
        if self._base.state and not any(rows.are_new) and len(kept) == len(rows):
            next_state_of(self._claim.target).unlink(missing_ok=True)  # of a run that was killed
            self._claim.discard()
            return
        state = self._merge(kept)
        with self._claim.open_next_state() as file:
            file.truncate(0)
            state.write(file, kept)
            file.flush()
            descriptors.sync(file.fileno())
        # Only now: the notes depend on the new content.
        self.notes += self._base.keep_old(state, 0 if prune else self._base.n_lost(rows))
        self._claim.put_in_place(self._put_state_in_place)

    def _put_state_in_place(self) -> None:
        descriptors.sync_folder(self._claim.target.parent)  # the predictions file first, then its record
        next_state_of(self._claim.target).replace(state_of(self._claim.target))

    def _merge(self, kept: Sequence[int]) -> State:
        """Write the kept rows, and return their record."""
        digest, size = hashlib.sha256(), 0
        output = self._claim.file

        def write(data: bytes) -> None:
            nonlocal size
            output.write(data)
            digest.update(data)
            size += len(data)

        write(self._header)
        with self._base.opened() as base:
            for is_new, start, stop in _runs(self.rows, kept):
                source = self._new_rows if is_new else base
                source.seek(start)
                for begin in range(start, stop, _COPIED_AT_ONCE):
                    write(source.read(min(_COPIED_AT_ONCE, stop - begin)))
        return State(self._settings, size, digest.hexdigest(), len(self._header), self.rows)

    def _describe_rows(self, n_gone: int, prune: bool) -> None:
        n_new = self._n_stored - self._n_replaced
        unchanged = len(self.rows) - n_gone - self._n_stored
        counts = [
            f"{format_count(number, 'row')} {what}"
            for number, what in ((n_new, "added"), (self._n_replaced, "replaced"), (unchanged, "unchanged"))
            if number
        ]
        text = ", ".join(counts) or "there is nothing to classify"
        self.notes.append(Note("updated", f"{self._claim.path}: {text}"))
        if n_gone:
            fate = "dropped" if prune else "kept; --prune drops such rows"
            self.notes.append(Note("gone", f"files that are gone: {format_count(n_gone, 'row')} {fate}"))


@dataclass(frozen=True)
class _Base:
    """The predictions file of the last run, and its record if both belong together."""

    target: Path
    state: State | None
    status: os.stat_result | None  # of the predictions file; None if it does not exist
    is_own: bool  # crnr wrote the predictions file, and no one has changed it since
    earlier: Rows | None = None  # the rows of a file that was made with other settings
    notes: list[Note] = field(default_factory=list)

    @classmethod
    def of(cls, claim: Claim, settings: Identity) -> _Base:
        target, name = claim.target, claim.path
        place, again = state_of(target), "all queries are classified again"
        if os.path.lexists(place) and not stat.S_ISREG(place.lstat().st_mode):
            raise occupied_error(place, claim.path)
        status = target.stat() if target.exists() else None
        sha256 = sha256_of(target) if status else None
        if (coming := State.read(next_state_of(target))) and coming.sha256 == sha256:
            next_state_of(target).replace(place)  # the last run was killed in between
            claim.remove_kept()
        if status is None:
            notes = [Note("again", f"{name}: is missing; {again}")] if place.exists() else []
            return cls(target, None, None, is_own=False, notes=notes)
        state, why = State.read(place), None
        if state is None:
            why = f"its record {place.name} is {'damaged' if place.exists() else 'missing'}"
        elif (state.size, state.sha256) != (status.st_size, sha256):
            why = "is not the file that the last update wrote"
        elif different := describe_differences(state.settings, settings):
            note = Note("again", f"{name}: was made by a different run: {', '.join(different)}; {again}")
            return cls(target, None, status, is_own=True, earlier=state.rows, notes=[note])
        notes = [Note("again", f"{name}: {why}; {again}")] if why else []
        return cls(target, None if why else state, status, is_own=not why, notes=notes)

    @property
    def rows(self) -> Rows:
        return self.state.rows if self.state else Rows()

    def n_lost(self, rows: Rows) -> int:
        """Return how many earlier rows are not among these."""
        return sum(key not in rows.places for key in self.earlier.keys) if self.earlier else 0

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the predictions file for its rows; it must not have changed during the run."""
        if self.status is None:
            yield io.BytesIO()
            return
        with self.target.open("rb") as file:
            now = os.fstat(file.fileno())
            if _identify(now) != _identify(self.status):
                raise OutputError(
                    f"{self.target}: was changed during the run; finished batches are kept: run the command "
                    "again"
                )
            yield file

    def keep_old(self, state: State, n_lost: int) -> list[Note]:
        """Keep a file with rows that are not crnr's own, or would be lost, under another name."""
        if self.status is None or self.state is not None or (self.is_own and not n_lost):
            return []
        sha256 = sha256_of(self.target)
        if sha256 == state.sha256:
            return []
        place = _keep_as_other(self.target, sha256)
        return [Note("old", f"the earlier {self.target.name} is kept as {place.name}")]


def _identify(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _keep_as_other(target: Path, sha256: str) -> Path:
    """Keep a file under a name that no other file has, and return that name."""
    for number in count(1):
        place = target.with_name(f"{target.stem}.old{'' if number == 1 else f'-{number}'}{target.suffix}")
        try:
            os.link(target, place)
        except FileExistsError:
            if place.is_file() and sha256_of(place) == sha256:  # a run that was killed kept it
                return place
            continue
        except OSError:  # the file system has no hard links
            with contextlib.suppress(FileExistsError), target.open("rb") as old, place.open("xb") as new:
                shutil.copyfileobj(old, new)
                return place
            continue
        return place
    raise AssertionError("there is no last number")


def _runs(rows: Rows, kept: Iterable[int]) -> Iterator[tuple[bool, int, int]]:
    """Yield the spans of both files that hold the kept rows, each as long as possible."""
    is_new, start, stop = False, 0, 0
    for place in kept:
        here, begin, length = bool(rows.are_new[place]), rows.starts[place], rows.lengths[place]
        if here is is_new and begin == stop:
            stop += length
            continue
        if start < stop:
            yield is_new, start, stop
        is_new, start, stop = here, begin, begin + length
    if start < stop:
        yield is_new, start, stop


@contextmanager
def updating(path: Path, settings: Identity, *, prune: bool) -> Iterator[Update]:
    """Yield an update of a predictions file, which is replaced if the block succeeds.

    If the block fails, finished batches are kept for the next update.
    """
    kept = "finished batches are kept: run the command again"
    with claimed(path) as claim, disk_errors(path, kept):
        base = _Base.of(claim, settings)
        with claim.open_rows() as rows, claim.open_journal() as journal:
            update = Update(claim, settings, base, (rows, journal))
            try:
                yield update
            except BaseException:
                update.clean_up()
                raise
            update.finish(prune)
