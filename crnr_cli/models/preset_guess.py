"""Which preset a model probably needs, by its name and its layers, as models do not say it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from crnr_cli.models.protobuf import MESSAGE, VARINT, Field, fields, text

# Numbers of fields in onnx.proto.
_GRAPH = 7  # of a model
_NODE = 1  # of a graph
_OPERATOR, _ATTRIBUTE = 4, 5  # of a node
_NAME, _NUMBER, _NUMBERS = 1, 3, 8  # of an attribute

# EfficientNet-Lite is EfficientNet without what needs these, and with Clip instead: it has convolutions of
# single channels, 3 or 5 pixels wide, where other networks with Clip have 3 only, or 7 too.
_NOT_LITE = {"Sigmoid", "HardSigmoid", "HardSwish", "Relu", "Softmax", "Erf", "Gelu"}
_WIDTHS_OF_LITE = {3, 5}


class Guess(NamedTuple):
    preset: str
    why: str  # to complete "a guess, "


def guess_preset(model: Path) -> Guess:
    if "efficientnet-lite" in model.name.lower().replace("_", "-"):
        return Guess("efficientnet-lite", "by the name of the model")
    try:
        with model.open("rb") as file:
            operators, widths = _layers(file)
    except (OSError, ValueError):  # reported when it is opened
        operators, widths = set(), set()
    if "Clip" in operators and not operators & _NOT_LITE and widths == _WIDTHS_OF_LITE:
        return Guess("efficientnet-lite", "by the layers of the model")
    return Guess("imagenet", "as the model does not say what it expects")


def _layers(file: BinaryIO) -> tuple[set[str], set[int]]:
    """The operators of a model, and the widths of its convolutions of single channels."""
    operators: set[str] = set()
    widths: set[int] = set()
    size = file.seek(0, os.SEEK_END)
    for graph in _messages(file, 0, size, _GRAPH):
        for node in _messages(file, graph.start, graph.end, _NODE):
            attributes: dict[str, list[int]] = {}
            for field in fields(file, node.start, node.end):
                if field.number == _OPERATOR and field.kind == MESSAGE:
                    operators.add(text(file, field))
                elif field.number == _ATTRIBUTE and field.kind == MESSAGE:
                    attributes |= _numbers(file, field)
            if max(attributes.get("group", [1])) > 1:
                widths |= set(attributes.get("kernel_shape", []))
    return operators, widths


def _messages(file: BinaryIO, start: int, end: int, number: int) -> Iterator[Field]:
    return (field for field in fields(file, start, end) if (field.number, field.kind) == (number, MESSAGE))


def _numbers(file: BinaryIO, attribute: Field) -> dict[str, list[int]]:
    """The name of an attribute, with its numbers if it has whole numbers."""
    name, numbers = "", []
    for field in fields(file, attribute.start, attribute.end):
        if field.number == _NAME and field.kind == MESSAGE:
            name = text(file, field)
        elif field.number in (_NUMBER, _NUMBERS) and field.kind == VARINT:
            numbers.append(field.value)
    return {name: numbers} if numbers else {}
