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
from helpers.samples import make_images

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
        ("dinov2_vits14.onnx", (3, 5), "Clip", "dinov2", "by the name of the model"),
        ("CLIP-ViT-B-32-vision.onnx", (3,), "Relu", "clip", "by the name of the model"),
        ("openai_clip.onnx", (3,), "Relu", "clip", "by the name of the model"),
        ("mobileclip_s1-clip.onnx", (3,), "Relu", "mobileclip", "by the name of the model"),
        ("siglip2-base-patch16-224.onnx", (3,), "Relu", "siglip", "by the name of the model"),
    ],
)
def test_the_name_and_the_layers_tell_the_preset(
    tmp_path: Path, name: str, widths: tuple[int, ...], activation: str, preset: str, why: str
) -> None:
    assert guess_preset(save_network(tmp_path / name, widths, activation)) == (preset, why)


@pytest.mark.parametrize(
    ("name", "widths", "activation"),
    [
        ("mobilenet.onnx", (3, 3), "Clip"),
        ("proxyless.onnx", (3, 5, 7), "Clip"),
        ("mnasnet.onnx", (3, 5), "Relu"),
        ("efficientnet.onnx", (3, 5), "Sigmoid"),
        ("vit_small.onnx", (3,), "Relu"),  # many families have ViT in their names
        ("eclipse.onnx", (3,), "Relu"),
        ("video_clip_resnet50.onnx", (3,), "Relu"),
        ("siglip2-base-patch16-naflex.onnx", (3,), "Relu"),  # its images have no common size
    ],
)
def test_other_models_are_of_no_known_family(
    tmp_path: Path, name: str, widths: tuple[int, ...], activation: str
) -> None:
    assert guess_preset(save_network(tmp_path / name, widths, activation)) is None


@pytest.mark.parametrize(
    ("folder", "file", "preset"),
    [
        ("dinov2-small/onnx", "model.onnx", "dinov2"),
        ("dinov2-small/onnx", "model_quantized.onnx", "dinov2"),
        ("dinov2-small", "model.onnx", "dinov2"),
        ("clip-vit-base-patch32/onnx", "vision_model.onnx", "clip"),
        ("clip-vit-base-patch32/onnx", "resnet50.onnx", None),
        ("clip-vit-base-patch32/other", "model.onnx", None),
    ],
)
def test_a_model_without_a_name_of_its_own_is_named_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, file: str, preset: str | None
) -> None:
    (tmp_path / folder).mkdir(parents=True)
    model = save_network(tmp_path / folder / file, (3,), "Relu")
    expected = None if preset is None else (preset, "by the name of the model's folder")
    assert guess_preset(model) == expected
    monkeypatch.chdir(tmp_path / folder)
    assert guess_preset(Path(file)) == expected


@pytest.mark.parametrize(
    ("content", "preset"),
    [
        ('{"model_type": "dinov2"}', "dinov2"),
        ('{"model_type": "dinov2_with_registers"}', "dinov2"),
        ('{"model_type": "dinov3_vit"}', "dinov3"),
        ('{"model_type": "clip_vision_model"}', "clip"),
        ('{"model_type": "siglip_vision_model"}', "siglip"),
        ('{"model_type": "vit"}', "vit"),
        ('{"model_type": "resnet"}', None),
        ('{"model_type": ["vit"]}', None),
        ('["model_type", "vit"]', None),
        ('{"model_type": "vit"', None),
        ("[" * 100_000, None),
    ],
)
def test_model_type_decides_the_preset(tmp_path: Path, content: str, preset: str | None) -> None:
    (tmp_path / "config.json").write_text(content)
    model = save_network(tmp_path / "network.onnx", (3,), "Relu")
    expected = None if preset is None else (preset, "by the model_type in config.json")
    assert guess_preset(model) == expected


def test_guess_preset_returns_none_for_files_that_are_not_models(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\x0b\x0c")
    assert guess_preset(tmp_path / "m.onnx") is None
    assert guess_preset(tmp_path / "nosuch.onnx") is None


@pytest.mark.skipif(not REAL_MODEL.is_file(), reason="the real model is not there")
def test_a_real_model_by_another_name(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").symlink_to(REAL_MODEL)
    assert guess_preset(tmp_path / "model.onnx") == ("efficientnet-lite", "by the layers of the model")


def test_the_name_of_the_file_makes_no_difference(crnr: Runner) -> None:
    make_images(crnr.here / "gallery")
    make_images(crnr.here / "queries", first=50)
    answers = []
    for name in ("efficientnet_lite0.onnx", "model.onnx"):
        save_network(crnr.here / name, (3, 5), "Clip")
        built = crnr("build", "gallery", "--extractor", name)
        assert (built.exit, built.out) == (0, "")
        assert "note: images are prepared with the preset efficientnet-lite, a guess by the " in built.err
        answers.append(crnr("classify", "queries").out)
    assert answers[0] == answers[1]
