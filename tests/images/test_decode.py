"""Decoding one image: its pixels, and a status for every reason to refuse it."""

from __future__ import annotations

import hashlib
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms

from crnr_cli.errors import SampleError
from crnr_cli.images import decode as images
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels
from helpers.samples import TURNS, draw_image, save_turned

AS_IT_IS = PixelRequest(None)


def values(pixels: Pixels) -> np.ndarray:
    flat = np.frombuffer(pixels.data, np.float32 if pixels.is_float else np.uint8)
    return flat.reshape(pixels.height, pixels.width, pixels.bands)


def status(path: Path, form: PixelRequest = AS_IT_IS) -> tuple[str, str]:
    with pytest.raises(SampleError) as refused:
        read_pixels(str(path), form)
    return refused.value.status, refused.value.detail


def test_read_pixels_returns_the_grey_values_of_the_file(tmp_path: Path) -> None:
    seen = draw_image(0, 1, (5, 4))
    seen.save(tmp_path / "x.png")
    pixels = read_pixels(str(tmp_path / "x.png"), PixelRequest(None, with_hash=True))
    np.testing.assert_array_equal(values(pixels)[:, :, 0], np.asarray(seen))
    assert pixels.sha256 == hashlib.sha256((tmp_path / "x.png").read_bytes()).hexdigest()


def test_colour_and_its_size(tmp_path: Path) -> None:
    Image.new("RGB", (6, 4), (10, 20, 30)).save(tmp_path / "x.png")
    pixels = read_pixels(str(tmp_path / "x.png"), PixelRequest((3, 2), color=True))
    np.testing.assert_array_equal(values(pixels), np.tile([10, 20, 30], (2, 3, 1)))
    assert pixels.sha256 == ""


@pytest.mark.parametrize(("alpha", "expected"), [(0, 255), (255, 10)])
def test_transparency_is_on_white(tmp_path: Path, alpha: int, expected: int) -> None:
    Image.new("LA", (2, 2), (10, alpha)).save(tmp_path / "x.png")
    assert set(read_pixels(str(tmp_path / "x.png"), PixelRequest(None)).data) == {expected}


def test_16_bits_stay_16_bits(tmp_path: Path) -> None:
    ramp = np.arange(0, 60_000, 5_000, dtype=np.uint16).reshape(3, 4)
    Image.fromarray(ramp).save(tmp_path / "x.png")
    grey = read_pixels(str(tmp_path / "x.png"), PixelRequest(None))
    np.testing.assert_array_equal(values(grey)[:, :, 0], ramp.astype(np.float32))
    color = read_pixels(str(tmp_path / "x.png"), PixelRequest(None, color=True))
    np.testing.assert_array_equal(values(color), np.repeat(ramp[:, :, None], 3, axis=2))


def test_header_size_applies_the_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    draw_image(0, 1, (5, 4)).save(tmp_path / "x.png", exif=exif)
    header = read_pixels(str(tmp_path / "x.png"), PixelRequest(None, header_only=True))
    assert (header.width, header.height, header.data) == (4, 5, b"")
    turned = read_pixels(str(tmp_path / "x.png"), PixelRequest(None))
    assert (turned.width, turned.height) == (4, 5)
    np.testing.assert_array_equal(values(turned)[:, :, 0], np.rot90(np.asarray(draw_image(0, 1, (5, 4))), -1))


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("x.png", {}),
        ("x.jpg", {"quality": 100}),
        ("x.webp", {"lossless": True}),
        ("x.tif", {}),
        ("x.tif", {"compression": "tiff_lzw"}),
        ("x.tif", {"compression": "tiff_adobe_deflate"}),
        ("x.heic", {"quality": -1}),
        ("x.avif", {"quality": 100}),
    ],
    ids=["png", "jpeg", "webp", "tiff", "tiff in lzw", "tiff in deflate", "heic", "avif"],
)
def test_an_image_is_turned_upright_once(
    tmp_path: Path, name: str, options: dict[str, object], orientation: int
) -> None:
    upright = draw_image(3, 1, (24, 16))
    save_turned(upright, tmp_path / name, orientation, **options)
    header = read_pixels(str(tmp_path / name), PixelRequest(None, header_only=True))
    assert (header.width, header.height) == upright.size
    seen = values(read_pixels(str(tmp_path / name), AS_IT_IS))[:, :, 0]
    assert seen.shape == (16, 24)
    assert np.abs(seen.astype(int) - np.asarray(upright)).max() <= (2 if name in ("x.jpg", "x.avif") else 0)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_an_orientation_that_does_not_exist_is_ignored(tmp_path: Path, suffix: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 9
    draw_image(3, 1, (24, 16)).save(tmp_path / f"x.{suffix}", exif=exif)
    for request in (AS_IT_IS, PixelRequest(None, header_only=True)):
        pixels = read_pixels(str(tmp_path / f"x.{suffix}"), request)
        assert (pixels.width, pixels.height) == (24, 16)


def test_a_tiff_whose_orientation_is_in_its_xmp_alone(tmp_path: Path) -> None:
    upright = draw_image(3, 1, (24, 16))
    xmp = b'<rdf:Description tiff:Orientation="6"/>'
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "x.tif", tiffinfo={700: xmp})
    header = read_pixels(str(tmp_path / "x.tif"), PixelRequest(None, header_only=True))
    seen = read_pixels(str(tmp_path / "x.tif"), AS_IT_IS)
    assert (header.width, header.height) == (seen.width, seen.height) == upright.size
    np.testing.assert_array_equal(values(seen)[:, :, 0], np.asarray(upright))


def test_a_large_jpeg_turned_on_its_side(tmp_path: Path) -> None:
    """Decoded at a fraction of its size, and never below the requested size."""
    exif = Image.Exif()
    exif[0x0112] = 8
    draw_image(1, 1, (400, 80)).save(tmp_path / "x.jpg", exif=exif)
    pixels = read_pixels(str(tmp_path / "x.jpg"), PixelRequest((8, 40)))
    assert (pixels.width, pixels.height) == (8, 40)


def test_a_broken_exif_block_is_no_reason_to_lose_the_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_image(0, 1).save(tmp_path / "x.png")

    def broken(_: Image.Image) -> Image.Exif:
        raise SyntaxError("not a TIFF file")

    monkeypatch.setattr(Image.Image, "getexif", broken)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.getexif", broken)
    assert read_pixels(str(tmp_path / "x.png"), PixelRequest(None)).width == 8


def test_every_reason_has_a_status(tmp_path: Path) -> None:
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)).save(whole, "PNG")
    data = whole.getvalue()
    path = tmp_path / "x"
    assert status(path) == ("vanished", "no such file")
    os.mkfifo(path)
    assert status(path) == ("not_regular", "not a regular file")
    path.unlink()
    for content, expected in [
        (b"", ("empty_file", "the file is empty")),
        (b"text", ("not_image", "not an image in a supported format")),
        (data[:-8], ("truncated", "the PNG ends before its last chunk")),
        (
            data[:2000] + b"\0\0" + data[2002:],
            ("decode_error", "the PNG's chunk IDAT has a wrong checksum"),
        ),
    ]:
        path.write_bytes(content)
        assert status(path) == expected
    path.write_bytes(data)
    assert status(path, PixelRequest(None, max_pixels=4095)) == (
        "too_large",
        "64 x 64 pixels; the limit is 4095 (--max-pixels)",
    )
    Image.new("L", (64, 64)).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[:200])
    assert status(path)[0] in ("truncated", "not_image")


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [("png", "L"), ("jpg", "RGB"), ("tif", "L"), ("gif", "L"), ("heic", "RGB"), ("avif", "RGB")],
)
def test_a_file_too_large_to_be_read_at_once_has_the_same_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, mode: str
) -> None:
    whole, cut = tmp_path / f"whole.{suffix}", tmp_path / f"cut.{suffix}"
    compression = {"compression": "tiff_lzw"} if suffix == "tif" else {}
    draw_image(0, 1, (90, 70)).convert(mode).save(whole, **compression)
    cut.write_bytes(whole.read_bytes()[:-300])
    at_once = read_pixels(str(whole), AS_IT_IS), status(cut)
    monkeypatch.setattr(images, "SMALL_FILE", 0)
    assert (read_pixels(str(whole), AS_IT_IS), status(cut)) == at_once


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermissionError(13, "no"), ("unreadable", "permission denied")),
        (MemoryError(), ("too_large", "needs more memory than a decoder is allowed to use")),
        (RuntimeError("the decoder's words"), ("decode_error", "the decoder's words")),
        (OSError("file is truncated somehow"), ("truncated", "file is truncated somehow")),
        (ZeroDivisionError(), ("decode_error", "ZeroDivisionError")),
    ],
)
def test_read_pixels_turns_any_exception_into_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: tuple[str, str]
) -> None:
    draw_image(0, 1).save(tmp_path / "x.png")

    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(Image, "open", fail)
    assert status(tmp_path / "x.png") == expected


def test_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert status(tmp_path / "pipe")[0] == "not_regular"


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (np.array([[0, 257, 25_700, 65_535]], np.uint16), [0, 1, 100, 255]),
        (np.array([[0, 0.5, 0.25, 1.0]], np.float32), [0, 128, 64, 255]),
        (np.array([[0, 1.6, 100.0, 255.0]], np.float32), [0, 2, 100, 255]),
        (np.array([[0, 1, 100, 255]], np.uint8), [0, 1, 100, 255]),
    ],
    ids=["16 bits", "floats of 0 to 1", "floats of 0 to 255", "8 bits"],
)
def test_a_network_gets_bytes_of_images_of_more_bits(
    tmp_path: Path, numbers: np.ndarray, expected: list[int]
) -> None:
    Image.fromarray(numbers).save(tmp_path / "x.tif")
    pixels = read_pixels(str(tmp_path / "x.tif"), PixelRequest(None, eight_bit=True))
    assert not pixels.is_float
    assert values(pixels).ravel().tolist() == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_do_not_become_bytes(tmp_path: Path, bad: float) -> None:
    numbers = np.full((5, 7), 3e38, np.float32)
    Image.fromarray(numbers).save(tmp_path / "finite.tif")
    assert set(read_pixels(str(tmp_path / "finite.tif"), PixelRequest(None, eight_bit=True)).data) == {255}
    for place in ((0, 0), (2, 3), (4, 6)):
        spoilt = numbers.copy()
        spoilt[place] = bad
        Image.fromarray(spoilt).save(tmp_path / "x.tif")
        request = PixelRequest((3, 3), color=True, eight_bit=True)
        assert status(tmp_path / "x.tif", request) == ("non_finite", "contains NaN or infinity")


def save_tiff(path: Path, values: np.ndarray, photometric: int = 1) -> None:
    """Uncompressed and little-endian, by the specification, as Pillow does not write all kinds of pixels."""
    height, width = values.shape
    data = values.tobytes()
    tags = {256: width, 257: height, 258: 8 * values.itemsize, 259: 1, 262: photometric}
    tags |= {273: 8 + 2 + 12 * 10 + 4, 277: 1, 278: height, 279: len(data)}
    tags[339] = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    path.write_bytes(b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4) + data)


RAMP = np.arange(0, 256, 17, dtype=np.uint8).reshape(4, 4)


@pytest.mark.parametrize(
    ("stored", "photometric", "factor"),
    [
        pytest.param(RAMP, 1, 1, id="8 bits"),
        pytest.param(255 - RAMP, 0, 1, id="8 bits, white is zero"),
        pytest.param(RAMP.astype("<u2") * 257, 1, 257, id="16 bits"),
        pytest.param(65535 - RAMP.astype("<u2") * 257, 0, 257, id="16 bits, white is zero"),
        pytest.param(RAMP.astype("<u4") * 16_843_009, 1, 16_843_009, id="32 bits, unsigned"),
        pytest.param(RAMP.astype("<i4") * 8_421_504, 1, 8_421_504, id="32 bits, signed"),
        pytest.param(RAMP.astype("<f4") / 255, 1, 1 / 255, id="floats"),
    ],
)
def test_read_pixels_follows_the_tags_of_a_tiff(
    tmp_path: Path, stored: np.ndarray, photometric: int, factor: float
) -> None:
    save_tiff(tmp_path / "x.tif", stored, photometric)
    found = values(read_pixels(str(tmp_path / "x.tif"), AS_IT_IS))[:, :, 0]
    np.testing.assert_allclose(found, RAMP * np.float64(factor), rtol=1e-6)
    eight = values(read_pixels(str(tmp_path / "x.tif"), PixelRequest(None, eight_bit=True)))[:, :, 0]
    np.testing.assert_array_equal(eight, RAMP)


def test_an_image_in_lab_is_seen_in_grey_and_in_colour(tmp_path: Path) -> None:
    gray = Image.fromarray(RAMP).convert("RGB")
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    lab = ImageCms.profileToProfile(gray, *profiles, outputMode="LAB")
    assert lab is not None
    lab.save(tmp_path / "x.tif")
    for color in (False, True):
        found = values(read_pixels(str(tmp_path / "x.tif"), PixelRequest(None, color)))
        np.testing.assert_allclose(
            found.astype(float), np.repeat(RAMP[..., None], 3 if color else 1, 2), atol=3
        )


def test_central_part_has_the_requested_shape(tmp_path: Path) -> None:
    """Of 12 x 8 pixels the middle 8 x 8, and of these the middle half."""
    whole = np.arange(96, dtype=np.uint8).reshape(8, 12)
    Image.fromarray(whole).save(tmp_path / "x.png")
    pixels = read_pixels(str(tmp_path / "x.png"), PixelRequest((4, 4), crop=0.5))
    assert values(pixels)[..., 0].tolist() == whole[2:6, 4:8].tolist()
