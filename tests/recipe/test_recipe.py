"""PCA against scikit-learn's, and unit vectors of awkward values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from sklearn.decomposition import PCA

from crnr_cli.arrays import Array, Batch
from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import UsageError
from crnr_cli.gallery.samples import Reading, read_samples
from crnr_cli.recipe.base import is_one_color
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca, principal_axes
from crnr_cli.sources.opening import open_source
from helpers.samples import draw_image


def axes_of(recipe: Recipe) -> Array:
    (pca,) = recipe.steps
    assert isinstance(pca, Pca)
    assert pca.axes is not None
    return pca.axes


@pytest.mark.parametrize("shape", [(40, 9), (12, 30)], ids=["many samples", "many features"])
def test_principal_axes_match_scikit_learn_up_to_sign(shape: tuple[int, int]) -> None:
    raw = np.random.default_rng(0).standard_normal(shape) * np.linspace(1, 3, shape[1])
    theirs = PCA(5, svd_solver="full").fit(raw).components_
    assert np.abs(np.diag(theirs @ principal_axes(raw.copy(), 5))) == pytest.approx(np.ones(5), abs=1e-10)


def test_samples_are_projected_without_subtracting_the_mean() -> None:
    raw = np.random.default_rng(1).random((20, 6)) + 10
    recipe = Recipe(6, steps=(Pca(3),)).fit(raw, np.arange(20))
    vectors, errors = recipe.unit_vectors(raw, "float64")
    projected = raw @ axes_of(recipe)
    assert errors == [None] * 20
    np.testing.assert_allclose(
        vectors, projected / np.linalg.norm(projected, axis=1, keepdims=True), atol=1e-12
    )


@pytest.mark.parametrize("count", [0, 20, 7])
def test_more_axes_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=rf"--pca {count}: choose 1 to 6 principal components"):
        principal_axes(np.random.default_rng(0).random((20, 6)), count)


rows = arrays(np.float64, (3, 4), elements=st.floats(allow_nan=True, allow_infinity=True))


@given(rows)
def test_every_row_is_a_unit_vector_or_has_a_reason(raw: np.ndarray) -> None:
    vectors, errors = Recipe(4).unit_vectors(raw, "float64")
    for row, vector, error in zip(raw, vectors, errors, strict=True):
        if not np.isfinite(row).all():
            assert error is not None
            assert error.status == "non_finite"
        elif not row.any():
            assert error is not None
            assert error.status == "zero_norm"
        else:
            assert error is None
            assert np.linalg.norm(vector) == pytest.approx(1)


@pytest.mark.parametrize("bits", [np.uint64(0x7FF0000000000001), np.uint16(0x7C01)])
def test_a_signalling_nan_is_reported_as_any_other(bits: np.generic) -> None:
    raw = np.array([[bits, 0]]).astype(bits.dtype).view(f"f{bits.itemsize}")
    _, errors = Recipe(2).unit_vectors(raw, "float64")
    assert [error and error.status for error in errors] == ["non_finite"]


def test_single_precision_projects_as_double_does() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (60, 500)).astype(np.uint8)
    recipe = Recipe(500, steps=(Pca(40),)).fit(raw, np.arange(60))
    (single, _), (double, _) = (recipe.unit_vectors(raw, dtype) for dtype in ("float32", "float64"))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6)
    expected = (raw / 255) @ axes_of(recipe)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(double, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_scale_neither_overflows_nor_vanishes(scale: float) -> None:
    raw = np.array([[3.0, 4.0]]) * scale
    vectors, _ = Recipe(2).unit_vectors(raw, "float32")
    assert vectors[0] == pytest.approx([0.6, 0.8])


def test_an_image_of_one_colour_has_nothing_to_compare() -> None:
    recipe = Recipe.for_images(RawPixels((2, 2)))
    pixels = np.array([[200] * 4, [200, 200, 200, 201]], np.uint8)
    batch = recipe.open().raw(Batch(["blank", "not"], [None, None], pixels, 2))
    assert [error and error.status for error in batch.errors] == ["zero_norm", None]
    assert batch.values.tolist() == [[200, 200, 200, 201]]


@given(
    arrays(np.float32, (6, 12), elements=st.sampled_from([0.0, 1.0, np.nan, np.inf])), st.sampled_from([1, 3])
)
def test_is_one_color_matches_a_loop_over_pixels(images: np.ndarray, bands: int) -> None:
    def is_blank(image: np.ndarray) -> bool:
        pixels = [tuple(image[i : i + bands].tolist()) for i in range(0, 12, bands)]
        return all(pixel == pixels[0] and np.isfinite(pixel).all() for pixel in pixels)

    assert is_one_color(images, bands).tolist() == [is_blank(image) for image in images]


EIGHT_BITS = "8 bits"
DEPTHS = {
    EIGHT_BITS: lambda values: values,
    "16 bits": lambda values: values.astype(np.uint16) * 257,
    "floats of 0 to 1": lambda values: (values / 255).astype(np.float32),
    "floats of 0 to 255": lambda values: values.astype(np.float32),
    "floats of 0 to 65535": lambda values: values.astype(np.float32) * 257,
    "32 bits": lambda values: values.astype(np.int32) * 8_421_504,
}


@pytest.mark.parametrize(
    "depths",
    [(EIGHT_BITS, EIGHT_BITS, "16 bits"), tuple(DEPTHS), ("floats of 0 to 1",)],
    ids=["some of 16 bits", "all kinds", "none of 8 bits"],
)
@pytest.mark.parametrize("extractor", ["pixels", "gradients"])
def test_fitted_recipes_do_not_depend_on_image_depth(
    tmp_path: Path, depths: tuple[str, ...], extractor: str
) -> None:
    found = []
    for name, chosen in (("shallow", (EIGHT_BITS,)), ("deep", depths)):
        for i in range(12):
            path = tmp_path / name / f"class{i % 3}" / f"{i}.tif"
            path.parent.mkdir(parents=True, exist_ok=True)
            values = np.maximum(np.asarray(draw_image(i % 3, i)), np.uint8(255) * np.eye(8, dtype=np.uint8))
            Image.fromarray(DEPTHS[chosen[i % len(chosen)]](values)).save(path)
        reading = Reading(
            extractor=ExtractorOptions(extractor, {"size": (8, 8)}), steps=(Pca(4),), dtype="float64", jobs=1
        )
        found.append(read_samples(open_source([str(tmp_path / name)], reading), reading))
    shallow, deep = found
    # The sign of an axis is arbitrary.
    signs = np.sign((axes_of(shallow.recipe) * axes_of(deep.recipe)).sum(axis=0))
    np.testing.assert_allclose(axes_of(deep.recipe) * signs, axes_of(shallow.recipe), atol=1e-5)
    np.testing.assert_allclose(deep.values * signs, shallow.values, atol=1e-5)
