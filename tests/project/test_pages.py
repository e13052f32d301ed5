"""The commands and the code in README and documentation work, and the options that they name exist."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

from helpers.pages import (
    GUIDES,
    README,
    Script,
    code_blocks,
    name_page,
    read_page,
    replace_lines,
    scripts,
    spans_of_code,
)
from helpers.paths import DOCS, ROOT
from helpers.runner import Outcome, Runner

COMMANDS = DOCS / "reference" / "commands.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]
INSTALLING = "python3 -m venv"  # what .ci/run does


def list_scripts() -> list[Any]:
    return [
        pytest.param(script, id=f"{page.stem}: {script.commands.splitlines()[0][:50]}")
        for page in GUIDES
        for script in scripts(page)
        if not script.commands.startswith(INSTALLING)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("script", list_scripts())
def test_every_block_of_commands_works_and_prints_what_the_page_shows(
    script: Script, crnr: Runner, folder: Path, request: pytest.FixtureRequest
) -> None:
    made = crnr.bash("crnr build gallery -q && crnr classify queries -q -o out.csv")
    assert made == Outcome(0, "", "")
    # `head` may leave before the rest is written. What pip would install is here.
    done = crnr.bash(f"set +o pipefail; exec 2>&1\npip() {{ [[ $1 == install ]]; }}\n{script.commands}")
    assert done.exit == 0, done.out
    assert "Traceback" not in done.out
    printed = script.find_lines([line.rstrip() for line in done.out.splitlines()])
    if request.config.getoption("--update-docs"):
        replace_lines(script.page, script.shown, printed)
    else:
        assert script.shown == printed, "run this test with --update-docs"


# Code for developers is put into a copy of the package by another test.
FOR_DEVELOPERS = {ROOT / "CONTRIBUTING.md", *(DOCS / "developing").glob("*.md")}
WITH_PYTHON = [page for page in PAGES if code_blocks(page, "python") and page not in FOR_DEVELOPERS]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_page)
def test_every_block_of_python_works(page: Path, crnr: Runner, folder: Path) -> None:
    """Blocks of a page follow each other; X and y are features and labels."""
    assert crnr("build", "gallery", "--calibrate", "-q").exit == 0
    assert crnr("extract", "gallery", "-q", "-o", "photos.h5").exit == 0
    for digit in "12":
        shutil.copy(next((folder / "queries" / digit).iterdir()), folder / "queries" / digit / f"{digit}.png")
    X, y = load_digits(return_X_y=True)
    names: dict[str, Any] = {"X": X[:60], "y": y[:60]}
    for block in code_blocks(page, "python"):
        exec(block, names)


def test_the_code_of_the_readme_prints_an_answer_for_each_image(
    crnr: Runner, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crnr("build", "gallery", "-q").exit == 0
    (block,) = code_blocks(README, "python")
    exec(block, {})
    answers = capsys.readouterr().out.splitlines()
    assert len(answers) == 20
    assert answers[0].startswith("new_images/0/")


@cache
def read_options() -> dict[str, set[str]]:
    """Return the options of each command by its name; the program's own have an empty one."""
    found: dict[str, set[str]] = {}
    for section in f"\n{read_page(COMMANDS)}".split("\n## "):
        title = section.partition("\n")[0].strip()
        name = title.removeprefix("crnr").strip() if title.startswith("crnr") else ""
        names = re.findall(r"^- (?:`-\w`, )?`(--[\w-]+)", section, re.MULTILINE)
        found.setdefault(name, set()).update(names)
    return found


# Options of other programs that prose names by themselves.
OF_OTHER_PROGRAMS = {
    "--build-arg",  # docker
    "--cap-drop",
    "--force",  # pipx, uv
    "--full",  # tests
    "--memory",
    "--mutations",
    "--network",
    "--no-deps",  # pip
    "--no-index",  # pip
    "--only-binary",
    "--platform",
    "--python-version",
    "--read-only",
    "--sshlogin",  # parallel
    "--steps",
    "--survivors",
    "--tmpfs",
    "--unexplained",
    "--update-docs",
    "--user",
    "--userns",
}


def wrong_options(span: str) -> list[str]:
    """Return the options in a command that it does not have."""
    options = read_options()
    text = span.removeprefix("$ ")
    named = re.findall(r"(?<![\w-])(--[a-z][\w-]*)", text)
    if text.startswith("--"):
        known = set().union(*options.values()) | OF_OTHER_PROGRAMS
        return [name for name in named if name not in known]
    calls = re.findall(r"\bcrnr ([a-z][^|;&]*)", text) or [text]
    wrong = []
    for call in calls:
        words = call.split()
        command = next(
            (" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in options and words), None
        )
        if command:
            own = re.findall(r"(?<![\w-])(--[a-z][\w-]*)", call)
            wrong += [name for name in own if name not in options[command]]
    return wrong


@pytest.mark.parametrize("page", [page for page in PAGES if page != COMMANDS], ids=name_page)
def test_every_option_that_a_page_names_exists(page: Path) -> None:
    found = {span: wrong for span in spans_of_code(page) if (wrong := wrong_options(span))}
    assert found == {}, "docs/reference/commands.md has all options; old names are not to be used"


def test_the_check_of_options_finds_wrong_ones() -> None:
    assert wrong_options("$ crnr build gallery/ --callibrate") == ["--callibrate"]
    assert wrong_options("build --html report.html") == ["--html"]
    assert wrong_options("--callibrate") == ["--callibrate"]
    assert wrong_options("find . | crnr classify - --reject 0.05") == []
    assert wrong_options("crnr model get NAME --top") == ["--top"]
    assert wrong_options("pip install --no-deps .") == []


def test_the_list_of_guides_has_all_of_them() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", read_page(DOCS / "how-to" / "index.md"))
    assert len(listed) == len(set(listed))
    assert {"index.md", *listed} == {page.name for page in (DOCS / "how-to").glob("*.md")}


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("g.h5: 2 classes, 9 examples, 1.5 s", "g.h5: 2 classes, 9 examples, 1.5 s"),  # another time
        ("g.h5: 2 classes, ...", "g.h5: 2 classes, ..."),
        ("g.h5: 3 classes, ...", "g.h5: 2 classes, ..."),
        ("accuracy  0.9702  97 of 100 correct", "accuracy  0.9702  97 of 100 correct"),  # the last digit
        ("accuracy  0.9600  96 of 100 correct", "accuracy  0.9700  97 of 100 correct"),
    ],
)
def test_output_that_a_page_shows_is_compared(shown: str, found: str) -> None:
    printed = [
        "note: replaced g.h5",
        "g.h5: 2 classes, 9 examples, 0.2 s",
        "accuracy  0.9700  97 of 100 correct",
    ]
    assert Script(README, "crnr build gallery/", [shown]).find_lines(printed) == [found]
