"""Extract: raw values are stored once, and what is made of them is what would be made of the images."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.samples import Reading
from crnr_cli.jobs.extract import ExtractOptions, extract
from helpers.extracting import NETWORK, same
from helpers.onnx_models import projection_model
from helpers.paths import DOCS
from helpers.runner import Outcome, Runner
from helpers.samples import draw_image, make_images

EXTRACTORS = {
    "gradients": [],
    "gradients in colour": ["--color", "--cell", "3"],
    "pixels": ["--extractor", "pixels"],
    "pixels in colour": ["--extractor", "pixels", "--size", "6x5", "--color"],
    "network": list(NETWORK),
}
STEPS = {
    "": [],
    "power": ["--power", "0.5"],
    "pca": ["--pca", "5"],
    "both": ["--power", "0.5", "--pca", "4", "--dtype", "float64"],
    "parts": ["--parts", "2x2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_gallery_of_extracted_values_equals_the_gallery_of_images(photos: Runner, extractor: str) -> None:
    """To the byte: the vectors, the recipe, the names, the hashes and the stamps."""
    how = EXTRACTORS[extractor]
    tried = [name for name in STEPS if (extractor, name) != ("network", "parts")]  # a network has none
    assert photos("extract", "photos", "-o", "f.h5", *how, "-q") == Outcome(3, "", "")
    for steps in tried:
        built = photos("build", "photos", "-o", f"images {steps}.h5", *how, *STEPS[steps])
        assert built.exit == 3
        assert "failed: photos/of no class.png: not in a class folder\n" in built.err
    Path("model.onnx").unlink()  # not needed any more
    for steps in tried:
        again = photos("build", "f.h5", "-o", "features.h5", *STEPS[steps])
        assert (again.exit, again.out) == (3, "")
        assert "failed: photos/of no class.png: not in a class folder\n" in again.err
        assert again.err.count("failed: ") == 1
        assert same("features.h5", f"images {steps}.h5"), steps


# What is classified: a source, what is on stdin, and the number of images.
QUERIES = {
    "a folder": ("queries", "", 6),
    "a list": ("-", "queries/bee/9.png\nqueries/ant/10.png\n", 2),
    "the folder of a class": ("queries/cow", "", 2),
    "deeper folders": ("deep", "", 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_extracted_queries_get_the_answers_of_the_images(photos: Runner, extractor: str) -> None:
    options = EXTRACTORS[extractor]
    shutil.copytree("queries", "deep/of/animals")
    assert photos("build", "photos", *options, "--pca", "6", "-q").exit == 3
    for how, (source, stdin, _) in QUERIES.items():
        for command in (
            ("classify", source, "-o", f"{how}.csv"),
            ("extract", source, "-o", f"{how}.h5", *options),
        ):
            assert photos(*command, "-q", stdin=stdin) == Outcome(0, "", "")
    Path("model.onnx").unlink()
    for how, (_, _, n) in QUERIES.items():
        outcome = photos("classify", f"{how}.h5", "-o", "features.csv")
        assert outcome == Outcome(0, "", f"labelled {n} of {n} queries: features.csv\n")
        assert same("features.csv", f"{how}.csv"), how
        Path("features.csv").unlink()
    assert "ant" in Path("a folder.csv").read_text().splitlines()[1]


def test_extract_writes_the_documented_arrays(photos: Runner) -> None:
    outcome = photos("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "--json")
    assert outcome.exit == 3
    assert '"n_samples": 14' in outcome.out
    assert "failed: photos/bee/blank.png: nothing to compare: all of one colour\n" in outcome.err
    with h5py.File("f.h5") as file:
        assert file.attrs["format"] == b"crnr-features"
        assert file["recipe"].attrs["kind"] == b"pictures"
        names = [name.decode() for name in file["paths"][()].tolist()]
        assert names == sorted(names)
        labels = [label.decode() for label in file["labels"][()].tolist()]
        assert labels == ["ant"] * 4 + ["bee"] * 5 + ["cow"] * 4 + [""]
        for row, name in enumerate(names):
            assert file["sha256"][row].decode() == hashlib.sha256(Path(name).read_bytes()).hexdigest()
            status = os.stat(name)  # noqa: PTH116
            assert (file["size"][row], file["mtime_ns"][row]) == (status.st_size, status.st_mtime_ns)
            np.testing.assert_array_equal(
                file["features"][row], np.asarray(Image.open(name), np.float32).ravel()
            )


def test_the_same_source_gives_the_same_bytes(photos: Runner) -> None:
    for name in ("one.h5", "other.h5"):
        assert photos("extract", "photos", "-o", name, "-q").exit == 3
    assert same("one.h5", "other.h5")
    assert photos("extract", "one.h5", "-o", "copy.h5", "-q") == Outcome(0, "", "")
    assert same("one.h5", "copy.h5")


def test_files_are_joined(photos: Runner) -> None:
    """Parts of a list that several machines have extracted give what one would have."""
    names = sorted(map(str, Path("queries").rglob("*.png")))
    how = (*NETWORK, "-q")
    for output, part in (("one.h5", names[:2]), ("other.h5", names[2:]), ("clean.h5", names)):
        assert photos("extract", "-", "-o", output, *how, stdin="\n".join(part)) == Outcome(0, "", "")
    assert photos("extract", "one.h5", "other.h5", "-o", "all.h5", "-q") == Outcome(0, "", "")
    with h5py.File("all.h5") as joined, h5py.File("clean.h5") as clean:
        assert joined.keys() == clean.keys()
        for name in clean.keys() - {"recipe", "features"}:
            assert joined[name][()].tolist() == clean[name][()].tolist()
        np.testing.assert_allclose(joined["features"][()], clean["features"][()], rtol=1e-6)


def test_a_feature_file_is_copied(crnr: Runner) -> None:
    """Its numbers keep their type, and a gallery of the copy equals the original's."""
    random = np.random.default_rng(0)
    labels = np.array(["ant", "bee", "cow"] * 4)
    np.savez("table.npz", features=random.random((12, 5)), labels=labels)
    assert crnr("extract", "table.npz", "-o", "f.h5").err.startswith("f.h5: 12 rows, 3 classes, 5 features;")
    with h5py.File("f.h5") as file:
        assert file["features"].dtype == np.float64
    assert crnr("build", "table.npz", "-o", "one.h5", "-q") == Outcome(0, "", "")
    assert crnr("build", "f.h5", "-o", "other.h5", "-q") == Outcome(0, "", "")
    assert same("one.h5", "other.h5")
    assert crnr("verify", "one.h5", "--source", "f.h5", "-q").exit == 0
    make_images(crnr.here / "photos")
    refused = crnr("classify", "photos", "-g", "other.h5")
    assert refused == Outcome(
        1,
        "",
        (
            "error: photos/ant/0.png: is an image, but other.h5 was built from features; give features, or a "
            "gallery that was built from images\n"
        ),
    )


def test_numbers_that_are_not_finite_are_refused(crnr: Runner) -> None:
    np.savez("table.npz", features=np.array([[1.0, 2.0], [np.nan, 1.0]]), labels=np.array(["a", "b"]))
    assert crnr("extract", "table.npz", "-o", "f.h5") == Outcome(
        1, "", "error: NaN or infinity in 1 row; correct or remove table.npz#1\n"
    )
    assert crnr.files() == {"table.npz"}


def test_extract_without_usable_images_fails(crnr: Runner) -> None:
    Path("x.png").write_bytes(b"")
    outcome = crnr("extract", "x.png", "-o", "f.h5", "--size", "8", "--gray")
    assert outcome == Outcome(
        1, "", "error: no usable images or rows of features: x.png: the file is empty\n"
    )
    assert crnr.files() == {"x.png"}


def test_extract_strict_stops_at_a_bad_image(photos: Runner) -> None:
    outcome = photos("extract", "photos", "-o", "f.h5", "--strict", "-q")
    assert (outcome.exit, outcome.out) == (1, "")
    assert (
        "; stopped: 2 of 17 examples have to be skipped, and no failure is allowed (--strict)\n"
        in outcome.err
    )
    # Extracted values are kept: without --strict, nothing is decoded again.
    done = photos("extract", "photos", "-o", "f.h5")
    assert (done.exit, done.out) == (3, "")
    assert "note: f.h5: continuing after 17 of 17 rows\n" in done.err
    assert photos("extract", "photos", "-o", "clean.h5", "-q").exit == 3
    assert same("f.h5", "clean.h5")


# --- What other commands do with it ---------------------------------------------------------------------


def test_another_extractor_is_refused(photos: Runner) -> None:
    assert photos("build", "queries", "-q") == Outcome(0, "", "")
    assert photos("extract", "queries", "-o", "f.h5", "--extractor", "pixels", "-q") == Outcome(0, "", "")
    message = (
        "error: f.h5: its features come from another extractor than the features of gallery.h5 (pixels, "
        "8x8, grey instead of gradients, 8x8, cells of 3, 8 directions); extract them again "
        "with `crnr extract IMAGES --like gallery.h5 -o f.h5`\n"
    )
    for command in (
        ["classify", "f.h5"],
        ["add", "gallery.h5", "f.h5"],
        ["verify", "gallery.h5", "--source", "f.h5"],
        ["explain", "f.h5#0"],
        ["build", "f.h5", "--update"],
    ):
        assert photos(*command) == Outcome(1, "", message)


def test_another_network_of_the_same_name_is_refused(photos: Runner) -> None:
    network = [*NETWORK, "-q"]
    assert photos("build", "queries", *network) == Outcome(0, "", "")
    Path("elsewhere").mkdir()
    shutil.copy("model.onnx", "elsewhere/model.onnx")
    assert (
        photos(
            "extract",
            "queries",
            "-o",
            "f.h5",
            "--extractor",
            "elsewhere/model.onnx",
            "--extractor-preset",
            "imagenet",
            "-q",
        ).exit
        == 0
    )
    assert photos("classify", "f.h5", "-q").exit == 0  # the same one, at another place
    projection_model(Path("model.onnx"), seed=5)
    assert photos("extract", "queries", "-o", "f.h5", *network).exit == 0
    refused = photos("classify", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert ", but with another model or other settings); extract them again" in refused.err


def test_files_of_different_kinds(photos: Runner) -> None:
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5") as file:
        np.savez("table.npz", features=file["features"][()], labels=file["labels"][()].astype(str))
    assert photos("build", "f.h5", "table.npz", "-q") == Outcome(
        1, "", "error: f.h5: was extracted from images, but table.npz was not; give one kind of files\n"
    )
    for name, size in (("wide.h5", "8x9"), ("high.h5", "9x8")):
        how = ("--extractor", "pixels", "--size", size, "-q")
        assert photos("extract", "queries", "-o", name, *how) == Outcome(0, "", "")
    assert photos("build", "wide.h5", "high.h5", "-q") == Outcome(
        1,
        "",
        "error: wide.h5 and high.h5 come from different extractors: pixels, 8x9, grey and "
        "pixels, 9x8, grey; give files of one extractor\n",
    )
    refused = photos("build", "f.h5", "--extractor", "pixels")
    assert refused == Outcome(
        2,
        "",
        "error: --extractor only applies to images, but f.h5 was extracted from images before; leave the "
        "option out\n",
    )
    assert photos("build", "table.npz", "-o", "table.h5", "-q") == Outcome(0, "", "")
    assert photos("classify", "f.h5", "-g", "table.h5") == Outcome(
        1,
        "",
        "error: f.h5: was extracted from images, but table.h5 was built from features; give features, or a "
        "gallery that was built from images\n",
    )


def test_images_are_classified_by_a_gallery_of_extracted_values(photos: Runner) -> None:
    network = [*NETWORK, "-q"]
    assert photos("extract", "queries", "-o", "f.h5", *network) == Outcome(0, "", "")
    assert photos("build", "f.h5", "-q") == Outcome(0, "", "")
    outcome = photos("evaluate", "queries", "--json")
    assert outcome.exit == 0
    assert '"accuracy": 1.0' in outcome.out


def test_add_update_verify_and_explain(photos: Runner) -> None:
    """By the names, stamps and hashes of the images."""
    assert photos("build", "queries", "-q") == Outcome(0, "", "")
    before = Path("gallery.h5").read_bytes()
    draw_image(0, 70).save("queries/ant/new.png")
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    verified = photos("verify", "gallery.h5", "--source", "f.h5")
    assert verified.exit == 0
    assert "queries/ant/new.png" in verified.err
    shown = photos("build", "f.h5", "--update")
    assert "added: queries/ant/new.png\n1 added, 0 changed, 0 removed, 6 unchanged\n" in shown.err
    assert shown.exit == 0
    Path("gallery.h5").write_bytes(before)
    shown = photos("add", "gallery.h5", "f.h5")
    assert "1 added, 0 changed, 0 removed, 6 unchanged\n" in shown.err
    assert photos("verify", "gallery.h5", "--source", "queries").exit == 0
    explained = photos("explain", "f.h5#0")
    of_image = photos("explain", "queries/ant/10.png")
    assert explained.exit == 0
    assert explained.out.splitlines()[1:] == of_image.out.splitlines()[1:]
    refused = photos("explain", "f.h5")
    assert refused == Outcome(2, "", "error: f.h5: explain takes one row, such as f.h5#0\n")


def test_a_folder_of_one_class_can_be_added(photos: Runner) -> None:
    assert photos("build", "photos", "-q", "--allow-skipped", "--size", "8", "--gray") == Outcome(0, "", "")
    assert photos("extract", "queries/cow", "-o", "f.h5", "--size", "8", "--gray", "-q") == Outcome(0, "", "")
    shown = photos("add", "gallery.h5", "f.h5")
    assert shown.exit == 0
    assert "2 added, 0 changed, 0 removed, 13 unchanged\n" in shown.err
    Path("queries/cow").rename("queries/yak")
    assert photos("extract", "queries/yak", "-o", "f.h5", "--size", "8", "--gray", "-q") == Outcome(0, "", "")
    refused = photos("add", "gallery.h5", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: queries/yak: contains files but no class folders, and is not ")
    assert photos("add", "gallery.h5", "f.h5", "--class", "yak", "-q") == Outcome(0, "", "")


def test_copies_are_found(photos: Runner) -> None:
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    assert photos("build", "f.h5", "-q") == Outcome(0, "", "")
    for source in ("f.h5", "queries"):
        assert "6 of 6 queries are in the gallery too, such as" in photos("evaluate", source).err
    outcome = photos("compare", "photos", "--test", "f.h5", "--methods", "nn", "--size", "8", "--gray", "-q")
    assert outcome.exit == 3


def test_compare_and_tune(photos: Runner) -> None:
    assert photos("extract", "photos", "-o", "f.h5", "--extractor", "pixels", "-q").exit == 3
    methods = ["--methods", "nn,crc", "--draws", "2", "--allow-skipped", "-q", "--json"]
    one, other = (
        json.loads(photos("compare", source, *how, *methods).out)
        for source, how in (("f.h5", []), ("photos", ["--extractor", "pixels"]))
    )
    for found in (one, other):
        for result in found["methods"]:
            del result["build_seconds"], result["query_ms"]
    assert one["methods"] == other["methods"]
    tuned = photos("tune", "f.h5", "--folds", "2", "--budget", "0", "--allow-skipped")
    assert tuned.exit == 0
    (line,) = [line for line in tuned.err.splitlines() if line.startswith("to build a gallery")]
    command = line.partition("crnr ")[2].split()
    assert command[:2] == ["build", "f.h5"]
    assert photos(*command, "-q", "--allow-skipped") == Outcome(0, "", "")


def test_info_describes_an_extracted_file(photos: Runner) -> None:
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    about = photos("info", "f.h5")
    assert about.exit == 0
    assert about.out.startswith("array ")
    assert about.err == "note: f.h5: written by `crnr extract`; `crnr build f.h5` builds a gallery from it\n"


def test_build_takes_added_labels_of_an_extracted_file(photos: Runner) -> None:
    """A dataset that a user added to the file can be the labels; other features are not the images'."""
    assert photos("extract", "queries", "-o", "f.h5", "-q") == Outcome(0, "", "")
    with h5py.File("f.h5", "a") as file:
        file["mine"] = np.array([b"x", b"x", b"y", b"y", b"z", b"z"])
        file["numbers"] = np.eye(6)
    assert photos("build", "f.h5", "--labels-key", "mine", "-q") == Outcome(0, "", "")
    assert photos("info", "--json").out.count('"made_from": "pictures"') == 1
    assert '"x": 2' in photos("info", "--json").out
    assert photos("build", "f.h5", "--features-key", "numbers", "-q") == Outcome(0, "", "")
    assert photos("info", "--json").out.count('"made_from": "features"') == 1


@pytest.mark.usefixtures("crnr")
def test_extract_needs_the_memory_of_some_batches() -> None:
    """The values of all samples are never in memory at once, neither the first time nor for an update."""
    n, d = 6000, 1280
    random = np.random.default_rng(0)
    with h5py.File("table.h5", "w") as file:
        file["features"] = random.random((n, d), np.float32)
        file["labels"] = np.arange(n) % 3
    with h5py.File("more.h5", "w") as file:
        file["features"] = random.random((10, d), np.float32)
        file["labels"] = np.arange(10) % 3
    everything = n * d * 4
    for names, update in ((["table.h5"], False), (["table.h5", "more.h5"], True)):
        tracemalloc.start()
        extract(names, Path("f.h5"), ExtractOptions(Reading(jobs=1), update))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < everything
    with h5py.File("f.h5") as file, h5py.File("table.h5") as table:
        assert file["features"].shape == (n + 10, d)
        assert np.array_equal(file["features"][:n], table["features"][()])


def test_the_reader_of_the_reference_page_reads_the_file(photos: Runner) -> None:
    page = (DOCS / "reference" / "features-format.md").read_text(encoding="utf-8")
    (reader,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    assert photos("extract", "photos", "-o", "photos.h5", "-q").exit == 3
    names: dict[str, Any] = {}
    exec(reader, names)
    assert names["features"].shape == (len(names["paths"]), 128)
    assert {
        Path(path).parent.name for path, label in zip(names["paths"], names["labels"], strict=True) if label
    } == {label for label in names["labels"] if label}
