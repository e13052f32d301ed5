"""Tiny ONNX models, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Shape = list[Any]


def save_model(
    path: Path,
    nodes: list[Any],
    inputs: dict[str, Shape],
    outputs: dict[str, Shape],
    kind: int = TensorProto.FLOAT,
    output_kind: int = TensorProto.FLOAT,
) -> Path:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, output_kind, shape) for name, shape in outputs.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def flat_model(path: Path, shape: Shape) -> Path:
    """Gives back what it is given, as one vector per picture: so its preparation can be seen."""
    return save_model(
        path,
        [helper.make_node("Flatten", ["image"], ["features"])],
        {"image": shape},
        {"features": ["n", "d"]},
    )


def map_model(path: Path, shape: Shape) -> Path:
    return save_model(
        path, [helper.make_node("Identity", ["image"], ["maps"])], {"image": shape}, {"maps": shape}
    )
