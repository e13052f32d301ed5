"""The rules of the house, as tests: who may import whom, and who may speak to the terminal."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crnr_cli

PACKAGE = Path(crnr_cli.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
CORE = [path for path in MODULES if "cli" not in path.relative_to(PACKAGE).parts and path.stem != "__main__"]


def imported_names(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_command_line_touches_the_terminal(path: Path) -> None:
    assert not {"typer", "rich"} & {name.split(".")[0] for name in imported_names(path)}


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        pytest.param(
            "crnr_cli.cli; crnr_cli.cli.application()", "numpy h5py scipy PIL rich", id="crnr --help"
        ),
        pytest.param("crnr_cli.jobs.classify", "scipy PIL rich", id="classify, which never factorizes"),
        pytest.param(
            "crnr_cli.pictures.decoder_process",
            "numpy h5py scipy typer rich dataclasses hashlib",
            id="a decoder process",
        ),
    ],
)
def test_what_starts_often_starts_light(module: str, heavy: str) -> None:
    # What measures the coverage is loaded before.
    code = (
        f"import sys; before = set(sys.modules); import {module}\n"
        f"print([name for name in {heavy.split()} if name in sys.modules and name not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
