"""Galleries that earlier versions wrote open, and give the answers that these versions gave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from helpers.paths import DATA, SAMPLE_DATA
from helpers.runner import Runner, read_rows

VERSIONS = DATA / "versions"
GALLERIES = sorted(path.relative_to(VERSIONS).as_posix() for path in VERSIONS.glob("*/*.h5"))
OPTIONS = {
    "0.1.0/calibrated.h5": ["--reject", "0.1"],
    "0.2.0/calibrated.h5": ["--reject", "0.1", "--sets", "0.9"],
}
# The format of each file as its version wrote it: pixels and features, gradients, neighbours.
FORMATS = {"features": 1, "calibrated": 1, "neighbors": 4}
IMAGE_FORMATS = {"0.1.0": 1, "0.2.0": 2}
NUMBERS = ("residual", "margin", "separation", "probability")


@pytest.fixture
def sources(crnr: Runner) -> Runner:
    """Return the runner in a folder with the sources and queries that tests/data/versions/README.md names."""
    for name in ("examples.npz", "queries.npz"):
        shutil.copy(VERSIONS / name, name)
    for folder, count in (("gallery", 4), ("queries", 2)):
        for digit in "017":
            (crnr.here / folder / digit).mkdir(parents=True)
            for path in sorted((SAMPLE_DATA / folder / digit).iterdir())[:count]:
                shutil.copy(path, crnr.here / folder / digit)
    shutil.copy(VERSIONS / "3552.jpg", "queries/7")
    return crnr


def test_every_version_has_a_gallery_of_each_kind() -> None:
    kinds = ("calibrated", "features", "images", "neighbors")
    assert [f"{version}/{kind}.h5" for version in ("0.1.0", "0.2.0") for kind in kinds] == GALLERIES


@pytest.mark.parametrize("name", GALLERIES)
def test_classify_gives_the_answers_of_the_version(sources: Runner, name: str) -> None:
    queries = "queries" if Path(name).stem == "images" else "queries.npz"
    options = OPTIONS.get(name, [])
    outcome = sources("classify", queries, "-g", VERSIONS / name, *options, "-o", "out.csv", "-q")
    assert (outcome.exit, outcome.out, outcome.err) == (0, "", "")
    found, expected = read_rows(Path("out.csv")), read_rows((VERSIONS / name).with_suffix(".csv"))
    assert len(expected) == (7 if queries == "queries" else 13)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for column in other:
            if column.startswith(NUMBERS):
                # Vectors of images are float32, and decoders may round a pixel the other way.
                tolerance = 1e-4 if queries == "queries" else 1e-6
                assert float(one[column]) == pytest.approx(float(other[column]), abs=tolerance)
            else:
                assert one[column] == other[column]


def test_the_recorded_answers_have_every_status_of_a_calibrated_gallery() -> None:
    """Otherwise the comparison would not notice that a threshold moved."""
    for version in ("0.1.0", "0.2.0"):
        rows = read_rows(VERSIONS / version / "calibrated.csv")
        assert {row["status"] for row in rows} == {"ok", "rejected"}
        assert {row["label"] for row in rows} == {"ant", "bee", "caf\u00e9", "unknown"}


@pytest.mark.parametrize("name", GALLERIES)
def test_info_and_verify_describe_the_gallery(sources: Runner, name: str) -> None:
    version, kind = Path(name).parent.name, Path(name).stem
    about = json.loads(sources("info", VERSIONS / name, "--json").out)
    assert about["format_version"] == FORMATS.get(kind, IMAGE_FORMATS[version])
    with h5py.File(VERSIONS / name) as file:
        assert file.attrs["crnr_version"] == version.encode()
        assert file.attrs["version"] == about["format_version"]
    count = 12 if kind == "images" else 30
    assert about["n_samples"] == count
    assert sources("info", VERSIONS / name).exit == 0
    source = "gallery" if kind == "images" else "examples.npz"
    shutil.copy(VERSIONS / name, "gallery.h5")
    outcome = sources("verify", "gallery.h5", "--source", source)
    said = f"gallery.h5: OK, {count} examples, valid checksum, all the same as in the sources\n"
    assert (outcome.exit, outcome.err) == (0, said)


@pytest.mark.parametrize("name", GALLERIES)
def test_update_of_the_same_sources_changes_nothing(sources: Runner, name: str) -> None:
    source = "gallery" if Path(name).stem == "images" else "examples.npz"
    shutil.copy(VERSIONS / name, "gallery.h5")
    outcome = sources("build", source, "--update", "-q")
    assert (outcome.exit, outcome.err) == (0, "")
    with h5py.File("gallery.h5") as file, h5py.File(VERSIONS / name) as before:
        for array in ("samples/vectors", "samples/names", "samples/class"):
            np.testing.assert_array_equal(file[array][()], before[array][()])


def test_images_added_to_an_old_gallery_are_read_in_its_way(sources: Runner) -> None:
    """A new gallery would decode the JPEG at twice the size, and have another format."""
    for version in ("0.1.0", "0.2.0"):
        shutil.copy(VERSIONS / version / "images.h5", "gallery.h5")
        assert sources("add", "gallery.h5", "queries/7/3552.jpg", "--class", "7", "-q").exit == 0
        about = json.loads(sources("info", "gallery.h5", "--json").out)
        assert (about["n_samples"], about["format_version"]) == (13, IMAGE_FORMATS[version])
