"""Reading sources: the examples that are compared, and sources that do not match."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import DataError, UsageError
from crnr_cli.gallery.reading import (
    ImageSurvey,
    describe_difference,
    find_right_neighbors,
    is_same,
    new_recipe,
    recipe_of,
    refuse_mismatch,
    restore_recipe,
    spread_runs,
)
from crnr_cli.gallery.samples import Reading
from crnr_cli.gallery.workers import Here
from crnr_cli.images.pool import DecoderPool
from crnr_cli.progress import silent
from crnr_cli.recipe.base import Step
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Power
from crnr_cli.sources.base import Source
from crnr_cli.sources.opening import open_source
from helpers.runner import Runner
from helpers.samples import make_features, make_images

PIXELS = RawPixels((8, 8), False)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 499, 500])
def test_few_examples_are_all_compared(count: int) -> None:
    runs = spread_runs(count)
    assert [row for start, stop in runs for row in range(start, stop)] == list(range(count))
    assert {stop - start for start, stop in runs[:-1]} <= {10}
    assert len(runs) == -(-count // 10)


@pytest.mark.parametrize("count", [501, 1000, 12_345])
def test_many_examples_are_compared_in_fifty_runs_of_ten(count: int) -> None:
    runs = spread_runs(count)
    assert len(runs) == 50
    assert (runs[0], runs[-1]) == ((0, 10), (count - 10, count))
    assert {stop - start for start, stop in runs} == {10}
    gaps = np.diff([start for start, _ in runs])
    assert gaps.max() - gaps.min() <= 1


@given(st.integers(2, 12), st.integers(0, 999))
def test_right_neighbors_are_found_as_by_comparing_all_with_all(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, 3))
    labels = [str(k) for k in rng.integers(0, 2, count)]
    expected = []
    for i in range(count):
        cosines = {j: float(vectors[j] @ vectors[i]) for j in range(count) if j != i}
        expected.append(labels[max(cosines, key=lambda j: cosines[j])] == labels[i])
    found = find_right_neighbors(vectors, labels)
    assert (found.dtype, found.tolist()) == (np.dtype(bool), expected)


def test_one_example_has_no_right_neighbor() -> None:
    found = find_right_neighbors(np.ones((1, 3)), ["a"])
    assert (found.dtype, found.tolist()) == (np.dtype(bool), [False])


def survey(source: Source) -> ImageSurvey:
    return ImageSurvey(source, Reading(), silent, Here(DecoderPool(1)))


def refused(names: list[str], chosen: ExtractorOptions, steps: tuple[Step, ...] = ()) -> str:
    source = open_source(names, Reading())
    with pytest.raises(UsageError) as caught:
        new_recipe(source, chosen, steps, survey(source))
    return str(caught.value)


def test_extractor_options_are_refused_where_they_have_no_effect(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_features(crnr.here / "x.npz")
    assert crnr("extract", "gallery", "-o", "x.h5", "-q").exit == 0
    chosen = [
        (ExtractorOptions("pixels"), "--extractor"),
        (ExtractorOptions(None, {"size": (8, 8)}), "--size"),
        (ExtractorOptions(None, {"color": False}), "--gray"),
        (ExtractorOptions(None, {"color": True}), "--color"),
        (ExtractorOptions(None, {"block_norm": False, "cell": 4}), "--block-norm"),
    ]
    for options, name in chosen:
        assert refused(["x.npz"], options) == (
            f"{name} only applies to images, but x.npz contains features; leave the option out"
        )
    assert refused(["x.h5"], ExtractorOptions("pixels")) == (
        "--extractor only applies to images, but x.h5 was extracted from images before; leave the option out"
    )
    assert refused(["gallery"], ExtractorOptions("pixels", {"cell": 4})) == (
        "--cell does not apply to --extractor pixels; leave it out"
    )


def mismatch(names: list[str], recipe: Recipe) -> str:
    with pytest.raises(DataError) as caught:
        refuse_mismatch(open_source(names, Reading()), recipe)
    return str(caught.value)


def test_sources_that_do_not_match_a_gallery_are_refused(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_features(crnr.here / "x.npz")
    assert crnr("extract", "gallery", "--extractor", "pixels", "-o", "x.h5", "-q").exit == 0
    width = np.load("x.npz")["features"].shape[1]
    assert mismatch(["gallery"], Recipe.of(width)) == (
        "gallery/ant/0.png: is an image, but the gallery was built from features; give features, or a "
        "gallery that was built from images"
    )
    assert mismatch(["x.npz"], Recipe.for_images(PIXELS)) == (
        "x.npz: contains features, but the gallery was built from images; give images, or a gallery that was "
        "built from features"
    )
    assert mismatch(["x.h5"], Recipe.of(64)) == (
        "x.h5: was extracted from images, but the gallery was built from features; give features, or a "
        "gallery that was built from images"
    )
    assert mismatch(["x.h5"], Recipe.for_images(RawPixels((9, 8), False))) == (
        "x.h5: its features come from another extractor than the features of the gallery (pixels, 8x8, grey "
        "instead of pixels, 9x8, grey); extract them again with `crnr extract IMAGES --like GALLERY -o x.h5`"
    )
    assert mismatch(["x.npz"], Recipe.of(width + 1)) == (
        f"x.npz: {width} features per query, but the gallery was built from {width + 1}; use the same "
        "features for both"
    )
    refuse_mismatch(open_source(["x.h5"], Reading()), Recipe.for_images(PIXELS))
    refuse_mismatch(open_source(["gallery"], Reading()), Recipe.for_images(PIXELS))
    refuse_mismatch(open_source(["x.npz"], Reading()), Recipe.of(width))


def test_several_feature_files_need_one_extractor(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    for name, how in (("x.h5", "pixels"), ("y.h5", "gradients"), ("again.h5", "pixels")):
        assert crnr("extract", "gallery", "--extractor", how, "-o", name, "-q").exit == 0
    found = recipe_of(open_source(["x.h5", "again.h5"], Reading()))
    assert found == Recipe.for_images(PIXELS)
    assert recipe_of(open_source(["gallery"], Reading())) is None


def test_differences_between_extractors_are_described() -> None:
    other = RawPixels((9, 8), True)
    assert describe_difference(PIXELS, other) == "pixels, 8x8, grey instead of pixels, 9x8, colour"
    assert describe_difference(PIXELS, None, "and") == "pixels, 8x8, grey and features"
    assert describe_difference(None, other) == "features instead of pixels, 9x8, colour"
    assert (
        describe_difference(PIXELS, PIXELS) == "pixels, 8x8, grey, but with another model or other settings"
    )
    assert is_same(None, None)
    assert is_same(PIXELS, RawPixels((8, 8), False))
    assert not is_same(PIXELS, None)
    assert not is_same(None, PIXELS)
    assert not is_same(PIXELS, other)
    assert not is_same(PIXELS, Gradients((8, 8), False, 4))


def test_stored_recipes_that_cannot_be_used_are_refused() -> None:
    stored = Recipe.for_images(PIXELS).to_stored().attributes
    assert restore_recipe(Path("x.h5"), stored, 64) == Recipe.for_images(PIXELS)
    with_steps = Recipe.of(3, steps=(Power(0.5),)).to_stored()
    for described, count in ((stored, 65), (stored, None), (with_steps.attributes, 3)):
        with pytest.raises(DataError, match=r"^x\.h5: the .*; extract the file again$"):
            restore_recipe(Path("x.h5"), described, count)
    with pytest.raises(DataError) as caught:
        restore_recipe(Path("x.h5"), stored, 65)
    assert str(caught.value) == "x.h5: the values do not match the stored pipeline; extract the file again"
    with pytest.raises(DataError) as caught:
        restore_recipe(Path("x.h5"), stored | {"kind": "sounds"}, 64)
    assert str(caught.value) == (
        "x.h5: the description of the extractor cannot be used (the examples are of an unknown kind, "
        "sounds); extract the file again"
    )
