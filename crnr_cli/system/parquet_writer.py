"""Write Parquet, with an optional package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from crnr_cli.errors import DataError

_ROWS_PER_GROUP = 16_384  # written at once


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
