"""MATLAB files, v5 as SciPy writes them and v7.3 as HDF5: the same samples whichever way they lie."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_array

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.sources.base import Keys
from crnr_cli.sources.tables import FeatureFile
from helpers.runner import Runner

VALUES = np.arange(12.0).reshape(4, 3)  # 4 samples of 3 numbers
LABELS = [2, 1, 2, 10]
NAMES = ["Ö b", "a", "cc", "a"]


def save_v5(path: Path, variables: dict[str, object]) -> None:
    savemat(path, variables, do_compression=True)


def save_v73(path: Path, variables: dict[str, object]) -> None:
    """As MATLAB does: a text header, and every array transposed, with the name of its class."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if isinstance(value, np.ndarray) and value.dtype == object:
                save_cells(file, name, value)
            else:
                save_array(file, name, np.atleast_2d(np.asarray(value)))
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def save_array(file: h5py.File, name: str, array: Array) -> h5py.Dataset:
    if array.dtype.kind == "U":  # one row of characters per text
        width = max(map(len, array.ravel()))
        units = [np.frombuffer(text.ljust(width).encode("utf-16-le"), "<u2") for text in array.ravel()]
        dataset = file.create_dataset(name, data=np.array(units).T)
        dataset.attrs["MATLAB_class"] = np.bytes_("char")
    else:
        dataset = file.create_dataset(name, data=array.T)
        dataset.attrs["MATLAB_class"] = np.bytes_(
            {"float64": "double", "float32": "single"}.get(str(array.dtype), str(array.dtype))
        )
    return dataset


def save_cells(file: h5py.File, name: str, cells: Array) -> None:
    references = [
        save_array(file, f"#refs#/{name}{i}", np.atleast_2d(np.asarray(cell))).ref
        for i, cell in enumerate(cells.ravel())
    ]
    dataset = file.create_dataset(name, (1, len(references)), dtype=h5py.ref_dtype)
    dataset[0] = references
    dataset.attrs["MATLAB_class"] = np.bytes_("cell")


Save = Callable[[Path, dict[str, object]], None]
VERSIONS = pytest.mark.parametrize("save", [save_v5, save_v73], ids=["v5", "v7.3"])


def rows(file: FeatureFile) -> Array:
    """All rows, read in two parts."""
    return np.concatenate([file.rows(0, 3), file.rows(3, len(file))])


@VERSIONS
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("labels", [[LABELS], np.array([LABELS]).T], ids=["1 x n", "n x 1"])
def test_the_number_of_labels_tells_rows_from_columns(
    tmp_path: Path, save: Save, turned: bool, labels: object
) -> None:
    path = tmp_path / "x.mat"
    save(path, {"F": VALUES.T if turned else VALUES, "who": np.array(labels, float), "other": np.eye(2)})
    file = FeatureFile.open(path, Keys("F", "who"))
    assert (len(file), file.n_features, file.labels) == (4, 3, ["2", "1", "2", "10"])
    assert file.names[1] == f"{path}#1"
    np.testing.assert_array_equal(rows(file), VALUES)


@VERSIONS
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_numbers_of_any_type(tmp_path: Path, save: Save, dtype: str) -> None:
    path = tmp_path / "x.mat"
    save(path, {"features": VALUES.astype(dtype), "labels": np.array(LABELS, "int32")})
    np.testing.assert_array_equal(rows(FeatureFile.open(path, Keys())), VALUES)


@VERSIONS
@pytest.mark.parametrize("cells", [False, True], ids=["char matrix", "cell array"])
def test_text_as_labels(tmp_path: Path, save: Save, cells: bool) -> None:
    path = tmp_path / "x.mat"
    save(path, {"features": VALUES, "labels": np.array(NAMES, dtype=object if cells else str)})
    assert FeatureFile.open(path, Keys()).labels == NAMES


@VERSIONS
@pytest.mark.parametrize(("axis", "expected"), [("rows", VALUES[:3]), ("columns", VALUES[:3].T)])
def test_samples_says_which_where_nothing_else_does(
    tmp_path: Path, save: Save, axis: Literal["rows", "columns"], expected: Array
) -> None:
    path = tmp_path / "square.mat"
    save(path, {"features": VALUES[:3], "labels": np.array([1.0, 2, 3])})
    with pytest.raises(DataError, match=r"3 rows and 3 columns with 3 labels; .* --samples rows\|columns$"):
        FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(FeatureFile.open(path, Keys(samples=axis)).rows(0, 3), expected)


@VERSIONS
def test_without_labels_samples_must_be_said(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    save(path, {"features": VALUES.T})
    with pytest.raises(DataError, match=r"3 rows and 4 columns and no labels; .* --samples rows\|columns$"):
        FeatureFile.open(path, Keys())
    file = FeatureFile.open(path, Keys(samples="columns"))
    assert file.labels is None
    np.testing.assert_array_equal(rows(file), VALUES)


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_samples_as_columns_of_other_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    if suffix == "npz":
        np.savez(path, features=VALUES.T, labels=LABELS)
    else:
        with h5py.File(path, "w") as file:
            file["features"], file["labels"] = VALUES.T, LABELS
    np.testing.assert_array_equal(rows(FeatureFile.open(path, Keys(samples="columns"))), VALUES)


@VERSIONS
def test_labels_of_another_number(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    save(path, {"features": VALUES, "labels": np.array([1.0, 2])})
    with pytest.raises(DataError, match=r"4 rows and 3 columns but 2 labels; .* --labels-key$"):
        FeatureFile.open(path, Keys())


@VERSIONS
def test_an_unknown_name_lists_the_others_in_matlabs_shape(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    save(path, {"F": VALUES, "who": np.array([LABELS], float)})
    with pytest.raises(
        DataError, match=r"no dataset features; found F \(4, 3\), who \(1, 4\); .* --features-key$"
    ):
        FeatureFile.open(path, Keys())


@VERSIONS
def test_cells_of_numbers_are_not_labels(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    cells = np.empty(4, dtype=object)
    cells[:] = [np.eye(2), np.eye(2), np.eye(2), np.eye(2)]
    save(path, {"features": VALUES, "labels": cells})
    with pytest.raises(DataError, match=r"x.mat: labels is a cell array with other content than text; "):
        FeatureFile.open(path, Keys())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"field": 1.0}, "features is of the MATLAB class struct"),
        (csc_array(VALUES), r"features is of the MATLAB class sparse, .* save full\(features\)$"),
        (VALUES + 1j, "features must be a table of numbers"),
        (np.zeros((2, 2, 2)), "features must be a table of numbers"),
        ("text", "features must be a table of numbers"),
    ],
    ids=["struct", "sparse", "complex", "3-D", "char"],
)
def test_what_is_not_a_table_is_refused(tmp_path: Path, value: object, message: str) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"features": value, "labels": LABELS})
    with pytest.raises(DataError, match=message):
        FeatureFile.open(path, Keys())


@pytest.mark.parametrize("number", [3, 16, 17], ids=["object", "function handle", "opaque"])
def test_odd_classes_are_refused(tmp_path: Path, number: int) -> None:
    """Written as a plain matrix, then renamed in the variable's flags: only the class is looked at."""
    path = tmp_path / "x.mat"
    savemat(path, {"features": VALUES}, do_compression=False)
    content = bytearray(path.read_bytes())
    assert content[144] == 6  # a double, after the header of 128 bytes and two tags
    content[144] = number
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path}: "):
        FeatureFile.open(path, Keys(samples="rows"))


@pytest.mark.parametrize("kind", ["function_handle", "struct", "string"])
def test_odd_classes_of_v73_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.mat"
    save_v73(path, {"features": VALUES})
    with h5py.File(path, "r+") as file:
        file["features"].attrs["MATLAB_class"] = np.bytes_(kind)
    with pytest.raises(DataError, match=f"features is of the MATLAB class {kind}, but must be numbers"):
        FeatureFile.open(path, Keys(samples="rows"))


@pytest.mark.parametrize(
    ("kind", "value"), [("cell", np.ones((1, 4))), ("char", np.ones((2, 4)))], ids=["cell", "char"]
)
def test_numbers_that_claim_to_be_text_are_refused(tmp_path: Path, kind: str, value: Array) -> None:
    path = tmp_path / "x.mat"
    save_v73(path, {"features": VALUES, "labels": value})
    with h5py.File(path, "r+") as file:
        file["labels"].attrs["MATLAB_class"] = np.bytes_(kind)
    with pytest.raises(DataError, match=f"^{path}: labels is not readable as text "):
        FeatureFile.open(path, Keys())


def test_cells_that_point_nowhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    save_v73(path, {"features": VALUES, "labels": np.array(NAMES, dtype=object)})
    with h5py.File(path, "r+") as file:
        file["labels"][0, 2] = h5py.Reference()
    with pytest.raises(DataError, match=f"^{path}: labels is not readable as text "):
        FeatureFile.open(path, Keys())


def test_empty_variable_of_v73_is_refused(tmp_path: Path) -> None:
    """Its dataset holds the shape of what is not there."""
    path = tmp_path / "x.mat"
    save_v73(path, {"features": np.array([[0.0, 5.0]])})
    with h5py.File(path, "r+") as file:
        file["features"].attrs["MATLAB_empty"] = 1
    with pytest.raises(DataError, match="features is empty"):
        FeatureFile.open(path, Keys(samples="rows"))


@pytest.mark.parametrize(
    "content", [b"", b"not matlab at all" * 20, b"\x00" * 300], ids=["empty", "text", "zeros"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path}: "):
        FeatureFile.open(path, Keys())


@pytest.mark.parametrize("place", [0, 145, 185, 393])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, place: int) -> None:
    """Cut, or with one byte changed: never a traceback, and never the end of the process, though some of
    these crash SciPy's parser."""
    path = tmp_path / "x.mat"
    savemat(path, {"features": VALUES, "labels": np.array(NAMES, dtype=object)}, do_compression=False)
    content = path.read_bytes()
    for broken in (content[:place], content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]):
        path.write_bytes(broken)
        try:
            file = FeatureFile.open(path, Keys())
        except DataError as e:
            assert str(e).startswith(f"{path}: ")  # noqa: PT017 - to read it after all is as good
        else:
            assert len(file) in (3, 4)


def test_a_parser_that_crashes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"features": VALUES})
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"]
    start = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda command, **pipes: start(killed, **pipes))
    with pytest.raises(
        DataError, match=r"x.mat: not a readable .mat file \(its parser crashed with signal 11\)"
    ):
        FeatureFile.open(path, Keys(samples="rows"))


def test_a_shape_larger_than_the_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"features": VALUES}, do_compression=False)
    content = bytearray(path.read_bytes())
    assert content[160:164] == (4).to_bytes(4, "little")
    content[160:164] = (2**30).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(DataError, match="features declares more data than the file can contain"):
        FeatureFile.open(path, Keys(samples="rows"))


def test_commands_read_mat_files(crnr: Runner, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 20))
    classes = np.repeat([1, 2, 3], 8)
    path = tmp_path / "faces.mat"
    savemat(
        path,
        {
            "train": (centres[classes - 1] + 0.1 * rng.normal(size=(24, 20))).T,
            "trainlabels": classes,
            "test": (centres + 0.1 * rng.normal(size=(3, 20))).T,
            "testlabels": [[1], [2], [3]],
        },
    )
    gallery = str(tmp_path / "g.h5")
    keys = ["--features-key", "train", "--labels-key", "trainlabels"]
    built = crnr("build", path, *keys, "--pca", "5", "-o", gallery, "-q")
    assert (built.exit, built.out, built.err) == (0, "", "")
    keys = ["--features-key", "test", "--labels-key", "testlabels"]
    scored = crnr("evaluate", path, *keys, "-g", gallery, "--json")
    assert (scored.exit, scored.err) == (0, "")
    assert '"accuracy": 1.0' in scored.out
    unlabelled = ["classify", str(path), "--features-key", "test", "-g", gallery, "-q"]
    asked = crnr(*unlabelled)
    assert (asked.exit, asked.out) == (1, "")
    assert asked.err == (
        f"error: {path}: features of 20 rows and 3 columns and no labels; "
        "choose the samples with --samples rows|columns\n"
    )
    answered = crnr(*unlabelled, "--samples", "columns")
    assert (answered.exit, answered.err) == (0, "")
    assert [line.split(",")[2] for line in answered.out.splitlines()] == ["label", "1", "2", "3"]
