"""Tiny ONNX models, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


def projection_model(path: Path, seed: int = 0, *, locations: tuple[str, ...] = ()) -> Path:
    """A random projection of 8 x 8 pixels; each of these files, next to the model, has some weights of it."""
    weights = np.random.default_rng(seed).normal(size=(8, 192, 1)).astype(np.float32)
    tensors = [numpy_helper.from_array(column, f"w{i}") for i, column in enumerate(weights)]
    for tensor, location in zip(tensors, locations, strict=False):
        (path.parent / location).write_bytes(tensor.raw_data)
        make_external(tensor, location)
    columns = [helper.make_node("MatMul", ["flat", t.name], [f"c{i}"]) for i, t in enumerate(tensors)]
    joined = helper.make_node("Concat", [f"c{i}" for i in range(len(tensors))], ["features"], axis=1)
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["image"], ["flat"]), *columns, joined],
        "tiny",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["n", len(tensors)])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def make_external(tensor: Any, location: str) -> Any:
    """The same tensor with its values in another file, which is not written."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor
