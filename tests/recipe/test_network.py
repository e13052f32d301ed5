"""Deep features: tiny models made on the spot, whose answers Pillow and NumPy give too."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from crnr_cli.choices import ExtractorOptions, NetworkOptions
from crnr_cli.gallery.file import load_gallery
from crnr_cli.gallery.queries import QueryOptions, Run, load_for_queries, open_queries
from crnr_cli.gallery.samples import Reading, read_raw
from crnr_cli.images.pool import DecoderPool
from crnr_cli.recipe.base import Stored
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import make_network
from crnr_cli.recipe.recipe import restore_extractor
from crnr_cli.sources.opening import open_source
from helpers.onnx_models import Shape, flat_model, map_model, save_model
from helpers.runner import Runner, rows
from helpers.samples import make_images

IMAGENET = ("--extractor-preset", "imagenet")


def photo(seed: int, size: tuple[int, int] = (90, 60)) -> Image.Image:
    """Smooth colours, different in every corner."""
    corners = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(corners).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """photos/{a,b}/{0,1,2}.png and, the same but for noise, queries/{a,b}/{0,1,2}.png"""
    noise = np.random.default_rng(0)
    for i, name in enumerate("ab"):
        for part in ("photos", "queries"):
            (tmp_path / part / name).mkdir(parents=True)
        for k in range(3):
            image = photo(10 * i + k)
            image.save(tmp_path / "photos" / name / f"{k}.png")
            values = np.asarray(image) + noise.normal(0, 3, (60, 90, 3))
            Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(
                tmp_path / "queries" / name / f"{k}.png"
            )
    return tmp_path


def features(folder: Path, options: NetworkOptions, size: tuple[int, int] | None = None) -> Any:
    given = {name: value for name, value in vars(options).items() if value is not None}
    sized = {} if size is None else {"size": size}
    reading = Reading(extractor=ExtractorOptions("network", given | sized), jobs=1)
    return read_raw(open_source([str(folder)], reading), reading).values


def expected(
    folder: Path, box: tuple[int, int, int, int], filter: Image.Resampling, mean: Any, std: Any
) -> Any:
    """Return (m, 8, 8, 3) by Pillow's own steps."""
    images = [Image.open(path).crop(box).resize((8, 8), filter) for path in sorted(folder.rglob("*.png"))]
    return (np.array([np.asarray(p) for p in images], np.float64) - mean) / std


@pytest.mark.parametrize(
    ("preset", "box", "filter", "mean", "std"),
    [
        # The square of 52 or 53 in the middle of 90 x 60 is 224/256 of the shorter side.
        ("efficientnet-lite", (19, 4, 71, 56), Image.Resampling.BICUBIC, 127, 128),
        (
            "imagenet",
            (19, 4, 71, 56),
            Image.Resampling.BILINEAR,
            255 * np.array([0.485, 0.456, 0.406]),
            255 * np.array([0.229, 0.224, 0.225]),
        ),
        ("raw", (0, 0, 90, 60), Image.Resampling.BILINEAR, 0, 1),
    ],
)
def test_presets_prepare_images_as_documented(
    photos: Path, preset: str, box: Any, filter: Image.Resampling, mean: Any, std: Any
) -> None:
    model = flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    found = features(photos / "photos", NetworkOptions(model, preset))
    wanted = expected(photos / "photos", box, filter, mean, std).transpose(0, 3, 1, 2).reshape(6, -1)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_each_step_has_an_option(photos: Path) -> None:
    model = flat_model(photos / "m.onnx", ["n", 8, 8, 3])
    options = NetworkOptions(
        model, crop=0.5, filter="lanczos", mean=(1.0, 2.0, 3.0), std=(4.0,), channels="bgr"
    )
    found = features(photos / "photos", options).reshape(6, 8, 8, 3)
    pixels = expected(photos / "photos", (30, 15, 60, 45), Image.Resampling.LANCZOS, 0, 1)
    np.testing.assert_allclose(found, (pixels[..., ::-1] - [1, 2, 3]) / 4, atol=1e-5)


def test_the_shape_decides_size_channels_and_layout(tmp_path: Path) -> None:
    def settled(shape: Shape, **said: Any) -> tuple[Any, ...]:
        how = make_network(NetworkOptions(flat_model(tmp_path / "m.onnx", shape), "raw", **said), 1)
        return how.size, how.channels, how.layout, how.n_outputs

    assert settled(["n", 3, 6, 8]) == ((8, 6), "rgb", "nchw", 144)
    assert settled(["n", 6, 8, 1]) == ((8, 6), "grey", "nhwc", 48)
    assert settled(["n", 3, "h", "w"], size=(5, 4)) == ((5, 4), "rgb", "nchw", 60)
    assert settled(["n", "x", "y", "z"], size=(5, 4), layout="nhwc") == ((5, 4), "rgb", "nhwc", 60)


def test_the_preset_that_was_chosen_counts_more_than_a_guess(tmp_path: Path) -> None:
    model = flat_model(tmp_path / "efficientnet_lite0.onnx", ["n", 3, 8, 8])
    assert make_network(NetworkOptions(model), 1).mean == (127.0,)
    assert make_network(NetworkOptions(model, "raw"), 1).mean == (0.0,)
    assert make_network(NetworkOptions(model, mean=(1.0,)), 1).mean == (1.0,)


@pytest.mark.parametrize("shape", [["n", 3, 8, 8], [4, 3, 8, 8]], ids=["any number", "four at once"])
def test_maps_are_pooled_by_their_mean(photos: Path, shape: Shape) -> None:
    model = map_model(photos / "m.onnx", shape)
    found = features(photos / "photos", NetworkOptions(model, "raw", pool="avg"))
    wanted = expected(photos / "photos", (0, 0, 90, 60), Image.Resampling.BILINEAR, 0, 1).mean(axis=(1, 2))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_model_of_bytes_scales_them_itself(photos: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["image"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["floats"], ["features"]),
    ]
    shapes = {"image": ["n", 8, 8, 3]}, {"features": ["n", 192]}
    model = save_model(photos / "m.onnx", nodes, *shapes, kind=TensorProto.UINT8)
    found = features(photos / "photos", NetworkOptions(model, "imagenet", crop=0))
    wanted = expected(photos / "photos", (0, 0, 90, 60), Image.Resampling.BILINEAR, 0, 1)
    np.testing.assert_array_equal(found, wanted.reshape(6, -1))


def test_images_of_more_bits_are_brought_to_eight(tmp_path: Path) -> None:
    """A ramp in 8 bits, in 16, and as floats of 0 to 1 gives one vector."""
    ramp = np.tile(np.arange(0, 256, dtype=np.uint8), (256, 1))
    (tmp_path / "x" / "a").mkdir(parents=True)
    Image.fromarray(ramp).save(tmp_path / "x" / "a" / "0.png")
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "x" / "a" / "1.png")
    Image.fromarray(ramp.astype(np.float32) / 255).save(tmp_path / "x" / "a" / "2.tif")
    found = features(tmp_path / "x", NetworkOptions(flat_model(tmp_path / "m.onnx", ["n", 3, 8, 8]), "raw"))
    np.testing.assert_array_equal(found, found[[0, 0, 0]])
    assert np.ptp(found) > 200


def test_build_then_classify_and_evaluate_without_another_word(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    built = crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, "--json")
    assert built.exit == 0, built.err
    assert "prepared" not in built.err
    told = ("--crop", "1", "--filter", "box", "--mean", "0", "--std", "1")
    by_options = crnr("build", "photos", "--extractor", "m.onnx", *told, "-o", "other.h5")
    assert (by_options.exit, "prepared" in by_options.err) == (0, False)
    about = json.loads(built.out)
    assert (about["n_inputs"], about["extractor"]["model"]) == (192, str(photos / "m.onnx"))
    answered = crnr("classify", "queries")
    assert answered.exit == 0, answered.err
    found = rows(answered.out)
    assert [row["label"] for row in found] == [row["truth"] for row in found] == list("aaabbb")
    assert crnr("evaluate", "queries", "--min-accuracy", "1").exit == 0
    assert "m.onnx" in crnr("info").out


def test_compare_uses_it_too(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    compared = crnr(
        *(
            "compare",
            "photos",
            "--test",
            "queries",
            "--extractor",
            "m.onnx",
            *IMAGENET,
            "--methods",
            "crnr,nn",
            "--json",
        )
    )
    assert compared.exit == 0, compared.err
    record = json.loads(compared.out)
    assert record["dimension"] == 192
    assert [method["accuracy"] for method in record["methods"]] == [1, 1]


def test_a_blank_image_has_no_answer(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET).exit == 0
    Image.new("RGB", (50, 50), "red").save("red.png")
    answered = crnr("classify", "red.png", "queries/a/0.png")
    assert answered.exit == 3
    statuses = [row["status"] for row in rows(answered.out)]
    assert statuses == ["zero_norm", "ok"]


def test_extractor_option_locates_a_moved_model(crnr: Runner, photos: Path) -> None:
    model = flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    Path("g").mkdir()
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, "-o", "g/gallery.h5").exit == 0
    first = crnr("classify", "queries", "-g", "g/gallery.h5").out
    model.rename(photos / "moved.onnx")
    lost = crnr("classify", "queries", "-g", "g/gallery.h5")
    assert (lost.exit, lost.out) == (1, "")
    assert lost.err == (
        f"error: the gallery's network is not at {model} nor at g/m.onnx; give its path with --model-path\n"
    )
    assert crnr("classify", "queries", "-g", "g/gallery.h5", "--model-path", "moved.onnx").out == first
    explained = crnr("explain", "queries/a/0.png", "-g", "g/gallery.h5", "--model-path", "moved.onnx")
    assert explained.exit == 0


def test_a_changed_gallery_stores_the_new_path_of_its_model(crnr: Runner, photos: Path) -> None:
    model = flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET).exit == 0
    first = crnr("classify", "queries").out
    for place, command in (
        ("one.onnx", ["add", "gallery.h5", "queries"]),
        ("two.onnx", ["build", "photos", "--update"]),
    ):
        model = model.rename(photos / place)
        Path("photos/a/0.png").touch()
        assert crnr(*command).err.startswith("error: the gallery's network is not at ")
        assert crnr(*command, "--model-path", place).exit == 0
        assert crnr("classify", "queries").exit == 0
    assert crnr("classify", "queries").out == first  # the added sample is gone again


def test_the_model_is_found_beside_a_gallery_that_moved(crnr: Runner, photos: Path) -> None:
    model = flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET).exit == 0
    first = crnr("classify", "queries").out
    model.unlink()
    lost = crnr("classify", "queries").err
    assert lost == f"error: the gallery's network is not at {model}; give its path with --model-path\n"
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    Path("g").mkdir()
    Path("gallery.h5").rename("g/gallery.h5")
    model.rename("g/m.onnx")
    assert crnr("classify", "queries", "-g", "g/gallery.h5").out == first


def test_another_model_is_refused(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET).exit == 0
    flat_model(photos / "m.onnx", ["n", 3, 8, 9])
    refused = crnr("classify", "queries")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(f"error: {photos}/m.onnx: not the network that the gallery was built with")
    assert refused.err.count("\n") == 1


def test_an_extractor_for_a_gallery_of_pixels_is_refused(crnr: Runner, images: Path) -> None:
    assert crnr("build", "gallery").exit == 0
    refused = crnr("classify", "queries", "--model-path", "m.onnx")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == "error: gallery.h5: was built without a network; leave out m.onnx\n"


def _models(folder: Path) -> dict[str, Path]:
    """Models that cannot be used as they are, by what is wrong with them."""
    image = ["n", 3, 8, 8]
    return {
        "text": save_model(
            folder / "text.onnx",
            [helper.make_node("Cast", ["ids"], ["features"], to=TensorProto.FLOAT)],
            {"ids": ["n", "tokens"]},
            {"features": ["n", "tokens"]},
            kind=TensorProto.INT64,
        ),
        "two inputs": save_model(
            folder / "two.onnx",
            [helper.make_node("Add", ["image", "mask"], ["sum"])],
            {"image": image, "mask": image},
            {"sum": image},
        ),
        "maps": map_model(folder / "maps.onnx", image),
        "two outputs": save_model(
            folder / "outputs.onnx",
            [
                helper.make_node("Flatten", ["image"], ["features"]),
                helper.make_node("Identity", ["image"], ["maps"]),
            ],
            {"image": image},
            {"features": ["n", 192], "maps": image},
        ),
        "any size": flat_model(folder / "any.onnx", ["n", 3, "h", "w"]),
        "no channels": flat_model(folder / "open.onnx", ["n", "x", "y", "z"]),
        "four channels": flat_model(folder / "four.onnx", ["n", 4, 8, 8]),
    }


@pytest.mark.parametrize(
    ("model", "said", "code", "words"),
    [
        (
            "text",
            [],
            1,
            "expects text and not images: the input ids is tensor(int64) with 2 dimensions, "
            "but images need 4",
        ),
        ("two inputs", [], 1, "takes 2 inputs (image, mask), not one image"),
        (
            "maps",
            ["--pool", "none"],
            1,
            "the output maps is a map of 3 x 8 x 8 per image, not a vector; --pool mean averages it",
        ),
        (
            "two outputs",
            [],
            2,
            "has several outputs; choose with --extractor-output: features, maps",
        ),
        (
            "two outputs",
            ["--extractor-output", "x"],
            2,
            "has no output x; choose with --extractor-output: features, maps",
        ),
        ("any size", [], 2, "takes images of any size; choose one with --size, such as --size 224"),
        (
            "no channels",
            [],
            2,
            "the order of the input axes, n x x x y x z, is not clear; choose --layout nchw or nhwc",
        ),
        (
            "four channels",
            [],
            2,
            "the order of the input axes, n x 4 x 8 x 8, is not clear; choose --layout nchw or nhwc",
        ),
        (
            "four channels",
            ["--layout", "nchw"],
            2,
            "takes images with 4 channels, not rgb; change --channels",
        ),
    ],
)
def test_a_model_that_does_not_fit_gets_a_clear_answer(
    crnr: Runner, photos: Path, model: str, said: list[str], code: int, words: str
) -> None:
    path = _models(photos)[model]
    refused = crnr("build", "photos", "--extractor", path, "--extractor-preset", "raw", *said)
    assert (refused.exit, refused.out) == (code, "")
    assert refused.err == f"error: {path}: {words}\n"
    assert not Path("gallery.h5").exists()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (["--size", "9"], "--size: m.onnx only takes images of 8x8; leave the option out"),
        (
            ["--pool", "avg"],
            "--pool: the output features of m.onnx is already a vector of 192; leave the option out",
        ),
        (["--crop", "2"], "--crop must be from 0 to 1, not 2"),
        (["--mean", "1,2"], "--mean: '1,2' is neither a number nor three numbers separated by commas"),
        (["--std", "0"], "extractor: std must not be 0"),
        (["--filter", "x"], "--filter: 'x' is not one of nearest, box, "),
        (
            ["--extractor-preset", "x"],
            "--extractor-preset: 'x' is not one of efficientnet-lite, imagenet, imagenet-v2, dinov2, ",
        ),
        (["--color"], "--color and --gray do not apply to networks; use --channels"),
    ],
)
def test_settings_that_do_not_fit(crnr: Runner, photos: Path, said: list[str], words: str) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    refused = crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, *said)
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err.startswith(f"error: {words}")


def test_invalid_numbers_are_refused(crnr: Runner, photos: Path) -> None:
    refused = crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, "--mean", "1,two,3")
    assert (refused.exit, refused.out) == (2, "")
    assert refused.err == (
        "error: --mean: '1,two,3' is neither a number nor three numbers separated by commas "
        "(see `crnr build --help`)\n"
    )


def test_a_file_that_is_not_a_model(crnr: Runner, photos: Path) -> None:
    Path("m.onnx").write_text("hello")
    refused = crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET)
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: m.onnx: not an ONNX model; export ")
    Path("m.onnx").write_bytes(b"")
    refused = crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET)
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: m.onnx: onnxruntime cannot open this model (")
    missing = crnr("build", "photos", "--extractor", "x.onnx")
    assert (
        missing.err
        == "error: x.onnx: no such file; give the path of an ONNX model, or a name of `crnr model list`\n"
    )
    alone = crnr("build", "photos", "--crop", "1")
    assert alone.exit == 2
    assert "add --extractor NAME or MODEL.onnx" in alone.err


def test_photographs_without_an_extractor_end_with_a_hint(crnr: Runner, photos: Path, images: Path) -> None:
    hint = "note: if these are photographs, a network is far better than gradients ("
    assert hint in crnr("build", "photos").err
    assert hint not in crnr("build", "gallery").err
    assert (
        "note: if these are photographs, pixels work poorly"
        in crnr("build", "photos", "--extractor", "pixels").err
    )


def test_the_description_survives_the_gallery(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, "--crop", "0.7").exit == 0
    how = load_gallery(Path("gallery.h5")).recipe.extractor
    assert isinstance(how, Network)
    made = make_network(NetworkOptions(photos / "m.onnx", "imagenet", crop=0.7), 1)
    assert how == made
    with pytest.raises(ValueError, match="the description of the extractor is incomplete"):
        restore_extractor(Stored({"extractor": "{}"}))
    assert how.open(1).extract(np.empty((0, 192), np.uint8)).shape == (0, 192)
    # The model was loaded to choose the settings; another process has to load it itself.
    assert made.session is not None
    sent = pickle.loads(pickle.dumps(made))
    assert (sent, sent.session) == (made, None)


def test_tune_and_explain_use_it_too(crnr: Runner, photos: Path) -> None:
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    tuned = crnr(
        "tune", "photos", "--extractor", "m.onnx", *IMAGENET, "--folds", "2", "-o", "tuned.h5", "--json"
    )
    assert tuned.exit == 0, tuned.err
    about = load_gallery(Path("tuned.h5")).recipe
    assert isinstance(about.extractor, Network)
    explained = crnr("explain", "queries/a/1.png", "-g", "tuned.h5", "--json")
    assert explained.exit == 0, explained.err
    assert json.loads(explained.out)["truth"] == "a"


def test_the_network_reports_every_batch_that_it_has_read(crnr: Runner, photos: Path) -> None:
    """Answers come later, and several batches at once."""
    flat_model(photos / "m.onnx", ["n", 3, 8, 8])
    assert crnr("build", "photos", "--extractor", "m.onnx", *IMAGENET, "-q").exit == 0
    options = QueryOptions(batch_size=1)
    gallery = load_for_queries(options, Path("gallery.h5"))
    source = open_queries(["photos"], gallery, options)
    reported: list[tuple[str, int, int]] = []
    run = Run.prepare(gallery, source, options)
    list(run.answer(DecoderPool(), lambda *step: reported.append(step)))
    n = len(source)
    assert [report for report in reported if report[0] == "reading"] == [
        ("reading", i, n) for i in range(1, n + 1)
    ]
    assert reported[0] == ("classifying", 0, n)
    assert reported[-1] == ("classifying", n, n)


@pytest.mark.parametrize("from_row", [0, 9])
def test_an_output_without_numbers_is_refused(crnr: Runner, from_row: int) -> None:
    """No columns, or no rows either."""
    empty = helper.make_node("Slice", ["flat", "start", "stop", "axes"], ["features"])
    values = {"start": [from_row, 9999], "stop": [9, 9999], "axes": [0, 1]}
    constants = [
        helper.make_node("Constant", [], [name], value_ints=numbers) for name, numbers in values.items()
    ]
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]), *constants, empty]
    save_model(Path("m.onnx"), nodes, {"image": ["n", 3, 8, 8]}, {"features": ["n", "d"]})
    make_images(crnr.here / "gallery")
    outcome = crnr("build", "gallery", "--extractor", "m.onnx", *IMAGENET)
    assert (outcome.exit, outcome.out) == (1, "")
    assert (
        outcome.err
        == "error: m.onnx: the output features has no numbers; choose another one with --extractor-output\n"
    )
