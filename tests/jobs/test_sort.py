"""Sorting: every file exactly once, nothing overwritten, and the way back."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import tempfile
from collections import Counter
from contextlib import ExitStack, chdir, suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crnr_cli.errors import DataError, OutputError, UsageError
from crnr_cli.jobs.sort import SortOptions, SortReport, sort, unsort
from crnr_cli.results.table import _field
from crnr_cli.sorting import named_files, placing
from crnr_cli.sorting.placing import ALREADY_THERE, LEFT_OUT
from crnr_cli.sorting.plan import HOWS
from crnr_cli.system import folders
from crnr_cli.system.files import locked
from helpers.failing import Killed, fail_at
from helpers.racing import make_first

LIST = Path("sorted/.crnr-sort-1.jsonl")
each_how = pytest.mark.parametrize("how", HOWS)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_csv(rows: list[tuple[str, str, str]], probabilities: list[float] | None = None) -> Path:
    """out.csv with path, truth and label, and the files it names, each with other bytes."""
    lines = ["path,truth,label,status" + (",probability" if probabilities else "")]
    for i, (path, truth, label) in enumerate(rows):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(f"{i} {path}".encode("utf-8", "surrogateescape"))
        os.utime(path, ns=(10**18 + i, 10**18 + 1000 * i))
        fields = [path, truth, label, "ok" if label else "truncated"]
        fields += [str(probabilities[i])] if probabilities else []
        lines.append(",".join(map(_field, fields)))
    Path("out.csv").write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogateescape"))
    return Path("out.csv")


ROWS = [
    ("q/a/1.png", "cat", "cat"),
    ("q/b/1.png", "cat", "cat"),
    ("q/c/1.png", "dog", "cat"),
    ("q/c/2.png", "dog", "dog"),
    ("q/c/3.png", "dog", "unknown"),
    ("q/c/4.png", "", ""),
]
FEW = ROWS[1:4]
TARGETS = {
    "q/a/1.png": "cat/1.png",
    "q/b/1.png": "cat/1 (2).png",
    "q/c/1.png": "cat/1 (3).png",
    "q/c/2.png": "dog/2.png",
    "q/c/3.png": "_unknown/3.png",
    "q/c/4.png": "_failed/4.png",
}


def tree(folder: str | Path) -> dict[str, bytes]:
    """Return all files below a folder, links followed, without crnr's own; folders too."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if not path.name.startswith(".crnr-sort"):
            found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else b"folder"
    return found


def only_files(folder: str | Path) -> dict[str, bytes]:
    return {name: content for name, content in tree(folder).items() if content != b"folder"}


def files(folder: str | Path) -> Counter[bytes]:
    """Return how often each content is there."""
    return Counter(only_files(folder).values())


def run(how: str = "copy", folder: str = "sorted", **options: Any) -> SortReport:
    return sort(Path("out.csv"), Path(folder), SortOptions(how, **options))


@each_how
def test_every_file_goes_to_the_folder_of_its_label(how: str) -> None:
    write_csv(ROWS)
    before = tree("q")
    status = Path("q/c/2.png").stat()
    report = run(how)
    after = tree("sorted")
    assert {target: after[target] for target in TARGETS.values()} == {
        target: before[path.removeprefix("q/")] for path, target in TARGETS.items()
    }
    assert len(files("sorted")) == len(TARGETS)
    assert {row.path: row.target for row in report.rows} == {
        path: f"sorted/{target}" for path, target in TARGETS.items()
    }
    assert files("q") == (Counter() if how == "move" else files("sorted"))
    new = Path("sorted/dog/2.png")
    assert new.is_symlink() == (how == "link")
    assert (new.stat().st_ino == status.st_ino) == (how != "copy")
    assert new.stat().st_mtime_ns == status.st_mtime_ns
    assert report.list == LIST


@each_how
def test_a_second_run_has_nothing_to_do_and_undo_gives_the_tree_of_before(how: str) -> None:
    write_csv(ROWS)
    before = tree(".")
    run(how)
    between = tree(".")
    again = run(how)
    assert {row.result for row in again.rows} == {ALREADY_THERE}
    assert again.list is None
    assert tree(".") == between
    report = unsort(LIST)
    assert (report.undone, report.left_out) == (len(ROWS), [])
    assert tree(".") == before
    assert not Path("sorted").exists()


def test_permissions_times_and_attributes_are_copied() -> None:
    write_csv([("a.png", "", "cat")])
    Path("a.png").chmod(0o640)
    os.utime("a.png", ns=(123456789, 987654321))
    try:
        os.setxattr("a.png", "user.note", b"mine")
        has_attributes = True
    except OSError:
        has_attributes = False
    old = Path("a.png").stat()
    run()
    new = Path("sorted/cat/a.png").stat()
    assert stat.S_IMODE(new.st_mode) == 0o640
    assert (new.st_mtime_ns, new.st_uid, new.st_gid) == (old.st_mtime_ns, old.st_uid, old.st_gid)
    if has_attributes:
        assert os.getxattr("sorted/cat/a.png", "user.note") == b"mine"


@each_how
def test_sort_never_overwrites_files(how: str) -> None:
    write_csv(ROWS)
    for name in ("cat/1.png", "dog/2.png", "cat/1 (3).png"):
        Path("sorted", name).parent.mkdir(parents=True, exist_ok=True)
        Path("sorted", name).write_text("mine")
    before = tree("sorted")
    run(how)
    after = tree("sorted")
    assert {name: after[name] for name in before} == before
    assert {"cat/1 (2).png", "cat/1 (4).png", "cat/1 (5).png", "dog/2 (2).png"} < after.keys()
    unsort(LIST)
    assert tree("sorted") == before


@each_how
def test_sort_does_not_overwrite_a_file_that_appears_last(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(ROWS)
    place = placing.Tree.place

    def occupied(self: placing.Tree, target: str, *, make: bool = False) -> placing.Place:
        found = place(self, target, make=make)
        if target == "dog/2.png" and make:
            Path("sorted/dog/2.png").write_text("mine")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(placing.Tree, "place", occupied)
        report = run(how)
    assert [(row.path, row.reason) for row in report.left_out] == [
        ("q/c/2.png", "there is another file of this name now")
    ]
    assert Path("sorted/dog/2.png").read_text() == "mine"
    assert Path("q/c/2.png").exists()
    again = run(how)
    assert {row.path: row.target for row in again.rows if row.result == how} == {
        "q/c/2.png": "sorted/dog/2 (2).png"
    }
    assert unsort(LIST).left_out == unsort(Path("sorted/.crnr-sort-2.jsonl")).left_out == []
    assert tree("sorted") == {"dog": b"folder", "dog/2.png": b"mine"}


@pytest.mark.parametrize("error", [Killed, OSError])
@pytest.mark.parametrize(
    ("how", "across"),
    # Only a move is done in another way across file systems.
    [*((how, False) for how in HOWS), pytest.param("move", True, marks=pytest.mark.slow)],
)
def test_sort_and_undo_recover_from_any_failing_call(
    how: str, across: bool, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the sort and of its undoing; afterwards every file is there exactly once."""
    number = 0
    is_over = {"sort": False, "undo": False}
    while not all(is_over.values()):
        number += 2 if error is OSError else 1  # see fail_at
        here = tmp_path / str(number)
        here.mkdir()
        with chdir(here), monkeypatch.context() as patch:
            if across:
                rename = placing.rename_new

                def refused(one: placing.Place, other: placing.Place, rename: Any = rename) -> None:
                    if (one.folder is None) != (other.folder is None):
                        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                    rename(one, other)

                patch.setattr(placing, "rename_new", refused)
            write_csv(FEW)
            before, all_files = only_files("."), files("q")
            for step, work in (("sort", lambda: run(how)), ("undo", lambda: unsort(LIST))):
                with monkeypatch.context() as broken:
                    calls = fail_at(number, error, broken)
                    with suppress(Killed, OSError, OutputError, DataError):
                        work()
                    is_over[step] |= number > 2 * calls[0] + 1
                found = files(".")
                del found[Path("out.csv").read_bytes()]
                assert found >= all_files, (step, number)  # nothing is lost
                if step == "sort":
                    run(how)
                    assert files("sorted") == all_files, number
                    assert only_files("sorted").keys() == {"cat/1.png", "cat/1 (2).png", "dog/2.png"}, number
                    assert files("q") == (Counter() if how == "move" else all_files)
                else:
                    for path in sorted(Path().glob("sorted/.crnr-sort-*.jsonl"), reverse=True):
                        assert unsort(path).left_out == []
            assert only_files(".") == before, number  # an empty folder may be left
        assert number < 500


def test_a_move_that_was_killed_between_copying_and_removing_is_finished() -> None:
    write_csv(ROWS[:2])
    run("move")
    lines = LIST.read_bytes().splitlines(keepends=True)
    LIST.write_bytes(b"".join(lines[:-1]))  # as it was before the run was finished
    Path("q/a/1.png").write_bytes(Path("sorted/cat/1.png").read_bytes())
    Path("q/b/1.png").write_text("something else")
    report = run("move")
    assert [row.result for row in report.rows] == ["move", LEFT_OUT]
    assert not Path("q/a/1.png").exists()
    assert Path("q/b/1.png").read_text() == "something else"


@each_how
def test_a_run_that_was_killed_at_its_end_is_finished_by_the_next(how: str) -> None:
    """There is nothing left to do, but later runs must not continue its list."""
    write_csv(FEW)
    run(how)
    complete = LIST.read_bytes()
    LIST.write_bytes(b"".join(complete.splitlines(keepends=True)[:-1]))
    report = run(how)
    assert ({row.result for row in report.rows}, report.list) == ({ALREADY_THERE}, None)
    assert LIST.read_bytes() == complete
    assert run(how).list is None
    assert LIST.read_bytes() == complete
    write_csv([("q/new.png", "", "cat")])
    assert run(how).list == Path("sorted/.crnr-sort-2.jsonl")
    assert LIST.read_bytes() == complete


def test_sort_undo_leaves_changed_files() -> None:
    write_csv(ROWS[:3])
    run("copy")
    Path("sorted/cat/1.png").write_text("edited")
    Path("q/b/1.png").unlink()
    report = unsort(LIST)
    assert report.undone == 1
    assert dict(report.left_out) == {
        "sorted/cat/1.png": "has changed since it was sorted",
        "sorted/cat/1 (2).png": f"{Path('q/b/1.png').absolute()} is gone, so this may be the last copy",
    }
    assert LIST.exists()


def replace_source(path: str, content: bytes, *, keeps_time: bool = False) -> None:
    """Put another file in the place of a file, as a camera does that counts from 1 again."""
    status = Path(path).stat()
    Path(path).unlink()
    Path(path).write_bytes(content)
    if keeps_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("keeps_time", [False, True])
@pytest.mark.parametrize("content", [b"other", b"9 q/b/1.png"], ids=["another size", "the same size"])
def test_sort_undo_keeps_the_last_copy_of_a_replaced_file(content: bytes, keeps_time: bool) -> None:
    write_csv(ROWS[:3])
    run("copy")
    replace_source("q/b/1.png", content, keeps_time=keeps_time)
    report = unsort(LIST)
    assert report.undone == 2
    assert report.left_out == [
        (
            "sorted/cat/1 (2).png",
            f"{Path('q/b/1.png').absolute()} has other content now, so this may be the last copy",
        )
    ]
    assert only_files("sorted") == {"cat/1 (2).png": b"1 q/b/1.png"}
    Path("q/b/1.png").write_bytes(b"1 q/b/1.png")  # the copy is not the last one any more
    assert (unsort(LIST).undone, Path("sorted").exists()) == (1, False)


@pytest.mark.parametrize("how", ["copy", "hardlink", "link"])
@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("content", [b"other", b"9 q/b/1.png"], ids=["another size", "the same size"])
def test_a_replaced_file_is_sorted_again(how: str, is_finished: bool, content: bytes) -> None:
    write_csv(ROWS[:3])
    run(how)
    if not is_finished:
        LIST.write_bytes(b"".join(LIST.read_bytes().splitlines(keepends=True)[:-1]))
    replace_source("q/b/1.png", content)
    planned, report = run(how, dry_run=True), run(how)
    assert planned.rows == report.rows
    # A link leads to the new file already.
    expected = ALREADY_THERE if how == "link" else how
    assert [row.result for row in report.rows] == [ALREADY_THERE, expected, ALREADY_THERE]
    assert Path(report.rows[1].target).read_bytes() == content
    if how != "link":
        assert Path("sorted/cat/1 (2).png").read_bytes() == b"1 q/b/1.png"
    assert {row.result for row in run(how).rows} == {ALREADY_THERE}


@each_how
def test_a_file_with_another_date_is_still_there(how: str) -> None:
    write_csv(ROWS)
    run(how)
    if how != "move":
        for path, _, _ in ROWS:
            os.utime(path, ns=(1, 1))
    assert {row.result for row in run(how).rows} == {ALREADY_THERE}


def test_a_replaced_file_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(FEW)
    run()
    replace_source("q/b/1.png", b"9 q/b/1.png")
    opened = placing.Place.open

    def refused(self: placing.Place) -> int:
        if self.name.endswith("/q/b/1.png"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(self)

    monkeypatch.setattr(placing.Place, "open", refused)
    assert [(row.path, row.reason) for row in run().left_out] == [("q/b/1.png", "Permission denied")]
    assert dict(unsort(LIST).left_out) == {"sorted/cat/1.png": "Permission denied"}


STEPS = st.one_of(
    st.tuples(st.just("replace"), st.sampled_from(["1", "2"]), st.sampled_from([b"a", b"b", b"cc"])),
    st.tuples(st.just("remove"), st.sampled_from(["1", "2"])),
    st.tuples(st.just("sort"), st.sampled_from(HOWS)),
    st.tuples(st.just("undo"), st.integers(1, 3)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=2, max_size=9))
def test_no_sort_and_no_undo_loses_a_content(steps: list[tuple[Any, ...]]) -> None:
    """Whatever happens to the sources in between; and afterwards, each file is in its place as it is now."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        write_csv([("q/1", "", "cat"), ("q/2", "", "cat")])
        for number, (step, *arguments) in enumerate(steps, 1):
            before = set(files(".")) - {Path("out.csv").read_bytes()}
            if step == "replace":
                Path("q", arguments[0]).unlink(missing_ok=True)
                Path("q", arguments[0]).write_bytes(arguments[1])
                os.utime(Path("q", arguments[0]), ns=(number, number))
            elif step == "remove":
                Path("q", arguments[0]).unlink(missing_ok=True)
            elif step == "sort" and any(Path("q").iterdir()):
                now = {f"q/{path.name}": path.read_bytes() for path in Path("q").iterdir()}
                placed = {row.path: row.target for row in run(*arguments).rows if row.result != LEFT_OUT}
                assert {path: Path(placed[path]).read_bytes() for path in now} == now
                assert before <= set(files("."))
            elif step == "undo" and (path := Path(f"sorted/.crnr-sort-{arguments[0]}.jsonl")).exists():
                unsort(path)
                assert before <= set(files("."))


def test_undo_of_a_move_overwrites_nothing_and_makes_folders_again() -> None:
    write_csv(ROWS)
    run("move")
    Path("q/a/1.png").write_text("a new one")
    Path("q/b").rmdir()
    report = unsort(LIST)
    assert report.left_out == [
        (
            "sorted/cat/1.png",
            f"there is another file at {Path('q/a/1.png').absolute()}, which crnr does not overwrite",
        )
    ]
    assert Path("q/a/1.png").read_text() == "a new one"
    assert Path("q/b/1.png").read_text() == "1 q/b/1.png"
    Path("q/a/1.png").unlink()
    assert unsort(LIST).undone == 1
    assert not Path("sorted").exists()


def test_a_longer_csv_adds_to_the_folder() -> None:
    write_csv(ROWS[:3])
    run("move")
    write_csv(ROWS)
    for path, _, _ in ROWS[:3]:
        Path(path).unlink()
    report = run("move")
    assert [row.result for row in report.rows] == [ALREADY_THERE] * 3 + ["move"] * 3
    assert files("sorted").total() == 6
    assert report.list == Path("sorted/.crnr-sort-2.jsonl")


def test_files_may_be_sorted_within_their_own_folder() -> None:
    """Two of them change places, and one is where it belongs."""
    write_csv([("q/cat/1.png", "", "dog"), ("q/dog/1.png", "", "cat"), ("q/cat/2.png", "", "cat")])
    contents = {path: Path(path).read_bytes() for path in ("q/cat/1.png", "q/dog/1.png", "q/cat/2.png")}
    assert [row.result for row in run("move", "q").rows] == ["move", "move", ALREADY_THERE]
    assert Path("q/dog/1 (2).png").read_bytes() == contents["q/cat/1.png"]
    assert Path("q/cat/1 (2).png").read_bytes() == contents["q/dog/1.png"]
    assert {row.result for row in run("move", "q").rows} == {ALREADY_THERE}
    unsort(Path("q/.crnr-sort-1.jsonl"))
    assert {path: Path(path).read_bytes() for path in contents} == contents


def test_sort_refuses_a_second_run() -> None:
    write_csv(ROWS)
    Path("sorted").mkdir()
    message = "sorted: another crnr is writing it"
    with locked(Path("sorted/.crnr-sort.lock"), Path("sorted")), pytest.raises(OutputError, match=message):
        run()
    run()
    with locked(Path("sorted/.crnr-sort.lock"), Path("sorted")), pytest.raises(OutputError, match=message):
        unsort(LIST)


def test_sort_and_undo_leave_a_folder_that_another_process_makes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_csv(ROWS)
    make_first(monkeypatch)
    run()
    assert only_files("sorted").keys() == set(TARGETS.values())
    unsort(LIST)
    assert tree("sorted") == {}


def test_sort_is_refused_if_another_process_makes_the_folder_first_and_locks_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_csv(ROWS)
    with ExitStack() as stack:
        lock = locked(Path("sorted/.crnr-sort.lock"), Path("sorted"))
        make_first(monkeypatch, lambda: stack.enter_context(lock))
        with pytest.raises(OutputError, match=r"^sorted: another crnr is writing it"):
            run()


def test_doubtful_answers_have_a_folder_of_their_own() -> None:
    write_csv(ROWS, [0.9, 0.5, 0.49999, 1.0, 0.1, 0.0])
    run(min_probability=0.5)
    assert list(only_files("sorted")) == [
        *("_doubtful/1.png", "_failed/4.png", "_unknown/3.png"),
        *("cat/1 (2).png", "cat/1.png", "dog/2.png"),
    ]


def test_answers_without_a_probability_are_doubtful() -> None:
    """As another program may write them."""
    write_csv(ROWS[:4], [0.9, 0.9, 0.9, 0.9])
    lines = Path("out.csv").read_text().splitlines()
    lines[1], lines[4] = lines[1].removesuffix("0.9"), lines[4].removesuffix("0.9")
    Path("out.csv").write_text("\n".join(lines) + "\n")
    run(min_probability=0.5)
    assert only_files("sorted") == {
        "_doubtful/1.png": b"0 q/a/1.png",
        "_doubtful/2.png": b"3 q/c/2.png",
        "cat/1.png": b"1 q/b/1.png",
        "cat/1 (2).png": b"2 q/c/1.png",
    }


def test_a_csv_without_probabilities() -> None:
    write_csv(ROWS)
    with pytest.raises(
        DataError, match=re.escape("out.csv: no column probability; leave out --min-probability")
    ):
        run(min_probability=0.5)
    assert not Path("sorted").exists()


HOSTILE = [
    "../../etc",
    "..",
    ".",
    "/etc/passwd",
    "a\nb",
    "\x1b[31m",
    "_failed",
    ".hidden",
    "x" * 3000,
    "é" * 200,
]


def test_no_label_leaves_the_folder() -> None:
    rows = [(f"q/{i}.png", label, label) for i, label in enumerate(HOSTILE)]
    write_csv(rows)
    before = tree(".")
    run(template="{truth}/{label}/{name}")
    after = tree(".")
    assert {name for name in after if not name.startswith("sorted/")} == {*before, "sorted"}
    assert files("sorted").total() == len(HOSTILE)
    found = {path.name for path in Path("sorted").iterdir() if not path.name.startswith(".crnr")}
    assert {unquote(name, errors="surrogateescape") for name in found} >= set(HOSTILE[:8])
    assert all(name.isprintable() and not name.startswith((".", "_")) for name in found)
    unsort(LIST)
    assert tree(".") == before


@pytest.mark.parametrize("how", ["copy", "move"])
def test_links_in_the_folder_are_not_followed(how: str) -> None:
    write_csv(ROWS)
    Path("elsewhere").mkdir()
    Path("sorted").mkdir()
    Path("sorted/cat").symlink_to("../elsewhere")
    with pytest.raises(OutputError, match="sorted/cat: is a link or a file, and a folder is needed there"):
        run(how)
    assert tree("elsewhere") == {}
    assert len(files("q")) == len(ROWS)
    assert sorted(path.name for path in Path("sorted").iterdir()) == ["cat"]


def test_a_file_elsewhere_has_to_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("private").mkdir()
    Path("private/key").write_text("secret")
    Path("work").mkdir()
    monkeypatch.chdir("work")
    Path("link.png").symlink_to("../private/key")
    for name in ("../private/key", str(tmp_path / "private" / "key"), "link.png"):
        Path("out.csv").write_text(f"path,truth,label\n{name},,cat\n")
        with pytest.raises(
            DataError, match=re.escape("is neither below the current folder nor below the folder of out.csv")
        ):
            run("copy")
        assert not Path("sorted").exists()
    run("copy", below=[Path("../private")])
    assert Path("sorted/cat/link.png").read_text() == "secret"


@each_how
def test_files_below_the_folder_of_the_csv_are_allowed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But not those next to this folder."""
    write_csv([("run/q/1.png", "", "cat"), ("running/1.png", "", "cat")])
    Path("here").mkdir()
    monkeypatch.chdir("here")
    Path("../run/out.csv").write_text("path,truth,label\n../run/q/1.png,,cat\n")
    report = sort(Path("../run/out.csv"), Path("sorted"), SortOptions(how))
    assert [(row.result, row.target) for row in report.rows] == [(how, "sorted/cat/1.png")]
    assert Path("sorted/cat/1.png").read_bytes() == b"0 run/q/1.png"
    Path("../run/out.csv").write_text("path,truth,label\n../running/1.png,,cat\n")
    with pytest.raises(
        DataError, match=r"is neither below the current folder nor below the folder of \.\./run/out"
    ):
        sort(Path("../run/out.csv"), Path("sorted"), SortOptions(how))


@pytest.mark.parametrize("target", ["nowhere.png", "../nowhere.png", "/nowhere.png", "/no/where.png"])
def test_a_dangling_link_is_a_missing_file_wherever_it_leads(here: Path, target: str) -> None:
    write_csv(FEW)
    Path("q/b/1.png").unlink()
    Path("q/b/1.png").symlink_to(target)
    report = run("copy")
    assert [(row.path, row.reason) for row in report.left_out] == [("q/b/1.png", "no such file")]
    assert len(only_files("sorted")) == len(FEW) - 1
    Path("q/c/1.png").unlink()
    Path("q/c/1.png").symlink_to("1.png")
    assert {row.path: row.reason for row in run("copy").left_out} == {
        "q/b/1.png": "no such file",
        "q/c/1.png": os.strerror(errno.ELOOP),
    }


@pytest.mark.parametrize("folder_exists", [True, False])
def test_hard_links_to_another_device_are_refused_before_any_work(
    folder_exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_csv(FEW)
    if folder_exists:
        Path("sorted").mkdir()
    before = tree(".")
    lstat = os.lstat

    def elsewhere(path: Any, **options: Any) -> Any:
        found = lstat(path, **options)
        if not str(path).endswith("q/c/2.png"):  # the last of them
            return found
        names = ("st_mode", "st_ino", "st_size", "st_mtime_ns")
        return SimpleNamespace(st_dev=found.st_dev + 1, **{name: getattr(found, name) for name in names})

    monkeypatch.setattr(named_files.os, "lstat", elsewhere)
    for dry_run in (True, False):
        with pytest.raises(OutputError) as refused:
            run("hardlink", dry_run=dry_run)
        assert str(refused.value) == (
            "q/c/2.png: is on another file system than sorted, and hard links cannot lead there; "
            "use --how copy or --how link"
        )
        assert tree(".") == before
        assert not list(Path().glob("sorted/*"))
    monkeypatch.undo()


@pytest.mark.parametrize("folder", ["photos", "f\u00f6tos", "fo\u0308tos"])
def test_missing_files_list_no_folder_each(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often for many as for few, whatever letters their folder has."""
    Path("f\u00f6tos").mkdir()
    Path("f\u00f6tos/there.png").touch()
    listdir, counts = os.listdir, []

    def counted(*arguments: Any) -> list[str]:
        counts[-1] += 1
        return listdir(*arguments)

    monkeypatch.setattr(named_files.os, "listdir", counted)
    for n_missing in (1, 40):
        names = ["f\u00f6tos/there.png", *(f"{folder}/{i}\u00e9.png" for i in range(n_missing))]
        Path("out.csv").write_text("path,truth,label\n" + "".join(f"{name},,cat\n" for name in names))
        counts.append(0)
        assert len(run(dry_run=True).left_out) == n_missing
    assert counts[0] == counts[1]


def test_undo_puts_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(ROWS[:1])
    Path("w").mkdir()
    monkeypatch.chdir("w")
    Path("out.csv").write_text(f"path,truth,label\n{tmp_path}/q/a/1.png,,cat\n")
    run("move", below=[tmp_path])
    with pytest.raises(DataError, match=f"add --below {tmp_path}/q/a"):
        unsort(LIST)
    assert unsort(LIST, [tmp_path]).undone == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "queries.npz#3,,cat\n",
            "out.csv: queries.npz#3 is a row of a feature file; only files can be sorted",
        ),
        (",,cat\n", "out.csv: row 1 has no path"),
        ("", "out.csv: has no rows"),
        ("gone.png,,cat\n", "none of the files can be sorted; gone.png: no such file; paths are"),
    ],
)
def test_a_csv_that_cannot_be_sorted(rows: str, message: str) -> None:
    Path("out.csv").write_text("path,truth,label\n" + rows)
    with pytest.raises(DataError, match=re.escape(message)):
        run()
    assert not Path("sorted").exists()


def test_files_that_cannot_be_sorted_are_left_out() -> None:
    write_csv(ROWS[:1])
    Path("folder.png").mkdir()
    os.mkfifo("pipe.png")
    Path("lost.png").symlink_to("nowhere")
    Path("second.png").symlink_to("q/a/1.png")
    names = ["q/a/1.png", "gone.png", "folder.png", "pipe.png", "lost.png", "q/a/1.png", "second.png", "q/.."]
    Path("out.csv").write_text("path,truth,label\n" + "".join(f"{name},,cat\n" for name in names))
    reasons = {row.path: row.reason for row in run("copy").left_out}
    assert reasons == {
        "gone.png": "no such file",
        "folder.png": "is not a file",
        "pipe.png": "is not a file",
        "lost.png": "no such file",
        "q/a/1.png": "the predictions file names it twice",
        "second.png": "the predictions file names it twice",
        "q/..": "is not the name of a file",
    }
    with pytest.raises(
        DataError, match=re.escape("gone.png: no such file; stopped: 7 of 8 files in out.csv have")
    ):
        run("copy", "strict", max_failure_rate=0.0)
    assert not Path("strict").exists()
    moved = {row.path: row.reason for row in run("move", "moved").left_out}
    assert moved["second.png"] == moved["lost.png"] == "is a link, and only files are moved"


def test_sort_dry_run_reports_the_same_rows() -> None:
    write_csv(ROWS)
    before = tree(".")
    dry = run("move", dry_run=True)
    assert tree(".") == before
    assert run("move").rows == dry.rows


@pytest.mark.parametrize("content", [b"", b"hello", b"[1]\n", b'{"crnr_sort": 1}\n', b"[" * 100_000 + b"\n"])
def test_sort_undo_refuses_files_that_are_not_lists(content: bytes) -> None:
    LIST.parent.mkdir()
    LIST.write_bytes(content)
    with pytest.raises(DataError, match=re.escape("not an undo file of `crnr sort`")):
        unsort(LIST)


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_list_loses_no_file(here: Path, seed: int) -> None:
    """It is refused, or undone as far as it can be."""
    write_csv(ROWS)
    run("move")
    before = files(".")
    random = Random(seed)
    # Only what lies below the folder of the test is damaged, so that no file leaves it.
    pieces = LIST.read_bytes().split(os.fsencode(here) + b"/q")
    for _ in range(3):
        number = random.randrange(len(pieces))
        place = random.randrange(len(pieces[number]) + 1)
        damage = random.choice([b"", b"\x00", b"\\ud800", b'"', b"/", b"9", b"\xff", b"\n"])
        pieces[number] = pieces[number][:place] + damage + pieces[number][place + random.randrange(3) :]
    LIST.write_bytes((os.fsencode(here) + b"/q").join(pieces))
    with suppress(DataError):
        unsort(LIST)
    assert files(".") == before


@pytest.mark.parametrize(
    "target", ["../victim", "/etc/passwd", "a/../../victim", "", "a//b", "a\0b", "a/\ud800"]
)
def test_a_list_cannot_lead_out_of_its_folder(target: str) -> None:
    LIST.parent.mkdir()
    header = {"crnr_sort": 1, "how": "move", "made": []}
    entry = [str(Path("new").absolute()), target, target, 1, 1]
    LIST.write_text(f"{json.dumps(header)}\n{json.dumps(entry)}\n")
    Path("victim").write_text("mine")
    with pytest.raises(DataError, match=re.escape("not an undo file of `crnr sort`")):
        unsort(LIST)
    assert Path("victim").read_text() == "mine"


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 80)
LABELS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TEMPLATES = st.sampled_from(
    [
        "{label}/{name}",
        "{label}/{truth}-{name}",
        "{name}",
        "{label}{suffix}",
        "{truth}/{status}/{stem}",
        "x-{runner_up}",
    ]
)


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(st.sampled_from("pqr"), NAMES, LABELS, LABELS), min_size=1, max_size=8),
    template=TEMPLATES,
    how=st.sampled_from(HOWS),
)
def test_sorting_and_undoing_any_names(
    rows: list[tuple[str, str, str, str]], template: str, how: str
) -> None:
    with tempfile.TemporaryDirectory() as name, chdir(name):
        wanted = {f"{folder}/{file}": (truth, label) for folder, file, truth, label in rows}
        write_csv([(path, truth, label) for path, (truth, label) in wanted.items()])
        before = tree(".")
        given_files = sum((files(folder) for folder in "pqr"), Counter())
        report = run(how, template=template)
        if report.unrelated == 0:
            assert files("sorted") == given_files
        assert report.left_out == []
        assert {row.result for row in run(how, template=template).rows} == {ALREADY_THERE}
        assert unsort(LIST).left_out == []
        assert tree(".") == before


@given(name=st.text(st.characters(exclude_categories=["Cs"])) | st.binary().map(os.fsdecode))
def test_escaped_names_are_names_and_can_be_read_back(name: str) -> None:
    from crnr_cli.sorting.names import escape_class_name

    safe = escape_class_name(name)
    assert safe not in ("", ".", "..")
    assert not {"/", "\0", "\n"} & set(safe)
    assert safe.startswith("_") == (name == "")
    safe.encode()
    if name:
        assert os.fsencode(unquote(safe, errors="surrogateescape")) == os.fsencode(name)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "give names separated by single slashes"),
        ("/{name}", "give names separated"),
        ("{label}/", "give names separated"),
        ("../{name}", "give names separated"),
        ("a/./{name}", "give names separated"),
        (
            "{label}/{nam}",
            "'nam' is not one of label, truth, runner_up, status, name, stem, suffix; did you mean name",
        ),
        ("{label!r}", "a field is just a name"),
        ("{label:>9}", "a field is just a name"),
        ("{label.__class__}", "is not one of"),
        ("{}", "'' is not one of"),
        ("{label", "expected '}'"),
        ("x", "has no field"),
        ("a\n{name}", "a control character cannot be part of a name"),
    ],
)
def test_a_wrong_template_is_refused_before_any_work(template: str, reason: str) -> None:
    write_csv(ROWS)
    with pytest.raises(UsageError) as refused:
        run(template=template)
    assert reason in str(refused.value)
    assert not Path("sorted").exists()


def test_without_a_system_call_that_renames_safely_files_are_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_renaming", lambda: None)
    write_csv(ROWS)
    before = tree(".")
    run("move")
    assert files("sorted").total() == len(ROWS)
    unsort(LIST)
    assert tree(".") == before


def test_sort_and_undo_report_their_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each file, which would take longer than to sort it; and always to the end."""
    for module in ("crnr_cli.jobs.sort", "crnr_cli.sorting.plan"):
        monkeypatch.setattr(f"{module}.REPORTED_EVERY", 2)
    write_csv([(f"{number}.png", "", "cat") for number in range(5)])
    seen: list[tuple[str, int, int]] = []

    def note(step: str, done: int, total: int) -> None:
        seen.append((step, done, total))

    def steps(name: str) -> list[tuple[str, int, int]]:
        return [(name, done, 5) for done in (2, 4, 5)]

    sort(Path("out.csv"), Path("sorted"), SortOptions(), note)
    assert [one for one in seen if one[0] == "looking for files"] == steps("looking for files")
    seen.clear()
    unsort(LIST, progress=note)
    assert seen == steps("sorting")


def test_portable_names_are_names_that_windows_can_have() -> None:
    write_csv([("a.png", "", "left:right?"), ("b.png", "", "con")])
    run("copy", "as_here")
    assert set(only_files("as_here")) == {"left:right?/a.png", "con/b.png"}
    run("copy", "portable", portable_names=True)
    folders = {name.partition("/")[0] for name in only_files("portable")}
    assert set(map(unquote, folders)) == {"left:right?", "con"}
    assert not [name for name in folders if re.search(r'[<>:"\\|?*]', name) or name.lower() == "con"]
