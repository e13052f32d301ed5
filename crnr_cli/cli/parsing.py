"""How crnr's commands differ from Typer's: their errors, the words in their help, and `crnr help COMMAND`."""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches
from typing import Any

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
from typer._click.types import StringParamType
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from crnr_cli.cli.console import say
from crnr_cli.cli.values import Choice


class _Option(TyperOption):
    def _get_default_string(self, *, ctx: Context, show_default_is_str: bool, default_value: Any) -> str:
        """Without parentheses around a default that is described in words."""
        if show_default_is_str:
            return str(self.show_default)
        return super()._get_default_string(ctx=ctx, show_default_is_str=False, default_value=default_value)


class _Word(StringParamType):
    def get_metavar(self, param: Parameter, ctx: Context) -> str:
        return ""  # the name of an argument says enough


class _Argument(TyperArgument):
    def get_usage_pieces(self, ctx: Context) -> list[str]:
        """Without braces around an argument that is required."""
        name = self.human_readable_name
        return [name if self.required else f"[{name}]"]


class Command(TyperCommand):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for parameter in self.params:  # Typer has no way to choose their classes
            if type(parameter) is TyperOption:
                parameter.__class__ = _Option
            elif type(parameter) is TyperArgument:
                parameter.__class__ = _Argument
                parameter.type = _Word()

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as e:
            e.ctx = e.ctx or ctx  # for the hint at --help
            raise

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        for parameter in self.params:
            if isinstance(parameter, TyperOption) and isinstance(parameter.type, Choice):
                names = ", ".join(parameter.type.names)
                parameter.help = (parameter.help or "").replace("{choices}", names)
        super().format_help(ctx, formatter)


class Commands(TyperGroup):
    """All commands: prints every error as one line, and makes `crnr help build` mean `crnr build --help`."""

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
        return parameter.human_readable_name
    return max(parameter.opts, key=len)
