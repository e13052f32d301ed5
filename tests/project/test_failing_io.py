"""Every call of a run that changes a file is made to fail, and the process to be killed there.

In any case, the old file or the new one is there, complete; and the same command then gives the bytes of a
run to which nothing happened.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crnr_cli.exports.xmp import SUBJECT, make_sidecar, read_keywords
from helpers.imitation import IMITATIONS, LINUX, OTHERS, environment
from helpers.paths import TESTS
from helpers.runner import Runner
from helpers.samples import make_features, make_images

HERE = TESTS / "project" / "failing_io"
KILLED = 0
FAULTS = {"full disk": errno.ENOSPC, "failing disk": errno.EIO, "killed": KILLED}


@dataclass(frozen=True)
class Ended:
    exit: int
    err: str
    calls: int  # that could have failed


class Server:
    def __init__(self, shim: Path, system: str = LINUX) -> None:
        env = environment(system)
        # One thread: a fork has no others. All runs here are alike, so that their bytes are.
        env |= {"LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1"}
        env["PYTHONPATH"] = os.pathsep.join([str(TESTS), *([IMITATIONS] if system != LINUX else [])])
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "server.py")],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, args: list[str], fail_at: int = 0, fail_with: int = 0) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"folder": str(folder), "args": args, "fail_at": fail_at, "fail_with": fail_with}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    shim = tmp_path_factory.mktemp("shim") / "failing_io.so"
    source = HERE / "failing_io.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    return shim


@pytest.fixture(scope="module")
def linux(shim: Path) -> Iterator[Server]:
    server = Server(shim)
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(shim: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """On Linux, or as if on another system, where files are locked, closed and removed in another order."""
    server = Server(shim, request.param)
    yield server
    server.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All runs on all systems if --full, and some of them otherwise."""
    full = metafunc.config.getoption("--full")
    if "name" in metafunc.fixturenames:
        names, some = list(SCENARIOS), ("add", "classify, then resumed", "extract, continued")
    elif "is_continued" in metafunc.fixturenames:
        names, some = [False, True], (False,)
    else:
        systems = (LINUX, *OTHERS) if full else (LINUX,)
        metafunc.parametrize("server", systems, indirect=True, scope="module")
        return
    runs = [(LINUX, name) for name in names]
    runs += [(system, name) for system in OTHERS for name in (names if full else some)]
    named = "name" if "name" in metafunc.fixturenames else "is_continued"
    metafunc.parametrize(("server", named), runs, indirect=["server"], scope="module")


@dataclass(frozen=True)
class Scenario:
    command: list[str]
    outputs: list[str]
    again: list[str] = field(default_factory=list)  # what a user runs afterwards, if not the same
    before: list[str] = field(default_factory=list)  # a run that was killed before this one
    keeps: frozenset[str] = frozenset()  # what an error leaves behind for --resume
    may_leave: frozenset[str] = frozenset()  # what an error may leave behind, too
    once: bool = False  # it cannot be done a second time


CLASSIFY = ["classify", "queries.npz", "-o", "out.csv"]
PARTIAL = frozenset({"out.csv.crnr-part", "out.csv.crnr-journal"})
EXTRACT = ["extract", "first.npz", "more.npz", "queries.npz", "-o", "features.h5"]
ROWS = frozenset({"features.h5.crnr-part", "features.h5.crnr-journal", "features.h5.crnr-rows"})
SCENARIOS = {
    "build": Scenario(["build", "more.npz"], ["gallery.h5"]),
    "build, block by block": Scenario(["build", "more.npz", "--neighbors", "3"], ["gallery.h5"]),
    "build --update": Scenario(["build", "first.npz", "more.npz", "--update"], ["gallery.h5"]),
    "add": Scenario(["add", "gallery.h5", "more.npz"], ["gallery.h5"]),
    "remove": Scenario(["remove", "gallery.h5", "--class", "cow"], ["gallery.h5"], once=True),
    "correct": Scenario(["correct", "gallery.h5", "marked.csv"], ["gallery.h5"]),
    "rename": Scenario(["rename", "gallery.h5", "cow", "emu"], ["gallery.h5"], once=True),
    "classify": Scenario(CLASSIFY, ["out.csv"], keeps=PARTIAL),
    "classify, then resumed": Scenario(CLASSIFY, ["out.csv"], [*CLASSIFY, "--resume"], keeps=PARTIAL),
    "classify --resume": Scenario([*CLASSIFY, "--resume"], ["out.csv"], before=CLASSIFY, keeps=PARTIAL),
    "classify as Parquet": Scenario(["classify", "queries.npz", "-o", "out.parquet"], ["out.parquet"]),
    "extract": Scenario(EXTRACT, ["features.h5"], keeps=ROWS),
    "extract, continued": Scenario(EXTRACT, ["features.h5"], before=EXTRACT, keeps=ROWS),
    "extract --update": Scenario([*EXTRACT, "--update"], ["features.h5"], keeps=ROWS),
    "evaluate": Scenario(
        ["evaluate", "old.csv", "--errors", "errors.csv", "--confusion", "matrix.csv"],
        ["errors.csv", "matrix.csv"],
    ),
    "export": Scenario(["export", "answers.csv", "--to", "label-studio", "-o", "tasks.json"], ["tasks.json"]),
}


@pytest.fixture
def start(crnr: Runner, linux: Server) -> Path:
    """A folder as a run finds it, with older outputs."""
    start = crnr.here / "start"
    start.mkdir()
    make_features(start / "first.npz", per_class=4)
    make_features(start / "more.npz", per_class=5, seed=1)
    make_features(start / "queries.npz", per_class=3, seed=2)
    assert linux.run(start, ["build", "first.npz"]).exit == 0
    assert linux.run(start, ["classify", "queries.npz", "-o", "old.csv"]).exit == 0
    assert linux.run(start, ["extract", "first.npz", "-o", "features.h5"]).exit == 0
    (start / "marked.csv").write_text("path,corrected,remove\nfirst.npz#0,bee,\nfirst.npz#5,,x\n")
    (start / "answers.csv").write_text("path,truth,label,status\na.png,,ant,ok\nb.png,,bee,ok\n")
    for name in ("out.csv", "out.parquet", "errors.csv", "matrix.csv", "tasks.json"):
        (start / name).write_text("what was here before")
    return start


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def fresh(start: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(start, folder)  # copies the times too
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("fail_with", FAULTS.values(), ids=FAULTS.keys())
def test_every_call_may_fail(
    start: Path, server: Server, name: str, fail_with: int, full: bool, tmp_path: Path
) -> None:
    check_every_call(start, server, SCENARIOS[name], fail_with, full, tmp_path)


def check_every_call(
    start: Path, server: Server, scenario: Scenario, fail_with: int, full: bool, tmp_path: Path
) -> None:
    if scenario.before:
        half = server.run(fresh(start, tmp_path / "run"), scenario.before).calls // 2
        start = fresh(start, tmp_path / "half")
        assert server.run(start, scenario.before, half, KILLED).exit == -9
        assert contents(start).keys() >= scenario.keeps
    old = contents(start)
    clean = fresh(start, tmp_path / "clean")
    whole = server.run(clean, scenario.command)
    assert whole.exit == 0, whole.err
    new = contents(clean)
    assert all(new[name] != old[name] for name in scenario.outputs)
    assert whole.calls > 10
    every = range(1, whole.calls + 1)
    # In short: some of the calls, others for each fault, and the last ones, where files change places.
    some = {*every[list(FAULTS.values()).index(fail_with) * 4 :: 12], *every[-4:]}
    for fail_at in every if full else sorted(some):
        folder = fresh(start, tmp_path / "run")
        ended = server.run(folder, scenario.command, fail_at, fail_with)
        where = f"call {fail_at} of {whole.calls}: {ended}"
        left = contents(folder)
        for name in scenario.outputs:
            assert left[name] in (old[name], new[name]), where
        # The lock of the killed run is free, and may be taken over.
        changing = {*scenario.outputs, *scenario.keeps, *(f"{name}.crnr-lock" for name in scenario.outputs)}
        assert all(left[name] == old[name] for name in old if name not in changing), where
        if fail_with == KILLED:
            assert ended.exit == -9, where
        elif ended.exit == 0:  # only a look at the old file failed, which is no reason to stop
            # An update looks for a record of a killed run, and extract for the rows of the old file.
            may_end_well = "--update" in scenario.command or scenario.command[0] == "extract"
            assert "which was not a readable gallery" in ended.err or may_end_well, where
            assert left == new, where
        else:
            assert ended.exit == 1, where
            *notes, error = ended.err.splitlines()
            assert error.startswith("error: "), where
            assert all(note.startswith("note: ") for note in notes), where
            assert left.keys() - old.keys() <= scenario.keeps | scenario.may_leave, where
        again = server.run(folder, scenario.again or scenario.command)
        done_before = scenario.once and left == new
        assert again.exit == (1 if done_before else 0), f"{where}, then {again}"
        assert contents(folder) == new, where
    assert server.run(fresh(start, tmp_path / "run"), scenario.command, whole.calls + 1, fail_with).exit == 0


UPDATE = ["classify", "queries.npz", "-o", "out.csv", "--update"]
STATE = "out.csv.crnr-state"


@pytest.mark.slow
@pytest.mark.parametrize("fail_with", FAULTS.values(), ids=FAULTS.keys())
def test_every_call_of_an_update_may_fail(
    start: Path, server: Server, is_continued: bool, fail_with: int, full: bool, tmp_path: Path
) -> None:
    """The predictions file and its record always belong together after the next update, or a killed one."""
    (start / "out.csv").unlink()
    assert server.run(start, UPDATE).exit == 0
    make_features(start / "queries.npz", per_class=4, seed=3)  # rows are replaced, and others appended
    command = ["classify", "more.npz", *UPDATE[1:], "--batch-size", "4"]
    keeps = frozenset(f"out.csv.crnr-{ending}" for ending in ("journal", "rows", "part"))
    coming = frozenset({"out.csv.crnr-next"})
    before = command if is_continued else []
    scenario = Scenario(command, ["out.csv", STATE], before=before, keeps=keeps, may_leave=coming)
    check_every_call(start, server, scenario, fail_with, full, tmp_path)


SORT = {
    "copy": ["sort", "out.csv", "sorted", "--quiet"],
    "hardlink": ["sort", "out.csv", "sorted", "--quiet", "--how", "hardlink"],
    "link": ["sort", "out.csv", "sorted", "--quiet", "--how", "link"],
    "move": ["sort", "out.csv", "sorted", "--quiet", "--how", "move"],
}
LIST = "sorted/.crnr-sort-1.jsonl"


def below(folder: Path) -> dict[str, bytes]:
    """Return everything in a folder that is not crnr's own, links followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith((".crnr-sort", ".crnr-tag"))
    }


def make_answers(start: Path) -> None:
    """Write three files, two of which have the same name, and the labels of all in out.csv."""
    lines = ["path,truth,label"]
    for folder, label in (("a", "cat"), ("b", "cat"), ("b", "dog")):
        path = start / folder / f"{len(lines) // 3}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{folder} {label}")
        lines.append(f"{path.relative_to(start)},,{label}")
    (start / "out.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("fail_with", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("how", SORT)
def test_every_call_of_sort_and_of_its_undoing_may_fail(
    server: Server, how: str, fail_with: int, full: bool, tmp_path: Path
) -> None:
    """Every file is there exactly once after the same command has been run again."""
    make_answers(tmp_path / "start")
    done = check_both_ways(server, SORT[how], ["sort", "--undo", LIST, "--quiet"], fail_with, full, tmp_path)
    assert done.keys() >= {"sorted/cat/0.png", "sorted/cat/0 (2).png", "sorted/dog/1.png"}


@pytest.mark.slow
@pytest.mark.parametrize("fail_with", FAULTS.values(), ids=FAULTS.keys())
def test_every_call_of_tag_and_of_its_undoing_may_fail(
    server: Server, fail_with: int, full: bool, tmp_path: Path
) -> None:
    """Every sidecar is whole, as before or as wanted, and as wanted after the same command again."""
    start = tmp_path / "start"
    make_answers(start)
    (start / "a" / "0.png.xmp").write_bytes(make_sidecar({SUBJECT: ["holiday"]}))
    undo = ["tag", "--undo", ".crnr-tag-1.jsonl", "--quiet"]
    done = check_both_ways(server, ["tag", "out.csv", "--quiet"], undo, fail_with, full, tmp_path)
    found = {name: read_keywords(data, SUBJECT) for name, data in done.items() if name.endswith(".xmp")}
    assert found == {"a/0.png.xmp": ["holiday", "cat"], "b/0.png.xmp": ["cat"], "b/1.png.xmp": ["dog"]}


def check_both_ways(
    server: Server, command: list[str], undo: list[str], fail_with: int, full: bool, tmp_path: Path
) -> dict[str, bytes]:
    """Let the calls of a command fail, and the calls that undo it; return the files of a whole run."""
    start = tmp_path / "start"
    old = below(start)
    whole = server.run(fresh(start, tmp_path / "done"), command)
    assert (whole.exit, whole.err) == (0, "")
    new = below(tmp_path / "done")

    def prepared(is_undone: bool) -> Path:
        """In the same place, as lists and links have whole paths."""
        folder = fresh(start, tmp_path / "run")
        if is_undone:
            assert server.run(folder, command).exit == 0
        return folder

    for is_undone, arguments, after in ((False, command, new), (True, undo, old)):
        calls = server.run(prepared(is_undone), arguments).calls
        assert calls > 8
        for fail_at in range(1, calls + 1, 1 if full else 2):
            folder = prepared(is_undone)
            ended = server.run(folder, arguments, fail_at, fail_with)
            where = f"call {fail_at} of {calls}: {ended}"
            assert ended.exit in ((-9,) if fail_with == KILLED else (0, 1, 3)), where
            assert "Traceback" not in ended.err, where
            left = below(folder)
            if command[0] == "tag":  # a sidecar is replaced
                assert left.keys() >= old.keys(), where
                for name in new.keys() & left.keys():
                    assert left[name] in (old.get(name), new[name]), where
            else:
                assert all(content in left.values() for content in old.values()), where  # nothing is lost
            again = server.run(folder, arguments)
            if is_undone and again.exit == 1:
                assert "no such undo file" in again.err, f"{where}, then {again}"
            else:
                assert (again.exit, again.err) == (0, ""), f"{where}, then {again}"
            assert below(folder) == after, where
    return new


@pytest.mark.slow
@pytest.mark.parametrize("fail_with", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("how", ["copy", "hardlink", "link"])
def test_every_call_of_split_may_fail(
    server: Server, how: str, fail_with: int, full: bool, tmp_path: Path
) -> None:
    """No file is ever half there, and the same command then gives the split of a run without a fault."""
    start = tmp_path / "start"
    make_images(start / "all", ("ant", "bee"), per_class=2)
    command = ["split", "all", "--train", "g", "--test", "q", "--how", how, "--quiet"]

    def split(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and not path.name.startswith(".crnr-split")
        }

    whole = server.run(fresh(start, tmp_path / "run"), command)
    assert (whole.exit, whole.err) == (0, "")
    assert whole.calls > 8
    new = split(tmp_path / "run")
    assert len(new) == 8  # each image twice
    for fail_at in range(1, whole.calls + 1, 1 if full else 2):
        folder = fresh(start, tmp_path / "run")
        ended = server.run(folder, command, fail_at, fail_with)
        where = f"call {fail_at} of {whole.calls}: {ended}"
        assert ended.exit in ((-9,) if fail_with == KILLED else (0, 1, 3)), where
        assert "Traceback" not in ended.err, where
        assert split(folder).items() <= new.items(), where
        again = server.run(folder, command)
        assert (again.exit, again.err) == (0, ""), f"{where}, then {again}"
        assert split(folder) == new, where
        assert not list(folder.rglob(".crnr-split*")), where
