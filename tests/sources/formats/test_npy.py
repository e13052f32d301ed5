"""Reading npy: mapped into memory, with the labels in a file next to it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from crnr_cli.errors import DataError
from crnr_cli.sources.formats import Keys
from crnr_cli.sources.tables import FeatureFile, open_tables
from helpers.runner import Outcome, Runner, read_rows
from helpers.samples import make_features

VALUES = np.random.default_rng(0).random((6, 4)).astype(np.float32)
LABELS = np.array(["a", "b", "c", "a", "b", "c"])


def opened(path: Path, keys: Keys | None = None) -> FeatureFile:
    return FeatureFile.open(path, keys or Keys())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "|u1", ">i4", "|b1"])
def test_npy_rows_match_numpy(tmp_path: Path, order: str, dtype: str) -> None:
    values = np.asarray((4 * VALUES).astype(dtype), order=order)  # type: ignore[call-overload]
    np.save(tmp_path / "x.npy", values)
    file = opened(tmp_path / "x.npy")
    for start, stop in ((0, 6), (2, 5), (5, 6), (3, 3)):
        np.testing.assert_array_equal(file.read_rows(start, stop), values[start:stop])
    assert file.read_rows(0, 6).dtype.isnative
    assert (file.labels, file.names[:2]) == (None, [f"{tmp_path}/x.npy#0", f"{tmp_path}/x.npy#1"])


@pytest.mark.parametrize(
    ("name", "beside", "is_taken"),
    [
        ("features.npy", ["labels.npy"], True),
        ("features.npy", ["labels.npy", "other.npy"], True),
        ("features.npy", ["features_labels.npy"], True),
        ("train_features.npy", ["train_labels.npy", "test_labels.npy", "labels.npy"], True),
        ("train.npy", ["train_labels.npy", "test.npy"], True),
        ("train.npy", ["train-labels.npy"], True),
        ("train.npy", ["labels.npy"], True),
        ("train.npy", ["labels.npy", "test.npy"], False),
        ("train.npy", ["test_labels.npy"], False),
        ("train.npy", [], False),
    ],
)
def test_labels_beside_the_features(tmp_path: Path, name: str, beside: list[str], is_taken: bool) -> None:
    np.save(tmp_path / name, VALUES)
    for number, other in enumerate(beside):
        np.save(tmp_path / other, np.roll(LABELS, number))
    file = opened(tmp_path / name)
    assert file.labels == (LABELS.tolist() if is_taken else None)
    assert file.notes == ((f"{tmp_path / name}: using the labels in {beside[0]}",) if is_taken else ())


def test_two_files_of_labels_need_to_be_chosen_from(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    np.save(tmp_path / "x_labels.npy", LABELS)
    np.save(tmp_path / "x-labels.npy", LABELS[::-1])
    with pytest.raises(DataError, match=r"may be in x_labels.npy or x-labels.npy; .* --labels-key$"):
        opened(tmp_path / "x.npy")
    for key in ("x-labels", "x-labels.npy"):
        assert opened(tmp_path / "x.npy", Keys(labels=key)).labels == LABELS[::-1].tolist()
    for key in ("../x", "nothing", "a\0b", ""):
        with pytest.raises(
            DataError, match=r"no array called .*; choose with --labels-key, found: 'features' \(6, 4\)$"
        ):
            opened(tmp_path / "x.npy", Keys(labels=key))


def test_labels_of_another_count_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    np.save(tmp_path / "labels.npy", LABELS[:5])
    with pytest.raises(
        DataError, match=r"6 rows, but 5 labels in .*; choose the right file with --labels-key"
    ):
        opened(tmp_path / "x.npy")


def written(values: object, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(values), allow_pickle=allow_pickle)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a readable npy file"),
        (b"hello", "not a readable npy file"),
        (written(VALUES)[:-1], r"x.npy does not hold what it declares, shape \(6, 4\)"),
        (written(VALUES) + b"x", "does not hold what it declares"),
        (written(VALUES).replace(b"(6, 4), }", b"(2**61, 9)"), "not a readable npy file"),
        (written(VALUES).replace(b"(6, 4)", b"(-6, 4)"), "does not hold what it declares"),
        (written(np.array([[{}]]), allow_pickle=True), "contains Python objects, which crnr never loads"),
        (written(np.zeros((2, 2), [("a", "f8")])), "features must be a table of numbers"),
        (written(np.arange(4.0)), r"is float64 of shape \(4,\)"),
        (written(np.zeros((4, 0))), r"is float64 of shape \(4, 0\)"),
    ],
)
def test_files_other_than_npy_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DataError, match=words):
        opened(tmp_path / "x.npy")


def test_pickled_labels_are_refused_unread(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VALUES)
    np.save(tmp_path / "labels.npy", LABELS.astype(object), allow_pickle=True)
    with pytest.raises(
        DataError, match=r"labels.npy: contains Python objects, which crnr never loads; .*astype"
    ):
        opened(tmp_path / "x.npy")


def test_a_file_that_is_cut_while_it_is_read(tmp_path: Path) -> None:
    """Mapped memory of a file that has become shorter would kill the process."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((4000, 40)))
    file = opened(path)
    assert file.read_rows(0, 10).all()
    with path.open("r+b") as cut:
        cut.truncate(5000)
    with pytest.raises(DataError, match=r"x.npy: was changed while it was being read; run the command again"):
        file.read_rows(3000, 4000)


def test_npy_without_rows_is_an_empty_source(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 3)))
    assert len(opened(tmp_path / "x.npy")) == 0


def test_npy_features_work_in_all_commands(crnr: Runner) -> None:
    make_features(Path("x.npz"))
    with np.load("x.npz") as file:
        arrays = dict(file)
    np.save("features.npy", arrays["features"])
    np.save("labels.npy", arrays["labels"])
    note = "note: features.npy: using the labels in labels.npy\n"
    built = crnr("build", "features.npy")
    assert (built.exit, built.out) == (0, "")
    assert built.err.startswith(note)
    done = crnr("classify", "features.npy", "-o", "out.csv")
    assert done == Outcome(0, "", note + "labelled 15 of 15 queries: out.csv\n")
    assert [row["truth"] for row in read_rows(Path("out.csv"))] == arrays["labels"].tolist()
    scored = crnr("evaluate", "features.npy", "--json")
    assert (scored.exit, '"accuracy": 1.0' in scored.out, note in scored.err) == (0, True, True)


def test_labels_are_inputs(crnr: Runner) -> None:
    np.save("features.npy", VALUES)
    np.save("labels.npy", LABELS)
    outcome = crnr("build", "features.npy", "-o", "labels.npy")
    assert outcome == Outcome(1, "", "error: labels.npy: is an input of this run; write to another file\n")
    source = open_tables([Path("features.npy")], Keys())
    assert [Path(entry[0]).name for entry in source.listing()] == ["features.npy", "labels.npy"]
    assert [path.name for path in source.part((0, 2)).paths] == ["features.npy", "labels.npy"]
