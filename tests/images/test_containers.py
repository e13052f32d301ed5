"""HEIC and AVIF, which share a container: their pixels, their turns, and limits that hold before decoding."""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import AvifImagePlugin, Image

from crnr_cli.errors import SampleError
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest, Pixels
from crnr_cli.images.pool import DecoderPool
from crnr_cli.system.extras import describe_missing
from helpers.samples import TURNS, draw_image, save_turned

AS_IT_IS = PixelRequest(None)
LOSSLESS = {"heic": {"quality": -1, "chroma": 444}, "avif": {"quality": 100, "subsampling": "4:4:4"}}
BOTH = pytest.mark.parametrize("suffix", LOSSLESS)


def values(pixels: Pixels) -> np.ndarray:
    flat = np.frombuffer(pixels.data, np.float32 if pixels.is_float else np.uint8)
    return flat.reshape(pixels.height, pixels.width, pixels.bands)


def saved(image: Image.Image, path: Path, **options: object) -> bytes:
    image.save(path, **LOSSLESS[path.suffix[1:]], **options)  # type: ignore[arg-type]
    return path.read_bytes()


def status(path: Path, request: PixelRequest = AS_IT_IS) -> tuple[str, str]:
    with pytest.raises(SampleError) as refused:
        read_pixels(str(path), request)
    return refused.value.status, refused.value.detail


def with_sizes(content: bytes, width: int, height: int) -> bytes:
    """Let every image in the file declare another size."""
    changed, at = bytearray(content), 0
    while (at := content.find(b"ispe", at + 1)) > 0:
        changed[at + 8 : at + 16] = struct.pack(">II", width, height)
    assert changed != content
    return bytes(changed)


@BOTH
def test_the_colours_of_a_container(tmp_path: Path, suffix: str) -> None:
    colours = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    saved(Image.fromarray(colours).resize((40, 30)), path := tmp_path / f"x.{suffix}")
    found = values(read_pixels(str(path), PixelRequest(None, color=True)))
    assert np.abs(found.astype(int) - colours).max() <= 3  # the colours are stored as YCbCr


@BOTH
@pytest.mark.parametrize(("alpha", "expected"), [(0, 255), (255, 10), (128, 132)])
def test_transparency_of_a_container_is_on_white(
    tmp_path: Path, suffix: str, alpha: int, expected: int
) -> None:
    saved(Image.new("RGBA", (20, 12), (10, 10, 10, alpha)), path := tmp_path / f"x.{suffix}")
    found = values(read_pixels(str(path), AS_IT_IS))
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_a_heic_whose_colours_are_multiplied_with_its_alpha(tmp_path: Path) -> None:
    heic = pillow_heif.from_pillow(Image.new("RGBA", (64, 64), (100, 50, 20, 128)))
    heic[0].premultiplied_alpha = True
    heic.save(tmp_path / "x.heic", **LOSSLESS["heic"])
    assert pillow_heif.open_heif(tmp_path / "x.heic").mode == "RGBa"
    found = values(read_pixels(str(tmp_path / "x.heic"), PixelRequest(None, color=True)))
    assert np.abs(found.astype(int) - (np.array([100, 50, 20]) + 255 - 128)).max() <= 2


@pytest.mark.parametrize(("mode", "bands"), [("L;16", 1), ("RGB;16", 3), ("RGBA;16", 4)])
def test_a_heic_of_10_bits(tmp_path: Path, mode: str, bands: int) -> None:
    """Grey of 10 bits is deep, like a PNG of 16 bits; colours become bytes."""
    ramp = np.linspace(0, 65535, 48 * 32).astype("<u2").reshape(32, 48)
    content = np.repeat(ramp[..., None], bands, axis=2)
    if bands == 4:
        content[..., 3] = 65535
    heic = pillow_heif.from_bytes(mode, (48, 32), content.tobytes())
    assert heic.info["bit_depth"] == 16
    heic.save(tmp_path / "x.heic", quality=-1, chroma=444)
    pixels = read_pixels(str(tmp_path / "x.heic"), AS_IT_IS)
    assert pixels.is_float == (bands == 1)
    factor = 1 if bands == 1 else 257
    assert np.abs(values(pixels)[..., 0] - ramp / factor).max() <= (64 if bands == 1 else 2)
    eight = read_pixels(str(tmp_path / "x.heic"), PixelRequest(None, eight_bit=True))
    assert np.abs(values(eight)[..., 0] - ramp / 257).max() <= 2


@BOTH
@pytest.mark.parametrize("orientation", TURNS)
def test_only_the_turns_of_the_container_count(tmp_path: Path, suffix: str, orientation: int) -> None:
    """Cameras repeat the orientation in EXIF and XMP, where readers must ignore it."""
    upright = draw_image(3, 1, (64, 32))
    path = tmp_path / f"x.{suffix}"
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="1"/></x:xmpmeta>'
    save_turned(upright, path, orientation, xmp=xmp, **LOSSLESS[suffix])
    content = path.read_bytes().replace(b'tiff:Orientation="1"', b'tiff:Orientation="6"')
    for order in "><":
        entry = struct.pack(f"{order}HHI", 0x0112, 3, 1)
        for value in TURNS:  # whatever the library has written
            written = entry + struct.pack(f"{order}H", value)
            content = content.replace(written, entry + struct.pack(f"{order}H", 8))
    path.write_bytes(content)
    header = read_pixels(str(path), PixelRequest(None, header_only=True))
    seen = values(read_pixels(str(path), AS_IT_IS))[:, :, 0]
    assert (header.width, header.height) == upright.size
    assert np.abs(seen.astype(int) - np.asarray(upright)).max() <= 2


def test_the_primary_image_of_a_heic(tmp_path: Path) -> None:
    frames = [draw_image(number, 1, (40, 30)).convert("RGB") for number in range(3)]
    for primary in range(3):
        options = {"save_all": True, "append_images": frames[1:], "primary_index": primary}
        saved(frames[0], tmp_path / "x.heic", **options)
        found = values(read_pixels(str(tmp_path / "x.heic"), AS_IT_IS))[..., 0]
        assert np.abs(found.astype(int) - np.asarray(frames[primary])[..., 0]).max() <= 2


def test_the_first_frame_of_an_animated_avif(tmp_path: Path) -> None:
    frames = [draw_image(number, 1, (40, 30)).convert("RGB") for number in range(3)]
    saved(frames[0], tmp_path / "x.avif", save_all=True, append_images=frames[1:])
    found = values(read_pixels(str(tmp_path / "x.avif"), AS_IT_IS))[..., 0]
    assert np.abs(found.astype(int) - np.asarray(frames[0])[..., 0]).max() <= 2


def test_an_embedded_thumbnail_is_not_decoded_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pillow_heif.options, "THUMBNAILS", True)  # as it is before the first image
    image = draw_image(0, 1, (400, 300)).convert("RGB")
    saved(image, tmp_path / "plain.heic")
    saved(image, tmp_path / "with.heic", thumbnails=[100])
    assert pillow_heif.open_heif(tmp_path / "with.heic").info["thumbnails"] == [100]
    request = PixelRequest((32, 24), color=True)
    found = [read_pixels(str(tmp_path / f"{name}.heic"), request) for name in ("plain", "with")]
    assert found[0] == found[1]


@BOTH
def test_a_size_above_the_limit_is_refused_before_decoding(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x.{suffix}"
    whole = saved(draw_image(0, 1, (64, 64)), path)
    path.write_bytes(with_sizes(whole, 30_000, 20_000))
    for library in (pillow_heif.HeifImageFile, AvifImagePlugin.AvifImageFile):
        monkeypatch.setattr(library, "_open", lambda self: pytest.fail("the library was given the file"))
    assert status(path) == (
        "too_large",
        "30000 x 20000 pixels; the limit is 89478485 (--max-pixels)",
    )
    path.write_bytes(whole)
    assert status(path, PixelRequest(None, max_pixels=4095))[0] == "too_large"


def test_a_heic_that_declares_another_size_than_it_has(tmp_path: Path) -> None:
    """libheif refuses it, and does not decode more pixels than are declared."""
    path = tmp_path / "x.heic"
    whole = saved(draw_image(0, 1, (640, 512)).convert("RGB"), path)
    for declared in ((64, 64), (1280, 512)):
        path.write_bytes(with_sizes(whole, *declared))
        assert status(path)[0] == "decode_error"


def lengthened(box: bytes) -> bytes:
    """Give a box a length of 64 bits."""
    return struct.pack(">I4sQ", 1, box[4:8], len(box) + 8) + box[8:]


@BOTH
def test_a_size_in_a_long_box_is_refused_too(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    whole = with_sizes(saved(draw_image(0, 1, (64, 64)), path), 30_000, 20_000)
    at = whole.index(b"meta") - 4
    end = at + int.from_bytes(whole[at : at + 4])
    path.write_bytes(whole[:at] + lengthened(whole[at:end]) + whole[end:])
    assert status(path)[0] == "too_large"


def test_a_heic_that_is_cut_out_of_a_larger_image(tmp_path: Path) -> None:
    """The limit is for the larger one, which has to be decoded: here 64 rows for the 40 that are seen."""
    whole = saved(draw_image(0, 1, (64, 40)), path := tmp_path / "x.heic")
    assert b"clap" in whole
    pixels = read_pixels(str(path), PixelRequest(None, max_pixels=64 * 64))
    assert (pixels.width, pixels.height) == (64, 40)
    assert status(path, PixelRequest(None, max_pixels=64 * 64 - 1))[0] == "too_large"


@BOTH
def test_a_container_is_decoded_within_the_memory_of_a_small_limit(tmp_path: Path, suffix: str) -> None:
    """By decoder processes, whose memory is limited before they load the libraries."""
    saved(draw_image(0, 1, (64, 64)), path := tmp_path / f"x.{suffix}")
    decoded = DecoderPool(1).decode([str(path)] * 2, PixelRequest(None, max_pixels=5000))
    expected = read_pixels(str(path), AS_IT_IS)
    assert list(decoded) == [expected, expected]


@BOTH
def test_damaged_containers_have_a_status(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    whole = saved(draw_image(0, 1, (64, 64)), path)
    name = suffix.upper()
    for length in (len(whole) - 1, len(whole) // 2, 60):
        path.write_bytes(whole[:length])
        assert status(path) == ("truncated", f"the {name} ends before its last box")
    for content in (
        whole[:32],  # brands alone
        whole.replace(b"ispe", b"ispx"),
        whole.replace(b"meta", b"mete", 1),
        whole[: whole.index(b"mdat") + 4] + bytes(len(whole) - whole.index(b"mdat") - 4),
    ):
        path.write_bytes(content)
        found, detail = status(path)
        assert found in ("decode_error", "truncated")
        assert detail


@BOTH
def test_bytes_after_the_last_box_do_no_harm(tmp_path: Path, suffix: str) -> None:
    """Some telephones append data of their own, which has no boxes."""
    whole = saved(draw_image(0, 1, (64, 64)), path := tmp_path / f"x.{suffix}")
    before = read_pixels(str(path), AS_IT_IS)
    for after in (b"\xff\xff\xff\xffSEFH" + bytes(30), b"\0\0\0\1", b"\0\0\0\1free", b"\0\0\0\7free"):
        path.write_bytes(whole + after)
        assert read_pixels(str(path), AS_IT_IS) == before


def change_brand(content: bytes, brand: bytes) -> bytes:
    """Give the file another main brand; its own brand is still in its list."""
    own = content[8:12]
    length = int.from_bytes(content[:4])
    assert own in content[16:length]
    return content[:8] + brand + content[12:]


@BOTH
@pytest.mark.parametrize("brand", [b"mif1", b"msf1"])
def test_brands_that_both_formats_have(tmp_path: Path, suffix: str, brand: bytes) -> None:
    whole = saved(draw_image(0, 1, (64, 64)), path := tmp_path / f"x.{suffix}")
    before = read_pixels(str(path), AS_IT_IS)
    path.write_bytes(change_brand(whole, brand))
    assert read_pixels(str(path), AS_IT_IS) == before


def test_other_files_with_brands_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(struct.pack(">I4s4sI4s", 20, b"ftyp", b"isom", 512, b"mp41"))
    assert status(tmp_path / "x.mp4") == ("not_image", "not an image in a supported format")


def test_heic_without_its_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(draw_image(0, 1, (64, 64)), tmp_path / "x.heic")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    found, detail = status(tmp_path / "x.heic")
    assert (found, detail) == ("not_image", describe_missing("heic", "HEIC", "pillow_heif"))
    assert detail.startswith("HEIC needs pillow-heif; install with: ")
    assert "[heic]" in detail


def test_a_decoder_without_the_package_decodes_other_images(tmp_path: Path) -> None:
    saved(draw_image(0, 1, (64, 64)), tmp_path / "x.heic")
    draw_image(0, 1).save(tmp_path / "x.png")
    code = (
        "import sys; sys.modules['pillow_heif'] = None\n"
        "from crnr_cli.images.decoder_process import decode_requests; decode_requests()"
    )
    pool = DecoderPool(1, command=[sys.executable, "-c", code])
    paths = [str(tmp_path / name) for name in ("x.heic", "x.png")]
    without, other = pool.decode(paths, AS_IT_IS)
    assert isinstance(without, SampleError)
    assert (without.status, without.detail) == ("not_image", describe_missing("heic", "HEIC", "pillow_heif"))
    assert other == read_pixels(paths[1], AS_IT_IS)


def test_avif_without_support_in_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(draw_image(0, 1, (64, 64)), tmp_path / "x.avif")
    monkeypatch.setattr(AvifImagePlugin, "SUPPORTED", False)
    message = "AVIF needs a Pillow that was built with it, such as 11.3 or newer"
    assert status(tmp_path / "x.avif") == ("not_image", message)


NESTED: dict[str, Callable[[bytes], bytes]] = {
    "a box of no length": lambda box: struct.pack(">I4s", 4, b"free") + box,
    "a long box": lambda box: struct.pack(">I4sQ", 1, b"free", 16) + box,
    "a long box of no length": lambda box: struct.pack(">I4sQ", 1, b"free", 3) + box,
    "a very long box": lambda box: struct.pack(">I4sQ", 1, b"free", 2**64 - 1) + box,
    "boxes in boxes": lambda box: b"".join(struct.pack(">I4sI", 0, b"meta", 0) for _ in range(5000)) + box,
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED)
def test_boxes_that_lead_nowhere_end_the_search(tmp_path: Path, nested: Callable[[bytes], bytes]) -> None:
    buffer = io.BytesIO()
    draw_image(0, 1, (64, 64)).save(buffer, "AVIF")
    content = buffer.getvalue()
    start = int.from_bytes(content[:4])
    (tmp_path / "x.avif").write_bytes(content[:start] + nested(content[start:]))
    (found,) = DecoderPool(1).decode([str(tmp_path / "x.avif")], AS_IT_IS)
    if isinstance(found, SampleError):
        assert found.status in ("decode_error", "truncated")
        assert "crashed" not in found.detail
    else:
        assert (found.width, found.height) == (64, 64)
