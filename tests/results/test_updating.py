"""Updates of a predictions file: rows that are kept, replaced and dropped, and runs that are stopped."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import compress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crnr_cli.errors import OutputError
from crnr_cli.results import updating as module
from crnr_cli.results.journal import Identity
from crnr_cli.results.record import Listed
from crnr_cli.results.updating import updating
from crnr_cli.system import descriptors
from crnr_cli.wording import Note

CSV: Identity = {"--format": "csv", "--top": None}
OTHER: Identity = {"--format": "csv", "--top": 1}
JSON_LINES: Identity = {"--format": "jsonl", "--top": None}


class Stop(Exception):  # noqa: N818, it is a wish and not an error
    pass


def header_of(run: Identity) -> bytes:
    return b"path,label\n" if run["--format"] == "csv" else b""


def row_of(run: Identity, name: str, label: str) -> bytes:
    if run["--format"] == "csv":
        return f"{name},{label}\n".encode()
    return json.dumps({"path": name, "label": label}).encode() + b"\n"


def update(
    path: Path,
    names: Iterable[str],
    label: str = "x",
    *,
    run: Identity = CSV,
    mtime: int = 1,
    prune: bool = False,
    stop_after: int = 99,
) -> list[Note]:
    """Give every query that is new or has changed this label, each in a batch of its own."""
    queries = [Listed(name, 5, mtime, ()) for name in names]
    with updating(path, run, prune=prune) as each:
        each.begin(header_of(run))
        for number, query in enumerate(compress(queries, each.choose(queries)), start=1):
            each.write(row_of(run, query.name, label))
            each.end_batch(Counter(ok=1), 0)
            assert each.done.batches == number
            if number == stop_after:
                raise Stop
    return each.notes


def content(labels: dict[str, str], run: Identity = CSV) -> bytes:
    return header_of(run) + b"".join(row_of(run, name, label) for name, label in labels.items())


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


NIGHTS = st.lists(
    st.tuples(st.sets(st.sampled_from("abcd")), st.booleans(), st.booleans(), st.integers(0, 3)), max_size=5
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NIGHTS, st.sampled_from([CSV, JSON_LINES]), st.integers(1, 9))
@example([({"a", "b"}, True, False, 1), ({"a"}, True, False, 0), ({"a", "b", "c"}, False, False, 2)], CSV, 4)
def test_updated_rows_are_those_of_a_dictionary(
    tmp_path: Path, nights: list[tuple[set[str], bool, bool, int]], run: Identity, copied_at_once: int
) -> None:
    """Any files are listed, all with a new time or not; some updates are stopped, and begin again."""
    path, rows, mtime = tmp_path / "out", dict[str, tuple[str, int]](), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_COPIED_AT_ONCE", copied_at_once)
        for number, (listed, have_changed, prune, stop_after) in enumerate(nights):
            mtime += have_changed
            label = f"night {number}"
            for name in sorted(listed):
                if name not in rows or rows[name][1] != mtime:
                    rows[name] = label, mtime
            if prune:
                rows = {name: row for name, row in rows.items() if name in listed}
            for stop in (stop_after, 99):
                with suppress(Stop):
                    update(path, sorted(listed), label, run=run, mtime=mtime, stop_after=stop, prune=prune)
            assert path.read_bytes() == content({name: each for name, (each, _) in rows.items()}, run)
            assert names_in(tmp_path) == ["out", "out.crnr-state"]
    for place in tmp_path.iterdir():
        place.unlink()


@pytest.mark.parametrize("run", [CSV, JSON_LINES], ids=["csv", "jsonl"])
def test_the_first_rows_are_kept_and_a_later_one_is_replaced(tmp_path: Path, run: Identity) -> None:
    path = tmp_path / "out"
    assert update(path, "abc", run=run) == [Note("updated", f"{path}: 3 rows added")]
    with updating(path, run, prune=False) as each:
        each.begin(header_of(run))
        assert each.choose([Listed("a", 5, 1, ()), Listed("b", 5, 1, ()), Listed("c", 5, 2, ())]) == [
            False,
            False,
            True,
        ]
        each.write(row_of(run, "c", "changed"))
        each.end_batch(Counter(ok=1), 0)
    assert each.notes == [Note("updated", f"{path}: 1 row replaced, 2 rows unchanged")]
    assert path.read_bytes() == content({"a": "x", "b": "x", "c": "changed"}, run)


def test_rows_of_files_that_are_gone_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "out"
    update(path, "abc")
    assert update(path, "c") == [
        Note("updated", f"{path}: 1 row unchanged"),
        Note("gone", "files that are gone: 2 rows kept; --prune drops such rows"),
    ]
    assert update(path, "c", prune=True) == [
        Note("updated", f"{path}: 1 row unchanged"),
        Note("gone", "files that are gone: 2 rows dropped"),
    ]
    assert path.read_bytes() == content({"c": "x"})


def test_an_update_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(Stop):
        update(path, "abc", "first", stop_after=2)
    assert names_in(tmp_path) == ["out.crnr-journal", "out.crnr-rows"]
    assert update(path, "abcd", "second") == [
        Note("resumed", "2 rows of the earlier run, which was stopped, are used"),
        Note("updated", f"{path}: 2 rows added, 2 rows unchanged"),
    ]
    assert path.read_bytes() == content({"a": "first", "b": "first", "c": "second", "d": "second"})
    assert names_in(tmp_path) == ["out", "out.crnr-state"]


def test_rows_of_a_stopped_run_with_other_settings_are_not_used(tmp_path: Path) -> None:
    """Nor are those of the run that follows taken for rows of the first."""
    path = tmp_path / "out"
    with pytest.raises(Stop):
        update(path, "abc", "first", stop_after=2)
    with pytest.raises(Stop):
        update(path, "abc", "other", run=OTHER, stop_after=1)
    assert update(path, "abc", "second") == [Note("updated", f"{path}: 3 rows added")]
    assert path.read_bytes() == content(dict.fromkeys("abc", "second"))


def test_a_stopped_run_with_other_settings_goes_on_itself(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(Stop):
        update(path, "abc", "first", stop_after=2)
    with pytest.raises(Stop):
        update(path, "abc", "other", run=OTHER, stop_after=1)
    assert update(path, "abc", "other", run=OTHER) == [
        Note("resumed", "1 row of the earlier run, which was stopped, is used"),
        Note("updated", f"{path}: 2 rows added, 1 row unchanged"),
    ]
    assert path.read_bytes() == content(dict.fromkeys("abc", "other"))


@pytest.mark.parametrize("rows", [7, None, ["b"], [["b", 0, 5, 1, [], 0, 0]], [["b", 0, 2**63, 1, [], 0, 4]]])
def test_batches_after_one_that_is_damaged_are_not_used(tmp_path: Path, rows: object) -> None:
    path = tmp_path / "out"
    with pytest.raises(Stop):
        update(path, "abcd", "first", stop_after=3)
    journal = tmp_path / "out.crnr-journal"
    lines = journal.read_bytes().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"rows": rows}).encode()
    journal.write_bytes(b"\n".join(lines) + b"\n")
    assert update(path, "abcd", "second") == [
        Note("resumed", "1 row of the earlier run, which was stopped, is used"),
        Note("updated", f"{path}: 3 rows added, 1 row unchanged"),
    ]
    assert path.read_bytes() == content({"a": "first"} | dict.fromkeys("bcd", "second"))


def test_all_rows_of_a_finished_batch_are_used_except_failed_ones(tmp_path: Path) -> None:
    path, queries = tmp_path / "out", [Listed(name, 5, 1, ()) for name in "abcd"]
    with suppress(Stop), updating(path, CSV, prune=False) as each:
        each.begin(header_of(CSV))
        each.choose(queries)
        each.write(b"a,1\nb,first\nc,\nd,22\n")
        each.end_batch(Counter(ok=3, broken=1), 1, failed=[2])
        raise Stop
    assert update(path, "dcba", "second") == [
        Note("resumed", "4 rows of the earlier run, which was stopped, are used"),
        Note("updated", f"{path}: 1 row replaced, 3 rows unchanged"),
    ]
    assert path.read_bytes() == b"path,label\na,1\nb,first\nc,second\nd,22\n"


@pytest.mark.parametrize(
    "damaged", [["b", 0, 5, 1, [], 0, "8"], ["b", 0, 5, 1, [], 0, 7], ["b", 0, 5, 1, [], 0, 9], ["b"]]
)
def test_of_a_batch_with_a_damaged_row_no_row_is_used(tmp_path: Path, damaged: list[object]) -> None:
    """The bytes of its other rows are cut off with those of the damaged row."""
    path, queries = tmp_path / "out", [Listed("a", 5, 1, ()), Listed("b", 5, 1, ())]
    with suppress(Stop), updating(path, CSV, prune=False) as each:
        each.begin(header_of(CSV))
        each.choose(queries)
        each.write(b"a,first\nb,first\n")
        each.end_batch(Counter(ok=2), 0)
        raise Stop
    journal = tmp_path / "out.crnr-journal"
    first, batch = journal.read_bytes().splitlines()
    row_a, _ = json.loads(batch)["rows"]
    damaged_batch = json.dumps(json.loads(batch) | {"rows": [row_a, damaged]}).encode()
    journal.write_bytes(first + b"\n" + damaged_batch + b"\n")
    assert update(path, "cba", "second") == [Note("updated", f"{path}: 3 rows added")]
    assert path.read_bytes() == content(dict.fromkeys("cba", "second"))


def test_a_failure_before_the_first_batch_leaves_no_files(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(Stop), updating(path, CSV, prune=False):
        raise Stop
    assert names_in(tmp_path) == []
    update(path, "a")
    with pytest.raises(Stop), updating(path, CSV, prune=False):
        raise Stop
    assert names_in(tmp_path) == ["out", "out.crnr-state"]


def test_failed_rows_alone_are_no_answers(tmp_path: Path) -> None:
    """A README counts as failed if no row, old or new, has an answer."""
    path, queries = tmp_path / "out", [Listed("a", 5, 1, ()), Listed("b", 5, 1, ())]
    with updating(path, CSV, prune=False) as each:
        each.begin(header_of(CSV))
        each.choose(queries)
        each.write(content(dict.fromkeys("ab", "")).removeprefix(header_of(CSV)))
        each.end_batch(Counter(broken=2), 2, failed=[0, 1])
        assert (each.done.statuses, each.done.skipped) == (Counter(broken=2), 2)
        assert not each.has_answers
    with updating(path, CSV, prune=False) as each:
        each.begin(header_of(CSV))
        assert each.choose(queries) == [True, True]
        each.write(b"a,x\nb,\n")
        each.end_batch(Counter(ok=1, broken=1), 1, failed=[1])
        assert each.has_answers
    with updating(path, CSV, prune=False) as each:
        assert each.choose(queries) == [False, True]
        assert each.has_answers
        each.begin(header_of(CSV))
        each.write(b"b,\n")
        each.end_batch(Counter(broken=1), 1, failed=[0])
    assert path.read_bytes() == b"path,label\na,x\nb,\n"


def test_a_full_disk_is_reported_with_what_is_kept(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as full, updating(tmp_path / "out", CSV, prune=False):
        raise OSError(errno.ENOSPC, "")
    assert str(full.value) == (
        f"{tmp_path}/out: cannot write ({os.strerror(errno.ENOSPC)}); "
        "finished batches are kept: run the command again"
    )


def test_a_record_that_a_killed_run_left_is_written_anew(tmp_path: Path) -> None:
    path, state = tmp_path / "out", tmp_path / "out.crnr-state"
    update(path, "ab")
    expected = state.read_bytes()
    state.unlink()
    path.unlink()
    (tmp_path / "out.crnr-next").write_bytes(b"of a killed run\n" * 1000)
    update(path, "ab")
    assert state.read_bytes() == expected
    assert names_in(tmp_path) == ["out", "out.crnr-state"]


def test_a_record_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure at any time, there is a record, whole, or the one before."""
    path, state = tmp_path / "out", tmp_path / "out.crnr-state"
    update(path, "ab")
    seen: list[tuple[int, int] | str] = []

    def sync(handle: int) -> None:
        found = os.fstat(handle)
        seen.append((found.st_ino, found.st_size))

    def sync_folder(folder: str | Path) -> None:
        assert Path(folder) == tmp_path
        seen.append("new record" if state.stat().st_ino != before else "old record")

    before = state.stat().st_ino
    monkeypatch.setattr(descriptors, "sync", sync)
    monkeypatch.setattr(descriptors, "sync_folder", sync_folder)
    update(path, "abc")
    expected = [(place.stat().st_ino, place.stat().st_size) for place in (state, path)]
    assert seen == [*expected, "old record", "new record"]


def test_another_run_classifies_again_and_names_all_differences(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    update(path, "ab", "first")
    run: Identity = {**OTHER, "gallery": "5a" * 32}
    assert update(path, "ab", "other", run=run) == [
        Note(
            "again",
            f"{path}: was made by a different run: --top was None and is now 1, gallery differs; "
            "all queries are classified again",
        ),
        Note("updated", f"{path}: 2 rows added"),
    ]
    assert path.read_bytes() == content(dict.fromkeys("ab", "other"))
    assert names_in(tmp_path) == ["out.csv", "out.csv.crnr-state"]


def test_rows_that_another_run_would_lose_are_kept_unless_they_are_pruned(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    update(path, "ab", "first")
    update(path, "a", "other", run=OTHER, prune=True)
    assert names_in(tmp_path) == ["out.csv", "out.csv.crnr-state"]
    update(path, "ab", "other", run=OTHER)
    notes = update(path, "a", "first")
    assert notes[2:] == [Note("old", "the earlier out.csv is kept as out.old.csv")]
    assert (tmp_path / "out.old.csv").read_bytes() == content(dict.fromkeys("ab", "other"))


def test_of_a_file_without_rows_another_run_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    assert update(path, "") == [Note("updated", f"{path}: there is nothing to classify")]
    assert path.read_bytes() == header_of(CSV)
    update(path, "a", run=OTHER)
    assert names_in(tmp_path) == ["out.csv", "out.csv.crnr-state"]


def test_a_missing_or_edited_file_is_classified_again(tmp_path: Path) -> None:
    path, state = tmp_path / "out.csv", tmp_path / "out.csv.crnr-state"

    def notes_after(change: str) -> list[Note]:
        update(path, "a")
        if change == "missing":
            path.unlink()
        elif change == "edited":
            path.write_bytes(b"edited")
        else:
            state.unlink()
        return update(path, "a")[:1]

    again = "all queries are classified again"
    assert notes_after("missing") == [Note("again", f"{path}: is missing; {again}")]
    edited = f"{path}: is not the file that the last update wrote; {again}"
    assert notes_after("edited") == [Note("again", edited)]
    alone = f"{path}: its record out.csv.crnr-state is missing; {again}"
    assert notes_after("alone") == [Note("again", alone)]
    assert (tmp_path / "out.old.csv").read_bytes() == b"edited"


def test_after_a_kill_between_the_file_and_its_record_both_are_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished batches are in the file already, so they are not those of a stopped run."""

    def stop(_: object) -> None:
        raise Stop

    path = tmp_path / "out"
    update(path, "a", "first")
    with monkeypatch.context() as patch:
        patch.setattr(module.Update, "_put_state_in_place", stop)
        with pytest.raises(Stop):
            update(path, "abc", "second")
    assert names_in(tmp_path) == [
        "out",
        *("out.crnr-journal", "out.crnr-next", "out.crnr-rows", "out.crnr-state"),
    ]
    assert update(path, "abc", "third") == [Note("updated", f"{path}: 3 rows unchanged")]
    assert path.read_bytes() == content({"a": "first", "b": "second", "c": "second"})
    assert names_in(tmp_path) == ["out", "out.crnr-state"]


def test_a_record_of_a_file_that_was_never_put_in_place_is_not_used(tmp_path: Path) -> None:
    path, state, coming = (tmp_path / f"out{ending}" for ending in ("", ".crnr-state", ".crnr-next"))
    update(path, "abc", "lost")
    lost = state.read_bytes()
    path.unlink()
    state.unlink()
    update(path, "a", "first")
    coming.write_bytes(lost)
    assert update(path, "a", "second") == [Note("updated", f"{path}: 1 row unchanged")]
    assert names_in(tmp_path) == ["out", "out.crnr-state"]
    coming.write_bytes(lost)
    assert update(path, "ab", "second") == [Note("updated", f"{path}: 1 row added, 1 row unchanged")]
    assert path.read_bytes() == content({"a": "first", "b": "second"})
    assert names_in(tmp_path) == ["out", "out.crnr-state"]
