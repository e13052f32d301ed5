"""The help: one screen per command with its common options, or all of them with --help-all.

It is plain text, formatted here and not by Rich, which would take longer to load than the help takes to make.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from types import SimpleNamespace
from typing import Any, NamedTuple

from crnr_cli.cli.parsing import Choice, Value, is_argument

_WIDEST = 100  # columns: longer lines are hard to read
_NARROWEST = 40
_WIDEST_NAMES = 25  # columns for the names of options, left of their texts; longer names get a line
_NARROW = 60  # columns: below, every text begins on a line of its own
_FEW = 4  # names of a choice that the help lists; --help-all lists more
COMMON = "Common options"
ALWAYS = "Errors and output"
_OF_GROUP = "Options"  # of the program itself, or of a group of commands
_OTHER = "Other options"
_NO_BREAK = "\N{NO-BREAK SPACE}"
_OF_ALL_COMMANDS = ("strict", "allow-skipped", "jobs", "dry-run", "json", "quiet", "help", "help-all")
# The panels of --help-all after these.
_ORDER = (
    *(_OTHER, "Features", "Network", "Method parameters", "Confidence", "Testing", "Pass/fail thresholds"),
    *("Boxes", "Label table", "Feature file", "Input", "Error handling", "Cluster"),
)
# Of options that Typer adds: its own texts differ between its versions.
TEXTS = {
    "help": "Show this help.",
    "install-completion": "Install tab completion for your shell.",
    "show-completion": "Print the completion script for your shell.",
}
# The option --help is no parameter of a command.
_HELP = SimpleNamespace(
    opts=("-h", "--help"),
    help=TEXTS["help"],
    metavar=None,
    default=False,
    show_default=False,
    envvar=None,
    is_flag=True,
    hidden=False,
    required=False,
    multiple=False,
    rich_help_panel=None,
)


class Screen(NamedTuple):
    """The contents of a help screen, besides the parameters of the command."""

    options: str  # the common ones, in the order of use
    examples: tuple[str, str, str]  # the simplest one first


# The panels of `crnr --help`. They and their commands are in the order of use. The commands of a group, such
# as `crnr model get`, are named after it.
PANELS = {
    "Label": {
        "build": Screen(
            "output extractor labels calibrate parts pca neighbors update cache",
            (
                "crnr build gallery/",
                "crnr build photos/ --extractor efficientnet-lite0 --calibrate",
                "crnr build features.h5 --pca 100 -o faces.h5",
            ),
        ),
        "classify": Screen(
            "gallery output format top reject min-probability sets update resume cache",
            (
                "crnr classify new_images/",
                "crnr classify new_images/ -o out.csv --reject 0.05",
                "find . -name '*.png' | crnr classify - -g faces.h5 -o out.csv",
            ),
        ),
        "evaluate": Screen(
            "gallery html errors confusion corrections outsiders min-accuracy min-f1 labels reject",
            (
                "crnr evaluate out.csv",
                "crnr evaluate queries/ --html report.html --min-accuracy 0.9",
                "crnr evaluate out.csv --corrections corrections.csv",
            ),
        ),
        "review": Screen(
            "output gallery limit images-from cache",
            (
                "crnr review out.csv",
                "crnr review out.csv --limit 200 -o doubtful.html",
                "crnr review out.csv --images-from /media/photos",
            ),
        ),
        "sort": Screen(
            "how template min-probability below undo portable-names",
            (
                "crnr sort out.csv sorted/",
                "crnr sort out.csv sorted/ --how move --dry-run",
                "crnr sort out.csv sorted/ --min-probability 0.8",
            ),
        ),
    },
    "Understand": {
        "explain": Screen(
            "gallery output compare-with images-from",
            (
                "crnr explain query.png",
                "crnr explain query.png -o why.html",
                "crnr explain queries.h5#3 --compare-with nrc -o why.png",
            ),
        ),
        "audit": Screen(
            "csv html all queries images-from max-suspects extractor labels",
            (
                "crnr audit gallery.h5",
                "crnr audit gallery.h5 --csv audit.csv --html audit.html",
                "crnr audit gallery/ --queries queries/",
            ),
        ),
        "info": Screen(
            "gallery list-examples target-accuracy",
            (
                "crnr info gallery.h5",
                "crnr info gallery.h5 --list-examples",
                "crnr info gallery.h5 --target-accuracy 0.99",
            ),
        ),
        "verify": Screen(
            "gallery source labels",
            (
                "crnr verify gallery.h5",
                "crnr verify gallery.h5 --source gallery/",
                "crnr verify -g faces.h5 --source photos/ --source more_photos/",
            ),
        ),
    },
    "Improve": {
        "add": Screen(
            "gallery class corrections labels",
            (
                "crnr add gallery.h5 new_images/",
                "crnr add gallery.h5 photos/*.jpg --class cat",
                "crnr add gallery.h5 --corrections corrections.csv",
            ),
        ),
        "correct": Screen(
            "sources",
            (
                "crnr correct gallery.h5 audit.csv",
                "crnr correct gallery.h5 audit.csv --dry-run",
                "crnr correct gallery.h5 marked.csv --sources photos/",
            ),
        ),
        "remove": Screen(
            "gallery class example marked-in",
            (
                "crnr remove gallery.h5 --class spam",
                "crnr remove gallery.h5 --example 'gallery/ham/*.png' --dry-run",
                "crnr remove gallery.h5 --marked-in audit.csv",
            ),
        ),
        "rename": Screen(
            "merge",
            (
                "crnr rename gallery.h5 spam junk",
                "crnr rename gallery.h5 spam junk --merge",
                "crnr rename faces.h5 'Ann Lee' ann",
            ),
        ),
        "tune": Screen(
            "output budget methods extractor try-parts plot labels",
            (
                "crnr tune gallery/",
                "crnr tune gallery/ -o gallery.h5 --budget 60",
                "crnr tune gallery/ --try-parts 2x2,4x4 --plot tune.png",
            ),
        ),
        "compare": Screen(
            "methods test holdout set csv extractor pca labels",
            (
                "crnr compare gallery/",
                "crnr compare gallery/ --test queries/ --methods crnr,crc,svm",
                "crnr compare gallery/ --set crc.lam=0.1 --csv compare.csv",
            ),
        ),
    },
    "Prepare": {
        "split": Screen(
            "train test share per-class seed how labels",
            (
                "crnr split images/ --train gallery/ --test queries/",
                "crnr split images/ --train gallery/ --test queries/ --share 0.7",
                "crnr split images/ --train g/ --test q/ --per-class 50 --how link",
            ),
        ),
        "extract": Screen(
            "output like extractor size update labels",
            (
                "crnr extract photos/ -o features.h5",
                "crnr extract photos/ -o features.h5 --extractor efficientnet-lite0",
                "crnr extract photos/ -o features.h5 --like gallery.h5",
            ),
        ),
        "model list": Screen(
            "", ("crnr model list", "crnr model list --json", "CRNR_MODELS=models crnr model list")
        ),
        "model get": Screen(
            "weights offline",
            (
                "crnr model get efficientnet-lite0",
                "crnr model get efficientnet-lite0 --weights efficientnet-lite0.pth",
                "crnr model get dinov2-small",
            ),
        ),
        "model check": Screen(
            "image size extractor-preset",
            (
                "crnr model check model.onnx",
                "crnr model check model.onnx --image photo.jpg",
                "crnr model check model.onnx --extractor-preset imagenet",
            ),
        ),
    },
    "Exchange": {
        "export": Screen(
            "to output corrections boxes deployments metadata url-prefix below",
            (
                "crnr export out.csv --to label-studio -o tasks.json",
                "crnr export out.csv --to megadetector --boxes detections.json -o labels.json",
                "crnr export out.csv --to camtrap-dp --deployments deployments.csv -o package/",
            ),
        ),
        "tag": Screen(
            "naming taxa min-probability corrections below undo",
            (
                "crnr tag out.csv",
                "crnr tag out.csv --dry-run",
                "crnr tag out.csv --min-probability 0.9 --taxa taxa.csv",
            ),
        ),
    },
}
# Panels that `crnr --help-all` shows, and `crnr --help` only mentions: few people need their commands.
_SPECIAL = ("Exchange",)
# The program itself, and its groups of commands.
_GROUPS = {
    "": Screen(
        "help help-all version install-completion",
        (
            "crnr build gallery/",
            "crnr build photos/ --extractor efficientnet-lite0",
            "crnr classify new_images/ -o out.csv",
        ),
    ),
    "model": Screen(
        "help help-all",
        (
            "crnr model list",
            "crnr model get efficientnet-lite0",
            "crnr build photos/ --extractor efficientnet-lite0",
        ),
    ),
}
COMMANDS = [name for commands in PANELS.values() for name in commands]
SCREENS: dict[str, Screen] = {
    **_GROUPS,
    **{name: one for panel in PANELS.values() for name, one in panel.items()},
}


def format_help(context: Any, *, everything: bool = False) -> str:
    """Return the help of the context's command as lines that fit the terminal."""
    command = context.command
    name = _find_name(context)
    width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size((80, 24)).columns))
    arguments = [parameter for parameter in command.params if is_argument(parameter)]
    usage = [context.command_path, "[OPTIONS]", *map(_format_usage, arguments)]
    commands = getattr(command, "commands", {})
    usage += ["COMMAND", "[ARGS]..."] if commands else []
    blocks = [
        _wrap(" ".join(usage), width, "Usage: ", " " * 7),
        _wrap(" ".join((command.help or "").split()), width),
    ]
    about = {"": [(one.metavar, text_of(one, everything=everything)) for one in arguments]}
    panels, short = group_options(name, command.params), {COMMON, ALWAYS, _OF_GROUP}
    options = {
        panel: [
            (_format_names(one), _describe(one, panels, is_program=not name, everything=everything))
            for one in of_panel
            if long_name(one) != "help-all" or everything or not panels.keys() <= short
        ]
        for panel, of_panel in panels.items()
        if everything or panel in short
    }
    for tables in (about if arguments else {}, _group_commands(name, commands, everything), options):
        blocks += _format_tables(tables, width)
    blocks.append(["Examples", *(f"  {example}" for example in SCREENS[name].examples)])
    return "\n\n".join("\n".join(block) for block in blocks)


def _find_name(context: Any) -> str:
    """Return the name of a command without the program, such as "model get"."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(names)


def group_options(name: str, parameters: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the options of a command by panel: common options, options of all commands, and others."""
    shown = {long_name(one): one for one in [*parameters, _HELP] if not is_argument(one) and not one.hidden}
    panels = {
        _OF_GROUP if name in _GROUPS else COMMON: [shown.pop(one) for one in SCREENS[name].options.split()],
        ALWAYS: [shown.pop(one) for one in _OF_ALL_COMMANDS if one in shown],
    }
    rest = {one.rich_help_panel or _OTHER for one in shown.values()}
    for panel in sorted(rest, key=_ORDER.index):
        panels[panel] = [one for one in shown.values() if (one.rich_help_panel or _OTHER) == panel]
    return {panel: options for panel, options in panels.items() if options}


def _group_commands(
    name: str, commands: dict[str, Any], everything: bool
) -> dict[str, list[tuple[str, str]]]:
    """Return the names and summaries of the commands of a group by panel."""
    if name:
        below = [(own, summarize(one.help)) for own, one in commands.items()]
        return {"Commands": below} if below else {}
    return {
        panel: [
            (own, summarize(commands[own].help))
            for own in dict.fromkeys(full.split()[0] for full in names)
            if own in commands
        ]
        for panel, names in PANELS.items()
        if commands and (everything or panel not in _SPECIAL)
    }


def summarize(text: str) -> str:
    """Return the first sentence."""
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]


def long_name(option: Any) -> str:
    """Return the name of an option without dashes."""
    return str(max(option.opts, key=len)).removeprefix("--")


def metavar_of(parameter: Any) -> str:
    """Return the word that stands for the value; nothing for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = getattr(parameter, "kind", None)
    return str(parameter.metavar or (kind.metavar() if isinstance(kind, Value) else ""))


def default_of(parameter: Any) -> str:
    """Return the default as the help shows it; empty if the help does not show it."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    default = parameter.default
    if default in (None, (), []) or not parameter.show_default or getattr(parameter, "is_flag", False):
        return ""
    return str(default.as_posix() if isinstance(default, PurePath) else default)


def text_of(parameter: Any, *, everything: bool = True) -> str:
    """Return the help of a parameter; with a long list of names only if `everything` is shown."""
    text = TEXTS.get(long_name(parameter), parameter.help or "")
    kind = getattr(parameter, "kind", None)
    if "{choices}" in text and isinstance(kind, Choice):
        # A registry may load NumPy, for which the short help has no time.
        is_short = not kind.is_checked_later and len(kind.names) <= _FEW
        is_listed = (everything or is_short) and "|" not in metavar_of(parameter)
        text = text.replace(": {choices}", f": {', '.join(kind.names)}" if is_listed else "")
    return text


def _describe(option: Any, panels: dict[str, list[Any]], *, is_program: bool, everything: bool) -> str:
    """Return the help of one of the options in these panels, with its default."""
    if long_name(option) == "help-all":
        special = " and ".join(name for panel in _SPECIAL for name in PANELS[panel])
        more = f", and the commands {special}" if is_program else ""
        return f"Show all {sum(map(len, panels.values()))} options{more}."
    text = text_of(option, everything=everything)
    notes = ["required"] if option.required else []
    notes += [f"default: {default}"] if (default := default_of(option)) else []
    notes += ["repeatable"] if option.multiple else []
    notes += [f"env: {option.envvar}"] if everything and option.envvar else []
    return " ".join([text, *(f"[{note}]" for note in notes)])


def _format_usage(argument: Any) -> str:
    return argument.metavar if argument.required else f"[{argument.metavar}]"


def _format_names(option: Any) -> str:
    """Return names such as "-o, --output FILE"; a missing short name leaves its space empty."""
    names = sorted(option.opts, key=len)
    shown = ", ".join(names) if len(names) > 1 else f"    {names[0]}"
    return " ".join(filter(None, (shown, metavar_of(option))))


def _format_tables(tables: dict[str, list[tuple[str, str]]], width: int) -> Iterator[list[str]]:
    """Return one block per table, with all texts in one column, next to the names where these leave room."""
    names = [len(name) for table in tables.values() for name, _ in table]
    room = 4 if width < _NARROW else max([n for n in names if n <= _WIDEST_NAMES], default=4)
    for title, table in tables.items():
        block = [title] if title else []
        for name, text in table:
            block += _format_entry(name, text, width, room + 4)
        yield block


def _format_entry(name: str, text: str, width: int, column: int) -> Sequence[str]:
    start = f"  {name}  "
    if len(start) > column:
        return [start.rstrip(), *_wrap(text, width, " " * column, " " * column)]
    return _wrap(text, width, start.ljust(column), " " * column)


def _wrap(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Break a text into lines, but not within backticks or brackets."""
    whole = re.sub(r"`[^`]*`|\[[^\]]*\]", lambda found: found[0].replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]
