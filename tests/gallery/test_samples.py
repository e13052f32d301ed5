"""Reading labelled samples: every sample is turned into a vector once, notes are complete."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery import samples
from crnr_cli.gallery.samples import Reading, read_raw, read_samples
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca, Power
from crnr_cli.sources.images import is_unrelated
from crnr_cli.sources.opening import open_source
from helpers.runner import Runner, rows
from helpers.samples import make_features, make_images


@pytest.fixture
def rows_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call of `unit_vectors` makes: the list grows."""
    made: list[int] = []
    unit_vectors = Recipe.unit_vectors

    def counted(recipe: Recipe, raw: Array, dtype: str) -> object:
        made.append(len(raw))
        return unit_vectors(recipe, raw, dtype)

    monkeypatch.setattr(Recipe, "unit_vectors", counted)
    return made


@pytest.mark.parametrize("steps", [(), (Power(0.5),), (Power(0.5), Pca(3))])
def test_every_sample_becomes_a_vector_once(
    crnr: Runner, rows_made: list[int], steps: tuple[Power | Pca, ...]
) -> None:
    make_features(crnr.here / "x.npz", per_class=6)
    reading = Reading(steps=steps, batch_size=5)
    read_samples(open_source(["x.npz"], reading), reading)
    assert sum(rows_made) == 18


def test_reading_raw_values_makes_no_vectors(crnr: Runner, rows_made: list[int]) -> None:
    make_features(crnr.here / "x.npz", per_class=6)
    raw = read_raw(open_source(["x.npz"], Reading()), Reading(steps=(Pca(3),)))
    assert rows_made == []
    np.testing.assert_array_equal(raw.values, np.load("x.npz")["features"])


def test_fitting_steps_or_not_leaves_out_the_same_samples(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    Path("gallery/ant/0.png").write_bytes(b"")
    Path("gallery/notes.txt").write_text("about these images")
    found = [
        read_samples(open_source(["gallery"], Reading()), Reading(steps=steps)) for steps in ((), (Pca(3),))
    ]
    assert found[0].table == found[1].table
    assert [str(left.error) for left in found[0].left_out] == [str(left.error) for left in found[1].left_out]
    assert [left.is_skipped for left in found[0].left_out] == [True, False]


def test_a_step_that_leaves_nothing_of_a_sample_names_it(crnr: Runner) -> None:
    """All variance is along the first feature, and one sample has none of it."""
    rows = np.array([[1.0, 0, 0], [2, 0, 0], [5, 0, 0], [0, 0, 1e-12]])
    np.savez("x.npz", features=rows, labels=list("aabb"))
    reading = Reading(steps=(Pca(1),), dtype="float64")
    source = open_source(["x.npz"], reading)
    raw = read_raw(source, reading)
    axis = Pca(1, np.array([[1.0], [0], [0]]))
    with pytest.raises(DataError, match=r"x.npz#3: the vector is all zero; remove this example"):
        raw.vectors_by(Recipe(3, steps=(axis,)), "float64")


def test_json_has_every_note_of_which_people_see_the_first(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    for i in range(12):
        (crnr.here / "gallery" / f"empty {i:02}").mkdir()
        (crnr.here / "gallery" / "ant" / f"broken {i:02}.png").write_bytes(b"")
    outcome = crnr("build", "gallery", "--json")
    record = json.loads(outcome.out)
    assert len([note for note in record["notes"] if "the folder is empty" in note]) == 12
    assert len(record["left_out"]) == 12
    assert outcome.err.count("the folder is empty") == 10
    assert outcome.err.count("failed: ") == 10
    assert outcome.err.count("... and 2 more\n") == 2


def test_failed_samples_are_checked_once(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again with every batch, which takes hours if many files are no images."""
    make_images(crnr.here / "gallery")
    for i in range(100):
        Path(f"gallery/ant/note{i}.xml").write_text("<a/>")
    looks = 0

    def counted(path: str, status: str) -> bool:
        nonlocal looks
        looks += 1
        return is_unrelated(path, status)

    monkeypatch.setattr(samples, "is_unrelated", counted)
    for rate in (0.5, 1.0):
        looks = 0
        reading = Reading(batch_size=10, max_failure_rate=rate)
        assert len(read_samples(open_source(["gallery"], reading), reading).left_out) == 100
        assert looks == 100


def test_labels_may_differ_in_case_where_they_are_no_folders(crnr: Runner) -> None:
    """As in EMNIST, whose classes are the letters."""
    make_features(crnr.here / "letters.npz", classes=("A", "a", "b"))
    built = crnr("build", "letters.npz", "-q")
    assert (built.exit, built.out, built.err) == (0, "", "")
    answers = rows(crnr("classify", "letters.npz").out)
    assert [row["label"] for row in answers] == [row["truth"] for row in answers] == list("AAAAAaaaaabbbbb")
    assert crnr("tune", "letters.npz", "--methods", "nn", "--folds", "2", "-q").exit == 0
    assert crnr("compare", "letters.npz", "--methods", "crc,nn", "-q").exit == 0
    make_features(crnr.here / "forms.npz", classes=("caf\u00e9", "cafe\u0301", "b"))
    refused = crnr("build", "forms.npz", "-o", "forms.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: classes 'cafe\\u0301' and 'caf\\xe9' differ only in their Unicode form; rename one\n"
    )
