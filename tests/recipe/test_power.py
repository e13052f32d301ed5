"""The recipe's power: absolute values raised, signs kept, before PCA and unit norm.

Without --power, a network whose features are not negative on the gallery gets the power 0.7. The networks of
these tests return the pixels of an image minus a number, so NumPy knows their features.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.recipe.base import Block, Extractor
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.pixels import RawPixels
from crnr_cli.recipe.recipe import Recipe
from crnr_cli.recipe.steps import Pca, Power
from helpers.onnx_models import flat_model
from helpers.runner import Outcome, Runner

NETWORK = ("--extractor", "model.onnx", "--extractor-preset", "raw")


def test_power_is_taken_of_absolute_values_and_keeps_signs() -> None:
    vectors, errors = Recipe(3, steps=(Power(0.5),)).unit_vectors(np.array([[4.0, -9.0, 0.0]]), "float64")
    np.testing.assert_allclose(vectors, np.array([[2.0, -3.0, 0.0]]) / np.sqrt(13), rtol=1e-15)
    assert errors == [None]


def test_power_neither_overflows_nor_vanishes() -> None:
    raw = np.array([[1e200, -1e200], [1e-200, 1e-200]])
    vectors, errors = Recipe(2, steps=(Power(3.0),)).unit_vectors(raw, "float64")
    np.testing.assert_allclose(vectors, np.array([[1, -1], [1, 1]]) / np.sqrt(2), rtol=1e-15)
    assert errors == [None, None]


def test_pca_is_fitted_on_raised_values() -> None:
    raw = np.random.default_rng(0).normal(size=(30, 6))
    raised = np.sign(raw) * np.sqrt(np.abs(raw))
    _, _, rows = np.linalg.svd(raised - raised.mean(axis=0))
    recipe = Recipe(6, steps=(Power(0.5), Pca(3))).fit(raw, np.arange(30))
    axes = cast(Pca, recipe.steps[1]).axes
    assert axes is not None
    np.testing.assert_allclose(np.abs(np.sum(axes * rows[:3].T, axis=0)), 1, rtol=1e-12)


@pytest.mark.parametrize("power", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_power_is_refused(power: float) -> None:
    with pytest.raises(UsageError, match="power must be above 0"):
        Power(power)


def test_build_stores_the_power_and_classify_applies_it(crnr: Runner, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    features, gallery = tmp_path / "f.h5", tmp_path / "g.h5"
    raw = rng.gamma(1.0, size=(12, 5))
    with h5py.File(features, "w") as file:
        file["features"], file["labels"] = raw, np.repeat([0, 1, 2], 4)
    result = crnr("build", features, "-o", gallery, "--power", "0.5", "--json")
    assert result.exit == 0, result.err
    assert json.loads(result.out)["power"] == 0.5
    loaded = load_gallery(gallery)
    assert loaded.recipe.steps == (Power(0.5),)
    expected = np.sqrt(raw) / np.linalg.norm(np.sqrt(raw), axis=1, keepdims=True)
    np.testing.assert_allclose(loaded.samples.vectors, expected, atol=1e-7)
    # The same as features that were raised beforehand, for the queries too.
    with h5py.File(raised := tmp_path / "raised.h5", "w") as file:
        file["features"], file["labels"] = np.sqrt(raw), np.repeat([0, 1, 2], 4)
    assert crnr("build", raised, "-o", tmp_path / "r.h5").exit == 0
    by_power = _residuals(crnr("classify", features, "-g", gallery).out)
    by_hand = _residuals(crnr("classify", raised, "-g", tmp_path / "r.h5").out)
    np.testing.assert_allclose(by_power, by_hand, atol=1e-6)
    refused = crnr("build", features, "-o", gallery, "--power", "0")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == "error: --power must be above 0 and at most 100, not 0 (see `crnr build --help`)\n"


def _residuals(table: str) -> np.ndarray:
    return np.array([line.split(",")[7:] for line in table.splitlines()[1:]], dtype=float)


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """photos/{a,b}/{0,1,2}.png, queries/{0,1}.png, and a network that returns the pixels of an image."""
    flat_model(Path("model.onnx"), ["n", 3, 4, 4])
    rng = np.random.default_rng(7)
    for name in ("photos/a", "photos/b", "queries"):
        Path(name).mkdir(parents=True)
    for name in ("photos/a/0", "photos/a/1", "photos/a/2", "photos/b/0", "photos/b/1", "photos/b/2"):
        values = rng.integers(60, 256, (4, 4, 3)) // (1 if "a" in name else 2)
        Image.fromarray(values.astype(np.uint8)).save(f"{name}.png")
    for number in range(2):
        Image.fromarray(rng.integers(9, 256, (4, 4, 3), dtype=np.uint8)).save(f"queries/{number}.png")
    return crnr


def plain_features(folder: str, mean: float = 0.0) -> np.ndarray:
    """Return what the network returns for the images of a folder, in the order of their names."""
    images = [np.asarray(Image.open(path), float) for path in sorted(Path(folder).rglob("*.png"))]
    return np.array([image.transpose(2, 0, 1).ravel() - mean for image in images])


def plain_vectors(features: np.ndarray, power: float) -> np.ndarray:
    raised = np.sign(features) * np.abs(features) ** power
    return raised / np.sqrt((raised**2).sum(axis=1, keepdims=True))


def shown_lines(here: Runner) -> list[list[str]]:
    return [line.split() for line in here("info").out.splitlines()]


def stored_vectors(path: str = "gallery.h5") -> np.ndarray:
    return np.asarray(load_gallery(Path(path)).samples.vectors)


@pytest.mark.parametrize("steps", [(), ("--pca", "3")])
def test_a_network_without_negative_features_gets_the_power_0_7(here: Runner, steps: tuple[str, ...]) -> None:
    built = here("build", "photos", *NETWORK, *steps)
    assert (built.exit, built.out) == (0, "")
    assert json.loads(here("info", "--json").out)["power"] == 0.7
    assert ["power", "of", "features", "0.7"] in shown_lines(here)
    if not steps:
        np.testing.assert_allclose(stored_vectors(), plain_vectors(plain_features("photos"), 0.7), atol=1e-7)
    # The same as features that NumPy has raised, for the queries too.
    for folder in ("photos", "queries"):
        raised = plain_features(folder) ** 0.7
        np.savez(f"{folder}.npz", features=raised, labels=np.repeat(["a", "b"], len(raised) // 2))
    assert here("build", "photos.npz", "-o", "raised.h5", "-q", *steps) == Outcome(0, "", "")
    found, expected = (
        _residuals(here("classify", source, "-g", gallery, "-q").out)
        for source, gallery in (("queries", "gallery.h5"), ("queries.npz", "raised.h5"))
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_power_1_leaves_the_vectors_as_they_were_to_the_bit(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--power", "1", "-q") == Outcome(0, "", "")
    about = json.loads(here("info", "--json").out)
    assert about["power"] == 1.0
    with h5py.File("gallery.h5") as file:
        assert {"power", "steps"}.isdisjoint(file["recipe"].attrs)
    features = plain_features("photos")
    scaled = features / features.max(axis=1, keepdims=True)
    norms = np.sqrt(np.einsum("md,md->m", scaled, scaled))[:, None]
    np.testing.assert_array_equal(stored_vectors(), (scaled / norms).astype(np.float32))


def test_one_negative_feature_of_one_example_leaves_the_power_at_1(here: Runner) -> None:
    lowest = plain_features("photos").min()
    for mean, power in ((lowest, 0.7), (lowest + 0.5, 1.0)):
        assert here("build", "photos", *NETWORK, "--mean", mean, "-q") == Outcome(0, "", "")
        assert json.loads(here("info", "--json").out)["power"] == power
        expected = plain_vectors(plain_features("photos", mean), power)
        np.testing.assert_allclose(stored_vectors(), expected, atol=1e-7)
    assert ["power", "of", "features", "none"] in shown_lines(here)


def test_failed_images_do_not_decide_on_the_power(here: Runner) -> None:
    """A blank image has features, but no place in the gallery."""
    lowest = plain_features("photos").min()
    Image.new("RGB", (4, 4)).save("photos/a/blank.png")
    assert here("build", "photos", *NETWORK, "--mean", lowest, "-q").exit == 3
    assert json.loads(here("info", "--json").out)["power"] == 0.7


@pytest.mark.parametrize("how", [("--extractor", "pixels"), ("--extractor", "gradients", "--cell", "2")])
def test_other_extractors_and_feature_files_keep_the_power_1(here: Runner, how: tuple[str, ...]) -> None:
    assert here("build", "photos", *how, "-q") == Outcome(0, "", "")
    assert json.loads(here("info", "--json").out)["power"] == 1.0
    assert here("extract", "photos", "-o", "f.h5", *how, "-q") == Outcome(0, "", "")
    np.savez("plain.npz", features=plain_features("photos"), labels=np.repeat(["a", "b"], 3))
    for source in ("f.h5", "plain.npz"):
        assert here("build", source, "-q") == Outcome(0, "", "")
        assert json.loads(here("info", "--json").out)["power"] == 1.0


@pytest.mark.parametrize("mean", [0, 100])
@pytest.mark.parametrize("neighbors", [(), ("--neighbors", "2"), ("--neighbors", "2", "--pca", "3")])
def test_a_file_that_a_network_filled_gives_the_gallery_of_the_images(
    here: Runner, mean: int, neighbors: tuple[str, ...]
) -> None:
    """With --neighbors, the vectors of a feature file are never in memory at once."""
    network = (*NETWORK, "--mean", str(mean))
    assert here("extract", "photos", "-o", "f.h5", *network, "-q") == Outcome(0, "", "")
    assert here("build", "photos", *network, *neighbors, "-o", "images.h5", "-q") == Outcome(0, "", "")
    assert here("build", "f.h5", *neighbors, "-o", "file.h5", "-q") == Outcome(0, "", "")
    command = ("build", "photos", *network, *neighbors, "--cache", "c.h5", "-o", "cached.h5", "-q")
    assert here(*command) == Outcome(0, "", "")
    of_images, of_file, of_cache = map(stored_vectors, ("images.h5", "file.h5", "cached.h5"))
    np.testing.assert_array_equal(of_images, of_cache)
    if "--pca" in neighbors:  # fitted in blocks, which rounds differently
        np.testing.assert_allclose(np.abs(of_images), np.abs(of_file), atol=1e-5)
    else:
        np.testing.assert_array_equal(of_images, of_file)
        expected = plain_vectors(plain_features("photos", mean), 1.0 if mean else 0.7)
        np.testing.assert_allclose(of_images, expected, atol=1e-7)
    for name in ("images.h5", "file.h5", "cached.h5"):
        assert json.loads(here("info", name, "--json").out)["power"] == (1.0 if mean else 0.7)


@pytest.mark.parametrize(
    "command", [("add", "gallery.h5", "queries", "--class", "b"), ("build", "photos", "--update")]
)
def test_later_examples_and_queries_keep_the_power_and_their_signs(
    here: Runner, command: tuple[str, ...]
) -> None:
    """The power is decided once, when the gallery is built."""
    lowest = plain_features("photos").min()
    assert here("build", "photos", *NETWORK, "--mean", lowest, "-q") == Outcome(0, "", "")
    first, later = (plain_features(folder, lowest) for folder in ("photos", "queries"))
    assert later.min() < 0 <= first.min()
    if "--update" in command:
        for number in range(2):
            Path("queries", f"{number}.png").rename(f"photos/b/{number + 5}.png")
    assert here(*command, "-q") == Outcome(0, "", "")
    assert json.loads(here("info", "--json").out)["power"] == 0.7
    expected = plain_vectors(np.concatenate([first, later]), 0.7)
    np.testing.assert_allclose(stored_vectors(), expected, atol=1e-7)


def test_galleries_without_a_power_keep_their_vectors(here: Runner) -> None:
    """Galleries of earlier versions store no power."""
    assert here("build", "photos", *NETWORK, "--power", "1", "-q") == Outcome(0, "", "")
    assert here("add", "gallery.h5", "queries", "--class", "b", "-q") == Outcome(0, "", "")
    assert json.loads(here("info", "--json").out)["power"] == 1.0
    features = np.concatenate([plain_features("photos"), plain_features("queries")])
    np.testing.assert_allclose(stored_vectors(), plain_vectors(features, 1.0), atol=1e-7)


def test_build_notes_that_the_previous_gallery_had_another_power(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--power", "1", "-q") == Outcome(0, "", "")
    built = here("build", "photos", *NETWORK)
    assert (built.exit, built.out) == (0, "")
    text = "note: the previous gallery had other settings: power 1; next time use "
    assert built.err.splitlines()[-1] == f"{text}`crnr build photos --update` to keep them"
    assert "other settings" not in here("build", "photos", *NETWORK, "--power", "1").err  # as wanted


def test_compare_and_audit_use_the_same_power_as_build(here: Runner) -> None:
    """The nearest example by NumPy is the answer of nn, which depends on the power."""
    Path("test").mkdir()
    for label in "ab":
        Path("test", label).mkdir()
    rng = np.random.default_rng(3)
    for number in range(40):
        values = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(values).save(f"test/{'ab'[number % 2]}/{number:02d}.png")
    gallery, queries = (plain_features(folder) for folder in ("photos", "test"))
    truths = np.repeat([0, 1], 20)
    right = {
        power: int(
            (
                (plain_vectors(queries, power) @ plain_vectors(gallery, power).T).argmax(axis=1) // 3
                == truths
            ).sum()
        )
        for power in (1.0, 0.7)
    }
    assert right[1.0] != right[0.7]
    for given_power, power in (((), 0.7), (("--power", "1"), 1.0)):
        command = ("compare", "photos", "--test", "test", *NETWORK, "--methods", "nn", "--json", "-q")
        result = here(*command, *given_power)
        assert (result.exit, result.err) == (0, "")
        assert json.loads(result.out)["methods"][0]["accuracy"] == pytest.approx(right[power] / 40)
    drawn = here("compare", "photos", *NETWORK, "--methods", "nn", "--draws", "2", "--json", "-q")
    assert (drawn.exit, drawn.err) == (0, "")
    audited = here("audit", "photos", *NETWORK, "--json", "-q")
    assert (audited.exit, audited.err) == (0, "")


def test_tune_begins_with_the_power_of_build_and_tries_three(here: Runner) -> None:
    for mean, first in ((0, 0.7), (100, 1.0)):
        command = ("tune", "photos", *NETWORK, "--mean", mean, "--json", "-q")
        result = here(*command, "--budget", "0")
        assert (result.exit, result.err) == (0, "")
        record = json.loads(result.out)
        assert {trial["power"] for trial in record["trials"]} == {record["paper"]["power"]} == {first}
        tried = {trial["power"] for trial in json.loads(here(*command).out)["trials"]}
        assert tried == {1.0, 0.7, 0.5}
    refused = here("tune", "photos", *NETWORK, "--try-power", "auto,much")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == (
        "error: --try-power 'auto,much': give settings separated by commas, such as auto,1,0.7,0.5\n"
    )


@pytest.mark.parametrize("extractor", [None, RawPixels((2, 1), color=False)])
def test_an_automatic_power_is_1_without_a_network(extractor: Extractor | None) -> None:
    assert Recipe.of(2, extractor, (Power(None),)).steps == ()


@given(
    st.lists(
        arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3)), elements=st.floats(-1, 1, width=32)),
        min_size=1,
        max_size=4,
    )
)
def test_the_power_is_decided_by_the_sign_of_every_feature(blocks: list[np.ndarray]) -> None:
    network = Network(
        "m.onnx", "", "i", "o", (8, 8), 3, 1.0, "bicubic", (0.0,), (1.0,), "rgb", "nchw", "none"
    )
    recipe = Recipe.for_images(network, (Power(None),))
    assert not recipe.is_fitted
    is_signed = any(value < 0 for block in blocks for row in block.tolist() for value in row)
    expected = () if is_signed else (Power(0.7),)
    labelled = [Block(block, np.arange(len(block))) for block in blocks]
    assert recipe.fit_to_blocks(lambda: iter(labelled)).steps == expected
    rows = np.concatenate(blocks)
    assert recipe.fit(rows, np.arange(len(rows))).steps == expected
