"""Colour histograms: how often each of 64 colours occurs in every quarter of a picture."""

from __future__ import annotations

from functools import cache

import numpy as np

from crnr_cli.arrays import Array

_LEVELS = 4  # of red, of green and of blue
N_COLORS = 4 * _LEVELS**3
_PIXELS_AT_ONCE = 2**15  # so that the arrays of a few pictures stay in the cache of a core
_CHROMA = 24  # difference of two bands, of 255, from which a pixel has a colour
_COLORED_SHARE = 0.02  # of the pixels, from which a picture is in colour

# How bright red, green and blue appear, in thousandths: whole numbers, so that equal colours of a picture
# have exactly equal brightness.
_BRIGHTNESS = np.array([299, 587, 114], np.float32)


def brightness(pixels: Array) -> Array:
    """(m, pixels), from the bytes of pictures in colour, (m, pixels * 3)."""
    grey: Array = _by_pixel(pixels).astype(np.float32) @ _BRIGHTNESS
    return grey


def are_colored(pixels: Array) -> Array:
    """(m,): which pictures, (m, pixels * 3), have more than greys and the noise of a camera."""
    bands = _by_pixel(pixels).astype(np.float32)
    chroma = bands.max(axis=2) - bands.min(axis=2)
    colored: Array = (chroma > _CHROMA).mean(axis=1) >= _COLORED_SHARE
    return colored


def histograms(pixels: Array, width: int, height: int) -> Array:
    """(m, N_COLORS): the square root of the frequencies of the colours, quarter by quarter.

    A pixel counts for the nearest levels of every band, linearly interpolated, so that a small change of
    colour is a small change of the histogram.
    """
    out = np.empty((len(pixels), 4, _LEVELS**2, _LEVELS), np.float32)
    step = max(1, _PIXELS_AT_ONCE // (width * height))
    middle, centre = (height + 1) // 2, (width + 1) // 2
    for start in range(0, len(pixels), step):
        pictures = pixels[start : start + step].reshape(-1, height, width, 3)
        quarters = [
            pictures[:, rows, columns]
            for rows in (slice(middle), slice(middle, None))
            for columns in (slice(centre), slice(centre, None))
        ]
        for number, quarter in enumerate(quarters):
            # Bytes, even if an estimator is given them as other numbers.
            values = quarter.astype(np.uint8, copy=False)
            weights = _weights()[values.reshape(len(quarter), quarter.shape[1] * quarter.shape[2], 3)]
            red, green, blue = (weights[:, :, band] for band in range(3))
            both = red[..., :, np.newaxis] * green[..., np.newaxis, :]
            both = both.reshape(*both.shape[:2], _LEVELS**2)
            np.matmul(both.transpose(0, 2, 1), blue, out=out[start : start + step, number])
    np.sqrt(out, out=out)
    return out.reshape(len(pixels), N_COLORS)


def _by_pixel(pixels: Array) -> Array:
    return pixels.reshape(len(pixels), pixels.shape[1] // 3, 3)


@cache
def _weights() -> Array:
    """(256, levels): what a byte counts for each level; these are evenly spaced from 0 to 255."""
    places = np.arange(256) * ((_LEVELS - 1) / 255)
    weights: Array = np.maximum(0, 1 - np.abs(places[:, np.newaxis] - np.arange(_LEVELS)))
    return weights.astype(np.float32)
