"""Large JPEGs, which are decoded at a reduced scale: new galleries stay close to the full image.

The expected pixels come from Pillow alone: the file is decoded completely, turned, cropped and resized.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from crnr_cli.gallery.file import load_gallery
from crnr_cli.images.decode import read_pixels
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.recipe.base import Extractor, ImagesSeen, Made
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.pixels import RawPixels
from helpers.onnx_models import flat_model
from helpers.runner import Outcome, Runner, rows

SIZE = (32, 24)
CROP = 0.875
NETWORK = ("--extractor", "model.onnx", "--extractor-preset", "raw")
EXTRACTORS = {
    "pixels": ("--extractor", "pixels", "--size", "32x24"),
    "gradients": ("--extractor", "gradients", "--size", "32x24", "--gray"),
    "network": NETWORK,
}


def make_jpeg(path: Path, seed: int, size: tuple[int, int] = (403, 307), orientation: int = 1) -> Path:
    """Save a pattern of all scales, as in a photograph; 403 x 307 fills no whole blocks of 8 pixels."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3), np.float32)
    for side in (3, 8, 24, 72, 200):
        coarse = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        total += np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), np.float32) / 5
    exif = Image.Exif()
    exif[0x0112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(total.astype(np.uint8)).save(path, quality=92, exif=exif)
    return path


def central_box(width: int, height: int, crop: float) -> tuple[int, int, int, int]:
    scale = crop * min(width / SIZE[0], height / SIZE[1])
    w, h = round(SIZE[0] * scale), round(SIZE[1] * scale)
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def full_pixels(path: Path, crop: float = 0.0) -> np.ndarray:
    upright = ImageOps.exif_transpose(Image.open(path).convert("RGB"))
    if crop:
        upright = upright.crop(central_box(*upright.size, crop))
    return np.asarray(upright.resize(SIZE, Image.Resampling.BILINEAR), float)


def former_pixels(path: Path, mode: str, crop: float = 0.0) -> np.ndarray:
    """Return the pixels of crnr 0.2: reduced to the smallest sufficient scale, then cropped and resized."""
    image = Image.open(path)
    image.draft(mode, tuple(-int(-side // (crop or 1)) for side in SIZE))
    if crop:
        image = image.crop(central_box(*image.size, crop))
    return np.asarray(image.resize(SIZE, Image.Resampling.BILINEAR))


def read(path: Path, **changed: Any) -> np.ndarray:
    pixels = read_pixels(str(path), PixelRequest(SIZE, True)._replace(**changed))
    return np.frombuffer(pixels.data, np.uint8).reshape(SIZE[1], SIZE[0], 3)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Return the cosine of the deviations from the mean, which is far stricter than the cosine of pixels."""
    a, b = (image.astype(float).ravel() - image.mean() for image in (one, other))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.mark.parametrize("crop", [0.0, CROP])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_pixels_are_close_to_the_full_image(tmp_path: Path, orientation: int, crop: float) -> None:
    path = make_jpeg(tmp_path / "x.jpg", orientation, orientation=orientation)
    full = full_pixels(path, crop)
    found, former = (read(path, crop=crop, precise_jpegs=precise) for precise in (True, False))
    assert cosine(found, full) > 0.998
    assert np.abs(found - full).mean() < 0.7
    assert 1 - cosine(former, full) > 3 * (1 - cosine(found, full))


sides = st.integers(24, 700)


@settings(max_examples=40)
@given(
    size=st.tuples(sides, sides),
    orientation=st.integers(1, 8),
    crop=st.sampled_from([0.0, CROP, 1.0]),
    seed=st.integers(0, 1000),
)
def test_pixels_of_any_size_are_close_to_the_full_image(
    tmp_path_factory: pytest.TempPathFactory,
    size: tuple[int, int],
    orientation: int,
    crop: float,
    seed: int,
) -> None:
    path = make_jpeg(tmp_path_factory.mktemp("jpeg") / "x.jpg", seed, size, orientation)
    assert cosine(read(path, crop=crop, precise_jpegs=True), full_pixels(path, crop)) > 0.99


@pytest.mark.parametrize(
    ("size", "crop", "reduced"),
    [
        ((512, 384), 0.0, (64, 48)),  # 16 times the size: an eighth leaves twice the size
        ((511, 384), 0.0, (128, 96)),  # an eighth would be too small
        ((256, 192), 0.0, (64, 48)),
        ((128, 96), 0.0, (64, 48)),
        ((127, 96), 0.0, (127, 96)),
        ((512, 384), CROP, (128, 96)),  # more is needed, as the margins are cut off
    ],
)
def test_twice_the_needed_size_is_decoded(
    tmp_path: Path,
    size: tuple[int, int],
    crop: float,
    reduced: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[tuple[int, int]] = []
    load_prepare = JpegImageFile.load_prepare

    def watched(image: JpegImageFile) -> None:
        loaded.append(image.size)
        load_prepare(image)

    monkeypatch.setattr(JpegImageFile, "load_prepare", watched)
    read(make_jpeg(tmp_path / "x.jpg", 0, size), crop=crop, precise_jpegs=True)
    assert loaded == [reduced]


@pytest.mark.parametrize("crop", [0.0, CROP])
@pytest.mark.parametrize("size", [(32, 24), (63, 47), (40, 61), (20, 10)])
def test_images_below_twice_the_size_keep_their_bytes(
    tmp_path: Path, size: tuple[int, int], crop: float
) -> None:
    path = make_jpeg(tmp_path / "x.jpg", 3, size)
    expected = full_pixels(path, crop).astype(np.uint8)
    for precise in (True, False):
        np.testing.assert_array_equal(read(path, crop=crop, precise_jpegs=precise), expected)


@pytest.mark.parametrize("crop", [0.0, CROP])
def test_other_formats_keep_their_bytes(tmp_path: Path, crop: float) -> None:
    Image.open(make_jpeg(tmp_path / "x.jpg", 4)).save(tmp_path / "x.png")
    expected = full_pixels(tmp_path / "x.png", crop).astype(np.uint8)
    for precise in (True, False):
        found = read(tmp_path / "x.png", crop=crop, precise_jpegs=precise)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("crop", [0.0, CROP])
def test_the_former_way_gives_the_former_bytes(tmp_path: Path, crop: float) -> None:
    path = make_jpeg(tmp_path / "x.jpg", 5)
    np.testing.assert_array_equal(read(path, crop=crop), former_pixels(path, "RGB", crop))


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """photos/{a,b}/{0,1}.jpg, new/{a,b}/2.jpg, and a network that returns the pixels."""
    for number, name in enumerate("ab"):
        for sample in range(3):
            folder = "new" if sample == 2 else "photos"
            make_jpeg(Path(folder, name, f"{sample}.jpg"), 10 * number + sample)
    flat_model(Path("model.onnx"), ["n", 3, SIZE[1], SIZE[0]])
    return crnr


def build_former(here: Runner, extractor: str, command: tuple[str, ...]) -> None:
    """Run a command whose extractor decodes JPEGs as crnr 0.2 did, and so stores no setting for it."""
    kind: type[Extractor] = {"pixels": RawPixels, "gradients": Gradients, "network": Network}[extractor]
    create = kind.create

    def create_former(settings: Mapping[str, Any], images: ImagesSeen) -> Made:
        made, notes = create(settings, images)
        return replace(made, precise_jpegs=False), notes  # type: ignore[type-var]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "create", create_former)
        assert here(*command, *EXTRACTORS[extractor], "-q") == Outcome(0, "", "")


def unit(values: np.ndarray) -> np.ndarray:
    return values.ravel() / np.linalg.norm(values.astype(float))


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_new_galleries_store_the_setting(here: Runner, extractor: str) -> None:
    assert here("build", "photos", *EXTRACTORS[extractor], "-q") == Outcome(0, "", "")
    about = json.loads(here("info", "--json").out)
    assert (about["format_version"], about["extractor"]["precise_jpegs"]) == (5, True)
    assert "as by crnr 0.2" not in here("info").out
    assert here("verify").exit == 0


@pytest.mark.parametrize(("extractor", "version"), [("pixels", 1), ("gradients", 2), ("network", 1)])
def test_old_galleries_keep_the_former_way(here: Runner, extractor: str, version: int) -> None:
    build_former(here, extractor, ("build", "photos"))
    with h5py.File("gallery.h5") as file:
        assert file.attrs["version"] == version
        assert b"precise" not in file["recipe"].attrs.get("extractor", b"")
    about = json.loads(here("info", "--json").out)
    assert about["extractor"]["precise_jpegs"] is False
    assert "large JPEGs decoded as by crnr 0.2" in " ".join(here("info").out.split())
    # Queries are decoded like the examples, so an example has no distance to itself.
    answers = rows(here("classify", "photos", "-q", "--method", "nn").out)
    nearest = [min(float(row["residual:a"]), float(row["residual:b"])) for row in answers]
    np.testing.assert_allclose(nearest, 0, atol=1e-3)
    # So are examples that are added, by either command.
    assert here("add", "gallery.h5", "new", "-q") == Outcome(0, "", "")
    assert here("build", "photos", "new", "--update", "-q") == Outcome(0, "", "")
    with h5py.File("gallery.h5") as file:
        assert file.attrs["version"] == version
    build_former(here, extractor, ("build", "photos", "new", "-o", "all.h5"))
    found, expected = (load_gallery(Path(name)).samples.vectors for name in ("gallery.h5", "all.h5"))
    np.testing.assert_array_equal(found, expected)


def test_vectors_of_an_old_gallery_are_the_former_pixels(here: Runner) -> None:
    build_former(here, "pixels", ("build", "photos"))
    gallery = load_gallery(Path("gallery.h5"))
    for name, vector in zip(gallery.names, gallery.samples.vectors, strict=True):
        np.testing.assert_allclose(vector, unit(former_pixels(Path(name), "L")), atol=1e-6)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_extract_like_an_old_gallery_keeps_the_former_way(here: Runner, extractor: str) -> None:
    build_former(here, extractor, ("build", "photos"))
    build_former(here, extractor, ("extract", "new", "-o", "former.h5"))
    assert here("extract", "new", "--like", "gallery.h5", "-o", "like.h5", "-q") == Outcome(0, "", "")
    assert Path("like.h5").read_bytes() == Path("former.h5").read_bytes()


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_feature_files_and_caches_of_both_ways_are_not_mixed(here: Runner, extractor: str) -> None:
    chosen = EXTRACTORS[extractor]
    build_former(here, extractor, ("extract", "photos", "-o", "old.h5"))
    assert here("extract", "photos", "-o", "new.h5", *chosen, "-q") == Outcome(0, "", "")
    assert here("build", "old.h5", "-o", "old-gallery.h5", "-q") == Outcome(0, "", "")
    assert here("build", "photos", *chosen, "-q") == Outcome(0, "", "")
    for command in (
        ("build", "photos", *chosen, "--cache", "old.h5", "-o", "other.h5"),
        ("build", "old.h5", "new.h5", "-o", "other.h5"),
        ("classify", "old.h5"),
        ("classify", "new.h5", "-g", "old-gallery.h5"),
        ("add", "gallery.h5", "old.h5"),
    ):
        refused = here(*command)
        assert (refused.exit, refused.out) == (1, "")
        assert "extractor" in refused.err
        assert "large JPEGs decoded as by crnr 0.2" in refused.err
    # A feature file is continued in its own way.
    assert here("extract", "photos", "new", "-o", "old.h5", "--update", "-q") == Outcome(0, "", "")
    build_former(here, extractor, ("extract", "photos", "new", "-o", "all.h5"))
    with h5py.File("old.h5") as found, h5py.File("all.h5") as expected:
        order = np.argsort(found["paths"][()])
        former = expected["features"][()][np.argsort(expected["paths"][()])]
        np.testing.assert_array_equal(found["features"][()][order], former)


def test_galleries_of_both_ways_have_different_vectors_of_large_jpegs(here: Runner) -> None:
    build_former(here, "pixels", ("build", "photos", "-o", "old.h5"))
    assert here("build", "photos", *EXTRACTORS["pixels"], "-q") == Outcome(0, "", "")
    found, former = (load_gallery(Path(name)).samples.vectors for name in ("gallery.h5", "old.h5"))
    assert np.abs(found - former).max() > 1e-3
