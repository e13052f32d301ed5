"""extract --like: a feature file that classify reads, with the same answers as for the images."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers.extracting import NETWORK, same
from helpers.onnx_models import projection_model
from helpers.runner import Outcome, Runner
from helpers.samples import make_features

HOW = {
    "gradients": ("--size", "24x24"),
    "other gradients": ("--size", "20x16", "--cell", "4", "--bins", "6", "--color", "--power", "0.5"),
    "pixels": ("--extractor", "pixels", "--size", "9x7", "--pca", "4"),
    "tiles": ("--size", "24x24", "--parts", "4x4"),
    "network": NETWORK,
    "mirrored network": (*NETWORK, "--mirror", "--power", "0.5"),
    "float64": ("--dtype", "float64"),
}


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_classify_gives_the_same_answers_for_a_file_extracted_like_the_gallery(
    photos: Runner, how: tuple[str, ...]
) -> None:
    assert photos("build", "photos", *how, "-q").exit == 3  # one image is broken
    assert photos("extract", "queries", "--like", "gallery.h5", "-o", "f.h5", "-q") == Outcome(0, "", "")
    for source, output in (("queries", "images.csv"), ("f.h5", "file.csv")):
        assert photos("classify", source, "-o", output, "-q") == Outcome(0, "", "")
    assert same("images.csv", "file.csv")
    assert len(Path("images.csv").read_text().splitlines()) == 7


def test_extract_like_writes_the_file_that_the_options_of_the_gallery_give(photos: Runner) -> None:
    how = ("--size", "20x16", "--cell", "4", "--bins", "6", "--gray")
    assert photos("build", "queries", *how, "--pca", "3", "-q") == Outcome(0, "", "")
    assert photos("extract", "queries", *how, "-o", "given.h5", "-q") == Outcome(0, "", "")
    assert photos("extract", "queries", "--like", "gallery.h5", "-o", "like.h5", "-q") == Outcome(0, "", "")
    assert same("given.h5", "like.h5")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("--extractor", "gradients"), "--extractor"),
        (("--extractor", "pixels", "--size", "9"), "--extractor, --size"),
        (("--gray",), "--gray"),
        (("--extractor", "model.onnx", "--mirror"), "--mirror"),
    ],
)
def test_extract_like_refuses_other_settings(photos: Runner, given: tuple[str, ...], shown: str) -> None:
    assert photos("build", "queries", "-q") == Outcome(0, "", "")
    refused = photos("extract", "queries", "--like", "gallery.h5", *given, "-o", "f.h5")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == (f"error: --like keeps the settings of gallery.h5; leave out {shown} or --like\n")
    assert not Path("f.h5").exists()


def test_extract_like_finds_a_network_that_has_moved(photos: Runner) -> None:
    assert photos("build", "queries", *NETWORK, "-q") == Outcome(0, "", "")
    shutil.move("model.onnx", "moved.onnx")
    missing = photos("extract", "queries", "--like", "gallery.h5", "-o", "f.h5")
    assert (missing.exit, missing.out) == (1, "")
    found = photos(
        "extract", "queries", "--like", "gallery.h5", "--extractor", "moved.onnx", "-o", "f.h5", "-q"
    )
    assert found == Outcome(0, "", "")
    assert photos("classify", "f.h5", "-o", "out.csv", "-q") == Outcome(0, "", "")
    projection_model(Path("other.onnx"), seed=7)
    other = photos("extract", "queries", "--like", "gallery.h5", "--extractor", "other.onnx", "-o", "g.h5")
    assert (other.exit, other.out) == (1, "")
    assert not Path("g.h5").exists()


def test_extract_like_updates_only_a_file_of_the_same_extractor(photos: Runner) -> None:
    assert photos("build", "photos", "-q").exit == 3
    like = ("--like", "gallery.h5", "--update", "-q")
    assert photos("extract", "queries/ant", *like, "-o", "f.h5") == Outcome(0, "", "")
    assert photos("extract", "queries", *like, "-o", "f.h5") == Outcome(0, "", "")
    assert photos("extract", "queries", *like, "-o", "clean.h5") == Outcome(0, "", "")
    assert photos("extract", "queries", "--extractor", "pixels", "-o", "p.h5", "-q") == Outcome(0, "", "")
    refused = photos("extract", "queries", *like, "-o", "p.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: p.h5: its features come from another extractor than the features of gallery.h5 (pixels, 8x8, "
        "grey instead of gradients, 8x8, cells of 3, 8 directions); write to another file\n"
    )


def test_extract_like_refuses_images_for_a_gallery_of_features(photos: Runner) -> None:
    make_features(Path("features.npz"))
    assert photos("build", "features.npz", "-q") == Outcome(0, "", "")
    refused = photos("extract", "queries", "--like", "gallery.h5", "-o", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert "is an image, but gallery.h5 was built from features" in refused.err
    missing = photos("extract", "queries", "--like", "nowhere.h5", "-o", "f.h5")
    assert (
        missing.err
        == "error: nowhere.h5: no such gallery; create it with `crnr build FOLDER -o nowhere.h5`\n"
    )
    assert not Path("f.h5").exists()
