"""The page has a section for every fault, and every fault has one test."""

from __future__ import annotations

import re

from helpers.faults import FOLDER, PAGE, STATUSES, SYMPTOMS, make_head, written_sections


def test_the_page_has_a_section_for_every_fault() -> None:
    marked = [
        int(number)
        for path in FOLDER.glob("test_*.py")
        for number in re.findall(r"^@pytest\.mark\.fault\(\s*(\d+),", path.read_text(), re.MULTILINE)
    ]
    assert sorted(marked) == list(range(1, 45))
    assert list(written_sections()) == sorted(marked)
    assert PAGE.read_text().startswith(make_head(written_sections()))


def test_the_index_leads_to_every_section() -> None:
    assert {number for numbers in SYMPTOMS.values() for number in numbers} == set(written_sections())
    text = PAGE.read_text()
    for status in STATUSES:
        assert re.search(rf"^\| `{status}` \| \[\d+\. .* \|$", text, re.MULTILINE)
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^##+ (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
