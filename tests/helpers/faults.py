"""Helpers for the tests of faults: a runner that records all output, and the page of errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.paths import DOCS, TESTS
from helpers.runner import Outcome, Runner, read_rows, rows
from helpers.samples import draw_image

FOLDER = TESTS / "faults"
PAGE = DOCS / "reference" / "errors.md"
INTRODUCTION = """\
# Errors and edge cases

If a query cannot be used, its row has no label, its `status` gives the reason, the run continues, and the
exit code is 3. If a gallery, a source of a gallery or an option cannot be used, crnr prints one line on
stderr and exits with 1 or 2. Existing files are never lost. `--strict` stops at the first file that cannot be
used, and `--max-failure-rate` stops when too many fail. [Status values](output.md#status-values) lists causes
and remedies.

This page is generated: the tests in `tests/faults` write it from the output of crnr. Do not edit it.

## Index by symptom
"""
# What a reader looks for, and the sections about it.
SYMPTOMS = {
    "Answers look wrong or are missing": (1, 3, 17, 18, 19, 20, 21, 42),
    "An image cannot be read": (10, 11, 12, 13, 14, 15, 16, 30),
    "Files or folders are left out, or found twice": (9, 30, 31, 32, 39, 43),
    "A class or file has a strange name": (4, 5, 6, 7),
    "A gallery is refused": (2, 4, 22, 27, 28, 29, 41),
    "A feature file is refused": (22, 23, 24, 25, 26, 29),
    "An output cannot be written": (33, 34, 37, 38),
    "A run was stopped": (35, 36, 40),
    "crnr runs in cron, without a network or with little memory": (8, 41, 44),
}
STATUSES = (
    "zero_norm",
    "not_image",
    "empty_file",
    "truncated",
    "decode_error",
    "too_large",
    "non_finite",
    "unreadable",
    "vanished",
    "not_regular",
)
# Text that differs between machines, and is left out of the page.
VARYING = re.compile(r"; \d+\.\d s, \d+\.\d [kM]B| \(\d+ bytes not processed\)")

CLASSIFY = "classify queries -o out.csv"
GOOD = {"queries/good.png": "ok"}


class Case(Runner):
    """A runner that checks what crnr prints, and records it for the page."""

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
        """Run crnr, in a process if there are options for one, and `check` it. `shown` is for the page."""
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
        printed = VARYING.sub("", outcome.err).splitlines()
        assert printed == list(err)
        assert outcome.exit == exit
        assert out is None or outcome.out == out
        lines = [f"$ {shown}", *printed, f"exit {exit}"]
        if statuses is not None:
            table = read_rows(self.here / "out.csv") if outcome.out == "" else rows(outcome.out)
            found = {row["path"]: row["status"] for row in table}
            assert found == statuses
            lines += [f"{ascii(path)[1:-1]}: {status}" for path, status in found.items() if status != "ok"]
        self.transcript += ["    " + _ascii_only(line) for line in lines] + [""]

    def build(self, arguments: str = "gallery") -> None:
        """Build a gallery without showing it on the page."""
        outcome = self("build", *shlex.split(arguments), "-q")
        assert outcome == Outcome(0, "", "")

    def section(self, number: int, title: str, about: str) -> str:
        """The section of the page about this fault."""
        text = " ".join(about.split())
        return "\n".join([f"## {number}. {title}", "", *([text, ""] if text else []), *self.transcript])


def _ascii_only(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def written_sections() -> dict[int, str]:
    """The current sections of the page, by number."""
    text = PAGE.read_text() if PAGE.exists() else ""
    parts = re.split(r"^(?=## \d+\. )", text, flags=re.MULTILINE)[1:]
    last = len(parts) - 1
    return {
        int(part[3:].split(".")[0]): part if i == last else part.removesuffix("\n")
        for i, part in enumerate(parts)
    }


def write_section(number: int, section: str) -> None:
    """Put one section into the page, in the order of numbers."""
    sections = written_sections() | {number: section}
    PAGE.write_text("\n".join([make_head(sections), *(sections[n] for n in sorted(sections))]))


def make_head(sections: Mapping[int, str]) -> str:
    """Return the introduction and the index, with links to the sections that exist."""
    status_lines = []
    for status in STATUSES:
        found = [n for n, text in sections.items() if re.search(f": {status}(,|$)", text, re.MULTILINE)]
        links = ", ".join(_link(sections[number]) for number in sorted(found))
        status_lines.append(f"| `{status}` | {links} |")
    symptom_lines = []
    for symptom, numbers in SYMPTOMS.items():
        links = [f"- {_link(sections[number])}" for number in numbers if number in sections]
        symptom_lines += [f"### {symptom}", "", *links, ""]
    table = ["### A row has a status", "", "| status | sections |", "|---|---|", *status_lines, ""]
    return "\n".join([INTRODUCTION, *table, *symptom_lines])


def _link(section: str) -> str:
    """Return a link to a section, whose anchor is its heading as forges and Sphinx make it."""
    heading = section.partition("\n")[0].removeprefix("## ")
    anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return f"[{heading}](#{anchor})"


def make_queries(folder: str = "queries") -> Path:
    """One good image of the class ant, queries/good.png."""
    Path(folder).mkdir()
    draw_image(0, 99).save(Path(folder) / "good.png")
    return Path(folder)


def labelled(answered: int, total: int) -> str:
    """What classify prints after a run that wrote out.csv."""
    return f"labelled {answered} of {total} {'query' if total == 1 else 'queries'}: out.csv"
