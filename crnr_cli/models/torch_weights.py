"""Read the tensors of a file that PyTorch saved, by name, without PyTorch, and without running anything.

Such a file has five pickles and then blocks of numbers. (Newer versions of PyTorch write zip files; no model
of the catalog has such weights.) A pickle is a program for a small machine with a stack, and Python's own
reader lets the program import and call whatever it names. Here `pickletools` only takes it apart into its
instructions. `_INSTRUCTIONS` has the instructions for tensors in dictionaries, and a tensor becomes a
description of where its numbers are. Everything else is refused.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, first_line
from crnr_cli.records import dataclass

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001
_LONGEST_REASON = 200  # characters of a message of pickletools, which may quote the file
_DICTIONARY, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
_TYPES = {"torch FloatStorage": "<f4", "torch LongStorage": "<i8"}
_MARK = object()  # where the items of a tuple, list or dictionary begin on the stack


class _Name(NamedTuple):
    """A known name that a pickle wants to import."""

    text: str


class _Block(NamedTuple):
    """Numbers that lie in the file one after the other."""

    type: np.dtype[Any]
    key: str
    length: int  # in numbers


class _Tensor(NamedTuple):
    """Where the numbers of a tensor are: `strides` are their distances in the block."""

    block: _Block
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_weights(path: Path) -> dict[str, Array]:
    """Return the tensors of a file, by name. Other values in its dictionary are left out."""
    try:
        with path.open("rb") as file:
            return _read_tensors(file)
    except OSError as e:
        raise DataError(f"{path}: cannot read it ({e.strerror})") from e
    except ValueError as e:
        reason = first_line(e)[:_LONGEST_REASON]
        raise DataError(f"{path}: not a weights file saved by PyTorch: {reason}") from e
    # The instructions or numbers do not fit together.
    except (LookupError, TypeError, AttributeError, OverflowError, MemoryError) as e:
        reason = f"a damaged pickle ({type(e).__name__})"
        raise DataError(f"{path}: not a weights file saved by PyTorch: {reason}") from e


def _read_tensors(file: BinaryIO) -> dict[str, Array]:
    if _read_pickle(file) != _MAGIC or _read_pickle(file) != _VERSION:
        raise ValueError("the beginning of the file is different")
    if _read_pickle(file)["little_endian"] is not True:
        raise ValueError("the numbers are in another byte order")
    tensors = {name: value for name, value in _read_pickle(file).items() if isinstance(value, _Tensor)}
    blocks = {tensor.block.key: tensor.block for tensor in tensors.values()}
    contents = {key: _read_block(file, blocks[key]) for key in _read_pickle(file)}
    return {name: _array(tensor, contents[tensor.block.key]) for name, tensor in tensors.items()}


def _read_block(file: BinaryIO, block: _Block) -> bytes:
    if int.from_bytes(file.read(8), "little") != block.length:
        raise ValueError(f"the block {block.key} has another length than the tensor declares")
    content = file.read(block.length * block.type.itemsize)
    if len(content) < block.length * block.type.itemsize:
        raise ValueError(f"the block {block.key} is not complete")
    return content


def _array(tensor: _Tensor, content: bytes) -> Array:
    """Return the numbers of a tensor as a view of its block; NumPy refuses to read beyond its end."""
    kind = tensor.block.type
    strides = [step * kind.itemsize for step in tensor.strides]
    return np.ndarray(tensor.shape, kind, content, tensor.offset * kind.itemsize, strides)


@dataclass
class _Machine:
    """The machine that a pickle is a program for."""

    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        """Take the last values from the stack."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def pop_marked(self) -> list[Any]:
        """Take all values since the last mark from the stack, and the mark."""
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def put(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def extend(self, items: list[Any]) -> None:
        self.stack[-1].extend(items)

    def set_items(self, items: list[Any]) -> None:
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _read_pickle(file: BinaryIO) -> Any:
    """Return the value of the next pickle in the file, and move to the pickle's end."""
    machine = _Machine()
    for instruction, argument, _ in pickletools.genops(file):
        if instruction.name not in _INSTRUCTIONS:
            raise ValueError(f"a pickle with the instruction {instruction.name}, which tensors do not need")
        _INSTRUCTIONS[instruction.name](machine, argument)
    return machine.stack.pop()


def _known_name(text: str) -> _Name:
    if text not in (_DICTIONARY, _TENSOR, *_TYPES):
        raise ValueError(f"a pickle that wants to run {text.replace(' ', '.')}; nothing of it was run")
    return _Name(text)


def _describe_call(function: Any, arguments: Any) -> Any:
    """Describe a call instead of making it."""
    if function == _Name(_DICTIONARY) and arguments == ():
        return {}
    if function == _Name(_TENSOR) and isinstance(arguments[0], _Block):
        return _Tensor(*arguments[:4])
    raise ValueError("a pickle that calls something; nothing of it was run")


def _block(reference: Any) -> _Block:
    """Return the block of a reference: ("storage", type, key, device, length, view)."""
    _, kind, key, _, length = reference[:5]
    return _Block(np.dtype(_TYPES[kind.text]), key, length)


_INSTRUCTIONS: dict[str, Callable[[_Machine, Any], object]] = {
    **dict.fromkeys(("PROTO", "STOP"), lambda machine, _: None),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"), _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.push(_MARK),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop_marked())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.pop(3))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, place: machine.push(machine.memo[place])),
    "SETITEM": lambda machine, _: machine.set_items(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_marked()),
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_marked()),
    "GLOBAL": lambda machine, text: machine.push(_known_name(text)),
    "REDUCE": lambda machine, _: machine.push(_describe_call(*machine.pop(2))),
    "BINPERSID": lambda machine, _: machine.push(_block(*machine.pop(1))),
    "BUILD": lambda machine, _: machine.pop(1),  # attributes of a dictionary, which are not needed
}
