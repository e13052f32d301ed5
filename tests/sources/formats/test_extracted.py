"""Files of `crnr extract` as a source: invalid ones are refused with a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli import __version__
from crnr_cli.sources.formats.extracted import PickedRows
from helpers.runner import Outcome, Runner
from helpers.samples import make_images
from helpers.templates import Templates


@given(st.lists(st.integers(0, 299), max_size=40), st.integers(0, 45), st.integers(0, 45))
def test_picked_rows_match_the_table(rows: list[int], start: int, stop: int) -> None:
    table = np.random.default_rng(0).random((300, 3))
    picked = PickedRows(table, np.array(rows, dtype=np.int64))
    assert picked.shape == (len(rows), 3)
    expected = np.array([table[row] for row in rows]).reshape(-1, 3)
    np.testing.assert_array_equal(picked[start:stop], expected[start:stop])


def extract_photos(crnr: Runner) -> None:
    make_images(crnr.here / "photos", per_class=2)
    assert crnr("extract", "photos", "-o", "f.h5", "-q") == Outcome(0, "", "")


@pytest.fixture
def here(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(extract_photos, crnr.here)
    return crnr


def replaced(file: Any, name: str, value: object) -> None:
    del file[name]
    file[name] = value


def gradients(**settings: object) -> np.bytes_:
    described = {
        "name": "gradients",
        "size": [8, 8],
        "color": False,
        "cell": 3,
        "bins": 8,
        "block_norm": "soft",
    }
    return np.bytes_(json.dumps({**described, **settings}))


AGAIN = "; extract the file again"
WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a newer version": (
        lambda f: f.attrs.update(version=2),
        f"features of format 2, but this crnr ({__version__}) reads up to 1; please upgrade crnr",
    ),
    "no version": (lambda f: f.attrs.pop("version"), "features of format None, but this crnr ("),
    "no recipe": (lambda f: f.pop("recipe"), f"does not describe the extractor{AGAIN}"),
    "a link to a recipe": (
        lambda f: (f.pop("recipe"), f.update(recipe=h5py.ExternalLink("other.h5", "/recipe"))),
        f"does not describe the extractor{AGAIN}",
    ),
    "an attribute that is a list": (
        lambda f: f["recipe"].attrs.update(width=[1, 2]),
        f"an attribute of the pipeline is not a single plain value{AGAIN}",
    ),
    "an attribute that is not text": (
        lambda f: f["recipe"].attrs.update(extractor=np.bytes_(b"\xff")),
        f"an attribute of the pipeline is not a single plain value{AGAIN}",
    ),
    "no hashes": (lambda f: f.pop("sha256"), f"the array 'sha256' is missing{AGAIN}"),
    "other hashes": (
        lambda f: replaced(f, "sha256", np.array([b"x"] * 6)),
        f"the array 'sha256' contains something else than hashes{AGAIN}",
    ),
    "too few hashes": (
        lambda f: replaced(f, "sha256", f["sha256"][:5]),
        f"the array 'sha256' is |S64 of shape (5,), which does not match the 6 rows of features{AGAIN}",
    ),
    "sizes that are not whole": (
        lambda f: replaced(f, "size", np.ones(6)),
        f"the array 'size' is float64 of shape (6,), which does not match the 6 rows of features{AGAIN}",
    ),
    "scales that are not numbers": (
        lambda f: f.update(scale=np.full(6, np.nan)),
        f"the array 'scale' contains values that are not numbers{AGAIN}",
    ),
    "an unknown extractor": (
        lambda f: f["recipe"].attrs.update(extractor=gradients(name="magic")),
        "the description of the extractor cannot be used (this version of crnr does not know the extractor "
        "magic",
    ),
    "a huge extractor": (
        lambda f: f["recipe"].attrs.update(extractor=gradients(size=[10**9, 10**9])),
        "the description of the extractor cannot be used (gradients: invalid image size ",
    ),
    "an extractor of other numbers": (
        lambda f: f["recipe"].attrs.update(extractor=gradients(cell=2)),
        f"the description of the extractor cannot be used (the arrays have different sizes){AGAIN}",
    ),
    "another number of values": (
        lambda f: replaced(f, "features", f["features"][:, :-1]),
        f"the values do not match the stored pipeline{AGAIN}",
    ),
    "steps": (
        lambda f: f["recipe"].attrs.update(power=0.5, steps=np.bytes_("power")),
        f"the values do not match the stored pipeline{AGAIN}",
    ),
    "a kind that does not exist": (
        lambda f: f["recipe"].attrs.update(kind=np.bytes_("sounds")),
        "the description of the extractor cannot be used (the examples are of an unknown kind, sounds)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_extracted_files_are_refused(here: Runner, what: str) -> None:
    change, message = WRONG[what]
    with h5py.File("f.h5", "a") as file:
        change(file)
    for command in (["build", "f.h5", "-o", "new.h5"], ["extract", "photos", "-o", "f.h5", "--update"]):
        before = Path("f.h5").read_bytes()
        outcome = here(*command)
        assert (outcome.exit, outcome.out) == (1, "")
        assert outcome.err.startswith(f"error: f.h5: {message}")
        assert outcome.err.count("\n") == 1
        assert Path("f.h5").read_bytes() == before
        assert here.files() == {"photos", "f.h5"}


def test_values_that_are_not_finite_are_left_out(here: Runner) -> None:
    """As an image for which a network gives such values."""
    with h5py.File("f.h5", "a") as file:
        file["features"][3, 0] = np.nan
    outcome = here("build", "f.h5")
    assert (outcome.exit, outcome.out) == (3, "")
    assert outcome.err.startswith("failed: photos/bee/1.png: contains NaN or infinity\n")
