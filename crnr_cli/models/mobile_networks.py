"""EfficientNet-Lite and MobileNetV2 as ONNX models, made of their weights: images in, 1280 features out.

Both consist of the same blocks. The layers follow the published networks (models/official/efficientnet/lite
in https://github.com/tensorflow/tpu, and mobilenetv2.py in torchvision), without the classifiers at their
ends. Batch normalization is folded into the convolutions before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from crnr_cli.arrays import Array
from crnr_cli.records import dataclass

_OPSET, _IR_VERSION = 13, 7  # all supported versions of onnxruntime read these
INPUT, OUTPUT = "image", "features"


class _Family(NamedTuple):
    name: str
    stages: tuple[tuple[int, int], ...]  # stride, blocks
    epsilon: float  # of batch normalization
    is_from_tensorflow: bool  # whether an odd zero of the padding comes after the values
    unused: tuple[str, ...]  # the classifier


_LITE = _Family(
    name="efficientnet-lite",
    stages=((1, 1), (2, 2), (2, 2), (2, 3), (1, 3), (2, 4), (1, 1)),  # of lite0
    epsilon=1e-3,
    is_from_tensorflow=True,
    unused=("_fc.weight", "_fc.bias"),
)
_MOBILENET = _Family(
    name="mobilenet-v2",
    stages=((1, 1), (2, 2), (2, 3), (2, 4), (1, 3), (2, 3), (1, 1)),
    epsilon=1e-5,
    is_from_tensorflow=False,
    unused=("classifier.1.weight", "classifier.1.bias"),
)


def make_model(weights: Mapping[str, Array], size: int, depth: float | None) -> bytes:
    """Return the model for images of `size` x `size` pixels as the content of a file, always the same bytes.

    `depth` is the factor by which an EfficientNet-Lite has more blocks than lite0; None for a MobileNetV2.
    ValueError if the weights do not belong to such a network.
    """
    graph = _Graph(weights, size, _MOBILENET if depth is None else _LITE)
    try:
        values = _add_mobilenet(graph) if depth is None else _add_lite(graph, depth)
    except KeyError as e:
        raise ValueError(f"the weights {e.args[0]} are missing") from e
    if graph.unused:
        raise ValueError(f"the weights {min(graph.unused)} belong to another network")
    return graph.finish(values, size)


def _add_lite(graph: _Graph, depth: float) -> str:
    values = graph.add_convolution(INPUT, "_conv_stem", "_bn0", stride=2)
    for number, stride in enumerate(_strides(_LITE, depth)):
        at = f"_blocks.{number}."
        layers = [(f"{at}_depthwise_conv", f"{at}_bn1"), (f"{at}_project_conv", f"{at}_bn2")]
        if f"{at}_expand_conv.weight" in graph.weights:
            layers.insert(0, (f"{at}_expand_conv", f"{at}_bn0"))
        values = graph.add_block(values, at, layers, stride)
    return graph.add_convolution(values, "_conv_head", "_bn1")


def _add_mobilenet(graph: _Graph) -> str:
    values = graph.add_convolution(INPUT, "features.0.0", "features.0.1", stride=2)
    strides = _strides(_MOBILENET)
    for number, stride in enumerate(strides, 1):
        at = f"features.{number}."
        clipped = range(
            2 if f"{at}conv.1.0.weight" in graph.weights else 1
        )  # the first block does not expand
        layers = [(f"{at}conv.{i}.0", f"{at}conv.{i}.1") for i in clipped]
        layers.append((f"{at}conv.{len(clipped)}", f"{at}conv.{len(clipped) + 1}"))
        values = graph.add_block(values, at, layers, stride)
    head = f"features.{len(strides) + 1}."
    return graph.add_convolution(values, f"{head}0", f"{head}1")


def _strides(family: _Family, depth: float = 1.0) -> list[int]:
    """Return the stride of every block; the first and the last stage always have one block."""
    strides: list[int] = []
    for stage, (stride, count) in enumerate(family.stages):
        repeated = count if stage in (0, len(family.stages) - 1) else int(np.ceil(count * depth))
        strides += [stride] + [1] * (repeated - 1)
    return strides


@dataclass
class _Graph:
    """The unfinished model."""

    weights: Mapping[str, Array]
    side: int  # of the values, in pixels
    family: _Family
    n_channels: int = 3
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    unused: set[str] = field(init=False)

    def __post_init__(self) -> None:
        from onnx import numpy_helper

        counters = {name for name in self.weights if name.endswith(".num_batches_tracked")}
        self.unused = set(self.weights) - counters - set(self.family.unused)
        for name, limit in (("zero", 0.0), ("six", 6.0)):
            self.constants.append(numpy_helper.from_array(np.array(limit, np.float32), name))

    def _take(self, name: str) -> Array:
        self.unused.discard(name)
        numbers = self.weights[name].astype(np.float64)
        if not numbers.size or not np.isfinite(numbers).all():
            raise ValueError(f"the weights {name} are empty, or not all finite")
        return numbers

    def add_block(self, values: str, prefix: str, layers: list[tuple[str, str]], stride: int) -> str:
        """Add a block: more channels, one convolution each, fewer channels, and the sum with the input.

        `layers` are the names of the convolutions and their normalizations; the first of three is optional.
        """
        from onnx import helper

        n_before, before = self.n_channels, values
        *expansion, depthwise, projection = layers
        for names in expansion:
            values = self.add_convolution(values, *names)
        values = self.add_convolution(values, *depthwise, stride)
        values = self.add_convolution(values, *projection, clips=False)
        if stride > 1 or self.n_channels != n_before:
            return values
        self.nodes.append(helper.make_node("Add", [values, before], [f"{prefix}sum"]))
        return f"{prefix}sum"

    def add_convolution(
        self, values: str, name: str, norm: str, stride: int = 1, *, clips: bool = True
    ) -> str:
        """Add a convolution with batch normalization and, if `clips`, ReLU6."""
        from onnx import helper, numpy_helper

        kernel = self._take(f"{name}.weight")
        factor, bias, mean, variance = (
            self._take(f"{norm}.{of}") for of in ("weight", "bias", "running_mean", "running_var")
        )
        if kernel.ndim != 4 or any(one.shape != kernel.shape[:1] for one in (factor, bias, mean, variance)):
            raise ValueError(f"the weights {name} or {norm} have another shape")
        n_outputs, n_inputs, height, width = kernel.shape
        group = n_outputs if n_inputs == 1 else 1
        if n_inputs * group != self.n_channels or height != width:
            raise ValueError(f"the weights {name} have another shape")
        if variance.min() < 0:
            raise ValueError(f"the weights {norm}.running_var are negative")
        scale = factor / np.sqrt(variance + self.family.epsilon)
        shift = bias - mean * scale
        folded = {f"{name}.weight": kernel * scale[:, None, None, None], f"{name}.bias": shift}
        for constant, numbers in folded.items():
            self.constants.append(numpy_helper.from_array(numbers.astype(np.float32), constant))
        before, after = self._padding(width, stride)
        self.nodes.append(
            helper.make_node(
                "Conv",
                [values, *folded],
                [f"{name}.out"],
                group=group,
                kernel_shape=[height, width],
                pads=[before, before, after, after],
                strides=[stride, stride],
            )
        )
        self.side, self.n_channels = -(-self.side // stride), n_outputs
        if not clips:
            return f"{name}.out"
        self.nodes.append(helper.make_node("Clip", [f"{name}.out", "zero", "six"], [f"{name}.clipped"]))
        return f"{name}.clipped"

    def _padding(self, width: int, stride: int) -> tuple[int, int]:
        """Return the zeros on either side.

        TensorFlow's SAME padding adds as few as possible, and an odd zero after the values. PyTorch adds the
        same number on both sides.
        """
        if not self.family.is_from_tensorflow:
            return width // 2, width // 2
        total = max(0, (-(-self.side // stride) - 1) * stride + width - self.side)
        return total // 2, total - total // 2

    def finish(self, values: str, size: int) -> bytes:
        """Add the mean over all places, and return the content of the file."""
        from onnx import TensorProto, helper

        self.nodes.append(helper.make_node("ReduceMean", [values], [OUTPUT], axes=[2, 3], keepdims=0))
        image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", 3, size, size])
        features = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", self.n_channels])
        graph = helper.make_graph(self.nodes, self.family.name, [image], [features], self.constants)
        opset = helper.make_opsetid("", _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="crnr")
        content: bytes = model.SerializeToString(deterministic=True)
        return content
