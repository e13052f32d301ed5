"""The pages of the documentation: their blocks of code, and terminal sessions that they show."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.paths import DOCS, ROOT
from helpers.runner import Runner

README = ROOT / "README.md"
TUTORIAL = DOCS / "tutorial.md"
# Tests run their blocks of the kind `sh`. Commands that cannot run in a test, such as docker, are `bash`.
GUIDES = [README, TUTORIAL, *sorted((DOCS / "how-to").glob("*.md"))]
ELIDED = "..."  # a line that stands for any number of lines


def name_page(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read_page(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_blocks(page: Path, kind: str) -> list[str]:
    """Return the content of all blocks of a kind; those in a list are indented."""
    pattern = rf"^( *)```{kind}\n(.*?)^\1```$"
    found = re.findall(pattern, read_page(page), re.DOTALL | re.MULTILINE)
    return [_unindent(code, indent) for indent, code in found]


def _unindent(code: str, indent: str) -> str:
    return re.sub(f"^{indent}", "", code, flags=re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A command of a terminal session, and the lines that the page shows below it."""

    command: str
    shown: list[str]

    def kept_of(self, printed: list[str]) -> list[str]:
        """Return as many of the printed lines as the page shows, from the beginning and from the end."""
        if ELIDED not in self.shown:
            return printed
        place = self.shown.index(ELIDED)
        n_last = len(self.shown) - place - 1
        return [*printed[:place], ELIDED, *printed[len(printed) - n_last :]]

    def is_true_of(self, printed: list[str]) -> bool:
        expected = self.kept_of(printed)
        return len(expected) == len(self.shown) and all(map(_is_same, self.shown, expected))

    @property
    def lines(self) -> list[str]:
        return [f"$ {self.command}", *self.shown]


def sessions(page: Path) -> list[list[Step]]:
    """Return the steps of each block of the kind `console`."""
    return [_steps(block) for block in code_blocks(page, "console")]


def _steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(Step(line.removeprefix("$ "), []))
        else:
            found[-1].shown.append(line)
    return found


# What differs between machines and runs, and what stands for it.
_VARIABLE = (
    (r"\b\d+\.\d+ s\b", "TIME"),
    (r"\b\d+(\.\d+)? [kM]B\b", "SIZE"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "DATE"),
    (r"\b127\.0\.0\.1:\d+\b", "ADDRESS"),
    (r"[█-▏]+", "BAR"),
    (r"\s+", " "),
)
_NUMBER = re.compile(r"(?<![\w/])\d+\.\d{3,}|\d+(?= ?%)")


def _is_same(one: str, other: str) -> bool:
    """Compare two lines; fractions and percentages may differ by 2 and by 1 in the last digit.

    The residuals of float32 differ by up to 1e-6 between kinds of processors.
    """
    for pattern, name in _VARIABLE:
        one, other = (re.sub(pattern, name, text.strip()) for text in (one, other))
    if _NUMBER.sub("N", one) != _NUMBER.sub("N", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(float(a) == pytest.approx(float(b), abs=_tolerance(a)) for a, b in pairs)


def _tolerance(number: str) -> float:
    return max(2.0 * 10 ** -len(number.partition(".")[2]), 1e-6) if "." in number else 1.0


@dataclass(frozen=True)
class Script:
    """A block of commands, and the lines of its output that the page shows in a block right below."""

    page: Path
    commands: str
    shown: list[str]

    def find_lines(self, printed: list[str]) -> list[str]:
        """Return the shown lines that are printed, in order, and the most similar ones instead of others."""
        found: list[str] = []
        place = 0
        for line in self.shown:
            cut = [_cut_like(line, one) for one in printed[place:]]
            same = next((i for i, one in enumerate(cut) if _is_same(line, one)), None)
            if same is not None:
                place += same + 1
            similar = [line] if same is not None else difflib.get_close_matches(line, cut, n=1, cutoff=0)
            found += [line] if line in ("", ELIDED) else similar
        return found


def _cut_like(shown: str, printed: str) -> str:
    """Return the beginning of a printed line, if the page shows only the beginning of its line."""
    if not shown.endswith(f" {ELIDED}"):
        return printed
    clauses = re.split(r"(?<=[,;:]) ", printed)
    n_shown = len(re.split(r"(?<=[,;:]) ", shown)) - 1
    return " ".join([*clauses[:n_shown], ELIDED])


def scripts(page: Path) -> list[Script]:
    """Return the blocks of the kind `sh`, each with the block of the kind `text` that follows it at once."""
    pattern = r"^( *)```sh\n(.*?)^\1```$(?:\n\n\1```text\n(.*?)^\1```$)?"
    found = re.findall(pattern, read_page(page), re.DOTALL | re.MULTILINE)
    return [
        Script(page, _unindent(commands, indent), _unindent(shown, indent).splitlines())
        for indent, commands, shown in found
    ]


class Terminal:
    """A shell that keeps its folder from one command to the next."""

    def __init__(self, crnr: Runner, here: Path, home: Path) -> None:
        self.crnr, self.here, self.home = crnr, here, home

    def run(self, command: str) -> list[str]:
        """Return the lines that a command prints, messages among them; it must succeed."""
        place = self.home / ".folder"
        quoted = shlex.quote(str(place))
        script = (
            f"export HOME={shlex.quote(str(self.home))}; cd {shlex.quote(str(self.here))}; exec 2>&1\n"
            f"{command}\npwd > {quoted}"
        )
        done = self.crnr.bash(script)
        assert done.exit == 0, done.out
        self.here = Path(place.read_text().removesuffix("\n"))
        return [line.rstrip() for line in done.out.splitlines()]


def replace_lines(page: Path, old: list[str], new: list[str]) -> None:
    """Replace lines that a page shows in a block."""
    if old != new:
        before, after = ("".join(f"{line}\n" for line in [*lines, "```"]) for lines in (old, new))
        text = read_page(page)
        assert before in text
        page.write_text(text.replace(before, after), encoding="utf-8", newline="\n")


def spans_of_code(page: Path) -> Iterator[str]:
    """Yield what is between backticks in a line, and every line of blocks that has a command of crnr."""
    text = read_page(page)
    for kind in ("sh", "bash", "console", "text"):
        for block in code_blocks(page, kind):
            yield from (line for line in block.replace("\\\n", " ").splitlines() if "crnr " in line)
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))
