"""The commands of crnr and their options, as man pages and completions show them.

They come from the parameters of the commands, not from the help: that depends on the version of Typer and on
the width of the terminal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

import typer

from crnr_cli.cli import PANELS, make_application
from crnr_cli.cli.parsing import Choice, Choices, ExtractorName, Value

# What a shell completes; asked is what only crnr knows, such as the names in a gallery.
Kind = Literal["nothing", "names", "file", "folder", "asked"]
# Typer's own, in words of ours: they differ between its versions.
_HELP = {
    "--help": "Show the help.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show the completion script for the current shell.",
}
_FILES = ("FILE", "FILE.csv", "MODEL.onnx", "SOURCE", "LIST")


@dataclass(frozen=True)
class Option:
    """An option or, without names, an argument."""

    names: tuple[str, ...]
    metavar: str  # empty if it takes no value
    help: str
    panel: str = ""
    default: str = ""
    variable: str = ""  # of the environment
    kind: Kind = "nothing"
    choices: tuple[str, ...] = ()
    is_repeated: bool = False
    is_required: bool = False

    @property
    def summary(self) -> str:
        return _first_sentence(self.help)


@dataclass(frozen=True)
class Command:
    path: str  # such as "crnr model get"
    about: str
    example: str
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]
    panel: str = ""
    below: dict[str, Command] = field(default_factory=dict)  # its commands, if it is a group

    @property
    def name(self) -> str:
        """Without the program: "model get"."""
        return self.path.partition(" ")[2]

    @property
    def summary(self) -> str:
        return _first_sentence(self.about)

    @property
    def page(self) -> str:
        return self.path.replace(" ", "-")

    def all(self) -> list[Command]:
        """This command, and all below it."""
        return [self, *(found for command in self.below.values() for found in command.all())]


def read_commands() -> Command:
    """The program, with all its commands."""
    return _command(typer.main.get_command(make_application()), "crnr")


def _first_sentence(text: str) -> str:
    """Without its full stop."""
    return re.split(r"\.(?:\s|$)", text)[0].replace("`", "")


def _command(found: Any, path: str) -> Command:
    shown = [parameter for parameter in found.params if not parameter.hidden]
    parameters = [_option(parameter) for parameter in shown]
    parameters.append(Option(("-h", "--help"), "", _HELP["--help"]))
    order = [name.split(" ")[0] for panel in PANELS.values() for name in panel]
    below = getattr(found, "commands", {})
    if path == "crnr":
        below = {name: below[name] for name in dict.fromkeys(order)}
    return Command(
        path,
        found.help,
        (found.epilog or "").removeprefix("Example: "),
        tuple(parameter for parameter in parameters if not parameter.names),
        tuple(parameter for parameter in parameters if parameter.names),
        next((panel for panel, names in PANELS.items() if _is_in(path, names)), ""),
        {name: _command(command, f"{path} {name}") for name, command in below.items()},
    )


def _is_in(path: str, names: dict[str, str]) -> bool:
    own = path.partition(" ")[2]
    return bool(own) and any(f"{name} ".startswith(f"{own} ") for name in names)


def _option(parameter: Any) -> Option:
    is_option = parameter.param_type_name == "option"
    names = tuple(sorted(parameter.opts, key=len)) if is_option else ()
    metavar = "" if is_option and parameter.is_flag else _metavar(parameter)
    help = next((_HELP[name] for name in names if name in _HELP), parameter.help or "")
    kind = _kind(parameter, metavar)
    value = _value(parameter)
    choices = tuple(value.names) if isinstance(value, Choice) else ()
    return Option(
        names,
        metavar,
        help.replace("{choices}", ", ".join(choices)),
        parameter.rich_help_panel or "",
        _default(parameter) if metavar else "",
        parameter.envvar or "",
        kind,
        choices,
        parameter.multiple if is_option else parameter.nargs < 0,
        parameter.required,
    )


def _value(parameter: Any) -> Value | None:
    """What its value may be, if crnr has a type for that."""
    kind = getattr(parameter, "kind", None)
    return kind if isinstance(kind, Value) else None


def _metavar(parameter: Any) -> str:
    if parameter.metavar:
        return str(parameter.metavar)
    if value := _value(parameter):
        return value.metavar().strip("[]")
    raise ValueError(f"{parameter.name} has no metavar")


def _default(parameter: Any) -> str:
    """As the help says it."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    default = parameter.default
    if default is None or default == () or not parameter.show_default:
        return ""
    return str(default.as_posix() if isinstance(default, PurePath) else default)


def _kind(parameter: Any, metavar: str) -> Kind:
    if not metavar:
        return "nothing"
    value = _value(parameter)
    if parameter._custom_shell_complete or isinstance(value, Choices | ExtractorName):
        return "asked"
    if isinstance(value, Choice):
        return "names"
    if metavar in ("DIR", "FOLDER"):
        return "folder"
    return "file" if parameter.param_type_name == "argument" or metavar in _FILES else "nothing"
