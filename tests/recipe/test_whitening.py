"""Whitening within classes, compared with the inverse square root of the full matrix."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.arrays import Array
from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.suspects import Folds, cross_validated_residuals
from crnr_cli.methods import Samples, fit_method
from crnr_cli.methods.base import residuals
from crnr_cli.recipe.base import Block
from crnr_cli.recipe.gradients import Gradients
from crnr_cli.recipe.recipe import Recipe, make_steps
from crnr_cli.recipe.steps import Parts, Pca, Power
from crnr_cli.recipe.whitening import Whiten
from crnr_cli.results.decision import standout
from helpers.runner import Outcome, Runner

GRADIENTS = Gradients((16, 16), color=False, cell=4)


def unit(values: Array) -> Array:
    lengths = np.sqrt((values**2).sum(axis=1, keepdims=True))
    return values / np.where(lengths > 0, lengths, 1)


def whiten_naively(examples: Array, labels: Array, rho: float, queries: Array) -> Array:
    """Return unit vectors by the definition: S^(-1/2) of the whole matrix S, by its eigenvalues."""
    examples, queries = unit(examples), unit(queries)
    n, d = examples.shape
    classes = sorted(set(labels.tolist()))
    scatter = np.zeros((d, d))
    for label in classes:
        own = examples[labels == label]
        for row in own - own.mean(axis=0):
            scatter += np.outer(row, row)
    scatter /= n - len(classes)
    S = (1 - rho) * scatter + rho * np.trace(scatter) / d * np.eye(d)
    variances, axes = np.linalg.eigh(S)
    return unit(queries @ (axes / np.sqrt(variances)) @ axes.T)


def examples_of(n_classes: int, per_class: int, d: int, seed: int = 0) -> tuple[Array, Array]:
    """Return examples and labels in no order; the classes differ less than their examples."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(n_classes), per_class))
    stretch = np.linspace(0.2, 3, d)
    return rng.normal(size=(n_classes, d))[labels] + stretch * rng.normal(size=(len(labels), d)), labels


@pytest.mark.parametrize("shape", [(5, 3, 40), (4, 20, 12), (6, 2, 12)], ids=["wide", "tall", "equal"])
@pytest.mark.parametrize("rho", [0.05, 0.5, 0.9])
def test_the_thin_form_is_the_inverse_square_root_of_the_matrix(
    shape: tuple[int, int, int], rho: float
) -> None:
    raw, labels = examples_of(*shape)
    recipe = Recipe(shape[2], steps=(Whiten(rho),)).fit(raw, labels)
    queries = np.random.default_rng(1).normal(size=(7, shape[2]))
    for rows in (raw, queries):
        expected = whiten_naively(raw, labels, rho, rows)
        for dtype, tolerance in (("float64", 1e-6), ("float32", 2e-6)):
            found, faults = recipe.unit_vectors(rows, dtype)
            assert faults == [None] * len(rows)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@given(
    st.integers(1, 4), st.integers(1, 5), st.integers(1, 9), st.integers(0, 10), st.sampled_from([1.0, 0.5])
)
def test_whitening_keeps_unit_vectors_and_changes_nothing_with_rho_1(
    n_classes: int, per_class: int, d: int, seed: int, rho: float
) -> None:
    raw, labels = examples_of(n_classes, per_class, d, seed)
    recipe = Recipe(d, steps=(Whiten(rho),)).fit(raw, labels)
    found, _ = recipe.unit_vectors(raw, "float64")
    np.testing.assert_allclose((found**2).sum(axis=1), 1, rtol=1e-12)
    if rho == 1 or per_class == 1:
        assert recipe.steps == ()
        np.testing.assert_array_equal(found, Recipe(d).unit_vectors(raw, "float64")[0])
    np.testing.assert_allclose(recipe.undo_whitening(found), unit(raw), rtol=0, atol=1e-5)


def test_the_length_and_the_order_of_examples_do_not_matter() -> None:
    raw, labels = examples_of(4, 4, 10)
    rng = np.random.default_rng(2)
    order, lengths = rng.permutation(16), rng.uniform(1, 100, (16, 1))
    one = Recipe(10, steps=(Whiten(0.7),)).fit(raw, labels)
    other = Recipe(10, steps=(Whiten(0.7),)).fit((raw * lengths)[order], labels[order] + 5)
    np.testing.assert_allclose(
        one.unit_vectors(raw, "float64")[0], other.unit_vectors(raw, "float64")[0], atol=1e-6
    )


@pytest.mark.parametrize("shape", [(5, 3, 40), (4, 20, 12)])
def test_blocks_give_the_whitening_of_all_examples(shape: tuple[int, int, int]) -> None:
    raw, labels = examples_of(*shape)
    raw[3] = 0  # zero rows, which no gallery keeps, must not disturb
    cuts = [0, 2, 3, 11, len(raw)]
    blocks = [Block(raw[a:b].copy(), labels[a:b]) for a, b in pairwise(cuts)]
    recipe = Recipe(shape[2], steps=(Whiten(0.6),))
    found, _ = recipe.fit_to_blocks(lambda: iter(blocks)).unit_vectors(raw, "float64")
    expected, _ = recipe.fit(raw, labels).unit_vectors(raw, "float64")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_whitening_follows_the_power_and_the_principal_components() -> None:
    raw, labels = examples_of(4, 6, 9)
    recipe = Recipe(9, steps=(Power(0.5), Pca(5), Whiten(0.8))).fit(raw, labels)
    plain = Recipe(9, steps=(Power(0.5), Pca(5))).fit(raw, labels)
    # PCA is computed at one scale for all examples, but applied to each at its own.
    raised = np.copysign(np.sqrt(np.abs(raw)), raw)
    axes = plain.steps[1].axes  # type: ignore[attr-defined]
    expected = whiten_naively(raised @ axes, labels, 0.8, raised @ axes)
    np.testing.assert_allclose(recipe.unit_vectors(raw, "float64")[0], expected, rtol=0, atol=1e-6)


def test_tiles_cannot_be_whitened() -> None:
    with pytest.raises(UsageError, match="--parts cannot be combined with --whiten, after which values have"):
        Recipe.for_images(GRADIENTS, (Whiten(0.9), Parts(2, 2)))


@pytest.mark.parametrize("rho", [-0.1, 0.001, 1.1, float("nan")])
def test_an_invalid_whitening_is_refused(rho: float) -> None:
    with pytest.raises(UsageError, match=r"--whiten .*: give a number from 0.01 to 1, or 0 for no whitening"):
        Whiten(rho)


def test_no_setting_makes_no_step() -> None:
    assert make_steps({"whiten": 0.0}) == ()
    assert make_steps({"whiten": 0.7}) == (Whiten(0.7),)


def test_held_out_examples_do_not_fit_the_whitening() -> None:
    raw, labels = examples_of(4, 5, 30)
    recipe = Recipe(30, steps=(Whiten(0.9),)).fit(raw, labels)
    vectors, _ = recipe.unit_vectors(raw, "float64")
    refit = recipe.refitter(vectors, labels)
    assert refit is not None
    is_kept = np.arange(20) % 5 != 2
    expected = whiten_naively(raw[is_kept], labels[is_kept], 0.9, raw)
    np.testing.assert_allclose(refit(is_kept), expected, rtol=0, atol=1e-5)
    first_of_each = np.isin(np.arange(20), [np.flatnonzero(labels == k)[0] for k in range(4)])
    np.testing.assert_allclose(refit(first_of_each), unit(raw), rtol=0, atol=1e-5)
    assert Recipe(30, steps=(Power(0.5),)).refitter(vectors, labels) is None


# --- On the command line


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """photos/{a,b,c}/0..3.png of noise that differs little by class, and queries/0..2.png."""
    rng = np.random.default_rng(7)
    looks = {name: rng.integers(0, 100, (16, 16)) for name in "abc"}
    for name, look in looks.items():
        Path("photos", name).mkdir(parents=True)
        for number in range(4):
            values = (look + rng.integers(0, 156, (16, 16))).astype(np.uint8)
            Image.fromarray(values).save(f"photos/{name}/{number}.png")
    Path("queries").mkdir()
    for number in range(3):
        Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(f"queries/{number}.png")
    return crnr


def raw_gradients(folder: str) -> Array:
    """Return the gradients of a folder's images, in the order of their names."""
    pixels = [np.asarray(Image.open(path), float).ravel() for path in sorted(Path(folder).rglob("*.png"))]
    found: Array = Gradients((16, 16), color=False, cell=3).open(1).extract(np.array(pixels))
    return found.astype(np.float64)


def about(here: Runner, path: str = "gallery.h5") -> dict[str, object]:
    found: dict[str, object] = json.loads(here("info", path, "--json").out)
    return found


def test_build_whitens_gradients_and_takes_mu_1(here: Runner) -> None:
    assert here("build", "photos", "--whiten", "0.9", "-q") == Outcome(0, "", "")
    facts = about(here)
    assert (facts["whiten"], facts["format_version"]) == (0.9, 5)
    assert facts["parameters"]["mu"] == 1.0  # type: ignore[index]
    assert ["whitening", "0.9"] in [line.split() for line in here("info").out.splitlines()]
    raw, labels = raw_gradients("photos"), np.repeat([0, 1, 2], 4)
    expected = whiten_naively(raw, labels, 0.9, raw)
    gallery = load_gallery(Path("gallery.h5"))
    np.testing.assert_allclose(gallery.samples.vectors, expected, rtol=0, atol=1e-5)
    queries = whiten_naively(raw, labels, 0.9, raw_gradients("queries"))
    out = here("classify", "queries", "-q", "--format", "csv").out
    found = np.array([line.split(",")[-3:] for line in out.splitlines()[1:]], dtype=float)
    samples = Samples.of(expected, labels)
    method = gallery.method
    wanted = residuals(method, samples, fit_method(method, samples), queries)
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=0, atol=1e-4)
    explained = here("explain", "queries/0.png", "--json")
    assert explained.exit == 0, explained.err


@pytest.mark.parametrize(
    ("options", "whiten", "mu"),
    [
        ((), 0.0, 0.1),
        (("--whiten", "0"), 0.0, 0.1),
        (("--whiten", "0.7"), 0.7, 1.0),
        (("--whiten", "1"), 0.0, 0.1),  # which changes nothing
        (("--whiten", "0.9", "--mu", "0.3"), 0.9, 0.3),
        (("--whiten", "0.9", "--method", "nrc"), 0.9, 0.1),
        (("--whiten", "0.9", "--neighbors", "3"), 0.9, 0.1),
        (("--whiten", "0.5", "--pca", "4"), 0.5, 1.0),
        (("--whiten", "0.9", "--extractor", "pixels"), 0.9, 1.0),
    ],
)
def test_options_decide_on_whitening_and_mu(
    here: Runner, options: tuple[str, ...], whiten: float, mu: float
) -> None:
    assert here("build", "photos", *options, "-q") == Outcome(0, "", "")
    facts = about(here)
    assert facts["whiten"] == whiten
    assert facts["parameters"]["mu"] == mu  # type: ignore[index]
    assert here("classify", "queries", "-q").exit == 0


def test_one_example_per_class_leaves_nothing_to_whiten(here: Runner) -> None:
    for path in Path("photos").rglob("[123].png"):
        path.unlink()
    for name, options in (("default.h5", ()), ("off.h5", ("--whiten", "0")), ("on.h5", ("--whiten", "0.9"))):
        assert here("build", "photos", "-o", name, *options, "-q") == Outcome(0, "", "")
    off = Path("off.h5").read_bytes()
    assert Path("default.h5").read_bytes() == off
    assert Path("on.h5").read_bytes() == off


def test_feature_files_are_whitened_like_images_even_in_blocks(here: Runner) -> None:
    """With --neighbors and more examples than features, the vectors are never in memory at once."""
    options, whiten = ("--cell", "8", "--bins", "2"), ("--whiten", "0.9", "-q")
    assert here("extract", "photos", "-o", "f.h5", *options, "-q") == Outcome(0, "", "")
    with h5py.File("f.h5") as file:
        assert file["features"].shape == (12, 8)
    for neighbors in ((), ("--neighbors", "5")):
        assert here("build", "photos", *options, *neighbors, "-o", "i.h5", *whiten) == Outcome(0, "", "")
        assert here("build", "f.h5", *neighbors, "-o", "f_gallery.h5", *whiten) == Outcome(0, "", "")
        one, other = (load_gallery(Path(name)) for name in ("i.h5", "f_gallery.h5"))
        assert one.recipe.settings["whiten"] == other.recipe.settings["whiten"] == 0.9
        np.testing.assert_allclose(one.samples.vectors, other.samples.vectors, rtol=0, atol=1e-5)


def test_the_calibration_holds_examples_out_of_the_whitening_too(here: Runner) -> None:
    """A whitening that saw the labels of held-out examples would find nearly all of them in their classes."""
    assert here("build", "photos", "--whiten", "0.9", "--calibrate", "-q") == Outcome(0, "", "")
    gallery = load_gallery(Path("gallery.h5"))
    assert gallery.calibration is not None
    raw, labels, method = raw_gradients("photos"), np.repeat([0, 1, 2], 4), gallery.method
    honest, optimistic = [], []
    for one in range(12):  # 20 folds hold out one example at a time, or one of each class
        for is_kept, target in ((np.arange(12) != one, honest), (np.ones(12, dtype=bool), optimistic)):
            vectors = whiten_naively(raw[is_kept], labels[is_kept], 0.9, raw)
            rest = np.arange(12) != one
            samples = Samples.of(vectors[rest], labels[rest])
            found = residuals(method, samples, fit_method(method, samples), vectors[[one]])
            target.append(standout(found, method.signed)[0])
    mean = gallery.calibration.standouts.mean()
    assert abs(mean - np.mean(honest)) < 0.25 * abs(mean - np.mean(optimistic))


@pytest.mark.parametrize(
    "command", [("add", "gallery.h5", "queries", "--class", "b"), ("build", "photos", "--update")]
)
def test_later_examples_fit_the_whitening_too(here: Runner, command: tuple[str, ...]) -> None:
    assert here("build", "photos", "--whiten", "0.9", "-q") == Outcome(0, "", "")
    raw, later = raw_gradients("photos"), raw_gradients("queries")
    if "--update" in command:
        for number in range(3):
            Path("queries", f"{number}.png").rename(f"photos/b/{number + 5}.png")
    changed = here(*command)
    assert changed.exit == 0
    assert "still fitted" not in changed.err
    rows, labels = np.concatenate([raw[:8], later, raw[8:]]), np.repeat([0, 1, 2], [4, 7, 4])
    gallery = load_gallery(Path("gallery.h5"))
    expected = whiten_naively(rows, labels, 0.9, rows)
    np.testing.assert_allclose(gallery.samples.vectors, expected, rtol=0, atol=1e-5)
    assert (gallery.parameters["mu"], gallery.recipe.settings["whiten"]) == (1.0, 0.9)
    assert here("remove", "gallery.h5", "--class", "a", "-q").exit == 0
    gallery = load_gallery(Path("gallery.h5"))
    expected = whiten_naively(rows[4:], labels[4:], 0.9, rows[4:])
    np.testing.assert_allclose(gallery.samples.vectors, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(300, 5, 8), (4, 5, 40)], ids=["in blocks", "at once"])
def test_fitting_again_equals_fitting_from_the_start(shape: tuple[int, int, int], dtype: str) -> None:
    raw, labels = examples_of(*shape)
    some = np.flatnonzero(np.arange(len(raw)) % 3 > 0)
    recipe = Recipe(shape[2], steps=(Power(0.5), Whiten(0.8)))
    partial = recipe.fit(raw[some], labels[some])
    again, vectors = partial.refit_whitening(partial.unit_vectors(raw, dtype)[0], labels)
    whole = recipe.fit(raw, labels)
    assert vectors.dtype == dtype
    np.testing.assert_allclose(vectors, whole.unit_vectors(raw, dtype)[0], rtol=0, atol=5e-6)
    queries = np.random.default_rng(3).normal(size=(9, shape[2]))
    found, expected = (one.unit_vectors(queries, dtype)[0] for one in (again, whole))
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)
    first = np.unique(labels, return_index=True)[1]
    assert partial.refit_whitening(vectors[first], labels[first])[0] is partial


def test_galleries_without_whitening_stay_as_they_are(here: Runner) -> None:
    """Galleries of earlier versions store none."""
    assert here("build", "photos", "--whiten", "0", "-q") == Outcome(0, "", "")
    with h5py.File("gallery.h5") as file:
        assert "whiten" not in file["recipe"].attrs
        assert "whiten" not in file["recipe"]
    added = here("add", "gallery.h5", "queries", "--class", "b")
    assert added.exit == 0
    assert "still fitted" not in added.err
    facts = about(here)
    assert facts["whiten"] == 0.0
    assert facts["parameters"]["mu"] == 0.1  # type: ignore[index]


def test_audit_holds_examples_out_of_the_whitening(here: Runner) -> None:
    """The noise has so little of its class that a whitening of all examples would find each in its own."""
    assert here("build", "photos", "--whiten", "0.5", "-q") == Outcome(0, "", "")
    gallery = load_gallery(Path("gallery.h5"))
    folds = Folds.of(gallery.samples, gallery.hashes)
    found = cross_validated_residuals(gallery.samples_to_hold_out, gallery.method, folds)
    raw, labels = raw_gradients("photos"), np.repeat([0, 1, 2], 4)
    for number in range(int(folds.fold_of.max()) + 1):
        held = folds.fold_of == number
        vectors = whiten_naively(raw[~held], labels[~held], 0.5, raw)
        samples = Samples.of(vectors[~held], labels[~held])
        state = fit_method(gallery.method, samples)
        expected = residuals(gallery.method, samples, state, vectors[held])
        np.testing.assert_allclose(found[held], expected, rtol=0, atol=1e-4)
    assert here("audit", "gallery.h5", "--json").exit in (0, 3)
    assert here("audit", "photos", "--whiten", "0.5", "--json").exit in (0, 3)


def test_compare_takes_mu_1_for_whitened_vectors_unless_it_is_set(here: Runner) -> None:
    options = ("--methods", "crnr,nrc", "--draws", "2", "--json", "--whiten", "0.7")
    for further, mu in (((), 1.0), (("--set", "crnr.mu=0.3"), 0.3)):
        compared = here("compare", "photos", *options, *further)
        assert compared.exit == 0, compared.err
        methods = {one["method"]: one for one in json.loads(compared.out)["methods"]}
        assert methods["crnr"]["parameters"]["mu"] == mu
        assert methods["nrc"]["parameters"]["mu"] == 0.1


def test_tune_tries_whitenings(here: Runner) -> None:
    options = ("--extractor", "gradients", "--cell", "8", "--try-power", "1", "--json")
    plain = json.loads(here("tune", "photos", *options).out)
    assert {trial["whiten"] for trial in plain["trials"]} == {0.0}
    tried = json.loads(here("tune", "photos", *options, "--try-whiten").out)
    assert {trial["whiten"] for trial in tried["trials"]} == {0.0, 0.9, 0.7, 0.5}
    assert (tried["paper"]["whiten"], tried["paper"]["mu"]) == (0.0, 0.1)
    preferred = here("tune", "photos", *options, "--try-whiten", "0.5,0", "--budget", "0", "-o", "t.h5")
    assert preferred.exit == 0, preferred.err
    default = json.loads(preferred.out)["paper"]
    assert (default["whiten"], default["mu"], default["lam"]) == (0.5, 1.0, 0.01)
    built = load_gallery(Path("t.h5"))
    assert (built.recipe.settings["whiten"], built.parameters["mu"]) == (0.5, 1.0)
    refused = here("tune", "photos", "--try-whiten", "0..5")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err.startswith("error: --try-whiten '0..5': give settings separated by commas, such as 0")


@pytest.mark.parametrize("damage", ["few rows", "few gains", "a gain of 2", "not a number", "no axes"])
def test_a_damaged_whitening_is_refused(here: Runner, damage: str) -> None:
    raw, labels = examples_of(3, 3, 6)
    (step,) = Recipe(6, steps=(Whiten(0.9),)).fit(raw, labels).steps
    stored = step.to_stored()
    axes, gains = stored.arrays["whiten"].copy(), stored.arrays["whiten_gains"].copy()
    arrays = {"whiten": axes, "whiten_gains": gains}
    if damage == "few rows":
        arrays["whiten"] = axes[:-1]
    elif damage == "few gains":
        arrays["whiten_gains"] = gains[:-1]
    elif damage == "a gain of 2":
        gains[0] = 2
    elif damage == "not a number":
        axes[0, 0] = np.nan
    else:
        del arrays["whiten"]
    plain = Recipe(6).to_stored()
    damaged = type(stored)({**plain.attributes, **stored.attributes, "steps": "whiten"}, arrays)
    with pytest.raises((ValueError, LookupError)):
        Recipe.from_stored(damaged).n_outputs  # noqa: B018
