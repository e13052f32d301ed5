"""Test samples that are in the gallery too are reported, whatever their file format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.gallery.fit import KnownSamples
from helpers.onnx_models import flat_model
from helpers.runner import Runner
from helpers.samples import make_images


@given(st.integers(1, 60), st.integers(0, 10), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_copies_are_found_as_by_comparing_all_with_all(n: int, copies: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few different values, so that many vectors are near each other.
    gallery, fresh = (rng.integers(-2, 3, (count, d)).astype("float32") + 0.1 for count in (n, 20))
    queries = np.concatenate([fresh, gallery[rng.integers(0, n, copies)] + np.float32(1e-7)])
    known = KnownSamples.of("pictures", [str(i) for i in range(n)], gallery)
    distances = np.linalg.norm(queries[:, None].astype(float) - gallery[None].astype(float), axis=2)
    assert known.known_mask([""] * len(queries), queries).tolist() == (distances.min(axis=1) < 1e-5).tolist()


NOTE = (
    "note: {} of {} queries are in the gallery too, such as {}, so the scores are too high; "
    "test with queries that are not in the gallery\n"
)


@pytest.fixture
def images(crnr: Runner) -> Path:
    """A gallery, and queries of which two per class are its images: one copied, one in another format."""
    make_images(crnr.here / "gallery", ("ant", "bee"), 4)
    make_images(crnr.here / "queries", ("ant", "bee"), 3, first=9)
    for name in ("ant", "bee"):
        shutil.copy(f"gallery/{name}/1.png", f"queries/{name}/copy.png")
        Image.open(f"gallery/{name}/2.png").save(f"queries/{name}/other.bmp")
    return crnr.here


@pytest.mark.parametrize(
    "recipe", [[], ["--pca", "3"], ["--power", "0.5"], ["--extractor", "m.onnx", "--extractor-preset", "raw"]]
)
def test_evaluate_reports_queries_that_are_in_the_gallery(
    crnr: Runner, images: Path, recipe: list[str]
) -> None:
    flat_model(images / "m.onnx", ["n", 3, 28, 28])
    assert crnr("build", "gallery", "-q", *recipe).exit == 0
    result = crnr("evaluate", "queries")
    assert (result.exit, result.err) == (0, NOTE.format(4, 10, "queries/ant/copy.png"))
    record = crnr("evaluate", "queries", "--json", "-q", "--html", "r.html")
    assert (record.exit, record.err) == (0, "")
    assert json.loads(record.out)["in_gallery"] == 4
    assert "4 of 10 queries are in the gallery too" in Path("r.html").read_text()
    shutil.rmtree("queries")
    make_images(crnr.here / "queries", ("ant", "bee"), 3, first=9)
    assert crnr("evaluate", "queries").err == ""


def test_compare_reports_test_samples_that_are_in_the_gallery(crnr: Runner, images: Path) -> None:
    result = crnr("compare", "gallery", "--test", "queries", "--methods", "nn")
    assert result.exit == 0
    assert NOTE.format(4, 10, "queries/ant/copy.png") in result.err
    shutil.rmtree("queries")
    make_images(crnr.here / "queries", ("ant", "bee"), 3, first=9)
    assert "in the gallery" not in crnr("compare", "gallery", "--test", "queries", "--methods", "nn").err


def test_rows_of_features_are_copies_only_if_they_are_the_same(crnr: Runner) -> None:
    features = 1e4 + np.random.default_rng(0).standard_normal((12, 5))  # nearly the same direction
    labels = np.repeat(["a", "b"], 6)
    np.savez("gallery.npz", features=features, labels=labels)
    np.savez("other.npz", features=features + 1e-3, labels=labels)
    np.savez("some.npz", features=np.concatenate([features[3:5], features[6:] + 1e-3]), labels=labels[3:11])
    assert crnr("build", "gallery.npz", "-q").exit == 0
    assert crnr("evaluate", "other.npz").err == ""
    assert crnr("evaluate", "some.npz").err == NOTE.format(2, 8, "some.npz#0")
    assert (
        "in the gallery" not in crnr("compare", "gallery.npz", "--test", "other.npz", "--methods", "nn").err
    )
    found = crnr("compare", "gallery.npz", "--test", "some.npz", "--methods", "nn")
    assert NOTE.format(2, 8, "some.npz#0") in found.err
