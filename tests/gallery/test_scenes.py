"""Images of the same scene are found although one is cut, mirrored, turned or covered."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps
from scipy.ndimage import affine_transform, gaussian_filter, uniform_filter
from sklearn.datasets import load_digits

from crnr_cli.gallery.duplicates import SIDE, Looks
from crnr_cli.gallery.scenes import find_same_scenes
from crnr_cli.solvers.overlay import details, overlay
from helpers.runner import Runner, read_rows


def photo(seed: int) -> Image.Image:
    """Return something with shapes of every size, as photographs have."""
    noise = np.random.default_rng(seed).normal(size=(2, 144, 192))
    shapes = gaussian_filter(noise[0], 14) / 0.02 + gaussian_filter(noise[1], 4) / 0.07
    return Image.fromarray(np.clip(128 + 30 * shapes, 0, 255).astype(np.uint8))


def cover(image: Image.Image) -> Image.Image:
    """Cover a sixth of the image."""
    covered = image.copy()
    ImageDraw.Draw(covered).rectangle((0, 60, 192, 84), fill=0)
    return covered


ALTERED: dict[str, Callable[[Image.Image], Image.Image]] = {
    "cut": lambda image: image.crop((30, 20, 184, 135)),
    "mirrored": ImageOps.mirror,
    "turned": lambda image: image.rotate(10, Image.Resampling.BICUBIC),
    "covered": cover,
    "mirrored and cut": lambda image: ImageOps.mirror(image).crop((10, 5, 172, 126)),
}


def small(images: list[Image.Image]) -> np.ndarray:
    return np.array([np.asarray(one.resize((SIDE, SIDE), Image.Resampling.BILINEAR)) for one in images])


def looks_alike(images: list[Image.Image], pixels: np.ndarray | None = None) -> Looks:
    """Return images whose vectors make each a candidate for each."""
    found = small(images) if pixels is None else pixels
    return Looks.of(np.ones((len(found), 4), np.float32), found, np.arange(len(found)))


@pytest.mark.parametrize("kind", ALTERED)
def test_an_altered_image_is_found_among_others(kind: str) -> None:
    originals = [photo(seed) for seed in range(8)]
    altered = [ALTERED[kind](originals[2])]
    found = find_same_scenes(looks_alike(originals + altered), by_vectors=True)
    assert [(pair.one, pair.other) for pair in found] == [(2, 8)]
    assert found[0].is_mirrored == kind.startswith("mirrored")
    across = find_same_scenes(looks_alike(altered), looks_alike(originals), by_vectors=True)
    assert [(pair.one, pair.other) for pair in across] == [(0, 2)]


def test_the_most_similar_pair_comes_first() -> None:
    images = [photo(seed) for seed in range(9)]
    more = [ALTERED["turned"](images[0]), ALTERED["mirrored"](images[1]), ALTERED["cut"](images[2])]
    found = find_same_scenes(looks_alike(images + more), by_vectors=True)
    assert found[0][:2] == (1, 10)
    assert {pair[:2] for pair in found} == {(0, 9), (1, 10), (2, 11)}
    assert [pair.similarity for pair in found] == sorted((pair.similarity for pair in found), reverse=True)


def test_only_images_with_near_vectors_are_compared() -> None:
    images = small([photo(0), ImageOps.mirror(photo(0)), photo(1), photo(2)])
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32)
    assert find_same_scenes(Looks.of(vectors, images, np.arange(4)), by_vectors=True) == []
    # Whole images that are mirrored are found without vectors, by their perceptual hashes.
    found = find_same_scenes(Looks.of(vectors, images, np.arange(4)), by_vectors=False)
    assert [(pair.one, pair.other, pair.is_mirrored) for pair in found] == [(0, 1, True)]
    assert found[0].similarity == pytest.approx(1, abs=0.01)


def test_samples_without_an_image_are_no_pair() -> None:
    images = small([photo(0), photo(0), photo(1)])
    looks = Looks.of(np.ones((4, 2), np.float32), images, np.array([0, 2, 3]))
    found = find_same_scenes(looks, by_vectors=True)
    assert [(pair.one, pair.other) for pair in found] == [(0, 2)]
    nothing = Looks.of(np.ones((3, 2), np.float32))
    for by_vectors in (False, True):
        assert find_same_scenes(nothing, by_vectors=by_vectors) == []
        assert find_same_scenes(looks, nothing, by_vectors=by_vectors) == []


@pytest.mark.slow
@pytest.mark.parametrize("by_vectors", [False, True])
def test_plain_shapes_that_are_all_alike_are_no_scenes(by_vectors: bool) -> None:
    digits = (load_digits().images[:60] * 15).astype(np.uint8).repeat(4, axis=1).repeat(4, axis=2)
    assert find_same_scenes(looks_alike([], digits), by_vectors=by_vectors) == []


def naive_overlay(over: np.ndarray, under: np.ndarray) -> float:
    """Return the best correlation of two images, tried in every way at every place, pixel by pixel."""
    best = -1.0
    centre = np.full(2, (SIDE - 1) / 2)
    for mirrored in (over, over[:, ::-1]):
        for angle in (-10, -5, 0, 5, 10):
            for size in (1.0, 0.9, 0.8, 0.7):
                turn = np.deg2rad(angle)
                matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) / size
                shift = centre - matrix @ centre
                laid = affine_transform(mirrored, matrix, shift, order=1, cval=np.nan)
                for down in range(-15, 16, 3):
                    for right in range(-15, 16, 3):
                        moved = np.full((SIDE, SIDE), np.nan)
                        rows_, columns = np.indices((SIDE, SIDE))
                        inside = (
                            (rows_ - down >= 0)
                            & (rows_ - down < SIDE)
                            & (columns - right >= 0)
                            & (columns - right < SIDE)
                        )
                        moved[inside] = laid[rows_[inside] - down, columns[inside] - right]
                        shared = ~np.isnan(moved)
                        if shared.sum() >= SIDE**2 / 2:
                            one, other = moved[shared], under[shared]
                            product = one @ other / np.sqrt((one @ one) * (other @ other))
                            best = max(best, float(product))
    return best


@pytest.mark.slow
def test_an_overlay_is_at_least_as_good_as_a_naive_search() -> None:
    """The search by transforms tries every place, the naive one every third."""
    whole, other = photo(5), photo(6)
    images = details(small([whole, whole.crop((30, 20, 184, 135)), other]))
    found, _ = overlay(images[0], images[1:])
    for i in (1, 2):
        naive = naive_overlay(images[0].astype(float), images[i].astype(float))
        assert naive - 0.02 <= found[i - 1] <= 1.0
        assert found[i - 1] <= naive + 0.35


def test_details_are_free_of_brightness_and_contrast() -> None:
    image = small([photo(3)]).astype(np.float32)
    mean = uniform_filter(image, (0, 7, 7), mode="nearest")
    spread = np.sqrt(uniform_filter((image - mean) ** 2, (0, 7, 7), mode="nearest") + 25)
    np.testing.assert_allclose(details(image), (image - mean) / spread, atol=1e-5)
    np.testing.assert_allclose(details(image + 40), details(image), atol=1e-4)
    assert overlay(details(0.6 * image)[0], details(image))[0][0] > 0.98


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_either_image_may_be_the_first(one: int, other: int) -> None:
    pair, turned = [photo(one), photo(other)], [photo(other), photo(one)]
    found, reverse = (find_same_scenes(looks_alike(images), by_vectors=True) for images in (pair, turned))
    assert [p.similarity for p in found] == pytest.approx([p.similarity for p in reverse])
    assert bool(found) == (one == other)


def test_audit_lists_mirrored_copies_apart(crnr: Runner) -> None:
    for name, first in (("ant", 0), ("bee", 12)):
        (crnr.here / "images" / name).mkdir(parents=True)
        for seed in range(first, first + 12):
            photo(seed).save(f"images/{name}/{seed}.png")
    ImageOps.mirror(photo(3)).save("images/bee/mirrored.png")
    (crnr.here / "queries").mkdir()
    ImageOps.mirror(photo(5)).save("queries/5.png")
    outcome = crnr("audit", "images", "--queries", "queries", "--json", "-q", "--csv", "audit.csv")
    assert (outcome.exit, outcome.err) == (0, "")
    record = json.loads(outcome.out)
    assert (record["copies"], record["near_duplicates"]) == ([], [])
    [pair] = record["same_scene"]
    assert pair.pop("similarity") > 0.99
    assert pair == {
        "mirrored": True,
        "across_classes": True,
        "samples": [
            {"path": "images/ant/3.png", "label": "ant"},
            {"path": "images/bee/mirrored.png", "label": "bee"},
        ],
    }
    assert [(one["path"], one["copy"], one["same_scene"]) for one in record["queries_in_gallery"]] == [
        ("images/ant/5.png", False, True)
    ]
    table = [
        (row["path"], row["finding"], row["others"])
        for row in read_rows(crnr.here / "audit.csv")
        if "scene" in row["finding"]
    ]
    assert table == [
        ("images/ant/3.png", "same_scene", "images/bee/mirrored.png"),
        ("images/bee/mirrored.png", "same_scene", "images/ant/3.png"),
        ("images/ant/5.png", "query_same_scene", "queries/5.png"),
    ]
    shown = crnr("audit", "images", "--html", "audit.html")
    assert shown.exit == 0
    assert re.search(r"^pairs of the same scene +1 +1 of them in several classes", shown.out, re.MULTILINE)
    assert "images/bee/mirrored.png" in shown.out
    page = (crnr.here / "audit.html").read_text()
    assert '<h2 id="scenes">Same scene</h2>' in page
    assert "mirrored, in several classes" in page
