"""A batch: which sample each row belongs to, whatever drops out on the way; and tables of few classes."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import (
    Batch,
    FewClasses,
    Stamp,
    map_values,
    row_minima,
    row_sums,
    stack,
    take_columns,
    to_dense,
)
from crnr_cli.errors import SampleError


@given(st.lists(st.integers(0, 3), max_size=30))
def test_values_stay_with_their_samples(fates: list[int]) -> None:
    """Each sample fails at the source (0), at one of two later stages (1, 2), or never (3)."""
    errors = [SampleError("source") if fate == 0 else None for fate in fates]
    values = np.array([[i] for i, fate in enumerate(fates) if fate]).reshape(-1, 1)
    batch = Batch([str(i) for i in range(len(fates))], errors, values, len(fates))
    for stage in (1, 2):
        faults = [SampleError(f"stage {stage}") if fates[i] == stage else None for i in batch.rows]
        batch = batch.with_values(batch.values * 10, faults)
    expected = [{0: "source", 1: "stage 1", 2: "stage 2", 3: None}[fate] for fate in fates]
    assert [error and error.status for error in batch.errors] == expected
    assert batch.rows.tolist() == [i for i, fate in enumerate(fates) if fate == 3]
    assert batch.values[:, 0].tolist() == [100 * i for i, fate in enumerate(fates) if fate == 3]
    assert [error is not None for error in errors] == [fate == 0 for fate in fates]  # the first is untouched
    rest = batch.without_values()
    assert (rest.names, rest.errors, rest.end) == (batch.names, batch.errors, batch.end)
    assert rest.values.shape == (len(batch.rows), 0)


@st.composite
def few_and_all(draw: st.DrawFn) -> tuple[FewClasses, np.ndarray]:
    """Random classes of a few queries, some of them several times, and the same numbers as a full table."""
    m, k, n_classes = draw(st.integers(0, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Few different numbers, so that there are ties, also with the other classes; sums of them are exact.
    full = np.where(rng.random((m, n_classes)) < 0.3, 1.0, rng.integers(0, 9, (m, n_classes)) / 4)
    classes = rng.integers(0, n_classes, (m, k))
    given = np.zeros((m, n_classes), dtype=bool)
    np.put_along_axis(given, classes, True, axis=1)
    full[~given] = 1.0
    return FewClasses.of(classes, np.take_along_axis(full, classes, axis=1), 1.0, n_classes), full


@given(few_and_all(), st.integers(1, 14))
def test_few_classes_stand_for_all(both: tuple[FewClasses, np.ndarray], count: int) -> None:
    few, full = both
    assert few.shape == full.shape
    assert len(few) == len(full)
    np.testing.assert_array_equal(to_dense(few), full)
    np.testing.assert_array_equal(to_dense(few[1:]), full[1:])
    np.testing.assert_array_equal(few.smallest(count), np.argsort(full, axis=1, kind="stable")[:, :count])
    np.testing.assert_array_equal(row_minima(few), full.min(axis=1))
    np.testing.assert_array_equal(row_sums(few), full.sum(axis=1))
    columns = np.argsort(-full, axis=1)[:, :count]
    np.testing.assert_array_equal(take_columns(few, columns), np.take_along_axis(full, columns, axis=1))
    doubled = map_values(lambda values: 2 * values + 1, few)
    np.testing.assert_array_equal(to_dense(doubled), 2 * full + 1)
    assert len(few) == 0 or (np.diff(few.classes, axis=1) > 0).all()


@given(few_and_all(), st.integers(0, 4))
def test_parts_of_few_classes_are_stacked(both: tuple[FewClasses, np.ndarray], cut: int) -> None:
    few, full = both
    np.testing.assert_array_equal(to_dense(stack([few[:cut], few[cut:]])), full)
    np.testing.assert_array_equal(stack([full[:cut], full[cut:]]), full)


def test_all_rows_have_the_same_number_of_classes() -> None:
    few = FewClasses.of(np.array([[7, 7, 7], [9, 0, 2]]), np.array([[0.5, 0.5, 0.5], [3.0, 4, 5]]), 1.0, 1000)
    assert few.classes.tolist() == [[0, 1, 7], [0, 2, 9]]
    assert few.values.tolist() == [[1, 1, 0.5], [4, 5, 3]]
    assert few.n_others == 997


@pytest.mark.parametrize(
    ("seconds", "stored"),
    [
        (-11_644_473_600, 1 - 2**63),  # 1601, where the time of NTFS begins
        (-2_208_988_800, -2_208_988_800 * 10**9),  # 1900
        (7_258_118_400, 7_258_118_400 * 10**9),  # 2200
        (13_569_465_600, 2**63 - 1),  # 2400
    ],
)
def test_a_stamp_has_only_dates_that_can_be_stored(seconds: int, stored: int) -> None:
    found = os.stat_result((0o100644, 0, 0, 0, 0, 0, 55, 0, 0, 0), {"st_mtime_ns": seconds * 10**9})
    assert Stamp.of(found) == (55, stored)
    assert np.array(Stamp.of(found), dtype=np.int64).tolist() == list(Stamp.of(found))
