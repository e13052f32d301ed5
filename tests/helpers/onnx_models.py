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
    """Gives back what it is given, as one vector per image: so its preparation can be seen."""
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
    """Write a random projection of 8 x 8 pixels, with its weights in files next to the model."""
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
    """Return the same tensor with its values in another file, which is not written."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return tensor


# Exports as optimum, timm and TensorFlow's converter write them, but of networks that only compute means: so
# it can be seen what they were given, and which of their outputs was used.
PIXEL_VALUES: Shape = ["batch_size", "num_channels", "height", "width"]
TOKENS: Shape = ["batch_size", "sequence_length", 3]
_PATCH = 4  # pixels per side


def _token_nodes(image: str = "pixel_values") -> list[Any]:
    """`last_hidden_state`: 100 plus the mean of the image, and then the mean of each patch, per channel."""
    return [
        helper.make_node("Constant", [], ["hundred"], value_float=100.0),
        helper.make_node("Constant", [], ["as_tokens"], value_ints=[0, 3, -1]),
        helper.make_node("GlobalAveragePool", [image], ["mean"]),
        helper.make_node("Add", ["mean", "hundred"], ["marked"]),
        helper.make_node("Reshape", ["marked", "as_tokens"], ["first"]),
        helper.make_node(
            "AveragePool", [image], ["patches"], kernel_shape=[_PATCH] * 2, strides=[_PATCH] * 2
        ),
        helper.make_node("Reshape", ["patches", "as_tokens"], ["others"]),
        helper.make_node("Concat", ["first", "others"], ["by_feature"], axis=2),
        helper.make_node("Transpose", ["by_feature"], ["last_hidden_state"], perm=[0, 2, 1]),
    ]


def _vector_nodes(output: str, plus: float, image: str = "pixel_values") -> list[Any]:
    """Return the mean of the image per channel, plus a number by which the output can be recognised."""
    return [
        helper.make_node("GlobalAveragePool", [image], [f"{output}_mean"]),
        helper.make_node("Constant", [], [f"{output}_plus"], value_float=float(plus)),
        helper.make_node("Add", [f"{output}_mean", f"{output}_plus"], [f"{output}_sum"]),
        helper.make_node("Flatten", [f"{output}_sum"], [output]),
    ]


def tokens_export(path: Path, shape: Shape = PIXEL_VALUES) -> Path:
    """Export like optimum for ViT and DINOv2."""
    return save_model(path, _token_nodes(), {"pixel_values": shape}, {"last_hidden_state": TOKENS})


def pooler_export(path: Path, shape: Shape = PIXEL_VALUES) -> Path:
    """Export like optimum the vision part of CLIP and SigLIP: pooler_output is 200 plus the mean."""
    return save_model(
        path,
        [*_token_nodes(), *_vector_nodes("pooler_output", 200)],
        {"pixel_values": shape},
        {"last_hidden_state": TOKENS, "pooler_output": ["batch_size", 3]},
    )


def embeds_export(path: Path, shape: Shape = PIXEL_VALUES) -> Path:
    """Export like optimum CLIP's vision part with its projection: image_embeds is 300 plus the mean."""
    return save_model(
        path,
        [*_token_nodes(), *_vector_nodes("pooler_output", 200), *_vector_nodes("image_embeds", 300)],
        {"pixel_values": shape},
        {"last_hidden_state": TOKENS, "pooler_output": ["batch_size", 3], "image_embeds": ["batch_size", 3]},
    )


def maps_export(path: Path, *, with_pooler: bool = True) -> Path:
    """Export like optimum for ResNet and ConvNext: maps, and their mean of 1 x 1, which is 200 plus it."""
    nodes = [
        helper.make_node(
            "AveragePool",
            ["pixel_values"],
            ["last_hidden_state"],
            kernel_shape=[_PATCH] * 2,
            strides=[_PATCH] * 2,
        ),
        helper.make_node("GlobalAveragePool", ["pixel_values"], ["mean"]),
        helper.make_node("Constant", [], ["plus"], value_float=200.0),
        helper.make_node("Add", ["mean", "plus"], ["pooler_output"]),
    ]
    outputs: dict[str, Shape] = {"last_hidden_state": ["batch_size", 3, "h", "w"]}
    if with_pooler:
        outputs["pooler_output"] = ["batch_size", 3, 1, 1]
    return save_model(path, nodes if with_pooler else nodes[:1], {"pixel_values": PIXEL_VALUES}, outputs)


def timm_export(path: Path, size: int = 224) -> Path:
    """Export like torch.onnx.export a network of timm or torchvision without its classifier."""
    return save_model(
        path,
        _vector_nodes("output", 0, "input"),
        {"input": ["batch", 3, size, size]},
        {"output": ["batch", 3]},
    )


def tensorflow_export(path: Path, shape: Shape) -> Path:
    """Export like tf2onnx a network of Keras: the channels last, and its maps likewise."""
    nodes = [
        helper.make_node("Transpose", ["input_1"], ["first"], perm=[0, 3, 1, 2]),
        helper.make_node(
            "AveragePool", ["first"], ["pooled"], kernel_shape=[_PATCH] * 2, strides=[_PATCH] * 2
        ),
        helper.make_node("Transpose", ["pooled"], ["maps"], perm=[0, 2, 3, 1]),
    ]
    return save_model(path, nodes, {"input_1": shape}, {"maps": ["n", "h", "w", 3]})


def whole_clip_export(path: Path) -> Path:
    """Export like optimum CLIP with its text part: it needs both."""
    nodes = [
        *_vector_nodes("image_embeds", 0),
        helper.make_node("Cast", ["input_ids"], ["ids"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["ids", "mask"], ["text_embeds"]),
    ]
    text: Shape = ["text_batch_size", "sequence_length"]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, text),
        helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, PIXEL_VALUES),
        helper.make_tensor_value_info("attention_mask", TensorProto.INT64, text),
    ]
    outputs = [
        helper.make_tensor_value_info("image_embeds", TensorProto.FLOAT, ["image_batch_size", 3]),
        helper.make_tensor_value_info("text_embeds", TensorProto.FLOAT, text),
    ]
    graph = helper.make_graph(nodes, "tiny", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
