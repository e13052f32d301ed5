"""The parts that all commands share, and their option groups as Typer's parameters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from crnr_cli.cli.boundary import boundary
from crnr_cli.cli.console import shown_lines
from crnr_cli.cli.parsing import check_choices, name_of
from crnr_cli.errors import UsageError
from crnr_cli.records import dataclass
from crnr_cli.system import spares
from crnr_cli.system.cores import use_cores
from crnr_cli.system.files import is_stdout
from crnr_cli.system.outputs import DeclaredOutput, planned


@dataclass(frozen=True)
class Written:
    """Marks a parameter as the name of a file that the command writes: it is checked before any work.

    A file that is written without this mark is a bug, and ends the command.
    """

    is_gallery: bool = False


def _show_everything(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from crnr_cli.cli.help import format_help

        typer.echo(format_help(context, everything=True))
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", is_eager=True, callback=_show_everything, help="Show all options."),
]


_HELP_ALL = Parameter("help_all", Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)


def make_command(
    function: Callable[..., None] | None = None,
    *,
    side_by_side: bool | str = False,
    more_arguments: bool = False,
) -> Callable[..., Any]:
    """Make a command of a function: a parameter whose type is a group becomes the options of that group.

    The command also turns errors into one line, checks its outputs, and divides the cores before NumPy is
    loaded: one for each of several pieces of work `side_by_side`, or all of them for each matrix product.
    With the name of a flag, pieces are done side by side if the flag is given. With `more_arguments`, the
    command finds unexpected arguments in `context.args`, to refuse them itself.
    """
    if function is None:
        return functools.partial(make_command, side_by_side=side_by_side, more_arguments=more_arguments)
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    plain = [
        parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, parameter in signature(function).parameters.items()
        if name not in groups and name != "context"
    ]
    options = [*plain, *(parameter for kind in groups.values() for parameter in _parameters(kind)), _HELP_ALL]
    written = {
        option.name: mark
        for option in options
        for mark in get_args(option.annotation)[1:]
        if isinstance(mark, Written)
    }

    def run(context: typer.Context, **given: Any) -> None:
        del given["help_all"]
        with boundary(quiet=given.get("quiet", False)):
            apart = given[side_by_side] if isinstance(side_by_side, str) else side_by_side
            use_cores(given.get("jobs"), side_by_side=apart)
            check_choices(context)
            if given.get("quiet") and given.get("verbose"):
                raise UsageError("--quiet and --verbose contradict each other; give one of them")
            outputs = [
                DeclaredOutput(Path(given[name]), mark.is_gallery)
                for name, mark in written.items()
                if given[name] is not None and not _means_stdout(given[name])
            ]
            # Other paths are inputs; those that are text are known when they are opened.
            inputs = [
                value for name, value in given.items() if name not in written and isinstance(value, Path)
            ]
            with planned(outputs, inputs), spares.kept(), shown_lines(verbose=given.get("verbose")):
                parts = {
                    name: kind(**{f.name: given.pop(f.name) for f in fields(kind)})
                    for name, kind in groups.items()
                }
                if "context" in hints:
                    given["context"] = context
                function(**given, **parts)

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)  # given by Typer
    run.__signature__ = Signature([context, *options])  # type: ignore[attr-defined]
    run.__doc__, run.__name__ = function.__doc__, function.__name__
    run.context_settings = {"allow_extra_args": more_arguments}  # type: ignore[attr-defined]
    return run


def _means_stdout(name: str | Path) -> bool:
    """Return whether the command prints this output: only the text "-" means stdout, Path("-") is a file."""
    return isinstance(name, str) and (name == "-" or is_stdout(Path(name)))


def parameter_names(*groups: type) -> list[str]:
    """Return the names of all parameters of these groups."""
    return [f.name for group in groups for f in fields(group)]


def given_values(context: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """Return the parameters that were given on the command line: their values by their names in the help."""
    return {
        name_of(context, name): context.params[name]
        for name in names
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }


@functools.cache
def _parameters(group: type) -> list[Parameter]:
    """Return the fields of a group as Typer's parameters; cached, because many commands share a group."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(group)
    ]
