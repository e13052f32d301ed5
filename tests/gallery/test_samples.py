"""Reading labelled samples: every sample is turned into a vector once, notes are complete."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError, SampleError
from crnr_cli.gallery import samples
from crnr_cli.gallery.gallery import SampleTable
from crnr_cli.gallery.samples import (
    LeftOut,
    Reading,
    ReadSamples,
    Report,
    read_raw,
    read_raw_by_all,
    read_samples,
    refuse_non_finite,
    require_samples,
    unusable_classes,
)
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca, Power
from crnr_cli.sources.images import is_unrelated
from crnr_cli.sources.opening import open_source
from crnr_cli.system import memory
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
    assert outcome.err.count("... and 2 more; --verbose prints all\n") == 2


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


BLANK = LeftOut("a.png", SampleError("zero_norm", "nothing to compare"))
UNRELATED = LeftOut("a.txt", SampleError("not_image", "not an image"))


def test_nothing_usable_is_refused_with_the_first_reason() -> None:
    for left_out, reason in (
        ([], ""),
        ([BLANK], ": a.png: nothing to compare"),
        ([BLANK, UNRELATED], ": a.png: nothing to compare (and 1 more)"),
        ([UNRELATED, BLANK, BLANK], ": a.txt: not an image (and 2 more)"),
    ):
        with pytest.raises(DataError) as refused:
            require_samples([], left_out)
        assert str(refused.value) == f"no usable images or rows of features{reason}"
        require_samples(["x"], left_out)


def test_unrelated_files_are_not_counted_as_skipped() -> None:
    assert Report(left_out=[BLANK, UNRELATED, BLANK]).skipped == 2
    assert Report().skipped == 0


def test_at_most_ten_rows_that_are_not_finite_are_named() -> None:
    bad = [LeftOut(f"x#{row}", SampleError("non_finite", "contains NaN")) for row in range(11)]
    refuse_non_finite([BLANK])
    for count, shown in ((1, "x#0"), (10, ", ".join(f"x#{row}" for row in range(10)))):
        with pytest.raises(DataError) as refused:
            refuse_non_finite([BLANK, *bad[:count]])
        rows = "1 row" if count == 1 else "10 rows"
        assert str(refused.value) == f"NaN or infinity in {rows}; correct or remove {shown}"
    with pytest.raises(DataError, match=r"^NaN or infinity in 11 rows; .* x#9, \.\.\.$"):
        refuse_non_finite(bad)


def test_nan_is_refused_in_tables_alone(crnr: Runner) -> None:
    np.savez("x.npz", features=[[1.0, 2], [np.nan, 1], [2, 1]], labels=list("aab"))
    source = open_source(["x.npz"], Reading())
    for read in (read_samples, read_raw):
        with pytest.raises(DataError) as refused:
            read(source, Reading())
        assert str(refused.value) == "NaN or infinity in 1 row; correct or remove x.npz#1"


def test_an_empty_label_is_refused(crnr: Runner) -> None:
    np.savez("x.npz", features=np.eye(3), labels=["a", "", "b"])
    with pytest.raises(DataError) as refused:
        read_raw(open_source(["x.npz"], Reading()), Reading())
    assert str(refused.value) == "x.npz#1: the label is empty"


def test_one_label_can_be_given_to_all(crnr: Runner) -> None:
    make_features(crnr.here / "x.npz", per_class=2)
    read = read_samples(open_source(["x.npz"], Reading()), Reading(label="z"))
    assert list(read.table.labels) == ["z"] * 6


def test_classes_without_usable_files_are_noted(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    for path in Path("gallery/bee").iterdir():
        path.write_bytes(b"")
    read = read_samples(open_source(["gallery"], Reading()), Reading())
    text = "class bee: left out, because none of its files can be used"
    assert [(note.kind, note.text) for note in read.notes] == [("unusable class", text)]
    assert unusable_classes(open_source(["gallery"], Reading()), ["ant", "bee", "cow"]) == []


def test_a_source_too_large_for_memory_is_refused_before_it_is_read(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 vectors of 3 values; those of the file are read in parts."""
    with h5py.File("x.h5", "w") as file:
        file["features"], file["labels"] = np.random.default_rng(0).random((500, 3)), [1, 2] * 250
    source = open_source(["x.h5"], Reading())
    for dtype, needed in (("float32", 500 * 3 * 4), ("float64", 500 * 3 * 8)):
        monkeypatch.setattr(memory, "free_bytes", lambda needed=needed: needed)
        assert len(read_samples(source, Reading(dtype=dtype)).values) == 500
        monkeypatch.setattr(memory, "free_bytes", lambda needed=needed: needed - 1)
        for read in (read_samples, read_raw, read_raw_by_all):
            with pytest.raises(DataError) as refused:
                read(source, Reading(dtype=dtype))
            size = f"{needed / 1000:.1f} kB"
            assert str(refused.value).startswith(
                f"reading 500 examples with 3 features each needs {size} of memory, but "
            )
            assert str(refused.value).endswith(" are free; use a smaller --size or --pca")


def test_files_that_change_between_two_extractors_are_refused() -> None:
    def read(names: str, hashes: str, left_out: list[LeftOut]) -> ReadSamples:
        table = SampleTable(list(names), ["x"] * len(names), list(hashes))
        return ReadSamples(
            recipe=Recipe(2), table=table, values=np.arange(2 * len(names)).reshape(-1, 2), left_out=left_out
        )

    blank = LeftOut("c", SampleError("zero_norm", "nothing to compare"))
    again = LeftOut("d", SampleError("zero_norm", "all values are zero"))
    both = [read("abd", "123", [blank]), read("ab", "12", [blank, again])]
    first, second = samples._keep_common_samples(both)
    assert (list(first.table.names), list(second.table.names)) == (["a", "b"], ["a", "b"])
    assert first.values.tolist() == [[0, 1], [2, 3]]
    assert first.left_out == [blank, again]
    with pytest.raises(DataError) as refused:
        samples._keep_common_samples([read("ab", "12", []), read("ab", "13", [])])
    assert str(refused.value) == "files changed while they were read; try again"
