"""EfficientNet-Lite and MobileNetV2 made of weights: the published networks, plainly in NumPy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from crnr_cli.choices import NetworkOptions
from crnr_cli.jobs.model import get_model
from crnr_cli.models.catalog import MODELS
from crnr_cli.models.mobile_networks import make_model
from crnr_cli.recipe.network_session import make_network
from helpers.lite import DEEPER, HEAD, LITE0, MOBILENET_BLOCKS, State, tiny_mobilenet, tiny_state
from helpers.paths import ROOT

SHARED = ROOT.parent / "shared" / "data"
FLOWERS = sorted((SHARED / "flowers12").glob("*/*/*.jpg"))


def same_padding(side: int, width: int, stride: int) -> tuple[int, int]:
    """Return the padding as in TensorFlow's documentation of padding="SAME"."""
    total = max(width - stride, 0) if side % stride == 0 else max(width - side % stride, 0)
    return total // 2, total - total // 2


def convolved(
    values: Any, state: State, names: tuple[str, str], stride: int, around: Any, **norm: Any
) -> Any:
    """Return a convolution with batch normalization; a kernel with one input belongs to one channel."""
    kernel = state[f"{names[0]}.weight"].astype(np.float64)
    width = kernel.shape[-1]
    padded = np.pad(values, ((0, 0), around, around))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (width, width), axis=(1, 2))
    windows = windows[:, ::stride, ::stride]
    if kernel.shape[1] == 1:
        result = np.einsum("chwij,cij->chw", windows, kernel[:, 0])
    else:
        result = np.einsum("chwij,ocij->ohw", windows, kernel)
    weight, bias, mean, variance = (
        state[f"{names[1]}.{of}"].astype(np.float64)[:, None, None]
        for of in ("weight", "bias", "running_mean", "running_var")
    )
    return (result - mean) / np.sqrt(variance + norm["epsilon"]) * weight + bias


def plain_features(state: State, image: Any, stages: Any = LITE0) -> Any:
    """Return the features of EfficientNet-Lite for one image, (3, height, width), in double precision."""

    def layer(values: Any, name: str, norm: str, stride: int = 1) -> Any:
        around = same_padding(values.shape[1], state[f"{name}.weight"].shape[-1], stride)
        return convolved(values, state, (name, norm), stride, around, epsilon=0.001)

    def relu6(values: Any) -> Any:
        clipped.append(float((values > 6).mean()))
        return np.minimum(np.maximum(values, 0), 6)

    clipped: list[float] = []
    values = relu6(layer(image.astype(np.float64), "_conv_stem", "_bn0", 2))
    number = 0
    for stage, (count, _, stride) in enumerate(stages):
        for repeat in range(count):
            at, before = f"_blocks.{number}.", values
            if stage > 0:
                values = relu6(layer(values, f"{at}_expand_conv", f"{at}_bn0"))
            step = stride if repeat == 0 else 1
            values = relu6(layer(values, f"{at}_depthwise_conv", f"{at}_bn1", step))
            values = layer(values, f"{at}_project_conv", f"{at}_bn2")
            if step == 1 and values.shape == before.shape:
                values = values + before
            number += 1
    values = relu6(layer(values, "_conv_head", "_bn1"))
    assert max(clipped) > 0.001  # otherwise nothing would be tested of it
    return values.mean(axis=(1, 2))


def plain_mobilenet(state: State, image: Any) -> Any:
    """Return the features of MobileNetV2 for one image, layer by layer as torchvision has them."""

    def layer(values: Any, name: str, norm: str, stride: int = 1) -> Any:
        zeros = (state[f"{name}.weight"].shape[-1] - 1) // 2
        return convolved(values, state, (name, norm), stride, (zeros, zeros), epsilon=1e-5)

    def relu6(values: Any) -> Any:
        clipped.append(float((values > 6).mean()))
        return np.minimum(np.maximum(values, 0), 6)

    clipped: list[float] = []
    values = relu6(layer(image.astype(np.float64), "features.0.0", "features.0.1", 2))
    for at, (stride, expands, adds) in enumerate(MOBILENET_BLOCKS, 1):
        name, before = f"features.{at}.conv", values
        if expands:
            values = relu6(layer(values, f"{name}.0.0", f"{name}.0.1"))
        inner = int(expands)
        values = relu6(layer(values, f"{name}.{inner}.0", f"{name}.{inner}.1", stride))
        values = layer(values, f"{name}.{inner + 1}", f"{name}.{inner + 2}")
        if adds:
            values = values + before
    values = relu6(layer(values, "features.18.0", "features.18.1"))
    assert max(clipped) > 0.001
    return values.mean(axis=(1, 2))


def run(content: bytes, images: Any) -> Any:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["features"], {"image": images})[0]


@pytest.mark.parametrize(
    ("size", "depth", "stages"), [(64, 1.0, LITE0), (65, 1.0, LITE0), (66, 1.1, DEEPER), (33, 1.2, DEEPER)]
)
def test_efficientnet_lite_features_match_the_published_network(size: int, depth: float, stages: Any) -> None:
    """65 pixels become 33, 17, 9, 5 and 3, so that zeros are added on both sides; 64 need them on one."""
    state = tiny_state(stages)
    images = np.random.default_rng(1).normal(size=(3, 3, size, size)).astype(np.float32)
    found = run(make_model(state, size, depth), images)
    expected = np.array([plain_features(state, image, stages) for image in images])
    assert (expected.std(axis=0) > 0.002).sum() > HEAD / 2  # the others may be 0 or 6 for all images
    np.testing.assert_allclose(found, expected, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize("size", [64, 65])
def test_mobilenet_features_match_the_published_network(size: int) -> None:
    """Both sides get zeros, for even and odd sides; TensorFlow would add them to one side of even ones."""
    state = tiny_mobilenet()
    images = np.random.default_rng(1).normal(size=(3, 3, size, size)).astype(np.float32)
    found = run(make_model(state, size, None), images)
    expected = np.array([plain_mobilenet(state, image) for image in images])
    assert (expected.std(axis=0) > 0.002).sum() > HEAD / 2
    np.testing.assert_allclose(found, expected, rtol=5e-4, atol=5e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("features.18.0.weight", "features.18.0.weight are missing"),
        ("features.1.conv.2.bias", "features.1.conv.2.bias are missing"),
        ("features.9.conv.1.0.weight", "features.9.conv.1.weight are missing|shape"),
    ],
)
def test_other_weights_of_a_mobilenet_are_refused(change: str, message: str) -> None:
    state = tiny_mobilenet()
    state.pop(change)
    with pytest.raises(ValueError, match=message):
        make_model(state, 64, None)


def test_weights_of_another_family_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the weights features\.0\.0\.weight are missing"):
        make_model(tiny_state(), 64, None)
    with pytest.raises(ValueError, match=r"the weights _conv_stem\.weight are missing"):
        make_model(tiny_mobilenet(), 64, 1.0)
    wider = {**tiny_mobilenet(), "features.19.0.weight": np.ones((2, 2, 1, 1))}
    with pytest.raises(ValueError, match=r"the weights features\.19\.0\.weight belong to another network"):
        make_model(wider, 64, None)


def test_the_same_weights_give_the_same_bytes() -> None:
    contents = {make_model(dict(sorted(tiny_state().items(), reverse=back)), 64, 1.0) for back in (0, 1)}
    assert len(contents) == 1


def test_the_memory_layout_of_weights_does_not_matter() -> None:
    turned = {
        name: np.asfortranarray(values) if values.ndim > 1 else values
        for name, values in tiny_state().items()
    }
    assert make_model(turned, 64, 1.0) == make_model(tiny_state(), 64, 1.0)


def without(name: str) -> Callable[[State], object]:
    return lambda state: state.pop(name)


def changed(name: str, how: Callable[[Any], Any]) -> Callable[[State], object]:
    return lambda state: state.update({name: how(state[name])})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(without("_conv_stem.weight"), "_conv_stem.weight are missing", id="stem"),
        pytest.param(without("_bn1.running_var"), "_bn1.running_var are missing", id="norm"),
        pytest.param(without("_blocks.7._project_conv.weight"), "_blocks.7._project_conv", id="a layer"),
        pytest.param(without("_blocks.3._expand_conv.weight"), "shape", id="an expansion"),
        pytest.param(
            lambda state: [state.pop(name) for name in list(state) if name.startswith("_blocks.15.")],
            "_blocks.15._depthwise_conv.weight are missing",
            id="the last block",
        ),
        pytest.param(
            lambda state: state.update({"_blocks.16._bn0.bias": np.ones(2)}),
            "_blocks.16._bn0.bias belong to another network",
            id="a further block",
        ),
        pytest.param(
            lambda state: state.update({"_blocks.2._se_reduce.weight": np.ones((1, 2, 1, 1))}),
            "_blocks.2._se_reduce.weight belong to another network",
            id="layers of EfficientNet that Lite does not have",
        ),
        pytest.param(lambda state: state.clear(), "_conv_stem.weight are missing", id="nothing"),
        pytest.param(changed("_conv_head.weight", lambda w: w[0]), "shape", id="3 dimensions"),
        pytest.param(changed("_conv_head.weight", lambda w: w[:, 1:]), "shape", id="fewer inputs"),
        pytest.param(changed("_conv_stem.weight", lambda w: w[:, :, :2]), "shape", id="not square"),
        pytest.param(changed("_blocks.5._depthwise_conv.weight", lambda w: w[1:]), "shape", id="few kernels"),
        pytest.param(changed("_bn1.weight", lambda w: w[:1]), "shape", id="one number for all"),
        pytest.param(changed("_bn1.bias", lambda w: w[:1]), "shape", id="one bias for all"),
        pytest.param(changed("_bn1.running_mean", lambda w: w[0]), "shape", id="a scalar"),
        pytest.param(changed("_bn1.running_var", lambda w: w[:, None]), "shape", id="a column"),
        pytest.param(changed("_bn1.running_var", lambda w: -w), "negative", id="negative variances"),
        pytest.param(changed("_bn1.bias", lambda w: w * np.nan), "not all finite", id="NaN"),
        pytest.param(changed("_conv_head.weight", lambda w: w[:0]), "empty", id="empty"),
    ],
)
def test_other_weights_are_refused(change: Callable[[State], object], message: str) -> None:
    state = tiny_state()
    make_model(state, 64, 1.0)
    change(state)
    with pytest.raises(ValueError, match=message):
        make_model(state, 64, 1.0)


def test_weights_of_another_depth_are_refused() -> None:
    with pytest.raises(ValueError, match=r"belong to another network|shape"):
        make_model(tiny_state(DEEPER), 64, 1.0)
    with pytest.raises(ValueError, match=r"are missing|shape"):
        make_model(tiny_state(LITE0), 64, 1.1)


# Extras cannot install the weights of mobilenet-v2, whose package declares versions that conflict with ours.
MADE = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            model.weights.requirement is not None and find_spec(model.weights.package) is None,
            reason=f"the weights of {name} are not installed",
        ),
    )
    for name, model in MODELS.items()
    if model.weights
]
SCALING = {
    "efficientnet-lite": ((127.0,), (128.0,), "bicubic", 224 / 256),
    # As torchvision's MobileNet_V2_Weights.IMAGENET1K_V1 has it, for colours from 0 to 1.
    "mobilenet-v2": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bilinear", 224 / 256),
}


@pytest.mark.parametrize("name", MADE)
def test_the_models_of_the_catalogue(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The installed packages have the weights, and the model is the same everywhere."""
    monkeypatch.setenv("CRNR_MODELS", str(tmp_path))
    model = MODELS[name]
    assert model.weights is not None
    path = get_model(name).path
    assert path == tmp_path / f"{name}.onnx"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == model.weights.model_sha256
    assert round(path.stat().st_size / 1e6) == model.megabytes
    network = make_network(NetworkOptions(path), 1)
    assert (network.size, network.n_outputs) == ((model.size, model.size), model.n_features)
    mean, std, resampling, crop = SCALING[name.rstrip("012") if "lite" in name else name]
    factor = 1 if len(mean) == 1 else 255
    assert network.mean == pytest.approx([value * factor for value in mean])
    assert network.std == pytest.approx([value * factor for value in std])
    assert network.filter == resampling
    assert network.crop == (crop if model.size == 224 else model.size / (model.size + 32))


@pytest.mark.slow
@pytest.mark.skipif(not FLOWERS, reason=f"the images in {SHARED} are not on this machine")
def test_lite0_equals_an_independent_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setenv("CRNR_MODELS", str(tmp_path))
    made = get_model("efficientnet-lite0").path.read_bytes()
    other = onnxruntime.InferenceSession(SHARED / "efficientnet_lite0_features.onnx")
    images = []
    for path in FLOWERS[:: len(FLOWERS) // 12]:
        pixels = np.asarray(Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC))
        images.append((pixels.transpose(2, 0, 1) - np.float32(127)) / np.float32(128))
    inputs = np.array(images, np.float32)
    name = other.get_inputs()[0].name
    expected = np.concatenate([other.run(None, {name: one[None]})[0].reshape(1, -1) for one in inputs])
    found = run(made, inputs)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert found.shape == expected.shape == (len(inputs), 1280)
    assert ((found * expected).sum(axis=1) / lengths).min() >= 0.9999
