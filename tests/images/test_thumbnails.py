"""Thumbnails for pages: small copies of images, and images inside a page."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.images.thumbnails import SIDE, data_uri, read_thumbnails
from helpers.samples import draw_image, save_turned


def test_small_images_are_shown_as_they_are_and_the_rest_is_left_out(tmp_path: Path) -> None:
    draw_image(0, 1, (9, 7)).save(tmp_path / "small.png")
    (tmp_path / "text.png").write_text("no image")
    whole = Image.open(tmp_path / "small.png").tobytes()
    (tmp_path / "short.png").write_bytes((tmp_path / "small.png").read_bytes()[:60])  # its header is good
    names = [str(tmp_path / name) for name in ("small.png", "text.png", "short.png", "none.png")]
    found = read_thumbnails(names)
    assert list(found) == names[:1]
    assert found[names[0]].shape == (7, 9, 3)
    assert (found[names[0]] == np.frombuffer(whole, np.uint8).reshape(7, 9, 1)).all()


def test_large_images_are_made_small_and_keep_their_shape(tmp_path: Path) -> None:
    name = str(tmp_path / "large.png")
    draw_image(0, 1, (400, 200)).save(name)
    assert read_thumbnails([name])[name].shape == (SIDE // 2, SIDE, 3)
    assert read_thumbnails([name], longest=50)[name].shape == (25, 50, 3)
    draw_image(0, 1, (2, 900)).save(name)
    assert read_thumbnails([name])[name].shape == (SIDE, 1, 3)


@pytest.mark.parametrize("suffix", [".jpg", ".tif", ".png"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_turned_image_is_shown_upright(tmp_path: Path, suffix: str, orientation: int) -> None:
    """About as Pillow shows the image that was not turned, reduced to the same size."""
    upright = draw_image(0, 1, (600, 300))
    name = str(tmp_path / f"turned{suffix}")
    save_turned(upright, Path(name), orientation)
    small = read_thumbnails([name])[name]
    assert small.shape == (SIDE // 2, SIDE, 3)
    expected = np.asarray(upright.resize((SIDE, SIDE // 2), Image.Resampling.BOX), float)
    assert np.abs(small[..., 0] - expected).mean() < 4


def test_more_than_8_bits_are_stretched_to_be_seen(tmp_path: Path) -> None:
    name = str(tmp_path / "deep.png")
    Image.fromarray(np.array([[1000, 1100], [1200, 2000]], np.uint16)).save(name)
    assert read_thumbnails([name])[name][..., 0].tolist() == [[0, 25], [51, 255]]


def test_an_image_inside_a_page_is_that_image() -> None:
    small = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    kind, data = data_uri(small).split(",")
    assert kind == "data:image/png;base64"
    assert (np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))) == small).all()
    assert data_uri(np.zeros((SIDE, 20, 3), np.uint8)).startswith("data:image/jpeg;base64,")
