"""Perceptual hashes and the likeness of small images."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import scipy.fft
from PIL import Image

from crnr_cli.gallery import duplicates
from crnr_cli.gallery.duplicates import correlation, likeness, perceptual_hashes, read_small_images
from crnr_cli.images.pool import DecoderPool
from helpers.samples import noise


def images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32), dtype=np.uint8)


def test_the_hash_is_the_sign_of_the_lowest_frequencies() -> None:
    """As ImageHash defines phash: the first 8 x 8 of a DCT of 32 x 32, above their median or not."""
    for one, bits in zip(images(), perceptual_hashes(images()), strict=True):
        low = scipy.fft.dct(scipy.fft.dct(one.astype(float), axis=0), axis=1)[:8, :8]
        assert bits.reshape(8, 8).tolist() == np.where(low > np.median(low), 1, -1).tolist()


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


def smooth(seed: int, count: int = 1) -> np.ndarray:
    """Return images of waves, which linear interpolation keeps."""
    x = np.linspace(0, 1, 32)
    rng = np.random.default_rng(seed)
    waves = [a * np.sin(b * x[:, None] + c * x + d) for a, b, c, d in rng.uniform(3, 12, (5 * count, 4))]
    return np.array(waves).reshape(count, 5, 32, 32).sum(axis=1).astype(np.float32)


@pytest.mark.parametrize("percent", [1, 2, 3, 4])
@pytest.mark.parametrize("ends", [(1, 0), (0, 1), (0.5, 0.5)])
@pytest.mark.parametrize("axis", [0, 1])
def test_likeness_finds_the_cut_that_pillow_makes(percent: int, ends: tuple[float, float], axis: int) -> None:
    """Up to 4% of the height or width are cut off at one end or both; Pillow stretches the rest."""
    (whole,) = smooth(3)
    if axis == 1:  # so that no cut of the height is a detour
        whole = np.repeat(whole[:1], 32, axis=0)
    begin, end = (32 * percent / 100 * share for share in ends)
    box = (0, begin, 32, 32 - end) if axis == 0 else (begin, 0, 32 - end, 32)
    cut = np.asarray(Image.fromarray(whole).resize((32, 32), Image.Resampling.BILINEAR, box))
    assert likeness(whole[None], cut[None])[0] == pytest.approx(1, abs=5e-6)
    assert likeness(cut[None], whole[None])[0] == pytest.approx(1, abs=5e-6)
    assert correlation(whole[None], cut[None])[0] < 1 - 1e-5


def test_an_image_of_one_colour_is_like_no_other() -> None:
    flat = np.full((1, 32, 32), 77, np.uint8)
    assert correlation(flat, images(1)).tolist() == [0]
    assert abs(likeness(flat, images(1))[0]) < 0.1


@pytest.mark.parametrize("within", [True, False])
def test_the_tenth_neighbour_shows_how_alike_others_are(
    within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = smooth(5, count=14)
    others = some if within else smooth(6, count=11)
    both = np.corrcoef(some.reshape(14, -1), others.reshape(len(others), -1))[:14, 14:]
    expected = 1 - np.sort(both, axis=1)[:, ::-1][:, 10 if within else 9]
    everyone, few_of_them = np.arange(14), np.array([7, 2, 7])
    found = duplicates._to_neighbour(some, others, within, everyone)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    monkeypatch.setattr(duplicates, "_BLOCK", 30)
    for places in (everyone, few_of_them):
        found = duplicates._to_neighbour(some, others, within, places)
        np.testing.assert_allclose(found, expected[places], atol=1e-6)
    few = others[: 10 if within else 9]
    assert duplicates._to_neighbour(some, few, within, everyone).tolist() == [1] * 14


def test_a_pair_needs_more_likeness_where_others_are_alike_too() -> None:
    """12% of the distance from other images may be missing, but from 0.5% to 3.5% at most."""
    found = duplicates._required_likeness(np.array([0.0, 0.01, 0.1, 0.2, 0.3, 1.0]))
    np.testing.assert_allclose(found, [0.995, 0.995, 0.988, 0.976, 0.965, 0.965])


def test_looks_without_some_images() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
    looks = duplicates.Looks.of(rows, images(2), np.array([1, 3]))
    np.testing.assert_allclose(looks.vectors, [[0.6, 0.8], [0, 0], [0, 1], [1, 0]])
    assert looks.vectors.dtype == np.float32
    assert (looks.image_of.tolist(), looks.with_images.tolist()) == ([-1, 0, -1, 1], [1, 3])
    picked = looks.pick(np.array([0, 3]))
    assert (picked.image_of.tolist(), picked.with_images.tolist()) == ([-1, 0], [1])
    np.testing.assert_array_equal(picked.images, images(2)[1:])
    assert duplicates.Looks.of(rows).with_images.tolist() == []
