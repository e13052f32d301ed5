"""ONNX files: their messages, and the weights files that they refer to."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.system.outputs import refuse_inputs

VARINT, EIGHT_BYTES, MESSAGE, FOUR_BYTES = 0, 1, 2, 5  # how a field is stored; texts like messages
EXPORT_REMEDY = "export the network to ONNX first (see docs/reference/networks.md)"
_LONGEST_TEXT = 2**16  # bytes
# A large model may have a weights file next to it, with one of these endings.
COMPANIONS = (".data", "_data")
# The fields of onnx.proto that lead to tensors, by message and number: the message that each contains.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {
        **{5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
        **{22: "sparse tensor", 23: "sparse tensor"},
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14  # of a tensor
_KEY, _VALUE = 1, 2  # of an entry of external_data
_EXTERNAL = 1  # a value of data_location
_ORT_SUFFIX = ".ort"  # of a model in onnxruntime's own format, which contains its weights


class Field(NamedTuple):
    number: int
    kind: int
    start: int  # of the content of a message or text
    end: int
    value: int = 0  # of a varint


def read_text(file: BinaryIO, field: Field) -> str:
    if field.end - field.start > _LONGEST_TEXT:
        raise ValueError("a text is too long")
    file.seek(field.start)
    return file.read(field.end - field.start).decode("utf-8", "surrogateescape")


def read_fields(file: BinaryIO, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two positions of the file; ValueError if it is not valid."""
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
    """Return a number of up to ten bytes with seven bits each, and the position after it."""
    file.seek(start)
    value = 0
    for i, byte in enumerate(file.read(min(10, end - start))):
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, start + i + 1
    raise ValueError(f"a number at byte {start} is not complete")


def model_format(path: Path) -> Literal["ORT", "ONNX"]:
    """Return the format in which a model has to be opened.

    As in onnxruntime, the suffix decides: the author of an ONNX model chooses its first bytes.
    """
    return "ORT" if path.suffix.lower() == _ORT_SUFFIX else "ONNX"


class ModelHash(NamedTuple):
    """The checksums that identify a model."""

    sha256: str  # of the model and all weights files
    early: str  # of the model and the weights files named like it, which are all that early versions read
    others: list[str]  # the other weights files


def model_hash(path: Path) -> ModelHash:
    """Read the model and all its weights. File names do not matter, so that files can be renamed."""
    complete, early = hashlib.sha256(), hashlib.sha256()
    companions = [path.with_name(path.name + ending) for ending in COMPANIONS]
    try:
        named = [path.parent / name for name in external_files(path)]
        refuse_inputs([path, *named, *companions])
        _update(path, complete, early)
        for file in sorted({*named, *filter(Path.is_file, companions)}):
            _update(file, complete, *([early] if file in companions else []))
        if len(named) > 1:  # mark where one of them ends and the next begins
            complete.update(str([file.stat().st_size for file in named]).encode())
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except ValueError as e:
        raise DataError(f"{path}: not an ONNX model; {EXPORT_REMEDY}") from e
    others = [str(file) for file in named if file not in companions]
    return ModelHash(complete.hexdigest(), early.hexdigest(), others)


def external_files(path: Path) -> list[str]:
    """Return the names of all weights files, relative to the model's folder and checked, in order.

    A name that leads out of this folder is refused, so that a model cannot make crnr read any other file.
    """
    if model_format(path) == "ORT":
        return []
    with path.open("rb") as file:
        names = sorted({os.path.normpath(name) for name in _locations(file)})
    # Links are allowed if all of them lead to one folder, as in the cache of Hugging Face.
    folders = [Path(os.path.realpath(path.parent)), Path(os.path.realpath(path)).parent]
    for name in names:
        found = Path(os.path.realpath(path.parent / name))
        if Path(name).is_absolute() or not any(found.is_relative_to(folder) for folder in folders):
            raise DataError(
                f"{path}: the weights {name} are outside the model's folder, where crnr reads nothing; "
                "save the model again, with the weights next to it"
            )
        if not os.path.isfile(found):  # noqa: PTH113, which raises if access is denied
            raise DataError(f"{path}: the weights {name} are missing; put this file into the model's folder")
    return names


def _update(path: Path, *digests: hashlib._Hash) -> None:
    with path.open("rb") as file:
        while block := file.read(2**20):
            for digest in digests:
                digest.update(block)


def _locations(file: BinaryIO) -> Iterator[str]:
    """Yield the `location` of every tensor that is stored in another file; ValueError if not protobuf."""
    size = file.seek(0, os.SEEK_END)
    waiting = [("model", 0, size)]
    while waiting:
        kind, start, end = waiting.pop()
        if kind == "tensor":
            yield from _tensor_locations(file, start, end)
            continue
        inner = _FIELDS[kind]
        for field in read_fields(file, start, end):
            if field.number in inner and field.kind == MESSAGE:
                waiting.append((inner[field.number], field.start, field.end))


def _tensor_locations(file: BinaryIO, start: int, end: int) -> list[str]:
    locations: list[str] = []
    is_external = False
    for field in read_fields(file, start, end):
        if field.number == _DATA_LOCATION and field.kind == VARINT:
            is_external = field.value == _EXTERNAL
        elif field.number == _EXTERNAL_DATA and field.kind == MESSAGE:
            texts = {
                entry.number: read_text(file, entry)
                for entry in read_fields(file, field.start, field.end)
                if entry.number in (_KEY, _VALUE) and entry.kind == MESSAGE
            }
            if texts.get(_KEY) == "location":
                locations.append(texts.get(_VALUE, ""))
    return locations if is_external else []
