"""crnr uses public names of Typer alone: a Typer that keeps Click elsewhere, or has another one, will do."""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer

from helpers.paths import ROOT
from helpers.runner import Outcome, Runner

PRIVATE = "_click"  # the module of Typer that is to change
RENAMED = "_vendored_click"
SOURCES = [
    path for part in ("crnr_cli", "tests", "benchmarks", "docs") for path in (ROOT / part).rglob("*.py")
]


@pytest.fixture(scope="module")
def other_typer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes whose Typer is a copy in which the private module has another name."""
    folder = tmp_path_factory.mktemp("other typer")
    installed = Path(typer.__file__).parent
    copy = folder / "typer"
    shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("__pycache__"))
    if (copy / PRIVATE).exists():  # some day it will not
        (copy / PRIVATE).rename(copy / RENAMED)
    for path in copy.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        path.write_text(re.sub(rf"\b{PRIVATE}\b", RENAMED, source), encoding="utf-8")
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": paths, "COLUMNS": "120"}


def run(crnr: Runner, environment: Mapping[str, str], line: str) -> Outcome:
    return crnr.process(*line.split(), env={**os.environ, "COLUMNS": "120", **environment})


def test_the_other_typer_lacks_the_private_module(crnr: Runner, other_typer: dict[str, str]) -> None:
    code = (
        "import importlib.util, crnr_cli.cli, typer\n"
        "crnr_cli.cli.make_application()\n"
        f"print(typer.__file__, importlib.util.find_spec('typer.{PRIVATE}'))"
    )
    done = crnr.process(program=(sys.executable, "-c", code), env=other_typer)
    file = Path(other_typer["PYTHONPATH"].split(os.pathsep)[0]) / "typer" / "__init__.py"
    assert done == Outcome(0, f"{file} None\n", "")


@pytest.mark.slow
def test_build_classify_and_evaluate(crnr: Runner, images: Path, other_typer: dict[str, str]) -> None:
    built = run(crnr, other_typer, "build gallery --method nn")
    assert (built.exit, built.out) == (0, "")
    assert built.err.startswith("gallery.h5: 3 classes, 9 examples, vectors of length 128, method nn; ")
    assert run(crnr, other_typer, "classify queries -o out.csv") == Outcome(
        0, "", "labelled 9 of 9 queries: out.csv\n"
    )
    assert run(crnr, other_typer, "classify queries -q").out == (images / "out.csv").read_text()
    scored = run(crnr, other_typer, "evaluate out.csv --min-accuracy 1")
    assert (scored.exit, scored.err) == (0, "")
    assert scored.out.startswith("accuracy  1.0000 ")
    for line in ("classify queries", "evaluate out.csv", "info gallery.h5 --json"):
        assert run(crnr, other_typer, line) == run(crnr, {}, line)


@pytest.mark.parametrize(
    ("line", "exit", "error"),
    [
        ("", 2, ""),
        ("--help", 0, ""),
        ("build --help", 0, ""),
        ("help model get", 0, ""),
        ("--version", 0, ""),
        ("buidl x", 2, "no such command: 'buidl'; did you mean build? (see `crnr --help`)"),
        ("build", 2, "missing argument: SOURCE..., as in `crnr build gallery/` (see `crnr build --help`)"),
        ("sort out.csv", 2, "missing argument: FOLDER (see `crnr sort --help`)"),
        ("build x --lamm 1", 2, "no such option: --lamm; did you mean --lam? (see `crnr build --help`)"),
        ("build x --lam", 2, "--lam needs a value (see `crnr build --help`)"),
        ("build x --quiet=1", 2, "--quiet takes no value (see `crnr build --help`)"),
        (
            "build x --power 0",
            2,
            "--power must be above 0 and at most 100, not 0 (see `crnr build --help`)",
        ),
        (
            "build x --dtype int8",
            2,
            "--dtype: 'int8' is not one of float32, float64 (see `crnr build --help`)",
        ),
        ("info a b c", 2, "unexpected argument: b c (see `crnr info --help`)"),
        ("build x", 1, "x: no such file or folder"),
    ],
)
def test_help_and_errors_are_the_same(
    crnr: Runner, other_typer: dict[str, str], line: str, exit: int, error: str
) -> None:
    found = run(crnr, other_typer, line)
    said = error.replace("(see `crnr", "(see `python -m crnr_cli")
    assert (found.exit, found.err) == (exit, f"error: {said}\n" if said else "")
    assert bool(found.out) == (not error)
    assert found == run(crnr, {}, line)


def test_names_are_completed(crnr: Runner, other_typer: dict[str, str]) -> None:
    line = {"COMP_WORDS": "crnr build x --method n", "COMP_CWORD": "4", "_CRNR_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv[0] = 'crnr'; from crnr_cli.cli import main; main()"
    done = crnr.process(program=(sys.executable, "-c", code), env={**other_typer, **line})
    assert done == Outcome(0, "nrc\nnsc\nnn\n", "")


def imported_names(path: Path) -> set[str]:
    """Return the modules, and the names from modules, that a file imports, if it mentions Typer at all."""
    names: set[str] = set()
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if "typer" in source else ():
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_nothing_imports_a_private_name_of_typer() -> None:
    assert len(SOURCES) > 200
    found = {str(path.relative_to(ROOT)): imported_names(path) for path in SOURCES}
    private = re.compile(r"typer\.(?:\w+\.)*_")
    assert {path: names for path, names in found.items() if any(map(private.match, names))} == {}
