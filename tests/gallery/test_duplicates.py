"""Near duplicates are found as groups, and different images are left alone."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_digits

from crnr_cli.gallery import duplicates
from crnr_cli.gallery.duplicates import (
    Looks,
    find_exact_copies,
    find_near_pairs,
    group_pairs,
    nearest_pairs,
)
from crnr_cli.progress import silent


def photo(seed: int) -> Image.Image:
    """Return something with large and small shapes, as photographs have."""
    noise = np.random.default_rng(seed).normal(size=(90, 120))
    shapes = gaussian_filter(noise, 12) / 0.023 + gaussian_filter(noise[::-1], 3) / 0.1
    return Image.fromarray(np.clip(128 + 40 * shapes, 0, 255).astype(np.uint8))


def recompressed(image: Image.Image) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=60)
    return Image.open(file)


ALTERED = {
    "recompressed": recompressed,
    "resized": lambda image: image.resize((80, 60)),
    "cropped": lambda image: image.crop((2, 0, 120, 88)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
}


def looks(images: list[Image.Image]) -> Looks:
    small = np.array([np.asarray(one.resize((32, 32), Image.Resampling.BILINEAR)) for one in images])
    return Looks.of(small.reshape(len(small), -1).astype(np.float32), small, np.arange(len(small)))


@pytest.mark.parametrize("kind", ALTERED)
def test_an_altered_image_is_found_among_others(kind: str) -> None:
    originals = [photo(seed) for seed in range(30)]
    altered = [ALTERED[kind](image) for image in originals[:10]]
    found = find_near_pairs(looks(originals + altered))
    assert found.tolist() == [[i, 30 + i] for i in range(10)]
    against = find_near_pairs(looks(altered), looks(originals))
    assert against.tolist() == [[i, i] for i in range(10)]


def test_a_few_images_have_duplicates_too() -> None:
    assert find_near_pairs(looks([photo(0), recompressed(photo(0))])).tolist() == [[0, 1]]
    assert find_near_pairs(looks([photo(0), photo(1)])).tolist() == []


def test_plain_shapes_that_are_all_alike_are_not_duplicates() -> None:
    """Handwritten digits of 8 x 8 pixels: hundreds are as alike as a cropped image and its original."""
    pixels = load_digits().images[:900].astype(np.uint8)
    digits = looks([Image.fromarray(15 * one) for one in pixels])
    alike = np.corrcoef(digits.images.reshape(900, -1)) - np.eye(900)
    assert (alike.max(axis=1) > 0.965).sum() > 100
    assert len(find_near_pairs(digits)) <= 9


def test_without_images_only_a_cosine_close_to_one_counts() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 40))
    rows[7] = 3 * rows[3] + 0.01 * rng.normal(size=40)
    rows[9] = rows[4] + 0.3 * rng.normal(size=40)
    assert find_near_pairs(Looks.of(rows)).tolist() == [[3, 7]]


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = looks(
        [photo(seed // 2) if seed % 2 else recompressed(photo(seed // 2)) for seed in range(40)]
    )
    whole = find_near_pairs(everything)
    monkeypatch.setattr(duplicates, "_BLOCK", 100)
    monkeypatch.setattr(duplicates, "_PAIRS", 3)
    assert find_near_pairs(everything).tolist() == whole.tolist() == [[i, i + 1] for i in range(0, 40, 2)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).filter(lambda p: p[0] != p[1])))
def test_groups_are_the_connected_components_of_scipy(pairs: list[tuple[int, int]]) -> None:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    places = tuple(array.T.astype(np.int32))  # SciPy 1.11 takes no others
    _, group_of = connected_components(coo_array((np.ones(len(array)), places), (21, 21)))
    expected = [np.flatnonzero(group_of == k).tolist() for k in np.unique(group_of)]
    assert group_pairs(array) == sorted(group for group in expected if len(group) > 1)


def test_exact_copies_have_the_same_hash() -> None:
    assert find_exact_copies(["a", "b", "a", "c", "b", "a"]) == [[0, 2, 5], [1, 4]]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 6), st.booleans())
def test_nearest_pairs_are_those_of_a_plain_search(seed: int, count: int, most: int, within: bool) -> None:
    rng = np.random.default_rng(seed)
    one = rng.normal(size=(count, 3)).astype(np.float32)
    other = one if within else rng.normal(size=(int(rng.integers(1, 12)), 3)).astype(np.float32)
    expected = set()
    for i, row in enumerate(one):
        products = {j: float(row @ column) for j, column in enumerate(other) if not (within and i == j)}
        largest = sorted(products, key=lambda j: -products[j])[:most]
        expected |= {(i, j) for j in largest if products[j] >= 0.3}
    found = nearest_pairs(one, other, 0.3, within, silent, most)
    assert sorted(map(tuple, found.tolist())) == sorted(expected)


def test_only_doubtful_pairs_are_compared_with_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenth neighbour of all images would take time that grows with their square."""
    asked: list[int] = []
    original = duplicates._to_neighbour

    def count(images: np.ndarray, others: np.ndarray, within: bool, places: np.ndarray) -> np.ndarray:
        asked.extend(places.tolist())
        return original(images, others, within, places)

    monkeypatch.setattr(duplicates, "_to_neighbour", count)
    some = looks([*(photo(seed) for seed in range(20)), photo(3), recompressed(photo(5))])
    assert find_near_pairs(some).tolist() == [[3, 20], [5, 21]]
    assert set(asked) <= {5, 21}


def test_cosines_just_above_and_below_the_limit() -> None:
    """Without images, the cosine of a pair must be 0.995; candidates are compared exactly once."""
    angle = np.arccos([0.9951, 0.9949])
    rows = np.zeros((4, 4))
    rows[0, 0] = rows[2, 2] = 1
    rows[1, :2] = np.cos(angle[0]), np.sin(angle[0])
    rows[3, 2:] = np.cos(angle[1]), np.sin(angle[1])
    seen: list[tuple[str, int, int]] = []
    found = find_near_pairs(Looks.of(rows), progress=lambda *step: seen.append(step))
    assert found.tolist() == [[0, 1]]
    assert seen == [("looking for duplicates", 4, 4)]
    assert find_near_pairs(Looks.of(rows[:1]), Looks.of(rows[1:])).tolist() == [[0, 0]]


def test_pairs_with_one_image_are_compared_by_their_vectors() -> None:
    images = np.array([np.asarray(photo(seed).resize((32, 32))) for seed in (0, 1)])
    rows = np.array([[1.0, 0], [1.0, 0], [0, 1.0], [0, 1.0]])
    # The first two have different images but equal vectors; of the others, none or one has an image.
    assert find_near_pairs(Looks.of(rows, images, np.array([0, 1]))).tolist() == [[2, 3]]
    assert find_near_pairs(Looks.of(rows, images, np.array([0, 2]))).tolist() == [[0, 1], [2, 3]]


def test_images_that_look_the_same_are_found_whatever_their_vectors() -> None:
    """By their hashes: the vectors of all six are as different as can be."""
    images = [photo(seed) for seed in range(3)]
    images += [recompressed(image) for image in images]
    small = looks(images).images
    assert find_near_pairs(Looks.of(np.eye(6), small, np.arange(6))).tolist() == [[0, 3], [1, 4], [2, 5]]
    left = Looks.of(np.eye(9)[:6], small[:3], np.array([0, 2, 4]))
    right = Looks.of(np.eye(9)[6:], small[3:], np.arange(3))
    assert find_near_pairs(left, right).tolist() == [[0, 0], [2, 1], [4, 2]]
