"""Corrections of answers, and messages about files that cannot be used."""

from __future__ import annotations

import csv
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.errors import CrnrError, DataError, OutputError
from crnr_cli.results.edited import read_corrections
from crnr_cli.system.outputs import DeclaredOutput, planned
from helpers.runner import powerless

HEADER = "path,label,corrected,when\n"


def test_every_row_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("c.csv")
    path.write_bytes(
        b"\xef\xbb\xbfwhen,corrected,more,path,label\n"
        b'2026-01-31T12:00:00.250Z,"a,b",x,q/caf\xe9.png,b\n'
        b"\n"
        b",unknown,,q/2.png,\n"
    )
    found = read_corrections(path)
    assert len(found) == 2
    first, second = found
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    assert first == ("q/caf\udce9.png", "b", "a,b", moment.timestamp(), 2)
    assert second == ("q/2.png", "", "unknown", None, 4)
    assert (first.is_outsider, second.is_outsider) == (False, True)


def test_a_file_is_found_by_any_of_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("c.csv")
    path.write_text(HEADER + "q/cafe\u0301.png,a,b,\n")
    found = read_corrections(path)
    for name in ("q/caf\u00e9.png", "./q/x/../cafe\u0301.png", f"{tmp_path}/q/caf\u00e9.png"):
        correction = found.of(name)
        assert correction is not None
        assert correction.corrected == "b"
    assert found.of("caf\u00e9.png") is None


def test_a_row_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(HEADER + "a.png,x,y,\n./a.png,x,y,\n")
    assert [correction.line for correction in read_corrections(path)] == [2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "{}: no column path or label or corrected or when; was it saved by the page of `crnr review`?"),
        ("path,label,corrected\na,b,c\n", "{}: no column when; was it saved by the page of `crnr review`?"),
        ("path,label,corrected,when,label\n", "{}: has two columns label; remove one"),
        (HEADER, "{}: has no corrections; review some answers and save it again"),
        (HEADER + "a,b\n", "{}, line 2: 2 fields, but the header has 4; is the file truncated?"),
        (HEADER + ",b,b,\n", "{}, line 2: the path is empty"),
        (
            HEADER + "a,b,b,\nc,b,,\n",
            "{}, line 3: the column corrected is empty; name the class, or remove the row",
        ),
        (HEADER + "a,b,b,\na,b,c,\n", "{}, line 3: a is 'c' here, and 'b' in line 2"),
        (
            HEADER + "a,b,b,yesterday\n",
            "{}, line 2: the column when contains 'yesterday', which is not a date such as "
            "2026-01-31T12:00:00Z; leave it empty if it is not known",
        ),
        (HEADER + '"a,b,b,\n', "{}, line 2: not readable as CSV (unexpected end of data)"),
    ],
)
def test_read_corrections_refuses_invalid_rows(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "c.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_corrections(path)
    assert str(error.value) == words.format(path)


def test_a_time_has_a_zone_or_is_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.csv"
    moments = ["2026-01-31T12:00:00", "2026-01-31T12:00:00Z", "2026-01-31T14:00:00+02:00"]
    path.write_text(HEADER + "".join(f"{i}.png,a,a,{moment}\n" for i, moment in enumerate(moments)))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "JST-9")
            time.tzset()
            found = [one.when for one in read_corrections(path)]
    finally:
        time.tzset()
    assert found == [noon] * 3


def test_a_long_text_that_is_no_time_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(HEADER + f"a,b,b,{'x' * 41}\n")
    with pytest.raises(DataError, match=f"contains '{'x' * 40}', which"):
        read_corrections(path)


def test_read_corrections_refuses_missing_and_unreadable_files(tmp_path: Path) -> None:
    rest = "give the corrections saved by the page of `crnr review`"
    (closed := tmp_path / "closed.csv").write_text(HEADER + "a,b,b,\n")
    closed.chmod(0)
    cases = {
        tmp_path / "none.csv": f"no such file; {rest}",
        tmp_path: f"is not a file; {rest}",
        closed: "cannot read it (Permission denied)",
    }
    for path, words in cases.items():
        with powerless(), pytest.raises(DataError) as error:
            read_corrections(path)
        assert str(error.value) == f"{path}: {words}"


def test_a_path_with_nul_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(HEADER.encode() + b"a\0b,x,x,\n")
    with pytest.raises(DataError) as error:
        read_corrections(path)
    assert str(error.value) == f"{path}, line 2: the path contains NUL"


def test_a_class_must_be_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_bytes(HEADER.encode() + b"caf\xe9.png,caf\xe9,dog,\nb.png,dog,caf\xe9,\n")
    with pytest.raises(DataError) as error:
        read_corrections(path)
    assert str(error.value) == (
        f"{path}, line 3: the column corrected is not UTF-8; save the file as UTF-8, "
        "which spreadsheets call CSV UTF-8"
    )


def test_corrections_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text(HEADER + "a,b,b,\n")
    with planned([DeclaredOutput(path)]), pytest.raises(OutputError, match="is an input of this run"):
        read_corrections(path)


@given(st.binary(max_size=200))
def test_no_content_does_harm(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(HEADER.encode() + content)
    try:
        found = read_corrections(path)
    except CrnrError:
        return
    assert all(one.path and one.corrected and "\0" not in one.path for one in found)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), min_size=1
    )
)
def test_any_name_survives(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "names.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label", "corrected", "when"])
        writer.writerows([f"{i}.png", "a", name, ""] for i, name in enumerate(names))
    assert [one.corrected for one in read_corrections(path)] == names
