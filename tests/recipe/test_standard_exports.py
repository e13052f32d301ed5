"""Exports with the names and shapes that their tools write are used without an option, or with a clear error.

The networks compute means, to which each output adds a number of its own, so that Pillow and NumPy tell what
they must return.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from crnr_cli.choices import NetworkOptions
from crnr_cli.errors import CrnrError
from crnr_cli.gallery.file import load_gallery
from crnr_cli.models.presets import PRESETS
from crnr_cli.recipe.base import Stored
from crnr_cli.recipe.network import Network
from crnr_cli.recipe.network_session import NetworkExplanation, explain_network
from crnr_cli.recipe.recipe import NEWEST_VERSION, restore_extractor
from helpers import onnx_models
from helpers.onnx_models import PIXEL_VALUES, Shape, flat_model
from helpers.photos import by_pillow, features, make_photos, opened_photos
from helpers.runner import Runner, rows
from helpers.templates import Templates

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def make_here(crnr: Runner) -> None:
    make_photos(crnr.here)


@pytest.fixture
def photos(tmp_path: Path, templates: Templates) -> Path:
    templates.copy(make_here, tmp_path)
    return tmp_path


PREPARED: dict[str, tuple[int, int | None, Image.Resampling, Any, Any]] = {
    "dinov2": (256, 224, Image.Resampling.BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    "dinov3": (224, None, Image.Resampling.BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    "clip": (224, 224, Image.Resampling.BICUBIC, CLIP_MEAN, CLIP_STD),
    "siglip": (224, None, Image.Resampling.BICUBIC, [0.5] * 3, [0.5] * 3),
    "vit": (224, None, Image.Resampling.BILINEAR, [0.5] * 3, [0.5] * 3),
    "mobileclip": (256, 256, Image.Resampling.BILINEAR, [0.0] * 3, [1.0] * 3),
    "imagenet": (256, 224, Image.Resampling.BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    "imagenet-v2": (232, 224, Image.Resampling.BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
}


@pytest.mark.parametrize("preset", PREPARED)
def test_the_presets_prepare_images_as_their_families_do(photos: Path, preset: str) -> None:
    model = flat_model(photos / "m.onnx", ["n", 3, "h", "w"])
    found = features(photos, model, preset=preset)
    wanted = [by_pillow(image, *PREPARED[preset]) for image in opened_photos(photos)]
    difference = np.abs(found - np.array(wanted).transpose(0, 3, 1, 2).reshape(len(found), -1))
    step = 1 / 255 / min(PREPARED[preset][4])  # of a grey level
    if PREPARED[preset][1] is None:  # the same operations
        assert difference.max() < 1e-5
    else:
        assert difference.max() < 4 * step
        assert difference.mean() < step


def test_the_filter_of_a_preset_is_the_one_that_was_tested() -> None:
    """On smooth images the filters agree."""
    for name, (_, _, filter, _, _) in PREPARED.items():
        assert PRESETS[name].filter == filter.name.lower()


# (the function that makes it, the path, what it adds to the mean, and what has to be assumed)
Case = tuple[Callable[[Path], Path], str, str, float, str]
CASES: dict[str, Case] = {
    "DINOv2 of optimum": (
        onnx_models.tokens_export,
        "dinov2-small/onnx/model.onnx",
        "dinov2",
        100,
        "by the name of the model's folder; assumed: size 224x224, pool cls; "
        "if this is wrong, set --extractor-preset, --size or --pool",
    ),
    "CLIP's vision part": (
        onnx_models.pooler_export,
        "clip-vit-base-patch32/onnx/vision_model.onnx",
        "clip",
        200,
        "by the name of the model's folder; assumed: size 224x224, output pooler_output; "
        "if this is wrong, set --extractor-preset, --size or --extractor-output",
    ),
    "CLIP with its projection": (
        onnx_models.embeds_export,
        "clip_vit_b32.onnx",
        "clip",
        300,
        "by the name of the model; assumed: size 224x224, output image_embeds; "
        "if this is wrong, set --extractor-preset, --size or --extractor-output",
    ),
    "SigLIP's vision part": (
        onnx_models.pooler_export,
        "siglip-base.onnx",
        "siglip",
        200,
        "by the name of the model; assumed: size 224x224, output pooler_output; "
        "if this is wrong, set --extractor-preset, --size or --extractor-output",
    ),
    "DINOv2 with a pooler": (
        onnx_models.pooler_export,
        "dinov2.onnx",
        "dinov2",
        100,
        "by the name of the model; assumed: size 224x224, output last_hidden_state, pool cls; "
        "if this is wrong, set --extractor-preset, --size, --extractor-output or --pool",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_export_of_a_known_family_needs_no_option(crnr: Runner, photos: Path, case: str) -> None:
    make, place, preset, plus, note = CASES[case]
    model = photos / place
    model.parent.mkdir(parents=True, exist_ok=True)
    make(model)
    built = crnr("build", "photos", "--extractor", place)
    assert (built.exit, built.out) == (0, "")
    told = [line for line in built.err.splitlines() if "prepared" in line]
    assert told == [f"note: images are prepared with the preset {preset}, a guess {note}"]
    found = features(photos, model)
    wanted = [by_pillow(image, *PREPARED[preset]).mean(axis=(0, 1)) + plus for image in opened_photos(photos)]
    np.testing.assert_allclose(found, wanted, atol=0.03)
    answered = crnr("classify", "photos")
    assert (answered.exit, answered.err) == (0, answered.err)
    assert [row["label"] for row in rows(answered.out)] == list("aabb")


def explained(model: Path, **said: Any) -> NetworkExplanation:
    return explain_network(NetworkOptions(model, **said), 1)


def error_of(model: Path, **said: Any) -> str:
    found = explained(model, **said)
    assert found.network is None
    assert isinstance(found.error, CrnrError)
    return str(found.error)


def test_the_mean_of_tokens_covers_all_of_them(photos: Path) -> None:
    """The class token is one of them, as in transformers' last_hidden_state.mean(1)."""
    model = onnx_models.tokens_export(photos / "m.onnx")
    found = features(photos, model, preset="raw", size=(8, 8), pool="mean")
    for values, image in zip(found, opened_photos(photos), strict=True):
        pixels = np.asarray(image.resize((8, 8), Image.Resampling.BILINEAR), np.float64)
        first = pixels.mean(axis=(0, 1)) + 100
        patches = pixels.reshape(2, 4, 2, 4, 3).mean(axis=(1, 3)).reshape(4, 3)
        np.testing.assert_allclose(values, np.concatenate([first[None], patches]).mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize(("with_pooler", "plus"), [(True, 200), (False, 0)])
def test_maps_become_their_mean(photos: Path, with_pooler: bool, plus: float) -> None:
    """ResNet and ConvNext: the pooler's maps of one pixel are vectors already."""
    model = onnx_models.maps_export(photos / "m.onnx", with_pooler=with_pooler)
    found = explained(model, preset="imagenet")
    output, pool = ("pooler_output", "none") if with_pooler else ("last_hidden_state", "mean")
    network = found.require_network()
    assert (network.output, network.pool, network.size, network.layout) == (output, pool, (224, 224), "nchw")
    assumed = "size 224x224, output pooler_output" if with_pooler else "size 224x224, pool mean"
    option = "--extractor-output" if with_pooler else "--pool"
    assert found.note == f"assumed about the network: {assumed}; if this is wrong, set --size or {option}"
    wanted = [
        by_pillow(image, *PREPARED["imagenet"]).mean(axis=(0, 1)) + plus for image in opened_photos(photos)
    ]
    np.testing.assert_allclose(features(photos, model, preset="imagenet"), wanted, atol=0.03)


def test_a_timm_export_declares_its_size(photos: Path) -> None:
    found = explained(onnx_models.timm_export(photos / "resnet50.onnx", 160), preset="imagenet-v2")
    assert found.require_network().size == (160, 160)
    assert found.note is None


@pytest.mark.parametrize(
    "shape", [[None, 32, 32, 3], ["unk__1", 32, 32, "unk__2"], ["n", "h", "w", "channels"]]
)
def test_a_network_of_tensorflow_has_its_channels_last(photos: Path, shape: Shape) -> None:
    model = onnx_models.tensorflow_export(photos / "m.onnx", shape)
    found = explained(model, preset="raw", size=(32, 32)).require_network()
    assert (found.layout, found.pool, found.size) == ("nhwc", "mean", (32, 32))
    wanted = [
        np.asarray(image.resize((32, 32), Image.Resampling.BILINEAR), np.float64).mean(axis=(0, 1))
        for image in opened_photos(photos)
    ]
    np.testing.assert_allclose(features(photos, model, preset="raw", size=(32, 32)), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        (PIXEL_VALUES, "nchw"),
        (["batch", "channels", "height", "width"], "nchw"),
        (["n", "c", "h", "w"], "nchw"),
        (["N", "C", "H", "W"], "nchw"),
        (["batch", None, "height", "width"], "nchw"),
        (["batch", "height", "width", None], "nhwc"),
        (["n", "h", "w", "c"], "nhwc"),
        ([None, None, 64, 64], "nchw"),
        ([None, 64, 64, None], "nhwc"),
        ([1, 3, "h", "w"], "nchw"),
        (["n", "h", "w", 3], "nhwc"),
    ],
)
def test_the_layout_is_recognised(tmp_path: Path, shape: Shape, layout: str) -> None:
    found = explained(flat_model(tmp_path / "m.onnx", shape), preset="raw", size=(64, 64))
    assert (found.require_network().layout, found.require_network().n_outputs, found.note) == (
        layout,
        64 * 64 * 3,
        None,
    )


def test_an_unnamed_input_has_the_layout_of_its_family(tmp_path: Path) -> None:
    unnamed: Shape = [None, None, None, None]
    model = flat_model(tmp_path / "m.onnx", unnamed)
    assert error_of(model, preset="raw", size=(8, 8)) == (
        f"{model}: the order of the input axes, ? x ? x ? x ?, is not clear; choose --layout nchw or nhwc"
    )
    found = explained(model, preset="siglip")
    assert (found.require_network().layout, found.require_network().size) == ("nchw", (224, 224))
    assert (
        found.note
        == "assumed about the network: layout nchw, size 224x224; if this is wrong, set --layout or --size"
    )
    # transformers calls its input so, and always has the channels first.
    exported = onnx_models.tokens_export(tmp_path / "t.onnx", unnamed)
    assert explained(exported, preset="raw", size=(8, 8), pool="cls").require_network().layout == "nchw"


def test_a_negative_dimension_is_not_fixed(tmp_path: Path) -> None:
    found = explained(flat_model(tmp_path / "m.onnx", [-1, 3, -1, -1]), preset="raw", size=(8, 8))
    assert found.require_network().n_outputs == 192


def test_unknown_settings_are_errors_that_name_the_option(crnr: Runner, photos: Path) -> None:
    onnx_models.timm_export(photos / "network.onnx", 32)
    unknown = crnr("build", "photos", "--extractor", "network.onnx")
    assert (unknown.exit, unknown.out) == (2, "")
    assert unknown.err == (
        "error: network.onnx: the preparation of images is not known; choose --extractor-preset: "
        "efficientnet-lite, imagenet, imagenet-v2, dinov2, dinov3, clip, siglip, vit, mobileclip, raw; or "
        "give --crop, --filter, --mean and --std\n"
    )
    some = crnr("build", "photos", "--extractor", "network.onnx", "--crop", "1", "--mean", "0", "--std", "1")
    assert some.err.endswith("; or give --filter\n")
    rest = ("--crop", "1", "--mean", "0", "--std", "1", "--filter", "box")
    assert crnr("build", "photos", "--extractor", "network.onnx", *rest).exit == 0
    assert not list(photos.glob("*.crnr-part"))


def test_tokens_of_an_unknown_family_need_an_option(photos: Path) -> None:
    model = onnx_models.tokens_export(photos / "m.onnx")
    assert error_of(model, preset="raw", size=(8, 8)) == (
        f"{model}: the output last_hidden_state is a map of 5 x 3 per image, not a vector; --pool mean "
        "takes the mean of all tokens, --pool cls the first one"
    )
    assert error_of(model, preset="siglip").endswith("--pool cls the first one")  # it has no class token
    assert explained(model, preset="raw", size=(8, 8), pool="cls").require_network().pool == "cls"


def test_pools_that_do_not_fit(photos: Path) -> None:
    vectors = onnx_models.timm_export(photos / "vectors.onnx", 8)
    for pool in ("mean", "avg", "cls"):
        assert error_of(vectors, preset="raw", pool=pool) == (
            f"--pool: the output output of {vectors} is already a vector of 3; leave the option out"
        )
    maps = onnx_models.maps_export(photos / "maps.onnx", with_pooler=False)
    assert error_of(maps, preset="raw", size=(8, 8), pool="cls") == (
        f"--pool cls: the output last_hidden_state of {maps} is a map of 3 x 2 x 2, without a class token; "
        "choose --pool mean"
    )


def test_an_export_that_takes_text_too_is_refused(crnr: Runner, photos: Path) -> None:
    onnx_models.whole_clip_export(photos / "model.onnx")
    refused = crnr("build", "photos", "--extractor", "model.onnx")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err == (
        "error: model.onnx: takes 3 inputs (input_ids, pixel_values, attention_mask), not one image; use "
        "the part for images, which exports name vision_model.onnx\n"
    )


@pytest.mark.parametrize(
    ("size", "crop"), [(224, 224 / 256), (240, 240 / 272), (260, 260 / 292), (300, 300 / 332), (8, 224 / 256)]
)
def test_the_crop_of_efficientnet_lite_follows_the_size_of_the_model(
    tmp_path: Path, size: int, crop: float
) -> None:
    model = onnx_models.timm_export(tmp_path / "efficientnet-lite.onnx", size)
    network = explained(model).require_network()
    assert (network.crop, network.filter, network.mean, network.std) == (crop, "bicubic", (127.0,), (128.0,))
    assert network.describe().endswith("preset efficientnet-lite")
    anywhere = flat_model(tmp_path / "any-efficientnet-lite.onnx", ["n", 3, "h", "w"])
    assert (
        explained(anywhere, size=(size, size)).require_network().crop == 224 / 256
    )  # the model fixes no size


def test_the_crop_of_dinov2_follows_the_size_of_the_model(tmp_path: Path) -> None:
    for size, crop in ((518, 1.0), (224, 224 / 256)):
        model = onnx_models.timm_export(tmp_path / f"vit_small_patch14_dinov2_{size}.onnx", size)
        network = explained(model).require_network()
        assert (network.crop, network.filter) == (crop, "bicubic")
        assert network.describe().endswith("preset dinov2")


def test_the_old_name_of_mean_is_kept_in_galleries(crnr: Runner, photos: Path) -> None:
    """So that older versions can read them; those with a class token must be refused there."""
    onnx_models.maps_export(photos / "maps.onnx", with_pooler=False)
    options = ("--extractor", "maps.onnx", "--extractor-preset", "raw", "--size", "8", "-q")
    written = []
    for name in ("avg", "mean"):
        assert crnr("build", "photos", *options, "--pool", name).exit == 0
        written.append(Path("gallery.h5").read_bytes())
    assert written[0] == written[1]
    gallery = load_gallery(Path("gallery.h5"))
    stored = gallery.recipe.to_stored()
    assert json.loads(stored.attributes["extractor"])["pool"] == "avg"
    extractor = restore_extractor(Stored(stored.attributes))
    assert isinstance(extractor, Network)
    older = replace(extractor, precise_jpegs=False)
    assert (extractor.version_needed, older.version_needed, NEWEST_VERSION) == (5, 1, 5)
    assert extractor.pool == "mean"


def test_a_gallery_of_class_tokens_has_a_newer_format(crnr: Runner, photos: Path) -> None:
    onnx_models.tokens_export(photos / "dinov2.onnx")
    assert crnr("build", "photos", "--extractor", "dinov2.onnx", "-q").exit == 0
    network = load_gallery(Path("gallery.h5")).recipe.extractor
    assert isinstance(network, Network)
    assert replace(network, precise_jpegs=False).version_needed == 3
    assert (network.pool, network.output) == ("cls", "last_hidden_state")
    assert crnr("classify", "photos", "-q").exit == 0


def test_the_explanation_has_every_decision_and_its_reason(tmp_path: Path) -> None:
    model = onnx_models.embeds_export(tmp_path / "clip.onnx")
    found = explained(model)
    assert found.error is None
    assert [one.name for one in found.inputs] == ["pixel_values"]
    assert found.inputs[0].shape == tuple(PIXEL_VALUES)
    assert [one.name for one in found.outputs] == ["last_hidden_state", "pooler_output", "image_embeds"]
    assert list(found.settings) == [
        *(
            "input",
            "preparation",
            "layout",
            "channels",
            "size",
            "crop",
            "filter",
            "mean",
            "std",
            "output",
            "pool",
        )
    ]
    said = {name: (one.value, one.why) for name, one in found.settings.items()}
    assert said["preparation"] == ("clip", "by the name of the model")
    assert said["layout"] == ("nchw", "by the names of the input's dimensions")
    assert said["size"] == ((224, 224), "the size of the preset")
    assert said["output"] == ("image_embeds", "preferred to the others")
    assert said["pool"] == ("none", "because the output is a vector")


def test_an_error_keeps_the_decisions_before_it(tmp_path: Path) -> None:
    found = explained(onnx_models.timm_export(tmp_path / "x.onnx", 32))
    assert ([one.name for one in found.inputs], list(found.settings)) == (["input"], ["input"])
    assert str(found.error).startswith(f"{tmp_path}/x.onnx: the preparation of images is not known")
    missing = explained(tmp_path / "nosuch.onnx")
    assert (missing.inputs, missing.network) == ([], None)
    with pytest.raises(CrnrError, match="no such file"):
        missing.require_network()


def test_a_network_that_takes_bytes_needs_no_mean_and_std(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["image"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["floats"], ["features"]),
    ]
    shapes: tuple[dict[str, Shape], dict[str, Shape]] = (
        {"image": ["n", 8, 8, 3]},
        {"features": ["n", 192]},
    )
    model = onnx_models.save_model(tmp_path / "m.onnx", nodes, *shapes, kind=TensorProto.UINT8)
    assert error_of(model).endswith("; or give --crop and --filter")
    found = explained(model, crop=0.5, filter="box")
    assert (found.require_network().mean, found.require_network().std, found.note) == ((0.0,), (1.0,), None)
    assert found.settings["mean"].why == "because the model takes bytes, and scales them itself"


def test_a_grey_network_gets_the_mean_over_the_channels_of_a_preset(tmp_path: Path) -> None:
    network = explained(flat_model(tmp_path / "clip.onnx", ["n", 1, 8, 8])).require_network()
    assert (network.channels, network.bands) == ("grey", 1)
    np.testing.assert_allclose(network.mean, [255 * np.mean(CLIP_MEAN)])
    np.testing.assert_allclose(network.std, [255 * np.mean(CLIP_STD)])
