"""Fitting a gallery: the order of its classes, names that are refused, and the notes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Batch
from crnr_cli.errors import DataError, SampleError
from crnr_cli.gallery import fit
from crnr_cli.gallery.fit import (
    KnownSamples,
    copies_note,
    fit_again,
    make_gallery,
    notes_on_copies,
    sort_by_class,
    write_gallery,
)
from crnr_cli.gallery.gallery import FittedGallery, SampleTable, describe
from crnr_cli.gallery.samples import ReadSamples
from crnr_cli.methods import make_method
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.sources.tables import row_hash


def read(labels: str, hashes: str | None = None) -> ReadSamples:
    count = len(labels)
    values = np.random.default_rng(0).normal(size=(count, 5)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    names = [f"n{i}" for i in range(count)]
    table = SampleTable(names, list(labels), list(hashes or "123456789"[:count]))
    return ReadSamples(recipe=Recipe(5), table=table, values=values)


@given(st.lists(st.sampled_from("dbca"), min_size=1))
def test_examples_are_sorted_by_class_and_keep_their_order(labels: list[str]) -> None:
    classes, order, class_index = sort_by_class(labels)
    assert classes == sorted(set(labels))
    assert order.tolist() == sorted(range(len(labels)), key=lambda row: labels[row])
    assert [classes[k] for k in class_index.tolist()] == sorted(labels)


@pytest.mark.parametrize(
    ("names", "kind", "message"),
    [
        (["a", "A"], "pictures", "classes 'A' and 'a' differ only in case or Unicode form; rename one"),
        (
            ["\u00e9", "e\u0301"],
            "features",
            "classes 'e\\u0301' and '\\xe9' differ only in their Unicode form; rename one",
        ),
        (
            ["Unknown"],
            "features",
            "class 'Unknown': this name is reserved for rejected queries; rename the class",
        ),
        (["a", "A"], "features", None),
        (["a", "unknown one"], "pictures", None),
    ],
)
def test_names_of_classes_that_are_refused(names: list[str], kind: str, message: str | None) -> None:
    if message is None:
        assert sort_by_class(names, kind)[0] == sorted(names)
        return
    with pytest.raises(DataError) as refused:
        sort_by_class(names, kind)
    assert str(refused.value) == message


def test_a_gallery_has_the_examples_in_the_order_of_the_classes() -> None:
    given_order = read("baba")
    gallery, notes = make_gallery(given_order, make_method("crnr", {"lam": 0.5}))
    assert (gallery.classes, list(gallery.names), notes) == (["a", "b"], ["n1", "n3", "n0", "n2"], [])
    np.testing.assert_array_equal(gallery.samples.vectors, given_order.values[[1, 3, 0, 2]])
    assert gallery.samples.class_index.tolist() == [0, 0, 1, 1]
    assert gallery.parameters["lam"] == 0.5


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ("aabb", None),
        ("aab", "class b has only one example"),
        ("cab", "classes a, b, c have only one example each"),
        ("dcbaff", "classes a, b, c and 1 more have only one example each"),
    ],
)
def test_a_note_on_classes_with_one_example(labels: str, shown: str | None) -> None:
    gallery, notes = make_gallery(read(labels), make_method("crnr", {}))
    why = (
        ", which crnr cannot hold out: --calibrate, tune, compare and audit do not test such a class; "
        "add more examples"
    )
    assert [note.text for note in notes] == ([] if shown is None else [f"{shown}{why}"])
    # It is not repeated for the same classes of a gallery that changes.
    _, again = fit_again(gallery, read(labels + "xxy"))
    assert [note.text for note in again] == [f"class y has only one example{why}"]


def test_notes_on_one_class_and_on_copies() -> None:
    _, notes = make_gallery(read("zz"), make_method("crnr", {}))
    assert [(note.kind, note.text) for note in notes] == [
        ("one class", "only one class, z: add another with `crnr add GALLERY FOLDER --class NAME`")
    ]
    table = read("aabba").table
    in_two = "the same content in two classes: n0 (a) and n2 (b)"
    one = "1 example is a copy of others in the same class, such as n1 of n0"
    two = "2 examples are copies of others in the same class, such as n1 of n0"
    for copies, expected in (
        ([0, 1, 2, 3, 4], []),
        ([0, 0, 2, 3, 4], [("copies", one)]),
        ([0, 0, 0, 3, 0], [("in two classes", in_two), ("copies", two)]),
    ):
        found = notes_on_copies(table, np.array(copies))
        assert [(note.kind, note.text) for note in found] == expected


def test_a_note_on_queries_that_are_in_the_gallery() -> None:
    end = "too, such as a, so the scores are too high; test with queries that are not in the gallery"
    assert copies_note(["a"], 9) == f"1 of 9 queries is in the gallery {end}"
    assert copies_note(["a", "b"], 9) == f"2 of 9 queries are in the gallery {end}"


@pytest.mark.parametrize(
    ("agreement", "is_noted"), [(0.99, False), (0.9899, True), (1.0, False), (0.875, True)]
)
def test_an_index_that_changes_labels_is_noted(
    agreement: float, is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "worst_index_measurement", lambda _: SimpleNamespace(agreement=agreement))
    text = (
        f"with the index, {100 * agreement:.1f}% of the labels agree with the exact search; `crnr tune` may "
        "find better settings, and --index exact makes no errors"
    )
    found = fit.index_notes({})
    assert [(note.kind, note.text) for note in found] == ([("index", text)] if is_noted else [])
    monkeypatch.setattr(fit, "worst_index_measurement", lambda _: None)
    assert fit.index_notes({}) == []


def test_copies_are_found_in_batches_with_failed_queries() -> None:
    rows = np.eye(4, dtype=np.float32)
    failed = SampleError("truncated", "cut short")
    blank = SampleError("zero_norm", "nothing to compare")
    names = list("abcd")
    raw = Batch(names, [None, failed, None, None], rows[:3], 4)
    vectors = Batch(names, [blank, failed, None, None], rows[1:3], 4)
    by_hash = KnownSamples.of("features", [row_hash(rows[1])], rows[3:])
    assert by_hash.names_in_batch(raw, vectors) == ["c"]
    by_vector = KnownSamples.of("pictures", ["x"], rows[2:])
    assert by_vector.names_in_batch(raw, vectors) == ["d"]


def fitted(factor: str) -> FittedGallery:
    return make_gallery(read("aabbb"), make_method("crnr", {"factor": factor}))[0]


def test_a_gallery_describes_itself() -> None:
    assert (fitted("dense").factor, fitted("low-rank").factor) == ("dense", "low-rank")
    nearest, _ = make_gallery(read("aabbb"), make_method("nn", {}))
    assert nearest.factor is None
    found = describe(fitted("dense"))
    assert (found["n_classes"], found["n_samples"], found["dimension"], found["dtype"]) == (
        2,
        5,
        5,
        "float32",
    )
    assert (found["method"], found["factor"], found["calibration"]) == ("crnr", "dense", None)
    assert (found["classes"], found["made_from"], found["n_inputs"]) == ({"a": 2, "b": 3}, "features", 5)
    calibrated = fitted("dense").calibrate(1)
    assert calibrated.calibration is not None
    assert describe(calibrated)["calibration"] == calibrated.calibration.origin


def test_the_size_of_a_written_gallery_is_returned(tmp_path: Path) -> None:
    assert write_gallery(fitted("dense"), tmp_path / "g.h5") == (tmp_path / "g.h5").stat().st_size


def test_vectors_that_only_rounding_tells_apart_are_copies() -> None:
    rows = np.eye(3)
    known = KnownSamples.of("pictures", ["x", "y", "z"], rows)
    near, far = (rows[:1] + np.array([0, distance, 0]) for distance in (0.9e-5, 1.1e-5))
    assert known.known_mask([""], near).tolist() == [True]
    assert known.known_mask([""], far).tolist() == [False]
    assert known.known_mask(["y"], far).tolist() == [True]
