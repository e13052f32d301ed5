"""The recipe's power: absolute values raised, signs kept, before PCA and unit norm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest

from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca, Power
from helpers.runner import Runner


def test_power_is_taken_of_absolute_values_and_keeps_signs() -> None:
    vectors, errors = Recipe(3, steps=(Power(0.5),)).unit_vectors(np.array([[4.0, -9.0, 0.0]]), "float64")
    np.testing.assert_allclose(vectors, np.array([[2.0, -3.0, 0.0]]) / np.sqrt(13), rtol=1e-15)
    assert errors == [None]


def test_power_neither_overflows_nor_vanishes() -> None:
    raw = np.array([[1e200, -1e200], [1e-200, 1e-200]])
    vectors, errors = Recipe(2, steps=(Power(3.0),)).unit_vectors(raw, "float64")
    np.testing.assert_allclose(vectors, np.array([[1, -1], [1, 1]]) / np.sqrt(2), rtol=1e-15)
    assert errors == [None, None]


def test_pca_is_fitted_on_raised_values() -> None:
    raw = np.random.default_rng(0).normal(size=(30, 6))
    raised = np.sign(raw) * np.sqrt(np.abs(raw))
    _, _, rows = np.linalg.svd(raised - raised.mean(axis=0))
    recipe = Recipe(6, steps=(Power(0.5), Pca(3))).fit(raw)
    axes = cast(Pca, recipe.steps[1]).axes
    assert axes is not None
    np.testing.assert_allclose(np.abs(np.sum(axes * rows[:3].T, axis=0)), 1, rtol=1e-12)


@pytest.mark.parametrize("power", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_power_is_refused(power: float) -> None:
    with pytest.raises(UsageError, match="power must be above 0"):
        Power(power)


def test_build_stores_the_power_and_classify_applies_it(crnr: Runner, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    features, gallery = tmp_path / "f.h5", tmp_path / "g.h5"
    raw = rng.gamma(1.0, size=(12, 5))
    with h5py.File(features, "w") as file:
        file["features"], file["labels"] = raw, np.repeat([0, 1, 2], 4)
    result = crnr("build", features, "-o", gallery, "--power", "0.5", "--json")
    assert result.exit == 0, result.err
    assert json.loads(result.out)["power"] == 0.5
    loaded = load_gallery(gallery)
    assert loaded.recipe.steps == (Power(0.5),)
    expected = np.sqrt(raw) / np.linalg.norm(np.sqrt(raw), axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.samples.vectors, expected, atol=1e-7)
    # The same as features that were raised beforehand, for the queries too.
    with h5py.File(raised := tmp_path / "raised.h5", "w") as file:
        file["features"], file["labels"] = np.sqrt(raw), np.repeat([0, 1, 2], 4)
    assert crnr("build", raised, "-o", tmp_path / "r.h5").exit == 0
    by_power = _residuals(crnr("classify", features, "-g", gallery).out)
    by_hand = _residuals(crnr("classify", raised, "-g", tmp_path / "r.h5").out)
    np.testing.assert_allclose(by_power, by_hand, atol=1e-6)
    refused = crnr("build", features, "-o", gallery, "--power", "0")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == "error: --power must be above 0 and at most 100, not 0 (see `crnr build --help`)\n"


def _residuals(table: str) -> np.ndarray:
    return np.array([line.split(",")[7:] for line in table.splitlines()[1:]], dtype=float)
