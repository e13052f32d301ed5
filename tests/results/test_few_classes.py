"""Answers that have only a few classes of each query are written and counted as those that have them all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.api import make_answers
from crnr_cli.arrays import Batch, FewClasses
from crnr_cli.errors import SampleError
from crnr_cli.results.decision import Answers, standout
from crnr_cli.results.formats import JsonLinesFormatter
from crnr_cli.results.probability import Calibrated, Thresholds, fit_probabilities
from crnr_cli.results.table import CsvFormatter

OTHERS = {False: 1.0, True: 0.0}  # the residual of a class without a neighbour; scores may be negative


def both_forms(seed: int, n_classes: int, neighbors: int, signed: bool) -> tuple[Answers, Answers]:
    """Four queries, of which one has no answer, with residuals whose sums are exact in any order."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, n_classes, (3, neighbors))
    full = np.full((3, n_classes), OTHERS[signed], np.float32)
    low = -64 if signed else 0
    np.put_along_axis(full, classes, (rng.integers(low, 96, classes.shape) / 64).astype(np.float32), axis=1)
    few = FewClasses.of(classes, np.take_along_axis(full, classes, axis=1), OTHERS[signed], n_classes)
    errors = [None, SampleError("truncated"), None, None]
    batch = Batch(list("wxyz"), errors, np.empty((3, 0)), 4)
    whole = Answers(batch, full, ["c01", None, "c02", "other"], signed=signed)
    return whole, replace(whole, residuals=few)


def sureness(level: float | None, signed: bool) -> Thresholds:
    certainty = Calibrated(3.0 if not signed else 1.5, np.sort(np.random.default_rng(0).random(50)))
    return Thresholds(certainty, 0.2, None if level is None else certainty.least_probability(level))


each_seed = given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 40),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([None, 2]),
)


@each_seed
def test_the_csv_is_the_same_to_the_byte(
    seed: int, n_classes: int, neighbors: int, signed: bool, top: int | None
) -> None:
    classes = [f"c{i:02}" for i in range(n_classes)]
    for level in (None, 0.5, 0.99, 1.0):
        files: list[Any] = []
        for answers in both_forms(seed, n_classes, neighbors, signed):
            sure = replace(answers, sureness=sureness(level, signed), min_separation=0.1)
            plain = replace(answers, min_separation=0.1)
            for asked in (sure, plain):
                more = asked.sureness.columns if asked.sureness else ()
                for lines in (
                    CsvFormatter(classes, "float32", top, more),
                    JsonLinesFormatter(classes, top, more),
                ):
                    files.append(lines.format(asked))
                files.append(make_answers(asked, classes, top))
        assert files[:6] == files[6:]


def test_parquet_has_the_same_columns() -> None:
    pytest.importorskip("pyarrow")
    from crnr_cli.results.formats import ParquetRows

    class Kept:
        columns: list[list[object]]

        def write(self, columns: list[list[object]]) -> None:
            self.columns = columns

    classes = [f"c{i:02}" for i in range(30)]
    for top in (None, 3):
        written = []
        for answers in both_forms(0, 30, 5, False):
            sure = replace(answers, sureness=sureness(0.9, False))
            kept = Kept()
            ParquetRows(kept, classes, top, ("probability", "set")).write(sure)  # type: ignore[arg-type]
            written.append(kept.columns)
        assert written[0] == written[1]


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_same_is_learnt_from_them(seed: int, signed: bool) -> None:
    whole, few = both_forms(seed, 30, 5, signed)
    np.testing.assert_allclose(
        standout(few.residuals, signed), standout(whole.residuals, signed), rtol=1e-12, atol=1e-12
    )
    truth = np.array([3, 1, 4])
    expected = fit_probabilities([(whole.residuals, truth)], signed)
    found = fit_probabilities([(few.residuals, truth)], signed)
    assert found.sharpness == pytest.approx(expected.sharpness, rel=1e-5)
    np.testing.assert_allclose(found.of_truth, expected.of_truth, rtol=1e-3, atol=1e-9)
