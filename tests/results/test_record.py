"""The record next to a predictions file: written, read again, and damaged."""

from __future__ import annotations

import io
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.errors import OutputError
from crnr_cli.results import record
from crnr_cli.results.record import Listed, Rows, State, find_finished

NAMES = st.text(st.characters() | st.sampled_from("\udc80\udcff"), max_size=4)  # some are not UTF-8 on disk
DESCRIBED = st.tuples(
    NAMES,
    st.integers(0, 2**40),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(NAMES, max_size=2).map(tuple),
    st.integers(1, 2**30),
    st.booleans(),
)


def state_of(described: list[Any]) -> State:
    """Return the record of these rows, one after the other; a name may come several times."""
    rows, start = Rows(), 7
    for name, size, mtime, about, length, is_failed in described:
        place, is_wanted = rows.find(Listed(name, size, mtime, about))
        assert is_wanted
        rows.store(place, start, length, is_new=True, is_failed=is_failed)
        start += length
    return State({"--top": 3}, start, "5a", 7, rows)


def written(state: State, at_once: int = 2) -> bytes:
    file = io.BytesIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "_ROWS_PER_LINE", at_once)
        state.write(file, range(len(state.rows)))
    return file.getvalue()


@given(st.lists(DESCRIBED, max_size=6), st.sampled_from([1, 2, 1024]))
@example([("a", 1, 2, (), 3, True), ("a", 1, 2, (), 4, False), ("a", 1, 2, (), 5, False)], 2)
def test_a_record_is_read_as_it_was_written(described: list[Any], at_once: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        state = state_of(described)
        content = written(state, at_once)
        patch.setattr(Path, "open", lambda path, mode: io.BytesIO(content))
        found = State.read(Path("record"))
    assert found is not None
    assert (found.settings, found.size, found.sha256, found.header) == ({"--top": 3}, state.size, "5a", 7)
    assert found.rows.keys == state.rows.keys
    assert len(content.splitlines()) == 2 + -(-len(described) // at_once)
    columns = ("sizes", "mtimes", "abouts", "starts", "lengths", "are_failed")
    for column in columns:
        assert list(getattr(found.rows, column)) == list(getattr(state.rows, column)), column
    assert not any(found.rows.are_new)
    for name, size, mtime, about, _, is_failed in described:  # none has changed
        place, is_wanted = found.rows.find(Listed(name, size, mtime, about))
        assert (place, is_wanted) == (state.rows.places[state.rows.keys[place]], is_failed)


def test_a_line_of_a_record_has_up_to_1024_rows() -> None:
    """As documented."""
    file, state = io.BytesIO(), state_of([(str(i), 1, 2, (), 3, False) for i in range(1025)])
    state.write(file, range(1025))
    _, *lines, _ = map(json.loads, file.getvalue().splitlines())
    assert [len(line) for line in lines] == [1024, 1]


ROW = ["a", 0, 5, 6, ["bee"], 0, 9]


def signed(*lines: object) -> bytes:
    content = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return content + json.dumps({"sha256": sha256(content).hexdigest()}).encode() + b"\n"


def head(**changes: object) -> dict[str, object]:
    output = {"size": 16, "sha256": "5a", "header": 7}
    return {"crnr-state": 1, "settings": {"--top": 3}, "output": output} | changes


@pytest.mark.parametrize(
    "content",
    [
        signed([]),
        signed(head(settings=[]), [ROW]),
        signed(head(**{"crnr-state": 2}), [ROW]),
        signed(head(output={"size": 16, "sha256": "5a"}), [ROW]),
        signed(head(output={"size": 17, "sha256": "5a", "header": 7}), [ROW]),  # a byte is missing
        signed(head(), [ROW], "rows"),
        signed(head(), "rows", [ROW]),
        signed(head(), [ROW]).replace(b"\n", b"\nnull\n", 1),  # which the hash leaves out
        signed(head(), [ROW, ["b", *ROW[1:6], 0]]),  # the sum of lengths is right
        *(
            signed(head(), [[*ROW[:at], value, *ROW[at + 1 :]]])
            for at, value in ((0, 1), (1, -1), (1, "0"), (2, 2**63), (3, None), (4, "bee"), (5, 2), (6, 0))
        ),
        signed(head(), [ROW[:-1]]),
        signed(head(), [[*ROW, 0]]),
    ],
)
def test_a_damaged_record_is_none(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "record"
    whole = signed(head(), [ROW])
    place.write_bytes(whole)
    assert State.read(place) is not None
    place.write_bytes(content)
    assert State.read(place) is None


def test_a_record_without_its_end_or_with_a_changed_byte_is_none(tmp_path: Path) -> None:
    place = tmp_path / "record"
    whole = written(state_of([("a", 1, 2, (), 3, True), ("b", 1, 2, ("c",), 4, False)]))
    for end in range(len(whole) - 1):
        place.write_bytes(whole[:end])
        assert State.read(place) is None
    for at in range(whole.index(b"\n"), len(whole) - 1):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert State.read(place) is None
    assert State.read(tmp_path / "no record") is None


def test_a_record_is_read_as_it_is_documented(tmp_path: Path) -> None:
    """Records of earlier versions stay of use: the second listing of a query has one before it."""
    output = {"size": 31, "sha256": "5a", "header": 7}
    rows = [["a", 0, 5, 6, ["bee"], 0, 9], ["a", 1, 5, 6, ["bee"], 0, 8], ["b", 0, 5, 6, [], 1, 7]]
    place = tmp_path / "record"
    place.write_bytes(signed(head(output=output), rows))
    state = State.read(place)
    assert state is not None
    found = [state.rows.find(Listed(name, 5, 6, about)) for name, about in (("a", ("bee",)),) * 3]
    assert found == [(0, False), (1, False), (3, True)]
    assert state.rows.find(Listed("b", 5, 6, ())) == (2, True)  # it failed
    assert list(state.rows.starts) == [7, 16, 24, 0]


def test_a_record_that_cannot_be_read_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as refused:
        State.read(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: cannot read it (Is a directory); "
        "make it readable, or remove it to classify all queries again"
    )


QUERIES = [Listed("a", 1, 2, ()), Listed("b", 1, 2, ()), Listed("b", 1, 2, ())]
HEADERS = {"csv": b"path,label\n", "jsonl": b""}


def note_on(path: Path, kind: str, content: bytes, gallery_mtime_ns: int = 0) -> str:
    path.write_bytes(HEADERS[kind] + content)
    found = find_finished(path, {"--format": kind}, HEADERS[kind], QUERIES, gallery_mtime_ns)
    assert found is not None
    assert found.is_complete is found.note.endswith("to classify them again, leave out --resume")
    assert found.note.startswith(f"{path}: ")
    return found.note.removeprefix(f"{path}: ")


@pytest.mark.parametrize("kind", HEADERS)
def test_a_finished_output_is_compared_with_the_queries(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    rows = {name: f"{name},x\n".encode() for name in "abc"}
    if kind == "jsonl":
        rows = {name: json.dumps({"path": name, "label": "x"}).encode() + b"\n" for name in "abc"}
    a, b, c = rows.values()
    again = "all queries are classified again"
    complete = "is complete, with a row for each of 3 queries; to classify them again, leave out --resume"
    assert note_on(path, kind, a + b + b) == complete
    long_field = b"x" * 200_000  # such as a set of many labels
    assert note_on(path, kind, a + b + b.replace(b"x", long_field)) == complete
    missing = f"1 of 3 queries has no row yet or changed; {again} (--update classifies only those)"
    assert note_on(path, kind, a + b) == missing
    assert note_on(path, kind, a + b + c) == missing
    assert note_on(path, kind, a + b + b + c) == f"has rows of other queries; {again}"
    assert note_on(path, kind, a + b + b, 2**62) == f"is older than the gallery; {again}"
    damaged = {"csv": b'"a', "jsonl": b'{"label": "x"}\n'}[kind]
    assert note_on(path, kind, a + b + b + damaged) == f"has other columns than this run writes; {again}"


def test_what_is_as_old_as_the_output_has_not_changed_since(tmp_path: Path) -> None:
    path, moment = tmp_path / "out", 6_000_000_000
    path.write_bytes(b"path,label\na,x\n")
    os.utime(path, ns=(moment, moment))

    def find(query_mtime_ns: int, gallery_mtime_ns: int) -> tuple[bool, str]:
        query = Listed("a", 1, query_mtime_ns, ())
        found = find_finished(path, {"--format": "csv"}, HEADERS["csv"], [query], gallery_mtime_ns)
        assert found is not None
        return found.is_complete, found.note.removeprefix(f"{path}: ").partition("; ")[0]

    assert find(moment, moment) == (True, "is complete, with a row for each of 1 query")
    assert find(moment + 1, moment) == (False, "1 of 1 query has no row yet or changed")
    assert find(moment, moment + 1) == (False, "is older than the gallery")


def test_names_with_any_line_ends_and_bytes_are_found_in_a_csv(tmp_path: Path) -> None:
    names = ["a\r\nb", "a\rb", "a\nb", 'a"b', "\udcff"]
    queries = [Listed(name, 1, 2, ()) for name in names]
    rows = "".join('"{}",x\n'.format(name.replace('"', '""')) for name in names)
    (tmp_path / "out").write_bytes(HEADERS["csv"] + rows.encode("utf-8", "surrogateescape"))
    found = find_finished(tmp_path / "out", {"--format": "csv"}, HEADERS["csv"], queries, 0)
    assert found == (
        True,
        f"{tmp_path}/out: is complete, with a row for each of 5 queries; "
        "to classify them again, leave out --resume",
    )


def test_an_output_with_the_record_of_another_run_is_not_that_of_the_run(tmp_path: Path) -> None:
    path, content = tmp_path / "out", HEADERS["csv"] + b"a,x\n"
    path.write_bytes(content)
    rows = Rows()
    rows.store(rows.find(Listed("a", 1, 2, ()))[0], len(HEADERS["csv"]), 4, is_new=True, is_failed=True)
    earlier: dict[str, str | int | float | None] = {"--format": "csv", "--top": 3, "gallery": "5a" * 32}
    state = State(earlier, len(content), sha256(content).hexdigest(), len(HEADERS["csv"]), rows)
    (tmp_path / "out.crnr-state").write_bytes(written(state))

    def find(**changes: str | int) -> tuple[bool, str] | None:
        return find_finished(path, earlier | changes, HEADERS["csv"], [Listed("a", 1, 2, ())], 2**62)

    assert find(**{"--top": 4, "gallery": "a5" * 32}) == (
        False,
        f"{path}: was made by a different run: --top was 3 and is now 4, gallery differs; "
        "all queries are classified again",
    )
    assert find() == (
        True,
        f"{path}: is complete, with a row for each of 1 query; to classify them again, leave out --resume",
    )


def test_an_output_with_another_header_is_not_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"path,truth\na,x\n")
    found = find_finished(tmp_path / "out", {"--format": "csv"}, HEADERS["csv"], QUERIES, 0)
    assert found is not None
    assert "has other columns" in found.note
    assert find_finished(tmp_path / "none", {"--format": "csv"}, b"", QUERIES, 0) is None
    (tmp_path / "out.crnr-part").write_bytes(b"")
    assert find_finished(tmp_path / "out", {"--format": "csv"}, b"", QUERIES, 0) is None
