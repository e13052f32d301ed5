"""The scripts of docs/how-to/cluster.md, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from helpers.cluster import assert_same_rows
from helpers.paths import ROOT
from helpers.runner import Runner

pytestmark = pytest.mark.slow


def _scripts() -> dict[str, str]:
    """Return the scripts of the page, by a word that only one of them has."""
    blocks = re.findall(
        r"```bash\n(.*?)```", (ROOT / "docs" / "how-to" / "cluster.md").read_text(), re.DOTALL
    )
    words = ("SLURM_ARRAY_TASK_ID", "| parallel", "| xargs", "crnr evaluate")
    return {word: next(block for block in blocks if word in block) for word in words}


def _bash(crnr: Runner, script: str, **environment: str) -> str:
    result = crnr.bash(script, os.environ | environment)
    assert result.exit == 0, result.err
    return result.out


def _check_joined(crnr: Runner) -> None:
    """All parts together are what one run gives."""
    whole = _bash(crnr, "find queries -type f | sort | crnr classify - -g gallery.h5")
    joined = _bash(crnr, _scripts()["crnr evaluate"])
    assert "9 of 9" in joined
    assert_same_rows(Path("out.csv").read_text(), whole, sorted(map(str, Path("queries").rglob("*.png"))))


def test_the_slurm_array(crnr: Runner, images: Path) -> None:
    assert crnr("build", "gallery").exit == 0
    _bash(crnr, _scripts()["| xargs"].split("ls part")[0])  # the list, and its parts
    for task in range(4):
        _bash(crnr, _scripts()["SLURM_ARRAY_TASK_ID"], SLURM_ARRAY_TASK_ID=str(task), SLURM_CPUS_PER_TASK="1")
    _check_joined(crnr)


@pytest.mark.parametrize("tool", ["parallel", "xargs"])
def test_documented_scripts_run_one_process_per_part(crnr: Runner, images: Path, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    assert crnr("build", "gallery").exit == 0
    _bash(crnr, _scripts()[f"| {tool}"])
    _check_joined(crnr)
