"""Mutation testing: small changes to the code, each of which some test should notice.

    python benchmarks/mutants.py                        # all mutants of all rooms
    python benchmarks/mutants.py gallery                # one room
    python benchmarks/mutants.py solvers/admm.py        # one file
    python benchmarks/mutants.py gallery --sample 400   # 400 mutants, drawn at random but the same every time
    python benchmarks/mutants.py results --seconds 4    # the quickest tests of each mutant, 4 seconds of them
    python benchmarks/mutants.py --survivors            # only those that survived the last time
    python benchmarks/mutants.py --unexplained          # only those of them without a reason in mutants.toml
    python benchmarks/mutants.py --report               # report on the last runs without running any
    python benchmarks/mutants.py --list solvers         # print the mutants without running any

A mutant is the package with one expression or statement changed: + becomes -, < becomes <=, a number is one
more, a keyword argument is left out, and so on. The tests of its room are run until one fails; that kills the
mutant. A mutant that passes all tests has survived: a test is missing, or the change makes no difference.

Every mutant is a fork of a process. If the change is in a function that nothing has called yet, that process
has collected all tests of the room, and the fork changes the code of the function in place. Otherwise, the
process has loaded NumPy, SciPy, scikit-learn and pytest but nothing of crnr, and the fork imports the changed
module. The fork runs only those tests that reach the changed statement: first those that killed another
change of the same function, then the quickest. Processes that a test starts itself run the code as it is.

Without a room, file or sample, benchmarks/mutants.md is written, with the reasons of mutants.toml. The exit
code is 1 if fewer mutants of a room are killed than `ROOMS` wants, or if a survivor has no reason in a room
that needs one.

Why no library: mutmut does not change what is outside functions, such as the fields of dataclasses, nor what
is in properties and most other decorated functions; cosmic-ray starts pytest, and so NumPy and scikit-learn,
again for each mutant, and changes the files of the checkout.
"""

from __future__ import annotations

import argparse
import ast
import functools
import gc
import inspect
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import accumulate
from pathlib import Path
from random import Random
from shutil import rmtree
from types import CodeType, FrameType, FunctionType
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
PACKAGE = ROOT / "crnr_cli"
RESULTS = ROOT / ".mutants.json"  # of the last run


@dataclass(frozen=True)
class Room:
    """A package whose code is changed, and the tests that have to notice it."""

    tests: tuple[str, ...]
    files: tuple[str, ...] = ("*.py",)  # of the package
    enough: float = 0.9  # the share of the mutants that must be killed
    needs_reasons: bool = True  # whether every survivor needs a reason in mutants.toml
    max_seconds: float = float("inf")  # per mutant: of the tests that reach it, only the quickest are run


ROOMS = {
    "solvers": Room(
        (
            "tests/solvers",
            "tests/methods",
            "tests/gallery/test_index.py",  # indexes of whole galleries, with tiles
            "tests/gallery/test_scenes.py",  # overlaid images
        ),
        enough=0.85,  # the others have a reason: tuned numbers, estimates, what NumPy does by itself
    ),
    "methods": Room(
        (
            "tests/methods",
            "tests/gallery/test_calibration.py",  # samples that are held out
            "tests/gallery/test_crossed.py",
            "tests/gallery/test_index.py",  # neighbours by an index
        )
    ),
    "results": Room(
        (
            "tests/results",
            "tests/cli/test_events.py",
            "tests/cli/test_taxa.py",
            "tests/cli/test_thresholds.py",
            "tests/jobs/test_classify.py",
            "tests/jobs/test_classify_update.py",  # records, and rows that are kept
            "tests/jobs/test_correct.py",  # marks in edited CSVs
            "tests/jobs/test_names_of_systems.py",  # one class in several spellings
        )
    ),
    "gallery": Room(
        (
            "tests/gallery",
            "tests/cli/test_events.py",
            "tests/faults/test_features.py",
            "tests/faults/test_galleries.py",
            "tests/faults/test_machine.py",  # too little memory
            "tests/jobs/test_audit.py",
            "tests/jobs/test_build.py",
            "tests/jobs/test_build_cache.py",
            "tests/jobs/test_classify.py",
            "tests/jobs/test_classify_cache.py",
            "tests/jobs/test_cleaning.py",
            "tests/jobs/test_extract.py",
            "tests/jobs/test_extract_stopped.py",
            "tests/jobs/test_extract_update.py",
            "tests/jobs/test_inspect.py",
            "tests/jobs/test_remove_patterns.py",
            "tests/jobs/test_rename.py",
            "tests/jobs/test_sureness.py",
            "tests/jobs/test_tune_extractors.py",
            "tests/jobs/test_update.py",
            "tests/recipe/test_network.py",
            "tests/recipe/test_parts.py",
            "tests/recipe/test_recipe.py",
            "tests/test_api.py",
        ),
        enough=0.85,
        needs_reasons=False,
        max_seconds=10.0,
    ),
    "jobs": Room(
        (
            "tests/cli/test_boxes.py",
            "tests/cli/test_cli.py",
            "tests/cli/test_command.py",
            "tests/cli/test_events.py",
            "tests/cli/test_first_mistakes.py",
            "tests/cli/test_sort.py",
            "tests/cli/test_taxa.py",
            "tests/cli/test_thresholds.py",
            "tests/gallery/test_copies.py",
            "tests/gallery/test_leaks.py",
            "tests/jobs/test_classify_update.py",
            "tests/jobs/test_cleaning.py",
            "tests/jobs/test_correct.py",
            "tests/jobs/test_corrections.py",
            "tests/jobs/test_evaluate.py",
            "tests/jobs/test_evaluate_outsiders.py",
            "tests/jobs/test_names_of_systems.py",
            "tests/jobs/test_remove_patterns.py",
            "tests/jobs/test_rename.py",
            "tests/jobs/test_sort.py",
            "tests/jobs/test_sureness.py",
            "tests/jobs/test_update.py",
            "tests/report/test_evaluation.py",
            "tests/results/test_formats.py",  # predictions in other formats, and on stdin
            "tests/sources/test_class_folders.py",
            "tests/sources/test_label_table.py",
        ),
        files=("sort.py", "update.py", "evaluate.py"),
        enough=0.85,
        needs_reasons=False,
        max_seconds=10.0,
    ),
}
MEMORY_BYTES = 8 * 2**30
CPU_SECONDS = 8.0  # of a test, beyond five times what it took, or before the first: more than it takes
STARTED, KILLER = "started", "killer"  # files in the folder of a fork, with the name of a test
PYTEST_OPTIONS = (
    *("-x", "-q", "--tb=line", "-p", "no:cacheprovider"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # Hypothesis, a plugin, is loaded already
)
PRELOADED = (
    *("numpy", "scipy.linalg", "scipy.optimize", "scipy.special", "scipy.io", "scipy.stats", "h5py"),
    *("PIL.Image", "typer.testing", "rich.console", "rich.table", "rich.progress", "pandas", "onnx"),
    *("sklearn.linear_model", "sklearn.svm", "sklearn.metrics", "sklearn.utils.estimator_checks"),
    *("pytest", "hypothesis.strategies", "hypothesis.extra.numpy"),
)


# What is changed

SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
SWAPPED_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
SWAPPED_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "argmin": "argmax",
    "argmax": "argmin",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
    "ones_like": "zeros_like",
}
LEFT_OUT_CALLS = {"copy", "astype"}  # x.copy() becomes x


@dataclass(frozen=True)
class Mutant:
    """One change. `number` tells equal changes in one function apart."""

    file: str  # below the package
    line: int
    place: str  # the function or class
    was: str
    now: str
    number: int  # 0 if nothing is changed

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.file, self.place, self.was, self.now, self.number

    @property
    def room(self) -> str:
        return self.file.split("/")[0]

    def __str__(self) -> str:
        number = f" (number {self.number})" if self.number > 1 else ""
        return f"{self.file}:{self.line}: {self.place}: {self.was} -> {self.now}{number}"


@dataclass
class Site:
    """A node of the tree, and what it hangs on."""

    node: ast.AST
    owner: Any  # a node, or a list of nodes
    at: Any  # the field of the node, or the index in the list
    place: str
    line: int

    def replace(self, new: ast.AST) -> None:
        if isinstance(self.owner, list):
            self.owner[self.at] = new
        else:
            setattr(self.owner, self.at, new)


def sites(owner: ast.AST, place: str = "", line: int = 0) -> Iterator[Site]:
    """All nodes that can be changed: no annotations, docstrings, decorators or lists of exported names."""
    for name, value in ast.iter_fields(owner):
        if name in ("annotation", "returns", "decorator_list", "type_comment", "ctx"):
            continue
        nodes = value if isinstance(value, list) else [value]
        for index, node in enumerate(nodes):
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            below = place
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                below = f"{place}.{node.name}".lstrip(".")
            here = getattr(node, "lineno", line)
            where = (value, index) if isinstance(value, list) else (owner, name)
            yield Site(node, where[0], where[1], place or "the module", here)
            yield from sites(node, below, here)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.Assert():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Subscript(value=ast.Name(id="Literal")):
            return True
    return False


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of the node."""
    match node:
        case ast.BinOp(op=op) if type(op) in SWAPPED_OPERATORS:
            yield ast.BinOp(node.left, SWAPPED_OPERATORS[type(op)](), node.right)
        case ast.AugAssign(op=op):
            if type(op) in SWAPPED_OPERATORS:
                yield ast.AugAssign(node.target, SWAPPED_OPERATORS[type(op)](), node.value)
            yield ast.Pass()
        case ast.Compare(ops=ops):
            for i, comparison in enumerate(ops):
                for other in SWAPPED_COMPARISONS[type(comparison)]:
                    yield ast.Compare(node.left, [*ops[:i], other(), *ops[i + 1 :]], node.comparators)
        case ast.BoolOp(op=joint):
            yield ast.BoolOp(ast.Or() if isinstance(joint, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Constant(value=value):
            yield from (ast.Constant(other) for other in _other_constants(value))
        case ast.If(test=ast.Name() | ast.Call() | ast.Attribute() as test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.IfExp(test=ast.Name() | ast.Call() | ast.Attribute() as test):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.Call():
            yield from _other_calls(node)
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Return(value=ast.Constant(value=None)):
            return
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))


def _other_constants(value: object) -> Iterator[bool | int | float | str]:
    match value:
        case bool():
            yield not value
        case int():
            yield value + 1
            if value > 1:
                yield value - 1
        case float():
            yield 2 * value if value else 1.0
        case str() if value:
            yield "XX" + value


def _other_calls(call: ast.Call) -> Iterator[ast.expr]:
    function = call.func
    match function:
        case ast.Name(id=name) if name in SWAPPED_NAMES:
            swapped: ast.expr = ast.Name(SWAPPED_NAMES[name], ast.Load())
            yield ast.Call(swapped, call.args, call.keywords)
        case ast.Attribute(attr=name) if name in SWAPPED_NAMES:
            swapped = ast.Attribute(function.value, SWAPPED_NAMES[name], ast.Load())
            yield ast.Call(swapped, call.args, call.keywords)
        case ast.Attribute(attr=name) if name in LEFT_OUT_CALLS:
            yield function.value
    for i in range(len(call.keywords)):
        yield ast.Call(function, call.args, [*call.keywords[:i], *call.keywords[i + 1 :]])


@functools.cache
def mutants_of(file: str) -> list[Mutant]:
    found: list[Mutant] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for site in sites(ast.parse((PACKAGE / file).read_text())):
        for new in variants(site.node):
            what = (site.place, _shown(site.node), _shown(new))
            seen[what] += 1
            found.append(Mutant(file, site.line, *what, seen[what]))
    return found


def _shown(node: ast.AST) -> str:
    """The code of a node; of a block, the first line."""
    return ast.unparse(node).split("\n")[0]


def module_name(file: str) -> str:
    return ".".join(("crnr_cli", *file.removesuffix(".py").split("/"))).removesuffix(".__init__")


def changed_code(mutant: Mutant) -> CodeType:
    """The compiled module with the change."""
    path = PACKAGE / mutant.file
    tree = ast.parse(path.read_text())
    if mutant.number:
        wanted = mutants_of(mutant.file).index(mutant)
        every = ((site, new) for site in list(sites(tree)) for new in variants(site.node))
        site, new = next(pair for number, pair in enumerate(every) if number == wanted)
        site.replace(ast.copy_location(new, site.node))
    code: CodeType = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    return code


# One mutant, in a process of its own


class MutantLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class MutantFinder(MetaPathFinder):
    """Finds the changed module before Python finds the one on the disk."""

    def __init__(self, mutant: Mutant, code: CodeType) -> None:
        self._path = PACKAGE / mutant.file
        self._name = module_name(mutant.file)
        self._code = code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = MutantLoader(fullname, str(self._path), self._code)
        is_package = self._path.name == "__init__.py"
        folder = [str(self._path.parent)] if is_package else None
        return spec_from_file_location(fullname, self._path, loader=loader, submodule_search_locations=folder)


class SameTests:
    """A plugin of pytest: the conditions under which the tests of a mutant run.

    Hypothesis tries the same examples every time, and spends no time on shrinking. Tests with a browser are
    left out: it reserves more memory than a mutant may have, so such a test would kill every mutant.
    """

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", deadline=None, database=None, derandomize=True, phases=phases, print_blob=False
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if "browser" not in item.fixturenames]


class Kill(SameTests):
    """A plugin of pytest: the first test that fails ends the process, and its name is written to a file."""

    def __init__(self) -> None:
        self._limits: dict[str, float] = {}
        self._started = Path(os.devnull)
        self._killer: Path | None = None

    def begin(self, limits: dict[str, float], folder: Path) -> None:
        """In a fork: these tests, and how many seconds of the processor each of them has."""
        self._limits = limits
        self._started, self._killer = folder / STARTED, folder / KILLER

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # Not seconds of a clock: a machine that is busy with other things kills no mutant.
        signal.setitimer(signal.ITIMER_PROF, self._limits[nodeid])
        self._started.write_text(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self._killer is not None:
            self._killer.write_text(report.nodeid)
            os._exit(1)

    def select(self, items: list[Any]) -> list[Any]:
        """The tests of `begin`, in that order."""
        position = {test: i for i, test in enumerate(self._limits)}
        return sorted((item for item in items if item.nodeid in position), key=lambda i: position[i.nodeid])


class Selection(Kill):
    """A plugin of pytest for a fork that has not collected the tests."""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        super().pytest_collection_modifyitems(items)
        items[:] = self.select(items)


@dataclass(frozen=True)
class Request:
    """What a server is asked to run."""

    mutant: Mutant
    limits: dict[str, float]  # the tests in their order, and the seconds of the processor that each may take
    seconds: float  # of a clock, without computing: a mutant may wait forever

    @classmethod
    def read(cls, line: str) -> Request:
        values = json.loads(line)
        return cls(Mutant(**values.pop("mutant")), **values)


def run_tests(request: Request, code: CodeType, folder: Path) -> int:
    """In a fork that has not loaded the package: the exit code of pytest."""
    import pytest

    sys.meta_path.insert(0, MutantFinder(request.mutant, code))
    files = list(dict.fromkeys(test.split("::")[0] for test in request.limits))
    plugin = Selection()
    plugin.begin(request.limits, folder)
    return int(pytest.main([*PYTEST_OPTIONS, *files], plugins=[plugin]))


class Collected(Kill):
    """A plugin of pytest for a process that collects the tests, and then forks for each mutant."""

    def __init__(self, requests: TextIO, answers: TextIO) -> None:
        super().__init__()
        self._requests, self._answers = requests, answers
        self._called: set[tuple[str, str, int]] = set()
        sys.setprofile(self._note_call)

    def _note_call(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            self._called.add(identity(frame.f_code))

    def pytest_runtestloop(self, session: Any) -> bool | None:
        """Answer requests; in a fork, return to pytest, which then runs the tests."""
        sys.setprofile(None)
        if session.testsfailed:
            return None  # which pytest reports
        functions: dict[tuple[str, str, int], list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(PACKAGE)):
                functions.setdefault(identity(thing.__code__), []).append(thing)
        gc.collect()
        gc.freeze()  # a collection in a fork would write to the pages that it shares with us
        for line in self._requests:
            request = Request.read(line)
            code = changed_code(request.mutant)
            change = self._change(request.mutant, code, functions)
            if change is None:
                answer = ["in a new process", None]
            elif (answer := self._fork(request, code, change, session)) is None:  # type: ignore[assignment]
                return None
            print(json.dumps(answer), file=self._answers, flush=True)
        return True

    def _change(
        self,
        mutant: Mutant,
        code: CodeType,
        functions: dict[tuple[str, str, int], list[FunctionType]],
    ) -> list[tuple[FunctionType, CodeType]] | None:
        """The functions to change in place and their new code; None if that is not enough."""
        if not mutant.number or module_name(mutant.file) not in sys.modules:
            return []  # a test imports the changed module, if any does
        if (changed := changed_function(mutant, code)) is None:
            return None
        before, after = changed
        found = functions.get(identity(before), [])
        if not found or identity(before) in self._called or any(f.__code__ != before for f in found):
            return None
        return [(function, after) for function in found]

    def _fork(
        self,
        request: Request,
        code: CodeType,
        change: list[tuple[FunctionType, CodeType]],
        session: Any,
    ) -> tuple[str, str | None] | None:
        """How the mutant ended; None in the fork itself, which is to run the tests."""
        folder = Path(tempfile.mkdtemp())
        if child := os.fork():
            try:
                return end_of(child, request.seconds, folder)
            finally:
                rmtree(folder, ignore_errors=True)
        begin_fork(folder)
        sys.meta_path.insert(0, MutantFinder(request.mutant, code))  # for a test that imports it again
        for function, after in change:
            function.__code__ = after
        self.begin(request.limits, folder)
        session.items[:] = self.select(session.items)
        session.config.pluginmanager.getplugin("capturemanager").read_global_capture()  # of other forks
        return None


def identity(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def changed_function(mutant: Mutant, changed: CodeType) -> tuple[CodeType, CodeType] | None:
    """The code of the outermost function that is all that changes in the module, before and after.

    None if something changes that Python runs when it imports the module.
    """
    before, after = changed_code(Mutant(mutant.file, 1, "", "", "", 0)), changed
    while _without_inner(before) == _without_inner(after):
        pairs = [
            (b, a) for b, a in zip(_inner(before), _inner(after), strict=True) if b != a
        ]  # of equal constants, so of the same number
        if len(pairs) != 1:
            return None
        before, after = pairs[0]
        if before.co_flags & inspect.CO_OPTIMIZED:  # a function, and not the body of a class
            return (before, after) if before.co_freevars == after.co_freevars else None
    return None


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _without_inner(code: CodeType) -> CodeType:
    constants = (None if isinstance(constant, CodeType) else constant for constant in code.co_consts)
    return code.replace(co_consts=tuple(constants))


def serve(room: str) -> None:
    """Read requests from stdin, and write how each mutant ended; "" is no room."""
    # What pytest and the tests print goes nowhere.
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for name in PRELOADED:
        try:
            import_module(name)
        except ImportError:
            print(f"{name} is not installed", file=sys.stderr)
    os.dup2(nowhere, 2)
    if room:
        import pytest

        code = pytest.main([*PYTEST_OPTIONS, *ROOMS[room].tests], plugins=[Collected(requests, answers)])
        os._exit(code)  # of a fork, at once
    for line in requests:
        request = Request.read(line)
        changed = changed_code(request.mutant)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            answer = _ended_in_fork(request, changed, Path(folder))
        print(json.dumps(answer), file=answers, flush=True)


def _ended_in_fork(request: Request, changed: CodeType, folder: Path) -> tuple[str, str | None]:
    if child := os.fork():
        return end_of(child, request.seconds, folder)
    code = 1
    try:
        begin_fork(folder)
        code = run_tests(request, changed, folder)
    finally:
        os._exit(code)


def begin_fork(folder: Path) -> None:
    os.setsid()
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)


def _progress(child: int, folder: Path) -> str:
    """Return the test that a fork runs, and where Linux tells it, how long the fork has computed."""
    started, times = folder / STARTED, Path(f"/proc/{child}/stat")
    test = started.read_text() if started.exists() else ""
    computed = times.read_text().rpartition(")")[2].split()[11:13] if times.exists() else []
    return " ".join([test, *computed])


def end_of(child: int, seconds: float, folder: Path) -> tuple[str, str | None]:
    """How the fork ended, and which test killed the mutant."""
    waited, last, before = 0.0, time.monotonic(), ""
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        # While we are stopped or the machine sleeps, so does the fork: that is not its time.
        waited, last = waited + min(1.0, time.monotonic() - last), time.monotonic()
        if (now := _progress(child, folder)) != before:
            waited, before = 0.0, now
        if waited > seconds:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # with processes that a test has started
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status in (-signal.SIGPROF, -signal.SIGKILL):
        return "too slow", None
    killer = folder / KILLER
    return ("killed" if status else "survived"), killer.read_text() if killer.exists() else None


# Which tests to run


class Watch(SameTests):
    """A plugin of pytest that notes which tests run which lines of the package, and how long they compute.

    Seconds are those of the processor, of ended child processes too: how busy a machine is does not matter.
    """

    def __init__(self, coverage: Any) -> None:
        self._coverage = coverage
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)
        self.seconds[nodeid] -= sum(os.times()[:4])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.seconds[nodeid] += sum(os.times()[:4])


def watch(room: str, output: Path) -> None:
    """Run the tests of a room as they are, and write which of them reach which lines."""
    import pytest

    # By its name: for a type checker, `import coverage` is the benchmark next to this one.
    watched = import_module("coverage").Coverage(
        data_file=None, config_file=False, include=[f"{PACKAGE}/{room}/*"]
    )
    plugin = Watch(watched)
    watched.start()
    code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *ROOMS[room].tests], plugins=[plugin])
    watched.stop()
    if code:
        sys.exit(f"the tests of {room} fail as they are")
    data = watched.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        of_file = lines.setdefault(str(Path(file).relative_to(PACKAGE)), {})
        for line, tests in sorted(data.contexts_by_lineno(file).items()):
            for test in filter(None, tests):
                of_file.setdefault(test, []).append(line)
    output.write_text(json.dumps({"lines": lines, "seconds": plugin.seconds}))


@dataclass(frozen=True)
class Reach:
    """Which tests of a room reach which lines, and how long each test takes."""

    lines: dict[str, dict[str, list[int]]]  # by file and test
    seconds: dict[str, float]
    most: float = float("inf")  # seconds per mutant

    @classmethod
    def of(cls, room: str, most: float) -> Reach:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "reach.json"
            command = [sys.executable, __file__, "--watch", room, str(output)]
            environment = _environment()
            # Compiled modules and tests are kept, so that no fork compiles them again.
            del environment["PYTHONDONTWRITEBYTECODE"]
            subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
            return cls(**json.loads(output.read_text()), most=min(most, ROOMS[room].max_seconds))

    def tests(self, mutant: Mutant) -> list[str]:
        """Those that reach the mutant's statement, or its file if it is in no function; the quickest first.

        Nearly all tests reach some statements: only as many are run as `most` allows, but at least one, so
        that a mutant may survive that the slower tests would kill.
        """
        first, last = reached_lines(mutant)
        by_test = self.lines.get(mutant.file, {})
        reaching = [test for test, lines in by_test.items() if any(first <= line <= last for line in lines)]
        # A line in the middle of a statement, such as a message, is reached by few.
        reaching.sort(key=lambda test: (mutant.line not in by_test[test], self.seconds.get(test, 0.0)))
        spent = accumulate(self.seconds.get(test, 0.0) for test in reaching)
        return [
            test
            for test, seconds in zip(reaching, spent, strict=True)
            if seconds <= max(self.most, self.seconds.get(reaching[0], 0.0))
        ]

    def request(self, mutant: Mutant, tests: Sequence[str]) -> Request:
        limits = {test: CPU_SECONDS + 5 * self.seconds.get(test, 0.0) for test in tests}
        return Request(mutant, limits, 20 * max(limits.values(), default=0.0))


def reached_lines(mutant: Mutant) -> tuple[int, int]:
    """The lines that a test must reach to notice the mutant.

    They are the lines of its statement in a function; of a block, such as `if`, only the head. Outside of
    functions, and in the head of a function, they are those of the function or the file.
    """
    text = (PACKAGE / mutant.file).read_text()
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    functions = [node for node in around if isinstance(node, ast.FunctionDef)]
    if not functions:
        return 1, text.count("\n") + 1
    innermost = max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))
    body = getattr(innermost, "body", None)
    if body and not isinstance(innermost, ast.FunctionDef | ast.ClassDef):
        return innermost.lineno, max(innermost.lineno, body[0].lineno - 1)
    return innermost.lineno, innermost.end_lineno or innermost.lineno


def _environment() -> dict[str, str]:
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # a fork loses all but one
    return {**os.environ, **threads, "PYTHONDONTWRITEBYTECODE": "1"}


# All mutants


class Server:
    """Two processes of `serve`: one that has collected the tests of the room, and one that has not."""

    def __init__(self, room: str) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--serve", each],
                cwd=ROOT,
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for each in (room, "")
        ]

    def ended(self, request: Request) -> tuple[str, str | None]:
        """How the mutant ended, and the test that killed it, if one did."""
        if not request.limits:
            return "not reached", None
        end, killer = "in a new process", None
        for process in self._processes:
            if end == "in a new process":
                assert process.stdin is not None and process.stdout is not None  # noqa: PT018
                process.stdin.write(json.dumps(asdict(request)) + "\n")
                process.stdin.flush()
                if not (line := process.stdout.readline()):
                    sys.exit(f"the tests of {request.mutant.room} cannot be collected")
                end, killer = json.loads(line)
        return end, killer

    def close(self) -> None:
        for process in self._processes:
            process.communicate()


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def load() -> dict[Mutant, str]:
    """How the mutants ended that were run last."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    return {Mutant(**entry["mutant"]): entry["end"] for entry in stored}


def store(ends: dict[Mutant, str]) -> None:
    """Add to what is stored; entries of mutants that no longer exist do no harm."""
    known = {mutant.key: (mutant, end) for mutant, end in (load() | ends).items()}
    RESULTS.write_text(json.dumps([{"mutant": asdict(mutant), "end": end} for mutant, end in known.values()]))


def run(mutants: Sequence[Mutant], jobs: int, seconds: float) -> dict[Mutant, str]:
    ends: dict[Mutant, str] = {}
    for room in sorted({mutant.room for mutant in mutants}):
        reach = Reach.of(room, seconds)
        servers = [Server(room) for _ in range(jobs)]
        # All tests: one that fails in any fork would kill every mutant.
        unchanged = Mutant(files_of(room)[0], 1, "", "", "", 0)
        end, killer = servers[0].ended(reach.request(unchanged, list(reach.seconds)))
        if end != "survived":
            sys.exit(f"{room}: {killer} fails in a fork even though nothing is changed")
        _run_room([mutant for mutant in mutants if mutant.room == room], reach, servers, ends)
        for server in servers:
            server.close()
    return ends


def _run_room(
    mutants: Sequence[Mutant], reach: Reach, servers: list[Server], ends: dict[Mutant, str]
) -> None:
    """Add how the mutants of a room ended."""
    killers: dict[tuple[str, str], dict[str, None]] = {}  # by function, the last at the end

    def one(mutant: Mutant) -> None:
        server = servers.pop()
        try:
            tests = reach.tests(mutant)
            same = killers.setdefault((mutant.file, mutant.place), {})
            first = [test for test in reversed(same.copy()) if test in tests]
            end, killer = server.ended(reach.request(mutant, list(dict.fromkeys(first + tests))))
        finally:
            servers.append(server)
        if killer:
            same.pop(killer, None)
            same[killer] = None
        ends[mutant] = end
        note(f"{sum(m.room == mutant.room for m in ends)} of {len(mutants)}: {end}: {mutant}")
        if len(ends) % 100 == 0:
            store(ends.copy())

    with ThreadPoolExecutor(len(servers)) as threads:
        list(threads.map(one, mutants))


def is_killed(end: str) -> bool:
    return end in ("killed", "too slow")


# The report


def load_reasons() -> dict[tuple[str, str, str, str, int], str]:
    table = tomllib.loads((HERE / "mutants.toml").read_text())
    return {
        (file, entry["in"], entry["was"], entry["now"], number): entry["why"]
        for file, entries in table.items()
        for entry in entries
        for number in entry.get("numbers", [1])
    }


def page(ends: dict[Mutant, str]) -> str:
    """benchmarks/mutants.md."""
    reasons = load_reasons()
    lines = [
        "# Mutants",
        "",
        "Written by `python benchmarks/mutants.py`; do not edit. The reasons are those of `mutants.toml`.",
        "",
        "| room | file | mutants | killed | survived |",
        "|---|---|---|---|---|",
    ]
    for room in sorted({mutant.room for mutant in ends}):
        files = sorted({mutant.file for mutant in ends if mutant.room == room})
        lines += [_row("", file, {m: end for m, end in ends.items() if m.file == file}) for file in files]
        lines.append(_row(f"**{room}**", "", {m: end for m, end in ends.items() if m.room == room}))
    survivors = [mutant for mutant, end in ends.items() if not is_killed(end) and end != "not run"]
    for file in sorted({mutant.file for mutant in survivors}):
        source = (PACKAGE / file).read_text().splitlines()
        lines += ["", f"## {file}", ""]
        for mutant in sorted((m for m in survivors if m.file == file), key=lambda m: (m.line, m.number)):
            reason = reasons.get(mutant.key, "no reason is noted")
            lines.append(
                f"- {mutant.place}: `{mutant.was}` → `{mutant.now}` in `{source[mutant.line - 1].strip()}`"
            )
            lines.append(f"  — {reason}")
    return "\n".join(lines) + "\n"


def _row(room: str, file: str, ends: dict[Mutant, str]) -> str:
    killed = sum(is_killed(end) for end in ends.values())
    count = sum(end != "not run" for end in ends.values())
    of_all = "" if count == len(ends) else f" of {len(ends)}"
    share = f"{killed} ({killed / count:.1%})" if count else ""
    return f"| {room} | {file} | {count}{of_all} | {share} | {count - killed} |"


def failures(ends: dict[Mutant, str], *, is_sample: bool) -> Iterator[str]:
    reasons = load_reasons()
    for room in sorted({mutant.room for mutant in ends}):
        mine = [end for mutant, end in ends.items() if mutant.room == room]
        share = sum(map(is_killed, mine)) / len(mine)
        if share < ROOMS[room].enough:
            yield f"{room}: only {share:.1%} of the mutants are killed"
    for mutant, end in sorted(ends.items(), key=lambda each: (each[0].file, each[0].line)):
        if ROOMS[mutant.room].needs_reasons and not is_killed(end) and mutant.key not in reasons:
            yield f"{mutant}: {end}"
    if is_sample:
        return
    known = {mutant.key for mutant, end in ends.items() if not is_killed(end)}
    files = {mutant.file for mutant in ends}
    for key in reasons:
        if key[0] in files and key not in known:
            yield f"mutants.toml has a reason for a mutant that is killed or does not exist: {key}"


def files_of(name: str) -> list[str]:
    """Return the files of a room, or the one file of this name."""
    if name.endswith(".py"):
        return [name]
    found = {path for pattern in ROOMS[name].files for path in (PACKAGE / name).glob(pattern)}
    return sorted(str(path.relative_to(PACKAGE)) for path in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "names", nargs="*", default=list(ROOMS), help="rooms, or files such as solvers/admm.py"
    )
    parser.add_argument("--survivors", action="store_true", help="run only those that survived the last time")
    parser.add_argument("--unexplained", action="store_true", help="run only the survivors without a reason")
    parser.add_argument("--report", action="store_true", help="report on the last runs, and run none")
    parser.add_argument("--sample", type=int, metavar="N", help="run N mutants, drawn at random")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run none")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        metavar="N",
        help="run only the quickest tests of each mutant, N seconds of them: too few are killed, but soon",
    )
    parser.add_argument("--serve", metavar="ROOM", help=argparse.SUPPRESS)
    parser.add_argument("--watch", nargs=2, metavar=("ROOM", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    # The package of this checkout, wherever it is installed; and no benchmark for a library of the same name.
    sys.path[0] = str(ROOT)
    if options.serve is not None:
        return serve(options.serve)
    if options.watch:
        return watch(options.watch[0], Path(options.watch[1]))
    mutants = [mutant for name in options.names for file in files_of(name) for mutant in mutants_of(file)]
    if options.sample:
        mutants = Random(0).sample(mutants, min(options.sample, len(mutants)))
    if options.list:
        for mutant in mutants:
            print(mutant)
        return None
    last = {mutant.key: end for mutant, end in load().items()}
    known = {mutant: last[mutant.key] for mutant in mutants if mutant.key in last}
    if options.report:
        ends = {mutant: known.get(mutant, "not run") for mutant in mutants}
    else:
        explained = load_reasons() if options.unexplained else {}
        is_kept = options.survivors or options.unexplained
        known = {m: end for m, end in known.items() if is_kept and (is_killed(end) or m.key in explained)}
        ends = known | run([m for m in mutants if m not in known], options.jobs, options.seconds)
        store(ends)
    if options.names == list(ROOMS) and not options.sample:
        (HERE / "mutants.md").write_text(page(ends))
    ends = {mutant: end for mutant, end in ends.items() if end != "not run"}
    wrong = list(failures(ends, is_sample=bool(options.sample)))
    print("\n".join(wrong))
    print(Counter(ends.values()))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
