"""Images laid over others: compared with loops over all ways and places."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from crnr_cli.solvers.overlay import details, overlay

WAYS = list(product((1, -1), (-10, -5, 0, 5, 10), (1.0, 0.9, 0.8, 0.7)))  # 0.7 covers less than half


def lay(over: np.ndarray, sign: int, degrees: float, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the image mirrored, turned and smaller, and which pixels it covers."""
    side = len(over)
    centre = (side - 1) / 2
    rows, columns = np.indices((side, side)) - centre
    turn = np.deg2rad(degrees)
    y = (rows * np.cos(turn) + columns * np.sin(turn)) / size + centre
    x = sign * (columns * np.cos(turn) - rows * np.sin(turn)) / size + centre
    inside = (y >= 0) & (y <= side - 1) & (x >= 0) & (x <= side - 1)
    return np.where(inside, map_coordinates(over.astype(float), [y, x], order=1, mode="nearest"), 0), inside


def plain_overlay(over: np.ndarray, under: np.ndarray) -> tuple[float, bool]:
    """Pixel by pixel: the best correlation where both are, if that is half of the area, and how."""
    side, found = len(over), []
    for sign, degrees, size in WAYS:
        laid, inside = lay(over, sign, degrees, size)
        for down, right in product(range(-side + 1, side), repeat=2):
            here = (slice(max(0, -down), side - max(0, down)), slice(max(0, -right), side - max(0, right)))
            there = (slice(max(0, down), side - max(0, -down)), slice(max(0, right), side - max(0, -right)))
            if inside[here].sum() < side**2 / 2:
                continue
            energies = (laid[here] ** 2).sum(), (under[there] ** 2 * inside[here]).sum()
            products = (laid[here] * under[there]).sum()
            found.append((products / np.sqrt(np.prod(np.maximum(energies, 1e-3))), sign < 0))
    best, is_mirrored = max(found)
    return float(best), is_mirrored


@pytest.mark.parametrize("side", [8, 11])
def test_overlay_is_what_trying_all_ways_and_places_gives(side: int) -> None:
    rng = np.random.default_rng(side)
    over = rng.normal(size=(side, side)).astype(np.float32)
    moved = np.roll(over, (2, -1), axis=(0, 1))
    under = np.stack(
        [over, over[:, ::-1], moved, 0.3 * moved[:, ::-1], rng.normal(size=(side, side)), 0 * over]
    )
    correlations, mirrored = overlay(over, under.astype(np.float32))
    expected = [plain_overlay(over, one) for one in under]
    np.testing.assert_allclose(correlations, [best for best, _ in expected], atol=1e-4)
    assert mirrored[:5].tolist() == [is_mirrored for _, is_mirrored in expected[:5]]
    assert mirrored[:4].tolist() == [False, True, False, True]
    assert correlations[:2] == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("sign", "degrees", "size"), [way for way in WAYS if way[2] > 0.7])
def test_each_way_is_found(sign: int, degrees: float, size: float) -> None:
    over = np.random.default_rng(1).normal(size=(24, 24)).astype(np.float32)
    laid, _ = lay(over, sign, degrees, size)
    found, mirrored = overlay(over, laid[np.newaxis].astype(np.float32))
    assert found.tolist() == [pytest.approx(1, abs=1e-4)]
    assert mirrored.tolist() == [sign < 0]


def test_pixels_at_the_edge_are_covered() -> None:
    ring = np.random.default_rng(2).normal(size=(9, 9)).astype(np.float32)
    ring[1:-1, 1:-1] = 0
    (found,), _ = overlay(ring, ring[np.newaxis])
    assert found == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("rows", "is_found"), [(5, True), (4, False)])
def test_half_of_the_area_is_enough(rows: int, is_found: bool) -> None:
    over, under = np.random.default_rng(3).normal(size=(2, 10, 10)).astype(np.float32)
    under[-rows:] = over[:rows]
    (found,), _ = overlay(over, under[np.newaxis])
    assert bool(found > 0.999) is is_found


def test_faint_details_do_not_match_by_chance() -> None:
    """Their energy counts as 0.001 at least, so that next to nothing is like nothing."""
    over = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    faint = over * np.float32(1e-3 / np.linalg.norm(over))
    (found,), _ = overlay(over, faint[np.newaxis])
    assert found == pytest.approx(1e-3 / np.sqrt(1e-3), rel=1e-3)


def test_details_are_the_rest_of_a_local_mean_by_its_deviation() -> None:
    images = np.random.default_rng(0).uniform(0, 255, (2, 9, 9)).astype(np.float32)

    def local_mean(values: np.ndarray) -> np.ndarray:
        padded = np.pad(values.astype(float), ((0, 0), (3, 3), (3, 3)), mode="edge")
        return np.mean([padded[:, i : i + 9, j : j + 9] for i in range(7) for j in range(7)], axis=0)

    rest = images - local_mean(images)
    found = details(images)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, rest / np.sqrt(local_mean(rest**2) + 25), atol=1e-4)
    np.testing.assert_allclose(details(images.astype(np.uint8)), details(images.astype(np.uint8) + 0.0))
    assert not details(np.full((1, 9, 9), 100, np.uint8)).any()
