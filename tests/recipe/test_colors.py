"""Colour histograms against a loop over pixels, brightness, and which images are in colour."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.recipe.gradients import N_COLORS, are_colored, brightness, histograms
from helpers.samples import draw_image, noise


def histogram_by_loops(image: Array) -> Array:
    """Count, for an image (height, width, 3), each pixel for the levels next to its colours."""
    height, width, _ = image.shape
    counts = np.zeros((2, 2, 4, 4, 4))
    for y in range(height):
        for x in range(width):
            # The pixel in the middle of an odd number belongs to the first half.
            quarter = counts[int(2 * y >= height + height % 2), int(2 * x >= width + width % 2)]
            shares = []
            for byte in image[y, x].tolist():
                level = byte / 85  # 0, 85, 170 and 255 are levels
                lower = min(math.floor(level), 2)
                shares.append({lower: 1 - (level - lower), lower + 1: level - lower})
            red, green, blue = shares
            for r, of_red in red.items():
                for g, of_green in green.items():
                    for b, of_blue in blue.items():
                        quarter[r, g, b] += of_red * of_green * of_blue
    return np.sqrt(counts).ravel()


SIZES = [(1, 1), (1, 2), (2, 1), (1, 7), (3, 3), (4, 6), (5, 8), (7, 5)]


@pytest.mark.parametrize("size", SIZES)
def test_histograms_match_a_loop_over_pixels(size: tuple[int, int]) -> None:
    """Compared before the square root, which enlarges a rounding error near zero."""
    height, width = size
    images = np.random.default_rng(width).integers(0, 256, (3, height, width, 3), dtype=np.uint8)
    images[1] = images[1] // 85 * 85  # only levels themselves
    found = histograms(images.reshape(3, -1), width, height)
    assert (found.shape, found.dtype) == ((3, N_COLORS), np.float32)
    expected = np.array([histogram_by_loops(image) for image in images])
    np.testing.assert_allclose(found.astype(np.float64) ** 2, expected**2, rtol=0, atol=1e-5)


@given(arrays(np.uint8, (5, 6, 4, 3)))
def test_every_pixel_counts_once(images: Array) -> None:
    counts = histograms(images.reshape(5, -1), 4, 6).astype(np.float64) ** 2
    np.testing.assert_allclose(counts.reshape(5, 4, 64).sum(axis=2), 6, rtol=1e-5)


@given(arrays(np.uint8, (3, 6, 4, 3)), st.permutations(range(6)))
def test_only_the_quarter_of_a_pixel_matters(images: Array, order: list[int]) -> None:
    """Pixels of the first quarter, 3 x 2, change places."""
    shuffled = images.copy()
    shuffled[:, :3, :2] = images[:, :3, :2].reshape(3, 6, 3)[:, order].reshape(3, 3, 2, 3)
    found, expected = (histograms(given.reshape(3, -1), 4, 6) ** 2 for given in (shuffled, images))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (9, 7), (64, 64)])
def test_the_histogram_of_an_image_does_not_depend_on_the_batch(size: tuple[int, int]) -> None:
    width, height = size
    images = np.random.default_rng(0).integers(0, 256, (30, width * height * 3), dtype=np.uint8)
    together = histograms(images, width, height)
    for start, stop in ((0, 1), (17, 18), (5, 30), (28, 30)):
        assert np.array_equal(histograms(images[start:stop], width, height), together[start:stop])
    assert histograms(images[:0], width, height).shape == (0, N_COLORS)


def test_brightness_matches_the_standard_exactly() -> None:
    """ITU-R BT.601, in thousandths: whole numbers, whatever the order in which they are added."""
    colors = np.array([[0, 0, 0], [255, 255, 255], [255, 0, 0], [0, 255, 0], [0, 0, 255], [3, 141, 59]])
    expected = [int(r) * 299 + int(g) * 587 + int(b) * 114 for r, g, b in colors]
    found = brightness(colors.astype(np.uint8).reshape(1, -1))
    assert (found.dtype, found.tolist()) == (np.float32, [expected])


@given(st.tuples(*[st.integers(0, 255)] * 3), st.integers(1, 100), st.integers(1, 3))
def test_equal_colours_have_exactly_equal_brightness(
    color: tuple[int, int, int], n: int, images: int
) -> None:
    """Else an image of one colour would have gradients."""
    same = np.tile(np.array(color, np.uint8), (images, n))
    red, green, blue = color
    assert (brightness(same) == 299 * red + 587 * green + 114 * blue).all()


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    """Through a JPEG in colour, whose bands differ by rounding."""
    file = io.BytesIO()
    image.convert("RGB").save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def rgb(*images: Image.Image) -> Array:
    return np.array([np.asarray(image.convert("RGB")).ravel() for image in images])


def test_greys_are_not_coloured() -> None:
    assert not are_colored(rgb(*(noise(seed) for seed in range(5)), Image.new("L", (8, 8), 255))).any()


@pytest.mark.parametrize("quality", [20, 75, 95])
def test_greys_with_the_noise_of_a_jpeg_are_not_coloured(quality: int) -> None:
    assert not are_colored(rgb(*(as_jpeg(draw_image(k, 0, (32, 32)), quality) for k in range(4)))).any()


def test_greys_with_the_noise_or_the_tint_of_a_camera_are_not_coloured() -> None:
    grey = np.asarray(draw_image(0, 0, (32, 32))).astype(int)[..., None]
    noisy = grey + np.random.default_rng(0).integers(-8, 9, (32, 32, 3))
    tinted = grey + np.array([10, 0, -8])
    both = np.clip([noisy, tinted], 0, 255).astype(np.uint8)
    assert not are_colored(both.reshape(2, -1)).any()


def test_images_in_colour_are_coloured() -> None:
    red = Image.new("RGB", (32, 32), (200, 40, 40))
    spot = Image.new("RGB", (32, 32), "grey")
    spot.paste((60, 120, 60), (10, 10, 16, 16))  # 36 of 1024 pixels, which is more than 2 %
    photograph = Image.merge("RGB", [draw_image(k, 0, (32, 32)) for k in range(3)])
    assert are_colored(rgb(red, spot, photograph, as_jpeg(photograph, 30))).all()


def test_a_few_coloured_pixels_make_no_coloured_image() -> None:
    spot = Image.new("RGB", (32, 32), "grey")
    spot.paste((255, 0, 0), (10, 10, 14, 14))  # 16 of 1024 pixels
    assert are_colored(rgb(spot)).tolist() == [False]


def test_an_empty_batch_has_no_histograms() -> None:
    """Such as a batch of images that are all unreadable."""
    nothing = np.empty((0, 12), np.uint8)
    assert are_colored(nothing).tolist() == []
    assert brightness(nothing).shape == (0, 4)
    assert histograms(nothing, 2, 2).shape == (0, N_COLORS)
