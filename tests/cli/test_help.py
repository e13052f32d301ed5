"""The help: one screen for every command, and everything with --help-all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest

from crnr_cli.cli import COMMANDS
from crnr_cli.cli.help import ALWAYS, COMMON, SCREENS
from helpers.runner import Runner, declared_commands

ALL = ["", *COMMANDS, "model"]
MOST_LINES = 40
# Commands that need an option: the first example has no other one.
NEEDED = {"split": {"--train", "--test"}, "extract": {"-o"}, "remove": {"--class"}, "export": {"--to", "-o"}}
PANELS = {
    *(COMMON, ALWAYS, "Other options", "Features", "Network", "Method parameters", "Confidence", "Testing"),
    *("Pass/fail thresholds", "Boxes", "Label table", "Feature file", "Input", "Error handling", "Cluster"),
}


def options_in(words: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}


def examples_of(text: str) -> list[str]:
    return [line.strip() for line in text.partition("\nExamples\n")[2].splitlines()]


def entries_of(text: str) -> list[str]:
    """The long names of the options that a help lists."""
    return re.findall(r"^  (?:-\w, |    )--([\w-]+)", text, re.MULTILINE)


def declared_options(command: str) -> dict[str, Any]:
    """The options of a command that are not hidden, by their long names."""
    return {
        max(parameter.opts, key=len).removeprefix("--"): parameter
        for parameter in declared_commands()[command].params
        if any(name.startswith("-") for name in parameter.opts) and not parameter.hidden
    }


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize("columns", [80, 100])
def test_help_is_one_screen(crnr: Runner, command: str, columns: int) -> None:
    outcome = crnr(*command.split(), "--help", columns=columns)
    assert (outcome.exit, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in outcome.out
    assert outcome.out.isascii()


@pytest.mark.parametrize("command", ALL)
def test_help_fits_into_narrow_screens(crnr: Runner, command: str) -> None:
    for option in ("--help", "--help-all"):
        for columns in (60, 42):
            text = crnr(*command.split(), option, columns=columns).out
            before = text.partition("\nExamples\n")[0]  # which are to be copied, and never wrapped
            assert max(map(len, before.splitlines())) <= columns


@pytest.mark.parametrize("command", ALL)
def test_help_ends_with_three_examples_the_first_without_options(crnr: Runner, command: str) -> None:
    examples = examples_of(crnr(*command.split(), "--help", columns=80).out)
    assert examples == list(SCREENS[command].examples)
    assert len(set(examples)) == 3
    first = shlex.split(examples[0])
    assert first[0] == "crnr"
    assert options_in(first) == NEEDED.get(command, set())


@pytest.mark.parametrize("command", ALL)
def test_the_options_of_examples_exist(command: str) -> None:
    for example in SCREENS[command].examples:
        words = shlex.split(example.rpartition("|")[2])
        name = next(
            name for name in (" ".join(words[i : i + n]) for n in (2, 1) for i in (1, 2)) if name in COMMANDS
        )
        if command in COMMANDS:
            assert name == command
        known = {opt for parameter in declared_commands()[name].params for opt in parameter.opts}
        assert options_in(words) <= known | {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_the_common_options_and_help_all_every_option(crnr: Runner, command: str) -> None:
    words = command.split()
    short, full = (crnr(*words, option, columns=80).out for option in ("--help", "--help-all"))
    options = declared_options(command)
    assert sorted(entries_of(full)) == sorted([*options, "help"])
    common = entries_of(short)
    assert common[: len(SCREENS[command].options.split())] == SCREENS[command].options.split()
    assert entries_of(full)[: len(common)] == common
    is_all = set(entries_of(full)) - set(common) == {"help-all"}  # so there is nothing more to show
    assert common[-2:] == ["help", "help-all"] or (is_all and common[-1] == "help")
    assert (f"Show all {len(options) + 1} options." in short) != is_all
    titles = re.findall(r"^\S.*$", full.partition("\n\n")[2].partition("\n\n")[2], re.MULTILINE)
    assert titles[-1] == "Examples"
    assert set(titles[:-1]) <= PANELS
    assert [line for line in short.splitlines() if line in PANELS - {COMMON}] == [ALWAYS]


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_have_at_most_three_words(crnr: Runner, command: str) -> None:
    text = " ".join(crnr(*command.split(), "--help-all").out.split())
    for default in re.findall(r"\[default: ([^\]]*)\]", text):
        assert len(default.split()) <= 3


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_real_defaults(crnr: Runner, command: str) -> None:
    text = " ".join(crnr(*command.split(), "--help-all").out.split())
    for name, parameter in declared_options(command).items():
        default = parameter.default
        is_shown = not isinstance(parameter.show_default, str) and not isinstance(default, bool)
        if is_shown and default not in (None, (), []):
            entry = re.split(r" (?=-\w, --|--)", text.partition(f" --{name} ")[2])[0]
            assert f"[default: {default}]" in entry


@pytest.mark.parametrize("command", ALL)
def test_crnr_help_is_the_same(crnr: Runner, command: str) -> None:
    words = command.split()
    assert crnr("help", *words) == crnr(*words, "--help") == crnr(*words, "-h")
    assert crnr("help", *words, "--help-all") == crnr(*words, "--help-all")


def test_help_is_the_same_in_a_pipe_and_without_colours(crnr: Runner) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    plain = crnr.process("build", "--help", env=environment)
    assert (plain.exit, plain.err) == (0, "")
    assert crnr.process("build", "--help", env={**environment, "NO_COLOR": "1"}) == plain
    assert crnr.process("build", "--help", env={**environment, "FORCE_COLOR": "1"}) == plain
    assert max(map(len, plain.out.splitlines())) <= 80


@pytest.mark.parametrize(
    "line", ["--help", "help build", "build --help", "tune -h", "model get --help", "--help-all"]
)
def test_help_loads_nothing_heavy(line: str) -> None:
    code = (
        f"import sys; sys.argv = ['crnr', *{line.split()}]\n"
        "before = set(sys.modules)\n"
        "from crnr_cli.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    heavy = {'numpy', 'scipy', 'h5py', 'PIL', 'rich'} & (sys.modules.keys() - before)\n"
        "    sys.stderr.write(repr(sorted(heavy)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "[]")
