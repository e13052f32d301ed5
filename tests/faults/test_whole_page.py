"""The page has a section for every fault, and every fault has one test."""

from __future__ import annotations

import re

from helpers.faults import FOLDER, INTRODUCTION, PAGE, written_sections


def test_the_page_has_a_section_for_every_fault() -> None:
    marked = [
        int(number)
        for path in FOLDER.glob("test_*.py")
        for number in re.findall(r"^@pytest\.mark\.fault\(\s*(\d+),", path.read_text(), re.MULTILINE)
    ]
    assert sorted(marked) == list(range(1, 45))
    assert list(written_sections()) == sorted(marked)
    assert PAGE.read_text().startswith(INTRODUCTION)
