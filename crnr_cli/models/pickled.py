"""A reader of the pickles in files of PyTorch weights, which runs nothing.

A pickle is a program for a small machine with a stack. Python's own reader lets such a program import and
call whatever it names. This one knows the few instructions that tensors in dictionaries need. Of names, it
knows those in `_KNOWN`: a tensor becomes a description of where its numbers are, and nothing is ever called.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

_LONGEST_TEXT = 2**12  # bytes
_LONGEST_NUMBER = 2**4  # bytes
_LONGEST_SHOWN = 100  # characters of a name in a message
_MOST_INSTRUCTIONS = 2**18  # some dozens per tensor


class Storage(NamedTuple):
    """A block of numbers in the file, which several tensors may share."""

    type: str  # the code of a NumPy type
    key: str
    length: int  # in numbers


class Tensor(NamedTuple):
    """Where the numbers of a tensor are: `strides` says how far apart they lie in the storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_DICTIONARY, _TENSOR, _PARAMETER = "a dictionary", "a tensor", "a parameter"
_KNOWN = {
    "collections OrderedDict": _DICTIONARY,
    "torch._utils _rebuild_tensor_v2": _TENSOR,
    "torch._utils _rebuild_parameter": _PARAMETER,
}
_TYPES = {
    "torch FloatStorage": "<f4",
    "torch DoubleStorage": "<f8",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ShortStorage": "<i2",
    "torch CharStorage": "|i1",
    "torch ByteStorage": "|u1",
}


class _Name(NamedTuple):
    """A name that a pickle wants to import, and that is known."""

    text: str


class _Mark:
    """Where the items of a tuple, list or dictionary begin on the stack."""


_MARK = _Mark()


def read_pickle(file: BinaryIO) -> Any:
    """The value of the pickle at the position of the file, which is at the end of it afterwards.

    ValueError if it is incomplete, or if it contains anything but tensors in dictionaries, lists and tuples.
    """
    machine = _Machine(file)
    try:
        return machine.run()
    # Of a stack that does not fit, and of text that is none.
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error) as e:
        raise ValueError(f"a damaged pickle ({type(e).__name__})") from e


@dataclass
class _Machine:
    file: BinaryIO
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> Any:
        for _ in range(_MOST_INSTRUCTIONS):
            code = self._bytes(1)
            if code == b".":
                if len(self.stack) != 1:
                    raise ValueError("a damaged pickle (values are left over)")
                return self.stack.pop()
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise ValueError(f"a pickle with the instruction {code!r}, which tensors do not need")
            instruction(self)
        raise ValueError("a pickle with too many instructions")

    def _bytes(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise ValueError("a pickle that is not complete")
        return data

    def _number(self, code: str) -> int:
        return int(struct.unpack(code, self._bytes(struct.calcsize(code)))[0])

    def _line(self) -> str:
        line = self.file.readline(_LONGEST_TEXT)
        if not line.endswith(b"\n"):
            raise ValueError("a pickle that is not complete")
        return line[:-1].decode()

    def _since_mark(self) -> list[Any]:
        """Take all values since the last mark from the stack, and the mark itself."""
        start = len(self.stack) - 1
        while self.stack[start] is not _MARK:
            start -= 1
            if start < 0:
                raise ValueError("a damaged pickle (values are missing)")
        items = self.stack[start + 1 :]
        del self.stack[start:]
        return items

    def text(self, length_code: str) -> None:
        length = self._number(length_code)
        if length > _LONGEST_TEXT:
            raise ValueError("a pickle with a text that is too long")
        self.stack.append(self._bytes(length).decode())

    def long(self) -> None:
        length = self._number("<B")
        if length > _LONGEST_NUMBER:
            raise ValueError("a pickle with a number that is too long")
        self.stack.append(int.from_bytes(self._bytes(length), "little", signed=True))

    def protocol(self) -> None:
        self._number("<B")  # all instructions that we know have the same meaning in each

    def frame(self) -> None:
        self._number("<Q")  # how many bytes a reader may fetch at once

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise ValueError("a damaged pickle (values are missing)")
        start = len(self.stack) - count
        self.stack[start:] = [tuple(self.stack[start:])]

    def put(self, code: str) -> None:
        self.memo[self._number(code)] = self.stack[-1]

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def name(self) -> None:
        self._push_name(f"{self._line()} {self._line()}")

    def stacked_name(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise ValueError("a damaged pickle (a name that is not text)")
        self._push_name(f"{module} {name}")

    def _push_name(self, text: str) -> None:
        if text not in _KNOWN and text not in _TYPES:
            shown = text.replace(" ", ".")[:_LONGEST_SHOWN]
            raise ValueError(f"a pickle that wants to run {shown}; nothing of it was run")
        self.stack.append(_Name(text))

    def reduce(self) -> None:
        """What Python would call is described instead."""
        arguments, function = self.stack.pop(), self.stack.pop()
        kind = _KNOWN.get(function.text) if isinstance(function, _Name) else None
        if kind == _DICTIONARY and arguments == ():
            self.stack.append({})
        elif kind == _TENSOR and _is_tuple(arguments, 4):
            storage, offset, shape, strides = arguments[:4]
            if not isinstance(storage, Storage) or not _are_counts(offset, *shape, *strides):
                raise ValueError("a damaged pickle (a tensor without numbers)")
            self.stack.append(Tensor(storage, offset, tuple(shape), tuple(strides)))
        elif kind == _PARAMETER and _is_tuple(arguments, 1) and isinstance(arguments[0], Tensor):
            self.stack.append(arguments[0])
        else:
            raise ValueError("a pickle that calls something; nothing of it was run")

    def storage(self) -> None:
        """The reference to a block of numbers: ("storage", type, key, device, count)."""
        reference = self.stack.pop()
        if not _is_tuple(reference, 5):
            raise ValueError("a damaged pickle (a block of numbers without a type)")
        kind, of, key, _, count = reference[:5]
        if kind != "storage" or not isinstance(of, _Name) or not isinstance(key, str):
            raise ValueError("a damaged pickle (a block of numbers without a type)")
        if of.text not in _TYPES or not _are_counts(count):
            raise ValueError("a damaged pickle (a block of numbers without a type)")
        self.stack.append(Storage(_TYPES[of.text], key, count))

    def build(self) -> None:
        """Python would set attributes of an object; those of a dictionary of weights are not needed."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise ValueError("a pickle that sets attributes of something; nothing of it was run")

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._into_dictionary([key, value])

    def set_items(self) -> None:
        self._into_dictionary(self._since_mark())

    def _into_dictionary(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise ValueError("a damaged pickle (items without a dictionary)")
        if len(items) % 2:
            raise ValueError("a damaged pickle (a key without a value)")
        # To look up a tuple that contains tuples could take for ever, or end the process.
        if not all(isinstance(key, str | int) for key in items[::2]):
            raise ValueError("a damaged pickle (a key that is neither text nor a number)")
        target.update(zip(items[::2], items[1::2], strict=True))

    def append(self) -> None:
        value = self.stack.pop()
        self._into_list([value])

    def appends(self) -> None:
        self._into_list(self._since_mark())

    def _into_list(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("a damaged pickle (items without a list)")
        target.extend(items)


def _is_tuple(value: Any, at_least: int) -> bool:
    return isinstance(value, tuple) and len(value) >= at_least


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and 0 <= value < 2**48 for value in values)


def _pushing(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(make(machine))


_INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"\x95": _Machine.frame,
    b"(": _pushing(lambda m: _MARK),
    b"N": _pushing(lambda m: None),
    b"\x88": _pushing(lambda m: True),
    b"\x89": _pushing(lambda m: False),
    b"J": _pushing(lambda m: m._number("<i")),
    b"K": _pushing(lambda m: m._number("<B")),
    b"M": _pushing(lambda m: m._number("<H")),
    b"\x8a": _Machine.long,
    b"X": lambda m: m.text("<I"),
    b"\x8c": lambda m: m.text("<B"),
    b"}": _pushing(lambda m: {}),
    b"]": _pushing(lambda m: []),
    b")": _pushing(lambda m: ()),
    b"t": _pushing(lambda m: tuple(m._since_mark())),
    b"\x85": lambda m: m.tuple_of(1),
    b"\x86": lambda m: m.tuple_of(2),
    b"\x87": lambda m: m.tuple_of(3),
    b"q": lambda m: m.put("<B"),
    b"r": lambda m: m.put("<I"),
    b"\x94": _Machine.memoize,
    b"h": _pushing(lambda m: m.memo[m._number("<B")]),
    b"j": _pushing(lambda m: m.memo[m._number("<I")]),
    b"c": _Machine.name,
    b"\x93": _Machine.stacked_name,
    b"R": _Machine.reduce,
    b"Q": _Machine.storage,
    b"b": _Machine.build,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
    b"a": _Machine.append,
    b"e": _Machine.appends,
}
