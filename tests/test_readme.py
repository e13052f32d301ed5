"""The README's commands are the ones that CI runs."""

from __future__ import annotations

import re

from conftest import ROOT


def shell_lines(text: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_ci_runs_the_readmes_test_command_to_the_letter() -> None:
    tests = [line for line in shell_lines((ROOT / "README.md").read_text()) if "[test]" in line]
    assert len(tests) == 1
    assert tests[0] in (ROOT / ".ci" / "run").read_text().splitlines()
