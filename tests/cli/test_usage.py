"""Wrong usage of any command and option: one line with the problem, exit code 2, and no work."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from typing import get_args

import pytest
import typer

from crnr_cli.cli import COMMANDS
from crnr_cli.cli.parsing import Choice, Number, Numbers
from crnr_cli.methods import METHODS, default_parameters
from helpers.each import check_each
from helpers.runner import Runner, declared_commands
from helpers.samples import make_features
from helpers.templates import Templates

OPTIONS = [
    (command, max(parameter.opts, key=len), parameter)
    for command, declared in declared_commands().items()
    for parameter in declared.params
    if isinstance(parameter, typer.core.TyperOption)
]
ARGUMENTS = {
    **{command: ["gallery.npz"] for command in COMMANDS},
    **{"info": ["gallery.h5"], "verify": ["gallery.h5"], "add": ["gallery.h5", "gallery.npz"]},
    **{"extract": ["gallery.npz", "-o", "new.h5"], "sort": ["gallery.npz", "sorted"]},
    **{"explain": ["gallery.npz#0"], "remove": ["gallery.h5", "--class", "ant"]},
    **{"rename": ["gallery.h5", "ant", "emu"], "correct": ["gallery.h5", "audit.csv"]},
    **{"split": ["gallery.npz", "--train", "a", "--test", "b"]},
    **{"model list": [], "model get": ["efficientnet-lite0"], "model check": ["model.onnx"]},
}
# Options whose value is text that is parsed later, as lists of numbers or of settings.
TEXTS_OF_NUMBERS = {"--try-power", "--try-pca", "--size"}
ODD_NUMBERS = ("nan", "inf", "-inf", "1e400", "-1", "9" * 40, "9" * 5000, "", "x", "0x10")


def refused(crnr: Runner, *arguments: str) -> str:
    """Return the message of a command that is refused."""
    before = {path: path.read_bytes() for path in crnr.here.iterdir()}
    command, *others = arguments  # of a group, such as "model get"
    outcome = crnr(*command.split(), *others) if command in COMMANDS else crnr(*arguments)
    assert (outcome.exit, outcome.out) == (2, ""), arguments
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert {path: path.read_bytes() for path in crnr.here.iterdir()} == before
    return outcome.err.removeprefix("error: ").removesuffix("\n")


def make_ready(crnr: Runner) -> None:
    make_features(crnr.here / "gallery.npz")
    assert crnr("build", "gallery.npz", "-q").exit == 0


@pytest.fixture
def ready(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(make_ready, crnr.here)
    return crnr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_kind_of_wrong_usage_has_one_style(ready: Runner, command: str) -> None:
    hint = f" (see `crnr {command} --help`)"
    arguments = ARGUMENTS[command]
    assert refused(ready, command, *arguments, "--nonsense") == f"no such option: --nonsense{hint}"
    assert refused(ready, command, *arguments, "-z") == f"no such option: -z{hint}"
    assert refused(ready, command, *arguments, "--jsoon") == (
        f"no such option: --jsoon; did you mean --json?{hint}"
    )
    assert refused(ready, command, *arguments, "--json=1") == f"--json takes no value{hint}"
    for of, valued, parameter in OPTIONS:
        if of == command and not parameter.is_flag:
            assert refused(ready, command, *arguments, valued) == f"{valued} needs a value{hint}"
            break


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bild x", "no such command: 'bild'; did you mean build? (see `crnr --help`)"),
        ("version", "no such command: 'version'; did you mean --version? (see `crnr --help`)"),
        ("train x", "no such command: 'train'; did you mean build? (see `crnr --help`)"),
        ("predict x", "no such command: 'predict'; did you mean classify? (see `crnr --help`)"),
        ("list", "no such command: 'list'; did you mean info? (see `crnr --help`)"),
        ("frobnicate", "no such command: 'frobnicate' (see `crnr --help`)"),
        ("model frobnicate", "no such command: 'frobnicate' (see `crnr model --help`)"),
        ("model gett x", "no such command: 'gett'; did you mean get? (see `crnr model --help`)"),
        ("model get", "missing argument: NAME (see `crnr model get --help`)"),
        ("help frobnicate", "no such command: 'frobnicate' (see `crnr --help`)"),
        ("help bild", "no such command: 'bild'; did you mean build? (see `crnr --help`)"),
        ("help model gett", "no such command: 'gett'; did you mean get? (see `crnr model --help`)"),
        (
            "explain x --agianst nn",
            "no such option: --agianst; did you mean --compare-with? (see `crnr explain --help`)",
        ),
        ("--frobnicate", "no such option: --frobnicate (see `crnr --help`)"),
        ("extract photos", "missing option: --output (see `crnr extract --help`)"),
        ("build", "missing argument: SOURCE..., as in `crnr build gallery/` (see `crnr build --help`)"),
        ("explain", "missing argument: QUERY (see `crnr explain --help`)"),
        ("add", "missing argument: GALLERY SOURCE... (see `crnr add --help`)"),
        ("add gallery.h5", "missing argument: SOURCE... (see `crnr add --help`)"),
        (
            "add gallery.h5 x --corrections c.csv",
            "--corrections already names the files to add; leave out x (see `crnr add --help`)",
        ),
        (
            "add gallery.h5 --corrections c.csv --class a --labels l.csv -0",
            "--corrections already names the classes of the files; leave out --class, --labels, --null "
            "(see `crnr add --help`)",
        ),
        ("remove --class x", "missing argument: GALLERY (see `crnr remove --help`)"),
        ("sort", "missing argument: CSV FOLDER (see `crnr sort --help`)"),
        ("split x --train a", "missing option: --test (see `crnr split --help`)"),
        ("rename x.h5 a", "missing argument: NEW; the order is GALLERY OLD NEW (see `crnr rename --help`)"),
        ("rename x.h5 a a", "the class is called a already; give another name"),
        ("sort out.csv", "missing argument: FOLDER (see `crnr sort --help`)"),
        ("sort out.csv x --undo y", "--undo takes only the undo file; leave out CSV, FOLDER"),
        ("info a b", "unexpected argument: b (see `crnr info --help`)"),
        (
            "info a b c d e",
            "unexpected argument: b c d ...; if a shell expanded a pattern, put it in quotes "
            "(see `crnr info --help`)",
        ),
        ("build x --extractor=", "--extractor needs a value (see `crnr build --help`)"),
        ("classify x --gallery=", "--gallery needs a value (see `crnr classify --help`)"),
        ("info a -g b", "two galleries are named, a and b; name one (see `crnr info --help`)"),
        ("build x --lam", "--lam needs a value (see `crnr build --help`)"),
        ("build x -j", "-j needs a value (see `crnr build --help`)"),
    ],
)
def test_invalid_command_lines_are_refused(crnr: Runner, line: str, message: str) -> None:
    assert refused(crnr, *line.split()) == message


def test_a_line_without_a_command_shows_the_help(crnr: Runner) -> None:
    assert crnr().exit == 2
    assert crnr().out.strip() == crnr("--help").out.strip()
    assert crnr("help").out == crnr("--help").out
    assert crnr("help", "build").out == crnr("build", "--help").out
    assert crnr("model").out.strip() == crnr("model", "--help").out.strip()
    assert crnr("help", "model").out == crnr("model", "--help").out
    assert crnr("help", "model", "get").out == crnr("model", "get", "--help").out


NUMERIC = [
    (command, option, parameter)
    for command, option, parameter in OPTIONS
    if isinstance(parameter.kind, Number | Numbers) or option in TEXTS_OF_NUMBERS
]


@pytest.mark.parametrize("command", dict.fromkeys(command for command, _, _ in NUMERIC))
def test_a_numeric_option_takes_no_odd_value(ready: Runner, command: str) -> None:
    def check(case: tuple[str, str]) -> None:
        option, value = case
        of_network = option in ("--crop", "--mean", "--std") and command != "model check"
        extra = ["--extractor", "m.onnx"] if of_network else []
        message = refused(ready, command, *ARGUMENTS[command], f"{option}={value}", *extra)
        assert option.removeprefix("--").removeprefix("try-") in message

    check_each(
        [
            (option, value)
            for of, option, parameter in NUMERIC
            for value in ODD_NUMBERS
            if of == command
            and not (value == "-1" and isinstance(parameter.kind, Numbers))  # a mean can be negative
        ],
        check,
    )


def test_no_numeric_option_is_parsed_by_typer() -> None:
    """Whose own numbers may be nan, and have no limit."""
    for command in declared_commands().values():
        for name, declared in signature(command.callback).parameters.items():
            kind, *marks = get_args(declared.annotation) or [declared.annotation]
            if re.search(r"\b(int|float)\b", str(kind)):
                assert any(isinstance(getattr(mark, "parser", None), Number) for mark in marks), name


ODD_SETTINGS = (
    "fit=1",
    "name=x",
    "__class__=1",
    "parameters=1",
    "method=nrc",
    "=1",
    ".=1",
    "é=1",
    "lam.real=1",
    "nothing=",
)


@pytest.mark.parametrize("method", METHODS)
def test_only_parameters_can_be_set(ready: Runner, method: str) -> None:
    for setting in ODD_SETTINGS:
        message = refused(ready, "compare", "gallery.npz", "--set", f"{method}.{setting}")
        assert f": method {method} has no parameter " in message
    for parameter in default_parameters(method):
        for value in ("nan", "inf", "-inf", "1e400", "-1", "", "x", "0x10"):
            refused(ready, "compare", "gallery.npz", "--set", f"{method}.{parameter}={value}")


CHOICES = [each for each in OPTIONS if isinstance(each[2].kind, Choice)]


@pytest.mark.parametrize("command", dict.fromkeys(command for command, _, _ in CHOICES))
def test_a_wrong_choice_lists_the_right_ones(ready: Runner, command: str) -> None:
    choices = {option: parameter.kind for of, option, parameter in CHOICES if of == command}

    def check(option: str) -> None:
        choice = choices[option]
        assert isinstance(choice, Choice)
        first, known = choice.names[0], ", ".join(choice.names)
        assert refused(ready, command, *ARGUMENTS[command], option, f"{first}e") == (
            f"{option}: '{first}e' is not one of {known}; did you mean {first}? (see `crnr {command} --help`)"
        )

    check_each(choices, check)


def test_the_options_with_a_fixed_set_of_values_are_choices() -> None:
    assert {option for _, option, _ in CHOICES} == {
        *("--method", "--methods", "--compare-with", "--factor", "--index", "--dtype", "--samples-axis"),
        *("--extractor-preset", "--filter", "--channels", "--layout", "--pool", "--block-norm"),
        *("--provider", "--how", "--format", "--to", "--naming", "--box-unit", "--order"),
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_names_as_other_tools_do(crnr: Runner, command: str) -> None:
    text = " ".join(crnr(*command.split(), "--help-all").out.split())
    usage = text[: text.index(command) + 60]
    assert "{" not in text
    assert "<" not in text
    assert "--no-" not in text
    assert "[default: (" not in text
    for parameter in declared_commands()[command].params:
        if isinstance(parameter, typer.core.TyperArgument):
            assert parameter.metavar.isupper()
            assert parameter.metavar in usage
    for of, _, parameter in CHOICES:
        if of == command:
            assert isinstance(parameter.kind, Choice)
            names = parameter.kind.names
            assert f" {'|'.join(names)} " in text or f": {', '.join(names)}." in text


def test_the_gallery_can_be_named_in_both_ways(ready: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    (ready.here / "gallery.h5").rename("other.h5")
    for command in ("info", "verify"):
        assert ready(command, "other.h5") == ready(command, "-g", "other.h5")
        assert ready(command).exit == 1
    make_features(Path("more.npz"), seed=3)
    assert ready("add", "-g", "other.h5", "more.npz").exit == 0
    assert ready("remove", "-g", "other.h5", "--class", "ant").exit == 0
    monkeypatch.setenv("CRNR_GALLERY", "other.h5")
    assert ready("info").exit == ready("verify").exit == 0
    assert ready("info", "missing.h5").exit == 1  # what the line names comes first
    assert ready("remove", "--class", "bee").exit == 2  # a gallery that is changed is named on the line
