"""Regions of images: their names, the pixels that they cover, and how often their image is decoded."""

from __future__ import annotations

import hashlib
import io
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from crnr_cli.errors import SampleError
from crnr_cli.images import decode, decoder_process
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import MAX_PER_CHUNK, DecoderPool
from crnr_cli.images.regions import (
    Box,
    Region,
    end_of_image,
    find_region,
    group_regions,
    hash_image,
    image_of,
    parse_region,
)
from helpers.samples import noise, save_turned

shares = st.floats(-2, 3)
pixels = st.integers(-300, 600)
margins = st.sampled_from([0.0, 0.1, 0.25, 3.0])
sides = st.integers(1, 300)


def is_bad(values: tuple[float, float, float, float], width: float, height: float) -> bool:
    """Return whether a box is empty or outside of an image, rounding aside."""
    x, y, across, down = map(Fraction, values)
    tiny = Fraction(1, 10**9)
    is_within = x + tiny < width and y + tiny < height and x + across > tiny and y + down > tiny
    return across <= tiny or down <= tiny or not is_within


@pytest.mark.parametrize(
    ("box", "text"),
    [
        (Box(0.1, 0.25, 0.5, 0.3), "0.1,0.25,0.5,0.3"),
        (Box(0, 0, 1, 1), "0.0,0.0,1.0,1.0"),
        (Box(0.12345, 0.99996, 1 / 3, 2e-4), "0.1235,1.0,0.3333,0.0002"),
        (Box(120, 40, 300, 200, in_pixels=True), "120,40,300,200"),
        (Box(math.nan, 0.5, math.inf, 1), "nan,0.5,inf,1.0"),
    ],
)
def test_a_box_has_one_spelling(box: Box, text: str) -> None:
    assert Region("photo.jpg", box).name == f"photo.jpg#{text}"


@given(st.tuples(shares, shares, shares, shares) | st.tuples(pixels, pixels, pixels, pixels))
def test_a_region_is_read_back_from_its_name(values: tuple[float, float, float, float]) -> None:
    in_pixels = all(isinstance(value, int) for value in values)
    try:
        box = Box(*values, in_pixels).clip()
    except SampleError:
        assert is_bad(values, *([10**9] * 2 if in_pixels else [1, 1]))
        return
    region = parse_region(Region("a #1,2,3,4/b.jpg", box).name)
    assert region == ("a #1,2,3,4/b.jpg", box)
    assert parse_region(region.name) == region
    assert all(value >= 0 for value in box[:4])
    if not in_pixels:
        assert math.isclose(box.x, min(max(values[0], 0), 1), abs_tol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "photo.jpg",
        "photo.jpg#3",
        "photo.jpg#1,2,3",
        "photo.jpg#1,2,3,4,5",
        "photo.jpg#0.1,2,0.3,0.4",
        "photo.jpg#-0.1,0.2,0.3,0.4",
        "photo.jpg#0.12345,0.2,0.3,0.4",
        "photo.jpg#1,2,3,4 ",
        "photo.jpg#\u0661,2,3,4",
        "photo.jpg#1234567890,2,3,4",
        "#1,2,3,4",
    ],
)
def test_other_names_are_no_regions(name: str) -> None:
    assert parse_region(name) is None
    assert image_of(name) == name


def test_a_file_that_has_the_name_of_a_region_wins(tmp_path: Path) -> None:
    noise(1, (20, 20)).save(tmp_path / "a.png")
    name = str(tmp_path / "a.png#2,2,4,4")
    assert image_of(name) == str(tmp_path / "a.png")
    noise(2, (9, 7)).save(name, format="PNG")
    assert find_region(name) is None
    assert image_of(name) == name
    (found,) = DecoderPool(1).decode([name], PixelRequest(None))
    assert isinstance(found, Pixels)
    assert (found.width, found.height) == (9, 7)


@given(
    st.tuples(shares, shares, shares, shares) | st.tuples(pixels, pixels, pixels, pixels),
    sides,
    sides,
    margins,
)
def test_edges_stay_within_the_image_and_have_the_margin(
    values: tuple[float, float, float, float], width: int, height: int, margin: float
) -> None:
    in_pixels = all(isinstance(value, int) for value in values)
    box = Box(*values, in_pixels)
    try:
        left, top, right, bottom = box.edges(width, height, margin)
    except SampleError:
        assert is_bad(values, *((width, height) if in_pixels else (1, 1)))
        return
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    for first, last, start, length, side in (
        (left, right, values[0], values[2], width),
        (top, bottom, values[1], values[3], height),
    ):
        scale = Fraction(1) if in_pixels else Fraction(side)
        begin = scale * (Fraction(start) - Fraction(margin) * Fraction(length))
        end = scale * (Fraction(start) + Fraction(length) * (1 + Fraction(margin)))
        assert abs(first - min(max(begin, 0), side)) <= 1
        assert abs(last - min(max(end, 0), side)) <= 1


@pytest.mark.parametrize(
    "values",
    [
        (0.5, 0.5, 0, 0.1),
        (0.5, 0.5, 0.1, -0.1),
        (math.nan, 0, 1, 1),
        (0, 0, math.inf, 1),
        (1e300, 0, 1, 1),
        (1.0, 0, 0.1, 0.1),
        (0, -0.5, 0.1, 0.5),
    ],
)
def test_a_box_that_is_none_has_a_status(values: tuple[float, float, float, float]) -> None:
    with pytest.raises(SampleError) as raised:
        Box(*values).clip()
    assert raised.value.status == "bad_box"
    with pytest.raises(SampleError) as raised:
        Box(*values).edges(100, 100, 0.1)
    assert raised.value.status == "bad_box"


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "tif"])
@pytest.mark.parametrize("size", [None, (16, 12)])
def test_crops_are_those_of_pillow(
    tmp_path: Path, orientation: int, ending: str, size: tuple[int, int] | None
) -> None:
    path = tmp_path / f"a.{ending}"
    save_turned(noise(3, (90, 60)).convert("RGB"), path, orientation)
    box = Box(0.2, 0.25, 0.3, 0.5)
    with Image.open(path) as opened:
        upright = ImageOps.exif_transpose(opened).convert("RGB")
    assert upright.size == (90, 60)
    # 0.2 * 90 = 18 and 0.3 * 90 = 27, with a tenth of it on each side; 15 and 30 of 60, with 3 on each side.
    expected = upright.crop((15, 12, 48, 48))
    if size:
        expected = expected.resize(size, Image.Resampling.BILINEAR)
    (found,) = decode.read_regions(str(path), [box], PixelRequest(size, color=True))
    assert isinstance(found, Pixels)
    assert (found.width, found.height) == expected.size
    assert found.data == expected.tobytes()
    (header,) = decode.read_regions(str(path), [box], PixelRequest(None, header_only=True))
    assert isinstance(header, Pixels)
    assert (header.width, header.height) == (33, 36)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "LA", "I;16", "1"])
@pytest.mark.parametrize("eight_bit", [False, True])
def test_a_region_is_read_like_a_file_of_the_same_pixels(tmp_path: Path, mode: str, eight_bit: bool) -> None:
    source = noise(4, (64, 48)).convert("RGB")
    if mode == "I;16":
        values = np.asarray(source.convert("L")).astype(np.uint16) * 250
        image = Image.fromarray(values)
    else:
        image = source.convert(mode)
    if mode in ("RGBA", "LA"):
        image.putalpha(noise(5, (64, 48)).convert("L"))
    image.save(tmp_path / "a.png")
    image.crop((8, 4, 40, 36)).save(tmp_path / "crop.png")
    request = PixelRequest((10, 10), color=True, eight_bit=eight_bit, margin=0.0)
    (found,) = decode.read_regions(str(tmp_path / "a.png"), [Box(8, 4, 32, 32, in_pixels=True)], request)
    assert found == decode.read_pixels(str(tmp_path / "crop.png"), request)


def test_an_image_is_decoded_once_for_all_its_boxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for number in range(3):
        path = tmp_path / f"{number}.png"
        noise(number, (40, 40)).save(path)
        names += [f"{path}#{x},0,10,10" for x in range(0, 60, 10)] + [str(path), f"{path}#0,0,5,5"]
    opened = []
    usual = decode._opened
    monkeypatch.setattr(decode, "_opened", lambda path, request: opened.append(path) or usual(path, request))
    monkeypatch.setattr(decoder_process, "SECONDS_HELD_BACK", 60.0)
    replies = io.BytesIO()
    decoder_process.decode_paths(names, PixelRequest((4, 4)), replies)
    assert [Path(path).name for path in opened] == [f"{number}.png" for number in range(3) for _ in range(3)]
    replies.seek(0)
    headers = json.loads(replies.readline())
    assert len(headers) == len(names)
    assert [isinstance(one, dict) for one in headers] == [x in (4, 5) for _ in range(3) for x in range(8)]
    assert headers[4]["status"] == "bad_box"


@given(st.lists(st.integers(1, 300), min_size=1, max_size=12), st.integers(1, MAX_PER_CHUNK))
def test_work_is_divided_between_images(counts: list[int], count: int) -> None:
    """A chunk of a decoder ends within an image only if the image alone has more boxes than a chunk."""
    names = [f"{image}.png#{box},0,5,5" for image, boxes in enumerate(counts) for box in range(boxes)]
    start, chunks = 0, []
    while start < len(names):
        stop = end_of_image(names, start, start + count, start + MAX_PER_CHUNK)
        assert start < stop <= start + MAX_PER_CHUNK
        chunks.append(names[start:stop])
        start = stop
    assert [name for chunk in chunks for name in chunk] == names
    for image, boxes in enumerate(counts):
        parts = sum(any(name.startswith(f"{image}.png") for name in chunk) for chunk in chunks)
        assert parts <= max(1, -(-boxes // MAX_PER_CHUNK) + 1 if boxes > MAX_PER_CHUNK else 1)


def test_the_pool_returns_regions_and_files_in_order(tmp_path: Path) -> None:
    image = noise(7, (50, 30))
    image.save(tmp_path / "a.png")
    path = str(tmp_path / "a.png")
    names = [f"{path}#0,0,10,10", path, f"{path}#5,5,20,20", f"{path}#90,0,5,5", f"{path}x#0,0,9,9"]
    request = PixelRequest(None, with_hash=True, margin=0.0)
    first, whole, second, outside, gone = DecoderPool(2).decode(names, request)
    assert isinstance(first, Pixels)
    assert isinstance(whole, Pixels)
    assert isinstance(second, Pixels)
    assert first.data == image.crop((0, 0, 10, 10)).tobytes()
    assert whole.data == image.tobytes()
    assert second.data == image.crop((5, 5, 25, 25)).tobytes()
    assert isinstance(outside, SampleError)
    assert isinstance(gone, SampleError)
    assert (outside.status, gone.status) == ("bad_box", "vanished")
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert whole.sha256 == digest == hash_image(path)
    assert first.sha256 == hashlib.sha256(f"{digest}#0,0,10,10".encode()).hexdigest() == hash_image(names[0])
    assert second.sha256 == hash_image(names[2])


def test_regions_are_grouped_by_image_in_order() -> None:
    names = ["a#1,1,1,1", "a#2,2,2,2", "a", "a", "b#1,1,1,1", "a#1,1,1,1"]
    found = [(path, [str(box) for box in boxes]) for path, boxes in group_regions(names)]
    assert found == [
        ("a", ["1,1,1,1", "2,2,2,2"]),
        ("a", []),
        ("a", []),
        ("b", ["1,1,1,1"]),
        ("a", ["1,1,1,1"]),
    ]
