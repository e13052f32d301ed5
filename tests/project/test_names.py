"""One meaning per name: a public function or class is defined in one module of the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import crnr_cli
from crnr_cli.cli import COMMANDS

PACKAGE = Path(crnr_cli.__file__).parent


def homes() -> dict[str, list[str]]:
    """Return the modules that define each public function or class at their top level, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_definition and not node.name.startswith("_"):
                found[node.name].add(path.relative_to(PACKAGE).as_posix())
    return {name: sorted(modules) for name, modules in found.items()}


def is_command_with_its_job(name: str, modules: list[str]) -> bool:
    """Return whether these are the function of a command, in cli/, and the function of its job, in jobs/."""
    rooms = [module.split("/")[0] for module in modules]
    return name in {command.replace(" ", "_") for command in COMMANDS} and rooms == ["cli", "jobs"]


def shared_names() -> dict[str, list[str]]:
    return {
        name: modules
        for name, modules in sorted(homes().items())
        if len(modules) > 1 and not is_command_with_its_job(name, modules)
    }


def test_a_public_name_has_one_home() -> None:
    shared = shared_names()
    listed = "\n".join(f"  {name}: {', '.join(modules)}" for name, modules in shared.items())
    assert not shared, f"defined in several modules; rename all but one:\n{listed}"


def test_commands_share_their_names_with_jobs() -> None:
    assert is_command_with_its_job("build", homes()["build"])
    assert not is_command_with_its_job("build", ["cli/build.py", "gallery/fit.py"])
    assert not is_command_with_its_job("Output", ["cli/options.py", "jobs/build.py"])
