"""Run crnr as if on macOS or Windows; `other_systems/sitecustomize.py` lists the differences."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.paths import TESTS
from helpers.runner import Outcome, Runner

LINUX, MACOS, WINDOWS = "linux", "darwin", "win32"
OTHERS = (MACOS, WINDOWS)
IMITATIONS = str(TESTS / "helpers" / "other_systems")


def environment(system: str) -> dict[str, str]:
    """Return the environment of a process and its children, whose galleries are the same to the byte."""
    found = os.environ | {"SOURCE_DATE_EPOCH": "1800000000"}
    if system != LINUX:
        found |= {"CRNR_TEST_SYSTEM": system, "PYTHONPATH": IMITATIONS}
    if system == WINDOWS:  # where streams have a code page, and files use the locale
        found |= {"PYTHONIOENCODING": "cp1252", "PYTHONWARNDEFAULTENCODING": "1"}
    return found


@dataclass(frozen=True)
class On:
    """crnr in a folder, on one of the systems."""

    system: str
    here: Path

    def __call__(self, *arguments: object, **options: Any) -> Outcome:
        return Runner(self.here).process(*arguments, env=environment(self.system), **options)

    def python(self, code: str) -> Outcome:
        return Runner(self.here).process(program=self.part_of_crnr(code), env=environment(self.system))

    def part_of_crnr(self, code: str) -> tuple[str, ...]:
        """Return the program that runs code which is a part of crnr, as far as it can tell."""
        part = f"exec({code!r}, {{'__name__': 'crnr_cli.test', '__package__': 'crnr_cli'}})"
        return sys.executable, "-c", part
