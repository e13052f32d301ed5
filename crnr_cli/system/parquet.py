"""Parquet files, which `parquet_process` reads: pyarrow ends the whole process on some damaged files."""

from __future__ import annotations

import json
import os
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.system import memory, spares
from crnr_cli.system.child import crash_reason, start_guarded
from crnr_cli.system.extras import require_packages
from crnr_cli.system.files import path_in_other_process
from crnr_cli.system.parquet_process import BASE_BYTES, SECONDS, WrongRowError
from crnr_cli.system.signals import ignoring_broken_pipes
from crnr_cli.wording import format_count

Kind = Literal["number", "text", "numbers", "texts", "other"]
Reply = tuple[Mapping[str, Any], list[Array]]  # a description, and bytes

MAGIC = b"PAR1"  # the first bytes of a file
_COMMAND = ("crnr_cli.system.parquet_process",)
_NUMBERS_PER_BATCH = 2**20
_ROWS_PER_BATCH = 4096
_ROWS_AHEAD = 16_384  # that are read and left out rather than beginning again
_TEXT_PER_BATCH = 2**25  # bytes
_CHECKED_EVERY = 2**24  # bytes of text that were not there before
_COPIES = 3  # of a page, or of a batch, while pyarrow decodes it
_OPEN_TABLES = 4  # that are read in part, each by a process


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind  # one number or text per row, or a list of them
    type: str  # in Parquet's terms
    dtype: np.dtype[Any]  # of its numbers


class ParquetFile:
    """A file that is read a few rows at a time, whatever it declares, by a process of its own."""

    def __init__(self, path: Path) -> None:
        require_packages("parquet", f"{path}: a Parquet file", "pyarrow")
        self.path = path
        facts, _ = self._ask("facts")
        self._edges: list[int] = list(accumulate(facts["groups"], initial=0))
        if min(facts["groups"], default=0) < 0 or self._edges[-1] != facts["rows"]:
            raise _unreadable(path, "the row groups do not have the declared number of rows")
        self.columns = [
            Column(name, kind, type, np.dtype(dtype)) for name, kind, type, dtype in facts["columns"]
        ]
        self.n_rows = self._edges[-1]

    def read_batches(
        self, what: str, first: int, rows: int = _ROWS_PER_BATCH, **details: Any
    ) -> Iterator[tuple[int, int, Reply]]:
        """Yield batches from the `first` row's group on, which are read at most `rows` rows at a time.

        Each comes with its first row and the number of its rows; its buffers are valid until the next one.
        `details` are part of the request.
        """
        at = self.edge_before(first)
        group = max(0, bisect_right(self._edges, first) - 1)
        with _Conversation(self.path, what, group=group, rows=rows, **details) as replies:
            for line, buffers in replies:
                if at + line["rows"] == self.n_rows:
                    replies.finish()  # here, as a caller that counts rows does not continue after the last
                yield at, line["rows"], (line, buffers)
                at += line["rows"]
        if at != self.n_rows:
            raise _unreadable(self.path, f"{format_count(at, 'row')} instead of {self.n_rows}")

    def edge_before(self, row: int) -> int:
        """Return the first row of the row group that contains a row."""
        return self._edges[max(0, bisect_right(self._edges, row) - 1)]

    def values(self, name: str) -> list[Any]:
        """Return a column as Python's numbers, texts or lists; None where a value is missing.

        Equal texts are one object, because a short file can repeat a long text very often.
        """
        found: list[Any] = []
        texts: dict[str, str] = {}
        size = checked = 0
        work = (f"{self.path}: column {name}", "save fewer rows per file")
        pages, _ = self._ask("pages", name=name)
        memory.require_memory(_COPIES * pages["largest"], *work)
        is_number = all(one.kind == "number" for one in self.columns if one.name == name)
        most = _ROWS_PER_BATCH if is_number else _TEXT_PER_BATCH // pages["per_row"]
        rows = max(1, min(_ROWS_PER_BATCH, most))
        for _, _, (line, buffers) in self.read_batches("values", 0, rows, name=name):
            n_known = len(texts)
            try:
                found += _unpack(line["values"], iter(buffers), texts)
            except UnicodeDecodeError as e:
                raise _unreadable(self.path, f"the column {name} has text that is not UTF-8") from e
            size += sum(map(len, islice(reversed(texts), len(texts) - n_known)))
            if size - checked > _CHECKED_EVERY:
                memory.require_memory(_CHECKED_EVERY, *work)
                checked = size
        return found

    def width(self, name: str) -> int:
        """Return the length of the first list of a column; 0 without any."""
        line, _ = self._ask("width", name=name)
        return int(line["width"])

    def _ask(self, what: str, **details: Any) -> Reply:
        """Return the only reply to a request."""
        with _Conversation(self.path, what, **details) as replies:
            found = next(iter(replies))
            replies.finish()
        return found


class _Conversation:
    """One request about a file, and the replies of the process that reads it."""

    def __init__(self, path: Path, what: str, **details: Any) -> None:
        self._path, self._request = path, {"what": what, "path": path_in_other_process(path), **details}
        self._is_done = False
        self._spaces: list[Array] = []

    def __enter__(self) -> Self:
        spare = spares.take(_Reader, _COMMAND)
        self._reader = spare or _Reader()
        try:
            self._line = self._reader.ask(self._request)
            if not self._line and spare:  # it ended while it had nothing to do
                self._reader.end()
                self._reader = _Reader()
                self._line = self._reader.ask(self._request)
        except BaseException:
            self._reader.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_done:
            self._reader.end()

    def __iter__(self) -> Iterator[Reply]:
        while (reply := self._receive()) is not None:
            yield reply

    def finish(self) -> None:
        """Leave the process to the next request, as the last reply has come."""
        while (reply := self._receive()) is not None:
            if reply[0].get("rows"):
                raise _unreadable(self._path, "it has more rows than it declares")

    def _receive(self) -> Reply | None:
        """Return the next reply, or None after the last; DataError if the request failed."""
        if self._is_done:
            return None
        line, self._line = self._line or self._reader.read_line(), b""
        if not line.endswith(b"\n"):
            raise self._reader.death(self._path)
        header = json.loads(line)
        buffers = [self._space_for(i, size) for i, size in enumerate(header["sizes"])]
        if not all(map(self._reader.fill, buffers)):
            raise self._reader.death(self._path)
        if "end" not in header:
            return header, buffers
        self._is_done = True
        spares.put(self._reader)
        match header["end"]:
            case "failed":
                raise _unreadable(self._path, header["reason"])
            case "not read":
                raise DataError(f"{self._path}: {header['reason']}")
            case "not loaded":
                raise DataError(
                    f"{self._path}: pyarrow cannot be loaded ({header['reason']}); install it again"
                )
            case "too large":
                raise _too_large(self._path)
            case "wrong row":
                raise WrongRowError(header["row"])
        return None

    def _space_for(self, number: int, size: int) -> Array:
        """Return space for a buffer of a reply, which the next reply uses again: new memory takes time."""
        if number >= len(self._spaces):
            self._spaces.append(np.empty(0, np.uint8))
        if len(self._spaces[number]) < size:
            self._spaces[number] = np.empty(size, np.uint8)
        return self._spaces[number][:size]


class _Reader:
    """A process that reads Parquet files. `parquet_process` describes the protocol."""

    def __init__(self) -> None:
        free = memory.free_bytes()
        limit = None if free is None else BASE_BYTES + free
        self.origin = spares.current_origin(_COMMAND)
        self._folder = _identify_folder()
        self._open = ExitStack()
        self._guard = self._open.enter_context(
            start_guarded(*_COMMAND, str(limit or 0), memory=limit, seconds=2 * SECONDS, is_asked=True)
        )
        _running.add(self)

    @property
    def is_alive(self) -> bool:
        """Whether it can be used: relative paths still have to start from the folder of its start."""
        is_there = self._folder is not None and self._folder == _identify_folder()
        return is_there and self._guard.process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> bytes:
        """Send a request, and return the first line of the reply."""
        requests = self._guard.process.stdin
        assert requests is not None
        with ignoring_broken_pipes():
            requests.write(json.dumps(request).encode() + b"\n")
            requests.flush()
        return self.read_line()

    def read_line(self) -> bytes:
        """Return a line; without its end if the process died."""
        assert self._guard.process.stdout is not None
        line: bytes = self._guard.process.stdout.readline()
        self._guard.renew()
        return line

    def fill(self, buffer: Array) -> bool:
        """Fill a buffer with the next bytes, and return whether all of them came before the process died."""
        output: Any = self._guard.process.stdout
        return len(buffer) == 0 or bool(output.readinto(buffer) == len(buffer))

    def death(self, path: Path) -> DataError:
        """Return the error for the file on which the process died."""
        code = self._guard.process.wait()
        if self._guard.is_out_of_memory:
            return _too_large(path)
        if self._guard.is_out_of_time:
            return _unreadable(path, "the parser took too long")
        how = f"crashed with {cause}" if (cause := crash_reason(code)) else f"ended with exit code {code}"
        return _unreadable(path, f"the parser {how}")

    def end(self) -> None:
        _running.discard(self)
        self._guard.process.kill()
        with ignoring_broken_pipes():  # a buffered request that the process will not read
            self._open.close()


# If a table is left alone in the middle, it ends its process; until then, Python must not finalize the pipes.
_running: set[_Reader] = set()


def _identify_folder() -> tuple[int, int] | None:
    """Identify the current folder; None if it may not be entered, as after `sudo -u`."""
    try:
        folder = Path().stat()
    except OSError:
        return None
    return folder.st_dev, folder.st_ino


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(f"{path}: not a readable Parquet file ({reason}); write it again")


def _too_large(path: Path) -> DataError:
    return DataError(f"{path}: needs more memory than there is; save fewer rows per file")


@dataclass(frozen=True)
class OtherValue:
    """A value that is neither a number nor a text, such as a time."""

    text: str

    def __str__(self) -> str:
        return self.text


def _unpack(packed: Mapping[str, Any], buffers: Iterator[Array], known: dict[str, str]) -> list[Any]:
    """Return the values that `parquet_process` packed, with one object for all equal texts."""
    if "lists" in packed:
        lengths = next(buffers).view(np.int64).tolist()
        inner = iter(_unpack(packed["lists"], buffers, known))
        return [None if length < 0 else list(islice(inner, length)) for length in lengths]
    if "texts" in packed:
        edges = next(buffers).view(np.int64).tolist()
        content = next(buffers).tobytes()
        # Most text is ASCII, of which pieces are cut faster.
        whole = content.decode("ascii") if content.isascii() else None
        pieces = pairwise(edges)
        found = (
            [whole[a:b] for a, b in pieces]
            if whole is not None
            else [str(content[a:b], "utf-8") for a, b in pieces]
        )
        texts: list[Any] = [known.setdefault(text, text) for text in found]
        for place in packed["texts"]:  # a dictionary may have a missing text
            texts[place] = None
        texts.append(None)  # at -1
        return [texts[place] for place in next(buffers).view(np.int64).tolist()]
    if "numbers" in packed:
        values: list[Any] = next(buffers).view(packed["numbers"]).tolist()
        for place in np.flatnonzero(next(buffers) == 0).tolist():
            values[place] = None
        return values
    return _share_texts(packed["plain"], known)


def _share_texts(values: list[Any], known: dict[str, str]) -> list[Any]:
    """Return plain values with one object for all equal texts, and add new texts to the known ones."""
    return [
        known.setdefault(value, value)
        if isinstance(value, str)
        else _share_texts(value, known)
        if isinstance(value, list)
        else OtherValue(known.setdefault(value["text"], value["text"]))
        if isinstance(value, dict)
        else value
        for value in values
    ]


class ParquetNumbers:
    """Columns of numbers, or one column of lists of numbers, as a table that is read by slices of rows."""

    def __init__(self, file: ParquetFile, columns: Sequence[Column]) -> None:
        self._file, self._names = file, [column.name for column in columns]
        self._is_list = columns[0].kind == "numbers"
        width = file.width(columns[0].name) if self._is_list else len(columns)
        self.shape = (file.n_rows, width)
        kinds = {column.dtype for column in columns}
        # Only these types have a value for missing numbers.
        self.dtype = kinds.pop() if len(kinds) == 1 and max(kinds).kind == "f" else np.dtype(np.float64)
        self._batches: Generator[tuple[int, Array]] | None = None
        # The rows that have been read, and the first of them.
        self._held, self._at = np.empty((0, width), self.dtype), 0
        self._process = os.getpid()  # a fork shares the pipe of the process that reads, and must not read it

    def __len__(self) -> int:
        return self._file.n_rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        size = len(self) * self.shape[1] * self.dtype.itemsize
        memory.require_memory(size, f"{self._file.path}: {self._names[0]}", "save fewer rows per file")
        return np.asarray(self[:], dtype=dtype)

    def __getitem__(self, where: Any) -> Array:
        """Return rows; they are best read in order, because any other order begins again at a row group."""
        if not isinstance(where, slice):
            found: Array = np.asarray(self)[where]
            return found
        start, stop, _ = where.indices(len(self))
        with _lock:
            return self._read(start, stop)

    def _read(self, start: int, stop: int) -> Array:
        if self._batches is not None and self._process != os.getpid():
            self.close()
        is_near = self._at <= start <= self._at + len(self._held) + _ROWS_AHEAD
        if start < stop and (self._batches is None or not is_near):
            self._restart(start)
        out = np.empty((max(0, stop - start), self.shape[1]), self.dtype)
        done = 0
        while done < len(out):
            held = self._held[start + done - self._at :]
            count = min(len(held), len(out) - done)
            out[done : done + count] = held[:count]
            done += count
            if done < len(out):
                self._next()
        return out

    def _restart(self, first: int) -> None:
        self.close()
        rows = max(1, min(_ROWS_PER_BATCH, _NUMBERS_PER_BATCH // max(1, self.shape[1])))
        self._batches, self._process = self._read_batches(first, rows), os.getpid()
        self._held, self._at = self._held[:0], 0
        _opened.append(weakref.ref(self))
        if len(_opened) > _OPEN_TABLES and (oldest := _opened.popleft()()):
            oldest.close()
        self._next()

    def close(self) -> None:
        """End the process that reads; any further reading starts one again."""
        with suppress(ValueError):
            _opened.remove(weakref.ref(self))
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _next(self) -> None:
        assert self._batches is not None
        try:
            found = next(self._batches, None)
        except BaseException:  # such as Ctrl-C; nothing comes from it any more
            self.close()
            raise
        if found is None:
            self._batches = None
            raise DataError(f"{self._file.path}: was changed while it was being read; run the command again")
        self._at, self._held = found

    def _read_batches(self, first: int, rows: int) -> Generator[tuple[int, Array]]:
        details = {
            "names": self._names,
            "dtype": self.dtype.str,
            "width": self.shape[1] if self._is_list else -1,
        }
        try:
            for at, count, (_, buffers) in self._file.read_batches("numbers", first, rows, **details):
                yield at, buffers[0].view(self.dtype).reshape(count, self.shape[1])
        except WrongRowError as e:
            row = self._file.edge_before(first) + e.args[0]
            raise DataError(
                f"{self._file.path}: row {row} of {self._names[0]} does not have "
                f"{format_count(self.shape[1], 'number')}, as the first row has"
            ) from e


# Tables that have been read in part, if they still exist. One thread at a time reads any of them.
_opened: deque[weakref.ref[ParquetNumbers]] = deque()
_lock = threading.RLock()
