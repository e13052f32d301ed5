"""A process that reads Parquet files for its parent: pyarrow ends the whole process on some damaged files.

The argument is the memory limit in bytes, or 0. Each line on stdin is a request, as JSON: the path, what is
wanted of the file, and details. A reply is a line of JSON, followed by buffers of the `sizes` in it. The last
reply to a request has the key `end`. The process ends when its stdin is closed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, BinaryIO

from crnr_cli.system.child import limit_address_space, limit_cpu_time
from crnr_cli.system.signals import leave_to_parent
from crnr_cli.wording import format_count

SECONDS = 60.0  # of work on a core for each reply
BASE_BYTES = 3 * 2**30  # of address space, most of which pyarrow and its threads reserve and never use
_MOST_THREADS = 8  # more are no faster than the pipe to the parent, and each reserves address space
_LONGEST_TEXT = 2**16  # bytes
_ROWS_PER_REPLY = 4096  # of small batches
_BYTES_PER_REPLY = 2**20
_PLAIN, _PLAIN_DICTIONARY, _DELTA_LENGTH, _DICTIONARY = 0, 2, 6, 8  # encodings of a page
_LONGEST_HEADER = 2**18  # bytes; the header of a page may contain the least and the greatest of its texts
Reply = tuple[dict[str, Any], list[Any]]  # a line, and the buffers after it


class WrongRowError(Exception):
    """A list that does not have the expected length, by its row, counted from the first row that is read."""


class NotReadError(Exception):
    """What a sound file contains and crnr does not read, with the remedy."""


def read_facts(file: Any) -> Iterator[Reply]:
    """Yield the number of rows of the file and of each row group, and the columns."""
    metadata = file.metadata
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    columns = [_describe_column(field) for field in file.schema_arrow]
    yield {"rows": metadata.num_rows, "groups": groups, "columns": columns}, []


def read_width(file: Any, name: str) -> Iterator[Reply]:
    """Yield the length of the first list of a column; 0 without any."""
    batch = next(_batches(file, [name], 0, 1), None)
    yield {"width": len(batch.column(0)[0]) if batch is not None and batch.column(0)[0].is_valid else 0}, []


def read_numbers(
    file: Any, names: list[str], group: int, rows: int, width: int, dtype: str
) -> Iterator[Reply]:
    """Yield the numbers of several columns, or of one column of lists if `width` is given."""
    import numpy as np

    at = 0
    known: list[bool] = []  # whether the numbers of a column need no conversion
    space = np.empty((rows if width < 0 else 0, len(names)), dtype)  # of all batches: new memory takes time
    for batch in _batches(file, names, group, rows):
        if width >= 0:
            values = _list_numbers(batch.column(0), width, at)
        else:
            values = space[: batch.num_rows]
            known = known or [_is_plain(field.type) for field in batch.schema]
            for i, column in enumerate(batch.columns):
                values[:, i] = column.to_numpy(zero_copy_only=False) if known[i] else _numbers(column)
        yield {"rows": batch.num_rows}, [np.ascontiguousarray(values, dtype)]
        at += batch.num_rows


def read_values(file: Any, name: str, group: int, rows: int) -> Iterator[Reply]:
    """Yield all values of a column, packed."""
    for column in _joined(batch.column(0) for batch in _batches(file, [name], group, rows)):
        packed, buffers = _pack(column)
        yield {"rows": len(column), "values": packed}, buffers


def _joined(columns: Iterable[Any]) -> Iterator[Any]:
    """Yield columns of a few rows as fewer columns: batches are small in case that their texts are long."""
    import pyarrow

    waiting: list[Any] = []
    rows = size = 0
    for column in columns:
        kind = column.type.value_type if _is_list(column.type) else column.type
        waiting.append(column)
        rows, size = rows + len(column), size + column.nbytes
        if rows >= _ROWS_PER_REPLY or size >= _BYTES_PER_REPLY or not (_is_number(kind) or _is_text(kind)):
            yield pyarrow.concat_arrays(waiting) if len(waiting) > 1 else column
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pyarrow.concat_arrays(waiting)


def _batches(file: Any, names: list[str], group: int, rows: int) -> Iterator[Any]:
    groups = range(group, file.metadata.num_row_groups)
    for batch in file.iter_batches(rows, row_groups=groups, columns=names):
        # Columns with the same name, or with a dot in the name, are found in another number.
        if batch.schema.names != names:
            raise NotReadError(
                f"the columns {', '.join(names)} cannot be told from others; "
                "give each column a name of its own, without a dot"
            )
        yield batch


def _describe_column(field: Any) -> tuple[str, str, str, str]:
    """Return name, kind, type in Parquet's terms, and NumPy's type of the numbers."""
    import numpy as np
    from pyarrow import types

    inner = field.type
    is_list = _is_list(inner)
    inner = inner.value_type if is_list else inner
    if types.is_dictionary(inner):
        inner = inner.value_type
    if _is_number(inner):
        dtype = np.dtype(inner.to_pandas_dtype()).str
        return field.name, "numbers" if is_list else "number", str(field.type), dtype
    kind = ("texts" if is_list else "text") if _is_text(inner) else "other"
    return field.name, kind, str(field.type), "O"


def _is_list(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _is_number(type: Any) -> bool:
    from pyarrow import types

    return _is_plain(type) or bool(types.is_boolean(type))


def _is_text(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(type) or types.is_large_string(type))


def _is_plain(type: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(type) or types.is_floating(type))


def _numbers(column: Any) -> Any:
    """Return the numbers of a column, with NaN where a number is missing."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.uint8())
    return column.to_numpy(zero_copy_only=False)


def _list_numbers(column: Any, width: int, at: int) -> Any:
    import numpy as np
    import pyarrow.compute

    lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != width)  # also where there is no list
    if len(wrong):
        raise WrongRowError(at + int(wrong[0]))
    return _numbers(column.flatten()).reshape(len(column), width)


def _pack(column: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return a description of a column, and buffers with its values; `parquet._unpack` is the reverse."""
    import pyarrow.compute

    types, kind = pyarrow.types, column.type
    if _is_list(kind):
        inner, buffers = _pack(column.flatten())
        lengths = pyarrow.compute.fill_null(pyarrow.compute.list_value_length(column), -1)
        return {"lists": inner}, [_as_int64(lengths), *buffers]
    is_dictionary = types.is_dictionary(kind)
    kind = kind.value_type if is_dictionary else kind
    if _is_text(kind):
        return _pack_texts(column if is_dictionary else column.dictionary_encode())
    if _is_number(kind):
        return _pack_numbers(column.dictionary_decode() if is_dictionary else column)
    return {"plain": [_to_plain(value) for value in column.to_pylist()]}, []


def _pack_texts(column: Any) -> tuple[dict[str, Any], list[Any]]:
    """Pack every text once, because a short file can repeat a long text very often."""
    import numpy as np
    import pyarrow.compute

    texts, places = column.dictionary, column.indices
    if len(texts) > len(places):  # the texts of a whole row group, most of which these rows lack
        used = places.drop_null().unique()
        texts, places = texts.take(used), pyarrow.compute.index_in(places, used)
    missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
    texts = pyarrow.compute.fill_null(texts.cast(pyarrow.large_string()), "")
    _, edges, content = texts.buffers()
    bounds = np.zeros(1, np.int64)
    if len(texts):
        bounds = np.frombuffer(edges, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    longest = int(np.diff(bounds).max(initial=0))
    if longest > _LONGEST_TEXT:
        raise NotReadError(
            f"has a text of {format_count(longest, 'byte')}; crnr reads up to {_LONGEST_TEXT}, so shorten it"
        )
    whole = np.frombuffer(content or b"", np.uint8)[bounds[0] : bounds[-1]]
    places = _as_int64(pyarrow.compute.fill_null(places.cast(pyarrow.int64()), -1))  # they may be unsigned
    return {"texts": missing}, [bounds - bounds[0], whole, places]


def _pack_numbers(column: Any) -> tuple[dict[str, Any], list[Any]]:
    import numpy as np
    import pyarrow

    known = column.is_valid().to_numpy(zero_copy_only=False)
    if len(column):  # the same values, as if none were missing: otherwise, integers would become inexact
        parts = [None, column.buffers()[1]]
        column = pyarrow.Array.from_buffers(column.type, len(column), parts, offset=column.offset)
    values = np.ascontiguousarray(column.to_numpy(zero_copy_only=False))
    return {"numbers": values.dtype.str}, [values, known]


def _as_int64(column: Any) -> Any:
    return column.to_numpy(zero_copy_only=False).astype("int64")


def _to_plain(value: Any) -> Any:
    """Return a value as JSON can have it: anything but numbers and texts as an object with its text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return list(map(_to_plain, value)) if isinstance(value, list) else {"text": str(value)}


def read_pages(file: Any, name: str, path: str) -> Iterator[Reply]:
    """Yield the sizes of a column's pages by their headers: those at the end of a file may be wrong."""
    measured = Pages()
    metadata = file.metadata
    with open(path, "rb") as stream:  # noqa: PTH123, pathlib would only cost time
        for group in range(metadata.num_row_groups):
            chunks = map(metadata.row_group(group).column, range(metadata.num_columns))
            for chunk in chunks:
                if f"{chunk.path_in_schema}.".startswith(f"{name}."):
                    measured.add_chunk(stream, chunk)
    yield {"largest": measured.largest, "per_row": measured.per_row}, []


class Pages:
    """The pages of a column: what they take in memory, at once and for each row."""

    def __init__(self) -> None:
        self.largest = 0  # bytes, uncompressed
        self.per_row = 1

    def add_chunk(self, file: BinaryIO, chunk: Any) -> None:
        """Read the headers of all pages of a column in a row group, as pyarrow finds them."""
        at, above = chunk.data_page_offset, chunk.dictionary_page_offset
        if above and above < at:
            at = above
        remaining = chunk.num_values
        while remaining > 0:
            file.seek(at)
            header = ThriftReader(file.read(_LONGEST_HEADER))
            page = header.read_struct()
            try:
                stored, n_values = self._add_page(page)
            except (LookupError, TypeError, AttributeError) as e:  # a number is missing, or is something else
                raise ValueError(f"the header of the page at byte {at} is damaged") from e
            remaining -= max(0, n_values)
            at += header.at + stored

    def _add_page(self, page: dict[int, Any]) -> tuple[int, int]:
        """Take the fields of a page's header; return its size in the file and the number of its values."""
        size, stored = page[2], page[3]
        if min(size, stored) < 0:
            raise ValueError("a page has a negative size")
        data = page.get(5) or page.get(8) or {}
        encoding = data.get(2 if 5 in page else 4)
        self.largest = max(self.largest, size)
        # A row of a dictionary, or one that repeats the beginning of another, may be as long as the page.
        is_short = data and encoding in (_PLAIN, _PLAIN_DICTIONARY, _DELTA_LENGTH, _DICTIONARY)
        self.per_row = max(self.per_row, size // max(1, data[1]) if is_short else size)
        return stored, data.get(1, 0)


class ThriftReader:
    """Reads structures of Thrift's compact protocol, in which headers of pages are stored."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def read_struct(self) -> dict[int, Any]:
        """Return integers and structures by the number of their field; ValueError if it is not complete."""
        found: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            found[number] = self._value(head & 15)
        return found

    def _value(self, kind: int, *, in_list: bool = False) -> Any:
        match kind:
            case 1 | 2 if not in_list:  # true and false have no content
                return kind == 1
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._integer()
            case 7:  # a floating-point number
                self.at += 8
            case 8:  # text
                length = self._varint()
                self.at += length
            case 9 | 10:  # a list or set
                head = self._byte()
                for _ in range(self._varint() if head >> 4 == 15 else head >> 4):
                    self._value(head & 15, in_list=True)
            case 12:
                return self.read_struct()
            case _:
                raise ValueError(f"the header of a page has a field of kind {kind}")
        return None

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ValueError("the header of a page is not complete")
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


READERS: dict[str, Callable[..., Iterator[Reply]]] = {
    "facts": read_facts,
    "width": read_width,
    "numbers": read_numbers,
    "values": read_values,
    "pages": read_pages,
}


def answer(request: dict[str, Any]) -> Iterator[Reply]:
    """Yield the replies to a request; the last one tells whether it succeeded."""
    try:
        import pyarrow.parquet
    except ImportError as e:
        yield {"end": "not loaded", "reason": _first_line(e)}, []
        return
    try:
        what, path = request.pop("what"), request["path"]
        if what != "pages":
            del request["path"]
        # With "./" before relative paths, as pyarrow takes a name such as run:1.parquet for an address.
        yield from READERS[what](pyarrow.parquet.ParquetFile(os.path.join(os.curdir, path)), **request)  # noqa: PTH118
        yield {"end": "done"}, []
    except WrongRowError as e:
        yield {"end": "wrong row", "row": e.args[0]}, []
    except NotReadError as e:
        yield {"end": "not read", "reason": e.args[0]}, []
    except MemoryError:
        yield {"end": "too large"}, []
    except Exception as e:  # a damaged or malicious file may raise anything
        yield {"end": "failed", "reason": _first_line(e)}, []


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def write_replies(replies: Iterable[Reply], stream: BinaryIO) -> None:
    for line, buffers in replies:
        limit_cpu_time(SECONDS)
        raw = [buffer.reshape(-1).view("uint8") for buffer in buffers]
        stream.write(json.dumps({**line, "sizes": list(map(len, raw))}).encode() + b"\n")
        for buffer in raw:
            stream.write(buffer)
        stream.flush()


def _receive_requests(requests: SimpleQueue[bytes]) -> None:
    """Queue the requests, and end the process with its parent, even while pyarrow is busy."""
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def answer_requests() -> None:
    leave_to_parent()
    if limit := int(sys.argv[1]):
        limit_address_space(limit)
    # Before the thread: on Windows, NumPy's libraries wait as long as another thread reads stdin.
    with suppress(ImportError):  # which is the answer to the first request
        import pyarrow.compute

        pyarrow.set_cpu_count(min(pyarrow.cpu_count(), _MOST_THREADS))

    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_receive_requests, args=[requests], daemon=True).start()
    # Buffered also if PYTHONUNBUFFERED is set: an unbuffered stream may write only a part.
    try:
        with io.BufferedWriter(io.FileIO(sys.stdout.fileno(), "wb", closefd=False)) as stream:
            while True:
                request = json.loads(requests.get())
                limit_cpu_time(SECONDS)
                write_replies(answer(request), stream)
    finally:  # such as a broken pipe. Python would abort, because the thread holds the lock of stdin.
        os._exit(1)


if __name__ == "__main__":
    answer_requests()
