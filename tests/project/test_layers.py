"""The rules of the house, as tests: one home per library, short files and functions, light starts.

Which room may import which is checked by import-linter, whose contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import crnr_cli
from crnr_cli.cli import vector_options
from crnr_cli.cli.values import ExtractorName
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.registry import EXTRACTORS, STEPS
from helpers.runner import declared_commands

PACKAGE = Path(crnr_cli.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
ROOT_MODULES = {"__init__", "__main__", "errors", "arrays", "progress", "wording", "estimators"}
REGISTRIES = {"methods", "cli"}  # rooms whose door is more than a docstring
# Where each library may be imported: a room, or a module of the root.
HOMES = {
    "PIL": {"pictures"},
    "distributed": {"cluster"},
    "faiss": {"solvers"},
    "h5py": {"sources", "gallery"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "matplotlib": {"report"},
    "onnx": {"models"},
    "onnxruntime": {"recipe"},
    "pyarrow": {"system"},
    "rich": {"cli"},
    "scipy": {"solvers", "recipe", "results", "sources"},
    "sklearn": {"methods", "estimators"},
    "psutil": {"system"},
    "subprocess": {"pictures", "sources", "system"},
    "typer": {"cli"},
}
OPTIONS_OF_OTHERS = {"--local-dir"}  # in commands of other programs that crnr shows
# They run what a file tells them to. (Dask, which exchanges pickles, imports it itself.)
NEVER = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
LONGEST_FILE = 350
LONGEST_FUNCTION = 60
LONGEST_COMMAND = 80  # a function in cli/, most of it declarations of options
MOST_PARAMETERS = 8

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_libraries(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


@each_module
def test_a_library_has_one_home(path: Path) -> None:
    assert not {name for name in imported_libraries(path) & HOMES.keys() if room_of(path) not in HOMES[name]}


@each_module
def test_nothing_is_unpickled(path: Path) -> None:
    assert not imported_libraries(path) & NEVER
    assert "allow_pickle=True" not in path.read_text()


def test_the_root_has_few_modules() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == ROOT_MODULES


@pytest.mark.parametrize("door", sorted(PACKAGE.glob("*/__init__.py")), ids=lambda door: door.parent.name)
def test_the_door_of_a_room_is_empty(door: Path) -> None:
    """Otherwise whoever enters loads all of it: a decoder process would load NumPy."""
    body = ast.parse(door.read_text()).body
    assert ast.get_docstring(ast.Module(body, [])) is not None
    assert len(body) == 1 or door.parent.name in REGISTRIES


@each_module
def test_files_and_functions_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST_FILE
    longest = LONGEST_COMMAND if room_of(path) == "cli" else LONGEST_FUNCTION
    found = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in functions(path)}
    assert {name: length for name, length in found.items() if length > longest} == {}


@pytest.mark.parametrize("path", [path for path in MODULES if room_of(path) != "cli"], ids=str)
def test_functions_have_few_parameters(path: Path) -> None:
    found = {
        f.name: [a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs) if a.arg != "self"]
        for f in functions(path)
    }
    assert {name: names for name, names in found.items() if len(names) > MOST_PARAMETERS} == {}


def declared_options() -> set[str]:
    commands = declared_commands().values()
    own = {name for command in commands for parameter in command.params for name in parameter.opts}
    return own | {"--version", "--help"} | OPTIONS_OF_OTHERS


@each_module
def test_every_option_that_is_named_exists(path: Path) -> None:
    """A remedy in an error must name an option that some command has."""
    texts = [
        node.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    named = {name for text in texts for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]\b", text)}
    assert named <= declared_options()


def test_every_step_of_a_recipe_has_its_options() -> None:
    """One for build and compare, one for tune; both are named like the step."""
    for group in (vector_options.Steps, vector_options.TriedSteps):
        assert [field.name for field in fields(group)] == list(STEPS)


def test_every_extractor_has_its_name_and_options() -> None:
    """All but a network are named; a network is named by its file."""
    assert [*ExtractorName.names, Network.name] == list(EXTRACTORS)
    options = {field.name for field in fields(vector_options.Vectors)}
    for name in ExtractorName.names:
        assert set(EXTRACTORS[name].settings) <= options


def test_steps_are_left_out_and_tried_by_default_as_they_say() -> None:
    assert vector_options.Steps().made() == ()
    assert {name: tuple(tried) for name, tried in vector_options.TriedSteps().parsed().items()} == {
        name: step.tried for name, step in STEPS.items()
    }


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
