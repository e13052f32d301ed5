"""Dataclasses that share their methods.

Python compiles six methods for every frozen dataclass when its module is imported, and most of the time of a
short command went into that. Here, only `__init__` is compiled; all classes have the same other methods.

Python's own methods take less than a microsecond, and these take up to two. A field that `__init__` does not
take can be set once, and only this decorator makes a frozen class of a frozen class.
"""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind=None, /, *, frozen=False, eq=True, **options):
        """Act like `dataclasses.dataclass`, as far as this package needs it."""
        if kind is None:
            return lambda kind: dataclass(kind, frozen=frozen, eq=eq, **options)
        if options.get("slots"):  # without a __dict__, whose entries tell whether a field is set
            return dataclasses.dataclass(frozen=frozen, eq=eq, **options)(kind)
        own = set(vars(kind))
        methods = {"__repr__": _show}
        if eq and "__eq__" not in own:
            methods |= {"__eq__": _is_equal, "__hash__": _hash if frozen else None}
        if frozen:
            methods |= {"__setattr__": _set_once, "__delattr__": _refuse_change}
        if not kind.__doc__:  # otherwise a description would be made of the signature
            kind.__doc__ = kind.__name__
        made = dataclasses.dataclass(repr=False, eq=False, **options)(kind)
        for name, method in methods.items():
            # Python itself gives a class with __eq__ a __hash__ of None.
            if name not in own:
                setattr(made, name, method)
        return made


@recursive_repr()
def _show(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _is_equal(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _compared(one: Any) -> tuple[Any, ...]:
    return tuple(getattr(one, f.name) for f in fields(one) if f.compare)


def _set_once(self: Any, name: str, value: object) -> None:
    """Set a field that is not set yet, as __init__ does."""
    if name in vars(self) or name not in self.__dataclass_fields__:
        _refuse_change(self, name)
    object.__setattr__(self, name, value)


def _refuse_change(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")
