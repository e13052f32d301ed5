"""Samples that a person marked, and messages about a CSV that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from crnr_cli.errors import DataError
from crnr_cli.results.edited import Mark, count_corrected, read_marked_samples, read_marks


def test_every_usual_mark_counts(tmp_path: Path) -> None:
    marks = ["x", "", "X", " yes ", "no", "1", "0", "True", "false", "y", "n"]
    path = tmp_path / "audit.csv"
    path.write_text("\ufeffpath,remove\n" + "".join(f"{i}.png,{mark}\n" for i, mark in enumerate(marks)))
    assert read_marked_samples(path) == ["0.png", "2.png", "3.png", "5.png", "7.png", "9.png"]


def test_a_sample_with_several_findings_is_removed_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    path.write_bytes(b'remove,note,path\nx,"a,b",caf\xe9.png\n\nx,c,b.png\nx,,caf\xe9.png\n')
    assert read_marked_samples(path) == ["caf\udce9.png", "b.png"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "path,remove\na,\n",
            "{}: no row is marked; write x into the column remove of the examples to remove",
        ),
        ("path,remove\n", "{}: no row is marked; write x into the column remove of the examples to remove"),
        ("path,label\na,b\n", "{}: no column remove; was it written by `crnr audit --csv`?"),
        ("", "{}: no column path or remove; was it written by `crnr audit --csv`?"),
        ("path,remove\na\n", "{}, line 2: 1 field, but the header has 2; is the file truncated?"),
        (
            "path,remove\na,maybe\n",
            "{}, line 2: the column remove contains 'maybe'; write x, or leave it empty",
        ),
        ('path,remove\n"a,x\n', "{}, line 2: not readable as CSV (unexpected end of data)"),
    ],
)
def test_read_marked_samples_refuses_invalid_rows(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "audit.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_marked_samples(path)
    assert str(error.value) == words.format(path)


def test_marks_are_rows_with_a_class_or_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    path.write_text("path,label,remove,corrected\na,cat,x,\nb,cat,, dog \nc,cat,no,\n,cat,,\n")
    marks = read_marks(path)
    assert marks == [Mark("a", "cat", "", f"{path}, line 2"), Mark("b", "cat", "dog", f"{path}, line 3")]
    assert [mark.text for mark in marks] == ["to be removed", "to become 'dog'"]
    assert count_corrected(path) == 1
    path.write_text("path,remove\na,x\n")
    assert read_marks(path) == [Mark("a", "", "", f"{path}, line 2")]
    assert count_corrected(path) == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "path,remove,corrected\na,,\n",
            "{}: no row is marked; write the right class into the column corrected, "
            "or x into the column remove",
        ),
        (
            "path,remove,corrected\na,x,dog\n",
            "{}, line 2: a has x in the column remove and 'dog' in the column corrected; empty one of them",
        ),
        ("path,remove,corrected\n,x,\n", "{}, line 2: the path is empty"),
        ("path,remove,corrected\n,,dog\n", "{}, line 2: the path is empty"),
        (
            "path,label\na,b\n",
            "{}: no column remove; was it written by `crnr audit --csv`, or saved by its page?",
        ),
    ],
)
def test_read_marks_refuses_invalid_rows(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "audit.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_marks(path)
    assert str(error.value) == words.format(path)


def test_a_class_must_be_utf_8_also_as_spreadsheets_save_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.csv"
    path.write_bytes(b"path,remove,corrected\ncaf\xe9.png,,dog\nb.png,,caf\xe9\n")
    with pytest.raises(DataError) as error:
        read_marks(path)
    assert str(error.value) == (
        f"{path}, line 3: the column corrected is not UTF-8; save the file as UTF-8, "
        "which spreadsheets call CSV UTF-8"
    )
    path.write_bytes(b"path,remove,corrected\ncaf\xe9.png,,caf\xc3\xa9\n")
    assert read_marks(path) == [Mark("caf\udce9.png", "", "caf\xe9", f"{path}, line 2")]


def test_marks_need_a_file(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    for read, words in (
        (read_marks, "give the CSV that `crnr audit --csv` wrote, or that its page saved"),
        (read_marked_samples, "give the CSV that `crnr audit --csv` wrote"),
    ):
        with pytest.raises(DataError) as error:
            read(path)
        assert str(error.value) == f"{path}: no such file; {words}"
