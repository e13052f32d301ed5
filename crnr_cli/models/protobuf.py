"""A reader of protobuf messages in files, such as ONNX models, without a further library.

It yields the fields of a message one after the other and skips their content. Whatever the file contains, it
takes little memory, and time in proportion to the number of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

VARINT, EIGHT_BYTES, MESSAGE, FOUR_BYTES = 0, 1, 2, 5  # how a field is stored; texts like messages
_LONGEST_TEXT = 2**16  # bytes


class Field(NamedTuple):
    number: int
    kind: int
    start: int  # of the content of a message or text
    end: int
    value: int = 0  # of a varint


def text(file: BinaryIO, field: Field) -> str:
    if field.end - field.start > _LONGEST_TEXT:
        raise ValueError("a text in it is too long")
    file.seek(field.start)
    return file.read(field.end - field.start).decode("utf-8", "surrogateescape")


def fields(file: BinaryIO, start: int, end: int) -> Iterator[Field]:
    """The fields of the message between two positions of the file; ValueError if there is none."""
    while start < end:
        key, start = _varint(file, start, end)
        number, kind = key >> 3, key & 7
        value, stop = 0, start
        if kind == VARINT:
            value, stop = _varint(file, start, end)
        elif kind == MESSAGE:
            length, start = _varint(file, start, end)
            stop = start + length
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            stop = start + (8 if kind == EIGHT_BYTES else 4)
        else:
            raise ValueError(f"a field of kind {kind} at byte {start}")
        if stop > end:
            raise ValueError(f"a field at byte {start} ends after the message it belongs to")
        yield Field(number, kind, start, stop, value)
        start = stop


def _varint(file: BinaryIO, start: int, end: int) -> tuple[int, int]:
    """A number of up to ten bytes, of which each has seven bits, and the position after it."""
    file.seek(start)
    value = 0
    for i, byte in enumerate(file.read(min(10, end - start))):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, start + i + 1
    raise ValueError(f"a number at byte {start} is not complete")
