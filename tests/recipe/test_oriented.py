"""Oriented gradients against a plain implementation and scikit-image, and what must not change them."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage.feature import hog

from crnr_cli.arrays import Array
from crnr_cli.choices import BLOCK_NORMS
from crnr_cli.recipe.oriented import OrientedGradients


def slope(before: float, here: float, after: float, is_first: bool, is_last: bool) -> float:
    """Return the central difference, or the one-sided one at an edge."""
    if is_first and is_last:
        return 0.0
    if is_first:
        return after - here
    return here - before if is_last else (after - before) / 2


def cells_by_loops(image: Array, cell: int, bins: int) -> dict[tuple[int, int], list[float]]:
    """Return the histogram of each cell: pixel by pixel, following the definition."""
    h, w = image.shape
    rows, columns = max(1, round(h / cell)), max(1, round(w / cell))
    found = {(i, j): [0.0] * bins for i in range(rows) for j in range(columns)}

    def at(y: int, x: int) -> float:
        return float(image[min(max(y, 0), h - 1), min(max(x, 0), w - 1)])

    for y in range(h):
        for x in range(w):
            down = slope(at(y - 1, x), at(y, x), at(y + 1, x), y == 0, y == h - 1)
            right = slope(at(y, x - 1), at(y, x), at(y, x + 1), x == 0, x == w - 1)
            magnitude = math.sqrt(down * down + right * right)
            direction = math.atan2(down, right) % (2 * math.pi) / (2 * math.pi) * bins
            lower = math.floor(direction)
            share = direction - lower
            for i, j in found:
                # The distance between the centres of the pixel and the cell, in sides of a cell.
                far_y = abs((y + 0.5) / (h / rows) - (i + 0.5))
                far_x = abs((x + 0.5) / (w / columns) - (j + 0.5))
                weight = max(0.0, 1 - far_y) * max(0.0, 1 - far_x)
                found[i, j][lower % bins] += weight * magnitude * (1 - share)
                found[i, j][(lower + 1) % bins] += weight * magnitude * share
    return found


def length(values: list[float]) -> float:
    return math.sqrt(sum(value * value for value in values))


def divided(values: list[float], by: float) -> list[float]:
    return [value / by for value in values] if by > 0 else values


def by_loops(image: Array, cell: int, bins: int, norm: str) -> Array:
    """Return the squares of the values of an image, block by block."""
    cells = cells_by_loops(image, cell, bins)
    rows, columns = (1 + max(places) for places in zip(*cells, strict=True))
    if (
        norm == "none"
    ):  # only the image as a whole is divided by something, so that its roots have unit length
        everything = [value for i in range(rows) for j in range(columns) for value in cells[i, j]]
        return np.array(divided(everything, sum(everything)))
    tall, wide = min(2, rows), min(2, columns)
    blocks = [
        [value for di in range(tall) for dj in range(wide) for value in cells[i + di, j + dj]]
        for i in range(rows - tall + 1)
        for j in range(columns - wide + 1)
    ]
    if norm == "clipped":
        clipped = [[min(value, 0.2) for value in divided(block, length(block))] for block in blocks]
        return np.concatenate([divided(block, length(block)) for block in clipped])
    # Soft: half of the root mean square of the strengths of all blocks is added to each, in squares.
    mean = sum(length(block) ** 2 for block in blocks) / len(blocks)
    return np.concatenate([divided(block, math.sqrt(length(block) ** 2 + mean / 4)) for block in blocks])


def values(images: Array, cell: int, bins: int, norm: str) -> Array:
    """Return the values of images (m, height, width)."""
    m, height, width = images.shape
    oriented = OrientedGradients(width, height, cell, bins, norm)
    found = oriented.values(images.reshape(m, height * width))
    assert (found.shape, found.dtype) == ((m, oriented.n_values), np.float32)
    return found


def noise(height: int, width: int, kind: str, seed: int = 0) -> Array:
    """Return two images of bytes, or of float32 of any sign and scale."""
    random = np.random.default_rng([seed, height, width])
    if kind == "uint8":
        return random.integers(0, 256, (2, height, width), dtype=np.uint8)
    return (random.normal(size=(2, height, width)) * np.array([3e4, 2e-3])[:, None, None]).astype(np.float32)


SIZES = [(1, 1), (1, 2), (2, 1), (1, 9), (11, 1), (2, 2), (3, 3), (5, 4), (7, 10), (12, 12), (13, 9)]


@pytest.mark.parametrize("norm", BLOCK_NORMS)
@pytest.mark.parametrize("bins", [4, 8, 12])
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_oriented_gradients_match_a_loop_over_pixels(norm: str, bins: int, kind: str) -> None:
    """Compared before the square root, which enlarges a rounding error near zero."""
    for number, (height, width) in enumerate(SIZES):
        cell = 1 + (number + bins) % 8
        images = noise(height, width, kind)
        for image, found in zip(images, values(images, cell, bins, norm), strict=True):
            squares, expected = np.square(found.astype(np.float64)), by_loops(image, cell, bins, norm)
            np.testing.assert_allclose(squares, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_cells_of_every_side(norm: str) -> None:
    for cell in range(1, 9):
        images = noise(17, 14, "uint8", seed=cell)
        found, expected = values(images, cell, 8, norm)[0], by_loops(images[0], cell, 8, norm)
        squares = np.square(found.astype(np.float64))
        np.testing.assert_allclose(squares, expected, rtol=0, atol=1e-5, err_msg=f"cell {cell}")


def test_an_image_of_32_x_32_has_the_documented_number_of_values() -> None:
    assert OrientedGradients(32, 32, 4, 8, "clipped").n_values == 1568
    assert OrientedGradients(28, 28, 4, 8, "soft").n_values == 1152
    assert OrientedGradients(28, 28, 4, 8, "none").n_values == 392


# scikit-image has directions without sign, not interpolated, gradients of 0 at the edges, and cells without
# overlap. It agrees where all gradients have the direction of a bin, none are at the edges, and no pixel
# belongs to more than one cell.


def two_tones(seed: int, height: int, width: int) -> Array:
    """Return a random image of black and one grey, whose gradients are multiples of 45 degrees."""
    random = np.random.default_rng(seed)
    image = np.zeros((height, width), np.uint8)
    image[2:-2, 2:-2] = random.choice([0, 201], (height - 4, width - 4))
    return image


def dots(seed: int, height: int, width: int) -> Array:
    """Isolated dots of any grey, whose gradients are multiples of 90 degrees."""
    image = np.zeros((height, width), np.uint8)
    places = np.s_[2:-2:3, 2:-2:3]
    image[places] = np.random.default_rng(seed).integers(0, 256, image[places].shape)
    return image


def folded(found: Array, bins: int) -> Array:
    """Return the squares of values, with opposite directions added."""
    squares = np.square(found.astype(np.float64)).reshape(-1, 2, bins // 2)
    return squares.sum(axis=1).ravel()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("make", "bins"), [(two_tones, 8), (dots, 4)], ids=["two tones", "dots"])
def test_clipped_blocks_of_pixels_match_scikit_image(make: object, bins: int, seed: int) -> None:
    image = make(seed, 11 + seed, 17 - seed)  # type: ignore[operator]
    expected = hog(image, bins // 2, (1, 1), (2, 2), block_norm="L2-Hys")
    found = folded(values(image[None], 1, bins, "clipped"), bins)
    assert expected.max() > 0.2
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["soft", "none"])
@pytest.mark.parametrize(("make", "bins"), [(two_tones, 8), (dots, 4)], ids=["two tones", "dots"])
def test_blocks_of_pixels_have_the_proportions_of_scikit_image(make: object, bins: int, norm: str) -> None:
    """However strong a block is, the directions within it are as frequent as there."""
    image = make(7, 12, 14)  # type: ignore[operator]
    expected = hog(image, bins // 2, (1, 1), (2, 2), block_norm="L2").reshape(-1, 2 * bins)
    found = folded(values(image[None], 1, bins, norm), bins)
    if norm == "none":
        cells = found.reshape(12, 14, bins // 2)
        corners = [cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]]
        found = np.concatenate(corners, axis=2)
    found = found.reshape(-1, 2 * bins)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    assert np.array_equal(lengths > 0, expected.any(axis=1, keepdims=True))
    np.testing.assert_allclose(found / np.where(lengths > 0, lengths, 1), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cell", [3, 5, 7])
@pytest.mark.parametrize("turned", [False, True])
def test_stripes_in_larger_cells_match_scikit_image(cell: int, turned: bool) -> None:
    """The gradients are only in the middle columns of cells, which overlapping cells do not share.

    Along the stripes, overlapping cells have the same sums as others. The edges of the image differ.
    """
    n = 6
    columns = np.zeros(n * cell)
    for number, step in enumerate(np.random.default_rng(cell).integers(-60, 60, n)):
        middle = number * cell + cell // 2
        columns[middle + 1 :: 2] += step
    image = np.broadcast_to(columns, (n * cell, n * cell)).astype(np.float32)
    image = image.T if turned else image
    theirs = hog(image, 2, (cell, cell), (2, 2), block_norm="L2-Hys", feature_vector=False)
    found = folded(values(image[None], cell, 4, "clipped"), 4).reshape(theirs.shape)
    inner = np.s_[1:-1, 1:-1]
    assert theirs[inner].any(axis=(2, 3, 4)).all()
    np.testing.assert_allclose(found[inner], theirs[inner], rtol=0, atol=1e-5)


shapes = st.tuples(st.integers(1, 10), st.integers(1, 10))
some_images = shapes.flatmap(lambda shape: arrays(np.uint8, (2, *shape)))
cells = st.integers(1, 8)
bin_numbers = st.sampled_from([2, 4, 6, 8, 12, 64])
norms = st.sampled_from(BLOCK_NORMS)


def assert_close(found: Array, expected: Array, bins: int) -> None:
    """Before the square root; the directions of many bins are less exact in float32."""
    found, expected = (np.square(values.astype(np.float64)) for values in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 if bins <= 12 else 1e-3)


@given(some_images, cells, bin_numbers, norms, st.integers(-1000, 1000), st.integers(1, 40))
def test_oriented_gradients_ignore_brightness_and_contrast(
    images: Array, cell: int, bins: int, norm: str, added: int, factor: int
) -> None:
    """Whole numbers, so that the changed images are not rounded.

    Up to a dozen directions, not even the square root of what is nearly zero changes by much, so that such
    copies of an image are found.
    """
    changed = (images.astype(np.float32) * factor + added).astype(np.float32)
    found, expected = (values(given, cell, bins, norm) for given in (changed, images))
    assert_close(found, expected, bins)
    if bins <= 12:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@given(some_images, cells, bin_numbers, norms)
def test_a_negative_has_the_opposite_directions(images: Array, cell: int, bins: int, norm: str) -> None:
    found = values(255 - images, cell, bins, norm).reshape(-1, bins)
    expected = np.roll(values(images, cell, bins, norm).reshape(-1, bins), bins // 2, axis=1)
    assert_close(found, expected, bins)


@given(some_images, cells, bin_numbers, norms, st.sampled_from(["left and right", "top and bottom"]))
def test_a_mirrored_image_has_mirrored_blocks_and_directions(
    images: Array, cell: int, bins: int, norm: str, exchanged: str
) -> None:
    """Direction b of n becomes n/2 - b if left and right are exchanged, and -b if top and bottom are."""
    _, height, width = images.shape
    oriented = OrientedGradients(width, height, cell, bins, norm)
    (rows, columns), (tall, wide) = oriented.blocks, (min(2, n) for n in oriented.cells)
    if norm == "none":
        tall = wide = 1
    arranged = values(images, cell, bins, norm).reshape(2, rows, columns, tall, wide, bins)
    if exchanged == "left and right":
        mirrored, axes, first = images[:, :, ::-1], (2, 4), bins // 2
    else:
        mirrored, axes, first = images[:, ::-1], (1, 3), 0
    expected = np.flip(arranged, axes)[..., (first - np.arange(bins)) % bins]
    found = values(mirrored, cell, bins, norm).reshape(expected.shape)
    assert_close(found, expected, bins)


@pytest.mark.parametrize("norm", BLOCK_NORMS)
@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_the_values_of_an_image_do_not_depend_on_the_batch(norm: str, kind: str) -> None:
    for size in ((1, 1), (1, 7), (6, 1), (9, 8), (32, 32), (90, 70)):
        images = np.concatenate([noise(*size, kind, seed) for seed in range(20)])
        together = values(images, 4, 8, norm)
        for start, stop in ((0, 1), (7, 8), (39, 40), (3, 6), (0, 33), (33, 40)):
            apart = values(images[start:stop], 4, 8, norm)
            assert np.array_equal(apart, together[start:stop]), (size, start, stop)
        assert np.array_equal(values(images[::-1], 4, 8, norm), together[::-1]), size


def test_an_empty_batch_has_no_gradients() -> None:
    assert values(np.empty((0, 5, 5), np.uint8), 2, 8, "soft").shape == (0, 32)


@given(some_images, cells, bin_numbers, norms)
def test_whole_numbers_in_float32_give_the_bits_of_bytes(
    images: Array, cell: int, bins: int, norm: str
) -> None:
    as_bytes, as_floats = (values(images.astype(dtype), cell, bins, norm) for dtype in (np.uint8, np.float32))
    assert np.array_equal(as_floats, as_bytes)


@given(some_images, cells, norms, st.sampled_from([1e-36, 1e-30, 1e-3, 1e30, 1e36]))
@settings(max_examples=40)
def test_huge_and_tiny_values_are_as_good_as_any(images: Array, cell: int, norm: str, scale: float) -> None:
    scaled = (images.astype(np.float64) * scale).astype(np.float32)
    assert_close(values(scaled, cell, 8, norm), values(images, cell, 8, norm), 8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_an_image_with_nan_or_infinity_has_values_that_are_not_finite(norm: str, bad: float) -> None:
    """So that it is refused, and the other images of its batch are not."""
    images = np.concatenate([noise(9, 8, "float32", seed) for seed in range(3)])
    expected = values(images, 2, 8, norm)
    for places in ((0, 0), (4, 4), (8, 7), np.s_[3:6, 2:5], np.s_[:, :]):
        spoilt = images.copy()
        spoilt[2][places] = bad
        spoilt[2, 0, 3] = 3e38
        spoilt[2, 2, 3] = -3e38
        found = values(spoilt, 2, 8, norm)
        assert not np.isfinite(found[2]).all()
        others = [0, 1, 3, 4, 5]
        assert np.array_equal(found[others], expected[others])


@pytest.mark.parametrize("norm", BLOCK_NORMS)
def test_a_blank_image_has_only_zeros(norm: str) -> None:
    for level, size in product([0, 77, 1e-30, 1e30, -3.4e38], [(1, 1), (1, 5), (9, 8)]):
        dtype = np.uint8 if level in (0, 77) else np.float32
        assert not values(np.full((3, *size), level, dtype), 3, 8, norm).any(), (level, size)
