"""The best classes of a row, by the residuals in the CSV."""

from __future__ import annotations

from pathlib import Path

import pytest

from crnr_cli.errors import DataError
from crnr_cli.results.edited import read_candidates


def test_the_smallest_residuals_come_first(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(
        "path,truth,label,residual:a,residual:b,residual:c\n"
        "1,,b,0.5,0.25,0.75\n2,,,,,\n\n3,,a,-1,nan,-2\n4,,a,0,1,2\n"
    )
    found = {0: ["b", "a"], 1: [], 2: ["c", "a"]}
    assert read_candidates(path, {0, 1, 2}, 2) == (found, ["a", "b", "c"])


def test_with_top_they_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("path,label,label_1,residual_1,label_2,residual_2\n1,b,b,0.1,a,0.2\n2,,,,,\n")
    assert read_candidates(path, range(9), 5) == ({0: ["b", "a"], 1: []}, [])
    assert read_candidates(path, range(9), 1)[0] == {0: ["b"], 1: []}


def test_names_are_read_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b'\xef\xbb\xbfresidual:caf\xe9,"residual:a\r\nb"\n0.5,0.25\n')
    names = ["caf\udce9", "a\r\nb"]
    assert read_candidates(path, {0}, 5) == ({0: names[::-1]}, names)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        read_candidates(tmp_path / "none.csv", {0}, 5)
    assert str(error.value) == f"{tmp_path}/none.csv: cannot read it (No such file or directory)"


@pytest.mark.parametrize("row", ["1,x", "1", '1,"0.5'])
def test_a_damaged_row_is_named(tmp_path: Path, row: str) -> None:
    path = tmp_path / "out.csv"
    path.write_text(f"path,residual:a\n0,0.5\n{row}\n")
    with pytest.raises(DataError, match=r"out\.csv, line 3: not readable as CSV"):
        read_candidates(path, range(9), 5)
