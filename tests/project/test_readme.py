"""The README: short, with two blocks that do all the set-up, and with true output."""

from __future__ import annotations

import re

import pytest

from helpers.pages import README, ROOT, Step, code_blocks, read_page
from helpers.paths import SAMPLE_DATA
from helpers.runner import Runner

LINES = read_page(README).splitlines()
INSTALLING = [block for block in code_blocks(README, "sh") if block.startswith("python3 -m venv")]


def test_it_has_at_most_150_lines() -> None:
    assert len(LINES) <= 150


def test_photographs_come_before_line_60() -> None:
    assert any("efficientnet-lite0" in line for line in LINES[:59])


def test_ci_runs_the_two_blocks_that_install_to_the_letter() -> None:
    assert len(INSTALLING) == 2
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(f"\n{block}" in script for block in INSTALLING)
    assert INSTALLING[1].splitlines()[-1] == ".venv-test/bin/pytest -n 2"


def test_no_block_that_installs_can_reach_the_python_of_the_system() -> None:
    """If an earlier line of a pasted block fails, the next ones run all the same."""
    lines = [line for block in INSTALLING for line in block.splitlines()]
    assert [line for line in lines if re.match(r"(pip|python3? -m pip|pytest)\b", line)] == []


def test_the_shown_scores_are_printed(crnr: Runner, request: pytest.FixtureRequest) -> None:
    assert crnr("build", SAMPLE_DATA / "gallery", "-q").exit == 0
    assert crnr("classify", SAMPLE_DATA / "queries", "-q", "-o", "out.csv").exit == 0
    printed = [line.rstrip() for line in crnr("evaluate", "out.csv").out.splitlines()]
    (block,) = (block for block in code_blocks(README, "text") if block.startswith("accuracy"))
    shown = block.splitlines()
    is_true = Step("", [*shown, "..."]).is_true_of(printed)
    if request.config.getoption("--update-docs") and not is_true:
        new = "".join(f"{line}\n" for line in printed[: len(shown)])
        README.write_text(read_page(README).replace(block, new), encoding="utf-8", newline="\n")
    else:
        assert is_true, "run this test with --update-docs"


def test_its_links_lead_to_files() -> None:
    links = re.findall(r"\]\(((?!https://)[^)#]+)", read_page(README))
    assert [link for link in links if not (ROOT / link).is_file()] == []
