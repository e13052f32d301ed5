"""Feature files: types, labels, keys, and what is refused."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.sources.base import Keys
from crnr_cli.sources.tables import FeatureFile


def npz(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "x.npz", **arrays)
    return tmp_path / "x.npz"


@pytest.mark.parametrize("dtype", ["float16", "int16", ">f8", ">i4", "bool", "uint8"])
def test_numbers_of_any_type_are_read(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1], [1, 1]]).astype(dtype)
    file = FeatureFile.open(npz(tmp_path, features=values), Keys())
    assert file.rows(0, 2).tolist() == values.tolist()
    assert file.rows(0, 2).dtype.isnative


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(np.array([7, 8]), id="int"),
        pytest.param(np.array([[7.0], [8.0]]), id="float column, as MATLAB has them"),
        pytest.param(np.array(["7", "8"]), id="str"),
        pytest.param(np.array([b"7", b"8"]), id="bytes"),
    ],
)
def test_labels_of_any_type_are_text(tmp_path: Path, labels: np.ndarray) -> None:
    assert FeatureFile.open(npz(tmp_path, features=np.eye(2), labels=labels), Keys()).labels == ["7", "8"]


def test_hdf5_strings_and_paths_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = np.eye(2)
        file["labels"] = ["passion flower", "Öl"]
        file["paths"] = [b"a.jpg", b"b.jpg"]
    opened = FeatureFile.open(tmp_path / "x.h5", Keys())
    assert (opened.labels, opened.names) == (["passion flower", "Öl"], ["a.jpg", "b.jpg"])


def test_rows_without_paths_are_named_by_file_and_row(tmp_path: Path) -> None:
    path = npz(tmp_path, features=np.eye(2))
    assert FeatureFile.open(path, Keys()).names == [f"{path}#0", f"{path}#1"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        pytest.param(
            {"x": np.eye(2)}, r"no dataset features; found x \(2, 2\); name one with", id="other name"
        ),
        pytest.param({"features": np.eye(2) * 1j}, "must be a table of numbers", id="complex"),
        pytest.param({"features": np.array([[{}]])}, "must be a table of numbers", id="pickled objects"),
        pytest.param({"features": np.ones(4)}, r"found float64 of shape \(4,\)", id="not a table"),
        pytest.param(
            {"features": np.eye(2), "labels": [1, 2, 3]}, "2 rows of features but 3 labels", id="counts"
        ),
    ],
)
def test_what_cannot_be_features_is_refused(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FeatureFile.open(npz(tmp_path, **arrays), Keys())


def test_labels_that_are_python_objects_are_refused_with_a_remedy(tmp_path: Path) -> None:
    labels = np.array(["a", "b"], dtype=object)
    with pytest.raises(DataError, match=r"labels\.npy holds Python objects.*as with \.astype\(str\)"):
        FeatureFile.open(npz(tmp_path, features=np.eye(2), labels=labels), Keys())


def test_a_label_that_is_not_a_number_is_refused_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"x\.npz: the label of row 1 is not a number"):
        FeatureFile.open(npz(tmp_path, features=np.eye(2), labels=[1.0, np.nan]), Keys())


@pytest.mark.parametrize("name", ["x.npz", "x.h5"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("hello")
    with pytest.raises(DataError, match=rf"{name}: not a readable"):
        FeatureFile.open(tmp_path / name, Keys())


def test_a_dataset_that_points_elsewhere_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("features", (2, 2), "f4", external=[("/etc/passwd", 0, 16)])
    with pytest.raises(DataError, match="points into other files"):
        FeatureFile.open(tmp_path / "x.h5", Keys())
