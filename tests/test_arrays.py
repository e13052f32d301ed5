"""A batch: which sample each row belongs to, whatever drops out on the way."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Batch
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
