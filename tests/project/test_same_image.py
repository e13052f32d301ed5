"""The same image gives the same answer, however it is stored, named and read.

An image is changed in ways that do not change what a person sees: its format, the depth of its pixels, its
palette, its orientation, its name, and the way that crnr is called. Each change is an entry of a table, and
Hypothesis combines them. Answers are equal to the digit where the pixels are equal, and nearly equal where a
format has other numbers for them.
"""

from __future__ import annotations

import contextlib
import shutil
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from helpers.runner import Runner, rows
from helpers.samples import TURNS, draw_image, make_images, save_turned

Change = Callable[[Image.Image], Image.Image]


class Format(NamedTuple):
    """How an image is saved: the end of its name, options of Pillow, and what the format can do."""

    suffix: str
    options: dict[str, Any]
    kinds: tuple[str, ...]  # the kinds of pixels that it can store
    turns: bool = True  # whether it can say how the image is turned


FORMATS = {
    "PNG": Format("png", {}, ("grey", "palette", "colour", "opaque", "16 bits")),
    "BMP": Format("bmp", {}, ("grey", "palette", "colour"), turns=False),
    "GIF": Format("gif", {}, ("palette",), turns=False),
    "PGM": Format("pgm", {}, ("grey", "16 bits"), turns=False),
    "PPM": Format("ppm", {}, ("colour",), turns=False),
    "WebP": Format("webp", {"lossless": True}, ("colour", "opaque")),
    "HEIC": Format("heic", {"quality": -1}, ("grey",)),
    "TIFF": Format("tif", {}, ("grey", "palette", "colour", "opaque", "16 bits", "floats")),
    "TIFF in LZW": Format("tif", {"compression": "tiff_lzw"}, ("grey", "colour", "16 bits", "floats")),
    "TIFF in Deflate": Format("tif", {"compression": "tiff_adobe_deflate"}, ("grey", "colour")),
    "TIFF in PackBits": Format("tif", {"compression": "packbits"}, ("grey", "colour")),
}

# The same grey pixels in other forms.
KINDS: dict[str, Change] = {
    "grey": lambda image: image,
    "palette": lambda image: image.convert("P"),
    "colour": lambda image: image.convert("RGB"),
    "opaque": lambda image: image.convert("RGBA"),
    "16 bits": lambda image: Image.fromarray(np.asarray(image).astype(np.uint16) * 257),
    "floats": lambda image: Image.fromarray(np.asarray(image).astype(np.float32) / 255),
}
# Their numbers are others, so the last digits of a residual are too.
INEXACT = {"16 bits", "floats"}
TOLERANCE = 2e-6

NAMES = {
    "plain": "x",
    "composed": unicodedata.normalize("NFC", "caf\u00e9"),
    "decomposed": unicodedata.normalize("NFD", "caf\u00e9"),
    "spaces": "two  words ",
}


@dataclass(frozen=True)
class Variant:
    """One way to store an image."""

    format: str
    kind: str
    orientation: int
    name: str
    has_suffix: bool  # the content tells the format, so the name need not

    def save(self, image: Image.Image, folder: Path, number: int) -> Path:
        format = FORMATS[self.format]
        path = folder / f"{number:02}{NAMES[self.name]}.{format.suffix}"
        stored = KINDS[self.kind](image)
        if format.turns:
            save_turned(stored, path, self.orientation, **format.options)
        else:
            stored.save(path, **format.options)
        return path if self.has_suffix else path.rename(path.with_suffix(""))


FORMS = [(name, kind) for name, format in FORMATS.items() for kind in format.kinds]
VARIANTS = st.builds(
    lambda form, orientation, name, has_suffix: Variant(
        *form, orientation if FORMATS[form[0]].turns else 1, name, has_suffix
    ),
    st.sampled_from(FORMS),
    st.sampled_from(list(TURNS)),
    st.sampled_from(list(NAMES)),
    st.booleans(),
)


def answers(crnr: Runner, *arguments: object, stdin: str = "") -> list[dict[str, str]]:
    outcome = crnr("classify", *arguments, "-q", stdin=stdin)
    assert (outcome.exit, outcome.err) == (0, "")
    return rows(outcome.out)


def answer(row: dict[str, str]) -> tuple[str, str, str, list[float]]:
    """Return the status, the label, the second choice, and all numbers of a row."""
    numbers = [float(value) for name, value in row.items() if name.startswith(("residual", "margin"))]
    return row["status"], row["label"], row["runner_up"], numbers


class Recipe(NamedTuple):
    """Options of build, and how much answers may differ where the numbers of the pixels are others."""

    options: tuple[str, ...]
    tolerance: float


RECIPES = {
    "native size": Recipe((), 2e-6),
    "pca": Recipe(("--pca", "5"), 2e-6),
    "resized": Recipe(("--size", "7x10"), 5e-3),  # pixels of 8 bits are rounded after they are resized
    "colour": Recipe(("--color",), 2e-6),
}


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest, crnr: Runner) -> Recipe:
    """Of gallery.h5, whose images have 12 x 9 pixels."""
    recipe = RECIPES[request.param]
    make_images(crnr.here / "gallery", size=(12, 9))
    assert crnr("build", "gallery", *recipe.options, "-q").exit == 0
    return recipe


def assert_same(found: list[dict[str, str]], copies: list[dict[str, str]], tolerances: list[float]) -> None:
    """Compare with as many copies of the plain image, as the place in a batch can change the last bits."""
    for row, plain, tolerance in zip(found, copies, tolerances, strict=True):
        assert answer(row)[:3] == answer(plain)[:3], row["path"]
        np.testing.assert_allclose(
            answer(row)[3], answer(plain)[3], rtol=0, atol=tolerance, err_msg=row["path"]
        )


def test_every_format_in_every_orientation(crnr: Runner, recipe: Recipe) -> None:
    image = draw_image(1, 50, (12, 9))
    image.save("plain.png")
    Path("q").mkdir()
    variants = [
        Variant(*form, orientation, "plain", True)
        for form in FORMS
        for orientation in (TURNS if FORMATS[form[0]].turns else [1])
    ]
    paths = [variant.save(image, Path("q"), number) for number, variant in enumerate(variants)]
    tolerances = [recipe.tolerance if variant.kind in INEXACT else 0.0 for variant in variants]
    assert_same(answers(crnr, *paths), answers(crnr, *["plain.png"] * len(paths)), tolerances)


# How the same files are given to crnr.
WAYS: dict[str, Callable[[Runner, list[Path]], list[dict[str, str]]]] = {
    "relative": lambda crnr, paths: answers(crnr, *paths),
    "absolute": lambda crnr, paths: answers(crnr, *(path.absolute() for path in paths)),
    "roundabout": lambda crnr, paths: answers(crnr, *(f"./q/../{path}" for path in paths)),
    "a folder": lambda crnr, paths: answers(crnr, "q"),
    "a list": lambda crnr, paths: answers(crnr, "-", stdin="".join(f"{path}\n" for path in paths)),
    "one worker": lambda crnr, paths: answers(crnr, *paths, "-j", "1"),
    "two workers": lambda crnr, paths: answers(crnr, *paths, "-j", "2"),
}


@pytest.fixture(scope="module")
def plain_gallery(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    crnr = Runner(tmp_path_factory.mktemp("same"))
    make_images(crnr.here / "gallery", size=(12, 9))
    assert crnr("build", "gallery", "-q").exit == 0
    draw_image(1, 50, (12, 9)).save(crnr.here / "plain.png")
    return crnr


@pytest.mark.slow
@settings(max_examples=10, deadline=None)  # each starts a process that decodes
@given(st.lists(VARIANTS, min_size=1, max_size=9), st.sampled_from(list(WAYS)))
def test_any_combination_of_changes_gives_the_same_answer(
    plain_gallery: Runner, variants: list[Variant], way: str
) -> None:
    crnr = plain_gallery
    shutil.rmtree(crnr.here / "q", ignore_errors=True)
    (crnr.here / "q").mkdir()
    image = draw_image(1, 50, (12, 9))
    with contextlib.chdir(crnr.here):
        paths = [variant.save(image, Path("q"), number) for number, variant in enumerate(variants)]
        found = WAYS[way](crnr, paths)
    tolerances = [TOLERANCE if variant.kind in INEXACT else 0.0 for variant in variants]
    assert [Path(row["path"]).name for row in found] == [path.name for path in paths]
    assert_same(found, answers(crnr, *["plain.png"] * len(paths)), tolerances)


def test_a_gallery_of_any_formats_gives_the_same_answers(crnr: Runner, recipe: Recipe) -> None:
    """Each sample is stored in another way; 16-bit images must not weigh more in the fit."""
    make_images(crnr.here / "queries", first=50, size=(12, 9))
    plain = answers(crnr, "queries")
    for number, path in enumerate(sorted(Path("gallery").rglob("*.png"))):
        with Image.open(path) as image:
            image.load()
        path.unlink()
        form = FORMS[5 * number % len(FORMS)]
        orientation = 1 + number % 8 if FORMATS[form[0]].turns else 1
        Variant(*form, orientation, "plain", True).save(image, path.parent, number)
    assert crnr("build", "gallery", *recipe.options, "-q").exit == 0
    found = answers(crnr, "queries")
    assert_same(found, plain, [max(recipe.tolerance, 1e-5)] * len(found))
