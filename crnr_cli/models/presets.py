"""Presets: how well-known families of networks expect images, and which preset fits a model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.models.config_files import config_folders, read_config
from crnr_cli.models.onnx_files import MESSAGE, VARINT, Field, read_fields, read_text
from crnr_cli.records import dataclass

OUTPUTS = ("image_embeds", "pooler_output", "last_hidden_state")
_IMAGENET_MEAN, _IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_HALF = (127.5,)
_CLIP_MEAN = (0.48145466 * 255, 0.4578275 * 255, 0.40821073 * 255)
_CLIP_STD = (0.26862954 * 255, 0.26130258 * 255, 0.27577711 * 255)
_TOKENS_FIRST = ("last_hidden_state", "pooler_output")
# Numbers of fields in onnx.proto.
_GRAPH = 7  # of a model
_NODE = 1  # of a graph
_OPERATOR, _ATTRIBUTE = 4, 5  # of a node
_NAME, _NUMBER, _NUMBERS = 1, 3, 8  # of an attribute
# EfficientNet-Lite is EfficientNet without the layers that need these, and with Clip instead: it has
# convolutions of single channels, 3 or 5 pixels wide, where other networks with Clip have 3 only, or 7 too.
_NOT_LITE = {"Sigmoid", "HardSigmoid", "HardSwish", "Relu", "Softmax", "Erf", "Gelu"}
_WIDTHS_OF_LITE = {3, 5}
# The first of these words in a name gives the family. "vit" does not: it is in the names of many families.
_WORDS = {
    **{"dinov2": "dinov2", "dinov3": "dinov3", "clip": "clip", "siglip": "siglip", "siglip2": "siglip"},
    **{"mobileclip": "mobileclip", "mobileclip2": "mobileclip"},
}
# "clip" is also an ordinary word, as in video-clip: it needs one of these words, or to come first.
_WITH_CLIP = {"vit", "rn50", "rn101", "openai", "laion", "vision", "visual"}
_PATCHES_OF_ANY_NUMBER = "naflex"  # a variant of SigLIP 2
# A model with such a name is named by its folder.
_ANY_MODEL = re.compile(r"(vision_)?(model|encoder)([_-](quantized|fp16|q4|q4f16|q8|bnb4|u?int8))*|visual")
# The model_type of transformers' config.json.
_MODEL_TYPES = {
    **{"dinov2": "dinov2", "dinov2_with_registers": "dinov2", "dinov3_vit": "dinov3", "vit": "vit"},
    **{"clip": "clip", "clip_vision_model": "clip", "siglip": "siglip", "siglip_vision_model": "siglip"},
}


@dataclass(frozen=True)
class Preset:
    """How a family expects images, and which outputs describe them.

    Means and standard deviations are for pixels from 0 to 255, and crops as in `PixelRequest`.
    """

    crop: float
    filter: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int | None = None  # of the sides in pixels, if the model accepts any size
    layout: str | None = None  # of the input, if the model does not declare it
    outputs: tuple[str, ...] = OUTPUTS  # the outputs with image features, the preferred one first
    has_class_token: bool = False  # whether the first token of a sequence describes the whole image
    crops: tuple[tuple[int, float], ...] = ()  # for members of the family that were trained with another size

    def crop_for(self, fixed: tuple[int, int] | None) -> float:
        """Return the crop for a model whose input may have a fixed size."""
        other = dict(self.crops)
        return other.get(fixed[0], self.crop) if fixed and fixed[0] == fixed[1] else self.crop


PRESETS: dict[str, Preset] = {
    # The evaluation of EfficientNet cuts off 32 pixels at any size; timm 1.0 has the same crops, rounded.
    "efficientnet-lite": Preset(
        crop=224 / 256,
        filter="bicubic",
        mean=(127.0,),
        std=(128.0,),
        size=224,
        crops=tuple((size, size / (size + 32)) for size in (240, 260, 280, 300)),
    ),
    # torchvision 0.29: weights IMAGENET1K_V1
    "imagenet": Preset(224 / 256, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD, size=224),
    # torchvision 0.29: weights IMAGENET1K_V2, such as ResNet-50 and MobileNetV3-Large
    "imagenet-v2": Preset(224 / 232, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD, size=224),
    # The preprocessor_config.json of facebook/dinov2-small and -base. In transformers, the outputs are the
    # normalized tokens, and the first token as pooler_output.
    "dinov2": Preset(
        *(224 / 256, "bicubic", _IMAGENET_MEAN, _IMAGENET_STD),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
        crops=((518, 1.0),),  # timm 1.0: vit_*_patch14_dinov2
    ),
    # transformers 5.22: DINOv3ViTImageProcessor
    "dinov3": Preset(
        *(0.0, "bilinear", _IMAGENET_MEAN, _IMAGENET_STD),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
    ),
    # transformers 5.22: CLIPImageProcessor; the same in open_clip 3.3
    "clip": Preset(1.0, "bicubic", _CLIP_MEAN, _CLIP_STD, size=224, layout="nchw", has_class_token=True),
    # transformers 5.22: SiglipImageProcessor. It has no class token.
    "siglip": Preset(
        *(0.0, "bicubic", _HALF, _HALF),
        size=224,
        layout="nchw",
        outputs=("pooler_output", "image_embeds", "last_hidden_state"),
    ),
    # transformers 5.22: ViTImageProcessor. The pooler of ViT has random weights if none were trained.
    "vit": Preset(
        *(0.0, "bilinear", _HALF, _HALF),
        size=224,
        layout="nchw",
        outputs=_TOKENS_FIRST,
        has_class_token=True,
    ),
    # open_clip 3.3: MobileCLIP-S0 to -S2; -B was trained with 224 pixels
    "mobileclip": Preset(1.0, "bilinear", (0.0,), (255.0,), size=256, layout="nchw"),
    "raw": Preset(0.0, "bilinear", (0.0,), (1.0,)),
}


class Guess(NamedTuple):
    preset: str
    why: str  # to complete "a guess "


def guess_preset(model: Path) -> Guess | None:
    """Guess a model's preset from its name, layers or config.json; None if no known family fits.

    ONNX files do not record how images are prepared.
    """
    if "efficientnet-lite" in model.name.lower().replace("_", "-"):
        return Guess("efficientnet-lite", "by the name of the model")
    if (preset := _family(model.stem)) is not None:
        return Guess(preset, "by the name of the model")
    folder = config_folders(model)[-1].absolute().name
    if _ANY_MODEL.fullmatch(model.stem.lower()) and (preset := _family(folder)) is not None:
        return Guess(preset, "by the name of the model's folder")
    if (preset := _MODEL_TYPES.get(_model_type(model))) is not None:
        return Guess(preset, "by the model_type in config.json")
    try:
        with model.open("rb") as file:
            operators, widths = _layers(file)
    except (OSError, ValueError):  # reported when it is opened
        operators, widths = set(), set()
    if "Clip" in operators and not operators & _NOT_LITE and widths == _WIDTHS_OF_LITE:
        return Guess("efficientnet-lite", "by the layers of the model")
    return None


def _family(name: str) -> str | None:
    words = re.split(r"[^a-z0-9]+", name.lower())
    if _PATCHES_OF_ANY_NUMBER in words:
        return None
    found = next((_WORDS[word] for word in words if word in _WORDS), None)
    is_clip = found == "clip" and (words[0] == "clip" or not _WITH_CLIP.isdisjoint(words))
    return found if found != "clip" or is_clip else None


def _model_type(model: Path) -> str:
    """Return the model_type of transformers' config.json; empty if there is no readable file."""
    for folder in config_folders(model):
        try:
            content = read_config(folder / "config.json")
        except DataError:
            continue
        if content is not None and isinstance(content.get("model_type"), str):
            return str(content["model_type"])
    return ""


def _layers(file: BinaryIO) -> tuple[set[str], set[int]]:
    """Return the operators of a model, and the widths of its single-channel convolutions."""
    operators: set[str] = set()
    widths: set[int] = set()
    size = file.seek(0, os.SEEK_END)
    for graph in _messages(file, 0, size, _GRAPH):
        for node in _messages(file, graph.start, graph.end, _NODE):
            attributes: dict[str, list[int]] = {}
            for field in read_fields(file, node.start, node.end):
                if field.number == _OPERATOR and field.kind == MESSAGE:
                    operators.add(read_text(file, field))
                elif field.number == _ATTRIBUTE and field.kind == MESSAGE:
                    attributes |= _numbers(file, field)
            if max(attributes.get("group", [1])) > 1:
                widths |= set(attributes.get("kernel_shape", []))
    return operators, widths


def _messages(file: BinaryIO, start: int, end: int, number: int) -> Iterator[Field]:
    return (
        field for field in read_fields(file, start, end) if (field.number, field.kind) == (number, MESSAGE)
    )


def _numbers(file: BinaryIO, attribute: Field) -> dict[str, list[int]]:
    """Return the name of an attribute, with its whole numbers if it has any."""
    name, numbers = "", []
    for field in read_fields(file, attribute.start, attribute.end):
        if field.number == _NAME and field.kind == MESSAGE:
            name = read_text(file, field)
        elif field.number in (_NUMBER, _NUMBERS) and field.kind == VARINT:
            numbers.append(field.value)
    return {name: numbers} if numbers else {}
