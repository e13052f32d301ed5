"""Weights that PyTorch saved: the tensors of a file by name, without PyTorch, and without running anything.

There are two formats: a zip file with one member per block of numbers, and the older one, in which the blocks
follow several pickles.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, first_line
from crnr_cli.models.pickled import Storage, Tensor, read_pickle

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the older format
_MOST_DIMENSIONS = 16
_LONGEST_REASON = 200  # characters of a message of zipfile, which may quote the file

Blocks = Callable[[Storage], Array]


def read_weights(path: Path) -> dict[str, Array]:
    """The tensors of a file, by name. What is not a tensor in its dictionary is left out."""
    try:
        with path.open("rb") as file:
            if zipfile.is_zipfile(file):
                return _zipped(file)
            return _older(file)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except (ValueError, zipfile.BadZipFile, EOFError, RuntimeError, struct.error) as e:
        reason = first_line(e)[:_LONGEST_REASON]
        raise DataError(f"{path}: not a file of weights that PyTorch saved: {reason}") from e


def _zipped(file: BinaryIO) -> dict[str, Array]:
    size = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise ValueError("it has several members of one name")
        if len({info.header_offset for info in members.values()}) < len(members):
            raise ValueError("it has several members in one place")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members.values()):
            raise ValueError("its members are compressed, which PyTorch does not do")
        if any(max(info.file_size, info.compress_size) > size for info in members.values()):
            raise ValueError("a member is larger than the file")
        if "data.pkl" not in members:
            raise ValueError("a zip file without data.pkl")
        if "byteorder" in members and archive.read(members["byteorder"]) != b"little":
            raise ValueError("its numbers are in another byte order")
        with archive.open(members["data.pkl"]) as pickle:
            found = read_pickle(pickle)  # type: ignore[arg-type]

        @cache
        def block(storage: Storage) -> Array:
            name = f"data/{storage.key}"
            if name not in members or members[name].file_size != storage.length * _itemsize(storage):
                raise ValueError(f"the block {storage.key} is missing or not complete")
            return np.frombuffer(archive.read(members[name]), storage.type)

        return _tensors(found, block)


def _older(file: BinaryIO) -> dict[str, Array]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if read_pickle(file) != _MAGIC or read_pickle(file) != _VERSION:
        raise ValueError("it does not begin as such a file does")
    system = read_pickle(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are in another byte order")
    found, keys = read_pickle(file), read_pickle(file)
    if not isinstance(found, dict) or not isinstance(keys, list):
        raise ValueError("it has no dictionary of tensors")
    storages: dict[str, Storage] = {}
    for value in found.values():
        if (
            isinstance(value, Tensor)
            and storages.setdefault(value.storage.key, value.storage) != value.storage
        ):
            raise ValueError(f"the block {value.storage.key} has several types or lengths")
    blocks: dict[str, Array] = {}
    for key in keys:
        if not isinstance(key, str) or key not in storages:
            raise ValueError("it has a block that belongs to no tensor")
        storage = storages[key]
        if int.from_bytes(file.read(8), "little") != storage.length:
            raise ValueError(f"the block {key} has another length than its tensors say")
        length = storage.length * _itemsize(storage)
        if length > size - file.tell():
            raise ValueError(f"the block {key} is not complete")
        data = file.read(length)
        blocks[key] = np.frombuffer(data, storage.type)

    def block(storage: Storage) -> Array:
        if storage.key not in blocks:
            raise ValueError(f"the block {storage.key} is missing")
        return blocks[storage.key]

    return _tensors(found, block)


def _itemsize(storage: Storage) -> int:
    return np.dtype(storage.type).itemsize


def _tensors(found: Any, block: Blocks) -> dict[str, Array]:
    if not isinstance(found, dict):
        raise ValueError("it has no dictionary of tensors")
    return {
        name: _array(value, block(value.storage))
        for name, value in found.items()
        if isinstance(name, str) and isinstance(value, Tensor)
    }


def _array(tensor: Tensor, block: Array) -> Array:
    """The numbers of a tensor in their order, as a view of its block, such as a transposed one.

    Nothing is copied: many tensors of one block, which a small file can have, take no further memory.
    """
    if len(tensor.shape) != len(tensor.strides) or len(tensor.shape) > _MOST_DIMENSIONS:
        raise ValueError("a tensor with too many dimensions or strides")
    count = int(np.prod(tensor.shape, dtype=object))
    steps = zip(tensor.shape, tensor.strides, strict=True)
    last = tensor.offset + sum((length - 1) * step for length, step in steps)
    if count and (last >= len(block) or count > len(block)):
        raise ValueError("a tensor beyond the end of its block")
    if not count:
        return np.empty(tensor.shape, block.dtype)
    strides = [step * block.itemsize for step in tensor.strides]
    return np.lib.stride_tricks.as_strided(block[tensor.offset :], tensor.shape, strides, writeable=False)
