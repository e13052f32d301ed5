"""The recipe's power: absolute values raised, signs kept, before PCA and unit norm."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.recipe.pca import principal_axes
from crnr_cli.recipe.recipe import Recipe
from helpers.shell import app

runner = CliRunner()


def test_power_is_taken_of_absolute_values_and_keeps_signs():
    vectors, errors = Recipe("features", 3, power=0.5).unit_vectors(np.array([[4.0, -9.0, 0.0]]), "float64")
    np.testing.assert_allclose(vectors, np.array([[2.0, -3.0, 0.0]]) / np.sqrt(13), rtol=1e-15)
    assert errors == [None]


def test_power_neither_overflows_nor_vanishes():
    raw = np.array([[1e200, -1e200], [1e-200, 1e-200]])
    vectors, errors = Recipe("features", 2, power=3).unit_vectors(raw, "float64")
    np.testing.assert_allclose(vectors, np.array([[1, -1], [1, 1]]) / np.sqrt(2), rtol=1e-15)
    assert errors == [None, None]


def test_pca_is_fitted_on_raised_values():
    raw = np.random.default_rng(0).normal(size=(30, 6))
    raised = np.sign(raw) * np.sqrt(np.abs(raw))
    _, _, rows = np.linalg.svd(raised - raised.mean(axis=0))
    axes = principal_axes(raw, 3, 0.5)
    np.testing.assert_allclose(np.abs(np.sum(axes * rows[:3].T, axis=0)), 1, rtol=1e-12)


@pytest.mark.parametrize("power", [0.0, -1.0, float("nan"), float("inf")])
def test_power_that_is_none_is_refused(power):
    with pytest.raises(UsageError, match="power must be above 0"):
        Recipe("features", 2, power=power)


def test_build_stores_the_power_and_classify_applies_it(tmp_path: Path):
    rng = np.random.default_rng(1)
    features, gallery = tmp_path / "f.h5", tmp_path / "g.h5"
    raw = rng.gamma(1.0, size=(12, 5))
    with h5py.File(features, "w") as file:
        file["features"], file["labels"] = raw, np.repeat([0, 1, 2], 4)
    result = runner.invoke(app, ["build", str(features), "-o", str(gallery), "--power", "0.5", "--json"])
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["power"] == 0.5
    loaded = load_gallery(gallery)
    assert loaded.recipe.power == 0.5
    expected = np.sqrt(raw) / np.linalg.norm(np.sqrt(raw), axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.samples.vectors, expected, atol=1e-7)
    # The same as features that were raised beforehand, for the queries too.
    with h5py.File(raised := tmp_path / "raised.h5", "w") as file:
        file["features"], file["labels"] = np.sqrt(raw), np.repeat([0, 1, 2], 4)
    assert runner.invoke(app, ["build", str(raised), "-o", str(tmp_path / "r.h5")]).exit_code == 0
    by_power = _residuals(runner.invoke(app, ["classify", str(features), "-g", str(gallery)]).stdout)
    by_hand = _residuals(runner.invoke(app, ["classify", str(raised), "-g", str(tmp_path / "r.h5")]).stdout)
    np.testing.assert_allclose(by_power, by_hand, atol=1e-6)
    refused = runner.invoke(app, ["build", str(features), "-o", str(gallery), "--power", "0"])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "error: power must be above 0, not 0\n"


def _residuals(table: str) -> np.ndarray:
    return np.array([line.split(",")[7:] for line in table.splitlines()[1:]], dtype=float)
