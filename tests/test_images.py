"""Pictures as a person sees them, and what becomes of files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import picture
from PIL import Image

from crnr_cli.errors import SampleError
from crnr_cli.images import read_pixels
from crnr_cli.pixels import Form

NATIVE = Form(None)


def pixels(path: Path, form: Form = NATIVE) -> np.ndarray:
    found = read_pixels(str(path), form)
    values = np.frombuffer(found.data, np.float32 if found.is_float else np.uint8)
    return values.reshape(found.height, found.width, found.bands).squeeze(-1 if found.bands == 1 else ())


def status(path: Path, form: Form = NATIVE) -> str:
    with pytest.raises(SampleError) as caught:
        read_pixels(str(path), form)
    return caught.value.status


@pytest.mark.parametrize("suffix", ["png", "gif", "bmp", "tiff", "webp", "pgm"])
def test_grey_values_come_back_as_they_are(tmp_path: Path, suffix: str) -> None:
    image = picture(0)
    image.save(tmp_path / f"x.{suffix}", **({"lossless": True} if suffix == "webp" else {}))
    assert (pixels(tmp_path / f"x.{suffix}") == np.asarray(image)).all()


def test_the_eight_orientations_of_one_picture_are_one(tmp_path: Path) -> None:
    seen = picture(1, (6, 4))
    turned = {
        1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
    }  # fmt: skip
    for orientation, turn in turned.items():
        exif = Image.Exif()
        exif[0x0112] = orientation
        stored = seen.transpose(turn) if turn is not None else seen
        stored.save(tmp_path / "x.png", exif=exif)
        assert (pixels(tmp_path / "x.png") == np.asarray(seen)).all(), orientation
        header = read_pixels(str(tmp_path / "x.png"), Form(None, header_only=True))
        assert (header.width, header.height) == (6, 4)


def test_hidden_colour_under_transparency_is_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (2, 1), (10, 20, 30, 0))
    image.putpixel((1, 0), (10, 20, 30, 255))
    image.save(tmp_path / "x.png")
    assert pixels(tmp_path / "x.png", Form(None, color=True)).tolist() == [[[255, 255, 255], [10, 20, 30]]]


def test_a_16_bit_ramp_is_not_clipped(tmp_path: Path) -> None:
    ramp = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(tmp_path / "x.png")
    assert (pixels(tmp_path / "x.png") == ramp).all()
    colored = pixels(tmp_path / "x.png", Form(None, color=True))
    assert (colored == ramp[:, :, None]).all()


def test_only_the_first_frame_counts(tmp_path: Path) -> None:
    picture(0).save(tmp_path / "x.tiff", save_all=True, append_images=[picture(1)])
    assert (pixels(tmp_path / "x.tiff") == np.asarray(picture(0))).all()


def test_a_large_jpeg_is_brought_to_size(tmp_path: Path) -> None:
    picture(2, (16, 16)).resize((640, 480), Image.Resampling.BICUBIC).save(tmp_path / "x.jpg", quality=95)
    small = pixels(tmp_path / "x.jpg", Form((16, 12)))
    with Image.open(tmp_path / "x.jpg") as image:
        whole = np.asarray(image.resize((16, 12), Image.Resampling.BOX), float)
    assert small.shape == (12, 16)
    assert np.corrcoef(small.ravel(), whole.ravel())[0, 1] > 0.98


def test_bad_files_each_have_their_status(tmp_path: Path) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "page.jpg").write_text("<html>not found</html>")
    picture(0, (64, 64)).save(tmp_path / "whole.png")
    whole = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "folder.png").mkdir()
    assert status(tmp_path / "empty.jpg") == "empty_file"
    assert status(tmp_path / "page.jpg") == "not_image"
    assert status(tmp_path / "cut.png") == "truncated"
    assert status(tmp_path / "none.png") == "vanished"
    assert status(tmp_path / "folder.png") == "not_regular"
    assert status(tmp_path / "whole.png", Form(None, max_pixels=4095)) == "too_large"
