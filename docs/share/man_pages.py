"""Man pages: crnr(1), and one for every command."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator

from commands import Command, Option

from crnr_cli import __version__

_DESCRIPTION = """\
crnr labels images by comparing them with a gallery of labelled examples: one folder of images per class, or a
feature file. It needs a few examples per class, no training run and no GPU. `crnr build` builds a gallery,
`crnr classify` labels images, and `crnr evaluate` scores the labels.

SOURCE is a folder whose sub-folders are the classes, an image, a feature file, or - to read a list of files
from stdin. crnr writes data to stdout and messages to stderr. An output file appears complete or not at all.

`crnr help COMMAND` shows the common options of a command; add --help-all to see all of them."""

ENVIRONMENT = {
    "CRNR_GALLERY": "The gallery that commands read if you name none. `crnr build` and `crnr tune` do not "
    "write to it.",
    "CRNR_MODELS": "The folder of the networks that `crnr model get` installs. By default, it is in the "
    "user's cache.",
    "CRNR_OFFLINE": "If it is 1, `crnr model get` opens no connection, as with --offline.",
    "NO_COLOR": "If it is set, messages have no colours.",
}


def pages(program: Command, exit_codes: dict[str, str]) -> dict[str, str]:
    """The pages by the names of their files."""
    return {
        f"{command.page}.1": "\n".join(_page(command, program, exit_codes)) + "\n"
        for command in program.all()
    }


def _page(command: Command, program: Command, exit_codes: dict[str, str]) -> Iterator[str]:
    yield '.\\" Made by docs/share/make.py from the commands of crnr.'
    yield f'.TH {_text(command.page.upper())} 1 "" "crnr {__version__}" "crnr manual"'
    yield from (".nh", ".ad l")  # names of options stay whole, and words close together
    yield from _section("Name", [f"{_text(command.page)} \\- {_text(_lower(command.summary))}"])
    yield from _section("Synopsis", [_synopsis(command)])
    is_program = command is program
    yield from _section("Description", _paragraphs(_DESCRIPTION if is_program else command.about))
    if command.below:
        yield from _section("Commands", _list_of_commands(command))
    if command.arguments:
        yield from _section("Arguments", (line for one in command.arguments for line in _entry(one)))
    yield from _section("Options", _options(command.options))
    if is_program:
        yield from _section("Environment", _terms(ENVIRONMENT))
        yield from _section("Exit status", _terms(exit_codes))
    yield from _section("Examples", _examples(command.examples))
    yield from _section("See also", [_see_also(command, program)])


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    yield f'.SH "{title.upper()}"' if " " in title else f".SH {title.upper()}"
    yield from lines


def _synopsis(command: Command) -> str:
    parts = [f"\\fB{_text(command.path)}\\fR", "[\\fIOPTION\\fR]..."]
    if command.below:
        parts.append("\\fICOMMAND\\fR [\\fIARGUMENT\\fR]...")
    for argument in command.arguments:
        shown = _placeholders(argument.metavar)
        parts.append(shown if argument.is_required else f"[{shown}]")
    return " ".join(parts)


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _rich(" ".join(paragraph.split()))


def _list_of_commands(command: Command) -> Iterator[str]:
    panel = command.panel
    for below in command.below.values():
        if below.panel != panel:
            panel = below.panel
            yield f'.SS "{_text(panel)}"'
        yield from (".TP", f".BR {_text(below.page)} (1)", _rich(f"{below.summary}."))


def _options(options: Iterable[Option]) -> Iterator[str]:
    panels: dict[str, list[Option]] = {}
    for option in options:
        panels.setdefault(option.panel, []).append(option)
    for panel, of_panel in panels.items():
        if panel:
            yield f'.SS "{_text(panel)}"'
        for option in of_panel:
            yield from _entry(option)


def _entry(option: Option) -> Iterator[str]:
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in option.names)
    yield ".TP"
    yield " ".join(filter(None, (names, _placeholders(option.metavar))))
    yield _rich(option.help)
    notes = []
    if option.is_repeated and option.names and "repeated" not in option.help:
        notes.append("It can be repeated.")
    if option.default:
        notes.append(f"Default: {option.default}.")
    if option.variable:
        notes.append(f"Environment variable: {option.variable}.")
    if notes:
        yield _rich(" ".join(notes))


def _placeholders(metavar: str) -> str:
    """Names that stand for a value in italics, and what is between them upright."""
    return re.sub(r"[A-Za-z][A-Za-z_.]*[A-Za-z]|[A-Za-z]", r"\\fI\g<0>\\fR", _text(metavar))


def _terms(terms: dict[str, str]) -> Iterator[str]:
    for term, meaning in terms.items():
        yield from (".TP", f".B {_text(term)}", _rich(meaning))


def _examples(examples: Iterable[str]) -> Iterator[str]:
    yield from (
        ".nf",
        ".RS 4",
        *(_not_a_request(_text(line)) for line in examples),
        ".RE",
        ".fi",
    )


def _see_also(command: Command, program: Command) -> str:
    related = [
        other for other in program.all() if other is not command and other.panel in ("", command.panel)
    ]
    if command is program:
        related = list(program.below.values())
    return ",\n".join(f"\\fB{_text(other.page)}\\fR(1)" for other in related if other is not command)


def _rich(text: str) -> str:
    """A line of text; what is in backticks, and the names of options, are bold."""
    pieces = re.split(r"`([^`]*)`|(?<![\w-])(--?[a-z0-9][\w-]*)", text)
    plain, commands, options = pieces[::3], pieces[1::3], pieces[2::3]
    bold = [f"\\fB{_text(one or other)}\\fR" for one, other in zip(commands, options, strict=True)]
    line = "".join(_text(text) + after for text, after in zip(plain, [*bold, ""], strict=True))
    # A sentence begins on a line of its own, so that man leaves the right space before it.
    sentences = re.split(r"(?<=[a-z)\d]\.) (?=[A-Z])", line)
    wrapped = [textwrap.wrap(one, 78, break_long_words=False, break_on_hyphens=False) for one in sentences]
    return "\n".join(_not_a_request(line) for lines in wrapped for line in lines)


def _text(text: str) -> str:
    """What roff would take as its own, escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("^", "\\(ha")
    return text.replace("~", "\\(ti").replace("`", "\\(ga").replace('"', "\\(dq")


def _not_a_request(line: str) -> str:
    return f"\\&{line}" if line.startswith(".") else line


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
