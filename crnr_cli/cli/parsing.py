"""How crnr's commands differ from Typer's: their errors, the words in their help, and `crnr help COMMAND`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ParameterInfo

from crnr_cli.cli.console import say
from crnr_cli.cli.values import Choice, Value

# Typer contains Click, but where and under which names is its own affair. This module uses public names of
# Typer, and what all versions of Click have in common. A type without a public name is Any.
_Context: TypeAlias = Any
_Parameter: TypeAlias = TyperOption | TyperArgument
# The class of every mistake on a command line, with the context in which it was noticed.
_UsageError: type[Any] = next(
    (base for base in typer.BadParameter.__mro__ if base.__name__ == "UsageError"), typer.BadParameter
)


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
        value = kind(value)
    if parameter.required and parameter.value_is_missing(value):
        name = _name(parameter)
        what = "option" if name.startswith("-") else "argument"
        raise _UsageError(f"missing {what}: {name}", context)
    return parameter.callback(context, parameter, value) if parameter.callback else value


class _Option(TyperOption):
    kind: Callable[[Any], Any] | None = None  # None leaves the text or the flag as it is

    def process_value(self, ctx: _Context, value: Any) -> Any:
        return _process(self, ctx, value)

    def shell_complete(self, ctx: _Context, incomplete: str) -> list[Any]:
        if isinstance(self.kind, Value):
            return [_Completion(text) for text in self.kind.completions(incomplete)]
        return super().shell_complete(ctx, incomplete)

    def display_type_rich(self, ctx: _Context) -> str:
        """What stands for the value in the help; nothing for a flag."""
        return self.metavar or (self.kind.metavar() if isinstance(self.kind, Value) else "")

    make_metavar = display_type_rich  # its name up to Typer 0.28

    def _get_default_string(self, *, ctx: _Context, show_default_is_str: bool, default_value: Any) -> str:
        """Without parentheses around a default that is described in words."""
        if show_default_is_str:
            return str(self.show_default)
        return super()._get_default_string(ctx=ctx, show_default_is_str=False, default_value=default_value)


class _Word:
    name = ""

    def get_metavar(self, param: _Parameter, ctx: _Context) -> str:
        return ""


class _Argument(TyperArgument):
    kind: Callable[[Any], Any] | None = None  # Path; none has a choice to complete
    type = _Word()  # up to Typer 0.28, which shows it

    def process_value(self, ctx: _Context, value: Any) -> Any:
        return _process(self, ctx, value)

    def display_type_rich(self, ctx: _Context) -> str:
        return ""  # the name of an argument says enough

    def get_usage_pieces(self, ctx: _Context) -> list[str]:
        """Without braces around an argument that is required."""
        return [_name(self) if self.required else f"[{_name(self)}]"]


def _make_ours(parameter: Any, annotation: Any = None) -> Any:
    """Typer has no way to choose the class of a parameter."""
    if type(parameter) is TyperOption:
        parameter.__class__ = _Option
    elif type(parameter) is TyperArgument:
        parameter.__class__ = _Argument
        vars(parameter).pop("type", None)
    if annotation is not None and isinstance(parameter, _Option | _Argument):
        parameter.kind = _kind(annotation)
    return parameter


def _kind(annotation: Any) -> Callable[[Any], Any] | None:
    """The declared parser, or Path: of Annotated[list[Path] | None, Option()], for example."""
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
            return super().parse_args(ctx, args)
        except _UsageError as e:
            e.ctx = e.ctx or ctx  # for the hint at --help
            raise

    def format_help(self, ctx: _Context, formatter: Any) -> None:
        for parameter in self.params:
            if isinstance(parameter, _Option) and isinstance(parameter.kind, Choice):
                names = ", ".join(parameter.kind.names)
                parameter.help = (parameter.help or "").replace("{choices}", names)
        super().format_help(ctx, formatter)


class Commands(TyperGroup):
    """All commands: prints every error as one line, and makes `crnr help build` mean `crnr build --help`."""

    def get_params(self, ctx: _Context) -> list[Any]:
        return [_make_ours(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: _Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:3], "--help"]
        if not args and not ctx.resilient_parsing:
            help = ctx.get_help()  # with Rich, it is printed now
            typer.echo(help, nl=bool(help))
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: _Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = get_close_matches(args[0], list(self.commands), n=1)
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


def _message(error: Any) -> str:
    """What is wrong, beginning with the name of the option or argument."""
    if parameter := getattr(error, "param", None):  # its value is wrong
        return f"{_name(parameter)}: {error.message or 'missing'}"
    if name := getattr(error, "option_name", None):
        if hasattr(error, "possibilities"):
            near = get_close_matches(name, error.possibilities or [], n=1, cutoff=0.7)
            return f"no such option: {name}" + (f"; did you mean {near[0]}?" if near else "")
        return f"{name} {'takes no value' if 'does not take' in error.message else 'needs a value'}"
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message, re.DOTALL):
        return f"unexpected argument: {extra[1]}"
    message: str = error.message
    return message[:1].lower() + message[1:]


def _name(parameter: _Parameter) -> str:
    """The long name of an option, or the name of an argument as the help shows it."""
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name
    return max(parameter.opts, key=len)
