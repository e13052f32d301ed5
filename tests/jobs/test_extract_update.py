"""extract --update: only what is new or has changed is read."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from helpers.extracting import NETWORK, same, values
from helpers.onnx_models import projection_model
from helpers.runner import Outcome, Runner, assert_same_rows, read_rows
from helpers.samples import draw_image, make_features


def test_extract_update_reads_only_new_files(photos: Runner, decoded: list[str]) -> None:
    network = [*NETWORK]
    assert photos("extract", "queries", "-o", "f.h5", "--update", *network, "-q") == Outcome(0, "", "")
    before = values("f.h5")
    Path("queries/ant/9.png").unlink()
    draw_image(1, 50).save("queries/ant/10.png")
    draw_image(1, 51).save("queries/bee/new.png")
    decoded.clear()
    outcome = photos("extract", "queries", "-o", "f.h5", "--update")
    assert (outcome.exit, outcome.out) == (0, "")
    note, counts, summary = outcome.err.splitlines()
    assert note == "note: no longer in the source, but kept in f.h5: 1 row"
    assert counts == "1 added, 1 changed, 5 unchanged"
    assert summary.startswith("f.h5: 7 rows, 3 classes, 8 features of model.onnx, 8x8, rgb, ")
    assert decoded == ["queries/ant/10.png", "queries/bee/new.png"]
    after = values("f.h5")
    assert after.keys() == {*before, "queries/bee/new.png"}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"queries/ant/10.png"}
    decoded.clear()
    stamp = Path("f.h5").stat().st_mtime_ns
    assert photos("extract", "queries", "-o", "f.h5", "--update", "-q") == Outcome(0, "", "")
    assert decoded == []
    assert Path("f.h5").stat().st_mtime_ns == stamp  # it was not written again
    assert photos("extract", "queries", "-o", "clean.h5", *network, "-q") == Outcome(0, "", "")
    clean = values("clean.h5")
    for name in clean:
        np.testing.assert_allclose(after[name], clean[name], rtol=1e-6)


def test_update_follows_the_folders(photos: Runner, decoded: list[str]) -> None:
    """An image that was extracted without a class gets it without being decoded again."""
    assert photos("extract", "queries/ant", "-o", "f.h5", "--gray", "--size", "8", "-q") == Outcome(0, "", "")
    decoded.clear()
    outcome = photos("extract", "queries", "-o", "f.h5", "--update")
    assert outcome.err.startswith("4 added, 0 changed, 2 unchanged\nf.h5: 6 rows, 3 classes, ")
    assert not [name for name in decoded if name.startswith("queries/ant")]
    assert photos("build", "f.h5", "-q") == Outcome(0, "", "")
    assert photos("build", "queries", "-o", "clean.h5", "--gray", "--size", "8", "-q") == Outcome(0, "", "")
    assert same("gallery.h5", "clean.h5")


def test_update_of_the_folder_of_a_class(photos: Runner) -> None:
    """Known files are left out of the listing, which must not confuse the others."""
    how = ("--gray", "--size", "8", "-q")
    assert photos("build", "photos", "--allow-skipped", *how) == Outcome(0, "", "")
    assert photos("extract", "queries/cow", "-o", "f.h5", *how) == Outcome(0, "", "")
    draw_image(2, 70).save("queries/cow/11.png")
    assert photos("extract", "queries/cow", "-o", "f.h5", "--update", "-q") == Outcome(0, "", "")
    assert photos("extract", "queries/cow", "-o", "clean.h5", *how) == Outcome(0, "", "")
    assert photos("classify", "clean.h5", "-o", "clean.csv", "-q") == Outcome(0, "", "")
    assert photos("classify", "f.h5", "-o", "out.csv", "-q") == Outcome(0, "", "")
    updated, clean = (
        sorted(read_rows(Path(name)), key=lambda row: row["path"]) for name in ("out.csv", "clean.csv")
    )
    assert [row["truth"] for row in clean] == ["cow"] * 3
    assert_same_rows(updated, clean)  # in another order, in which BLAS rounds otherwise


def test_names_that_are_not_utf_8(photos: Runner) -> None:
    os.rename("queries/ant/9.png", b"queries/ant/\xff\xe9.png")  # noqa: PTH104
    stdin = b"queries/ant/\xff\xe9.png\0queries/bee/9.png\0queries/bee/9.png\0"  # one of them twice
    assert photos("extract", "-", "-0", "-o", "f.h5", "-q", stdin=stdin) == Outcome(0, "", "")
    assert photos("build", "f.h5", "-o", "one.h5", "-q") == Outcome(0, "", "")
    assert photos("build", "-", "-0", "-o", "other.h5", "-q", stdin=stdin) == Outcome(0, "", "")
    assert same("one.h5", "other.h5")


def test_a_file_that_is_replaced_is_named(photos: Runner) -> None:
    Path("f.h5").write_bytes(b"something else")
    outcome = photos("extract", "queries", "-o", "f.h5")
    assert (outcome.exit, outcome.out) == (0, "")
    assert outcome.err.startswith("note: replaced f.h5 of ")


def test_features_without_labels(crnr: Runner) -> None:
    np.savez("table.npz", features=np.eye(3))
    assert crnr("extract", "table.npz", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5") as file:
        assert "labels" not in file
    assert crnr("build", "f.h5") == Outcome(
        1, "", "error: f.h5: no labels; choose the array that contains them with --labels-key\n"
    )


def test_a_page_of_an_explanation(photos: Runner) -> None:
    """The image that a row names is not shown, as a file may name any."""
    assert photos("build", "queries", "--parts", "2x2", "-q") == Outcome(0, "", "")
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    outcome = photos("explain", "f.h5#0", "-o", "why.png")
    assert outcome.exit == 0
    assert Path("why.png").read_bytes().startswith(b"\x89PNG")


def test_extract_update_keeps_unreadable_files(photos: Runner) -> None:
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    before = values("f.h5")
    Path("queries/ant/9.png").write_bytes(b"")
    outcome = photos("extract", "queries", "-o", "f.h5", "--update")
    assert outcome.exit == 3
    assert outcome.err.startswith("failed: queries/ant/9.png: the file is empty\n0 added, 0 changed, 6 unch")
    assert values("f.h5") == before


@pytest.mark.parametrize(
    ("arguments", "exit", "message"),
    [
        ("--size 5", 2, "--update keeps the settings of the file; leave out --size or --update"),
        (
            "--extractor pixels",
            2,
            "--update keeps the settings of the file; leave out --extractor or --update",
        ),
        (
            "--extractor model.onnx",
            2,
            "--extractor: f.h5 was extracted without a network; leave the option out",
        ),
    ],
)
def test_extract_update_keeps_the_settings(photos: Runner, arguments: str, exit: int, message: str) -> None:
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    before = Path("f.h5").read_bytes()
    outcome = photos("extract", "queries", "-o", "f.h5", "--update", *arguments.split())
    assert outcome == Outcome(exit, "", f"error: {message}\n")
    assert Path("f.h5").read_bytes() == before
    assert not list(photos.here.glob("*.crnr-*"))


def test_update_with_a_network_that_has_moved(photos: Runner) -> None:
    assert photos(
        "extract",
        "queries",
        "-o",
        "f.h5",
        *NETWORK,
        "-q",
    ) == Outcome(0, "", "")
    draw_image(1, 51).save("queries/bee/new.png")
    Path("models").mkdir()
    Path("model.onnx").rename("models/m.onnx")
    missing = photos("extract", "queries", "-o", "f.h5", "--update", "-q")
    assert (missing.exit, missing.out) == (1, "")
    assert missing.err.endswith("give its path with --model-path\n")
    moved = photos("extract", "queries", "-o", "f.h5", "--update", "--model-path", "models/m.onnx", "-q")
    assert moved == Outcome(0, "", "")
    projection_model(Path("models/m.onnx"), seed=5)
    draw_image(1, 52).save("queries/bee/newer.png")
    other = photos("extract", "queries", "-o", "f.h5", "--update", "-q")
    assert (other.exit, other.out) == (1, "")
    assert "not the network" in other.err


def test_update_of_another_file(photos: Runner) -> None:
    make_features(Path("table.npz"))
    with h5py.File("mine.h5", "w") as file:
        file["features"] = np.eye(3)
    assert photos("extract", "queries", "-o", "mine.h5", "--update") == Outcome(
        1, "", "error: mine.h5: not written by `crnr extract`; give another file\n"
    )
    assert photos("extract", "queries", "-o", "f.h5", "-q").exit == 0
    assert photos("extract", "table.npz", "-o", "f.h5", "--update") == Outcome(
        1,
        "",
        "error: f.h5: was extracted from images, but the source contains features; write to another file\n",
    )
    assert photos("extract", "queries", "-o", "p.h5", "--extractor", "pixels", "-q").exit == 0
    refused = photos("extract", "p.h5", "-o", "f.h5", "--update")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: f.h5: its features come from another extractor than chosen now: gradients, 8x8, cells of 3, "
        "8 directions instead of pixels, 8x8, grey; write to another file\n"
    )


def test_extract_refuses_other_file_endings(photos: Runner) -> None:
    for command in (["extract", "queries", "-o", "f.csv"], ["build", "queries", "--cache", "f.csv"]):
        outcome = photos(*command)
        assert outcome == Outcome(
            2, "", "error: f.csv: a feature file must be named .h5; give a name that ends in .h5 or .hdf5\n"
        )
    assert not list(photos.here.glob("*.crnr-*"))
