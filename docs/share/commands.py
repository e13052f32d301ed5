"""The commands of crnr and their options, as man pages and completions show them.

They come from the parameters of the commands, not from the help: that depends on the version of Typer and on
the width of the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import typer

from crnr_cli.cli import make_application
from crnr_cli.cli.help import PANELS, SCREENS, default_of, group_options, metavar_of, text_of
from crnr_cli.cli.parsing import Choice, Choices, ExtractorName, Value, is_argument

# What a shell completes; asked is what only crnr knows, such as the names in a gallery.
Kind = Literal["nothing", "names", "file", "folder", "asked"]
_FILES = ("FILE", "FILE.csv", "MODEL.onnx", "SOURCE")


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
    examples: tuple[str, ...]
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
    panels = group_options(path.partition(" ")[2], found.params)
    order = [name.split(" ")[0] for panel in PANELS.values() for name in panel]
    below = getattr(found, "commands", {})
    if path == "crnr":
        below = {name: below[name] for name in dict.fromkeys(order)}
    return Command(
        path,
        found.help,
        SCREENS[path.partition(" ")[2]].examples,
        tuple(_option(parameter) for parameter in found.params if is_argument(parameter)),
        tuple(_option(parameter, panel) for panel, options in panels.items() for parameter in options),
        next((panel for panel, names in PANELS.items() if _is_in(path, names)), ""),
        {name: _command(command, f"{path} {name}") for name, command in below.items()},
    )


def _is_in(path: str, names: Iterable[str]) -> bool:
    own = path.partition(" ")[2]
    return bool(own) and any(f"{name} ".startswith(f"{own} ") for name in names)


def _option(parameter: Any, panel: str = "") -> Option:
    is_option = not is_argument(parameter)
    names = tuple(sorted(parameter.opts, key=len)) if is_option else ()
    metavar = metavar_of(parameter)
    kind = _kind(parameter, metavar)
    value = _value(parameter)
    choices = tuple(value.names) if isinstance(value, Choice) else ()
    return Option(
        names,
        metavar,
        text_of(parameter),
        panel,
        default_of(parameter),
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
    return "file" if is_argument(parameter) or metavar in _FILES else "nothing"
