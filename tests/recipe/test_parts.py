"""Parts: tiles of an image against a loop over its places, and the commands with --parts."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.errors import GalleryError, UsageError
from crnr_cli.gallery.file import load_gallery, save_gallery
from crnr_cli.gallery.gallery import FittedGallery, LazyLabels, SampleTable
from crnr_cli.gallery.reading import find_right_neighbors, spread_runs
from crnr_cli.methods import METHODS, Samples, fit_method, make_method
from crnr_cli.recipe.base import Extractor, Section
from crnr_cli.recipe.gradients import N_COLORS, Gradients
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Parts, Pca, Power
from helpers.onnx_models import projection_model
from helpers.runner import Runner, rows
from helpers.samples import CLASSES, draw_image, make_features, make_images, noise

GRADIENTS = Gradients((20, 18), False, 3)  # 6 x 7 cells, 5 x 6 blocks of 32 values
IN_COLOUR = Gradients((20, 18), True, 3)
PIXELS = RawPixels((7, 5))
COLOUR_PIXELS = RawPixels((7, 5), True)
EXTRACTORS = [GRADIENTS, IN_COLOUR, PIXELS, COLOUR_PIXELS]


def placed(extractor: Extractor, rows: int, columns: int) -> Parts:
    return Parts(rows, columns).for_extractor(extractor)


def by_loops(values: Array, parts: Parts, section: Section) -> list[list[float]]:
    """Return the tiles of one image: the places whose middle is within the box of the tile, row by row."""
    tiles = []
    for top, bottom, left, right, name in parts.tiles:
        if name:
            continue
        found = [
            float(values[(i * section.columns + j) * section.depth + k])
            for i in range(section.rows)
            for j in range(section.columns)
            for k in range(section.depth)
            if top < (i + 0.5) / section.rows < bottom and left < (j + 0.5) / section.columns < right
        ]
        mean = sum(found) / len(found) if section.is_centred else 0.0
        found = [value - mean for value in found]
        length = sum(value * value for value in found) ** 0.5
        tiles.append([value / length if length > 1e-9 else 0.0 for value in found])
    return tiles


GRIDS = [(1, 1), (1, 2), (2, 3), (5, 1), (5, 6), (4, 4)]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda extractor: extractor.describe())
def test_tiles_match_a_loop_over_the_places(extractor: Extractor, grid: tuple[int, int]) -> None:
    step = placed(extractor, *grid)
    values = np.random.default_rng(0).random((3, extractor.n_values))
    found = step.apply(values.copy(), "float64")
    assert step.n_outputs(extractor.n_values) == extractor.n_values
    for before, after in zip(values, found, strict=True):
        tiles = by_loops(before, step, extractor.sections[0])
        if len(extractor.sections) > 1:  # colour is a part of its own, at the end
            tiles.append((before[-N_COLORS:] / np.linalg.norm(before[-N_COLORS:])).tolist())
        assert [len(tile) for tile in tiles] == np.diff(step.part_edges).tolist()
        np.testing.assert_allclose(after, np.concatenate(tiles), rtol=0, atol=1e-12)


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_tiles_cover_every_value_once(rows: int, columns: int, data: st.DataObject) -> None:
    """They have about the same size, and their boxes fill the image."""
    depth, centred = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    grid = data.draw(st.integers(1, rows)), data.draw(st.integers(1, columns))
    n = rows * columns * depth
    step = Parts(*grid, (Section(rows, columns, depth, centred), Section(1, 1, 4, name="colour")))
    assert len(step.tiles) == len(step.part_edges) - 1 == grid[0] * grid[1] + 1
    # A row for each value, in which it is the only one that is not zero.
    alone = Parts(*grid, (Section(rows, columns, depth), Section(1, 1, 4))).apply(np.eye(n + 4), "float64")
    assert np.array_equal(alone.sum(axis=0), np.ones(n + 4))
    assert np.array_equal(alone.max(axis=1), np.ones(n + 4))
    boxes = [tile for tile in step.tiles if not tile.name]
    assert sum((bottom - top) * (right - left) for top, bottom, left, right, _ in boxes) == pytest.approx(1)
    heights = {round((bottom - top) * rows) for top, bottom, *_ in boxes}
    widths = {round((right - left) * columns) for _, _, left, right, _ in boxes}
    assert min(heights) >= 1 <= min(widths)
    assert max(heights) - min(heights) <= 1 >= max(widths) - min(widths)
    assert step.tiles[-1] == (0, 1, 0, 1, "colour")


def test_a_blank_tile_is_zero_and_leaves_the_others_alone() -> None:
    """For any grey: of its pixels, only rounding errors are left."""
    step = placed(RawPixels((6, 6)), 2, 2)
    pixels = np.random.default_rng(0).random((4, 6, 6))
    blank = pixels.copy()
    for image_, level in zip(blank, (0, 1, 1 / 3, 0.1), strict=True):
        image_[:3, 3:] = level
    before, after = (step.apply(values.reshape(4, 36).copy(), "float64") for values in (pixels, blank))
    assert not after[:, 9:18].any()
    assert before[:, 9:18].any(axis=1).all()
    for tile in (slice(0, 9), slice(18, 36)):
        assert np.array_equal(after[:, tile], before[:, tile])


def test_an_image_of_blank_tiles_has_nothing_to_compare() -> None:
    recipe = Recipe.for_images(RawPixels((4, 2)), (Parts(1, 2),))
    vectors, faults = recipe.unit_vectors(np.array([[9, 9, 40, 40] * 2, [9, 9, 40, 41] * 2]), "float32")
    assert [fault and (fault.status, fault.detail) for fault in faults] == [
        ("zero_norm", "nothing to compare: the vector is all zero"),
        None,
    ]
    np.testing.assert_allclose(vectors, [[0] * 8, [0] * 4 + [-0.5, 0.5] * 2], atol=1e-6)


@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda extractor: extractor.describe())
def test_each_part_of_a_vector_has_unit_length(extractor: Extractor) -> None:
    recipe = Recipe.for_images(extractor, (Power(0.5), Parts(2, 3)))
    raw = np.random.default_rng(0).random((4, extractor.n_values)).astype(np.float32)
    for dtype in ("float32", "float64"):
        vectors, faults = recipe.unit_vectors(raw, dtype)
        assert (faults, vectors.dtype) == ([None] * 4, np.dtype(dtype))
        assert recipe.part_edges is not None
        for start, stop in pairwise(recipe.part_edges):
            np.testing.assert_allclose(np.linalg.norm(vectors[:, start:stop], axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("extractor", [GRADIENTS, PIXELS], ids=["gradients", "pixels"])
def test_vectors_do_not_depend_on_the_batch(extractor: Extractor) -> None:
    recipe = Recipe.for_images(extractor, (Parts(2, 3),))
    raw = np.random.default_rng(0).random((50, extractor.n_values)).astype(np.float32)
    together, _ = recipe.unit_vectors(raw, "float32")
    for start, stop in ((0, 1), (49, 50), (10, 43)):
        assert np.array_equal(recipe.unit_vectors(raw[start:stop], "float32")[0], together[start:stop])
    empty, faults = recipe.unit_vectors(raw[:0], "float32")
    assert (empty.shape, faults) == ((0, extractor.n_values), [])


def test_parts_parse_and_describe_their_setting() -> None:
    assert Parts.of("4x12") == Parts(4, 12)
    assert (Parts(4, 12).setting, Parts(4, 12).describe()) == ("4x12", "4x12 tiles")
    assert (Parts.parse("0"), Parts.parse("2x3")) == (None, "2x3")
    for text in ("", "4", "x", "0x4", "4x0", "-1x4", "4x4x4", "4 x 4", "04x4", "1000x1", "٣x٣", "4x٣"):
        with pytest.raises(UsageError, match=r"write the rows and columns of tiles, such as 4x4"):
            Parts.of(text)
        with pytest.raises(ValueError, match=r"neither 0 nor rows and columns of tiles, such as 4x4"):
            Parts.parse(text)
    with pytest.raises(UsageError, match="at least one row and one column"):
        Parts(0, 1)


def test_a_place_belongs_to_one_tile_at_most() -> None:
    for extractor, most in ((GRADIENTS, "5x6"), (PIXELS, "5x7"), (COLOUR_PIXELS, "5x7")):
        limit = rf"choose at most {most} for {extractor.describe()}"
        for grid in ("6x1", "1x8", "999x999"):
            with pytest.raises(UsageError, match=rf"^--parts {grid}: {limit}$"):
                Parts.of(grid).for_extractor(extractor)


def test_parts_need_places_in_the_image() -> None:
    with pytest.raises(UsageError, match=r"^--parts only applies to images; leave it out for features$"):
        Recipe.of(12, steps=(Parts(2, 2),))
    with pytest.raises(
        UsageError, match=r"^--parts cannot be combined with --pca, after which values have no"
    ):
        Recipe.for_images(PIXELS, (Pca(3), Parts(2, 2)))


REFUSED = {
    "--parts 2x2 --pca 2": "--parts cannot be combined with --pca, after which values have no place in the "
    "image",
    "--parts 4x1": "--parts 4x1: choose at most 3x3 for gradients, 8x8, cells of 2, 8 directions",
    "--parts 3x1 --cell 3": "--parts 3x1: choose at most 2x2 for gradients, 8x8, cells of 3, 8 directions",
    "--parts 9x1 --extractor pixels": "--parts 9x1: choose at most 8x8 for pixels, 8x8, grey",
    "--parts 2": "--parts '2': write the rows and columns of tiles, such as 4x4",
    "--parts 0x2": "--parts '0x2': write the rows and columns of tiles, such as 4x4",
    "--parts 2x2 --extractor model.onnx --extractor-preset raw": (
        "--parts does not apply to networks, whose features have no place in the image; leave it out"
    ),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.items(), ids=REFUSED.keys())
def test_parts_that_do_not_fit_are_refused(crnr: Runner, options: str, words: str) -> None:
    make_images(crnr.here / "gallery", per_class=1)
    if "model.onnx" in options:
        projection_model(crnr.here / "model.onnx")
    refused = crnr("build", "gallery", *options.split())
    assert (refused.exit, refused.out, refused.err) == (2, "", f"error: {words}\n")
    assert not Path("gallery.h5").exists()


def test_parts_of_features_are_refused(crnr: Runner) -> None:
    make_features(crnr.here / "f.npz")
    for more in ([], ["--pca", "2"]):
        refused = crnr("build", "f.npz", "--parts", "2x2", *more)
        words = "error: --parts only applies to images; leave it out for features\n"
        assert (refused.exit, refused.out, refused.err) == (2, "", words)


def gallery_of(extractor: Extractor, method: str, grid: str) -> tuple[FittedGallery, Array]:
    """Return a gallery of random images in three classes, and the vectors of others."""
    recipe = Recipe.for_images(extractor, (Parts.of(grid),))
    bands = 3 if extractor.request(1).color else 1
    shape = (16, 20 * 18 * bands if isinstance(extractor, Gradients) else 7 * 5 * bands)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    vectors, _ = recipe.unit_vectors(extractor.open(1).extract(pixels), "float32")
    samples = Samples.of(vectors[:9], np.repeat(np.arange(3), 3), recipe.part_edges)
    names = [f"{number}.png" for number in range(9)]
    chosen = make_method(method, {})
    table = SampleTable(names, LazyLabels(CLASSES, samples.class_index), names)
    gallery = FittedGallery(samples, table, list(CLASSES), recipe, chosen, fit_method(chosen, samples))
    return gallery, vectors[9:]


@pytest.mark.parametrize("method", METHODS)
def test_a_gallery_with_parts_answers_the_same_after_saving(tmp_path: Path, method: str) -> None:
    extractor = IN_COLOUR if method == "crnr" else PIXELS
    gallery, queries = gallery_of(extractor, method, "3x2")
    save_gallery(gallery, tmp_path / "g.h5")
    loaded = load_gallery(tmp_path / "g.h5")
    assert (loaded.recipe, loaded.method) == (gallery.recipe, gallery.method)
    assert loaded.recipe.settings["parts"] == "3x2"
    np.testing.assert_array_equal(loaded.samples.parts, gallery.recipe.part_edges)
    assert np.array_equal(loaded.residuals(queries), gallery.residuals(queries))
    with h5py.File(tmp_path / "g.h5") as file:
        assert (file.attrs["version"], file["recipe"].attrs["parts"]) == (5, b"3x2")


INVALID: dict[str, tuple[Any, str]] = {
    "no grid": (np.bytes_("many"), "--parts 'many': write the rows and columns of tiles, such as 4x4"),
    "a number": (4, "--parts 4: write the rows and columns of tiles, such as 4x4"),
    "too many": (np.bytes_("6x1"), "--parts 6x1: choose at most 5x7 for pixels, 7x5, grey"),
    "others": (np.bytes_("5x7"), "'bases'|'basis_edges'"),
}


@pytest.mark.parametrize(("setting", "words"), INVALID.values(), ids=INVALID.keys())
def test_invalid_parts_of_a_gallery_are_refused(tmp_path: Path, setting: Any, words: str) -> None:
    from crnr_cli.gallery.hdf5_contents import read_content

    path = tmp_path / "g.h5"
    save_gallery(gallery_of(PIXELS, "nsc", "2x2")[0], path)
    with h5py.File(path, "r+") as file:
        file["recipe"].attrs["parts"] = setting
    content = read_content(path)
    with h5py.File(path, "r+") as file:
        file.attrs["sha256"] = np.bytes_(content.compute_sha256())
    with pytest.raises(GalleryError, match=rf"g\.h5: not a consistent gallery \(({words})\); build it again"):
        load_gallery(path)


def residuals(answered: str) -> Array:
    return np.array(
        [
            [float(row[f"residual:{name}"]) for name in CLASSES]
            for row in rows(answered)
            if row["status"] == "ok"
        ]
    )


def labelled(crnr: Runner, *options: object) -> str:
    outcome = crnr("classify", "queries", "-q", *options)
    assert (outcome.exit, outcome.err) == (0, "")
    return outcome.out


def test_a_single_tile_of_gradients_equals_no_tiles(crnr: Runner) -> None:
    make_images(crnr.here / "gallery", size=(16, 16))
    make_images(crnr.here / "queries", per_class=2, first=50, size=(16, 16))
    for name, options in (("whole.h5", []), ("one.h5", ["--parts", "1x1"])):
        built = crnr("build", "gallery", "-o", name, "-q", *options)
        assert (built.exit, built.out, built.err) == (0, "", "")
    whole, one = (residuals(labelled(crnr, "-g", name)) for name in ("whole.h5", "one.h5"))
    assert whole.shape == (6, 3)
    np.testing.assert_allclose(one, whole, rtol=0, atol=1e-5)


@pytest.fixture
def in_tiles(crnr: Runner) -> Runner:
    """gallery.h5 with parts, of gallery/, and queries/ of which a part is covered."""
    make_images(crnr.here / "gallery", per_class=5, size=(16, 16))
    for number, name in enumerate(CLASSES):
        (crnr.here / "queries" / name).mkdir(parents=True)
        for sample in range(2):
            pixels = np.asarray(draw_image(number, 70 + sample, (16, 16))).copy()
            pixels[10:, :7] = noise(sample, (7, 6))
            Image.fromarray(pixels).save(crnr.here / "queries" / name / f"{sample}.png")
    built = crnr("build", "gallery", "--parts", "2x2", "--json", "-q")
    assert (built.exit, built.err) == (0, "")
    assert json.loads(built.out)["parts"] == "2x2"
    return crnr


def test_the_commands_that_change_a_gallery_keep_its_parts(in_tiles: Runner) -> None:
    """After adding, removing or updating, it answers as one that was built from the same images."""
    crnr = in_tiles
    before = labelled(crnr)
    make_images(crnr.here / "more", per_class=1, first=30, size=(16, 16))
    added = crnr("add", "gallery.h5", "more", "-q")
    assert (added.exit, added.out, added.err) == (0, "", "")
    assert crnr("build", "gallery", "more", "--parts", "2x2", "-o", "both.h5", "-q").exit == 0
    with_more = labelled(crnr)
    assert with_more != before
    np.testing.assert_allclose(residuals(with_more), residuals(labelled(crnr, "-g", "both.h5")), atol=1e-5)
    samples = [option for name in CLASSES for option in ("--sample", f"more/{name}/30.png")]
    removed = crnr("remove", "gallery.h5", *samples, "-q")
    assert (removed.exit, removed.out, removed.err) == (0, "", "")
    np.testing.assert_allclose(residuals(labelled(crnr)), residuals(before), atol=1e-5)
    draw_image(0, 90, (16, 16)).save("gallery/ant/new.png")
    updated = crnr("build", "gallery", "--update", "-q")
    assert (updated.exit, updated.out, updated.err) == (0, "", "")
    assert crnr("build", "gallery", "--parts", "2x2", "-o", "new.h5", "-q").exit == 0
    assert load_gallery(Path("gallery.h5")).recipe == load_gallery(Path("new.h5")).recipe
    np.testing.assert_allclose(
        residuals(labelled(crnr)), residuals(labelled(crnr, "-g", "new.h5")), atol=1e-5
    )


def test_a_gallery_with_parts_is_calibrated_and_rejects(in_tiles: Runner) -> None:
    crnr = in_tiles
    (crnr.here / "strangers").mkdir()
    for seed in range(4):
        noise(seed, (16, 16)).save(f"strangers/{seed}.png")
    reject = ("classify", "strangers", "--reject", "0.1", "--min-probability", "0", "-q")
    strangers = crnr(*reject)
    assert (strangers.exit, strangers.err) == (0, "")
    assert {row["label"] for row in rows(strangers.out)} == {"unknown"}
    calibrated = crnr("build", "gallery", "--parts", "2x2", "--calibrate", "-o", "c.h5", "-q")
    assert (calibrated.exit, calibrated.out, calibrated.err) == (0, "", "")
    again = crnr(*reject, "-g", "c.h5")
    assert (again.exit, again.out, again.err) == (0, strangers.out, "")


def test_evaluate_and_info_support_parts(in_tiles: Runner) -> None:
    scored = in_tiles("evaluate", "queries", "--json", "-q")
    assert (scored.exit, scored.err) == (0, "")
    assert json.loads(scored.out)["accuracy"] == 1.0
    about = in_tiles("info", "gallery.h5", "--json")
    assert (about.exit, about.err) == (0, "")
    found = json.loads(about.out)
    assert (found["parts"], found["format_version"], found["factor"]) == ("2x2", 5, "dense")


def paint(number: int, seed: int, grain: int = 1, shift: int = 0) -> Image.Image:
    """Return 30 x 42 pixels of a texture that a class has in common, moved and with noise by the seed."""
    coarse = np.random.default_rng(100 + number).normal(128, 30, (50, 38))
    texture = np.kron(coarse, np.ones((grain, grain)))[:50, :38]
    rng = np.random.default_rng(seed)
    y, x = rng.integers(4 - shift, 5 + shift, 2)
    values = texture[y : y + 42, x : x + 30] + rng.normal(0, 40, (42, 30))
    return Image.fromarray(values.clip(0, 255).astype(np.uint8))


def paint_gallery(
    folder: Path, n_classes: int = 12, per_class: int = 4, grain: int = 1, shift: int = 0
) -> None:
    for number in range(n_classes):
        (folder / f"class{number}").mkdir(parents=True)
        for k in range(per_class):
            paint(number, 100 * number + k, grain, shift).save(folder / f"class{number}" / f"{k}.png")


def right_by_loops(folder: Path, cell: int, grid: str) -> int:
    """Count images that are most like another image of their class, one pair at a time."""
    recipe = Recipe.for_images(Gradients((30, 42), False, cell), (Parts.of(grid),))
    assert recipe.extractor is not None
    assert recipe.part_edges is not None
    extract = recipe.extractor.open(1).extract
    images = sorted(folder.glob("*/*.png"))
    vectors = [
        recipe.unit_vectors(extract(np.asarray(Image.open(path)).reshape(1, -1)), "float64")[0][0]
        for path in images
    ]
    right = 0
    for i, path in enumerate(images):
        likeness = {
            other: sum(
                float(vectors[i][start:stop] @ vectors[j][start:stop])
                for start, stop in pairwise(recipe.part_edges)
            )
            for j, other in enumerate(images)
            if i != j
        }
        right += max(likeness, key=likeness.__getitem__).parent == path.parent
    return right


@pytest.mark.parametrize(
    ("grain", "shift", "cell"), [(1, 0, 2), (8, 3, 4)], ids=["fine and aligned", "coarse and shifted"]
)
def test_tiles_get_small_cells_if_the_examples_are_aligned(
    crnr: Runner, grain: int, shift: int, cell: int
) -> None:
    paint_gallery(crnr.here / "gallery", grain=grain, shift=shift)
    built = crnr("build", "gallery", "--parts", "5x3", "--json")
    assert built.exit == 0, built.err
    assert json.loads(built.out)["extractor"]["cell"] == cell
    small, large = (right_by_loops(crnr.here / "gallery", side, "5x3") for side in (2, 4))
    assert built.err.splitlines()[0] == (
        f"note: with these tiles, crnr uses --cell {cell}: of 48 examples, {small} resemble one of their own "
        f"class most with --cell 2, and {large} with --cell 4"
    )
    # The gallery is the one that the option makes, and nothing is compared if it is given.
    named = crnr("build", "gallery", "--parts", "5x3", "--cell", str(cell), "-o", "named.h5")
    assert "with these tiles" not in named.err
    assert Path("named.h5").read_bytes() == Path("gallery.h5").read_bytes()


def test_what_covers_a_tile_stays_out_of_most_others(crnr: Runner) -> None:
    """Aligned images of which half is covered: small cells find their classes, large ones do not."""
    paint_gallery(crnr.here / "gallery")
    for number in range(12):
        (crnr.here / "queries" / f"class{number}").mkdir(parents=True)
        for k in range(5):
            values = np.array(paint(number, 7000 + 100 * number + k))
            values[18:] = np.asarray(paint((number + 1 + k) % 12, k))[18:]
            Image.fromarray(values).save(crnr.here / "queries" / f"class{number}" / f"{k}.png")
    accuracy = {}
    for name, options in (("default", ()), ("large", ("--cell", "4"))):
        assert crnr("build", "gallery", "--parts", "5x3", *options, "-q").exit == 0
        accuracy[name] = json.loads(crnr("evaluate", "queries", "--json", "-q").out)["accuracy"]
    assert accuracy["default"] > accuracy["large"]


@pytest.mark.parametrize("n_samples", [0, 1, 10, 14, 500, 501, 700, 60_000])
def test_compared_examples_are_spread_over_the_source(n_samples: int) -> None:
    runs = spread_runs(n_samples)
    rows = [row for start, stop in runs for row in range(start, stop)]
    assert len(rows) == len(set(rows)) == min(500, n_samples)
    assert rows == sorted(rows)
    assert not rows or (rows[0], rows[-1]) == (0, n_samples - 1)


def test_examples_without_others_of_their_class_have_no_right_neighbor() -> None:
    vectors = np.eye(3, dtype=np.float32)
    for n, labels in ((0, []), (1, ["a"]), (3, ["a", "b", "c"])):
        assert find_right_neighbors(vectors[:n], labels).tolist() == [False] * n


def test_a_gallery_of_one_example_per_class_gets_small_cells(crnr: Runner) -> None:
    """Nothing contradicts them."""
    paint_gallery(crnr.here / "gallery", n_classes=3, per_class=1)
    (crnr.here / "gallery" / "class0" / "broken.png").write_bytes(b"no image")
    built = crnr("build", "gallery", "--parts", "5x3", "--json", "--allow-skipped")
    assert (built.exit, json.loads(built.out)["extractor"]["cell"]) == (0, 2), built.err
