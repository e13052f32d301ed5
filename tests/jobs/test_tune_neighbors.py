"""tune with numbers of neighbours among the settings."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from crnr_cli.jobs import tune as job
from crnr_cli.methods import make_method
from helpers.runner import Runner, split_command


@pytest.fixture
def moons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes on the same circle, in alternating arcs: only near samples say which arc it is."""
    monkeypatch.setattr(job, "LAMS", (0.01,))
    monkeypatch.setattr(job, "MUS", (0.1,))
    monkeypatch.setattr(job, "_ITERATIONS", (5,))
    monkeypatch.setattr(job, "_LOCAL", ((0.01, 0.1),))
    monkeypatch.setattr(job, "NEIGHBORS", (4, 7))
    angles = np.random.default_rng(0).uniform(0, np.pi, 150)
    with h5py.File(path := tmp_path / "arcs.h5", "w") as file:
        file["features"] = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        file["labels"] = (angles // (np.pi / 8)).astype(int) % 2
    return path


def tried(record: dict[str, object]) -> set[int]:
    trials = record["trials"]
    assert isinstance(trials, list)
    return {trial["neighbors"] for trial in trials}


def test_numbers_of_neighbours_are_tried_in_galleries_where_they_save_time(
    crnr: Runner, moons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = json.loads(crnr("tune", moons, "--try-power", "1", "--json").out)
    assert tried(few) == {0}
    monkeypatch.setattr(job, "_LOCAL_FROM", 150)
    result = crnr("tune", moons, "--try-power", "1", "--json")
    assert result.exit == 0
    record = json.loads(result.out)
    assert tried(record) == {0, 4, 7}
    assert record["paper"]["neighbors"] == 0
    assert record["chosen"]["neighbors"] == 4
    assert record["chosen"]["accuracy"] > record["paper"]["accuracy"]
    assert "--neighbors 4" in result.err


def test_tune_holds_out_some_of_very_many_samples_and_uses_neighbours(
    crnr: Runner, moons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_ALL_UP_TO", 149)
    monkeypatch.setattr(job, "_LOCAL_FROM", 100)
    monkeypatch.setattr(job, "_HELD_OUT", 40)
    result = crnr("tune", moons, "--try-power", "1", "--methods", "nrc,crc,nn")
    assert result.exit == 0
    assert "40 of 150 examples, chosen at random, labelled by the others; best of 6 settings" in result.out
    again = json.loads(crnr("tune", moons, "--try-power", "1", "--json").out)
    assert (again["n"], again["n_samples"], again["folds"], tried(again)) == (40, 150, 1, {4, 7})
    assert again["paper"]["neighbors"] == 4
    assert json.loads(crnr("tune", moons, "--try-power", "1", "--json").out)["trials"] == again["trials"]


def test_tune_tries_given_neighbours_and_prints_options_for_build(
    crnr: Runner, moons: Path, tmp_path: Path
) -> None:
    result = crnr("tune", moons, "--try-neighbors", "5", "--try-power", "1")
    assert result.exit == 0
    assert "best of 1 setting" in result.out
    line = next(line for line in result.err.splitlines() if "to build a gallery with it:" in line)
    built = crnr(*split_command(line.partition("crnr ")[2]), "-o", tmp_path / "g.h5", "-q")
    assert (built.exit, built.err) == (0, "")
    assert load_gallery(tmp_path / "g.h5").method == make_method("crnr", {"neighbors": 5})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("many", "--try-neighbors 'many': give numbers separated by commas, such as 0,50"),
        ("5,", "--try-neighbors '5,': give numbers separated by commas, such as 0,50"),
        ("-1", "method crnr: neighbors must be a whole number from 0 (all examples) to 2000, not -1"),
    ],
)
def test_tune_refuses_invalid_numbers_of_neighbours(
    crnr: Runner, moons: Path, given: str, message: str
) -> None:
    result = crnr("tune", moons, "--try-neighbors", given)
    assert (result.exit, result.out) == (2, "")
    assert message in " ".join(result.err.split())
