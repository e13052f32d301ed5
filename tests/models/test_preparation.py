"""The files that say how images are prepared, as Hugging Face, timm and open_clip write them.

The input of the network is compared with the definitions of those libraries, in Pillow and NumPy alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crnr_cli.choices import NetworkOptions
from crnr_cli.errors import DataError
from crnr_cli.models.hugging_face import read_image_processor
from crnr_cli.models.preprocessing import find_preparation, read_open_clip, read_timm
from crnr_cli.recipe.network_session import explain_network
from helpers.onnx_models import flat_model, tokens_export
from helpers.photos import by_pillow, features, make_photos, opened_photos
from helpers.runner import Runner

BICUBIC, BILINEAR, NEAREST = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.NEAREST
HALF = [0.5, 0.5, 0.5]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NORMAL = {"do_normalize": True, "image_mean": IMAGENET_MEAN, "image_std": IMAGENET_STD}
SQUARE = {"height": 32, "width": 32}

# The file, and by definition: the size of the shorter side and of what is cut out of it, or the only size;
# the filter, and mean and std for pixels from 0 to 1. All margins are even: with an odd one, transformers
# cuts half a pixel beside the centre.
Definition = tuple[int, int | None, Image.Resampling, Any, Any]
VARIANTS: dict[str, tuple[dict[str, Any], Definition]] = {
    "CLIP, early": (
        {
            **{"feature_extractor_type": "CLIPFeatureExtractor", "size": 40, "crop_size": 32, "resample": 3},
            **{"do_resize": True, "do_center_crop": True, "do_normalize": True},
            **{"image_mean": CLIP_MEAN, "image_std": CLIP_STD},
        },
        (40, 32, BICUBIC, CLIP_MEAN, CLIP_STD),
    ),
    "CLIP, with what is not said": (
        {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 36}, "crop_size": SQUARE},
        (36, 32, BICUBIC, CLIP_MEAN, CLIP_STD),
    ),
    "DINOv2": (
        {
            **{"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 40}, "resample": 3},
            **{"crop_size": SQUARE, "do_center_crop": True, "do_convert_rgb": True, "do_resize": True},
            **{"do_rescale": True, "rescale_factor": 0.00392156862745098, **NORMAL},
        },
        (40, 32, BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "ViT, early": (
        {"feature_extractor_type": "ViTFeatureExtractor", "size": 32, "do_resize": True, "resample": 2},
        (32, None, BILINEAR, HALF, HALF),
    ),
    "ViT, fast": (
        {
            **{"image_processor_type": "ViTImageProcessorFast", "size": SQUARE, "resample": 2},
            **{"crop_size": None, "do_center_crop": None, "do_convert_rgb": None, "default_to_square": True},
            **{"image_mean": HALF, "image_std": HALF, "data_format": "channels_first"},
        },
        (32, None, BILINEAR, HALF, HALF),
    ),
    "SigLIP": (
        {
            **{"image_processor_type": "SiglipImageProcessor", "size": SQUARE, "resample": 3},
            **{"do_convert_rgb": None, "image_mean": HALF, "image_std": HALF},
        },
        (32, None, BICUBIC, HALF, HALF),
    ),
    "no rescaling": (
        {
            **{"image_processor_type": "ViTImageProcessor", "size": SQUARE, "do_rescale": False},
            **{"image_mean": [127.5] * 3, "image_std": [127.5] * 3},
        },
        (32, None, BILINEAR, HALF, HALF),
    ),
    "no normalization": (
        {"image_processor_type": "SiglipImageProcessor", "size": SQUARE, "do_normalize": False},
        (32, None, BICUBIC, [0.0] * 3, [1.0] * 3),
    ),
    "from -1 to 1 by an offset": (
        {
            **{"image_processor_type": "EfficientNetImageProcessor", "size": SQUARE, "resample": 0},
            **{"rescale_factor": 1 / 127.5, "rescale_offset": True, "do_normalize": False},
            **{"include_top": False, "do_center_crop": False},
        },
        (32, None, NEAREST, HALF, HALF),
    ),
    "EfficientNet, divided twice": (
        {
            **{"image_processor_type": "EfficientNetImageProcessor", "size": SQUARE, "resample": 2},
            **{"rescale_offset": False, "include_top": True, **NORMAL},
        },
        (32, None, BILINEAR, IMAGENET_MEAN, np.square(IMAGENET_STD)),
    ),
    "ConvNext": (
        {
            **{"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 32}, **NORMAL},
            **{"crop_pct": 0.875, "resample": 3},
        },
        (36, 32, BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "ConvNext, early": (
        {"feature_extractor_type": "ConvNextFeatureExtractor", "size": 32, "crop_pct": 0.8, **NORMAL},
        (40, 32, BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "ConvNext of 384 pixels, never cropped": (
        {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, **NORMAL},
        (384, None, BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "PoolFormer": (
        {
            "image_processor_type": "PoolFormerImageProcessor",
            "size": {"shortest_edge": 36},
            "crop_size": 36,
        },
        (40, 36, BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "MobileNetV2": (
        {"image_processor_type": "MobileNetV2ImageProcessor", "size": {"shortest_edge": 40}, "crop_size": 32},
        (40, 32, BILINEAR, HALF, HALF),
    ),
    "cut out and squeezed to the same size": (
        {
            **{"image_processor_type": "BeitImageProcessor", "size": SQUARE, "crop_size": SQUARE},
            **{"do_center_crop": True, **NORMAL, "resample": 2},
        },
        (32, None, BILINEAR, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "one that is not known, but says everything": (
        {
            **{"image_processor_type": "NewImageProcessor", "size": SQUARE, "resample": 3, **NORMAL},
            **{"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_center_crop": False},
        },
        (32, None, BICUBIC, IMAGENET_MEAN, IMAGENET_STD),
    ),
    "one mean for all channels": (
        {"image_processor_type": "ViTImageProcessor", "size": SQUARE, "image_mean": 0.4, "image_std": 0.25},
        (32, None, BILINEAR, [0.4] * 3, [0.25] * 3),
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("nested", [False, True], ids=["preprocessor_config", "processor_config"])
def test_networks_get_images_as_hugging_face_defines(tmp_path: Path, variant: str, nested: bool) -> None:
    config, definition = VARIANTS[variant]
    make_photos(tmp_path)
    if nested:
        write(tmp_path / "processor_config.json", {"image_processor": config, "processor_class": "X"})
    else:
        write(tmp_path / "preprocessor_config.json", config)
    found = features(tmp_path, flat_model(tmp_path / "m.onnx", ["n", 3, "height", "width"]))
    compare(found, tmp_path, definition)
    assert (
        explain_network(NetworkOptions(tmp_path / "m.onnx"), 1).require_network().filter
        == definition[2].name.lower()
    )


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def compare(found: Any, folder: Path, definition: Definition) -> None:
    wanted = np.array([by_pillow(image, *definition) for image in opened_photos(folder)])
    difference = np.abs(found - wanted.transpose(0, 3, 1, 2).reshape(len(wanted), -1))
    if definition[1] is None:  # the same operations
        np.testing.assert_allclose(difference, 0, atol=2e-5)
    else:  # the box is cut out in whole pixels of the image, before it is resized
        level = 1 / 255 / min(definition[4])
        assert difference.mean() < level / 2
        assert difference.max() < 4 * level


TIMM = {
    **{"input_size": [3, 32, 32], "crop_pct": 0.8, "crop_mode": "center", "interpolation": "bicubic"},
    **{"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
}


@pytest.mark.parametrize(
    ("changed", "definition"),
    [
        ({}, (40, 32, BICUBIC, IMAGENET_MEAN, IMAGENET_STD)),
        ({"crop_pct": 1.0, "crop_mode": "squash"}, (32, None, BICUBIC, IMAGENET_MEAN, IMAGENET_STD)),
        ({"crop_pct": 1.0, "interpolation": "bilinear"}, (32, 32, BILINEAR, IMAGENET_MEAN, IMAGENET_STD)),
        ({"mean": HALF, "std": HALF}, (40, 32, BICUBIC, HALF, HALF)),
    ],
)
def test_networks_get_images_as_timm_defines(
    tmp_path: Path, changed: dict[str, Any], definition: Definition
) -> None:
    make_photos(tmp_path)
    content = {"architecture": "resnet50", "num_features": 2048, "pretrained_cfg": TIMM | changed}
    write(tmp_path / "config.json", content)
    compare(features(tmp_path, flat_model(tmp_path / "m.onnx", ["n", 3, "h", "w"])), tmp_path, definition)


@pytest.mark.parametrize(
    ("config", "definition"),
    [
        ({"resize_mode": "shortest"}, (32, 32, BICUBIC, CLIP_MEAN, CLIP_STD)),
        (
            {"mean": HALF, "std": HALF, "interpolation": "bilinear", "resize_mode": "squash"},
            (32, None, BILINEAR, HALF, HALF),
        ),
    ],
)
def test_networks_get_images_as_open_clip_defines(
    tmp_path: Path, config: dict[str, Any], definition: Definition
) -> None:
    make_photos(tmp_path)
    content = {"model_cfg": {"vision_cfg": {"image_size": 32}}, "preprocess_cfg": config}
    write(tmp_path / "open_clip_config.json", content)
    compare(features(tmp_path, flat_model(tmp_path / "m.onnx", ["n", 3, "h", "w"])), tmp_path, definition)


def test_channels_may_be_flipped(tmp_path: Path) -> None:
    """MobileViT takes blue first, and pixels from 0 to 1."""
    make_photos(tmp_path)
    kind = {"image_processor_type": "MobileViTImageProcessor", "size": {"shortest_edge": 40}, "crop_size": 32}
    write(tmp_path / "preprocessor_config.json", kind)
    model = flat_model(tmp_path / "m.onnx", ["n", 3, "h", "w"])
    network = explain_network(NetworkOptions(model), 1).require_network()
    assert (network.channels, network.crop) == ("bgr", 32 / 40)
    found = features(tmp_path, model).reshape(-1, 3, 32 * 32)[:, ::-1].reshape(4, -1)
    compare(found, tmp_path, (40, 32, BILINEAR, [0.0] * 3, [1.0] * 3))


def test_the_file_may_be_above_the_folder_onnx(crnr: Runner) -> None:
    make_photos(crnr.here)
    (crnr.here / "repo" / "onnx").mkdir(parents=True)
    flat_model(crnr.here / "repo" / "onnx" / "model.onnx", ["n", 3, 32, 32])
    write(crnr.here / "repo" / "preprocessor_config.json", VARIANTS["SigLIP"][0])
    built = crnr("build", "photos", "--extractor", "repo/onnx/model.onnx")
    assert (built.exit, built.out) == (0, "")
    assert built.err.count("prepared") == 1
    assert (
        "note: images are prepared according to repo/preprocessor_config.json; if the network expects "
        "another preparation, set --extractor-preset\n"
    ) in built.err
    assert "own preprocessing" not in crnr("info").out
    # The file next to the model takes precedence; only this folder may have one above it.
    write(crnr.here / "repo" / "onnx" / "preprocessor_config.json", VARIANTS["ViT, fast"][0])
    beside = find_preparation(Path("repo/onnx/model.onnx"))
    assert beside is not None
    assert beside.path == Path("repo/onnx/preprocessor_config.json")
    (crnr.here / "repo" / "other").mkdir()
    assert find_preparation(Path("repo/other/model.onnx")) is None


def test_options_precede_presets_files_and_names(tmp_path: Path) -> None:
    """Options, then a preset that is named, then the file, then what the name tells."""
    model = tokens_export(tmp_path / "dinov2.onnx")

    def settled(**said: Any) -> tuple[Any, ...]:
        network = explain_network(NetworkOptions(model, **said), 1).require_network()
        return network.size, network.filter, network.crop, round(network.mean[0], 3), network.pool

    assert settled() == ((224, 224), "bicubic", 0.875, 123.675, "cls")
    write(tmp_path / "preprocessor_config.json", VARIANTS["ViT, fast"][0])
    assert settled() == ((32, 32), "bilinear", 0.0, 127.5, "cls")
    assert settled(preset="clip") == ((224, 224), "bicubic", 1.0, 122.771, "cls")
    assert settled(preset="clip", size=(64, 64), filter="box", crop=0.5, mean=(1.0,), pool="mean") == (
        *((64, 64), "box", 0.5, 1.0, "mean"),
    )
    assert settled(filter="box", mean=(1.0,)) == ((32, 32), "box", 0.0, 1.0, "cls")


def test_the_note_names_the_file_once(tmp_path: Path) -> None:
    path = write(tmp_path / "preprocessor_config.json", VARIANTS["ViT, fast"][0])
    model = tokens_export(tmp_path / "dinov2.onnx")
    assert explain_network(NetworkOptions(model), 1).note == (
        f"images are prepared according to {path}; assumed: pool cls; if this is wrong, set "
        "--extractor-preset or --pool"
    )
    all_but_size: Any = {"crop": 1, "filter": "box", "mean": (0.0,), "std": (1.0,), "pool": "cls"}
    found = explain_network(NetworkOptions(model, **all_but_size), 1)
    assert found.settings["size"] == ((32, 32), f"according to {path}", True)
    assert found.note == "assumed about the network: size 32x32; if this is wrong, set --size"


def test_the_size_that_the_model_takes_counts_more_than_the_file(tmp_path: Path) -> None:
    write(tmp_path / "preprocessor_config.json", VARIANTS["DINOv2"][0])
    found = explain_network(NetworkOptions(flat_model(tmp_path / "m.onnx", ["n", 3, 48, 48])), 1)
    assert (found.require_network().size, found.require_network().crop) == ((48, 48), 32 / 40)
    assert found.note == (
        f"images are prepared according to {tmp_path}/preprocessor_config.json; if the network expects "
        "another preparation, set --extractor-preset"
    )


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "patches": (
        {"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 256, "do_resize": True},
        "with max_num_patches, images keep their own shapes, but crnr needs the same size for all",
        "--size",
    ),
    "padding": (
        {"image_processor_type": "ViTImageProcessor", "do_pad": True},
        "the file requires 'do_pad', which crnr cannot do",
        "--size",
    ),
    "LeViT": (
        {"image_processor_type": "LevitImageProcessor"},
        "crnr cannot prepare images as the image processor Levit does",
        "--size",
    ),
    "longest edge": (
        {"image_processor_type": "ViTImageProcessor", "size": {"longest_edge": 32}},
        "size is given by 'longest_edge'",
        "--size",
    ),
    "no size": ({"image_processor_type": "X"}, "size is missing", "--size"),
    "not resized": (
        {"image_processor_type": "CLIPImageProcessor", "do_resize": False},
        "images are not resized, but crnr needs the same size for all",
        "--size",
    ),
    "any shape": (
        {"image_processor_type": "CLIPImageProcessor", "do_center_crop": False},
        "the shorter side becomes 224 pixels long, and nothing is cut off",
        "--crop",
    ),
    "squeezed, then cut": (
        {"image_processor_type": "DeiTImageProcessor"},
        "images are squeezed to 256x256 and then cut to 224x224, which crnr cannot do",
        "--crop",
    ),
    "black around it": (
        {"image_processor_type": "MobileViTImageProcessor"},
        "256x256 is cut out of 224 pixels, with black around them, which crnr cannot do",
        "--crop",
    ),
    "not a square": (
        {"image_processor_type": "CLIPImageProcessor", "crop_size": {"height": 20, "width": 30}},
        "images are cut to 30x20, not to a square, which crnr cannot do",
        "--crop",
    ),
    "no filter": (
        {"image_processor_type": "X", "size": SQUARE, **NORMAL},
        "resample is missing",
        "--filter",
    ),
    "another filter": (
        {"image_processor_type": "ViTImageProcessor", "resample": 6},
        "resample is 6, not a number of a filter",
        "--filter",
    ),
    "no mean": (
        {"image_processor_type": "X", "size": SQUARE, "resample": 2},
        "image_mean is missing",
        "--mean",
    ),
    "two means": (
        {"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5]},
        "image_mean is [0.5, 0.5], not one number or three",
        "--mean",
    ),
    "no spread": (
        {"image_processor_type": "ViTImageProcessor", "image_std": 0},
        "the preparation divides by 0",
        "--mean",
    ),
    "another word": (
        {"image_processor_type": "EfficientNetImageProcessor", "include_top": 1},
        "'include_top' is 1, neither true nor false",
        "--size",
    ),
    "a word": (
        {"image_processor_type": "ViTImageProcessor", "do_resize": "yes"},
        "'do_resize' is 'yes', neither true nor false",
        "--size",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsupported_preparations_name_the_file_and_the_option(crnr: Runner, case: str) -> None:
    config, words, option = REFUSED[case]
    make_photos(crnr.here)
    write(crnr.here / "preprocessor_config.json", config)
    flat_model(crnr.here / "m.onnx", ["n", 3, "height", "width"])
    build = ("build", "photos", "--extractor", "m.onnx")
    refused = crnr(*build)
    assert (refused.exit, refused.out) == (1, "")
    name = "--crop" if option == "--size" else option  # the first that is missing
    assert refused.err == (
        f"error: preprocessor_config.json: {words}; choose {name}, or --extractor-preset, which overrides "
        "this file\n"
    )
    scale = ("--crop", "1", "--filter", "box", "--mean", "0", "--std", "1")
    chosen = crnr(*build, *scale)
    if option == "--size":
        assert (chosen.exit, chosen.out) == (1, "")
        assert chosen.err == (
            f"error: preprocessor_config.json: {words}; choose the size of images with --size\n"
        )
        chosen = crnr(*build, *scale, "--size", "32")
    assert chosen.exit == 0, chosen.err
    assert crnr(*build, "--extractor-preset", "clip").exit == 0


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "not readable JSON (Expecting property name"),
        (b'{"size": NaN}', "not readable JSON (NaN is not a number)"),
        (b'{"size": -Infinity}', "not readable JSON (-Infinity is not a number)"),
        (b"[" * 200_000, "not readable JSON (too many brackets)"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe\xfa", "not readable JSON ("),
        (b'{"size": ' + b"9" * 10_000 + b"}", "not readable JSON (Exceeds the limit"),
        (b" " * (2**20 + 1), "larger than any such file (1048577 bytes)"),
    ],
    ids=["open", "NaN", "infinite", "nested", "list", "binary", "digits", "large"],  # contents are too long
)
def test_unreadable_config_files_are_refused(crnr: Runner, content: bytes, why: str) -> None:
    make_photos(crnr.here)
    (crnr.here / "preprocessor_config.json").write_bytes(content)
    flat_model(crnr.here / "m.onnx", ["n", 3, 32, 32])
    refused = crnr("build", "photos", "--extractor", "m.onnx")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith(f"error: preprocessor_config.json: {why}")
    assert refused.err.endswith(
        "; restore or remove this file, or choose --extractor-preset, which overrides it\n"
    )
    assert refused.err.count("\n") == 1
    assert crnr("build", "photos", "--extractor", "m.onnx", "--extractor-preset", "raw").exit == 0


def test_a_folder_as_config_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").mkdir()
    with pytest.raises(DataError, match="not a regular file"):
        find_preparation(tmp_path / "m.onnx")


def test_an_output_does_not_replace_the_file(crnr: Runner) -> None:
    make_photos(crnr.here)
    write(crnr.here / "preprocessor_config.json", VARIANTS["ViT, fast"][0])
    before = (crnr.here / "preprocessor_config.json").read_bytes()
    flat_model(crnr.here / "m.onnx", ["n", 3, 32, 32])
    refused = crnr("audit", "photos", "--extractor", "m.onnx", "--csv", "preprocessor_config.json")
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.endswith("preprocessor_config.json: is an input of this run; write to another file\n")
    assert (crnr.here / "preprocessor_config.json").read_bytes() == before


def test_files_about_something_else_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("// settings of another program\n{}")
    assert find_preparation(tmp_path / "m.onnx") is None
    write(tmp_path / "processor_config.json", {"processor_class": "CLIPProcessor", "feature_extractor": {}})
    write(tmp_path / "open_clip_config.json", {"model_cfg": {}})
    write(tmp_path / "config.json", {"model_type": "swin"})
    assert find_preparation(tmp_path / "m.onnx") is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["height", "width", "shortest_edge", "longest_edge"]), inner, max_size=3
        )
    ),
    max_leaves=4,
)
HUGGING_FACE = st.fixed_dictionaries(
    {
        "image_processor_type": st.sampled_from(
            [
                f"{kind}ImageProcessor"
                for kind in ("ViT", "CLIP", "ConvNext", "PoolFormer", "EfficientNet", "X")
            ]
        )
        | ANYTHING
    },
    optional=dict.fromkeys(
        (
            *(
                "size",
                "crop_size",
                "crop_pct",
                "resample",
                "image_mean",
                "image_std",
                "rescale_factor",
                "offset",
            ),
            *("default_to_square", "include_top", "image_processor", "do_pad", "max_num_patches"),
        ),
        ANYTHING,
    )
    | {
        name: st.booleans() | ANYTHING
        for name in ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "rescale_offset")
    },
)
SETTINGS = {"size", "crop", "filter", "mean", "std"}


def check(found: Any) -> None:
    """Every setting is valid, or has a fault; never both."""
    assert found.settings.keys() & found.faults.keys() == set()
    assert "" in found.faults or found.settings.keys() | found.faults.keys() >= SETTINGS
    settings = found.settings
    if "size" in settings:
        assert all(isinstance(side, int) and 1 <= side <= 4096 for side in settings["size"])
    if "crop" in settings:
        assert 0 <= settings["crop"] <= 1
    for name in {"mean", "std"} & settings.keys():
        assert len(settings[name]) in (1, 3)
        assert all(math.isfinite(value) for value in settings[name])
        assert name == "mean" or 0 not in settings[name]
    assert all(
        isinstance(fault, str) and "\n" not in fault and len(fault) < 300 for fault in found.faults.values()
    )


@given(HUGGING_FACE)
def test_any_hugging_face_config_is_used_or_refused(content: dict[str, Any]) -> None:
    check(read_image_processor(content))


@given(
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys((*TIMM, "size", "resize_mode"), ANYTHING),
    ),
    ANYTHING,
)
def test_any_timm_or_open_clip_config_is_used_or_refused(config: dict[str, Any], other: Any) -> None:
    found = read_timm({"pretrained_cfg": config})
    assert found is not None
    check(found)
    found = read_open_clip({"preprocess_cfg": config, "model_cfg": {"vision_cfg": {"image_size": other}}})
    assert found is not None
    check(found)


@given(st.integers(8, 400), st.integers(8, 400), st.floats(0.01, 1), st.floats(-3, 3), st.floats(0.01, 3))
def test_mean_and_std_match_the_definition(
    edge: int, crop: int, factor: float, mean: float, std: float
) -> None:
    content = {
        **{"image_processor_type": "CLIPImageProcessor", "size": edge, "crop_size": crop},
        **{"rescale_factor": factor, "image_mean": mean, "image_std": std},
    }
    found = read_image_processor(content)
    pixels = np.array([0.0, 1.0, 100.0, 255.0])
    ours = (pixels - found.settings["mean"][0]) / found.settings["std"][0]
    np.testing.assert_allclose(ours, (pixels * factor - mean) / std, rtol=1e-9, atol=1e-9)
    if crop <= edge:
        assert found.settings["crop"] == pytest.approx(crop / edge)
    else:
        assert "black around" in found.faults["crop"]
