"""Images laid over others: compared with loops over all ways and places."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from crnr_cli.solvers.overlay import details, overlay


def plain_overlay(over: np.ndarray, under: np.ndarray) -> tuple[float, bool]:
    """Pixel by pixel: the best correlation where both are, if that is half of the area, and how."""
    side = len(over)
    centre, found = (side - 1) / 2, []
    rows, columns = np.indices((side, side)) - centre
    for sign, degrees, size in product((1, -1), (-10, -5, 0, 5, 10), (1.0, 0.9, 0.8, 0.7)):
        turn = np.deg2rad(degrees)
        y = (rows * np.cos(turn) + columns * np.sin(turn)) / size + centre
        x = sign * (columns * np.cos(turn) - rows * np.sin(turn)) / size + centre
        inside = (y >= 0) & (y <= side - 1) & (x >= 0) & (x <= side - 1)
        laid = np.where(inside, map_coordinates(over.astype(float), [y, x], order=1, mode="nearest"), 0)
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
