"""Tables as spreadsheets save them: read, or refused with the remedy."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crnr_cli.errors import DataError
from crnr_cli.results.edited import read_corrections, read_marked_samples
from crnr_cli.results.formats import read_answers
from crnr_cli.results.table import read_predictions
from crnr_cli.sources.formats.csv_table import read_csv
from crnr_cli.sources.label_table import LabelOptions
from crnr_cli.system.csv_file import write_rows

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
@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_other_separators_are_named(tmp_path: Path, kind: str, mark: str, name: str) -> None:
    with pytest.raises(DataError, match=f"the columns are separated by {name}; save the file with commas"):
        TABLES[kind][0](saved(tmp_path, kind, "utf-8", (",", mark)))


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
