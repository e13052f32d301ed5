"""Files of weights as PyTorch used to save them, written by Python's own pickle and without PyTorch."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
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
    "<i8": "LongStorage",
}


def _torch() -> dict[str, types.ModuleType]:
    """Return the names in a pickle of tensors."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in (*STORAGES.values(), "BoolStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    function = types.FunctionType((lambda: None).__code__, {}, "_rebuild_tensor_v2")
    function.__module__, function.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    setattr(utils, function.__qualname__, function)
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
        return ("storage", storage, self.key, "cpu", length, None)


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


class Call:
    """Calls a function when it is unpickled by a reader that does so."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def whole(key: str, numbers: Any) -> View:
    """Return a tensor that is all of its block."""
    numbers = np.asarray(numbers)
    strides = tuple(int(np.prod(numbers.shape[i + 1 :])) for i in range(numbers.ndim))
    return View(Block(key, numbers.ravel()), 0, numbers.shape, strides)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.reference if isinstance(value, Block) else None


def pickled(value: Any) -> bytes:
    content = io.BytesIO()
    with mock.patch.dict(sys.modules, TORCH):
        _Pickler(content, 2).dump(value)
    return content.getvalue()


def blocks_of(state: Mapping[Any, Any]) -> dict[str, Block]:
    return {one.block.key: one.block for one in state.values() if isinstance(one, View)}


def weights_bytes(state: Any, system: Any = SYSTEM, keys: Any = None, blocks: bytes | None = None) -> bytes:
    """Return a weights file: five pickles, then the blocks. Bytes stand for the state's pickle."""
    found = blocks_of(state) if isinstance(state, Mapping) else {}
    keys = sorted(found) if keys is None else keys
    parts = [pickled(part) for part in (MAGIC, VERSION, system, state, keys)]
    if isinstance(state, bytes):
        parts[3] = state
    if blocks is None:
        blocks = b"".join(
            len(found[key].numbers).to_bytes(8, "little") + found[key].numbers.tobytes()
            for key in sorted(found)
        )
    return b"".join(parts) + blocks


def save(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
