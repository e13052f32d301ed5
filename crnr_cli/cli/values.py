"""The kinds of values that options take: numbers within limits, and names of a fixed set.

A wrong value is refused while the command line is parsed, before any work.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from crnr_cli.wording import not_one_of

_LONGEST_METAVAR = 18  # characters: longer lists of names are part of the help text
_LARGEST = 10**12
_LARGEST_WHOLE = 2**63 - 1
_MOST_DIGITS = 30  # of a whole number


class Value(ABC):
    """What the value of an option may be. For Typer, it is the option's `parser`."""

    __name__ = "value"  # Click reads it of every parser, as if that were a function

    @abstractmethod
    def __call__(self, value: Any) -> Any:
        """The value of a text, or of a default. A wrong one raises BadParameter."""

    def metavar(self) -> str:
        """How the help shows the value, if the option does not say it."""
        return ""

    def completions(self, incomplete: str) -> list[str]:
        """What a shell offers; if nothing, it offers files."""
        return []


class Number(Value):
    """A finite number within limits."""

    name = "number"

    def __init__(self, *, above: float | None = None, at_least: float = 0, at_most: float = _LARGEST) -> None:
        """From `at_least` or, if `above` is given, above that."""
        self.above, self.at_least, self.at_most = above, at_least, at_most

    def __call__(self, value: Any) -> float:
        try:
            number = self.parsed(str(value))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self._is_within(number):
            raise typer.BadParameter(f"{str(value)!r} is not {self.description}")
        return number

    def parsed(self, text: str) -> float:
        return float(text)

    def _is_within(self, number: float) -> bool:
        return (
            number >= self.at_least if self.above is None else number > self.above
        ) and number <= self.at_most

    @property
    def description(self) -> str:
        """Such as "a number from 0 to 1"."""
        if self.above is not None:
            return f"a {self.name} above {self.above} and at most {self.at_most}"
        return f"a {self.name} from {self.at_least} to {self.at_most}"


class Whole(Number):
    """A whole number within limits."""

    name = "whole number"

    def __init__(self, at_least: int = 1, at_most: int = _LARGEST_WHOLE) -> None:
        super().__init__(at_least=at_least, at_most=at_most)

    def parsed(self, text: str) -> int:
        if len(text) > _MOST_DIGITS:
            raise ValueError("too long")
        return int(text)


class Numbers(Value):
    """Finite numbers separated by commas."""

    def __call__(self, value: Any) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = (math.nan,)
        if len(numbers) not in (1, 3) or not all(abs(number) <= _LARGEST for number in numbers):
            message = f"{value!r} is neither a number nor three numbers separated by commas"
            raise typer.BadParameter(message)
        return numbers


class Choice(Value):
    """A name of a fixed set, shown in the help and completed by the shell.

    Names given by a function are not looked up while the command line is parsed, as their registry may load
    NumPy, which must not happen before the cores are divided: the command then calls `check`.
    """

    def __init__(
        self,
        names: Iterable[str] | Callable[[], Iterable[str]],
        old_names: Mapping[str, str] | None = None,
    ) -> None:
        """Old names are accepted, but not shown."""
        self._names = names
        self._old_names = old_names or {}
        self.is_checked_later = callable(names)

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._names() if callable(self._names) else self._names)

    def __call__(self, value: Any) -> str:
        text = self._old_names.get(str(value), str(value))
        if not self.is_checked_later:
            self.check(text)
        return text

    def check(self, value: str) -> None:
        for name in self.parts(value):
            if name not in self.names:
                raise typer.BadParameter(not_one_of(name, self.names))

    def parts(self, value: str) -> list[str]:
        return [value]

    def metavar(self) -> str:
        shown = f"[{'|'.join(self.names)}]"
        return shown if len(shown) <= _LONGEST_METAVAR else "NAME"

    def completions(self, incomplete: str) -> list[str]:
        return [name for name in self.names if name.startswith(incomplete)]


class Choices(Choice):
    """Several names of a fixed set, separated by commas."""

    def check(self, value: str) -> None:
        if not all(self.parts(value)):
            message = f"{value!r} has an empty name; give names separated by commas"
            raise typer.BadParameter(message)
        super().check(value)

    def parts(self, value: str) -> list[str]:
        return [part.strip() for part in value.split(",")]

    def metavar(self) -> str:
        return "NAME,..."

    def completions(self, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = self.parts(before)
        return [
            f"{before}{comma}{name}" for name in self.names if name.startswith(last) and name not in given
        ]


def method_names() -> Iterable[str]:
    from crnr_cli.methods import METHODS

    return METHODS


METHOD = Choice(method_names)
METHOD_LIST = Choices(method_names)


class ExtractorName(Value):
    """The name of an extractor that needs no file, or the name or path of a network."""

    names = ("gradients", "pixels")

    def __call__(self, value: Any) -> str | Path:
        return value if value in self.names or isinstance(value, Path) else Path(value)

    def completions(self, incomplete: str) -> list[str]:
        from crnr_cli.models.catalog import MODELS

        return [name for name in (*self.names, *MODELS) if name.startswith(incomplete)]
