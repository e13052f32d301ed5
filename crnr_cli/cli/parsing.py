"""How crnr's commands differ from Typer's: their errors, the words in their help, and `crnr help COMMAND`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any, get_args

from typer._click.core import Command as ClickCommand
from typer._click.core import Context, Parameter
from typer._click.exceptions import (
    BadOptionUsage,
    BadParameter,
    ClickException,
    MissingParameter,
    NoArgsIsHelpError,
    NoSuchOption,
    UsageError,
)
from typer._click.formatting import HelpFormatter
from typer._click.shell_completion import CompletionItem
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ParameterInfo

from crnr_cli.cli.console import say
from crnr_cli.cli.values import Choice, Value


class _Parameter(Parameter):
    """A parameter whose values are ours to convert, complete and show.

    Typer would use Pydantic from version 0.29 on, and loading that adds half to the time of a short command.
    Up to 0.28 it had types of parameters instead.
    """

    kind: Callable[[Any], Any] | None = None  # None leaves the text or the flag as it is

    def process_value(self, ctx: Context, value: Any) -> Any:
        if self.multiple or self.nargs == -1:
            value = tuple(self.kind(each) if self.kind else each for each in value or ())
        elif value is not None and self.kind:
            value = self.kind(value)
        if self.required and self.value_is_missing(value):
            raise MissingParameter(ctx=ctx, param=self)  # type: ignore[arg-type]
        return self.callback(ctx, self, value) if self.callback else value

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        if isinstance(self.kind, Value):
            return [CompletionItem(text) for text in self.kind.completions(incomplete)]
        return super().shell_complete(ctx, incomplete)  # type: ignore[safe-super]


class _Option(_Parameter, TyperOption):
    def display_type_rich(self, ctx: Context) -> str:
        """What stands for the value in the help; nothing for a flag."""
        return self.metavar or (self.kind.metavar() if isinstance(self.kind, Value) else "")

    make_metavar = display_type_rich  # its name up to Typer 0.28

    def _get_default_string(self, *, ctx: Context, show_default_is_str: bool, default_value: Any) -> str:
        """Without parentheses around a default that is described in words."""
        if show_default_is_str:
            return str(self.show_default)
        return super()._get_default_string(ctx=ctx, show_default_is_str=False, default_value=default_value)


class _Word:
    name = ""

    def get_metavar(self, param: Parameter, ctx: Context) -> str:
        return ""


class _Argument(_Parameter, TyperArgument):
    type = _Word()  # up to Typer 0.28, which shows it

    def display_type_rich(self, ctx: Context) -> str:
        return ""  # the name of an argument says enough

    def get_usage_pieces(self, ctx: Context) -> list[str]:
        """Without braces around an argument that is required."""
        return [_name(self) if self.required else f"[{_name(self)}]"]


def _make_ours(parameter: Parameter, annotation: Any = None) -> Parameter:
    """Typer has no way to choose the class of a parameter."""
    if type(parameter) is TyperOption:
        parameter.__class__ = _Option
    elif type(parameter) is TyperArgument:
        parameter.__class__ = _Argument
        vars(parameter).pop("type", None)
    if annotation is not None and isinstance(parameter, _Parameter):
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


def check_choices(context: Context) -> None:
    """Check the choices of a command that could not be checked while its line was parsed."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name)
        if not isinstance(parameter, _Option) or not isinstance(parameter.kind, Choice) or value is None:
            continue
        if parameter.kind.is_checked_later:
            try:
                parameter.kind.check(value)
            except BadParameter as e:
                e.ctx, e.param = context, parameter
                raise


class Command(TyperCommand):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = signature(self.callback).parameters if self.callback else {}
        for parameter in self.params:
            _make_ours(parameter, declared[parameter.name].annotation)

    def get_params(self, ctx: Context) -> list[Parameter]:
        return [_make_ours(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as e:
            e.ctx = e.ctx or ctx  # for the hint at --help
            raise

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        for parameter in self.params:
            if isinstance(parameter, _Option) and isinstance(parameter.kind, Choice):
                names = ", ".join(parameter.kind.names)
                parameter.help = (parameter.help or "").replace("{choices}", names)
        super().format_help(ctx, formatter)


class Commands(TyperGroup):
    """All commands: prints every error as one line, and makes `crnr help build` mean `crnr build --help`."""

    def get_params(self, ctx: Context) -> list[Parameter]:
        return [_make_ours(parameter) for parameter in super().get_params(ctx)]

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:3], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, ClickCommand | None, list[str]]:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            near = get_close_matches(args[0], list(self.commands), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"no such command: {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs))
        except NoArgsIsHelpError as e:  # the help has been printed
            sys.exit(e.exit_code)
        except ClickException as e:
            context = getattr(e, "ctx", None)
            hint = f" (see `{context.command_path} --help`)" if context else ""
            say(f"error: {_message(e)}{hint}", style="red")
            sys.exit(e.exit_code)


def _message(error: ClickException) -> str:
    """What is wrong, beginning with the name of the option or argument."""
    if isinstance(error, MissingParameter) and error.param:
        name = _name(error.param)
        return f"missing {'option' if name.startswith('-') else 'argument'}: {name}"
    if isinstance(error, BadParameter) and error.param:
        return f"{_name(error.param)}: {error.message}"
    if isinstance(error, NoSuchOption):
        near = get_close_matches(error.option_name, error.possibilities or [], n=1, cutoff=0.7)
        return f"no such option: {error.option_name}" + (f"; did you mean {near[0]}?" if near else "")
    if isinstance(error, BadOptionUsage):
        takes = "takes no value" if "does not take" in error.message else "needs a value"
        return f"{error.option_name} {takes}"
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message, re.DOTALL):
        return f"unexpected argument: {extra[1]}"
    return error.message[:1].lower() + error.message[1:]


def _name(parameter: Parameter) -> str:
    """The long name of an option, or the name of an argument as the help shows it."""
    if isinstance(parameter, TyperArgument):
        return parameter.metavar or parameter.name
    return max(parameter.opts, key=len)
