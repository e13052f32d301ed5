"""Gradients as the extractor: its defaults, its description in a gallery, and images of every kind."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from crnr_cli.arrays import Array, Batch
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.fit import KnownSamples
from crnr_cli.gallery.gallery import FittedGallery, SampleTable
from crnr_cli.methods import Samples, make_method
from crnr_cli.recipe.base import Stored
from crnr_cli.recipe.gradients import N_COLORS, Gradients
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe, restore_extractor
from helpers.paths import DATA, SAMPLE_DATA
from helpers.runner import Runner, rows
from helpers.samples import CLASSES, draw_image, make_images, noise

SMALL = (8, 8)


@dataclass
class Seen:
    """Images of these sizes."""

    found: set[tuple[int, int]]
    colored: bool = False
    jobs: int = 1

    def sizes(self) -> set[tuple[int, int]]:
        return self.found

    def are_colored(self) -> bool:
        return self.colored


def made(
    settings: dict[str, Any], *sizes: tuple[int, int], colored: bool = False
) -> tuple[Gradients, list[str]]:
    extractor, notes = Gradients.create(settings, Seen(set(sizes), colored))
    assert isinstance(extractor, Gradients)
    return extractor, [note.kind for note in notes]


@pytest.mark.parametrize(
    ("sizes", "size", "cell", "notes"),
    [
        ([(28, 28)], (28, 28), 4, []),
        ([(64, 64)], (64, 64), 8, []),
        ([(42, 30)], (42, 30), 4, []),
        ([(64, 3)], (64, 3), 3, []),
        ([(1, 1)], (1, 1), 3, []),
        ([(65, 20)], (64, 64), 8, ["size"]),
        ([(640, 480)], (64, 64), 8, ["size"]),
        ([(640, 480), (10, 10)], (64, 64), 8, ["size"]),
        ([(30, 30), (31, 30)], (32, 32), 4, ["size"]),
        ([], (32, 32), 4, []),
    ],
)
def test_size_and_cell_are_derived_from_the_images(
    sizes: list[tuple[int, int]], size: tuple[int, int], cell: int, notes: list[str]
) -> None:
    extractor, found = made({}, *sizes)
    assert extractor == Gradients(size, False, cell, 8, "soft")
    assert found == notes


@pytest.mark.parametrize(
    ("size", "grid", "cell"),
    [
        ((30, 42), (1, 1), 4),
        ((30, 42), (5, 3), 2),  # tiles of 10 x 8.4 pixels
        ((43, 60), (5, 3), 3),  # of 14.3 x 12
        ((64, 64), (2, 2), 8),
        ((64, 64), (4, 4), 4),
        ((64, 64), (1, 4), 4),
        ((64, 64), (60, 60), 2),  # never less
        ((28, 28), (2, 2), 4),
        ((28, 28), (4, 4), 2),
        ((16, 16), (2, 2), 3),  # tiles of half an image keep its cells
        ((64, 20), (1, 2), 3),  # the tiles' shorter side is the image's
    ],
)
def test_cells_in_tiles_are_about_a_quarter_of_a_tile(
    size: tuple[int, int], grid: tuple[int, int], cell: int
) -> None:
    extractor, _ = made({}, size)
    assert extractor.for_tiles(*grid, {}) == Gradients(size, False, cell)
    # Whatever they were adapted to before, and unless the user chose the cells.
    assert extractor.for_tiles(7, 7, {}).for_tiles(*grid, {}) == Gradients(size, False, cell)
    assert Gradients(size, False, 5).for_tiles(*grid, {"cell": 5}) == Gradients(size, False, 5)


def test_tune_tries_larger_and_smaller_cells() -> None:
    for cell, others in ((8, [12, 4]), (5, [8, 3]), (3, [5, 2]), (2, [3])):
        found = Gradients(SMALL, True, cell, 6, "none").alternatives({"size": SMALL})
        assert found == [Gradients(SMALL, True, other, 6, "none") for other in others]
    assert Gradients(SMALL, True, 8).alternatives({"cell": 8}) == []


@pytest.mark.parametrize(
    ("size", "notes"), [((640, 480), ["size", "weak vectors"]), ((64, 64), []), ((32, 32), [])]
)
def test_large_images_in_colour_may_be_photographs(size: tuple[int, int], notes: list[str]) -> None:
    assert made({}, size, colored=True)[1] == notes


def test_settings_that_are_given_are_kept() -> None:
    settings = {"size": (20, 10), "color": True, "cell": 3, "bins": 12, "block_norm": "none"}
    assert made(settings, (640, 480)) == (Gradients((20, 10), True, 3, 12, "none"), [])
    assert made({"size": (48, 40)}, (640, 480), colored=True) == (Gradients((48, 40), True, 5), [])
    assert made({"color": False}, SMALL, colored=True) == (Gradients(SMALL, False, 3), [])


def colorful(seed: int, size: tuple[int, int] = SMALL) -> Image.Image:
    return Image.merge("RGB", [noise(seed + band, size) for band in (0, 100, 200)])


@pytest.mark.parametrize(("n_colored", "color"), [(0, False), (3, False), (6, True)])
def test_most_of_the_images_determine_whether_colour_is_used(
    crnr: Runner, n_colored: int, color: bool
) -> None:
    """Unreadable ones have no say."""
    for i in range(8):
        path = crnr.here / "gallery" / CLASSES[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        (colorful(i) if i < n_colored else noise(i)).save(path)
    (crnr.here / "gallery" / CLASSES[0] / "broken.png").write_bytes(b"no image")
    built = crnr("build", "gallery", "--json", "--allow-skipped")
    assert built.exit == 0, built.err
    about = json.loads(built.out)
    assert (about["color"], about["size"]) == (color, [8, 8])
    settings = {"name": "gradients", "cell": 3, "bins": 8, "block_norm": "soft"}
    assert about["extractor"] == {**settings, "precise_jpegs": True}
    assert about["n_inputs"] == 2 * 2 * 32 + (N_COLORS if color else 0)


def test_options_override_derived_settings(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", per_class=2)
    options = ("--color", "--size", "12x9", "--cell", 4, "--bins", 6, "--block-norm", "clipped")
    built = crnr("build", "gallery", *options, "--json", "-q")
    assert (built.exit, built.err) == (0, "")
    about = json.loads(built.out)
    assert (about["size"], about["color"]) == ([12, 9], True)
    settings = {"name": "gradients", "cell": 4, "bins": 6, "block_norm": "clipped"}
    assert about["extractor"] == {**settings, "precise_jpegs": True}
    assert load_gallery(Path("gallery.h5")).recipe.extractor == Gradients((12, 9), True, 4, 6, "clipped")


REFUSED = {
    "--bins 7": "gradients: bins must be an even number from 2 to 64, not 7",
    "--bins 66": "--bins must be from 2 to 64, not 66 (see `crnr build --help`)",
    "--cell 0": "--cell must be from 1 to 65535, not 0 (see `crnr build --help`)",
    "--color --gray": "--color and --gray contradict each other; give one of them",
    "--extractor pixels --cell 4": "--cell does not apply to --extractor pixels; leave it out",
    "--extractor pixels --bins 8": "--bins does not apply to --extractor pixels; leave it out",
    "--extractor pixels --block-norm none": "--block-norm does not apply to --extractor pixels; leave it out",
}


@pytest.mark.parametrize(("options", "words"), REFUSED.items(), ids=REFUSED.keys())
def test_options_that_do_not_fit_are_refused(crnr: Runner, options: str, words: str) -> None:
    make_images(crnr.here / "gallery", per_class=2)
    refused = crnr("build", "gallery", *options.split())
    assert (refused.exit, refused.out, refused.err) == (2, "", f"error: {words}\n")
    assert not Path("gallery.h5").exists()


def test_settings_of_images_are_refused_for_features(crnr: Runner) -> None:
    np.savez("f.npz", features=np.eye(6), labels=list("aabbcc"))
    for option in (["--cell", "2"], ["--bins", "8"], ["--gray"], ["--extractor", "gradients"]):
        refused = crnr("build", "f.npz", *option)
        name = "--gray" if option == ["--grey"] else option[0]
        words = f"error: {name} only applies to images, but f.npz contains features; leave the option out\n"
        assert (refused.exit, refused.out, refused.err) == (2, "", words)


EXTRACTOR = Gradients((10, 9), True, 3, 6, "clipped")


def test_the_description_is_stored_and_restored() -> None:
    stored = EXTRACTOR.to_stored()
    assert {name: stored.attributes[name] for name in ("width", "height", "color")} == {
        "width": 10,
        "height": 9,
        "color": True,
    }
    assert restore_extractor(stored) == EXTRACTOR
    recipe = Recipe.for_images(EXTRACTOR)
    assert (recipe.since_version, Recipe.from_stored(recipe.to_stored())) == (5, recipe)


def test_gradients_describe_their_settings() -> None:
    assert EXTRACTOR.describe() == "gradients, 10x9, cells of 3, 6 directions, block norm clipped, colour"
    assert Gradients((28, 28), False, 4).describe() == "gradients, 28x28, cells of 4, 8 directions"


# Invalid settings of an untrusted gallery, and the messages.
DESCRIBED = {
    "name": "gradients",
    "size": [8, 8],
    "color": False,
    "cell": 2,
    "bins": 8,
    "block_norm": "soft",
    "precise_jpegs": True,
}
UNKNOWN = "this version of crnr does not know the extractor"
BINS = "gradients: bins must be an even number from 2 to 64"
NORM = "gradients: block_norm must be soft or clipped or none"
INVALID = "the description of the extractor is invalid"
AT_MOST = "choose at most 2048 pixels per side"
ALTERATIONS: dict[str, tuple[Any, str]] = {
    "no object": ([1, 2], INVALID),
    "nothing": ("", INVALID),
    "a fraction of a cell": ({**DESCRIBED, "cell": 2.5}, INVALID),
    "a colour that is a number": ({**DESCRIBED, "color": 1}, INVALID),
    "an unknown name": (
        {**DESCRIBED, "name": "magic"},
        f"{UNKNOWN} magic",
    ),
    "no name": ({**DESCRIBED, "name": None}, f"{UNKNOWN} None"),
    "a list as the name": (
        {**DESCRIBED, "name": [1]},
        f"{UNKNOWN} [1]",
    ),
    "no settings": ({"name": "gradients"}, "the description of the extractor is incomplete"),
    "a setting too many": ({**DESCRIBED, "lens": 1}, "the description of the extractor is incomplete"),
    "a number instead of yes or no": ({**DESCRIBED, "precise_jpegs": 1}, INVALID),
    "no side": ({**DESCRIBED, "size": [0, 8]}, f"gradients: invalid image size 0x8; {AT_MOST}"),
    "a negative side": ({**DESCRIBED, "size": [8, -8]}, f"gradients: invalid image size 8x-8; {AT_MOST}"),
    "a huge side": (
        {**DESCRIBED, "size": [10**9, 8]},
        f"gradients: invalid image size 1000000000x8; {AT_MOST}",
    ),
    "three sides": ({**DESCRIBED, "size": [8, 8, 8]}, INVALID),
    "a size that is no list": ({**DESCRIBED, "size": 8}, INVALID),
    "no cell": ({**DESCRIBED, "cell": 0}, "gradients: cell must be 1 pixel or more, not 0"),
    "a cell that is no number": ({**DESCRIBED, "cell": "two"}, INVALID),
    "a cell that is a list": ({**DESCRIBED, "cell": []}, INVALID),
    "an infinite cell": ({**DESCRIBED, "cell": float("inf")}, INVALID),
    "odd bins": ({**DESCRIBED, "bins": 7}, f"{BINS}, not 7"),
    "too many bins": (
        {**DESCRIBED, "bins": 10**6},
        "gradients: bins must be an even number from 2 to 64, not 1000000",
    ),
    "no norm": ({**DESCRIBED, "block_norm": "hard"}, f"{NORM}, not hard"),
    "a norm that is no text": ({**DESCRIBED, "block_norm": [1]}, f"{NORM}, not [1]"),
    "other numbers": ({**DESCRIBED, "bins": 6}, "the arrays have different sizes"),
    "another size": ({**DESCRIBED, "size": [2048, 2048], "cell": 1}, "the arrays have different sizes"),
    "colour": ({**DESCRIBED, "color": True}, "the arrays have different sizes"),
}


def rehash(path: Path) -> None:
    """Give an altered gallery the right checksum, as an attacker would."""
    from crnr_cli.gallery.hdf5_contents import read_content

    content = read_content(path)
    with h5py.File(path, "r+") as file:
        file.attrs["sha256"] = np.bytes_(content.compute_sha256())


@pytest.fixture(scope="module")
def small_gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three random images of 8 x 8."""
    extractor = Gradients(SMALL, False, 2)
    recipe = Recipe.for_images(extractor)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64), dtype=np.uint8)
    vectors, _ = recipe.unit_vectors(extractor.open(1).extract(pixels), "float32")
    samples, method = Samples.of(vectors, np.arange(3)), make_method("nn", {})
    path = tmp_path_factory.mktemp("small") / "gallery.h5"
    names = list("abc")
    table = SampleTable(names, names, names)
    save_gallery(FittedGallery(samples, table, names, recipe, method, method.fit(samples)), path)
    return path


def refusal(path: Path, small_gallery: Path, described: bytes) -> str:
    """Return the description of such a gallery."""
    shutil.copy(small_gallery, path)
    with h5py.File(path, "r+") as file:
        assert json.loads(file["recipe"].attrs["extractor"]) == DESCRIBED
        file["recipe"].attrs["extractor"] = np.bytes_(described)
    rehash(path)
    with pytest.raises(GalleryError) as refused:
        load_gallery(path)
    return str(refused.value)


@pytest.mark.parametrize(("described", "words"), ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_an_invalid_description_is_refused(
    tmp_path: Path, small_gallery: Path, described: Any, words: str
) -> None:
    path = tmp_path / "g.h5"
    said = refusal(path, small_gallery, json.dumps(described).encode())
    assert said == f"{path}: not a consistent gallery ({words}); build it again"


@pytest.mark.parametrize("described", [b"{", b"\xff\xfe", b"[" * 50_000], ids=["half", "no text", "deep"])
def test_a_description_that_is_not_json_is_refused(
    tmp_path: Path, small_gallery: Path, described: bytes
) -> None:
    assert "not a consistent gallery" in refusal(tmp_path / "g.h5", small_gallery, described)


def test_invalid_settings_are_refused() -> None:
    for settings in ({"cell": 0}, {"bins": 0}, {"block_norm": ""}, {"size": (0, 1)}):
        with pytest.raises(UsageError, match="gradients: "):
            Gradients(**{"size": SMALL, "color": False, "cell": 2, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (8, 8), (33, 20)])
@pytest.mark.parametrize("color", [False, True])
def test_gradients_return_the_declared_number_of_values(size: tuple[int, int], color: bool) -> None:
    for norm in ("soft", "clipped", "none"):
        extractor = Gradients(size, color, 2, 4, norm)
        n = size[0] * size[1] * (3 if color else 1)
        pixels = np.random.default_rng(0).integers(0, 256, (3, n), dtype=np.uint8)
        values = extractor.open(1).extract(pixels)
        assert (values.shape, values.dtype) == ((3, extractor.n_values), np.float32)
        assert (
            sum(rows * columns * depth for rows, columns, depth, *_ in extractor.sections)
            == extractor.n_values
        )
        assert extractor.open(1).extract(pixels[:0]).shape == (0, extractor.n_values)


def halves(values: Array) -> tuple[Array, Array]:
    lengths = [
        np.linalg.norm(half.astype(np.float64), axis=1) for half in np.split(values, [-N_COLORS], axis=1)
    ]
    return lengths[0], lengths[1]


def test_gradients_and_colours_count_the_same() -> None:
    """Each has unit length, however faint the one or the other is; those that do not exist are zeros."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    pixels[1] = 100 + pixels[1] // 100
    pixels[2] //= 200
    pixels[3] = np.where(
        random.random((8, 8, 1)) < 0.5, (114, 0, 0), (0, 0, 299 - 1)
    )  # nearly the same brightness
    pixels[4] = (10, 200, 30)  # blank
    pixels[5] = np.where(random.random((8, 8, 1)) < 0.5, (114, 100, 0), (0, 100, 0))
    found = Gradients(SMALL, True, 2).open(1).extract(pixels.reshape(6, -1))
    of_gradients, of_colors = halves(found)
    np.testing.assert_allclose(of_gradients, [1, 1, 1, 1, 0, 1], atol=1e-6)
    np.testing.assert_allclose(of_colors, 1, atol=1e-6)


def test_values_do_not_depend_on_the_batch() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (70, 32 * 32 * 3), dtype=np.uint8)
    extract = Gradients((32, 32), True, 4).open(1).extract
    together = extract(pixels)
    for start, stop in ((0, 1), (69, 70), (10, 45)):
        assert np.array_equal(extract(pixels[start:stop]), together[start:stop])


def test_gradients_of_colour_images_use_their_brightness() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 3), dtype=np.uint8)
    grey = (pixels.astype(np.float64) @ [0.299, 0.587, 0.114]).astype(np.float32)
    both = Gradients(SMALL, True, 2).open(1).extract(pixels.reshape(3, -1))[:, :-N_COLORS].astype(np.float64)
    alone = Gradients(SMALL, False, 2).open(1).extract(grey).astype(np.float64)
    alone /= np.linalg.norm(alone, axis=1, keepdims=True)
    np.testing.assert_allclose(both**2, alone**2, rtol=0, atol=1e-5)


@pytest.mark.parametrize("color", [False, True])
def test_a_blank_image_has_nothing_to_compare(color: bool) -> None:
    """In colour, too: of an image of one colour, only the histogram would be left."""
    recipe = Recipe.for_images(Gradients((3, 2), color, 2))
    bands = 3 if color else 1
    pixels = np.full((2, 6 * bands), 120, np.uint8)
    pixels[:, ::bands] = 200
    pixels[1, 4] = 7
    batch = recipe.open().raw(Batch(["blank", "not"], [None, None], pixels, 2))
    assert [error and (error.status, error.detail) for error in batch.errors] == [
        ("zero_norm", "nothing to compare: all of one colour"),
        None,
    ]
    assert batch.values.shape == (1, recipe.n_inputs)


def residuals_of(answered: str) -> dict[str, list[float]]:
    return {
        row["path"]: [float(row[f"residual:{name}"]) for name in CLASSES]
        for row in rows(answered)
        if row["status"] == "ok"
    }


DEPTHS = {
    "bytes": lambda values: values,
    "16 bits": lambda values: values.astype(np.uint16) * 257,
    "floats of 0 to 1": lambda values: (values / 255).astype(np.float32),
    "floats of 0 to 255": lambda values: values.astype(np.float32),
    "32 bits": lambda values: values.astype(np.int32) * 8_421_504,
}


@pytest.mark.parametrize("options", [["--gray"], ["--color"], ["--gray", "--block-norm", "none"]])
def test_images_of_any_depth_have_the_same_answers(crnr: Runner, options: list[str]) -> None:
    make_images(crnr.here / "gallery", size=(12, 11))
    (crnr.here / "queries").mkdir()
    values = np.asarray(draw_image(1, 99, (12, 11))).copy()
    values[0, 0] = 255  # from the largest value, the range is known
    for name, convert in DEPTHS.items():
        Image.fromarray(convert(values)).save(crnr.here / "queries" / f"{name}.tif")
    assert crnr("build", "gallery", *options, "-q").exit == 0
    answered = crnr("classify", "queries", "-q")
    assert (answered.exit, answered.err) == (0, "")
    found = residuals_of(answered.out)
    assert len(found) == len(DEPTHS)
    for path, residuals in found.items():
        np.testing.assert_allclose(residuals, found["queries/bytes.tif"], rtol=0, atol=2e-5, err_msg=path)


@pytest.mark.parametrize("norm", ["soft", "clipped", "none"])
def test_a_copy_of_another_depth_is_found(norm: str) -> None:
    extractor = Gradients((28, 28), False, 4, 8, norm)
    recipe = Recipe.for_images(extractor)
    pixels = np.array([np.asarray(Image.open(path)).ravel() for path in SAMPLE_DATA.glob("gallery/*/*.png")])
    assert pixels.shape[1] == 28 * 28
    vectors, _ = recipe.unit_vectors(extractor.open(1).extract(pixels), "float32")
    known = KnownSamples.of("pictures", [], vectors)
    for convert in DEPTHS.values():
        deep = convert(pixels).astype(np.float32)
        copies, _ = recipe.unit_vectors(extractor.open(1).extract(deep), "float32")
        assert known.known_mask([""] * len(copies), copies).all()


@pytest.mark.parametrize("options", [["--gray"], ["--color"]])
def test_floats_that_are_huge_tiny_blank_or_not_finite(crnr: Runner, options: list[str]) -> None:
    make_images(crnr.here / "gallery")
    (crnr.here / "queries").mkdir()
    values = np.asarray(draw_image(1, 99)).astype(np.float32)
    odd = {"blank": np.full((8, 8), 3.5, np.float32), "huge": values * np.float32(1e30)}
    for name, bad in (("inf", np.inf), ("nan", np.nan)):
        odd[name] = values.copy()
        odd[name][3, 4] = bad
    if options == ["--gray"]:  # in colour, the range of such a small image is taken to end at 1
        odd["tiny"] = values * np.float32(1e-30)
    for name, floats in odd.items():
        Image.fromarray(floats).save(crnr.here / "queries" / f"{name}.tif")
    assert crnr("build", "gallery", *options, "-q").exit == 0
    answered = crnr("classify", "queries", "-q")
    assert (answered.exit, answered.err) == (3, "")
    expected = {"blank": "zero_norm", "huge": "ok", "inf": "non_finite", "nan": "non_finite", "tiny": "ok"}
    assert [(row["path"], row["status"]) for row in rows(answered.out)] == [
        (f"queries/{name}.tif", expected[name]) for name in sorted(odd)
    ]
    assert {row["label"] for row in rows(answered.out) if row["status"] == "ok"} == {"bee"}


def tiny(folder: Path, size: tuple[int, int], mode: str, first: int = 0) -> None:
    """Two classes of images, alike within a class, of as few pixels as wanted."""
    for number, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        shape = (size[1], size[0], 3)[: 3 if mode == "RGB" else 2]
        pattern = np.random.default_rng(number + 3).integers(10, 246, shape)
        for sample in range(first, first + 3):
            changed = pattern + np.random.default_rng([number, sample]).integers(-3, 4, shape)
            Image.fromarray(changed.astype(np.uint8)).save(folder / name / f"{sample}.png")


@pytest.mark.parametrize(
    ("size", "mode"),
    [
        ((2, 1), "L"),
        ((1, 2), "RGB"),
        ((2, 2), "L"),
        ((3, 3), "RGB"),
        ((3, 4), "L"),
        ((1, 9), "L"),
        ((64, 1), "L"),
    ],
)
def test_images_of_any_size_are_labelled(crnr: Runner, size: tuple[int, int], mode: str) -> None:
    tiny(crnr.here / "gallery", size, mode)
    tiny(crnr.here / "queries", size, mode, first=50)
    built = crnr("build", "gallery", "-q")
    assert (built.exit, built.out, built.err) == (0, "", "")
    answered = crnr("classify", "queries", "-o", "out.csv")
    assert (answered.exit, answered.out, answered.err) == (0, "", "labelled 6 of 6 queries: out.csv\n")
    found = rows(Path("out.csv").read_text())
    assert [row["status"] for row in found] == ["ok"] * 6
    if size != (2, 1):  # of two greys, only their order is seen
        assert [row["label"] for row in found] == list("aaabbb")


def test_images_of_one_pixel_have_only_a_colour(crnr: Runner) -> None:
    tiny(crnr.here / "coloured", (1, 1), "RGB")
    tiny(crnr.here / "grey", (1, 1), "L")
    assert crnr("build", "coloured", "-q").exit == 0
    answered = crnr("classify", "coloured", "-q")
    assert (answered.exit, answered.err) == (0, "")
    assert [row["label"] for row in rows(answered.out)] == list("aaabbb")
    refused = crnr("build", "grey", "-o", "grey.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(
        "error: no usable images or rows of features: grey/a/0.png: nothing to compare: all values are zero "
        "(and "
    )
    assert not Path("grey.h5").exists()
    unanswered = crnr("classify", "grey", "-q", "-g", "gallery.h5")
    assert (unanswered.exit, unanswered.err) == (0, "")  # greys are colours


def test_images_of_different_small_sizes_are_brought_to_one(crnr: Runner) -> None:
    for number, size in enumerate([(1, 1), (2, 1), (3, 3), (5, 2), (6, 6), (64, 64)]):
        path = crnr.here / "gallery" / "ab"[number % 2] / f"{size[0]}x{size[1]}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(number, size).save(path)
    built = crnr("build", "gallery", "--allow-skipped")
    assert (built.exit, built.out) == (0, "")
    assert "images differ in size: all are resized to 32x32" in built.err
    assert "failed: gallery/a/1x1.png: nothing to compare: all of one colour\n" in built.err
    answered = crnr("classify", "gallery")
    assert answered.exit == 3
    assert [row["status"] for row in rows(answered.out)] == ["zero_norm"] + ["ok"] * 5
    assert ": zero_norm, " in answered.err


def test_galleries_without_a_description_have_pixels_or_features() -> None:
    for name in ("gallery-v1.h5", "gallery-steps-v1.h5"):
        gallery = load_gallery(DATA / name)
        with h5py.File(DATA / name) as file:
            assert np.array_equal(gallery.samples.vectors, file["samples/vectors"][()])
            assert "extractor" not in file["recipe"].attrs
        assert (gallery.recipe.since_version, gallery.samples.parts) == (1, None)
    old = Stored({"width": 3, "height": 2, "color": True})
    assert restore_extractor(old) == RawPixels((3, 2), True, precise_jpegs=False)


@pytest.mark.parametrize("options", [[], ["--color"], ["--size", "5x4"]])
def test_pixels_give_the_pixels_themselves(crnr: Runner, options: list[str]) -> None:
    """The vector equals Pillow's pixels divided by their norm, to the bit."""
    make_images(crnr.here / "gallery")
    built = crnr("build", "gallery", "--extractor", "pixels", *options, "--dtype", "float64", "--json", "-q")
    assert (built.exit, built.err) == (0, "")
    assert json.loads(built.out)["extractor"] == {"name": "pixels", "precise_jpegs": True}
    gallery = load_gallery(Path("gallery.h5"))
    for name, vector in zip(gallery.names, gallery.samples.vectors, strict=True):
        image = Image.open(name).convert("RGB" if options == ["--color"] else "L")
        if "--size" in options:
            image = image.resize((5, 4), Image.Resampling.BILINEAR)
        pixels = np.asarray(image).astype(np.float64).ravel()
        scaled = pixels / pixels.max()
        np.testing.assert_allclose(vector, scaled / np.linalg.norm(scaled), rtol=1e-15)
