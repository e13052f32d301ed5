"""Decode one image file to pixels, as a person sees it.

This module runs in decoder processes, which have to start fast: it imports nothing heavier than Pillow.
"""

from __future__ import annotations

import io
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from PIL import Image, UnidentifiedImageError

from crnr_cli.errors import SampleError
from crnr_cli.images.dates import read_exif_date
from crnr_cli.images.pixels import TOO_MUCH_MEMORY, PixelRequest, Pixels, scale_to_bytes
from crnr_cli.images.regions import Box, hash_region

# Recognised by content, not by name. EPS is excluded, because it would run Ghostscript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
# By the brands of their common container. The last two are for both, and AVIF names its own brand as well.
_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"), "HEIC"),
}
_COMMON_BRANDS = (b"mif1", b"msf1")

SMALL_FILE = 2**20  # bytes; a smaller file is read at once, because Pillow reads a few bytes at a time

# Decoding at a reduced scale is cruder than resizing. So the decoder leaves this many times the pixels per
# side that are needed, and resizing does the rest: see benchmarks/README.md.
_OVERSAMPLING = 2

_LONGEST_BRANDS = 256  # bytes of the list of brands that are read
_NESTED_BOXES = ((b"meta", 4), (b"iprp", 0), (b"ipco", 0))  # each in the one before, after some bytes
_DATA_BOXES = (b"meta", b"mdat", b"moov")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ORIENTATION_TAG = 0x0112
# Tags of a TIFF.
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO = 0
_ON_ITS_SIDE = (5, 6, 7, 8)
# Orientations in which the last column or row of the upright image is the first one in the file.
_FROM_RIGHT, _FROM_BELOW = (2, 3, 6, 7), (3, 4, 7, 8)
_AS_SEEN = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def read_pixels(path: str, request: PixelRequest) -> Pixels:
    """Decode the file completely, turn the image upright, put it on white, and convert it as requested."""
    with _opened(path, request) as image:
        on_its_side = _orientation(image) in _ON_ITS_SIDE
        width, height = _upright_size(image)
        date = read_exif_date(image) if request.with_date else ""
        if request.header_only:
            return Pixels(width, height, 0, False, "", b"", date)
        size = _within(width, height, request.within) if request.within else request.size
        scale = 1.0 if size is None else _reduce_scale(image, size, request, on_its_side)
        seen, orientation = _load_upright(image)
        is_precise = request.precise_jpegs and scale > 1
        full = _Full(width, height, scale, orientation) if is_precise else _Full(*seen.size)
        sha256 = _sha256(path) if request.with_hash else ""
        return _convert(seen, full, size, request, sha256)._replace(date=date)


def read_regions(path: str, boxes: Sequence[Box], request: PixelRequest) -> list[Pixels | SampleError]:
    """Decode the file once, and return the pixels of each box, as of a file that has only these pixels.

    A JPEG is decoded at its full size: a box may be small.
    """
    try:
        with _opened(path, request) as image:
            date = read_exif_date(image) if request.with_date else ""
            seen, size, sha256 = None, _upright_size(image), ""
            if not request.header_only:
                seen, _ = _load_upright(image)
                sha256 = _sha256(path) if request.with_hash else ""
            found = [_crop(seen, size, box, request, sha256) for box in boxes]
            return [one._replace(date=date) if isinstance(one, Pixels) else one for one in found]
    except SampleError as e:
        return [e] * len(boxes)


def _crop(
    seen: Image.Image | None, size: tuple[int, int], box: Box, request: PixelRequest, sha256: str
) -> Pixels | SampleError:
    """Return the pixels of a box or, without an image, their width and height alone."""
    try:
        left, top, right, bottom = box.edges(*size, request.margin)
        width, height = right - left, bottom - top
        if seen is None:
            return Pixels(width, height, 0, False, "", b"")
        wanted = _within(width, height, request.within) if request.within else request.size
        return _convert(
            seen.crop((left, top, right, bottom)),
            _Full(width, height),
            wanted,
            request,
            hash_region(sha256, box) if sha256 else "",
        )
    except SampleError as e:
        return e


def _upright_size(image: Image.Image) -> tuple[int, int]:
    # Pillow exchanges the sides of a TIFF itself, if the orientation is the TIFF's own tag.
    is_as_seen = _ORIENTATION_TAG in getattr(image, "tag_v2", ())
    turned = _orientation(image) in _ON_ITS_SIDE and not is_as_seen
    return image.size[::-1] if turned else image.size


def _load_upright(image: Image.Image) -> tuple[Image.Image, int]:
    """Decode the image; return it upright, with the orientation that was applied."""
    image.load()
    # Read only now, because loading a TIFF turns it upright and removes its tag.
    orientation = _orientation(image)
    seen = _apply_tiff_tags(image)
    return (seen.transpose(_AS_SEEN[orientation]) if orientation in _AS_SEEN else seen), orientation


def _convert(
    seen: Image.Image, full: _Full, size: tuple[int, int] | None, request: PixelRequest, sha256: str
) -> Pixels:
    if request.eight_bit:
        seen = _to_eight_bits(seen)
    seen = _to_mode(seen, request.color)
    if size is not None:
        seen = _resize(seen, full, size, request)
    return Pixels(
        width=seen.width,
        height=seen.height,
        bands=request.bands,
        is_float=seen.mode == "F",
        sha256=sha256,
        data=_bytes(seen, request.color),
    )


@contextmanager
def _opened(path: str, request: PixelRequest) -> Iterator[Image.Image]:
    """Open a regular file as an image; any error is raised as a SampleError with a status."""
    try:
        found = os.stat(path)  # noqa: PTH116, faster than pathlib, like open below
        if not stat.S_ISREG(found.st_mode):
            raise SampleError("not_regular", "not a regular file")
        if found.st_size == 0:
            raise SampleError("empty_file", "the file is empty")
        with open(path, "rb") as on_disk:  # noqa: PTH123
            small = found.st_size <= SMALL_FILE and not request.header_only
            file = io.BytesIO(on_disk.read()) if small else on_disk
            container = _container(file)
            if container:
                _check_boxes(file, found.st_size, container, request.max_pixels)
            with (
                _open_container(file, container) if container else Image.open(file, formats=FORMATS) as image
            ):
                _check_size(*image.size, request.max_pixels)
                if image.format == "PNG" and not request.header_only:
                    _check_png(file, found.st_size)
                yield image
    except SampleError:
        raise
    except FileNotFoundError as e:
        raise SampleError("vanished", "no such file") from e
    except PermissionError as e:
        raise SampleError("unreadable", "permission denied") from e
    except UnidentifiedImageError as e:
        raise SampleError("not_image", "not an image in a supported format") from e
    except MemoryError as e:
        raise SampleError("too_large", TOO_MUCH_MEMORY) from e
    except Exception as e:  # Pillow may raise anything on a damaged file; the user sees its message
        message = str(e) or type(e).__name__
        if "truncated" in message.lower():
            raise SampleError("truncated", message) from e
        raise SampleError("decode_error", message) from e


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        limit = f"the limit is {max_pixels} (--max-pixels)"
        raise SampleError("too_large", f"{width} x {height} pixels; {limit}")


def _container(file: BinaryIO) -> str | None:
    """Return HEIC or AVIF if the file has their container, by the first brand that tells them apart."""
    head = file.read(_LONGEST_BRANDS)
    file.seek(0)
    if head[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(head[:4]), len(head))
    brands = [head[8:12], *(head[at : at + 4] for at in range(16, end, 4))]
    named = next((_BRANDS[brand] for brand in brands if brand in _BRANDS), None)
    return named or ("HEIC" if brands[0] in _COMMON_BRANDS else None)


def _check_boxes(file: BinaryIO, size: int, container: str, max_pixels: int) -> None:
    """Check that the file is complete, and that no image in it is too large.

    An image may be cut out of a larger one, or made of tiles, which have to be decoded first.
    """
    for kind, start, end in _boxes(file, 0, size):
        if kind in _DATA_BOXES and end > size:
            raise SampleError("truncated", f"the {container} ends before its last box")
        if kind == b"ispe":
            file.seek(start + 4)
            width, height = struct.unpack(">II", file.read(8).ljust(8, b"\0"))
            _check_size(width, height, max_pixels)
    file.seek(0)


def _boxes(file: BinaryIO, start: int, end: int, level: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Yield the kind of each box, where its content begins, and where it should end."""
    outer, head = _NESTED_BOXES[level] if level < len(_NESTED_BOXES) else (None, 0)
    while end - start >= 8:
        file.seek(start)
        length, kind = struct.unpack(">I4s", file.read(8).ljust(8, b"\0"))
        content = start + 8
        if length == 1:
            length, content = int.from_bytes(file.read(8)), start + 16
        after = start + length if length else end
        if after < content:
            return
        yield kind, content, after
        if kind == outer:
            yield from _boxes(file, content + head, min(after, end), level + 1)
        start = after


def _open_container(file: BinaryIO, container: str) -> Image.Image:
    """Open a HEIC or AVIF. The libraries for them are loaded when the first such file comes."""
    if container == "AVIF":
        from PIL import AvifImagePlugin

        if not AvifImagePlugin.SUPPORTED:
            raise SampleError(
                "not_image", "AVIF needs a Pillow that was built with it, such as 11.3 or newer"
            )
        AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # other decoders use the other cores
        return AvifImagePlugin.AvifImageFile(file)
    try:
        from pillow_heif import HeifImageFile, options
    except ImportError as e:
        from crnr_cli.system.extras import describe_missing

        raise SampleError("not_image", describe_missing("heic", "HEIC", "pillow_heif")) from e
    options.DECODE_THREADS = 1
    # Otherwise draft() would choose an embedded image, which may show something else.
    options.THUMBNAILS = options.DEPTH_IMAGES = options.AUX_IMAGES = False
    image: Image.Image = HeifImageFile(file)
    return image


def _check_png(file: BinaryIO, size: int) -> None:
    """Verify the checksums of a PNG's chunks; Pillow does not verify the chunks of pixel data."""
    position = file.tell()
    offset = file.seek(len(_PNG_SIGNATURE))
    kind = b""
    while kind != b"IEND":
        length, kind = struct.unpack(">I4s", file.read(8).ljust(8, b"\0"))
        offset += 12 + length
        if offset > size or not kind.isalpha():
            raise SampleError("truncated", "the PNG ends before its last chunk")
        data, checksum = file.read(length), file.read(4)
        if zlib.crc32(data, zlib.crc32(kind)).to_bytes(4) != checksum:
            raise SampleError("decode_error", f"the PNG's chunk {kind.decode('ascii')} has a wrong checksum")
    file.seek(position)


def _orientation(image: Image.Image) -> int:
    """Return the orientation that is still to be applied."""
    if image.format == "HEIF":  # libheif has applied the turns of the container, which count alone
        return 1
    try:
        if image.format == "AVIF":  # Pillow has put the turns of the container into the EXIF block
            exif = Image.Exif()
            exif.load(image.info.get("exif", b""))
            return int(exif.get(_ORIENTATION_TAG, 1))
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except Exception:  # a broken EXIF block is no reason to reject the image
        return 1


def _apply_tiff_tags(image: Image.Image) -> Image.Image:
    """Return the pixels of a TIFF as its tags describe them, where Pillow reads them in another way."""
    tags = getattr(image, "tag_v2", {})
    if image.mode == "I;16" and tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO and not _inverts_deep_tiffs():
        return image.convert("I").point(lambda value: value * -1 + 65535)
    is_unsigned = tags.get(_BITS) == (32,) and tags.get(_SAMPLE_FORMAT, (1,)) == (1,)
    if image.mode == "I" and is_unsigned:  # otherwise the upper half of the values would be negative
        return Image.frombytes("F", image.size, image.tobytes(), "raw", "F;32N")
    return image


def _inverts_deep_tiffs() -> bool:
    """Return whether this Pillow inverts 16-bit TIFFs in which white is zero, as all do with 8 bits."""
    from PIL import TiffImagePlugin  # loaded already, as the image is a TIFF

    way = (b"II", _WHITE_IS_ZERO, (1,), 1, (16,), ())
    return TiffImagePlugin.OPEN_INFO.get(way) != ("I;16", "I;16")


def _to_mode(image: Image.Image, color: bool) -> Image.Image:
    """Convert to 8-bit grey or RGB on white, or to F: a plain convert() would clip deeper grey."""
    if image.mode == "LAB":  # Pillow has only this conversion
        image = image.convert("RGB")
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        return image.convert("F")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image)
    target = "RGB" if color else "L"
    return image if image.mode == target else image.convert(target)


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey to 8 bits, and other values by their apparent range."""
    if image.mode != "F" and image.mode != "I" and not image.mode.startswith("I;"):
        return image
    mean = image.convert("F").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
    if not math.isfinite(mean):  # type: ignore[arg-type]
        raise SampleError("non_finite", "contains NaN or infinity")  # bytes have neither
    largest = float(image.convert("F").getextrema()[1])  # type: ignore[arg-type]
    is_sixteen_bits = image.mode != "F" and largest <= 65535
    scale = 1 / 257 if is_sixteen_bits else scale_to_bytes(largest)
    # Add 0.5 to round, as the conversion truncates.
    return image.convert("F").point(lambda value: value * scale + 0.5).convert("L")


def _reduce_scale(
    image: Image.Image, size: tuple[int, int], request: PixelRequest, on_its_side: bool
) -> float:
    """Let a JPEG be decoded at 1/2, 1/4 or 1/8 of its size, if enough is left; return 2, 4, 8, or else 1."""
    share = request.crop or 1.0
    times = _OVERSAMPLING if request.precise_jpegs else 1
    width, height = (math.ceil(side / share) * times for side in size)
    before = image.width
    # This never goes below the given size. Its box is the part of the reduced image that has content.
    drafted = image.draft(
        "RGB" if request.color else "L", (height, width) if on_its_side else (width, height)
    )
    return before / drafted[1][2] if drafted else 1.0


class _Full(NamedTuple):
    """The upright image before its scale was reduced."""

    width: int
    height: int
    scale: float = 1.0
    orientation: int = 1


def _resize(image: Image.Image, full: _Full, size: tuple[int, int], request: PixelRequest) -> Image.Image:
    """Resize the part of the upright image that is requested, which is chosen in the full image.

    In a reduced image, the edges of this part are at fractions of a pixel.
    """
    box = _central_box(full, size, request.crop) if request.crop else (0, 0, full.width, full.height)
    # The decoder completes the last column and row, which then have less content than the others.
    right = image.width - full.width / full.scale if full.orientation in _FROM_RIGHT else 0.0
    below = image.height - full.height / full.scale if full.orientation in _FROM_BELOW else 0.0
    x0, x1 = (x / full.scale + right for x in box[::2])
    y0, y1 = (y / full.scale + below for y in box[1::2])
    left, top = math.floor(x0), math.floor(y0)
    outer = left, top, math.ceil(x1), math.ceil(y1)
    if outer != (0, 0, *image.size):
        image = image.crop(outer)
    within = x0 - left, y0 - top, x1 - left, y1 - top
    if image.size == size and within == (0, 0, *size):
        return image
    return image.resize(size, Image.Resampling[request.filter.upper()], box=within)


def _central_box(full: _Full, size: tuple[int, int], share: float) -> tuple[int, int, int, int]:
    """Return the largest centred box with the aspect ratio of `size`, scaled by `share`."""
    scale = share * min(full.width / size[0], full.height / size[1])
    width, height = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    left, top = (full.width - width) // 2, (full.height - height) // 2
    return left, top, left + width, top + height


def _within(width: int, height: int, longest: int) -> tuple[int, int]:
    scale = min(1.0, longest / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _bytes(image: Image.Image, color: bool) -> bytes:
    if image.mode == "F" and color:
        grey = image.tobytes()
        return b"".join(grey[i : i + 4] * 3 for i in range(0, len(grey), 4))
    return image.tobytes()


def _sha256(path: str) -> str:
    import hashlib  # slow to import, and queries never need it

    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
