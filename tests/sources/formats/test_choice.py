"""Which arrays are taken as features and labels, and which axis has the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from crnr_cli.errors import DataError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.tables import FeatureFile
from helpers.runner import Outcome, Runner
from helpers.tables import SUFFIXES, save_arrays, save_features

STACK = np.random.default_rng(0).integers(0, 255, (4, 3, 7), dtype=np.uint8)  # 4 x 3 pixels, 7 images
COLOURED = np.random.default_rng(1).integers(0, 255, (7, 4, 5, 3), dtype=np.uint8)
LABELS = np.array([1, 2, 1, 2, 3, 3, 1])
ONE_HOT = np.eye(3)[LABELS - 1]  # samples x classes
each_kind = pytest.mark.parametrize("suffix", ["npz", "h5", "mat"])


def opened(path: Path, keys: Keys | None = None) -> FeatureFile:
    return FeatureFile.open(path, keys or Keys())


def all_rows(file: FeatureFile) -> np.ndarray:
    return file.read_rows(0, len(file))


@pytest.mark.slow
@each_kind
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("labels", [LABELS, ONE_HOT, ONE_HOT.T], ids=["plain", "one-hot", "one-hot columns"])
def test_a_stack_of_images_in_any_order(tmp_path: Path, suffix: str, axis: int, labels: Any) -> None:
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"x": np.moveaxis(STACK, 2, axis), "gnd": labels})
    file = opened(path)
    np.testing.assert_array_equal(all_rows(file), STACK.transpose(2, 0, 1).reshape(7, 12))
    first = 1 if suffix == "mat" or labels is LABELS else 0
    assert file.labels == [str(label - 1 + first) for label in LABELS]
    shape = " x ".join(map(str, np.moveaxis(STACK, 2, axis).shape))
    assert file.notes == (
        f"{path}: using the features 'x' ({shape}) and the labels 'gnd'; "
        "choose others with --features-key and --labels-key",
        f"{path}: 'x' ({shape}) has 7 examples along its {('first', 'second', 'last')[axis]} axis, "
        "with 12 features each; choose another axis with --samples-axis",
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_stack_in_npy(tmp_path: Path, axis: int) -> None:
    np.save(tmp_path / "x.npy", np.moveaxis(STACK, 2, axis))
    np.save(tmp_path / "x_labels.npy", ONE_HOT)
    file = opened(tmp_path / "x.npy")
    np.testing.assert_array_equal(all_rows(file), STACK.transpose(2, 0, 1).reshape(7, 12))
    assert file.labels == [str(label - 1) for label in LABELS]


@each_kind
def test_stacks_of_coloured_images_are_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"features": COLOURED, "labels": LABELS})
    file = opened(path)
    np.testing.assert_array_equal(all_rows(file), COLOURED.reshape(7, 60))
    assert len(file.notes) == 1


@each_kind
def test_a_table_with_the_samples_in_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    table = STACK.reshape(12, 7)
    save_arrays(path, {"features": table, "labels": LABELS})
    file = opened(path)
    np.testing.assert_array_equal(all_rows(file), table.T)
    expected = f"{path}: 'features' (12 x 7) has 7 examples along its last axis, with 12 features each; "
    assert file.notes == (() if suffix == "mat" else (expected + "choose another axis with --samples-axis",))


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_rows_are_taken_where_both_axes_fit(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    square = np.arange(49.0).reshape(7, 7)
    save_arrays(path, {"features": square, "labels": LABELS})
    file = opened(path)
    np.testing.assert_array_equal(all_rows(file), square)
    assert file.notes == ()
    np.testing.assert_array_equal(all_rows(opened(path, Keys(samples="columns"))), square.T)
    cube = np.arange(3 * 7 * 7).reshape(3, 7, 7)
    save_arrays(path, {"features": cube, "labels": LABELS})
    with pytest.raises(
        DataError, match=r"features of 3 x 7 x 7 with 7 labels; .* --samples-axis rows or columns"
    ):
        opened(path)


@each_kind
def test_several_pairs_are_a_choice(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    arrays = {
        "X_train": np.ones((6, 4)),
        "y_train": np.arange(6),
        "X_test": np.ones((3, 4)),
        "y_test": np.arange(3),
    }
    save_arrays(path, arrays)
    with pytest.raises(DataError) as raised:
        opened(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: no array called 'features'; choose with --features-key (")
    for name in arrays:
        assert f"'{name}'" in message
    assert opened(path, Keys("X_test", "y_test")).labels == ["0", "1", "2"]


@each_kind
def test_a_usual_name_decides_between_labels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"data": np.ones((7, 4)), "Y": LABELS, "camera": np.arange(7)})
    assert opened(path).labels == [str(label) for label in LABELS]
    save_arrays(path, {"data": np.ones((7, 4)), "camera": np.arange(7), "who": LABELS})
    with pytest.raises(DataError, match=r"--features-key \('data'\) and --labels-key \('camera' or 'who'\)"):
        opened(path)
    assert opened(path, Keys(labels="camera")).labels == [str(i) for i in range(7)]


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_labels_beside_features_need_a_usual_name(tmp_path: Path, suffix: str) -> None:
    """Other arrays of the same length, such as numbers of customers, are not labels."""
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"features": np.ones((7, 4)), "ids": np.arange(7)})
    assert (opened(path).labels, opened(path).notes) == (None, ())
    save_arrays(path, {"features": np.ones((7, 4)), "ids": np.arange(7), "gnd": LABELS})
    assert opened(path).labels == [str(label) for label in LABELS]
    assert opened(path).notes == (f"{path}: using the labels 'gnd'; choose others with --labels-key",)
    save_arrays(path, {"features": np.ones((7, 4)), "y": np.arange(4)})  # which fit the columns only
    assert opened(path).labels is None


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_the_only_table_is_taken_without_labels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"embeddings": np.ones((7, 4)), "scale": np.array([1.0, 2.0])})
    file = opened(path)
    assert (len(file), file.labels) == (7, None)
    assert file.notes[0].startswith(f"{path}: using the features 'embeddings' (7 x 4), without labels; ")


def test_unsafe_arrays_are_not_chosen(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((7, 4))
        file["y"] = h5py.ExternalLink("other.h5", "y")
        file["z"] = h5py.SoftLink("x")
    assert (len(opened(path)), opened(path).labels) == (7, None)


@pytest.mark.parametrize("suffix", ["npz", "h5", "mat"])
def test_nothing_that_could_be_features(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    save_arrays(path, {"words": np.array(["a", "b"]), "y": LABELS})
    with pytest.raises(
        DataError, match=r"no array called 'features'; found 'words' .*, 'y' .*, but no table of numbers"
    ):
        opened(path)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    values=numpy_arrays(
        np.float32,
        st.tuples(st.integers(4, 6), st.just(3)),
        elements=st.floats(-1e3, 1e3, width=32).filter(lambda value: value == 0 or abs(value) > 1e-3),
    ),
    kind=st.sampled_from(["numbers", "text"]),
)
def test_the_same_numbers_in_every_kind_of_file(
    tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("kinds")
    count = len(values)
    labels: Any = np.arange(count) % 2 if kind == "numbers" else np.array(["ant", "bée"] * count)[:count]
    for suffix in SUFFIXES:
        path = folder / f"x.{suffix}"
        save_features(path, values, labels)
        file = FeatureFile.open(path, Keys(samples="rows"))
        np.testing.assert_array_equal(file.read_rows(0, count), values)
        assert file.labels == [str(label) for label in labels]


def test_the_same_gallery_from_every_kind_of_file(crnr: Runner) -> None:
    random = np.random.default_rng(0)
    features = (np.repeat(np.eye(3, 5), 4, axis=0) + 0.2 * random.random((12, 5))).astype(np.float32)
    labels = np.repeat(["ant", "bee", "cow"], 4)
    galleries = []
    for suffix in SUFFIXES:
        save_features(Path(f"x.{suffix}"), features, labels)
        assert crnr("build", f"x.{suffix}", "-o", f"{suffix}.h5", "-q") == Outcome(0, "", "")
        galleries.append(load_gallery(Path(f"{suffix}.h5")))
    for gallery in galleries:
        np.testing.assert_array_equal(gallery.samples.vectors, galleries[0].samples.vectors)
        assert gallery.classes == ["ant", "bee", "cow"]


def test_build_prints_the_assumed_arrays(crnr: Runner) -> None:
    save_arrays(Path("x.npz"), {"x": STACK, "label": LABELS})
    built = crnr("build", "x.npz")
    assert (built.exit, built.out) == (0, "")
    assert built.err.splitlines()[:2] == [
        "note: x.npz: using the features 'x' (4 x 3 x 7) and the labels 'label'; "
        "choose others with --features-key and --labels-key",
        "note: x.npz: 'x' (4 x 3 x 7) has 7 examples along its last axis, with 12 features each; "
        "choose another axis with --samples-axis",
    ]
