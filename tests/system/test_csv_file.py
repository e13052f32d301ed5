"""Tables as spreadsheets save them: read, or refused with the remedy."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.results.edited import read_candidates, read_corrections, read_marked_samples
from crnr_cli.results.formats import read_answers
from crnr_cli.results.table import read_predictions
from crnr_cli.sources.formats.csv_table import read_csv
from crnr_cli.sources.label_table import LabelOptions
from crnr_cli.system.csv_file import long_fields, write_rows

fields = st.text(st.sampled_from('a ,;"\r\n\té\udcff'), max_size=5)


@given(st.lists(st.lists(fields, min_size=2, max_size=4), max_size=4))
@example([["a\rb", "c"]])  # the csv module of some versions of Python would not quote it
def test_written_rows_are_read_back(rows: list[list[str]]) -> None:
    lines: list[str] = []
    write_rows(lines.append, rows)
    assert list(csv.reader(io.StringIO("".join(lines), newline=""), strict=True)) == rows
    assert [line[-1:] for line in lines] == ["\n"] * len(rows)
    assert all(not line.endswith("\r\n") or "\r" in row[-1] for line, row in zip(lines, rows, strict=True))


def test_write_rows_quotes_only_where_needed() -> None:
    lines: list[str] = []
    write_rows(lines.append, [["a b", 1, None, 0.5], ["a,b", 'a"b', "a\nb", "a\rb"]])
    assert "".join(lines) == 'a b,1,,0.5\n"a,b","a""b","a\nb","a\rb"\n'


# The reader of each table, its text, and the result.
TABLES = {
    "labels": (
        lambda path: LabelOptions(path).read().label_of(str(path.parent / "é.png")),
        "path,label\né.png,naïf\n",
    ),
    "corrections": (
        lambda path: next(iter(read_corrections(path))).corrected,
        "path,label,corrected,when\né.png,b,naïf,\n",
    ),
    "marks": (lambda path: read_marked_samples(path)[0], "path,remove\nnaïf,x\n"),
    "answers": (lambda path: read_answers(path)[0].label, "path,truth,label\né.png,b,naïf\n"),
    "predictions": (lambda path: read_predictions(path)[0].label, "path,truth,label\né.png,b,naïf\n"),
    "features": (lambda path: read_csv(path, ["labels"])["labels"][0], "labels,x,y\nnaïf,1,2\n"),
}
each_table = pytest.mark.parametrize("kind", TABLES)


def saved(tmp_path: Path, kind: str, encoding: str, *changes: tuple[str, str]) -> Path:
    text = TABLES[kind][1]
    for old, new in changes:
        text = text.replace(old, new)
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return path


@each_table
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_a_mark_at_the_beginning_do_not_matter(
    tmp_path: Path, kind: str, encoding: str, end: str
) -> None:
    assert TABLES[kind][0](saved(tmp_path, kind, encoding, ("\n", end))) == "naïf"


@each_table
def test_utf_16_is_refused(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind, "utf-16", (",", "\t"))
    with pytest.raises(DataError) as caught:
        TABLES[kind][0](path)
    assert str(caught.value) == f"{path}: is UTF-16 text; save it as UTF-8, which spreadsheets call CSV UTF-8"


@each_table
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_separate_columns(tmp_path: Path, kind: str, mark: str, encoding: str) -> None:
    assert TABLES[kind][0](saved(tmp_path, kind, encoding, (",", mark))) == "naïf"


@each_table
@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators_may_be_in_quotes(tmp_path: Path, kind: str, mark: str) -> None:
    path = saved(tmp_path, kind, "utf-8", (",", mark), ("naïf", f'"na{mark}ïf,"'))
    assert TABLES[kind][0](path) == f"na{mark}ïf,"


@each_table
def test_rows_of_another_width_are_refused_with_their_line(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind, "utf-8", (",", ";"))
    path.write_text(path.read_text(encoding="utf-8") + "naïf;a;b;c;d;e\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"^{re.escape(str(path))}, line 3: 6 "):
        TABLES[kind][0](path)


@pytest.mark.parametrize("kind", ["labels", "corrections", "marks", "answers", "predictions"])
def test_a_header_with_two_separators_is_refused_with_the_remedy(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path, kind, "utf-8", (",", ";"), ("\n", ";\n"))
    text = path.read_text(encoding="utf-8").replace(";\n", ";seen, or not\n", 1)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        TABLES[kind][0](path)
    assert str(caught.value) == (
        f"{path}, line 1: has commas and semicolons; put names that contain a comma into quotes, so that "
        "only semicolons separate the columns"
    )
    path.write_text(text.replace("seen, or not", '"seen, or not"'), encoding="utf-8")
    assert TABLES[kind][0](path) == "naïf"


@pytest.mark.parametrize("read", [read_answers, read_predictions])
@pytest.mark.parametrize("mark", [";", "\t"])
def test_decimal_commas_of_predictions_are_read(tmp_path: Path, read: Any, mark: str) -> None:
    expected, path = tmp_path / "points.csv", tmp_path / "commas.csv"
    expected.write_text(
        "path,truth,label,residual,margin,probability\na.png,b,b,0.25,1e-05,0.875\nc.png,b,b,3,,1\n"
    )
    text = "path;truth;label;residual;margin;probability\na.png;b;b;0,25;1e-05;0,875\nc.png;b;b;3;;1\n"
    path.write_text(text.replace(";", mark))
    assert read(path) == read(expected)
    path.write_text(path.read_text() + mark.join(["d.png", "b", "b", "0.5", "", ""]) + "\n")
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}, line 4: has numbers with points, but there are numbers with commas in line 2; save the "
        "table with decimal points and without signs between thousands"
    )


def test_decimal_commas_of_residuals_are_read(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("path;truth;label;residual:a;residual:b\nx;a;b;0,75;0,5\ny;a;a;0,25;1\n")
    assert read_candidates(path, {0, 1}, 2) == ({0: ["b", "a"], 1: ["a", "b"]}, ["a", "b"])


@pytest.mark.parametrize(("kind", "what"), [("labels", "the label"), ("corrections", "the column corrected")])
def test_an_older_encoding_makes_no_class(tmp_path: Path, kind: str, what: str) -> None:
    path = saved(tmp_path, kind, "cp1252")
    with pytest.raises(DataError) as caught:
        TABLES[kind][0](path)
    assert str(caught.value) == (
        f"{path}, line 2: {what} is not UTF-8; save the file as UTF-8, which spreadsheets call CSV UTF-8"
    )


@pytest.mark.parametrize("kind", ["answers", "predictions", "marks"])
def test_tables_of_crnr_may_have_names_that_are_not_utf_8(tmp_path: Path, kind: str) -> None:
    assert TABLES[kind][0](saved(tmp_path, kind, "cp1252")) == "na\udceff"


def test_fields_may_be_long_until_the_last_reader_has_ended() -> None:
    """The limit holds for the whole process, which threads and other libraries share."""
    usual = csv.field_size_limit()
    row = ["a" * (usual + 1)]
    one, other = long_fields(), long_fields()
    with one:
        other.__enter__()
    assert next(csv.reader(row)) == row
    other.__exit__(None, None, None)
    with pytest.raises(csv.Error, match="larger than field limit"):
        next(csv.reader(row))
    assert csv.field_size_limit(2**30) == usual
    try:
        with long_fields():
            assert csv.field_size_limit() == 2**30
        assert csv.field_size_limit() == 2**30
    finally:
        csv.field_size_limit(usual)
