"""Rename a class: the gallery of a build in which its folder had the new name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.gallery.calibration import Calibration, calibrate
from crnr_cli.gallery.file import load_gallery
from helpers.runner import Runner, assert_same_rows, read_rows
from helpers.samples import make_features, make_images
from helpers.templates import Templates


def build_gallery(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", per_class=3, first=20)
    assert crnr("build", "gallery", "-q").exit == 0


@pytest.fixture
def built(crnr: Runner, templates: Templates) -> Runner:
    templates.copy(build_gallery, crnr.here)
    return crnr


def values(table: Path) -> list[list[str]]:
    """Return everything of the answers but the names of classes, the residuals in their order."""
    return [
        [text for name, text in row.items() if name not in ("truth", "label", "runner_up")]
        for row in read_rows(table)
    ]


@pytest.mark.parametrize("new", ["bug", "aaa", "zebra", "ünïcode ☃", "a/b", "Bee"])
@pytest.mark.parametrize("calibrate", [(), ("--calibrate",)])
def test_rename_gives_the_gallery_of_a_renamed_folder(
    crnr: Runner, new: str, calibrate: tuple[str, ...]
) -> None:
    """Also where the class gets another place in the order of names."""
    make_features(crnr.here / "old.npz", per_class=6)
    make_features(crnr.here / "queries.npz", seed=4)
    with np.load(crnr.here / "old.npz") as old:
        labels = [new if label == "bee" else str(label) for label in old["labels"]]
        np.savez(crnr.here / "new.npz", features=old["features"], labels=labels)
    assert crnr("build", "old.npz", *calibrate, "-q").exit == 0
    assert crnr("build", "new.npz", *calibrate, "-o", "fresh.h5", "-q").exit == 0
    result = crnr("rename", "gallery.h5", "bee", new)
    assert (result.exit, result.out) == (0, "")
    lines = result.err.splitlines()
    assert lines[0] == f"note: class bee is now {new}: 6 examples"
    assert "0 added, 6 changed, 0 removed, 12 unchanged" in lines
    renamed, fresh = (load_gallery(crnr.here / name) for name in ("gallery.h5", "fresh.h5"))
    assert renamed.classes == fresh.classes == sorted(["ant", new, "cow"])
    assert sorted(renamed.names) == [f"old.npz#{i}" for i in sorted(map(str, range(18)))]  # kept
    for gallery in ("gallery.h5", "fresh.h5"):
        assert crnr("classify", "queries.npz", "-g", gallery, "-o", f"{gallery}.csv", "-q").exit == 0
    assert_same_rows(*(read_rows(crnr.here / f"{name}.csv") for name in ("gallery.h5", "fresh.h5")))
    assert (renamed.calibration is None) == (not calibrate)
    if calibrate:
        assert read_rows(crnr.here / "gallery.h5.csv")[0]["probability"]


METHODS = ["crnr", "nrc", "crc", "nsc", "src", "croc", "procrc", "nn", "svm", "softmax"]
OPTIONS = [
    *(("--method", name) for name in METHODS),
    ("--factor", "low-rank"),
    ("--neighbors", "7"),
]


@pytest.mark.parametrize("new", ["bed", "zebra"], ids=["same place", "other place"])
@pytest.mark.parametrize("options", OPTIONS, ids="=".join)
def test_rename_does_not_fit_again(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], new: str
) -> None:
    """The answers are the answers of a gallery that was built under the new names."""
    make_features(crnr.here / "old.npz", per_class=6, classes=("ant", "bee", "cow", "dog"))
    make_features(crnr.here / "queries.npz", seed=4)
    with np.load(crnr.here / "old.npz") as old:
        labels = [new if label == "bee" else str(label) for label in old["labels"]]
        np.savez(crnr.here / "new.npz", features=old["features"], labels=labels)
    assert crnr("build", "old.npz", *options, "-q").exit == 0
    assert crnr("build", "new.npz", *options, "-o", "fresh.h5", "-q").exit == 0
    monkeypatch.setattr("crnr_cli.gallery.fit.fit_method", None)
    assert crnr("rename", "gallery.h5", "bee", new, "-q").exit == 0
    for gallery in ("gallery.h5", "fresh.h5"):
        assert crnr("classify", "queries.npz", "-g", gallery, "-o", f"{gallery}.csv", "-q").exit == 0
    ours, fresh = (read_rows(crnr.here / f"{name}.csv") for name in ("gallery.h5", "fresh.h5"))
    assert [row["label"] for row in ours] == [row["label"] for row in fresh]
    # scikit-learn ends its training at tolerances of 1e-4.
    tolerance = 1e-2 if options[-1] in ("svm", "softmax") else 1e-5
    for name in (f"residual:{label}" for label in ("ant", new, "cow", "dog")):
        expected = [float(row[name]) for row in fresh]
        assert [float(row[name]) for row in ours] == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize(("new", "times"), [("bed", 0), ("zebra", 1)])
def test_rename_calibrates_again_only_if_classes_change_places(
    crnr: Runner, monkeypatch: pytest.MonkeyPatch, new: str, times: int
) -> None:
    """Examples are held out in the order of their classes."""
    make_features(crnr.here / "old.npz", per_class=6)
    assert crnr("build", "old.npz", "--calibrate", "-q").exit == 0
    calls: list[object] = []

    def watched(*arguments: Any, **named: Any) -> Calibration:
        calls.append(arguments)
        return calibrate(*arguments, **named)

    monkeypatch.setattr("crnr_cli.gallery.gallery.calibrate", watched)
    assert crnr("rename", "gallery.h5", "bee", new, "-q").exit == 0
    assert len(calls) == times
    renamed = load_gallery(crnr.here / "gallery.h5")
    assert renamed.calibration is not None
    expected = calibrate(renamed.samples, renamed.method, renamed.hashes)
    np.testing.assert_allclose(renamed.calibration.standouts, expected.standouts, atol=1e-6)


def test_the_answers_stay_the_same(built: Runner) -> None:
    assert built("classify", "queries", "-o", "before.csv", "-q").exit == 0
    assert built("rename", "gallery.h5", "bee", "bug", "-q").exit == 0
    assert built("classify", "queries", "-o", "after.csv", "-q").exit == 0
    before, after = (read_rows(built.here / name) for name in ("before.csv", "after.csv"))
    assert values(built.here / "before.csv") == values(built.here / "after.csv")
    for old, new in zip(before, after, strict=True):
        assert new["label"] == old["label"].replace("bee", "bug")
        assert new["residual:bug"] == old["residual:bee"]


def test_merging_is_building_from_one_folder(built: Runner) -> None:
    shutil.copytree(built.here / "gallery", built.here / "merged")
    for path in (built.here / "merged" / "cow").iterdir():
        path.rename(built.here / "merged" / "ant" / f"cow-{path.name}")
    (built.here / "merged" / "cow").rmdir()
    assert built("build", "merged", "-o", "fresh.h5", "-q").exit == 0
    result = built("rename", "gallery.h5", "cow", "ant", "--merge", "--json")
    assert result.exit == 0
    assert result.err.splitlines()[0] == "note: class cow is now part of ant: 4 examples"
    record = json.loads(result.out)
    assert record["classes"] == {"ant": 8, "bee": 4}
    assert record["changes"]["changed"] == [f"gallery/cow/{i}.png" for i in range(4)]
    for name in ("gallery.h5", "fresh.h5"):
        assert built("classify", "queries", "-g", name, "-o", f"{name}.csv", "-q").exit == 0
    ours, theirs = (read_rows(built.here / f"{name}.csv") for name in ("gallery.h5", "fresh.h5"))
    assert [row["label"] for row in ours] == [row["label"] for row in theirs]
    for column in ("residual:ant", "residual:bee"):
        np.testing.assert_allclose(
            [float(row[column]) for row in ours], [float(row[column]) for row in theirs], atol=1e-5
        )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("bea", "bug"), 1, "gallery.h5: has no class bea; there are ant, bee, cow"),
        (
            ("bee", "cow"),
            1,
            "gallery.h5: has a class cow already; to put the examples of bee into it, add --merge",
        ),
        (
            ("bee", "cov", "--merge"),
            1,
            "gallery.h5: has no class cov to merge with; there are ant, bee, cow",
        ),
        (("bee", "Cow"), 1, "classes 'Cow' and 'cow' differ only in case or Unicode form; rename one"),
        (
            ("bee", "Unknown"),
            1,
            "class 'Unknown': this name is reserved for rejected queries; rename the class",
        ),
        (("bee", ""), 2, "the new name of the class must not be empty (see `crnr rename --help`)"),
        (("bee", "bee", "--merge"), 2, "the class is called bee already; give another name"),
    ],
)
def test_rename_refuses_invalid_arguments(
    built: Runner, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = (built.here / "gallery.h5").read_bytes()
    result = built("rename", "gallery.h5", *arguments)
    assert (result.exit, result.out, result.err) == (code, "", f"error: {message}\n")
    assert (built.here / "gallery.h5").read_bytes() == before
    assert built.files() == {"gallery", "gallery.h5", "queries"}


def test_merging_all_classes_is_allowed_with_a_note(built: Runner) -> None:
    assert built("remove", "gallery.h5", "--class", "cow", "-q").exit == 0
    result = built("rename", "gallery.h5", "ant", "bee", "--merge")
    assert (result.exit, result.out) == (0, "")
    assert (
        "note: only one class, bee: add another with `crnr add GALLERY FOLDER --class NAME`\n" in result.err
    )
