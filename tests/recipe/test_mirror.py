"""--mirror: the mean of a network's features of an image and of its mirror image.

The networks of these tests square the pixels of an image, so NumPy knows their features, and the mean of two
features is not the feature of the mean.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from PIL import Image, ImageOps

from crnr_cli.choices import ExtractorOptions
from crnr_cli.errors import UsageError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.samples import Reading, read_raw
from crnr_cli.images.pixels import PixelRequest
from crnr_cli.images.pool import Decoded, DecoderPool
from crnr_cli.jobs import tune as job
from crnr_cli.recipe.base import Stored
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import OpenNetwork
from crnr_cli.recipe.recipe import restore_extractor
from crnr_cli.sources.opening import open_source
from helpers.onnx_models import Shape, save_model
from helpers.runner import Outcome, Runner, rows

NETWORK = ("--extractor", "model.onnx", "--extractor-preset", "raw")


def square_model(path: Path, shape: Shape) -> Path:
    return save_model(
        path,
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("Mul", ["flat", "flat"], ["features"]),
        ],
        {"image": shape},
        {"features": [shape[0], "d"]},
    )


@pytest.fixture
def here(crnr: Runner) -> Runner:
    """photos/{a,b}/{0,1,2,3}.png, the same images mirrored in mirrored/, and a network."""
    rng = np.random.default_rng(5)
    for name in "ab":
        for part in ("photos", "mirrored"):
            Path(part, name).mkdir(parents=True)
        for number in range(4):
            values = rng.integers(20, 256, (4, 6, 3)) // (1 if name == "a" else 2)
            image = Image.fromarray(values.astype(np.uint8))
            image.save(f"photos/{name}/{number}.png")
            ImageOps.mirror(image).save(f"mirrored/{name}/{number}.png")
    square_model(Path("model.onnx"), ["n", 3, 4, 6])
    return crnr


def plain_features(folder: str, mean: float = 0.0) -> np.ndarray:
    """Return (m, height, width, 3): the squares of all pixels, in the order of the images' names."""
    images = [np.asarray(Image.open(path), float) for path in sorted(Path(folder).rglob("*.png"))]
    return np.array([(image - mean) ** 2 for image in images])


def plain_mean(features: np.ndarray) -> np.ndarray:
    """Return the mean of each image and its mirror image, one pixel after the other."""
    m, height, width, _ = features.shape
    found = np.empty_like(features)
    for i in range(m):
        for y in range(height):
            for x in range(width):
                found[i, y, x] = (features[i, y, x] + features[i, y, width - 1 - x]) / 2
    return found


def flat(features: np.ndarray) -> np.ndarray:
    return features.transpose(0, 3, 1, 2).reshape(len(features), -1)


def plain_vectors(features: np.ndarray, power: float) -> np.ndarray:
    raised = np.abs(features) ** power
    return raised / np.sqrt((raised**2).sum(axis=1, keepdims=True))


def read_features(**settings: Any) -> np.ndarray:
    given = {"model": Path("model.onnx"), "preset": "raw", "mirror": True, **settings}
    reading = Reading(extractor=ExtractorOptions("network", given), jobs=1)
    return np.asarray(read_raw(open_source(["photos"], reading), reading).values)


@pytest.mark.parametrize("count", ["n", 1, 3])
def test_features_are_the_mean_over_both_images(here: Runner, count: Any) -> None:
    """However many images the model takes at once."""
    square_model(Path("model.onnx"), [count, 3, 4, 6])
    expected = flat(plain_mean(plain_features("photos")))
    np.testing.assert_allclose(read_features(), expected, rtol=1e-6)


def test_features_are_the_mean_in_other_layouts_and_channels(here: Runner) -> None:
    square_model(Path("model.onnx"), ["n", 4, 6, 3])
    expected = plain_mean(plain_features("photos", 100.0))[..., ::-1]
    found = read_features(channels="bgr", mean=(100.0,)).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    square_model(Path("model.onnx"), ["n", 1, 4, 6])
    greys = [
        np.asarray(Image.open(path).convert("L"), float) for path in sorted(Path("photos").rglob("*.png"))
    ]
    squares = np.array(greys)[..., None] ** 2
    np.testing.assert_allclose(read_features(), flat(plain_mean(squares)), rtol=1e-6)


@pytest.mark.parametrize("power", [None, 1.0])
def test_the_power_is_taken_of_the_mean(here: Runner, power: float | None) -> None:
    given = () if power is None else ("--power", str(power))
    built = here("build", "photos", *NETWORK, "--mirror", *given)
    assert (built.exit, built.out) == (0, "")
    found = load_gallery(Path("gallery.h5")).samples.vectors
    expected = plain_vectors(flat(plain_mean(plain_features("photos"))), power or 0.7)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_image_and_its_mirror_image_get_the_same_answer(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    answers = [rows(here("classify", folder, "-q").out) for folder in ("photos", "mirrored")]
    names = [name for name in answers[0][0] if name.startswith("residual")]
    residuals = [[[float(row[name]) for name in names] for row in table] for table in answers]
    np.testing.assert_allclose(*residuals, atol=1e-6)
    assert np.ptp(residuals[0]) > 0.1
    # Without --mirror, they do not.
    assert here("build", "photos", *NETWORK, "-q") == Outcome(0, "", "")
    one, other = (rows(here("classify", folder, "-q").out) for folder in ("photos", "mirrored"))
    assert [row[names[0]] for row in one] != [row[names[0]] for row in other]


def test_a_gallery_stores_the_mirror_only_if_there_is_one(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    about = json.loads(here("info", "--json").out)
    assert (about["format_version"], about["extractor"]["mirror"]) == (5, True)
    assert "preset raw, mean with the mirror image" in " ".join(here("info").out.split())
    assert here("verify").exit == 0
    assert here("build", "photos", *NETWORK, "-q") == Outcome(0, "", "")
    about = json.loads(here("info", "--json").out)
    assert (about["format_version"], about["extractor"]["mirror"]) == (5, False)
    stored = load_gallery(Path("gallery.h5")).recipe.to_stored()
    assert "mirror" not in json.loads(stored.attributes["extractor"])


@pytest.mark.parametrize("value", [1, "yes", None, [True]])
def test_a_stored_mirror_that_is_neither_true_nor_false_is_refused(here: Runner, value: Any) -> None:
    assert here("build", "photos", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    attributes = load_gallery(Path("gallery.h5")).recipe.to_stored().attributes
    settings = json.loads(attributes["extractor"])
    assert isinstance(restore_extractor(Stored(attributes)), Network)
    with pytest.raises(ValueError, match="the description of the extractor is invalid"):
        restore_extractor(Stored(attributes | {"extractor": json.dumps(settings | {"mirror": value})}))


def test_images_are_decoded_once_and_both_are_in_one_run(
    here: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, run = DecoderPool.decode, OpenNetwork._run
    decoded: list[str] = []
    runs: list[int] = []

    def watched(pool: DecoderPool, paths: Sequence[str], request: PixelRequest) -> Generator[Decoded]:
        decoded.extend(paths)
        return decode(pool, paths, request)

    def counted(network: OpenNetwork, pixels: np.ndarray) -> np.ndarray:
        runs.append(len(pixels))
        return run(network, pixels)

    monkeypatch.setattr(DecoderPool, "decode", watched)
    monkeypatch.setattr(OpenNetwork, "_run", counted)
    assert here("build", "photos", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    assert len(decoded) == len(set(decoded)) == 8
    assert runs == [4, 4, 4, 4]  # eight images and their mirror images


def test_an_extracted_file_keeps_the_mirror(here: Runner) -> None:
    assert here("extract", "photos", "-o", "f.h5", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    assert here("build", "f.h5", "-o", "file.h5", "-q") == Outcome(0, "", "")
    assert here("build", "photos", *NETWORK, "--mirror", "-o", "images.h5", "-q") == Outcome(0, "", "")
    by_file, by_images = (load_gallery(Path(name)).samples.vectors for name in ("file.h5", "images.h5"))
    np.testing.assert_array_equal(by_file, by_images)
    assert here("classify", "mirrored", "-g", "file.h5", "-o", "out.csv", "-q") == Outcome(0, "", "")
    # Features of the image alone are not compared with it.
    assert here("build", "photos", *NETWORK, "-o", "plain.h5", "-q") == Outcome(0, "", "")
    refused = here("classify", "f.h5", "-g", "plain.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: f.h5: its features come from another extractor than the features of plain.h5 (72 features of "
        "model.onnx, 6x4, rgb, preset raw, mean with the mirror image instead of 72 features of model.onnx, "
        "6x4, rgb, preset raw); extract them again with `crnr extract IMAGES --like plain.h5 -o f.h5`\n"
    )
    refused = here("build", "photos", *NETWORK, "--cache", "f.h5")
    assert (refused.exit, refused.out) == (1, "")
    assert "its features come from another extractor than this gallery needs" in refused.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("build", "photos", "--mirror"),
            "--mirror only applies to networks; add --extractor NAME or MODEL.onnx",
        ),
        (
            ("build", "photos", "--extractor", "pixels", "--mirror"),
            "--mirror only applies to networks; add --extractor NAME or MODEL.onnx",
        ),
        (
            ("tune", "photos", "--try-mirror"),
            "--try-mirror only applies to networks; add --extractor NAME or MODEL.onnx",
        ),
        (
            ("tune", "photos", *NETWORK, "--mirror", "--try-mirror"),
            "--mirror and --try-mirror contradict each other; give one of them",
        ),
        (
            ("build", "photos", "--mirror", "--update", *NETWORK),
            "--update keeps the settings of the gallery; leave out --extractor-preset, --mirror or --update",
        ),
    ],
)
def test_the_mirror_is_refused_where_it_does_not_apply(
    here: Runner, command: tuple[str, ...], message: str
) -> None:
    assert here("build", "photos", *NETWORK, "-q") == Outcome(0, "", "")
    assert here(*command) == Outcome(2, "", f"error: {message}\n")


def test_an_updated_gallery_keeps_its_mirror(here: Runner) -> None:
    assert here("build", "photos", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    Path("mirrored/a/0.png").rename("photos/b/9.png")
    assert here("build", "photos", "--update", "-q") == Outcome(0, "", "")
    found = load_gallery(Path("gallery.h5")).samples.vectors
    expected = plain_vectors(flat(plain_mean(plain_features("photos"))), 0.7)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_tune_tries_both_and_builds_with_the_mirror(here: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LAMS", (0.01,))
    monkeypatch.setattr(job, "MUS", (0.1,))
    command = ("tune", "photos", *NETWORK, "--try-mirror")
    result = here(*command, "--json", "-q")
    assert (result.exit, result.err) == (0, "")
    record = json.loads(result.out)
    tried = {(trial.get("mirror"), trial["power"]) for trial in record["trials"]}
    assert tried == {(mirror, power) for mirror in (None, True) for power in (1.0, 0.7, 0.5)}
    assert ("mirror" in record["paper"], record["paper"]["power"]) == (False, 0.7)
    monkeypatch.setattr(job, "choose", lambda trials, default: next(t for t in trials if _is_mirrored(t)))
    shown = here(*command)
    assert "mirror" in shown.out.splitlines()[2].split()
    assert {"yes", "-"} <= set(shown.out.split())
    assert "--extractor-preset raw --method crnr" in shown.err
    assert " --mirror --power 0.7" in shown.err
    assert here(*command, "-o", "tuned.h5", "-q").exit == 0
    found = load_gallery(Path("tuned.h5")).samples.vectors
    expected = plain_vectors(flat(plain_mean(plain_features("photos"))), 0.7)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_tune_proposes_no_mirror_for_features_that_have_it_already(here: Runner) -> None:
    assert here("extract", "photos", "-o", "f.h5", *NETWORK, "--mirror", "-q") == Outcome(0, "", "")
    tuned = here("tune", "f.h5", "--budget", "0")
    assert tuned.exit == 0
    (proposed,) = [line for line in tuned.err.splitlines() if line.startswith("to build a gallery")]
    assert proposed.endswith(" --power 0.7")
    command = proposed.partition(": crnr ")[2].split()
    assert here(*command, "-q") == Outcome(0, "", "")
    assert json.loads(here("info", "--json").out)["extractor"]["mirror"] is True


def _is_mirrored(trial: job.Trial) -> bool:
    return bool(trial.setting.parameters().get("mirror"))


def test_pixels_have_no_mirror_from_python_either(here: Runner) -> None:
    reading = Reading(extractor=ExtractorOptions("pixels", {"mirror": True}), jobs=1)
    with pytest.raises(UsageError, match="--mirror does not apply to --extractor pixels; leave it out"):
        read_raw(open_source(["photos"], reading), reading)
