"""A partial file with a journal next to it, so that a run that was stopped can be continued.

The journal is a file of JSON lines. The first line identifies the run. Each further line describes a finished
batch: the size of the partial file after it, the hash of its bytes, and the statuses of its inputs. After a
crash or a power failure, the partial file is trusted only as far as it agrees with the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from crnr_cli.errors import OutputError
from crnr_cli.system.files import claimed, disk_errors

Identity = Mapping[str, str | int | float | None]  # everything that the bytes of the output depend on

_LONGEST_SHOWN = 20  # characters; longer values are hashes, which mean nothing to people


@dataclass
class Done:
    """What the partial file already contains."""

    batches: int = 0
    size: int = 0  # in bytes
    statuses: Counter[str] = field(default_factory=Counter)
    skipped: int = 0


class Partial:
    """The partial file, open for further batches."""

    def __init__(self, file: BinaryIO, journal: BinaryIO, done: Done) -> None:
        self._file, self._journal, self.done = file, journal, done
        self._batch = bytearray()

    def write(self, data: bytes) -> None:
        self._batch += data

    def end_batch(self, statuses: Counter[str], skipped: int) -> None:
        """Store everything written since the last call as one finished batch."""
        self._file.write(self._batch)
        self._file.flush()
        done = self.done
        done.batches += 1
        done.size += len(self._batch)
        done.statuses += statuses
        done.skipped += skipped
        line = {
            "size": done.size,
            "sha256": hashlib.sha256(self._batch).hexdigest(),
            "statuses": statuses,
            "skipped": skipped,
        }
        self._journal.write(json.dumps(line).encode() + b"\n")
        self._journal.flush()
        self._batch.clear()


@contextmanager
def resumable(path: Path, identity: Identity, *, resume: bool) -> Iterator[Partial]:
    """A partial file that becomes `path` if the block succeeds, and is kept if it fails."""
    with (
        claimed(path, keep=True) as claim,
        disk_errors(path, "finished batches are kept: continue with --resume"),
    ):
        with claim.open_journal() as journal:
            done, kept = _agreed(path, claim.file, journal, identity) if resume else (Done(), 0)
            _continue_at(claim.file, done.size)
            _continue_at(journal, kept)
            if not kept:
                journal.write(json.dumps(identity).encode() + b"\n")
                journal.flush()
            yield Partial(claim.file, journal, done)
        claim.put_in_place()


def _continue_at(file: BinaryIO, size: int) -> None:
    """Cut off everything after `size`, such as an incomplete last line, and write there."""
    file.truncate(size)
    file.seek(size)


def _agreed(path: Path, file: BinaryIO, journal: BinaryIO, identity: Identity) -> tuple[Done, int]:
    """What the journal and the partial file agree on, and how many bytes of the journal that is."""
    done = Done()
    first = journal.readline()
    earlier = _parsed(first)
    length = file.seek(0, os.SEEK_END)
    if not isinstance(earlier, dict) or not length:  # there is no earlier run to continue
        return done, 0
    file.seek(0)
    _refuse_another_run(path, earlier, identity)
    kept = len(first)
    for line in journal:
        match _parsed(line):
            case {
                "size": int(size),
                "sha256": str(sha256),
                "statuses": dict(statuses),
                "skipped": int(n),
            }:
                data = file.read(max(0, min(size, length) - done.size))
            case _:
                break
        if done.size + len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
            break
        done = Done(done.batches + 1, size, done.statuses + Counter(statuses), done.skipped + n)
        kept += len(line)
    return done, kept


def _parsed(line: bytes) -> object:
    """The value of a line; None if the line is incomplete or not JSON."""
    try:
        return json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):  # the latter for brackets within brackets, thousands deep
        return None


def _refuse_another_run(path: Path, earlier: Identity, identity: Identity) -> None:
    different = [
        name + _then_and_now(earlier.get(name), identity.get(name))
        for name in {**earlier, **identity}
        if earlier.get(name) != identity.get(name)
    ]
    if different:
        raise OutputError(
            f"{path}: the unfinished run was a different one: {', '.join(different)}; "
            "use the same inputs and options, or leave out --resume to start again"
        )


def _then_and_now(then: str | int | float | None, now: str | int | float | None) -> str:
    if max(len(str(then)), len(str(now))) > _LONGEST_SHOWN:
        return " differs"
    return f" was {then} and is now {now}"
