"""The parameters of crnr, as far as they differ from Typer's parameters."""

from __future__ import annotations

import itertools
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ParameterInfo

from crnr_cli.cli.console import say
from crnr_cli.wording import not_one_of

_LONGEST_METAVAR = 13  # characters: longer lists of names are part of the help text
_LARGEST = 10**12
_LARGEST_WHOLE = 2**63 - 1
_MOST_SHOWN = 3  # unexpected arguments
_MOST_DIGITS = 30  # of a whole number
# Typer contains Click, but where and under which names is its own affair. This module uses public names of
# Typer, and what all versions of Click have in common. A type without a public name is Any.
_Context: TypeAlias = Any
_Parameter: TypeAlias = TyperOption | TyperArgument
# The class of every mistake on a command line, with the context in which it was noticed.
_UsageError: type[Any] = next(
    (base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError"), typer.BadParameter
)


class Value(ABC):
    """A kind of value that an option takes. For Typer, it is the option's `parser`."""

    __name__ = "value"  # Click reads it of every parser, as if that were a function

    @abstractmethod
    def __call__(self, value: Any) -> Any:
        """Return the value of a text or of a default. Raises BadParameter if it is wrong."""

    def metavar(self) -> str:
        """Return the metavar of options that declare no metavar of their own."""
        return ""

    def completions(self, incomplete: str) -> list[str]:
        """Return the words that a shell offers; without any, it offers files."""
        return []


class Number(Value):
    """A finite number within limits."""

    name = "number"

    def __init__(self, *, above: float | None = None, at_least: float = 0, at_most: float = _LARGEST) -> None:
        """Allow numbers from `at_least` or, if `above` is given, numbers above `above`."""
        self.above, self.at_least, self.at_most = above, at_least, at_most

    def __call__(self, value: Any) -> float:
        try:
            number = self.parse(str(value))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self._is_within(number):
            raise typer.BadParameter(self._describe_wrong(str(value), number))
        return number

    def _describe_wrong(self, text: str, number: float) -> str:
        """Return which values are allowed; limits that no user would reach are left out."""
        if not math.isfinite(number):
            return f"must be {self.description}, not {text!r}"
        near = ""
        if self.at_most == 1 and 2 <= number <= 100 and self._is_within(number / 100):
            near = f"; did you mean {number / 100:g}?"
        if number > self.at_most and self._is_unbounded:
            return f"must be at most {self.at_most:g}, not {text}"
        return f"must be {self._limits}, not {text}{near}"

    def parse(self, text: str) -> float:
        return float(text)

    def _is_within(self, number: float) -> bool:
        return (
            number >= self.at_least if self.above is None else number > self.above
        ) and number <= self.at_most

    @property
    def description(self) -> str:
        """Such as "a number from 0 to 1"."""
        return f"a {self.name} {'of ' if self._limits.endswith('or more') else ''}{self._limits}"

    @property
    def _is_unbounded(self) -> bool:
        """Whether the largest value is far above all that make sense."""
        return self.at_most in (_LARGEST, _LARGEST_WHOLE)

    @property
    def _limits(self) -> str:
        if self.above is not None:
            return f"above {self.above}" + ("" if self._is_unbounded else f" and at most {self.at_most}")
        if self._is_unbounded:
            return f"{self.at_least} or more"
        return f"from {self.at_least} to {self.at_most}"


class Whole(Number):
    """A whole number within limits."""

    name = "whole number"

    def __init__(self, at_least: int = 1, at_most: int = _LARGEST_WHOLE) -> None:
        super().__init__(at_least=at_least, at_most=at_most)

    def parse(self, text: str) -> int:
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
        """Accept these names, and old names, which the help does not show."""
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
        shown = "" if self.is_checked_later else "|".join(self.names)
        return shown if 0 < len(shown) <= _LONGEST_METAVAR else "NAME"

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


class OptionalText(Value):
    """A text of a certain form; the option alone stands for one such text."""

    def __init__(self, alone: str, form: str) -> None:
        self.alone, self._form = alone, form

    def __call__(self, value: Any) -> str:
        return str(value)

    def fits(self, words: Sequence[str]) -> bool:
        """Return whether the first of the next words is a value, not an argument."""
        return bool(words) and re.fullmatch(self._form, words[0]) is not None


class HiddenNames:
    """Marks an option with more names, such as old ones, that work, but that no help or completion shows."""

    def __init__(self, *names: str) -> None:
        """Set the names of the options, without dashes."""
        self.options = [f"--{name}" if len(name) > 1 else f"-{name}" for name in names]


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


class _Completion(NamedTuple):
    """A word that a shell offers, with all that Typer reads of it."""

    value: str
    type: str = "plain"
    help: str | None = None


def _process(parameter: _Option | _Argument, context: _Context, value: Any) -> Any:
    """Return the value of a parameter, which is ours to convert.

    Typer would use Pydantic from version 0.29 on, and loading that adds half to the time of a short command.
    Up to 0.28 it had types of parameters instead.
    """
    kind = parameter.kind
    if parameter.multiple or parameter.nargs == -1:
        value = tuple(kind(each) if kind else each for each in value or ())
    elif value is not None and kind:
        if value == "" and (kind is Path or isinstance(kind, ExtractorName)):  # it would be the folder .
            raise _UsageError(f"{_name(parameter)} needs a value", context)
        value = kind(value)
    if parameter.required and parameter.value_is_missing(value):
        name = _name(parameter)
        what = "option" if name.startswith("-") else "argument"
        order = [each.metavar for each in context.command.params if is_argument(each) and each.required]
        hint = f"; the order is {' '.join(order)}" if what == "argument" and len(order) > 1 else ""
        raise _UsageError(f"missing {what}: {name}{hint}", context)
    return parameter.callback(context, parameter, value) if parameter.callback else value


_OFF = ("", "0", "false", "no", "off")  # values of environment variables


class _Option(TyperOption):
    kind: Callable[[Any], Any] | None = None  # None leaves the text or the flag as it is
    hidden_names: Sequence[str] = ()

    def add_to_parser(self, parser: Any, ctx: Any) -> None:
        """Accept hidden names too. Click lets the parser know the names in `opts`, which the help shows."""
        shown = self.opts
        self.opts = [*shown, *self.hidden_names]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown

    def process_value(self, ctx: _Context, value: Any) -> Any:
        if self.is_flag and isinstance(value, str):  # of an environment variable
            value = value.strip().lower() not in _OFF
        return _process(self, ctx, value)

    def shell_complete(self, ctx: _Context, incomplete: str) -> list[Any]:
        if isinstance(self.kind, Value):
            return [_Completion(text) for text in self.kind.completions(incomplete)]
        return super().shell_complete(ctx, incomplete)


class _Argument(TyperArgument):
    kind: Callable[[Any], Any] | None = None  # Path; none has a choice to complete

    def process_value(self, ctx: _Context, value: Any) -> Any:
        return _process(self, ctx, value)


def _make_ours(parameter: Any, annotation: Any = None) -> Any:
    """Change the class of a parameter, which Typer does not let one choose."""
    if type(parameter) is TyperOption:
        parameter.__class__ = _Option
    elif type(parameter) is TyperArgument:
        parameter.__class__ = _Argument
    if annotation is not None and isinstance(parameter, _Option | _Argument):
        parameter.kind = _kind(annotation)
    if isinstance(parameter, _Option):
        marks = (part for part in get_args(annotation) if isinstance(part, HiddenNames))
        parameter.hidden_names = [name for mark in marks for name in mark.options] or parameter.hidden_names
    return parameter


def _kind(annotation: Any) -> Callable[[Any], Any] | None:
    """Return the declared parser, or Path for annotations such as Annotated[list[Path] | None, Option()]."""
    for part in get_args(annotation):
        if isinstance(part, ParameterInfo) and part.parser:
            return part.parser
    return Path if _mentions_path(annotation) else None


def _mentions_path(annotation: Any) -> bool:
    return annotation is Path or any(map(_mentions_path, get_args(annotation)))


def check_choices(context: typer.Context) -> None:
    """Check the choices of a command that could not be checked while its line was parsed."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if not isinstance(parameter, _Option) or not isinstance(parameter.kind, Choice) or value is None:
            continue
        if parameter.kind.is_checked_later:
            try:
                parameter.kind.check(value)
            except typer.BadParameter as e:
                e.ctx, e.param = context, parameter
                raise


class Command(TyperCommand):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = signature(self.callback).parameters if self.callback else {}
        for parameter in self.params:
            _make_ours(parameter, declared[parameter.name].annotation)

    def get_params(self, ctx: _Context) -> list[Any]:
        return [_make_ours(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: _Context, args: list[str]) -> list[str]:
        try:
            self._refuse_single_dashes(args)
            return super().parse_args(ctx, self._fill_in_values(args))
        except _UsageError as e:
            e.ctx = e.ctx or ctx  # for the hint at --help
            raise

    def _refuse_single_dashes(self, args: Sequence[str]) -> None:
        """Refuse a long option with one dash, such as -output, which would mean -o with the rest as value."""
        options = [parameter for parameter in self.params if isinstance(parameter, _Option)]
        names = {name for one in options for name in (*one.opts, *one.hidden_names) if name.startswith("--")}
        for word in itertools.takewhile(lambda word: word != "--", args):
            name = f"-{word.partition('=')[0]}"
            if word not in names and name in names:
                raise _UsageError(f"no such option: {name[1:]}; did you mean {name}?")

    def _fill_in_values(self, args: Sequence[str]) -> list[str]:
        """Give options that stand alone, but need no value, the one that they then have."""
        kinds = {
            name: parameter.kind
            for parameter in self.params
            if isinstance(parameter, _Option) and isinstance(parameter.kind, OptionalText)
            for name in parameter.opts
        }
        end = args.index("--") if "--" in args else len(args)
        return [
            f"{word}={kinds[word].alone}"
            if i < end and word in kinds and not kinds[word].fits(args[i + 1 : i + 2])
            else word
            for i, word in enumerate(args)
        ]

    def format_help(self, ctx: _Context, formatter: Any) -> None:
        _write_help(ctx, formatter)


# Other programs' words for these commands.
_OTHER_WORDS = {
    **{"fit": "build", "train": "build", "label": "classify", "predict": "classify"},
    **{"score": "evaluate", "test": "evaluate", "list": "info", "show": "info", "version": "--version"},
}


class Commands(TyperGroup):
    """All commands: prints every error as one line, and makes `crnr help build` mean `crnr build --help`."""

    def format_help(self, ctx: _Context, formatter: Any) -> None:
        _write_help(ctx, formatter)

    def get_params(self, ctx: _Context) -> list[Any]:
        return [_make_ours(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: _Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: _Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = [_OTHER_WORDS[args[0]]] if args[0] in _OTHER_WORDS and ctx.parent is None else []
            near = near or get_close_matches(args[0], list(self.commands), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _UsageError(f"no such command: {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs))
        except _UsageError as e:
            hint = f" (see `{e.ctx.command_path} --help`)" if e.ctx else ""
            say(f"error: {_message(e)}{hint}", style="red")
            sys.exit(e.exit_code)


def _write_help(context: _Context, formatter: Any) -> None:
    from crnr_cli.cli.help import format_help

    formatter.write(f"{format_help(context)}\n")


def _message(error: Any) -> str:
    """Return the problem, after the name of the option or argument."""
    if parameter := getattr(error, "param", None):  # its value is wrong
        wrong = error.message or "missing"
        return f"{_name(parameter)}{' ' if wrong.startswith('must be ') else ': '}{wrong}"
    if name := getattr(error, "option_name", None):
        if hasattr(error, "possibilities"):
            near = get_close_matches(name, error.possibilities or [], n=1, cutoff=0.7)
            shown = [_shown_name(each, error.ctx) for each in near]
            return f"no such option: {name}" + (f"; did you mean {shown[0]}?" if near else "")
        return f"{name} {'takes no value' if 'does not take' in error.message else 'needs a value'}"
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message, re.DOTALL):
        words = extra[1].split(" ", _MOST_SHOWN)
        many = "...; if a shell expanded a pattern, put it in quotes" if len(words) > _MOST_SHOWN else ""
        return f"unexpected argument: {' '.join([*words[:_MOST_SHOWN], *filter(None, [many])])}"
    message: str = error.message
    return message[:1].lower() + message[1:]


def _shown_name(name: str, context: _Context) -> str:
    """Return the name of an option in the help, if this one is hidden."""
    for parameter in context.command.params if context else ():
        if name in getattr(parameter, "hidden_names", ()):
            return _name(parameter)
    return name


def is_argument(parameter: Any) -> bool:
    """Return whether a parameter has no name on the command line."""
    return isinstance(parameter, TyperArgument)


def name_of(context: typer.Context, name: str) -> str:
    """Return how the command line calls a parameter with this name in Python."""
    parameters: list[Any] = context.command.params
    return next(_name(parameter) for parameter in parameters if parameter.name == name)


def _name(parameter: _Parameter) -> str:
    """Return the long name of an option, or the name of an argument as the help shows it."""
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name
    return max(parameter.opts, key=len)
