"""What the tests of faults share: a runner that writes down what crnr says, and the page made of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.paths import DOCS, TESTS
from helpers.runner import Outcome, Runner, read_rows, rows
from helpers.samples import picture

FOLDER = TESTS / "faults"
PAGE = DOCS / "faults.md"
INTRODUCTION = """\
# What goes wrong, and what crnr does

A bad query costs one row: its `status` says why, the run goes on, and the exit code is 3. A bad gallery, a
bad source of one, or a bad option is one line on stderr and exit code 1 or 2. What was there before is never
lost. `--strict` stops at the first input that has to be skipped, `--max-failure-rate` at too many of them.

This page is written by the tests in `tests/faults` from what crnr did there; do not edit it.
"""
# What differs between machines, and is left out of the page.
VARYING = re.compile(r"; \d+\.\d s, \d+\.\d MB| \(\d+ bytes not processed\)")

CLASSIFY = "classify queries -o out.csv"
GOOD = {"queries/good.png": "ok"}


class Case(Runner):
    """A runner that checks what crnr says and keeps it for the page."""

    def __init__(self, here: Path) -> None:
        super().__init__(here)
        self.transcript: list[str] = []

    def run(
        self,
        command: str,
        *,
        exit: int,
        err: Sequence[str] = (),
        out: str | None = "",
        statuses: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        shown: str | None = None,
        **process: Any,
    ) -> Outcome:
        """Run crnr, as a process if that needs options, and `check` it; the page shows `shown` instead."""
        arguments = shlex.split(command)
        outcome = self.process(*arguments, **process) if process else self(*arguments, stdin=stdin)
        self.check(outcome, shown or f"crnr {command}", exit=exit, err=err, out=out, statuses=statuses)
        return outcome

    def check(
        self,
        outcome: Outcome,
        shown: str,
        *,
        exit: int,
        err: Sequence[str] = (),
        out: str | None = "",
        statuses: Mapping[str, str] | None = None,
    ) -> None:
        """Compare exit code, lines of stderr, stdout unless None, and status by file in the CSV."""
        said = VARYING.sub("", outcome.err).splitlines()
        assert said == list(err)
        assert outcome.exit == exit
        assert out is None or outcome.out == out
        lines = [f"$ {shown}", *said, f"exit {exit}"]
        if statuses is not None:
            table = read_rows(self.here / "out.csv") if outcome.out == "" else rows(outcome.out)
            found = {row["path"]: row["status"] for row in table}
            assert found == statuses
            lines += [f"{ascii(path)[1:-1]}: {status}" for path, status in found.items() if status != "ok"]
        self.transcript += ["    " + _ascii_only(line) for line in lines] + [""]

    def build(self, arguments: str = "gallery") -> None:
        """Build a gallery that is not what the test is about, and so is not shown."""
        outcome = self("build", *shlex.split(arguments), "-q")
        assert outcome == Outcome(0, "", "")

    def section(self, number: int, title: str, about: str) -> str:
        """The section of the page on this fault."""
        words = " ".join(about.split())
        return "\n".join([f"## {number}. {title}", "", *([words, ""] if words else []), *self.transcript])


def _ascii_only(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def written_sections() -> dict[int, str]:
    """The sections of the page as it is, by number."""
    text = PAGE.read_text() if PAGE.exists() else ""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]
    last = len(parts) - 1
    return {
        int(part[3:].split(".")[0]): part if i == last else part.removesuffix("\n")
        for i, part in enumerate(parts)
    }


def write_section(number: int, section: str) -> None:
    """Put one section into the page, in the order of numbers."""
    sections = written_sections() | {number: section}
    PAGE.write_text("\n".join([INTRODUCTION, *(sections[n] for n in sorted(sections))]))


def make_queries(folder: str = "queries") -> Path:
    """One good picture of the class ant, queries/good.png."""
    Path(folder).mkdir()
    picture(0, 99).save(Path(folder) / "good.png")
    return Path(folder)


def labelled(answered: int, total: int) -> str:
    """What classify reports of a run that wrote out.csv."""
    return f"{answered} of {total} inputs labelled: out.csv"


def without(*reasons: str) -> str:
    """What classify reports of inputs without an answer."""
    return f"without an answer: {', '.join(reasons)} (see the column status)"
