"""Which preset a model probably needs: by its name, and by its layers whatever it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from crnr_cli.models.preset_guess import guess_preset
from helpers.onnx_models import save_model
from helpers.paths import TESTS
from helpers.runner import Runner
from helpers.samples import make_pictures

REAL_MODEL = TESTS.parent.parent / "shared" / "data" / "efficientnet_lite0_features.onnx"


def save_network(path: Path, widths: tuple[int, ...], activation: str) -> Path:
    """Convolutions of single channels, each with an activation, as networks for small machines have them."""
    nodes, values = [], "image"
    for i, width in enumerate(widths):
        nodes += [
            helper.make_node("Constant", [], [f"w{i}"], value=_weights(width)),
            helper.make_node(
                "Conv",
                [values, f"w{i}"],
                [f"c{i}"],
                group=3,
                kernel_shape=[width, width],
                pads=[width // 2] * 4,
            ),
            helper.make_node(activation, [f"c{i}"], [f"a{i}"]),
        ]
        values = f"a{i}"
    nodes.append(helper.make_node("Flatten", [values], ["features"]))
    return save_model(path, nodes, {"image": ["n", 3, 8, 8]}, {"features": ["n", 192]})


def _weights(width: int) -> Any:
    return numpy_helper.from_array(np.ones((3, 1, width, width), np.float32))


@pytest.mark.parametrize(
    ("name", "widths", "activation", "preset", "why"),
    [
        ("EfficientNet_Lite0.onnx", (3,), "Relu", "efficientnet-lite", "by the name of the model"),
        ("model.onnx", (3, 5), "Clip", "efficientnet-lite", "by the layers of the model"),
        ("mobilenet.onnx", (3, 3), "Clip", "imagenet", "as the model does not say what it expects"),
        ("proxyless.onnx", (3, 5, 7), "Clip", "imagenet", "as the model does not say what it expects"),
        ("mnasnet.onnx", (3, 5), "Relu", "imagenet", "as the model does not say what it expects"),
        ("efficientnet.onnx", (3, 5), "Sigmoid", "imagenet", "as the model does not say what it expects"),
    ],
)
def test_the_name_and_the_layers_tell_the_preset(
    tmp_path: Path, name: str, widths: tuple[int, ...], activation: str, preset: str, why: str
) -> None:
    assert guess_preset(save_network(tmp_path / name, widths, activation)) == (preset, why)


def test_what_is_no_model_is_not_reported_here(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x0b\x0c")
    assert guess_preset(tmp_path / "m.onnx").preset == "imagenet"
    assert guess_preset(tmp_path / "nosuch.onnx").preset == "imagenet"


@pytest.mark.skipif(not REAL_MODEL.is_file(), reason="the real model is not there")
def test_a_real_model_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to(REAL_MODEL)
    assert guess_preset(tmp_path / "model.onnx") == ("efficientnet-lite", "by the layers of the model")


def test_the_name_of_the_file_makes_no_difference(crnr: Runner) -> None:
    make_pictures(crnr.here / "gallery")
    make_pictures(crnr.here / "queries", first=50)
    answers = []
    for name in ("efficientnet_lite0.onnx", "model.onnx"):
        save_network(crnr.here / name, (3, 5), "Clip")
        built = crnr("build", "gallery", "--extractor", name)
        assert (built.exit, built.out) == (0, "")
        assert "note: pictures are prepared with the preset efficientnet-lite, a guess by the " in built.err
        answers.append(crnr("classify", "queries").out)
    assert answers[0] == answers[1]
