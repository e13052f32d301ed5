"""Perceptual hashes and the likeness of small images."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import scipy.fft

from crnr_cli.gallery.duplicates import correlation, likeness, perceptual_hashes, read_small_images
from crnr_cli.images.pool import DecoderPool
from helpers.samples import noise


def images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)


def test_the_hash_is_the_sign_of_the_lowest_frequencies() -> None:
    """As ImageHash defines phash: the first 8 x 8 of a DCT of 32 x 32, above their median or not."""
    for one, bits in zip(images(), perceptual_hashes(images()), strict=True):
        low = scipy.fft.dct(scipy.fft.dct(one.astype(float), axis=0), axis=1)[:8, :8]
        assert (bits.reshape(8, 8) > 0).tolist() == (low > np.median(low)).tolist()


def test_correlation_matches_numpy() -> None:
    one, other = images(), images()[::-1]
    expected = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(correlation(one, other), expected, atol=1e-6)


def test_likeness_ignores_brightness_and_contrast() -> None:
    dark = (images() // 2 + 20).astype(np.uint8)
    assert (likeness(images(), dark) > 0.999).all()


def test_likeness_finds_a_cut_copy() -> None:
    """An image cut by 1/32 of its width at one side, and stretched again by plain interpolation."""
    x = np.linspace(0, 1, 32)
    whole = 128 + 100 * np.sin(40 * x[:, None] + 9 * x) * np.cos(35 * x)
    places = 1 + np.arange(32) * 30 / 31
    cut = np.array([np.interp(places, np.arange(32), row) for row in whole])
    pair = whole[None], cut[None]
    assert correlation(*pair)[0] < 0.95
    assert likeness(*pair)[0] > 0.98
    assert likeness(*pair)[0] == likeness(*pair[::-1])[0]


def test_only_files_of_the_same_content_are_read(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths[:3]):
        noise(i, (32, 32)).save(path)
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "" for path in paths]
    noise(9).save(paths[1])
    found, places = read_small_images([str(path) for path in paths], hashes, DecoderPool(1))
    assert places.tolist() == [0, 2]
    assert found.tolist() == [np.asarray(noise(i, (32, 32))).tolist() for i in (0, 2)]
