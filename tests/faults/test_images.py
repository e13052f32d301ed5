"""Images that cannot be decoded, and images of every kind that can."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crnr_cli.gallery.file import load_gallery
from crnr_cli.recipe.gradients import Gradients
from helpers.faults import CLASSIFY, GOOD, Case, labelled, make_queries
from helpers.runner import read_rows
from helpers.samples import TURNS, draw_image, make_images, noise, save_turned


@pytest.mark.fault(1, "An image that is all black or all of one colour")
def test_constant_image(case: Case) -> None:
    """There is nothing to compare: a query gets no label, but the status `zero_norm`. Such a sample is left
    out of a gallery, and build prints its name.
    """
    make_images(case.here / "gallery")
    Image.new("L", (8, 8), 0).save("gallery/ant/black.png")
    why = "nothing to compare: all of one colour"
    case.run(
        "build gallery",
        exit=3,
        err=[
            f"failed: gallery/ant/black.png: {why}",
            "gallery.h5: 3 classes, 12 examples, vectors of length 128, method crnr",
        ],
    )
    queries = make_queries()
    Image.new("L", (8, 8), 0).save(queries / "black.png")
    Image.new("RGB", (8, 8), "teal").save(queries / "teal.png")
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 3),
            f"failed: queries/black.png: zero_norm, {why}",
            f"failed: queries/teal.png: zero_norm, {why}",
        ],
        statuses=GOOD | {"queries/black.png": "zero_norm", "queries/teal.png": "zero_norm"},
    )
    assert "nan" not in Path("out.csv").read_text()
    assert [row["label"] for row in read_rows(Path("out.csv"))] == ["", "ant", ""]


@pytest.mark.fault(12, "A truncated JPEG or PNG")
def test_truncated_images(case: Case, queries: Path) -> None:
    """Images are decoded completely, so it gets the status `truncated`, and is not filled up with grey."""
    names = ("half.jpg", "half.png", "most.jpg", "most.png")
    for name in names:
        noise(3, (200, 200)).save(queries / name)
        whole = (queries / name).read_bytes()
        (queries / name).write_bytes(whole[: len(whole) // 2 if name.startswith("half") else -100])
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 5),
            "failed: queries/half.jpg: truncated, image file is truncated",
            "failed: queries/half.png: truncated, the PNG ends before its last chunk",
            "failed: queries/most.jpg: truncated, image file is truncated",
            "failed: queries/most.png: truncated, the PNG ends before its last chunk",
        ],
        statuses=GOOD | {f"queries/{name}": "truncated" for name in names},
    )


@pytest.mark.fault(13, "Changed bytes in an image")
def test_flipped_bytes(case: Case, queries: Path) -> None:
    """It gets the status `decode_error`, with the message of the decoder. The checksums of a PNG are
    verified; other formats have none, so changed bytes are not noticed if they can still be decoded.
    """
    noise(3, (200, 200)).save(queries / "bad.png")
    data = bytearray((queries / "bad.png").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (queries / "bad.png").write_bytes(data)
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 2),
            "failed: queries/bad.png: decode_error, the PNG's chunk IDAT has a wrong checksum",
        ],
        statuses=GOOD | {"queries/bad.png": "decode_error"},
    )


@pytest.mark.fault(14, "A decompression bomb")
def test_decompression_bomb(case: Case, queries: Path) -> None:
    """It gets the status `too_large` by its header, before it is decoded; `--max-pixels` sets the limit."""
    noise(3, (20, 20)).save(queries / "bomb.png")
    data = bytearray((queries / "bomb.png").read_bytes())
    data[16:24] = (50_000).to_bytes(4) * 2  # width and height; the checksum of the header comes after it
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4)
    (queries / "bomb.png").write_bytes(data)
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(1, 2),
            "failed: queries/bomb.png: too_large, 50000 x 50000 pixels; the limit is 89478485 (--max-pixels)",
        ],
        statuses=GOOD | {"queries/bomb.png": "too_large"},
    )
    noise(3, (20, 20)).save(queries / "bomb.png")
    case.run(
        f"{CLASSIFY} --max-pixels 100",
        exit=3,
        err=[
            labelled(1, 2),
            "failed: queries/bomb.png: too_large, 20 x 20 pixels; the limit is 100 (--max-pixels)",
        ],
        statuses=GOOD | {"queries/bomb.png": "too_large"},
    )


@pytest.mark.fault(15, "Unsupported formats, such as EPS, which would run Ghostscript")
def test_unsupported_formats(case: Case, queries: Path) -> None:
    """Only JPEG, PNG, GIF, BMP, TIFF, WebP, AVIF, HEIC, PPM and PGM are decoded; the content decides, not the
    name.
    """
    draw_image(0, 1).convert("RGB").save(queries / "a.eps")
    draw_image(0, 1).convert("RGB").save(queries / "b.jpg", "EPS")
    draw_image(0, 1).save(queries / "c.png", "TGA")
    suffixes = ("jpg", "png", "gif", "bmp", "tif", "webp", "pgm", "heic", "avif")
    for suffix in suffixes:
        draw_image(0, 1).save(queries / f"fine.{suffix}")
    case.run(
        CLASSIFY,
        exit=3,
        err=[
            labelled(10, 13),
            "failed: queries/a.eps: not_image, not an image in a supported format",
            "failed: queries/b.jpg: not_image, not an image in a supported format",
            "failed: queries/c.png: not_image, not an image in a supported format",
        ],
        statuses=GOOD
        | {f"queries/{name}": "not_image" for name in ("a.eps", "b.jpg", "c.png")}
        | {f"queries/fine.{suffix}": "ok" for suffix in suffixes},
    )


def residuals(path: str) -> tuple[float, ...]:
    """Of a query. The last digit depends on its place among the others, as BLAS multiplies whole tiles."""
    row = next(row for row in read_rows(Path("out.csv")) if row["path"] == path)
    return tuple(float(value) for name, value in row.items() if name.startswith("residual:"))


@pytest.mark.fault(17, "An animated GIF, or a TIFF with many pages")
def test_many_frames(case: Case, queries: Path) -> None:
    """The first frame is classified."""
    frames = [draw_image(k, 50) for k in (0, 1, 2)]
    frames[0].save(queries / "first.png")
    for name in ("many.gif", "many.tif"):
        frames[0].save(queries / name, save_all=True, append_images=frames[1:])
    case.run(
        CLASSIFY,
        exit=0,
        err=[labelled(4, 4)],
        statuses=GOOD | {f"queries/{name}": "ok" for name in ("first.png", "many.gif", "many.tif")},
    )
    assert residuals("queries/many.tif") == pytest.approx(residuals("queries/first.png"), abs=1e-6)
    assert residuals("queries/many.gif") == pytest.approx(residuals("queries/first.png"), abs=1e-3)


@pytest.mark.fault(18, "An image in CMYK, with a palette, or with transparency")
def test_colour_models(case: Case, queries: Path) -> None:
    """It is put on white and converted; colours hidden by full transparency have no effect."""
    seen = draw_image(0, 50)
    seen.save(queries / "grey.png")
    for hidden in (0, 255):
        half = Image.new("L", seen.size, 255)
        half.paste(0, (0, 0, 4, 8))
        Image.merge("LA", (Image.composite(seen, Image.new("L", seen.size, hidden), half), half)).save(
            queries / f"alpha{hidden}.png"
        )
    seen.convert("RGB").convert("CMYK").save(queries / "cmyk.tif")
    seen.convert("P").save(queries / "palette.png")
    names = ("alpha0.png", "alpha255.png", "cmyk.tif", "grey.png", "palette.png")
    case.run(
        CLASSIFY, exit=0, err=[labelled(6, 6)], statuses=GOOD | {f"queries/{name}": "ok" for name in names}
    )
    assert residuals("queries/alpha0.png") == pytest.approx(residuals("queries/alpha255.png"), abs=1e-6)
    assert residuals("queries/palette.png") == pytest.approx(residuals("queries/grey.png"), abs=1e-6)
    assert residuals("queries/cmyk.tif") == pytest.approx(residuals("queries/grey.png"), abs=0.02)


@pytest.mark.fault(19, "A 16-bit or floating-point image")
def test_deep_images(case: Case, queries: Path) -> None:
    """Its values are not clipped, so it gets the same unit vector as the 8-bit image of the same size."""
    case.build("gallery --size 8")
    values = np.asarray(draw_image(0, 50))
    Image.fromarray(values).save(queries / "08.png")
    Image.fromarray(values.astype(np.uint16) * 257).save(queries / "16.png")
    Image.fromarray(values.astype(np.float32) / 255).save(queries / "32.tif")
    names = ("08.png", "16.png", "32.tif")
    case.run(
        CLASSIFY, exit=0, err=[labelled(4, 4)], statuses=GOOD | {f"queries/{name}": "ok" for name in names}
    )
    assert residuals("queries/16.png") == pytest.approx(residuals("queries/08.png"), abs=1e-6)
    assert residuals("queries/32.tif") == pytest.approx(residuals("queries/08.png"), abs=1e-6)


@pytest.mark.fault(20, "EXIF or TIFF orientation")
def test_orientation(case: Case, queries: Path) -> None:
    """It is applied: the eight orientations of an image give the same vector, in every format."""
    upright = draw_image(0, 50, (12, 8))
    names = [f"{orientation}.{suffix}" for orientation in TURNS for suffix in ("png", "tif", "webp")]
    for orientation in TURNS:
        save_turned(upright, queries / f"{orientation}.png", orientation)
        save_turned(upright, queries / f"{orientation}.tif", orientation)
        save_turned(upright, queries / f"{orientation}.webp", orientation, lossless=True)
    case.run(
        CLASSIFY,
        exit=0,
        err=[labelled(25, 25)],
        statuses=GOOD | {f"queries/{name}": "ok" for name in names},
    )
    for name in names:
        assert residuals(f"queries/{name}") == pytest.approx(residuals("queries/1.png"), abs=1e-6), name


@pytest.mark.fault(21, "Images of different sizes and shapes")
def test_mixed_sizes(case: Case) -> None:
    """All are resized to one size, which build chooses, stores in the gallery, and applies to queries too."""
    make_images(case.here / "gallery", ["ant"], size=(8, 8))
    make_images(case.here / "gallery", ["bee", "cow"], size=(40, 30))
    note = "note: images differ in size: all are resized to 32x32; choose another size with --size"
    case.run(
        "build gallery",
        exit=0,
        err=[note, "gallery.h5: 3 classes, 12 examples, vectors of length 1568, method crnr"],
    )
    assert load_gallery(Path("gallery.h5")).recipe.extractor == Gradients((32, 32), color=False, cell=4)
    queries = make_queries()
    draw_image(0, 5, (9, 33)).save(queries / "tall.png")
    case.run(CLASSIFY, exit=0, err=[labelled(2, 2)], statuses=GOOD | {"queries/tall.png": "ok"})
