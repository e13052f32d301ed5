"""Feature files: types, labels, dimensions, and values that are not finite."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from crnr_cli.gallery.file import load_gallery
from helpers.faults import CLASSIFY, Case, labelled, make_queries
from helpers.runner import read_rows
from helpers.samples import make_features


@pytest.mark.fault(3, "One sample per class; more samples than dimensions; duplicates")
def test_odd_numbers_of_samples(case: Case) -> None:
    """All of these work, as the factor is regularized."""
    make_features(case.here / "queries.npz", per_class=2, dimension=4, seed=9)
    for name, per_class, copies in [("one", 1, 1), ("many", 40, 1), ("twice", 3, 2)]:
        make_features(case.here / f"{name}.npz", per_class=per_class, dimension=4)
        case.build(f"{f'{name}.npz ' * copies} -o {name}.h5")
        case.run(
            f"classify queries.npz -g {name}.h5 -o out.csv",
            exit=0,
            err=[labelled(6, 6)],
            statuses={f"queries.npz#{i}": "ok" for i in range(6)},
        )
        answers = read_rows(Path("out.csv"))
        assert [row["label"] for row in answers] == [row["truth"] for row in answers]


@pytest.mark.fault(22, "Queries of another dimension, or images for a gallery of features")
def test_other_dimension(case: Case) -> None:
    """crnr refuses them before any work, and the message gives both dimensions or both kinds."""
    make_features(case.here / "gallery.npz", dimension=6)
    make_features(case.here / "queries.npz", dimension=5)
    case.build("gallery.npz")
    case.run(
        "classify queries.npz -o out.csv",
        exit=1,
        err=[
            "error: queries.npz: 5 features per query, but gallery.h5 was built from 6; "
            "use the same features for both"
        ],
    )
    make_queries()
    case.run(
        CLASSIFY,
        exit=1,
        err=[
            "error: queries/good.png: is an image, but gallery.h5 was built from features; give features, "
            "or a "
            "gallery that was built from images"
        ],
    )
    assert case.files() == {"gallery.npz", "queries.npz", "gallery.h5", "queries"}


@pytest.mark.fault(23, "Features of unusual types: float16, integers, big-endian, complex numbers, objects")
def test_types_of_features(case: Case) -> None:
    """Real numbers of any type are converted; complex numbers and objects are refused."""
    values = np.array([[1, 0], [3, 1], [0, 1], [1, 4]])
    labels = np.array(["a", "a", "b", "b"])
    np.savez("gallery.npz", features=values.astype(float), labels=labels)
    case.build("gallery.npz")
    answers = []
    for kind in ("f2", "i4", ">f4", ">i2", "u1"):
        np.savez("queries.npz", features=values.astype(kind))
        case.run(
            "classify queries.npz -o out.csv",
            exit=0,
            err=[labelled(4, 4)],
            statuses={f"queries.npz#{i}": "ok" for i in range(4)},
        )
        answers.append(Path("out.csv").read_bytes())
    assert set(answers) == {answers[0]}
    Path("out.csv").unlink()
    for kind, words in (
        (
            "c8",
            "features must be a table of numbers with one row per example, or a stack of images, but "
            "'features' "
            "is complex64 of shape (4, 2); choose another array with --features-key",
        ),
        ("O", "'features' contains Python objects, which crnr never loads; save a numeric array instead"),
    ):
        np.savez("queries.npz", features=values.astype(kind))
        case.run("classify queries.npz -o out.csv", exit=1, err=[f"error: queries.npz: {words}"])
    assert case.files() == {"gallery.npz", "queries.npz", "gallery.h5"}


@pytest.mark.fault(24, "NaN or infinity; norms that overflow (1e200) or underflow (1e-200)")
def test_values_that_are_not_finite(case: Case) -> None:
    """NaN or infinity in a gallery is an error that lists the rows; a query with it gets the status
    `non_finite`. Values are scaled before the norm is computed, so that it neither overflows nor underflows.
    """
    values = np.array([[1.0, 0], [3, 1], [0, 1], [1, 4]])
    labels = np.array(["a", "a", "b", "b"])
    bad = values.copy()
    bad[1, 0], bad[3, 1] = np.nan, np.inf
    np.savez("bad.npz", features=bad, labels=labels)
    case.run(
        "build bad.npz",
        exit=1,
        err=["error: NaN or infinity in 2 rows; correct or remove bad.npz#1, bad.npz#3"],
    )
    assert case.files() == {"bad.npz"}
    np.savez("gallery.npz", features=values * 1e200, labels=labels)
    case.build("gallery.npz")
    bad[0] *= 1e-200
    case.run(
        "classify bad.npz -o out.csv",
        exit=3,
        err=[
            labelled(2, 4),
            "failed: bad.npz#1: non_finite, contains NaN or infinity",
            "failed: bad.npz#3: non_finite, contains NaN or infinity",
        ],
        statuses={"bad.npz#0": "ok", "bad.npz#1": "non_finite", "bad.npz#2": "ok", "bad.npz#3": "non_finite"},
    )
    assert [row["label"] for row in read_rows(Path("out.csv"))] == ["a", "", "b", ""]


@pytest.mark.fault(25, "Labels as integers, text or bytes; too few labels; no labels")
def test_labels(case: Case) -> None:
    """Labels of any type are converted to text. If their number is wrong, the error gives both numbers."""
    values = np.array([[1.0, 0], [3, 1], [0, 1], [1, 4]])
    kinds = {"int": [7, 7, 10, 10], "float": [7.0, 7.0, 10.0, 10.0], "text": ["7", "7", "10", "10"]}
    for name, labels in kinds.items():
        np.savez(f"{name}.npz", features=values, labels=labels)
    np.savez("bytes.npz", features=values, labels=np.array([b"7", b"7", b"10", b"10"]))
    for name in (*kinds, "bytes"):
        case.run(
            f"build {name}.npz -o {name}.h5",
            exit=0,
            err=[f"{name}.h5: 2 classes, 4 examples, vectors of length 2, method crnr"],
        )
        assert load_gallery(Path(f"{name}.h5")).classes == ["10", "7"]
    np.savez("short.npz", features=values, labels=["7", "10", "10"])
    case.run(
        "build short.npz",
        exit=1,
        err=[
            "error: short.npz: 'features' has 4 rows but 'labels' has 3; choose matching arrays with "
            "--features-key and --labels-key"
        ],
    )
    np.savez("none.npz", features=values)
    case.run(
        "build none.npz",
        exit=1,
        err=["error: none.npz: no labels; choose the array that contains them with --labels-key"],
    )
    assert "gallery.h5" not in case.files()


@pytest.mark.fault(26, "HDF5 with other dataset names")
def test_other_dataset_names(case: Case) -> None:
    """The only datasets that fit are taken, with a note. If several do, the error lists them."""
    with h5py.File("data.h5", "w") as file:
        file["deep/vectors"] = np.eye(6)
        file["y"] = [1, 1, 2, 2, 3, 3]
        file["other/vectors"] = np.eye(6)
    case.run(
        "build data.h5",
        exit=1,
        err=[
            "error: data.h5: no array called 'features'; choose with --features-key ('deep/vectors' or "
            "'other/vectors') and --labels-key ('y')"
        ],
    )
    assert case.files() == {"data.h5"}
    case.run(
        "build data.h5 --features-key deep/vectors --labels-key y",
        exit=0,
        err=["gallery.h5: 3 classes, 6 examples, vectors of length 6, method crnr"],
    )
    with h5py.File("pair.h5", "w") as file:
        file["deep/vectors"] = np.eye(6)
        file["y"] = [1, 1, 2, 2, 3, 3]
    case.run(
        "build pair.h5 -o other.h5",
        exit=0,
        err=[
            "note: pair.h5: using the features 'deep/vectors' (6 x 6) and the labels 'y'; "
            "choose others with --features-key and --labels-key",
            "other.h5: 3 classes, 6 examples, vectors of length 6, method crnr",
        ],
    )


@pytest.mark.fault(42, "Ties")
def test_ties(case: Case) -> None:
    """The first class by name wins, with a margin of 0."""
    values = np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    np.savez("gallery.npz", features=values, labels=["b", "a", "c"])
    case.build("gallery.npz")
    np.savez("queries.npz", features=values[:1])
    case.run(
        "classify queries.npz -o out.csv",
        exit=0,
        err=[labelled(1, 1)],
        statuses={"queries.npz#0": "ok"},
    )
    (row,) = read_rows(Path("out.csv"))
    assert (row["label"], row["runner_up"], float(row["margin"])) == ("a", "b", 0.0)
    assert row["residual:a"] == row["residual:b"]
