"""MATLAB files, v5 as SciPy writes them and v7.3 as HDF5: the same samples whichever way they lie."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import pytest
from scipy.io import savemat, whosmat
from scipy.sparse import csc_array

from crnr_cli.arrays import Array
from crnr_cli.errors import DataError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.sources.formats import Keys, matlab_process
from crnr_cli.sources.tables import FeatureFile
from helpers.patches import set_free_bytes
from helpers.runner import Runner
from helpers.samples import draw_image

VALUES = np.arange(12.0).reshape(4, 3)  # 4 samples of 3 numbers
LABELS = [2, 1, 2, 10]
NAMES = ["Ö b", "a", "cc", "a"]


def save_v5(path: Path, variables: dict[str, object]) -> None:
    savemat(path, variables, do_compression=True)


def save_v73(path: Path, variables: dict[str, object]) -> None:
    """Save like MATLAB: a text header, and every array transposed, with the name of its class."""
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
    """Return all rows, read in two parts."""
    return np.concatenate([file.read_rows(0, 3), file.read_rows(3, len(file))])


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("labels", [[LABELS], np.array([LABELS]).T], ids=["1 x n", "n x 1"])
def test_the_number_of_labels_decides_rows_or_columns(
    tmp_path: Path, save: Save, turned: bool, labels: object
) -> None:
    path = tmp_path / "x.mat"
    save(path, {"F": VALUES.T if turned else VALUES, "who": np.array(labels, float), "other": np.eye(2)})
    file = FeatureFile.open(path, Keys("F", "who"))
    assert (len(file), file.n_features, file.labels) == (4, 3, ["2", "1", "2", "10"])
    assert file.names[1] == f"{path}#1"
    np.testing.assert_array_equal(rows(file), VALUES)


@pytest.mark.slow
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


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize(("axis", "expected"), [("rows", VALUES[:3]), ("columns", VALUES[:3].T)])
def test_samples_option_decides_the_axis_of_a_square(
    tmp_path: Path, save: Save, axis: Literal["rows", "columns"], expected: Array
) -> None:
    path = tmp_path / "square.mat"
    save(path, {"features": VALUES[:3], "labels": np.array([1.0, 2, 3])})
    with pytest.raises(
        DataError, match=r"3 rows and 3 columns with 3 labels; .* --samples-axis rows or columns$"
    ):
        FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(FeatureFile.open(path, Keys(samples=axis)).read_rows(0, 3), expected)


@VERSIONS
def test_matlab_without_labels_needs_the_samples_option(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    save(path, {"features": VALUES.T})
    with pytest.raises(
        DataError, match=r"3 rows and 4 columns and no labels; .* --samples-axis rows or columns$"
    ):
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
        DataError,
        match=r"no array called 'G'; choose with --features-key, found: 'F' \(4, 3\), 'who' \(1, 4\)$",
    ):
        FeatureFile.open(path, Keys("G"))


@pytest.mark.slow
@VERSIONS
def test_the_only_pair_is_taken_whatever_it_is_called(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    save(path, {"F": VALUES, "who": np.array([LABELS], float), "note": np.array(["x"])})
    file = FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(rows(file), VALUES)
    assert file.labels == [str(label) for label in LABELS]
    assert file.notes == (
        f"{path}: using the features 'F' (4 x 3) and the labels 'who'; "
        "choose others with --features-key and --labels-key",
    )


@pytest.mark.slow
@VERSIONS
def test_cells_of_images_and_a_matrix_of_ones_are_a_pair(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    cells = np.empty(5, dtype=object)
    cells[:] = list(STACK.transpose(2, 0, 1))
    save(path, {"imgs": cells, "labelMat": ONE_HOT})
    file = FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(rows(file), STACK.transpose(2, 0, 1).reshape(5, 12))
    assert file.labels == ["1", "2", "1", "2", "3"]


@VERSIONS
def test_cells_of_numbers_are_not_labels(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    cells = np.empty(4, dtype=object)
    cells[:] = [np.eye(2), np.eye(2), np.eye(2), np.eye(2)]
    save(path, {"features": VALUES, "labels": cells})
    with pytest.raises(DataError, match=r"x.mat: labels of shape \(4, 4\) are not one label per example, "):
        FeatureFile.open(path, Keys())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"field": 1.0}, "features is of the MATLAB class struct"),
        (csc_array(VALUES), r"features is of the MATLAB class sparse, .* save full\(features\)$"),
        (VALUES + 1j, "features must be a table of numbers"),
        (np.zeros((2, 2, 2, 2, 2)), "features must be a table of numbers"),
        ("text", "features must be a table of numbers"),
    ],
    ids=["struct", "sparse", "complex", "5-D", "char"],
)
def test_matlab_values_other_than_tables_are_refused(tmp_path: Path, value: object, message: str) -> None:
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
    with pytest.raises(DataError, match=f"^{path}: labels is not readable as text or numbers "):
        FeatureFile.open(path, Keys())


def test_cells_that_point_nowhere_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    save_v73(path, {"features": VALUES, "labels": np.array(NAMES, dtype=object)})
    with h5py.File(path, "r+") as file:
        file["labels"][0, 2] = h5py.Reference()
    with pytest.raises(DataError, match=f"^{path}: labels is not readable as text or numbers "):
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
def test_files_other_than_matlab_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path}: "):
        FeatureFile.open(path, Keys())


@pytest.mark.slow
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


@pytest.mark.parametrize("name", [b"abcd\0fgh", b"a" * 1208], ids=["null", "long"])
def test_a_name_that_no_argument_can_have_is_refused(tmp_path: Path, name: bytes) -> None:
    """The process that reads gets the names of cells as arguments, to look whether they contain numbers."""
    path = tmp_path / "x.mat"
    savemat(path, {"abcdefgh": np.array(NAMES, dtype=object), "features": VALUES}, do_compression=False)
    header, content = path.read_bytes()[:136], path.read_bytes()[136:]
    kind, size = struct.unpack_from("<II", header, 128)
    at = content.index(b"\x08\0\0\0abcdefgh")
    renamed = content[:at] + struct.pack("<I", len(name)) + name + content[at + 12 :]
    path.write_bytes(header[:128] + struct.pack("<II", kind, size + len(name) - 8) + renamed)
    assert name.decode() in [one for one, *_ in whosmat(path)]
    with pytest.raises(DataError) as error:
        FeatureFile.open(path, Keys(samples="rows"))
    assert str(error.value) == f"{path}: not a readable .mat file (a variable has no valid name)"


def test_a_parser_that_crashes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"features": VALUES})
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"]
    start = subprocess.Popen
    monkeypatch.setattr("subprocess.Popen", lambda command, **pipes: start(killed, **pipes))
    with pytest.raises(
        DataError, match=r"x.mat: not a readable .mat file \(the parser crashed with signal 11\)"
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


@pytest.mark.slow
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
        "choose with --samples-axis rows or columns\n"
    )
    answered = crnr(*unlabelled, "--samples-axis", "columns")
    assert (answered.exit, answered.err) == (0, "")
    assert [line.split(",")[2] for line in answered.out.splitlines()] == ["label", "1", "2", "3"]


def save_v73_with_text_attributes(path: Path) -> bytearray:
    """Save a v7.3 file like other programs, with class names as text of variable length."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in (("features", VALUES.T), ("labels", np.array(LABELS, float)[:, None])):
            file[name] = values
            file[name].attrs["MATLAB_class"] = "double"
    return bytearray(path.read_bytes())


def test_names_of_classes_of_variable_length(tmp_path: Path) -> None:
    save_v73_with_text_attributes(tmp_path / "x.mat")
    np.testing.assert_array_equal(rows(FeatureFile.open(tmp_path / "x.mat", Keys())), VALUES)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [{25: 1}, {16: 9}, {8: 255}], ids=["endless", "missing", "too large"])
def test_damaged_text_of_variable_length_does_no_harm(tmp_path: Path, damage: dict[int, int]) -> None:
    """HDF5 works for ever on the first: that is ended, and the others are not a traceback."""
    path = tmp_path / "x.mat"
    data = save_v73_with_text_attributes(path)
    heap = data.index(b"GCOL")
    for place, value in damage.items():
        data[heap + place] = value
    path.write_bytes(data)
    with pytest.raises(DataError) as refused:
        FeatureFile.open(path, Keys())
    assert str(refused.value) == (
        f"{path}: the text in MATLAB_class of features cannot be read; write it again, with a fixed length"
    )


def test_cells_without_characters_are_empty_texts(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    save_v73(path, {"features": VALUES, "labels": np.array(NAMES, dtype=object)})
    with h5py.File(path, "r+") as file:
        del file["#refs#/labels2"]
        empty = file.create_dataset("#refs#/labels2", data=np.zeros((3, 0), np.uint16))
        empty.attrs["MATLAB_class"] = np.bytes_("char")
        file["labels"][0, 2] = empty.ref
    assert FeatureFile.open(path, Keys()).labels == [*NAMES[:2], "", NAMES[3]]


def save_bomb(path: Path, count: int) -> None:
    """Doubles that are stored as bytes, as MATLAB does with small ones, all zero and compressed."""

    def element(kind: int, data: bytes) -> bytes:
        return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)

    head = element(6, struct.pack("<II", 6, 0)) + element(5, struct.pack("<ii", count, 1))
    head += element(1, b"features") + struct.pack("<II", 2, count)
    content = struct.pack("<II", 14, len(head) + count) + head + bytes(count)
    packed = zlib.compress(content, 9)
    start = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<HH", 0x0100, 0x4D49)
    path.write_bytes(start + struct.pack("<II", 15, len(packed)) + packed)


def test_a_file_that_declares_more_than_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_bomb(tmp_path / "x.mat", 2**25)
    assert (tmp_path / "x.mat").stat().st_size < 2**16
    monkeypatch.setattr(matlab_process, "limit_cpu_time", lambda seconds: None)
    set_free_bytes(2**25, monkeypatch.setattr)
    with pytest.raises(DataError) as refused:
        matlab_process.read_variables(tmp_path / "x.mat", ["features"])
    assert str(refused.value) == (
        f"{tmp_path}/x.mat: features needs 67.1 MB of memory, but 33.6 MB are free; save fewer rows per file"
    )


@pytest.mark.parametrize("flags", [(), ("-u",)], ids=["buffered", "unbuffered"])
def test_the_process_that_reads_writes_into_a_pipe(tmp_path: Path, flags: tuple[str, ...]) -> None:
    expected = {"rows": VALUES, "columns": np.asfortranarray(VALUES), "one": np.arange(4.0)[None]}
    save_v5(tmp_path / "x.mat", expected)
    command = [sys.executable, *flags, "-m", matlab_process.__name__, tmp_path / "x.mat", *expected]
    done = subprocess.run(command, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    output = io.BytesIO(done.stdout)
    names = json.loads(output.readline())["arrays"]
    assert sorted(names) == sorted(expected)
    for name in names:
        np.testing.assert_array_equal(np.load(output), expected[name])


def test_the_process_that_reads_has_limits_of_memory_and_time(tmp_path: Path) -> None:
    save_bomb(tmp_path / "x.mat", 2**25)
    code = (
        "import sys, resource, scipy.io\n"
        "from crnr_cli.sources.formats import matlab_process as m\n"
        "from crnr_cli.system import memory\n"
        "m.BASE_BYTES = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "sys.argv = ['', 'x.mat', 'features']\n"
        "memory.require_memory = lambda *arguments: None\n"
        "memory.free_bytes = lambda: 2**24\n"
        "try: m.print_variables()\n"
        "finally: print(resource.getrlimit(resource.RLIMIT_CPU)[0] < 100, file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"x.mat: needs more memory than there is; save fewer rows per fileTrue\n"


# Stacks of images: height x width x samples is the usual order in MATLAB.
STACK = np.arange(4 * 3 * 5).reshape(4, 3, 5)  # 4 x 3 pixels, 5 images
STACK_LABELS = np.array([1.0, 2, 1, 2, 3])


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_a_stack_of_images(tmp_path: Path, save: Save, axis: int, dtype: str) -> None:
    """Exactly one axis has the number of labels; the pixels are in the order of an image file."""
    path = tmp_path / "x.mat"
    stack = np.moveaxis(STACK.astype(dtype), 2, axis)
    save(path, {"features": stack, "labels": STACK_LABELS})
    file = FeatureFile.open(path, Keys())
    assert (len(file), file.n_features, file.labels) == (5, 12, ["1", "2", "1", "2", "3"])
    for k in range(5):
        assert rows(file)[k].tolist() == STACK[:, :, k].ravel().tolist()


@VERSIONS
def test_a_stack_of_coloured_images(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    stack = np.arange(4 * 2 * 3 * 5, dtype=np.uint8).reshape(4, 2, 3, 5)
    save(path, {"x": stack, "label": STACK_LABELS[:, None]})
    file = FeatureFile.open(path, Keys("x", "label"))
    assert rows(file)[3].tolist() == stack[..., 3].ravel().tolist()


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize(("chosen", "axis"), [("rows", 0), ("columns", 2)])
def test_an_ambiguous_stack_needs_the_samples_option(
    tmp_path: Path, save: Save, chosen: str, axis: int
) -> None:
    path = tmp_path / "x.mat"
    stack = np.arange(27.0).reshape(3, 3, 3)
    save(path, {"features": stack, "labels": np.array([1.0, 2, 3])})
    with pytest.raises(DataError) as refused:
        FeatureFile.open(path, Keys())
    assert str(refused.value) == (
        f"{path}: features of 3 x 3 x 3 with 3 labels; "
        "choose with --samples-axis rows or columns (the first axis or the last)"
    )
    file = FeatureFile.open(path, Keys(samples=chosen))
    np.testing.assert_array_equal(file.read_rows(0, 3), np.moveaxis(stack, axis, 0).reshape(3, 9))


@VERSIONS
def test_cells_of_images(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    cells = np.empty(5, dtype=object)
    cells[:] = [STACK[:, :, k].astype(np.uint8) for k in range(5)]
    save(path, {"features": cells, "labels": STACK_LABELS})
    file = FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(rows(file), STACK.transpose(2, 0, 1).reshape(5, 12))
    assert file.labels == ["1", "2", "1", "2", "3"]
    cells[4] = np.zeros((2, 2))
    save(path, {"features": cells, "labels": STACK_LABELS})
    with pytest.raises(
        DataError, match=r"features is a cell array of something else than texts, or arrays of"
    ):
        FeatureFile.open(path, Keys())


@VERSIONS
def test_cells_of_single_numbers_are_labels(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "x.mat"
    cells = np.empty(4, dtype=object)
    cells[:] = [float(label) for label in LABELS]
    save(path, {"features": VALUES, "labels": cells})
    assert FeatureFile.open(path, Keys()).labels == ["2", "1", "2", "10"]


ONE_HOT = np.eye(3)[[0, 1, 0, 1, 2]]  # samples x classes


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("turned", [False, True], ids=["samples x classes", "classes x samples"])
def test_a_matrix_with_a_one_per_sample(tmp_path: Path, save: Save, turned: bool) -> None:
    """As in the files of YaleB: the classes are numbered from 1, as in MATLAB."""
    path = tmp_path / "x.mat"
    save(path, {"featureMat": np.arange(20.0).reshape(4, 5), "labelMat": ONE_HOT.T if turned else ONE_HOT})
    file = FeatureFile.open(path, Keys("featureMat", "labelMat"))
    assert file.labels == ["1", "2", "1", "2", "3"]
    assert (len(file), file.n_features) == (5, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            np.eye(5),
            r"\(5, 5\) are not one label per example, and have a single 1 in every row and column; save",
        ),
        (
            np.ones((3, 5)),
            "and have no or several ones for some examples; save one number or text per example",
        ),
        (np.full((3, 5), 2.0), "nor a single 1 per example; save one number or text per example"),
    ],
    ids=["permutation", "several", "numbers"],
)
def test_other_matrices_are_not_labels(tmp_path: Path, labels: Array, words: str) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"features": np.zeros((5, 4)), "labels": labels})
    with pytest.raises(DataError, match=words):
        FeatureFile.open(path, Keys())


@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_stacks_and_matrices_of_ones_in_other_files(tmp_path: Path, suffix: str) -> None:
    """The first axis has the samples, by default, and classes are numbered from 0."""
    path = tmp_path / f"x.{suffix}"
    arrays = {"features": STACK.transpose(2, 0, 1), "labels": ONE_HOT, "last": STACK}
    if suffix == "npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            file.update(arrays)
    file = FeatureFile.open(path, Keys())
    np.testing.assert_array_equal(rows(file), STACK.transpose(2, 0, 1).reshape(5, 12))
    assert file.labels == ["0", "1", "0", "1", "2"]
    last = FeatureFile.open(path, Keys("last", samples="columns"))
    np.testing.assert_array_equal(rows(last), rows(file))


def test_a_stack_gives_the_vectors_of_the_same_images_as_files(crnr: Runner) -> None:
    images, labels = [], []
    for number, name in enumerate(("ant", "bee", "cow")):
        Path("gallery", name).mkdir(parents=True)
        for k in range(4):
            image = draw_image(number, k, (6, 9))
            image.save(Path("gallery", name) / f"{k}.png")
            images.append(np.asarray(image))
            labels.append(name)
    stack = np.stack(images, axis=2)
    assert stack.shape == (9, 6, 12)
    savemat("stack.mat", {"x": stack, "label": np.array(labels, dtype=object)[:, None]})
    assert crnr("build", "gallery", "-q", "-o", "files.h5", "--extractor", "pixels").exit == 0
    built = crnr("build", "stack.mat", "--features-key", "x", "--labels-key", "label", "-q", "-o", "stack.h5")
    assert (built.exit, built.out, built.err) == (0, "", "")
    files, stacked = load_gallery(Path("files.h5")), load_gallery(Path("stack.h5"))
    np.testing.assert_array_equal(files.samples.vectors, stacked.samples.vectors)
    assert files.classes == stacked.classes
