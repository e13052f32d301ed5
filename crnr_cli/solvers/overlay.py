"""Lay one small image over another, in 30 ways, to see whether they show the same scene.

An image is laid mirrored or not, turned and smaller, at every place where both share half of their area.
Details are the rest of an image without its local brightness and contrast: colours and light do not matter,
and a cover costs its own area only.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from crnr_cli.arrays import Array

_ANGLES = (-10, -5, 0, 5, 10)  # degrees
_SIZES = (1.0, 0.9, 0.8)  # of the image that is laid over the other; 0.7 would cover less than half
_WINDOW = 7  # pixels of the small image, for local brightness and contrast
_NOISE = 25.0  # variance of the brightness where there is no detail
_MIN_SHARED = 0.5  # of the area
_LEAST_ENERGY = 1e-3


def details(images: Array) -> Array:
    """Return (m, side, side): images without their local brightness and contrast."""
    from scipy.ndimage import uniform_filter  # slow to import, and only audit needs it

    def local_mean(values: Array) -> Array:
        mean: Array = uniform_filter(values, (0, _WINDOW, _WINDOW), mode="nearest")
        return mean

    values = images.astype(np.float32)
    rest = values - local_mean(values)
    found: Array = rest / np.sqrt(local_mean(rest * rest) + np.float32(_NOISE))
    return found


class _Ways(NamedTuple):
    """The ways to lay one image over another: mirrored or not, turned, smaller."""

    pixels: Array  # (4, ways * side * side): the four pixels that each laid pixel is mixed from
    shares: Array  # (4, ways * side * side): their shares; 0 beyond the image
    covers: Array  # (ways, P, P / 2 + 1): the conjugate transform of the covered area
    is_shared: Array  # (ways, P, P): the places where enough area is shared
    is_mirrored: Array  # (ways,)


@cache
def _list_ways(side: int) -> _Ways:
    ways = list(product((1, -1), _ANGLES, _SIZES))
    centre = (side - 1) / 2
    grid = np.moveaxis(np.indices((side, side)), 0, -1) - centre
    where: Array = np.empty((len(ways), side, side, 2))
    for number, (sign, angle, size) in enumerate(ways):
        cosine, sine = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
        where[number] = grid @ np.array([[cosine, -sine], [sine, cosine]]) / size * (1, sign) + centre
    where = where.reshape(-1, 2)
    inside = ((where >= 0) & (where <= side - 1)).all(axis=1)
    low = np.clip(where.astype(np.int64), 0, side - 2)
    down, right = (where - low).T
    corners = list(product((0, 1), repeat=2))
    pixels = [(low[:, 0] + i) * side + low[:, 1] + j for i, j in corners]
    shares = [(down if i else 1 - down) * (right if j else 1 - right) * inside for i, j in corners]
    covers = np.conj(_transform(inside.reshape(-1, side, side)))
    shared = _transform_back(_transform(np.ones((side, side))) * covers)
    return _Ways(
        np.stack(pixels),
        np.stack(shares).astype(np.float32),
        covers,
        shared >= _MIN_SHARED * side**2 - 0.5,
        np.array([sign < 0 for sign, *_ in ways]),
    )


def overlay(over: Array, under: Array) -> tuple[Array, Array]:
    """Lay the details of one image over the details of others.

    Return (m,) the correlation where both are, in the best way and at the best place, and (m,) whether the
    image is mirrored for it.
    """
    side = over.shape[-1]
    ways = _list_ways(side)
    laid = (over.reshape(-1)[ways.pixels] * ways.shares).sum(axis=0).reshape(-1, side, side)
    energy = _transform_back(_transform(np.ones((side, side))) * np.conj(_transform(laid * laid)))
    energy_under = _transform_back(_transform(under * under)[:, np.newaxis] * ways.covers)
    products = _transform_back(_transform(under)[:, np.newaxis] * np.conj(_transform(laid)))
    products /= np.sqrt(np.maximum(energy, _LEAST_ENERGY) * np.maximum(energy_under, _LEAST_ENERGY))
    best = np.where(ways.is_shared, products, -1).max(axis=(2, 3))
    chosen = best.argmax(axis=1)
    return best[np.arange(len(under)), chosen], ways.is_mirrored[chosen]


def _transform(images: Array) -> Array:
    """Return the transforms of images, padded by half: images that are farther apart share too little."""
    from scipy.fft import rfft2

    padded = images.shape[-1] * 3 // 2
    found: Array = rfft2(images.astype(np.float32), (padded, padded))
    return found


def _transform_back(spectra: Array) -> Array:
    from scipy.fft import irfft2

    side = spectra.shape[-2]
    found: Array = irfft2(spectra, (side, side))
    return found
