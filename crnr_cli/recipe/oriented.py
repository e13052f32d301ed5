"""Oriented gradients: how strongly, and in which directions, brightness changes in every region of an image.

An image is divided into cells. Each cell has a histogram of the directions of the gradient over the full
circle, to which a pixel contributes its magnitude: linearly interpolated between the two nearest directions
and the nearest cells. Blocks of 2 x 2 cells, one at every cell, are divided by their strength.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass

_FLOOR = 0.5  # for soft: the share of an image's mean strength that is added to every block's strength
_CLIP = 0.2  # for clipped: the largest value of a block, before it gets unit length again
_ROUNDING = 2.5e-7  # of an angle, as a share of the full circle
_PIXELS_AT_ONCE = 2**15  # so that the arrays of a few images stay in the cache of a core


@dataclass(frozen=True)
class OrientedGradients:
    """Turns batches of images into the values of their blocks, in float32."""

    width: int
    height: int
    cell: int  # side in pixels; adjusted slightly if it does not divide the image evenly
    bins: int  # directions
    norm: str  # how blocks are normalized

    @property
    def cells(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        return max(1, round(self.height / self.cell)), max(1, round(self.width / self.cell))

    @property
    def blocks(self) -> tuple[int, int]:
        """Rows and columns of blocks; of cells if there is no normalization."""
        rows, columns = self.cells
        return (rows, columns) if self.norm == "none" else (max(1, rows - 1), max(1, columns - 1))

    @property
    def _cells_per_block(self) -> tuple[int, int]:
        rows, columns = self.cells
        return (1, 1) if self.norm == "none" else (min(2, rows), min(2, columns))

    @property
    def n_per_block(self) -> int:
        rows, columns = self._cells_per_block
        return rows * columns * self.bins

    @property
    def n_values(self) -> int:
        rows, columns = self.blocks
        return rows * columns * self.n_per_block

    def values(self, grey: Array) -> Array:
        """Return (m, n_values), for images (m, height * width) of any scale: block by block, row by row."""
        out = np.empty((len(grey), self.n_values), np.float32)
        step = max(1, _PIXELS_AT_ONCE // (self.width * self.height))
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity stay, and are reported later
            for start in range(0, len(grey), step):
                images = grey[start : start + step].reshape(-1, self.height, self.width)
                cells = self._pool_cells(*_gradient(images))
                self._normalize(cells, out[start : start + step])
        return out

    @cached_property
    def _windows(self) -> tuple[Array, Array]:
        """The weights of the rows and of the columns of pixels in each row and column of cells."""
        rows, columns = self.cells
        return _triangles(self.height, rows).T.copy(), _triangles(self.width, columns)

    def _pool_cells(self, down: Array, right: Array) -> Array:
        """Return (m, rows, columns, bins): the histogram of every cell."""
        of_rows, of_columns = self._windows
        magnitude = np.hypot(right, down)
        # Angles are measured in bins, from 0 to `bins`; direction 0 is also direction `bins`.
        angle = np.arctan2(down, right)
        angle *= np.float32(self.bins / (2 * np.pi))
        np.add(angle, np.float32(self.bins), out=angle, where=angle < 0)
        # A bin's share of a pixel, magnitude * max(0, 1 - |angle - bin|), without products for every bin.
        distance = np.multiply(angle, magnitude, out=angle)
        # A pixel in the direction of a bin adds nothing to the next bins, despite rounding: the square root
        # would enlarge it, and copies of an image in other depths would differ.
        height = magnitude * np.float32(1 - _ROUNDING * self.bins)
        share = np.empty((self.bins, *magnitude.shape), np.float32)
        for number in range(self.bins):
            _hat(distance, height, share[number])
            distance -= magnitude
        share[0] += _hat(distance, height, np.empty_like(magnitude))
        pooled = of_rows @ (share @ of_columns)
        return np.ascontiguousarray(pooled.transpose(1, 2, 3, 0))

    def _normalize(self, cells: Array, out: Array) -> None:
        """Fill `out` with blocks: the square root of cells divided by the norm of their block."""
        if self.norm == "none":  # cells keep the scale of the pixels; whole images get unit length
            out[:] = np.sqrt(cells, out=cells).reshape(out.shape)
            out *= _inverse(np.sqrt(np.einsum("mv,mv->m", out, out)))[:, np.newaxis]
            return
        m, (rows, columns), (tall, wide) = len(cells), self.blocks, self._cells_per_block
        corners = [
            (slice(i, i + rows), slice(j, j + columns), i * wide + j)
            for i in range(tall)
            for j in range(wide)
        ]
        out = out.reshape(m, rows, columns, tall * wide, self.bins)
        strengths = np.einsum("myxb,myxb->myx", cells, cells)
        squares = sum((strengths[:, i, j] for i, j, _ in corners), np.zeros((m, rows, columns), np.float32))
        if self.norm == "soft":
            squares += np.float32(_FLOOR**2) * squares.mean(axis=(1, 2), keepdims=True)
        factors = _inverse(np.sqrt(squares))[..., np.newaxis]
        if self.norm == "soft":  # the product of the roots is the same, and there are fewer cells
            np.sqrt(factors, out=factors)
            roots = np.sqrt(cells)
            for i, j, corner in corners:
                np.multiply(roots[:, i, j], factors, out=out[:, :, :, corner])
            return
        for i, j, corner in corners:
            np.multiply(cells[:, i, j], factors, out=out[:, :, :, corner])
        np.minimum(out, np.float32(_CLIP), out=out)
        out *= _inverse(np.sqrt(np.einsum("myxcb,myxcb->myx", out, out)))[..., np.newaxis, np.newaxis]
        np.sqrt(out, out=out)


def _gradient(images: Array) -> tuple[Array, Array]:
    """Return central differences downwards and to the right, one-sided at the edges, like numpy.gradient."""
    images = _scale(images)
    down, right = np.zeros_like(images), np.zeros_like(images)
    if images.shape[1] > 1:
        np.subtract(images[:, 2:], images[:, :-2], out=down[:, 1:-1])
        down[:, 1:-1] *= np.float32(0.5)
        np.subtract(images[:, 1], images[:, 0], out=down[:, 0])
        np.subtract(images[:, -1], images[:, -2], out=down[:, -1])
    if images.shape[2] > 1:
        np.subtract(images[:, :, 2:], images[:, :, :-2], out=right[:, :, 1:-1])
        right[:, :, 1:-1] *= np.float32(0.5)
        np.subtract(images[:, :, 1], images[:, :, 0], out=right[:, :, 0])
        np.subtract(images[:, :, -1], images[:, :, -2], out=right[:, :, -1])
    return down, right


def _scale(images: Array) -> Array:
    """Return the images in float32, scaled so that values can be squared.

    The factor is a power of 4, which changes no digit, so the result is the same for all scales.
    """
    if images.dtype == np.uint8:
        return images.astype(np.float32)
    largest = np.abs(images).max(axis=(1, 2), keepdims=True)
    _, exponents = np.frexp(np.where(np.isfinite(largest), largest, 1))
    scaled: Array = np.ldexp(images, -(exponents // 2 * 2)).astype(np.float32, copy=False)
    return scaled


def _hat(distance: Array, height: Array, out: Array) -> Array:
    """Return max(0, height - |distance|)."""
    np.abs(distance, out=out)
    np.subtract(height, out, out=out)
    positive: Array = np.maximum(out, 0, out=out)
    return positive


def _inverse(values: Array) -> Array:
    """Return 1 / values, and 0 for 0: a block without any gradient stays empty."""
    inverse: Array = np.divide(1, values, out=np.zeros_like(values), where=values != 0)
    return inverse


def _triangles(side: int, cells: int) -> Array:
    """Return (side, cells): the weight of each pixel in each cell, falling to 0 at the next centres."""
    width = side / cells
    pixels, centres = np.arange(side) + 0.5, (np.arange(cells) + 0.5) * width
    weights: Array = np.maximum(0, 1 - np.abs(pixels[:, np.newaxis] - centres) / width)
    return weights.astype(np.float32)
