"""Feature files: types, labels, keys, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.arrays import Stamp
from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.formats import labels as label_reader
from crnr_cli.sources.formats import numpy_files as npz_reader
from crnr_cli.sources.tables import FeatureFile, Features, open_tables
from helpers.runner import Runner


def npz(tmp_path: Path, **arrays: object) -> Path:
    np.savez(tmp_path / "x.npz", **arrays)
    return tmp_path / "x.npz"


@pytest.mark.parametrize("dtype", ["float16", "int16", ">f8", ">i4", "bool", "uint8"])
def test_numbers_of_any_type_are_read(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1], [1, 1]]).astype(dtype)
    file = FeatureFile.open(npz(tmp_path, features=values), Keys())
    assert file.read_rows(0, 2).tolist() == values.tolist()
    assert file.read_rows(0, 2).dtype.isnative


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(np.array([7, 8]), id="int"),
        pytest.param(np.array([[7.0], [8.0]]), id="float column, as MATLAB has them"),
        pytest.param(np.array(["7", "8"]), id="str"),
        pytest.param(np.array([b"7", b"8"]), id="bytes"),
    ],
)
def test_npz_labels_of_any_type_are_text(tmp_path: Path, labels: np.ndarray) -> None:
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
            {"x": np.ones(2)},
            r"no array called 'features'; found 'x' \(2\), but no table of numbers",
            id="other name",
        ),
        pytest.param({"features": np.eye(2) * 1j}, "must be a table of numbers", id="complex"),
        pytest.param({"features": np.array([[{}]])}, "contains Python objects", id="pickled objects"),
        pytest.param(
            {"features": np.ones(4)}, r"but 'features' is float64 of shape \(4,\)", id="not a table"
        ),
        pytest.param(
            {"features": np.eye(2), "labels": [1, 2, 3]},
            "'features' has 2 rows but 'labels' has 3",
            id="counts",
        ),
    ],
)
def test_arrays_that_cannot_be_features_are_refused(tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        FeatureFile.open(npz(tmp_path, **arrays), Keys())


def test_labels_that_are_python_objects_are_refused_with_a_remedy(tmp_path: Path) -> None:
    labels = np.array(["a", "b"], dtype=object)
    with pytest.raises(DataError, match=r"labels\.npy contains Python objects.*as with \.astype\(str\)"):
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
    with pytest.raises(DataError, match="refers to other files"):
        FeatureFile.open(tmp_path / "x.h5", Keys())


def test_labels_of_all_kinds_are_text(crnr: Runner) -> None:
    expected = {
        "int": ([1, 2], ["1", "2"]),
        "whole": ([1.0, 2.0], ["1", "2"]),
        "half": ([0.5, 2.0], ["0.5", "2"]),
        "huge": ([1e300, 1.0], ["1e+300", "1"]),
        "odd": ([np.inf, 1.0], ["inf", "1"]),
        "truth": ([True, False], ["True", "False"]),
        "bytes": (np.array([b"a", b"\xe9"]), ["a", "\udce9"]),
    }
    for name, (labels, texts) in expected.items():
        np.savez(f"{name}.npz", features=np.eye(2), labels=labels)
        assert FeatureFile.open(Path(f"{name}.npz"), Keys()).labels == texts
    np.savez("complex.npz", features=np.eye(2), labels=[1j, 2j])
    with pytest.raises(DataError, match="labels must be numbers or text, not complex128"):
        FeatureFile.open(Path("complex.npz"), Keys())
    np.savez("half.npz", features=np.eye(2), labels=["a", "\ud800"])
    with pytest.raises(DataError, match=r"half\.npz: row 1 has a label or name that is not text"):
        FeatureFile.open(Path("half.npz"), Keys())


def test_features_that_change_while_they_are_read(crnr: Runner) -> None:
    """HDF5 gives zeros for rows that were cut off."""
    with h5py.File("x.h5", "w") as file:
        file["features"] = np.ones((5000, 40))
        file["labels"] = np.arange(5000)
    features = FeatureFile.open(Path("x.h5"), Keys())
    assert features.read_rows(0, 10).all()
    os.truncate("x.h5", 500_000)
    with pytest.raises(DataError, match=r"x\.h5: was changed while it was being read; run the command again"):
        features.read_rows(10, 5000)


def test_names_come_from_the_file_if_it_has_them(crnr: Runner) -> None:
    np.savez("a.npz", features=np.eye(2), paths=["x.png", "y.png"])
    assert FeatureFile.open(Path("a.npz"), Keys()).names == ["x.png", "y.png"]
    np.savez("a.npz", features=np.eye(2), paths=["x.png"])
    assert FeatureFile.open(Path("a.npz"), Keys()).names == ["a.npz#0", "a.npz#1"]


def test_rows_that_cannot_be_read(crnr: Runner) -> None:
    """A compressed piece that is damaged is found when it is unpacked."""
    with h5py.File("x.h5", "w") as file:
        data = np.random.default_rng(0).random((8, 4))
        file.create_dataset("features", data=data, chunks=(4, 4), compression="gzip", fletcher32=True)
        file["labels"] = np.arange(8)
        where = file["features"].id.get_chunk_info(1).byte_offset
    content = bytearray(Path("x.h5").read_bytes())
    content[where + 20] ^= 0xFF
    Path("x.h5").write_bytes(content)
    opened = FeatureFile.open(Path("x.h5"), Keys())
    np.testing.assert_array_equal(opened.read_rows(0, 4), data[:4])
    with pytest.raises(DataError, match=r"^x.h5: cannot read rows 4 to 8 \("):
        opened.read_rows(4, 8)


def test_labels_that_cannot_be_read(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        shape, dtype = (3,), np.dtype(object)

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            raise OSError("no luck")

    with pytest.raises(DataError, match=r"^x.h5: cannot read the labels or names \(no luck\)$"):
        label_reader.read_texts(Path("x.h5"), Broken())


def test_a_file_of_features_that_vanished(crnr: Runner) -> None:
    with pytest.raises(DataError, match=r"^x.npz: cannot read it \(No such file or directory\)$"):
        FeatureFile.open(Path("x.npz"), Keys())


def test_an_npz_that_swells_beyond_reason(crnr: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("x.npz", features=np.zeros((1000, 100)))
    assert FeatureFile.open(Path("x.npz"), Keys()).values.shape == (1000, 100)
    monkeypatch.setattr(npz_reader, "BEST_RATIO", 10)
    with pytest.raises(DataError, match=r"features.npy declares more data than it can contain"):
        FeatureFile.open(Path("x.npz"), Keys())


def test_an_empty_label_is_refused(crnr: Runner) -> None:
    np.savez("x.npz", features=np.eye(2), labels=["a", ""])
    outcome = crnr("build", "x.npz")
    assert (outcome.exit, outcome.out, outcome.err) == (1, "", "error: x.npz#1: the label is empty\n")


@given(st.lists(st.integers(0, 7), min_size=1, max_size=6), st.integers(1, 5), st.data())
def test_spans_names_and_parts_agree_with_one_long_list(
    sizes: list[int], batch_size: int, data: st.DataObject
) -> None:
    """However the rows are divided into files, some of them empty."""
    files = [
        FeatureFile(Path(f"{i}.npz"), Stamp(), np.empty((n, 2)), None, [f"{i}#{row}" for row in range(n)])
        for i, n in enumerate(sizes)
    ]
    source = Features(files)
    everything = [name for file in files for name in file.names]
    assert source.names() == everything
    spans = source.spans(batch_size)
    assert [name for span in spans for name in source.names(span)] == everything
    start = data.draw(st.integers(0, len(everything)))
    stop = data.draw(st.integers(start, len(everything)))
    assert source.names((start, stop)) == everything[start:stop]
    cuts = source.part((start, stop)).cuts
    assert [f"{path.stem}#{row}" for path, a, b in cuts for row in range(a, b)] == everything[start:stop]


def test_a_part_is_read_again_when_its_file_has_changed(tmp_path: Path) -> None:
    """A worker of a cluster may live for weeks, and keeps the files that it has opened."""
    path = tmp_path / "x.npz"
    for values in (np.eye(3), np.eye(4) + 1):
        np.savez(path, features=values)
        part = open_tables([path], Keys()).part((0, 3))
        for _ in range(2):
            (file,) = part.open(Keys()).files
            assert np.array_equal(file.read_rows(0, 3), values[:3])


@pytest.mark.parametrize("key", ["labels", "paths"])
@pytest.mark.parametrize("order", "<>")
def test_numbers_that_are_not_characters_are_not_text(crnr: Runner, key: str, order: str) -> None:
    """Unicode ends at 0x10ffff."""
    wrong = np.array([ord("a"), 0x110000, ord("b"), 2**32 - 1], f"{order}u4").view(f"{order}U1")
    np.savez("x.npz", **{"features": np.eye(4), "labels": list("aabb")} | {key: wrong})
    outcome = crnr("build", "x.npz")
    assert (outcome.exit, outcome.out) == (1, "")
    assert outcome.err == "error: x.npz: row 1 has a label or name that is not text\n"
