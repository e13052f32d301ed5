"""Tables of samples: rows are taken and joined in all columns alike, and nothing is decoded for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Stamp
from crnr_cli.gallery.gallery import LazyLabels, LazyStamps, LazyTexts, SampleTable, to_bytes, to_numbers

CLASSES = ["ant", "bee", "caf\udce9"]
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=9),
        st.integers(0, 2),
        st.text("0123456789abcdef", min_size=64, max_size=64),
        st.builds(Stamp, st.integers(0, 2**62), st.integers(-(2**62), 2**62)),
    ),
    min_size=1,
    max_size=8,
)


def in_lists(rows: list[tuple[str, int, str, Stamp]]) -> SampleTable:
    names, numbers, hashes, stamps = map(list, zip(*rows, strict=True))
    return SampleTable(names, [CLASSES[number] for number in numbers], hashes, stamps)


def as_loaded(rows: list[tuple[str, int, str, Stamp]]) -> SampleTable:
    """Return a table like a loaded one: every column is encoded."""
    table = in_lists(rows)
    sizes, times = np.array(table.stamps, dtype=np.int64).T
    index = np.array([number for _, number, _, _ in rows])
    encoded = [np.array([text.encode() for text in column]) for column in (table.names, table.hashes)]
    return SampleTable(
        LazyTexts(encoded[0]), LazyLabels(CLASSES, index), LazyTexts(encoded[1]), LazyStamps(sizes, times)
    )


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (LazyTexts, LazyLabels, LazyStamps):
        monkeypatch.setattr(kind, "_values", None)


@given(ROWS, st.data())
def test_rows_are_taken_from_all_columns(rows: list[Any], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1)))
    expected = in_lists([rows[row] for row in chosen]) if chosen else SampleTable()
    for table in (in_lists(rows), as_loaded(rows)):
        for given_as in (chosen, np.array(chosen, dtype=np.int64)):
            assert table.take(given_as) == expected
            assert len(table.take(given_as)) == len(chosen)


@given(ROWS, ROWS)
def test_tables_are_joined(one: list[Any], other: list[Any]) -> None:
    for first in (in_lists(one), as_loaded(one)):
        for second in (in_lists(other), as_loaded(other)):
            assert first + second == in_lists(one + other)
            assert SampleTable.concatenate([first, second, first]) == in_lists(one + other + one)
        assert first + SampleTable() == first


def test_no_tables_make_an_empty_one() -> None:
    assert SampleTable.concatenate([]) == SampleTable()
    assert not SampleTable()


@pytest.mark.usefixtures("undecoded")
def test_encoded_columns_are_taken_joined_and_stored_without_decoding() -> None:
    table = as_loaded([("a", 0, "0" * 64, Stamp(1, 2)), ("b", 1, "1" * 64, Stamp(3, 4))])
    assert table.take([0, 1]) is table  # not even copied
    both = replace(table, labels=[]) + SampleTable(["c"], [], ["2" * 64], [Stamp(5, 6)])
    found = both.take([2, 0])
    assert to_bytes(found.names).tolist() == [b"c", b"a"]
    assert [column.tolist() for column in to_numbers(found.stamps)] == [[5, 1], [6, 2]]
    assert isinstance(table.take([1]).labels, LazyLabels)


@given(ROWS, st.data())
def test_texts_are_stored_alike_whether_they_were_loaded_or_not(rows: list[Any], data: st.DataObject) -> None:
    """As wide as the longest of those that are left: the same samples are the same file."""
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    plain, loaded = (to_bytes(table.take(chosen).names) for table in (in_lists(rows), as_loaded(rows)))
    assert plain.dtype == loaded.dtype
    assert plain.tolist() == loaded.tolist()


def test_a_column_may_be_unknown_as_a_whole_alone() -> None:
    table = SampleTable(["a", "b"], ["x", "y"], ["0", "1"])
    assert table.take([1]) == SampleTable(["b"], ["y"], ["1"])
    assert table.with_stamps().stamps == [Stamp(), Stamp()]
    stamped = replace(table, stamps=[Stamp(1, 2), Stamp(3, 4)])
    assert stamped.with_stamps() is stamped
    for columns in ({"labels": ["x"]}, {"stamps": [Stamp()] * 3}, {"names": []}):
        with pytest.raises(ValueError, match="the arrays have different sizes"):
            replace(table, **columns)
    with pytest.raises(ValueError, match="the arrays have different sizes"):
        stamped + table  # half of the stamps would be unknown


def test_stamps_of_another_type_become_int64() -> None:
    sizes, times = to_numbers(LazyStamps(np.array([1, 2], ">i4"), np.array([3, 4], ">i8")))
    assert sizes.dtype == times.dtype == np.dtype(np.int64)
    assert (sizes.tolist(), times.tolist()) == ([1, 2], [3, 4])


def test_columns_are_read_like_lists() -> None:
    names = [f"{i}" for i in range(20_001)]
    column = LazyTexts(np.array(names, dtype=bytes))
    assert (column[0], column[-1], column[20_000], column[7]) == ("0", "20000", "20000", "7")
    assert column[3:6] == ["3", "4", "5"]
    assert list(column) == names
    assert column == names
    assert column != names[:-1]
    assert column != names[::-1]
    assert column != 20_001
    for place in (20_001, -20_002):
        with pytest.raises(IndexError):
            column[place]
    assert np.asarray(column) is column.stored
    for wrong in (np.array([["a"]], dtype=bytes), np.array(["a"]), np.array([1])):
        with pytest.raises(ValueError, match=r"^the names are not text$"):
            LazyTexts(wrong)
    for sizes, times in (
        (np.zeros(2), np.zeros(3)),
        (np.zeros((2, 1)), np.zeros(2)),
        (np.zeros(2), np.zeros((2, 1))),
    ):
        with pytest.raises(ValueError, match=r"^the arrays have different sizes$"):
            LazyStamps(sizes, times)


def test_empty_texts_are_one_byte_wide() -> None:
    assert to_bytes(LazyTexts(np.array([b"", b""], dtype="S5"))).dtype == np.dtype("S1")
    assert to_bytes(LazyTexts(np.array([b"abc", b""], dtype="S5"))).dtype == np.dtype("S3")
    assert to_bytes(LazyTexts(np.array([b"\0\0c", b""], dtype="S3"))).tolist() == [b"\0\0c", b""]
