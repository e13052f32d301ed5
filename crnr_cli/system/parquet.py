"""Parquet, which an optional package reads and writes: the only module that uses it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.records import dataclass
from crnr_cli.system import memory
from crnr_cli.system.extras import require_packages
from crnr_cli.wording import format_count

Kind = Literal["number", "text", "numbers", "texts", "other"]

MAGIC = b"PAR1"  # the first bytes of a file
_NUMBERS_PER_BATCH = 2**20
_ROWS_PER_BATCH = 4096
_ROWS_PER_GROUP = 16_384  # written at once
_LONGEST_TEXT = 2**16  # bytes
_TEXT_PER_BATCH = 2**25  # bytes
_CHECKED_EVERY = 2**24  # bytes of text that were not there before
_COPIES = 3  # of a page, or of a batch, while pyarrow decodes it
_PLAIN, _PLAIN_DICTIONARY, _DELTA_LENGTH, _DICTIONARY = 0, 2, 6, 8  # encodings of a page
_LONGEST_HEADER = 2**18  # bytes; the header of a page may contain the least and the greatest of its texts


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind  # one number or text per row, or a list of them
    type: str  # in Parquet's terms
    dtype: np.dtype[Any]  # of its numbers


class ParquetFile:
    """A file that is read a few rows at a time, whatever it declares."""

    def __init__(self, path: Path) -> None:
        require_packages("parquet", f"{path}: a Parquet file", "pyarrow")
        self.path = path
        with self._failures():
            found = self._open()
            metadata = found.metadata
            self._edges = list(
                accumulate(
                    (metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)), initial=0
                )
            )
            if min(np.diff(self._edges), default=0) < 0 or self._edges[-1] != metadata.num_rows:
                raise ValueError("the row groups do not have the declared number of rows")
            self.columns = [_column(field) for field in found.schema_arrow]
        self.n_rows = int(self._edges[-1])

    def read_batches(
        self, names: Sequence[str], first: int, rows: int = _ROWS_PER_BATCH
    ) -> Iterator[tuple[int, Any]]:
        """Yield batches of at most `rows` rows from the `first` row's group on, each with its first row."""
        with self._failures():
            group = max(0, bisect_right(self._edges, first) - 1)
            at = self._edges[group]
            groups = range(group, len(self._edges) - 1)
            for batch in self._open().iter_batches(rows, row_groups=groups, columns=list(names)):
                # Columns with the same name, or with a dot in the name, are found in another number.
                if batch.schema.names != list(names):
                    raise ValueError(f"the columns {', '.join(names)} cannot be told from others")
                yield at, batch
                at += batch.num_rows
            if at != self.n_rows:
                raise ValueError(f"{format_count(at, 'row')} instead of {self.n_rows}")

    def values(self, name: str) -> list[Any]:
        """Return a column as Python's numbers, texts or lists; None where a value is missing.

        Equal texts are one object, because a short file can repeat a long text very often.
        """
        found: list[Any] = []
        texts: dict[str, str] = {}
        size = checked = 0
        work = (f"{self.path}: column {name}", "save fewer rows per file")
        with self._failures():
            pages = self._measure_pages(name)
            memory.require_memory(_COPIES * pages.largest, *work)
        for _, batch in self.read_batches([name], 0, pages.rows_per_batch()):
            with self._failures():
                if batch.nbytes > _LONGEST_TEXT:
                    _refuse_long_texts(batch.column(0))
                n_known = len(texts)
                found += _share_texts(batch.column(0).to_pylist(), texts)
                size += sum(map(len, islice(reversed(texts), len(texts) - n_known)))
                if size - checked > _CHECKED_EVERY:
                    memory.require_memory(_CHECKED_EVERY, *work)
                    checked = size
        return found

    def _measure_pages(self, name: str) -> Pages:
        """Return the sizes of a column's pages by their headers: those at the end of a file may be wrong."""
        measured = Pages()
        metadata = self._open().metadata
        with self.path.open("rb") as file:
            for group in range(metadata.num_row_groups):
                chunks = map(metadata.row_group(group).column, range(metadata.num_columns))
                for chunk in chunks:
                    if f"{chunk.path_in_schema}.".startswith(f"{name}."):
                        measured.add_chunk(file, chunk)
        return measured

    def width(self, name: str) -> int:
        """Return the length of the first list of a column; 0 without any."""
        for _, batch in self.read_batches([name], 0, rows=1):
            with self._failures():
                return len(batch.column(0)[0]) if batch.column(0)[0].is_valid else 0
        return 0

    def _open(self) -> Any:
        import pyarrow.parquet

        return pyarrow.parquet.ParquetFile(self.path)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except Exception as e:  # a damaged or malicious file may raise anything
            reason = str(e).partition("\n")[0]
            raise DataError(f"{self.path}: not a readable Parquet file ({reason})") from e


class Pages:
    """The pages of a column: what they take in memory, at once and for each row."""

    def __init__(self) -> None:
        self.largest = 0  # bytes, uncompressed
        self._per_row = 1

    def rows_per_batch(self) -> int:
        return max(1, min(_ROWS_PER_BATCH, _TEXT_PER_BATCH // self._per_row))

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
            size, stored = page[2], page[3]
            if min(size, stored) < 0:
                raise ValueError(f"a page at byte {at} has a negative size")
            data = page.get(5) or page.get(8) or {}
            encoding = data.get(2 if 5 in page else 4)
            self.largest = max(self.largest, size)
            # A row of a dictionary, or one that repeats the beginning of another, may be as long as the page.
            is_short = data and encoding in (_PLAIN, _PLAIN_DICTIONARY, _DELTA_LENGTH, _DICTIONARY)
            self._per_row = max(self._per_row, size // max(1, data[1]) if is_short else size)
            remaining -= max(0, data.get(1, 0))
            at += header.at + stored


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
        self._batches: Iterator[tuple[int, Any]] | None = None
        self._held, self._at = (
            np.empty((0, width), self.dtype),
            0,
        )  # the rows that have been read, and the first of them

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
        is_near = self._at <= start <= self._at + len(self._held) + _ROWS_PER_GROUP
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
        rows = max(1, min(_ROWS_PER_BATCH, _NUMBERS_PER_BATCH // max(1, self.shape[1])))
        self._batches = self._file.read_batches(self._names, first, rows)
        self._held, self._at = self._held[:0], 0
        self._next()

    def _next(self) -> None:
        assert self._batches is not None
        found = next(self._batches, None)
        if found is None:
            self._batches = None
            raise DataError(f"{self._file.path}: was changed while it was being read; run the command again")
        self._at, batch = found
        with self._file._failures():
            self._held = self._list_values(batch) if self._is_list else self._values(batch)

    def _values(self, batch: Any) -> Array:
        out = np.empty((batch.num_rows, self.shape[1]), self.dtype)
        for i, column in enumerate(batch.columns):
            out[:, i] = _numbers(column)
        return out

    def _list_values(self, batch: Any) -> Array:
        import pyarrow.compute

        column = batch.column(0)
        lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.shape[1])  # also where there is no list
        if len(wrong):
            raise DataError(
                f"{self._file.path}: row {self._at + int(wrong[0])} of {self._names[0]} does not have "
                f"{format_count(self.shape[1], 'number')}, as the first row has"
            )
        return _numbers(column.flatten()).reshape(batch.num_rows, self.shape[1])


def refuse_other_encodings(names: Iterable[str]) -> None:
    """Refuse, before any work, a name that the text in a table cannot have."""
    try:
        for name in names:
            name.encode("utf-8")
    except UnicodeEncodeError as e:
        raise _not_utf8_error(e) from e


def _not_utf8_error(error: UnicodeEncodeError) -> DataError:
    return DataError(f"{error.object!r} is not UTF-8, as text in Parquet has to be; use another --format")


@contextmanager
def table_writer(stream: BinaryIO, schema: Mapping[str, str]) -> Iterator[TableWriter]:
    """Write a table with these columns: `text`, `texts` or the name of a number type.

    The file is complete, and can be read, only if the block succeeds.
    """
    writer = TableWriter(stream, schema)
    try:
        yield writer
        writer.finish()
    finally:
        writer.abandon()


class TableWriter:
    def __init__(self, stream: BinaryIO, schema: Mapping[str, str]) -> None:
        import pyarrow
        import pyarrow.parquet

        text = pyarrow.string()
        types = {"text": text, "texts": pyarrow.list_(text)}
        self._schema = pyarrow.schema(
            [(name, types.get(kind) or getattr(pyarrow, kind)()) for name, kind in schema.items()]
        )
        self._writer = pyarrow.parquet.ParquetWriter(stream, self._schema)
        self._waiting: list[Any] = []

    def write(self, columns: Sequence[Sequence[Any]]) -> None:
        """Write some rows, as one sequence per column; None where a value is missing."""
        import pyarrow

        try:
            arrays = [
                pyarrow.array(values, type=field.type)
                for values, field in zip(columns, self._schema, strict=True)
            ]
        except UnicodeEncodeError as e:
            raise _not_utf8_error(e) from e
        self._waiting.append(pyarrow.record_batch(arrays, schema=self._schema))
        if sum(batch.num_rows for batch in self._waiting) >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        if self._waiting:
            self._writer.write_table(pyarrow.Table.from_batches(self._waiting))
            self._waiting.clear()

    def finish(self) -> None:
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Write nothing more, not even the end of the file."""
        self._writer.is_open = False


def _column(field: Any) -> Column:
    import pyarrow

    types, inner = pyarrow.types, field.type
    is_list = types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner)
    inner = inner.value_type if is_list else inner
    if types.is_dictionary(inner):
        inner = inner.value_type
    if types.is_integer(inner) or types.is_floating(inner) or types.is_boolean(inner):
        return Column(
            field.name, "numbers" if is_list else "number", str(field.type), np.dtype(inner.to_pandas_dtype())
        )
    if types.is_string(inner) or types.is_large_string(inner):
        return Column(field.name, "texts" if is_list else "text", str(field.type), np.dtype(object))
    return Column(field.name, "other", str(field.type), np.dtype(object))


def _numbers(column: Any) -> Array:
    """Return the numbers of a column, with NaN where a number is missing."""
    import pyarrow

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_boolean(column.type):
        column = column.cast(pyarrow.uint8())
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _share_texts(values: list[Any], known: dict[str, str]) -> list[Any]:
    """Return the values with one object for all equal texts, and add new texts to the known ones."""
    return [
        known.setdefault(value, value)
        if isinstance(value, str)
        else _share_texts(value, known)
        if isinstance(value, list)
        else value
        for value in values
    ]


def _refuse_long_texts(column: Any) -> None:
    """Raise ValueError for long texts: a short file can repeat a long text very often."""
    import pyarrow
    import pyarrow.compute

    inner = column.flatten() if hasattr(column, "flatten") and pyarrow.types.is_list(column.type) else column
    if pyarrow.types.is_dictionary(inner.type):
        inner = inner.dictionary
    if pyarrow.types.is_string(inner.type) or pyarrow.types.is_large_string(inner.type):
        longest = pyarrow.compute.max(pyarrow.compute.binary_length(inner)).as_py() or 0
        if longest > _LONGEST_TEXT:
            raise ValueError(f"a text of {format_count(longest, 'byte')}")
