"""The rules of the house, as tests: a library has one home, a file one thought, and starts are light.

Which room may import which is checked by import-linter, whose contracts are in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from crnr_cli.cli import COMMANDS, recipe_options
from crnr_cli.cli.parsing import ExtractorName
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.recipe import EXTRACTORS, STEPS, Recipe
from crnr_cli.recipe.steps import Power
from helpers.modules import MODULES, PACKAGE, Module, importers, refuse, refuse_where
from helpers.runner import declared_commands

ROOT_MODULES = {
    "__init__",
    "__main__",
    "api",
    "arrays",
    "choices",
    "errors",
    "estimators",
    "progress",
    "records",
    "wording",
}
REGISTRIES = {"methods", "cli"}  # rooms whose door is more than a docstring
# Where each library may be imported: a room, or a module of the root.
HOMES = {
    "PIL": {"images"},
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
    "pillow_heif": {"images"},
    "psutil": {"system"},
    "subprocess": {"images", "sources", "system"},
    "threadpoolctl": {"system"},
    "typer": {"cli"},
}
OPTIONS_OF_OTHERS = {
    "--local-dir",
    "--force",
    "--editable",
    "--python",
    "--no-deps",
}  # in commands of other programs that crnr shows
# They run what a file tells them to. (Dask, which exchanges pickles, imports it itself.)
NEVER = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "torch"}
LONGEST_FILE = 500
SHORTEST_FILE = 60  # unless several use it, or it has a reason:
SHORT_FILES: dict[str, str] = {}
LONGEST_FUNCTION = 60
LONGEST_COMMAND = 80  # a function in cli/, most of it declarations of options
MOST_PARAMETERS = 8


def imported_libraries(module: Module) -> set[str]:
    return {name.split(".")[0] for name in module.imported}


def test_a_library_has_one_home() -> None:
    refuse_where(
        lambda module: {
            name for name in imported_libraries(module) & HOMES.keys() if module.room not in HOMES[name]
        }
    )


def test_names_are_compared_in_one_place() -> None:
    """Unicode forms are looked at in one module, whose keys tell whether two names are the same."""
    users = [module.name for module in MODULES if "unicodedata" in imported_libraries(module)]
    assert users == ["system/names.py"]


def test_one_module_writes_csv_by_the_library() -> None:
    """So that what needs quotes has them; the predictions have a faster writer of their own."""
    pattern = re.compile(r"\bcsv\.(DictW|w)riter|from csv import")
    assert [module.name for module in MODULES if pattern.search(module.text)] == ["system/csv_file.py"]


def test_nothing_is_unpickled() -> None:
    refuse_where(
        lambda module: [*(imported_libraries(module) & NEVER), *re.findall("allow_pickle=True", module.text)]
    )


def test_the_root_has_few_modules() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == ROOT_MODULES


def test_the_door_of_a_room_is_empty() -> None:
    """Otherwise whoever enters loads all of it: a decoder process would load NumPy."""
    for door in sorted(PACKAGE.glob("*/__init__.py")):
        body = ast.parse(door.read_text()).body
        assert ast.get_docstring(ast.Module(body, [])) is not None, door
        assert len(body) == 1 or door.parent.name in REGISTRIES, door


def test_files_are_short_enough_to_be_read_at_once() -> None:
    lengths = {module.name: line_count(module) for module in MODULES}
    refuse({name: f"{n} lines" for name, n in lengths.items() if n > LONGEST_FILE})


def test_no_short_file_is_a_piece_of_the_only_one_that_uses_it() -> None:
    short = [module for module in MODULES if line_count(module) < SHORTEST_FILE]
    users = {module.name: importers(module) for module in short if not has_its_own_file(module)}
    pieces = {name: f"only for {by}; merge them" for name, by in users.items() if len(by) < 2}
    listed = dict.fromkeys(SHORT_FILES, "is no such file (any more); drop its reason")
    refuse({name: why for name, why in (pieces | listed).items() if (name in pieces) != (name in listed)})


def line_count(module: Module) -> int:
    return len(module.text.splitlines())


def has_its_own_file(module: Module) -> bool:
    """Commands, the doors of rooms and what runs as a process do, whatever their length."""
    command = module.path.stem.replace("_", " ")
    return (
        (module.room == "cli" and command in COMMANDS)
        or module.path.stem in ("__init__", "__main__")
        or module.path.stem.endswith("_process")
    )


def test_functions_are_short() -> None:
    def long_functions(module: Module) -> dict[str, int]:
        longest = LONGEST_COMMAND if module.room == "cli" else LONGEST_FUNCTION
        lengths = {f.name: (f.end_lineno or 0) - f.lineno + 1 for f in module.functions}
        return {name: length for name, length in lengths.items() if length > longest}

    refuse_where(long_functions)


def test_functions_have_few_parameters() -> None:
    def crowded_functions(module: Module) -> dict[str, list[str]]:
        found = {
            f.name: [
                a.arg for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs) if a.arg != "self"
            ]
            for f in module.functions
        }
        return {name: names for name, names in found.items() if len(names) > MOST_PARAMETERS}

    refuse_where(lambda module: module.room != "cli" and crowded_functions(module))


def test_every_option_that_is_named_exists() -> None:
    """A remedy in an error must name an option that some command has."""
    commands = declared_commands().values()
    own = {name for command in commands for parameter in command.params for name in parameter.opts}
    known = own | {"--version", "--help"} | OPTIONS_OF_OTHERS

    def unknown_options(module: Module) -> set[str]:
        texts = [
            node.value
            for node in module.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        option = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]\b")
        return {name for text in texts for name in option.findall(text)} - known

    refuse_where(unknown_options)


def test_every_step_of_a_recipe_has_its_options() -> None:
    """One for build and compare, one for tune; both are named like the step."""
    for group in (recipe_options.Steps, recipe_options.TriedSteps):
        assert [field.name for field in fields(group)] == list(STEPS)


def test_every_extractor_has_its_name_and_options() -> None:
    """All but a network are named; a network is named by its file."""
    assert [*ExtractorName.names, Network.name] == list(EXTRACTORS)
    options = {field.name for field in fields(recipe_options.VectorOptions)}
    for name in ExtractorName.names:
        assert set(EXTRACTORS[name].settings) <= options


def test_steps_are_off_and_tried_by_their_own_defaults() -> None:
    """Only the power is automatic, and features that are in files already keep it off."""
    assert recipe_options.Steps().make_steps() == (Power(None),)
    assert Recipe.of(3, steps=recipe_options.Steps().make_steps()).steps == ()
    assert {name: tuple(tried) for name, tried in recipe_options.TriedSteps().parse().items()} == {
        name: step.tried for name, step in STEPS.items()
    }


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        pytest.param(
            "crnr_cli.cli; crnr_cli.cli.make_application()", "numpy h5py scipy PIL rich", id="crnr --help"
        ),
        pytest.param("crnr_cli.jobs.classify", "scipy PIL rich", id="classify, which never factorizes"),
        pytest.param(
            "crnr_cli.cli.classify, crnr_cli.jobs.classify",
            "crnr_cli.cli.recipe_options crnr_cli.gallery.hdf5_output crnr_cli.models.onnx_files "
            "crnr_cli.solvers.indexes crnr_cli.sources.formats.extracted crnr_cli.system.parquet",
            id="classify, without what only other commands and options need",
        ),
        pytest.param(
            "crnr_cli.images.decoder_process",
            "numpy h5py scipy typer rich dataclasses hashlib",
            id="a decoder process",
        ),
    ],
)
def test_hot_modules_import_no_heavy_packages(module: str, heavy: str) -> None:
    # Coverage is loaded before.
    code = (
        f"import sys; before = set(sys.modules); import {module}\n"
        f"print([name for name in {heavy.split()} if name in sys.modules and name not in before])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
