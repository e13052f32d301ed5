"""The reference page of all commands: docs/reference/commands.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from commands import Command, Option
from man_pages import ENVIRONMENT

_INTRODUCTION = """\
<!-- Made by docs/share/make.py from the commands of crnr. -->

# Commands

Every command with all its arguments and options. `crnr COMMAND --help-all` shows the same in the terminal,
and `man crnr-build` as a manual page. [Inputs](inputs.md) describes what SOURCE can be, [output](output.md)
the files that commands write, and [automatic defaults](defaults.md) the rules behind `[default: auto]`."""


def reference_page(program: Command, exit_codes: dict[str, str]) -> str:
    """Return the page, which is plain Markdown that forges show too."""
    lines = [_INTRODUCTION, "", *_contents(program), *_options(program)]
    for command in program.all()[1:]:
        lines += ["", f"## {command.path}", *_command(command)]
    lines += ["", "## Environment variables", "", *_terms(ENVIRONMENT)]
    lines += ["", "## Exit codes", "", *_terms(exit_codes)]
    return "\n".join(lines) + "\n"


def _contents(program: Command) -> Iterator[str]:
    yield "| command | purpose |"
    yield "|---|---|"
    for command in program.all()[1:]:
        if not command.below:
            yield f"| [`{command.path}`](#{command.page}) | {_cell(command.summary)} |"


def _command(command: Command) -> Iterator[str]:
    yield from ("", _text(" ".join(command.about.split())))
    words = [command.path, "[OPTIONS]", "COMMAND [ARGS]..." if command.below else ""]
    words += [one.metavar if one.is_required else f"[{one.metavar}]" for one in command.arguments]
    yield from ("", "```text", " ".join(filter(None, words)), "```")
    if command.arguments:
        yield from ("", "Arguments:", "", *map(_entry, command.arguments))
    yield from _options(command)
    if command.examples:
        yield from ("", "Examples:", "", "```text", *command.examples, "```")


def _options(command: Command) -> Iterator[str]:
    panels: dict[str, list[Option]] = {}
    for option in command.options:
        panels.setdefault(option.panel or "Options", []).append(option)
    for panel, options in panels.items():
        yield from ("", f"{panel}:", "", *map(_entry, options))


def _entry(option: Option) -> str:
    *short, last = option.names or ("",)
    names = [f"`{name}`" for name in short] + [f"`{f'{last} {option.metavar}'.strip()}`"]
    notes = []
    if option.is_repeated and option.names and "repeated" not in option.help:
        notes.append("Can be repeated.")
    if option.default:
        notes.append(f"Default: {_text(option.default)}.")
    if option.variable:
        notes.append(f"Environment variable: `{option.variable}`.")
    return f"- {', '.join(names)}: {' '.join([_text(option.help), *notes])}"


def _terms(terms: dict[str, str]) -> Iterable[str]:
    return (f"- `{term}`: {_text(meaning)}" for term, meaning in terms.items())


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")


def _text(text: str) -> str:
    """Return Markdown in which options are code, and in which no other character has a meaning of its own."""
    pieces = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(pieces), 2):
        plain = re.split(r"(?<![\w-])(--[a-z0-9][\w-]*)", pieces[i])
        plain[::2] = [re.sub(r"[*_<>\[\]\\]", r"\\\g<0>", one) for one in plain[::2]]
        plain[1::2] = [f"`{name}`" for name in plain[1::2]]
        pieces[i] = "".join(plain)
    return "".join(pieces)
