"""info on a feature file: its arrays, what they could be, and what is taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from scipy.io import savemat, whosmat

from helpers.runner import Outcome, Runner
from helpers.samples import make_features
from helpers.tables import save_arrays, save_features

STACK = np.zeros((4, 3, 7), np.uint8)
LABELS = np.array([1, 2, 1, 2, 3, 3, 1])


def record(crnr: Runner, name: str) -> dict[str, Any]:
    outcome = crnr("info", name, "--json")
    assert (outcome.exit, outcome.err) == (0, "")
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def could_be(found: dict[str, Any]) -> dict[str, list[str]]:
    return {array["name"]: array["could_be"] for array in found["arrays"]}


@pytest.mark.parametrize("suffix", ["npz", "h5", "mat"])
def test_info_lists_arrays_and_the_chosen_ones(crnr: Runner, suffix: str) -> None:
    name = f"x.{suffix}"
    arrays = {"gnd": np.eye(3)[LABELS - 1], "names": np.array(list("abcdefg")), "x": STACK}
    save_arrays(Path(name), arrays)
    found = record(crnr, name)
    assert (found["file"], found["bytes"]) == (name, Path(name).stat().st_size)
    if suffix == "mat":
        shapes = {array: list(shape) for array, shape, _ in whosmat(name)}
    else:
        shapes = {array: list(values.shape) for array, values in arrays.items()}
    assert {array["name"]: array["shape"] for array in found["arrays"]} == shapes
    assert could_be(found) == {"gnd": ["labels"], "names": ["labels"], "x": ["features"]}
    # The name decides, as the names of the samples could be labels too.
    assert found["taken"] == {
        **{"features": "x", "axis": 2, "samples": 7, "numbers": 12},
        **{"labels": "gnd", "classes": 3, "names": None},
    }
    assert found["problem"] is None
    assert [note.partition(":")[0] for note in found["notes"]] == [name, name]


def test_a_choice_is_a_problem_with_its_remedy(crnr: Runner) -> None:
    save_arrays(Path("x.npz"), {"a": np.ones((6, 4)), "b": np.ones((6, 4))})
    found = record(crnr, "x.npz")
    assert (found["taken"], could_be(found)) == (None, {"a": ["features"], "b": ["features"]})
    problem = "x.npz: no array called 'features'; choose with --features-key ('a' or 'b') and --labels-key"
    assert found["problem"] == problem
    shown = crnr("info", "x.npz")
    assert (shown.exit, shown.err) == (0, f"note: {problem}\n")


def test_info_prints_a_table_of_arrays(crnr: Runner) -> None:
    save_arrays(Path("x.npz"), {"x": STACK, "label": LABELS, "more": np.zeros((2, 2, 2, 2, 2))})
    shown = crnr("info", "x.npz", columns=80)
    assert shown.exit == 0
    assert [line.split() for line in shown.out.splitlines()] == [
        ["array", "shape", "type", "could", "be", "used", "as"],
        ["x", "4", "x", "3", "x", "7", "uint8", "features", "features"],
        ["label", "7", "int64", "labels", "labels"],
        ["more", *["2", "x"] * 4, "2", "float64", "-", "-"],
        [],
        ["examples", "7,", "along", "the", "last", "axis", "of", "'x'"],
        ["features", "per", "example", "12"],
        ["classes", "3"],
    ]
    assert max(map(len, shown.out.splitlines())) <= 80
    assert shown.err.count("note: x.npz: ") == 2


@pytest.mark.parametrize("suffix", ["npy", "csv"])
def test_info_lists_the_arrays_of_every_format(crnr: Runner, suffix: str) -> None:
    save_features(Path(f"x.{suffix}"), np.ones((7, 4)), LABELS)
    found = record(crnr, f"x.{suffix}")
    assert could_be(found) == {"features": ["features"], "labels": ["labels"]}
    assert found["taken"] == {
        **{"features": "features", "axis": 0, "samples": 7, "numbers": 4},
        **{"labels": "labels", "classes": 3, "names": None},
    }


def test_info_lists_unsafe_arrays_with_the_reason(crnr: Runner) -> None:
    with h5py.File("x.h5", "w") as file:
        file["features"] = np.ones((5, 3))
        file["link"] = h5py.SoftLink("features")
    (features, link) = record(crnr, "x.h5")["arrays"]
    assert (features["could_be"], features["why_not"]) == (["features"], None)
    assert (link["could_be"], link["why_not"]) == ([], "is a link; copy the data into the file")
    assert "- (is a link; copy the data into the file)" in crnr("info", "x.h5").out


def test_a_struct_and_odd_cells_could_be_nothing(crnr: Runner) -> None:
    odd = np.empty(2, dtype=object)
    odd[:] = [np.eye(2), "a"]
    savemat("x.mat", {"s": {"a": 1}, "c": odd, "features": np.ones((4, 3)), "labels": LABELS[:4]})
    found = record(crnr, "x.mat")
    assert could_be(found) == {"s": [], "c": [], "features": ["features"], "labels": ["labels"]}


def test_a_gallery_is_still_one_whatever_it_is_called(crnr: Runner) -> None:
    make_features(Path("x.npz"))
    assert crnr("build", "x.npz", "-o", "g.h5", "-q").exit == 0
    assert json.loads(crnr("info", "g.h5", "--json").out)["gallery"] == "g.h5"
    Path("g.h5").rename("g.npz")
    assert json.loads(crnr("info", "g.npz", "--json").out)["gallery"] == "g.npz"


def test_files_that_cannot_be_read(crnr: Runner) -> None:
    assert crnr("info", "gone.csv") == Outcome(1, "", "error: gone.csv: no such file\n")
    for name in ("x.npz", "x.npy", "x.mat"):
        Path(name).write_text("hello")
        outcome = crnr("info", name)
        assert (outcome.exit, outcome.out) == (1, "")
        assert outcome.err.startswith(f"error: {name}: not a readable ")
    Path("x.h5").write_text("hello")
    assert crnr("info", "x.h5").err.startswith("error: x.h5: ")
