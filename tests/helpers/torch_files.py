"""Files of weights as PyTorch saves them, written by Python's own pickle and without PyTorch."""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
SYSTEM = {
    "protocol_version": VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
STORAGES = {
    "<f4": "FloatStorage",
    "<f8": "DoubleStorage",
    "<f2": "HalfStorage",
    "<i8": "LongStorage",
    "<i4": "IntStorage",
    "<i2": "ShortStorage",
    "|i1": "CharStorage",
    "|u1": "ByteStorage",
}


def _torch() -> dict[str, types.ModuleType]:
    """What a pickle of tensors names."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in (*STORAGES.values(), "BoolStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    for name in ("_rebuild_tensor_v2", "_rebuild_parameter"):
        function = types.FunctionType((lambda: None).__code__, {}, name)
        function.__module__, function.__qualname__ = "torch._utils", name
        setattr(utils, name, function)
    return {"torch": torch, "torch._utils": utils}


TORCH = _torch()


@dataclass(frozen=True)
class Block:
    """Numbers that lie in a file one after the other."""

    key: str
    numbers: Any
    declared: Any = None  # another length than it has
    storage: str = ""  # another type than it has

    @property
    def reference(self) -> tuple[Any, ...]:
        storage = getattr(TORCH["torch"], self.storage or STORAGES[self.numbers.dtype.str])
        length = len(self.numbers) if self.declared is None else self.declared
        return ("storage", storage, self.key, "cpu", length)


@dataclass(frozen=True)
class View:
    """A tensor."""

    block: Block
    offset: Any
    shape: Any
    strides: Any

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.block, self.offset, self.shape, self.strides, False, OrderedDict())
        return TORCH["torch._utils"]._rebuild_tensor_v2, arguments


@dataclass(frozen=True)
class Parameter:
    tensor: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return TORCH["torch._utils"]._rebuild_parameter, (self.tensor, True, OrderedDict())


class Call:
    """Calls a function when it is unpickled by a reader that does so."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def whole(key: str, numbers: Any) -> View:
    """A tensor that is all of its block."""
    numbers = np.asarray(numbers)
    strides = tuple(int(np.prod(numbers.shape[i + 1 :])) for i in range(numbers.ndim))
    return View(Block(key, numbers.ravel()), 0, numbers.shape, strides)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return (*value.reference, *self.more) if isinstance(value, Block) else None

    more: tuple[Any, ...] = ()


@contextlib.contextmanager
def _named() -> Iterator[None]:
    with mock.patch.dict(sys.modules, TORCH):
        yield


def pickled(value: Any, protocol: int = 2, *more: Any) -> bytes:
    """A pickle; references to blocks have `more` at their end."""
    content = io.BytesIO()
    pickler = _Pickler(content, protocol)
    pickler.more = more
    with _named():
        pickler.dump(value)
    return content.getvalue()


def blocks_of(state: Mapping[Any, Any]) -> dict[str, Block]:
    tensors = [value.tensor if isinstance(value, Parameter) else value for value in state.values()]
    return {one.block.key: one.block for one in tensors if isinstance(one, View)}


def zip_bytes(
    state: Any,
    protocol: int = 2,
    method: int = zipfile.ZIP_STORED,
    members: Mapping[str, bytes | None] | None = None,
) -> bytes:
    """The newer format; `members` replaces some of them, or leaves them out."""
    blocks = blocks_of(state) if isinstance(state, Mapping) else {}
    content: dict[str, bytes | None] = {
        "data.pkl": state if isinstance(state, bytes) else pickled(state, protocol),
        "byteorder": b"little",
        **{f"data/{block.key}": block.numbers.tobytes() for block in blocks.values()},
        "version": b"3\n",
        **(members or {}),
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, data in content.items():
            if data is not None:
                archive.writestr(f"archive/{name}", data)
    return packed.getvalue()


def older_bytes(
    state: Any, protocol: int = 2, system: Any = SYSTEM, keys: Any = None, blocks: bytes | None = None
) -> bytes:
    """The older format: five pickles, and then the blocks."""
    found = blocks_of(state) if isinstance(state, Mapping) else {}
    keys = sorted(found) if keys is None else keys
    parts = [pickled(part, protocol, None) for part in (MAGIC, VERSION, system, state, keys)]
    if isinstance(state, bytes):
        parts[3] = state
    if blocks is None:
        blocks = b"".join(
            len(found[key].numbers).to_bytes(8, "little") + found[key].numbers.tobytes()
            for key in sorted(found)
        )
    return b"".join(parts) + blocks


FORMATS: dict[str, Callable[..., bytes]] = {"zip": zip_bytes, "older": older_bytes}


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
