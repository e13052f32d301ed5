"""A file that grows by batches, with a journal next to it, so that a stopped run can continue.

The journal is a file of JSON lines. The first line identifies the run. Each further line describes a finished
batch: the size of the growing file after it, the hash of its bytes, and the command's own records about it,
such as the statuses of its inputs. After a crash or a power failure, the growing file is trusted only as far
as it agrees with the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from crnr_cli.errors import OutputError
from crnr_cli.records import dataclass
from crnr_cli.system.files import claimed, disk_errors

Identity = Mapping[str, str | int | float | None]  # everything that the bytes of the output depend on

Finish = Callable[[BinaryIO, BinaryIO], None]  # makes the output, the second file, from all batches

_LONGEST_SHOWN = 20  # characters; longer values are hashes, which mean nothing to people


class Journal:
    """Both files, open for further batches after the accepted batches of an earlier run."""

    def __init__(self, file: BinaryIO, journal: BinaryIO) -> None:
        self._file, self._journal = file, journal
        self.size = 0  # of the growing file: the bytes of all finished batches
        self._kept = 0  # bytes of the journal that describe them

    def read_earlier(self) -> Identity | None:
        """Return the identity of the run that left the files; None if there is nothing to continue."""
        self._journal.seek(0)
        first = self._journal.readline()
        earlier = _parse_line(first)
        if not isinstance(earlier, dict) or not self._file.seek(0, os.SEEK_END):
            return None
        self._kept = len(first)
        return earlier

    def finished_batches(self) -> Iterator[tuple[Mapping[str, Any], bytes]]:
        """Yield, after `read_earlier`, the records and bytes of its batches, as far as both files agree.

        A batch is accepted when the caller takes the next one.
        """
        length = self._file.seek(0, os.SEEK_END)
        self._file.seek(0)
        for line in self._journal:
            match _parse_line(line):
                case {"size": int(size), "sha256": str(sha256), **others}:
                    record = {str(name): value for name, value in others.items()}
                    data = self._file.read(max(0, min(size, length) - self.size))
                case _:
                    return
            if self.size + len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
                return
            yield record, data
            self.size = size
            self._kept += len(line)

    def forget(self) -> None:
        """Start again from nothing, whatever the files contain."""
        self.size = self._kept = 0

    def start(self, identity: Identity) -> None:
        """Cut off everything that was not accepted, such as an incomplete last line, and write there."""
        for file, size in ((self._file, self.size), (self._journal, self._kept)):
            file.truncate(size)
            file.seek(size)
        if not self._kept:
            self._journal.write(json.dumps(identity).encode() + b"\n")
            self._journal.flush()

    def add(self, data: bytes | bytearray, record: Mapping[str, Any]) -> None:
        """Store a finished batch."""
        self._file.write(data)
        self._file.flush()
        self.size += len(data)
        line = {"size": self.size, "sha256": hashlib.sha256(data).hexdigest(), **record}
        self._journal.write(json.dumps(line).encode() + b"\n")
        self._journal.flush()


@dataclass
class Done:
    """The content of the partial file so far."""

    batches: int = 0
    size: int = 0  # in bytes
    statuses: Counter[str] = field(default_factory=Counter)
    skipped: int = 0


class Partial:
    """The partial file, open for further batches."""

    remedy = (
        "; finished batches are kept: continue with --resume, without --strict or with a higher "
        "--max-failure-rate"
    )

    def __init__(self, journal: Journal, done: Done) -> None:
        self._journal, self.done = journal, done
        self._batch = bytearray()

    def begin(self, header: bytes) -> None:
        """Write the header, unless an earlier run did."""
        if not self.done.batches:
            self._batch += header

    def write(self, data: bytes) -> None:
        self._batch += data

    def end_batch(self, statuses: Counter[str], skipped: int, failed: Sequence[int] = ()) -> None:
        """Store everything written since the last call as one finished batch.

        `failed` are the places of the skipped queries in the batch.
        """
        self._journal.add(self._batch, {"statuses": statuses, "skipped": skipped})
        done = self.done
        done.batches += 1
        done.size += len(self._batch)
        done.statuses += statuses
        done.skipped += skipped
        self._batch.clear()


@contextmanager
def resumable(
    path: Path, identity: Identity, *, resume: bool, finish: Finish | None = None
) -> Iterator[Partial]:
    """Yield a partial file that becomes `path` if the block succeeds, and is kept if it fails.

    With `finish`, the batches are kept in another file, from which it makes the output in the end.
    """
    with (
        claimed(path, keep=True) as claim,
        disk_errors(path, "finished batches are kept: continue with --resume"),
    ):
        with (
            claim.open_journal() as file,
            nullcontext(claim.file) if finish is None else claim.open_rows() as growing,
        ):
            journal = Journal(growing, file)
            done = _resume(path, journal, identity) if resume else Done()
            journal.start(identity)
            yield Partial(journal, done)
            if finish is not None:
                claim.file.truncate(0)
                finish(growing, claim.file)
        claim.put_in_place()


def _resume(path: Path, journal: Journal, identity: Identity) -> Done:
    """Return what the earlier run finished; refuse a run with other settings."""
    done = Done()
    if (earlier := journal.read_earlier()) is None:
        return done
    if different := describe_differences(earlier, identity):
        raise OutputError(
            f"{path}: the unfinished run was a different one: {', '.join(different)}; "
            "use the same queries and options, or leave out --resume to start again"
        )
    for record, data in journal.finished_batches():
        match record:
            case {"statuses": dict(statuses), "skipped": int(skipped)} if all(
                isinstance(number, int) for number in statuses.values()
            ):
                counts = Counter(statuses)
            case _:
                break
        done = Done(done.batches + 1, done.size + len(data), done.statuses + counts, done.skipped + skipped)
    return done


def describe_differences(earlier: Identity, identity: Identity) -> list[str]:
    """Return the differences between two runs, as text."""
    return [
        name + _then_and_now(earlier.get(name), identity.get(name))
        for name in {**earlier, **identity}
        if earlier.get(name) != identity.get(name)
    ]


def _parse_line(line: bytes) -> object:
    """Return the value of a line; None if the line is incomplete or not JSON."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):  # the latter: nested too deeply
        return None


def _then_and_now(then: str | int | float | None, now: str | int | float | None) -> str:
    if max(len(str(then)), len(str(now))) > _LONGEST_SHOWN:
        return " differs"
    return f" was {then} and is now {now}"
