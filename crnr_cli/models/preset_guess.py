"""Guess which preset fits a model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crnr_cli.errors import DataError
from crnr_cli.models.config_files import config_folders, read_config
from crnr_cli.models.onnx_files import MESSAGE, VARINT, Field, read_fields, read_text

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
